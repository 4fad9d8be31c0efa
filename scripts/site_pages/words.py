"""The page of the words that kernels share with Python: a table for each layout."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

KERNELS = Path(__file__).resolve().parents[2] / "src" / "tideline" / "kernels"
HEAD = """\
# Words that kernels share with Python

A kernel gets one integer, the address of a state, and finds everything else through it ([decision
1](../decisions/0001-one-integer-per-kernel-call.md)). A state is a run of int64 words; a *layout*
says which word is what. Layouts are tables in the sources (`kernels/words.py` `Layout`), and this
page is written from them.

To add a word, add a line before the `end()` of its table: constants, sizes and this page follow. A
changed layout is a changed source, so all kernels are compiled anew ([decision
41](../decisions/0041-kernels-are-compiled-function-by-function.md)). Rows and components are
stored: a change there is a change of the format ([log](log.md), [components](components.md)).

To look at a state while debugging:

```
>>> from tideline.kernels import layout, words
>>> print(words.dump(layout.CALL, channel._engine.state))
```

An address in a state comes from `tideline/addresses.py`, so that the checked job knows what it may
point to ([decision 45](../decisions/0045-addresses-are-looked-up-in-the-checked-job.md)).

"Address" in the third column is an absolute address of words unless said otherwise; a time is
microseconds.
"""


def pages() -> dict[str, str]:
    """The one page."""
    return {"internals/words.md": "\n\n".join([HEAD.rstrip(), *map(section, layouts())]) + "\n"}


def layouts() -> list[Any]:
    """All layouts, file by file."""
    from tideline.kernels import words

    files = [path for path in KERNELS.rglob("*.py") if " = Layout(" in path.read_text("utf-8")]
    modules = []
    for path in sorted(files, key=lambda path: (path.parent, path.name != "layout.py", path.name)):
        parts = path.relative_to(KERNELS).with_suffix("").parts
        if parts != ("words",):
            modules.append(".".join(("tideline.kernels", *parts)))
            importlib.import_module(modules[-1])
    return sorted(
        (layout for layout in words.LAYOUTS if layout.module in modules),
        key=lambda layout: modules.index(layout.module),
    )


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def section(layout: Any) -> str:
    """One layout as a table."""
    file = layout.module.removeprefix("tideline.").replace(".", "/") + ".py"
    spare = layout.size - len(layout.words)
    size = f"{layout.size} words" + (f", the last {spare} without a name" if spare else "")
    rows = "\n".join(
        f"| {place} | `{word.name}` | {'' if word.kind == 'word' else word.kind} | {word.meaning} |"
        for place, word in enumerate(layout.words)
    )
    return (
        f"### {capital(layout.name)}\n\n{capital(layout.meaning)} (`{file}`). {size}.\n\n"
        f"| | word | | |\n|---|---|---|---|\n{rows}"
    )
