"""Where each key of a TOML text stands: `tomllib` gives values, this gives their lines.

    lines(text) -> {("store",): 4, ("store", "channel"): 5, ("rule", 0, "sql"): 9, ...}

A path is made of keys and, inside arrays, of numbers. Tables, arrays of tables, dotted and
quoted keys, inline tables, arrays and strings over several lines, comments: all are walked.
The text must be TOML that `tomllib` has read: what is wrong with it is `tomllib`'s to say.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right

__all__ = ["Path", "lines", "nearest"]

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^,\]}#\n]*")  # a number, a date, true or false
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'",
    re.DOTALL,
)


def lines(text: str) -> dict[Path, int]:
    """The line (from 1) of every table, key and element.

    >>> found = lines('name = "n"\\n\\n[store]\\nspace.kind = "flat"\\n')
    >>> found[("store",)], found[("store", "space", "kind")]
    (3, 4)
    """
    walk = _Walk(text)
    walk.document()
    return walk.lines


def nearest(found: dict[Path, int], path: Path) -> int | None:
    """The line of a path, or of the nearest thing around it; `None` when there is none.

    >>> nearest({("store",): 3}, ("store", "channel")), nearest({}, ("store",))
    (3, None)
    """
    while path and path not in found:
        path = path[:-1]
    return found.get(path)


class _Walk:
    """One pass over the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self._lengths: dict[Path, int] = {}  # of the arrays of tables so far

    def document(self) -> None:
        table: Path = ()
        self._skip(_BLANK)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _header(self) -> Path:
        """[a.b] or [[a.b]]; the path of the table it opens."""
        many = self.text.startswith("[[", self.at)
        line = self._line()
        self.at += 2 if many else 1
        path: Path = ()
        keys = self._keys()
        for key in keys[:-1]:
            path = self._last((*path, key))
        path = (*path, keys[-1])
        if many:
            number = self._lengths.get(path, 0)
            self._lengths[path] = number + 1
            self.lines.setdefault(path, line)
            path = (*path, number)
        else:
            path = self._last(path)
        self.at = self.text.index("]", self.at) + (2 if many else 1)
        self.lines.setdefault(path, line)
        return path

    def _last(self, path: Path) -> Path:
        """A table, or the last one of an array of tables."""
        length = self._lengths.get(path)
        return path if length is None else (*path, length - 1)

    def _pair(self, table: Path) -> None:
        """key = value"""
        line = self._line()
        path = table
        for key in self._keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self.at = self.text.index("=", self.at) + 1
        self._value(path)

    def _keys(self) -> list[str]:
        """A dotted key."""
        keys = []
        while True:
            self._skip(_SPACE)
            found = _STRING.match(self.text, self.at) or _BARE.match(self.text, self.at)
            assert found is not None, "tomllib has read this text"
            self.at = found.end()
            word = found.group()
            keys.append(_unquoted(word) if word[0] in "\"'" else word)
            self._skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return keys
            self.at += 1

    def _value(self, path: Path) -> None:
        self._skip(_SPACE)
        first = self.text[self.at : self.at + 1]
        if first == "[":
            self.at += 1
            number = 0
            while not self._closed("]"):
                self.lines[(*path, number)] = self._line()
                self._value((*path, number))
                number += 1
        elif first == "{":
            self.at += 1
            while not self._closed("}"):
                self._pair(path)
        else:
            found = _STRING.match(self.text, self.at) or _PLAIN.match(self.text, self.at)
            assert found is not None
            self.at = found.end()

    def _closed(self, bracket: str) -> bool:
        """Step over blanks and a comma; whether the bracket is next, which is stepped over."""
        self._skip(_BLANK)
        if self.text.startswith(",", self.at):
            self.at += 1
            self._skip(_BLANK)
        if self.text.startswith(bracket, self.at):
            self.at += 1
            return True
        return False

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def _line(self) -> int:
        return bisect_right(self._ends, self.at - 1) + 1


def _unquoted(word: str) -> str:
    """A quoted key without its quotes, as TOML reads it."""
    value: str = tomllib.loads(f"x = {word}")["x"]
    return value
