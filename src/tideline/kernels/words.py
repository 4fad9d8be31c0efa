"""Tables of words: what stands where in the memory that kernels and Python share.

State is int64 words behind one address (docs/decisions/0001). A *layout* says which word is what.
It is declared once, as a run of lines that read as a table:

    CURSOR = Layout("cursor", "M_", "walks a source in key order", globals())
    M_SOURCE = CURSOR.address("state of the source")
    M_POS = CURSOR.count("the row it stands at")
    M_WORDS = CURSOR.end()

The constants are plain ints of the module, in the order of the lines, so numba compiles them in.
From the same lines come the size (`end`), the names, a numpy dtype, a text of a state for who
debugs (`dump`) and a page of the site (scripts/site_pages/words.py).

Invariants, which `end` checks when the module is imported:
1. Between `Layout(...)` and `end()` stand words of that layout and nothing else.
2. Every name begins with the prefix of the layout.

Nothing here runs inside a kernel. Layouts do not change after the import: safe from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

__all__ = ["LAYOUTS", "Layout", "Word", "dump"]


class Word(NamedTuple):
    """One word of a layout."""

    name: str
    kind: str
    """"address", "count", "time" (microseconds) or "word" (anything else)."""
    meaning: str


class Layout:
    """A named run of words.

    >>> space = {}
    >>> pair = Layout("pair", "P_", "two of a kind", space)
    >>> space["P_AT"] = pair.address("the first of them")
    >>> space["P_COUNT"] = pair.count("how many there are")
    >>> space["P_WORDS"] = pair.end(spare=1)
    >>> space["P_COUNT"], space["P_WORDS"], pair.dtype.names
    (1, 3, ('P_AT', 'P_COUNT'))
    """

    def __init__(self, name: str, prefix: str, meaning: str, namespace: dict[str, Any]) -> None:
        self.name = name
        self.prefix = prefix
        self.meaning = meaning
        self.module: str = namespace.get("__name__", "")
        self.words: tuple[Word, ...] = ()
        self.size = 0
        self._namespace = namespace
        self._before = set(namespace)
        self._declared: list[Word] = []
        LAYOUTS.append(self)

    # ---- the lines of a table --------------------------------------------------------------

    def word(self, meaning: str, kind: str = "word") -> int:
        """The next word: where it stands."""
        self._declared.append(Word("", kind, meaning))
        return len(self._declared) - 1

    def address(self, meaning: str) -> int:
        """The next word, an address."""
        return self.word(meaning, "address")

    def count(self, meaning: str) -> int:
        """The next word, a count or a size."""
        return self.word(meaning, "count")

    def time(self, meaning: str) -> int:
        """The next word, a time in microseconds."""
        return self.word(meaning, "time")

    def also(self, name: str, meaning: str, kind: str = "word") -> None:
        """The next word, for which there is a constant already, or none."""
        place = len(self._declared)
        if self._namespace.get(name, place) != place:
            raise ValueError(f"{self.name}: {name} is not word {place}")
        self._declared.append(Word(name, kind, meaning))

    def end(self, spare: int = 0) -> int:
        """The table is complete: how many words there are, with `spare` ones at the end."""
        fresh = [
            name
            for name, value in self._namespace.items()
            if name not in self._before and value is not self
        ]
        named = iter(fresh)
        self.words = tuple(
            word if word.name else word._replace(name=next(named, "")) for word in self._declared
        )
        wrong = [*named]
        for place, word in enumerate(self.words):
            right = word.name.startswith(self.prefix) or word == self._declared[place]
            if not right or self._namespace.get(word.name, place) != place:
                wrong.append(word.name)
        if wrong:
            raise ValueError(f"{self.name}: these are not its words, or not in order: {wrong}")
        self.size = len(self.words) + spare
        return self.size

    # ---- what comes of it --------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        """The layout as a numpy dtype: `array.view(layout.dtype)["E_HEAP"]`."""
        return np.dtype(
            {
                "names": [word.name for word in self.words],
                "formats": [np.int64] * len(self.words),
                "offsets": [8 * place for place in range(len(self.words))],
                "itemsize": 8 * self.size,
            }
        )


LAYOUTS: list[Layout] = []
"""All layouts of the modules that are imported, in the order of their lines."""


def dump(layout: Layout, words: Iterable[int]) -> str:
    """A state as text, a line a word, for who debugs.

    >>> space = {}
    >>> pair = Layout("pair", "P_", "two of a kind", space)
    >>> space["P_AT"] = pair.address("the first of them")
    >>> space["P_COUNT"] = pair.count("how many there are")
    >>> space["P_WORDS"] = pair.end()
    >>> print(dump(pair, [4096, 2]))
    pair: two of a kind
      0 P_AT    0x1000 the first of them
      1 P_COUNT      2 how many there are
    """
    return "\n".join(_lines(layout, list(words)))


def _lines(layout: Layout, words: list[int]) -> Iterator[str]:
    yield f"{layout.name}: {layout.meaning}"
    rows = list(zip(layout.words, words, strict=False))
    shown = [f"{int(value):#x}" if word.kind == "address" else f"{value}" for word, value in rows]
    width, number = max(len(word.name) for word in layout.words), max(map(len, shown), default=0)
    for place, ((word, _), text) in enumerate(zip(rows, shown, strict=True)):
        yield f"{place:3} {word.name:{width}} {text:>{number}} {word.meaning}"
