"""A page for each command, from the same declarations that `--help` prints."""

from __future__ import annotations

import inspect
import re
from typing import Any

HEAD = """# Commands

Every command of `tideline`, as `--help` tells it. How they go together, with their output:
[the command line](../../guide/cli.md).

"""


def commands() -> dict[str, Any]:
    """Each command by its words: `collection put`."""
    import typer

    from tideline.cli.main import app

    found: dict[str, Any] = {}
    left: list[tuple[str, Any]] = [("", typer.main.get_command(app))]
    while left:
        name, command = left.pop(0)
        inner = getattr(command, "commands", None)
        if inner is None:
            found[name] = command
        else:
            left += [(f"{name} {each}".strip(), inner[each]) for each in inner]
    return found


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _value(option: Any) -> str:
    kind = getattr(option.type_descriptor, "annotation", str)
    return {int: "INTEGER", float: "NUMBER"}.get(kind, "TEXT")


def _text(help_: str) -> str:
    """The help as Markdown: lines that are indented stand as they are."""
    out = []
    for part in inspect.cleandoc(help_).replace("\b\n", "").split("\n\n"):
        is_code = all(line.startswith("  ") for line in part.splitlines() if line.strip())
        out.append(f"```text\n{inspect.cleandoc(part)}\n```" if is_code and part.strip() else part)
    return "\n\n".join(out)


def page_of(name: str, command: Any) -> str:
    """What one command takes."""
    # A parameter is an argument when nothing that begins with a dash names it.
    arguments: list[Any] = []
    options: list[Any] = []
    for each in command.params:
        is_argument = not any(flag.startswith("-") for flag in each.opts)
        (arguments if is_argument else options).append(each)
    words = [each.metavar or (each.name or "").upper() for each in arguments]
    words = [w if a.required else f"[{w}]" for w, a in zip(words, arguments, strict=True)]
    usage = " ".join(["tideline", name, *words, *(["[OPTIONS]"] if options else [])])
    text = f"## tideline {name}\n\n{_text(command.help or '')}\n\n```sh\n{usage}\n```\n\n"
    rows = []
    for word, each in zip(words, arguments, strict=True):
        rows.append(f"| `{word.strip('[]')}` | {_cell(getattr(each, 'help', None) or '')} | |\n")
    for each in options:
        if getattr(each, "hidden", False) or each.name == "help":
            continue
        flags = ", ".join(f"`{flag}`" for flag in (*each.opts, *each.secondary_opts))
        if not (each.is_flag or each.is_bool_flag):
            flags += f" {each.metavar or _value(each)}"
        default = each.default
        known = default not in (None, False, (), [], ...) and not callable(default)
        shown = f"`{default}`" if known and str(default) != "" else ""
        if getattr(each, "required", False):
            shown = "required"
        rows.append(f"| {flags} | {_cell(getattr(each, 'help', None) or '')} | {_cell(shown)} |\n")
    if rows:
        text += "| | | without it |\n|---|---|---|\n" + "".join(rows) + "\n"
    return text


def pages() -> dict[str, str]:
    """A page for each first word, and the list of all."""
    groups: dict[str, str] = {}
    rows = "| command | |\n|---|---|\n"
    for name, command in commands().items():
        stem = name.split()[0]
        if stem == name:  # the only one of its page
            groups[stem] = page_of(name, command).removeprefix("#")
        else:
            groups[stem] = groups.get(stem, f"# tideline {stem}\n\n") + page_of(name, command)
        first = re.split(r"(?<=\.)\s", " ".join(inspect.cleandoc(command.help or "").split()))[0]
        anchor = f"tideline-{name.replace(' ', '-')}"
        rows += f"| [`tideline {name}`]({stem}.md#{anchor}) | {_cell(first)} |\n"
    made = {f"reference/commands/{stem}.md": text for stem, text in groups.items()}
    return made | {"reference/commands/index.md": HEAD + rows}
