"""The reference of a pipeline's config in docs/guide/pipeline.md, made of the classes that read it.

python tests/spark/pipeline_reference.py      prints it
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tideline.spark.pipeline.generator import OPTIONS
from tideline.spark.pipeline.keys import KINDS, REQUIRED, SECTIONS, key_of

_HEADS = {"one": "[{}]", "optional": "[{}]", "named": "[{}.COLUMN]", "many": "[[{}]]"}
_NOTES = {"one": "required", "optional": "optional", "named": "one a column", "many": "any number"}


def reference() -> str:
    """The reference of all keys, as Markdown tables."""
    parts = [
        "`name` at the top, a text, is required: the store remembers by it which batches it has.\n"
        '`[schema]` holds `column = "type"`, with Spark\'s names of types.\n'
    ]
    for name, (section, how) in SECTIONS.items():
        parts.append(f"### `{_HEADS[how].format(name)}`\n\n{section.__doc__} ({_NOTES[how]})\n")
        parts.append("| key | value | default | what |\n|---|---|---|---|")
        parts += [_row(item) for item in dataclasses.fields(section)]
        parts.append("")
    parts.append("### `source.options` of the generator\n")
    parts.append("| option | value | default | what |\n|---|---|---|---|")
    for name, (kind, default, doc) in OPTIONS.items():
        words = {int: "whole number", float: "share, 0 to 1", bool: "true or false"}[kind]
        shown = "" if default is None else f"`{str(default).lower()}`"
        parts.append(f"| `{name}` | {words} | {shown} | {doc} |")
    return "\n".join(parts)


def _row(item: dataclasses.Field[Any]) -> str:
    kind, doc = KINDS[item.metadata["kind"]], item.metadata["doc"]
    if item.default is REQUIRED:
        default = "required"
    elif item.default is None or item.default == "":
        default = ""
    elif isinstance(item.default, bool):
        default = f"`{str(item.default).lower()}`"
    else:
        default = f"`{item.default}`"
    return f"| `{key_of(item)}` | {kind} | {default} | {doc} |"


if __name__ == "__main__":
    print(reference())
