"""`tideline shell`: the commands on data at a prompt, on one database that stays open.

    data> collection find cars {"speed": {"$gt": 50}} --limit 3
    data> publish roads I-87 {"kind": "accident"} --ttl-s 600

A line is a command of `tideline` without its DATABASE, split as a shell splits it, but for JSON,
which needs no quotes. The command runs as it does by itself, with the same words for what is
wrong. On a terminal, results are tables, and Tab completes commands, options, and the names of
channels, collections and fields. From a pipe it reads commands, too; the exit code is then that of
the first one that failed.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import typer

from tideline.cli import store
from tideline.cli.command import Database, DataCommand, add
from tideline.cli.output import STYLE, warn
from tideline.errors import InvalidRequest, TidelineError
from tideline.near import did_you_mean

__all__ = ["Completer", "register"]

_ENDS = ("quit", "exit")
_SAMPLE = 20  # documents that fields are taken from
_BREAKS = " \t\n'\"{}[]:,="  # what a word that is completed begins after
_LEFT_OUT = ("session", "shell")
_JSON = json.JSONDecoder()


def register(app: typer.Typer) -> None:
    """Hang the command on the command line."""
    add(app, shell)


def shell(database: Database) -> None:
    """A prompt for commands on one database, with completion and tables.

    A line is a command without its DATABASE: `find roads I-87`, `collection get cars 17`. `help`
    lists them, `help COMMAND` explains one; `quit` or Ctrl-D ends. JSON needs no quotes around it:
    `collection find cars {"speed": 50}`. Commands may also come from a pipe: then the exit code is
    that of the first one that failed.
    """
    from tideline.cli.main import app, run

    known = _commands(typer.main.get_command(app))
    asks = sys.stdin is not None and sys.stdin.isatty()
    failed = 0
    with store.hold(database) as opened:
        if asks:
            _complete_with(Completer(known, opened))
        STYLE["tables"] = True
        try:
            for words in _lines(f"{database.rstrip('/').rpartition('/')[2]}> " if asks else ""):
                code = _run(words, known, run) if words else 2
                failed = failed or code
        finally:
            STYLE["tables"] = False
    if failed and not asks:
        raise typer.Exit(failed)


def _run(words: list[str], known: dict[str, DataCommand], run: Any) -> int:
    """Run one line; its exit code."""
    if words[0] == "help":
        named = " ".join(words[1:])
        if not named:
            for name, command in known.items():
                print(f"{name:24} {command.get_short_help_str(70)}")
            return 0
        words = [*words[1:], "--help"]
    if _name(words, known) is None:
        given = " ".join(words[:2])
        group = [each for each in known if each.startswith(words[0] + " ")]
        hint = ": " + (", ".join(group) or "`help` lists the commands")
        alone = group and len(words) == 1
        meant = "" if alone else did_you_mean(given, known) or did_you_mean(words[0], known)
        warn("InvalidRequest", str(InvalidRequest(f"no such command{meant or hint}", given=given)))
        return 2
    # What would read more input from where the commands come from is told that there is none.
    stdin: Any = sys.stdin
    sys.stdin = None
    try:
        code: int = run(words)
    finally:
        sys.stdin = stdin
    if code == 130:
        print(file=sys.stderr)
    return code


def _lines(prompt: str) -> Iterator[list[str]]:
    """The words of each line that says something, until the end; none for one that is wrong."""
    while True:
        try:
            text = input(prompt) if prompt else sys.stdin.readline()
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            continue
        if not prompt and not text:
            return
        try:
            words = words_of(text)
        except ValueError as error:
            warn("InvalidRequest", f"the line cannot be read: {error}. line={text.strip()!r}")
            yield []
            continue
        if words and words[0] == "tideline":
            words = words[1:]
        if words and words[0] in _ENDS:
            return
        if words:
            yield words


def words_of(line: str) -> list[str]:
    """The words of a line, as a shell splits it; but JSON is one word as it stands, unquoted.

    >>> words_of("find cars {\\"speed\\": 50} --sort 'my road'  # the fast ones")
    ['find', 'cars', '{"speed": 50}', '--sort', 'my road']
    """
    words: list[str] = []
    begin = at = 0  # what lies between is split as a shell does
    while at < len(line):
        if line[at] in "{[" and (at == begin or line[at - 1].isspace()):
            with contextlib.suppress(ValueError):  # no JSON, or inside of quotes
                end = _JSON.raw_decode(line, at)[1]
                before = shlex.split(f"{line[begin:at]} x", comments=True)
                if before[-1:] == ["x"] and not line[end : end + 1].strip():
                    words += [*before[:-1], line[at:end]]
                    begin = at = end
                    continue
        at += 1
    return words + shlex.split(line[begin:], comments=True)


def _commands(root: Any, before: str = "") -> dict[str, DataCommand]:
    """The commands on data by their names, `collection find` too."""
    found: dict[str, DataCommand] = {}
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            found |= _commands(command, f"{before}{name} ")
        elif isinstance(command, DataCommand) and name not in _LEFT_OUT:
            found[before + name] = command
    return found


def _name(words: list[str], known: dict[str, DataCommand]) -> str | None:
    """The command that a line begins with."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if len(words) >= count and name in known:
            return name
    return None


class Completer:
    """What may come next on a line.

    >>> import tideline
    >>> from tideline.cli.main import app
    >>> with tideline.open(":memory:") as db:
    ...     cars = db.collection("cars", key="id", indexes={"speed": "lazy"})
    ...     completer = Completer(_commands(typer.main.get_command(app)), db)
    ...     completer.after("collection fi", "fi"), completer.after("collection lookup cars s", "s")
    (['find'], ['speed'])
    """

    def __init__(self, known: dict[str, DataCommand], database: Any) -> None:
        self._known = known
        self._database = database
        self._found: list[str] = []

    def complete(self, text: str, state: int) -> str | None:
        """As readline asks: the next way to go on with the word that is being written."""
        if state == 0:
            import readline

            before = readline.get_line_buffer()[: readline.get_endidx()]
            try:
                found = self.after(before, text)
            except TidelineError:
                found = []
            # A word of its own is done with; inside of JSON, more of it follows.
            alone = before[: len(before) - len(text)][-1:] in ("", " ")
            self._found = [f"{each} " for each in found] if alone else found
        return self._found[state] if state < len(self._found) else None

    def after(self, line: str, text: str) -> list[str]:
        """The ways to go on with `text`, the end of a line, each whole."""
        return sorted({each for each in self._possible(line, text) if each.startswith(text)})

    def _possible(self, line: str, text: str) -> Iterator[str]:
        words = line[: len(line) - len(text)].split()
        name = _name(words, self._known)
        if name is None:
            for each in (*self._known, "help", *_ENDS):
                parts = each.split()
                if parts[: len(words)] == words and len(parts) > len(words):
                    yield parts[len(words)]
            return
        command = self._known[name]
        if text.startswith("-"):
            for option in command.params:
                yield from (each for each in option.opts if each.startswith("--"))
            return
        given = words[len(name.split()) :]
        places = [param for param in command.params if param.param_type_name == "argument"][1:]
        if not given or (len(given) == 1 and line.endswith(given[0])):
            yield from self._names(places[0].name if places else None)
        else:
            yield from self._fields(given[0])

    def _names(self, what: str | None) -> Iterator[str]:
        if what in ("channel", "name"):
            yield from self._database.channels()
        if what in ("collection", "name"):
            yield from self._database.collections()

    def _fields(self, collection: str) -> Iterator[str]:
        if collection in self._database.collections():
            found = self._database.collection(collection)
            yield found.key
            yield from found.indexes
            for document in found.find(limit=_SAMPLE):
                yield from document


def _complete_with(completer: Completer) -> None:
    """Let Tab ask a completer, where there is readline."""
    with contextlib.suppress(ImportError):
        import readline

        readline.set_completer(completer.complete)
        readline.set_completer_delims(_BREAKS)
        readline.parse_and_bind("tab: complete")
