"""`tideline completion`: a script that completes commands and options, for bash, zsh or fish.

    command line (typer) --walk--> Word: commands, options, choices --write--> one script

The script holds all it needs: nothing of Python runs when TAB is pressed. It is made from the
parsers of the command line, so it knows every command and option of this version, and no other.

A word is completed by where it stands: a command of the group before it, an option of the command,
a choice of the option or argument, else a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from tideline.errors import InvalidRequest

__all__ = ["Word", "register", "script", "walk"]


SHELLS = ("bash", "zsh", "fish")


@dataclass
class Word:
    """A command or a group of them: what may follow it."""

    path: str
    """The words up to here, without `tideline`."""
    help: str
    commands: dict[str, str] = field(default_factory=dict)
    """Commands of a group, with a line of help."""
    options: dict[str, str] = field(default_factory=dict)
    valued: list[str] = field(default_factory=list)
    """Options that take a value."""
    choices: dict[str, list[str]] = field(default_factory=dict)
    """Values, by option, where its metavar lists them as a|b; "" is the first argument."""


def register(app: typer.Typer) -> None:
    """Hang the command on the command line."""
    app.command("completion")(completion)


def completion(
    shell: Annotated[
        str, typer.Argument(metavar="bash|zsh|fish", help="The shell to complete in.")
    ],
) -> None:
    """Print a script that completes commands and options in a shell.

    bash: tideline completion bash > ~/.local/share/bash-completion/completions/tideline.
    zsh: tideline completion zsh > a file _tideline in a folder of $fpath. fish: tideline completion
    fish > ~/.config/fish/completions/tideline.fish. A new shell has it.
    """
    if shell not in SHELLS:
        raise InvalidRequest(f"there is a script for {', '.join(SHELLS)}", shell=shell)
    typer.echo(script(shell), nl=False)


def script(shell: str) -> str:
    """The script for a shell.

    >>> script("bash").splitlines()[-1]
    'complete -o default -F _tideline tideline'
    """
    from tideline.cli.main import app

    words = list(walk(typer.main.get_command(app)))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](words)


def walk(command: Any, path: str = "") -> Iterator[Word]:
    """Every command below one, itself first."""
    found = Word(path, _line(command))
    for parameter in command.params:
        values = (parameter.metavar or "").split("|")
        values = values if len(values) > 1 and all(map(str.isalpha, values)) else []
        if parameter.param_type_name == "argument":
            if values:
                found.choices[""] = values
            continue
        names = [*parameter.opts, *parameter.secondary_opts]
        found.options |= dict.fromkeys(parameter.opts, _first(parameter.help or ""))
        found.options |= dict.fromkeys(parameter.secondary_opts, f"Not {parameter.opts[0]}")
        if not (parameter.is_flag or parameter.count):
            found.valued += names
            found.choices |= dict.fromkeys(names, values) if values else {}
    found.options["--help"] = "Show what it does."
    inner = {name: each for name, each in getattr(command, "commands", {}).items()
             if not each.hidden}  # fmt: skip
    found.commands = {name: _line(each) for name, each in inner.items()}
    yield found
    for name, each in inner.items():
        yield from walk(each, f"{path} {name}".strip())


def _line(command: Any) -> str:
    return _first(command.help or "")


def _first(text: str) -> str:
    """The first sentence of a help text, on one line."""
    line = " ".join(text.split("\n\n")[0].split())
    return line.split(". ")[0].rstrip(".")


def _case(words: list[Word], of: str) -> Iterator[str]:
    """Lines of a `case` of bash and zsh: by path, the names of one kind."""
    for word in words:
        names = " ".join(getattr(word, of))
        if names:
            yield f"    '{word.path}') echo '{names}' ;;"


def _choices(words: list[Word]) -> Iterator[str]:
    for word in words:
        for option, values in word.choices.items():
            yield f"    '{word.path}:{option}') echo '{' '.join(values)}' ;;"


def _tables(words: list[Word]) -> str:
    """What bash and zsh look things up in."""
    parts = []
    for name, lines in [
        ("commands", _case(words, "commands")), ("options", _case(words, "options")),
        ("valued", _case(words, "valued")), ("choices", _choices(words)),
    ]:  # fmt: skip
        parts += [f"_tideline_{name}() {{", '  case "$1" in', *lines, "  esac", "}"]
    return "\n".join(parts)


_WALK = r"""
# The command that some words lead to: "window create". Options and their values are passed over.
_tideline_path() {
  local at="" word skip=""
  for word in "$@"; do
    if [[ -n $skip ]]; then
      skip=""
    elif [[ $word == -* ]]; then
      [[ $word != *=* && " $(_tideline_valued "$at") " == *" $word "* ]] && skip=1
    elif [[ " $(_tideline_commands "$at") " == *" $word "* ]]; then
      at="${at:+$at }$word"
    fi
  done
  echo "$at"
}
# What may come: path, the word before, the word that is begun.
_tideline_offer() {
  local values
  if [[ " $(_tideline_valued "$1") " == *" $2 "* ]]; then
    _tideline_choices "$1:$2"
  elif [[ $3 == -* ]]; then
    _tideline_options "$1"
  else
    values=$(_tideline_commands "$1")
    [[ -n $values ]] && echo "$values" || _tideline_choices "$1:"
  fi
}
"""


def _bash(words: list[Word]) -> str:
    return f"""# bash completion for tideline: made by `tideline completion bash`
{_tables(words)}
{_WALK.strip()}
_tideline() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD - 1]}}" at
  at=$(_tideline_path "${{COMP_WORDS[@]:1:COMP_CWORD - 1}}")
  COMPREPLY=($(compgen -W "$(_tideline_offer "$at" "$prev" "$cur")" -- "$cur"))
}}
complete -o default -F _tideline tideline
"""


def _zsh(words: list[Word]) -> str:
    return f"""#compdef tideline
# zsh completion for tideline: made by `tideline completion zsh`
{_tables(words)}
{_WALK.strip()}
_tideline() {{
  local at offered
  at=$(_tideline_path "${{(@)words[2,CURRENT-1]}}")
  offered=$(_tideline_offer "$at" "${{words[CURRENT-1]}}" "${{words[CURRENT]}}")
  if [[ -n $offered ]]; then
    compadd -- ${{(s: :)offered}}
  else
    _files
  fi
}}
if [[ $funcstack[1] == _tideline ]]; then
  _tideline "$@"
else
  compdef _tideline tideline
fi
"""


def _fish(words: list[Word]) -> str:
    groups = [word for word in words if word.commands]
    lines = [
        "# fish completion for tideline: made by `tideline completion fish`",
        "function __tideline_at --description 'Whether the words so far lead to a command'",
        "  set -l at ''",
        "  for word in (commandline -opc)[2..-1]",
        "    switch \"$at\"",
        *(f"      case '{word.path}'\n        contains -- $word {' '.join(word.commands)};"
          f" and set at (string trim -- \"$at $word\")" for word in groups),
        "    end",
        "  end",
        "  test \"$at\" = \"$argv\"",
        "end",
    ]  # fmt: skip
    for word in words:
        where = f"complete -c tideline -n '__tideline_at {word.path}'"
        for name, text in word.commands.items():
            lines.append(f"{where} -f -a {name} -d {_quoted(text)}")
        if "" in word.choices:
            lines.append(f"{where} -f -a '{' '.join(word.choices[''])}'")
        for name, text in word.options.items():
            flag = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            value = ""
            if name in word.valued:
                value = (
                    f" -x -a '{' '.join(word.choices[name])}'" if name in word.choices else " -r"
                )
            lines.append(f"{where} {flag}{value} -d {_quoted(text)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Text in quotes, as fish reads it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
