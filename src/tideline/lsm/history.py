"""What was done to the files of a dataset lately, and what is being done now.

    seal     a frozen memory became components
    merge    components became others
    move     a component got another level; its file stayed

Kept in memory: the last `MOST`, and how many there were. It costs nothing between two of them.

Safe from any thread.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MOST", "Deed", "History"]

MOST = 64


@dataclass
class Deed:
    """One seal, merge or move."""

    what: str
    trees: list[str]
    """The indexes whose components were written."""
    inputs: int = 0
    """Components that went into it."""
    bytes_in: int = 0
    components: int = 0
    """Components that came of it."""
    rows: int = 0
    size_bytes: int = 0
    level: int = 0
    number: int = 0
    """1, 2, 3 and so on, in the order in which they were done; 0 while it is being done."""
    began_s: float = field(default_factory=time.monotonic)
    took_s: float = 0.0

    def made(self, tree: str, readers: Sequence[Any]) -> None:
        """Add what was written of one index."""
        if tree not in self.trees:
            self.trees.append(tree)
        infos = [reader.component.info for reader in readers]
        self.components += len(infos)
        self.rows += sum(info.rows for info in infos)
        self.size_bytes += sum(info.size_bytes for info in infos)


class History:
    """The deeds of one dataset.

    >>> history = History()
    >>> with history.doing("merge", "primary") as deed:
    ...     len(history.now), len(history.done)
    (1, 0)
    >>> len(history.now), [(each.number, each.what) for each in history.done], history.seals
    (0, [(1, 'merge')], 0)
    """

    def __init__(self) -> None:
        self._now: dict[int, Deed] = {}
        self._done: deque[Deed] = deque(maxlen=MOST)
        self._numbers = itertools.count(1)
        self.seals = 0
        self.merges = 0

    @property
    def now(self) -> list[Deed]:
        """What is being done."""
        return list(self._now.copy().values())

    @property
    def done(self) -> list[Deed]:
        """What was done last, oldest first."""
        return list(self._done.copy())

    @contextlib.contextmanager
    def doing(self, what: str, *trees: str, nothing: bool = False) -> Iterator[Deed]:
        """Note what is done inside; of what fails, or (`nothing`) makes nothing, nothing stays."""
        deed = Deed(what, list(trees))
        try:
            self._now[id(deed)] = deed
            yield deed
        finally:
            self._now.pop(id(deed), None)
        if nothing and not deed.components:
            return
        deed.took_s = time.monotonic() - deed.began_s
        deed.number = next(self._numbers)
        self.seals += what == "seal"
        self.merges += what == "merge"
        self._done.append(deed)
