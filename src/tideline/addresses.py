"""Addresses of memory that Python hands to kernels, and the list of them in the checked job.

A kernel gets integers (docs/decisions/0001). `address_of` is the one way from an array, a buffer or
bytes to such an integer. In the checked job (`NUMBA_BOUNDSCHECK=1`, `make test-bounds`) it also
registers where that memory begins and ends, and every read and write of a kernel is looked up
there (kernels/checks.py). In all other processes nothing is registered and nothing is looked up.

    ROOT    [0] address of the table | [1], [2] address and bytes of the last bad access
            [3] changes: odd while one is being made
            [4...] lent: begin, end of the arrays of calls that run now
    table   count | begins, sorted | for each, the greatest end of all ranges up to it

An access [a, a + n) is good when some range begins at or before `a` and ends at or after `a + n`:
when the greatest end of those that begin at or before `a` is not below `a + n`.

Ranges go with their owner: the array that has the memory, or the object that is named. Nothing is
called while an owner goes, because that may be at any moment: its ranges are noted, and taken out
before the next range comes or the next kernel runs.

Kernels read without a lock: a new table is written into the next of several buffers and its address
put into ROOT. A thread that loses its core in the middle of a search may find its buffer written
again; so a search that finds nothing is made again if the count of changes has moved meanwhile.
Registering is for any thread.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["CHECKED", "BadAddress", "Ranges", "address_of", "ranges"]

CHECKED = os.environ.get("NUMBA_BOUNDSCHECK", "") not in ("", "0")
"""Whether this process runs kernels that look up every address."""

CHANGES, LENT = 3, 4
SLOTS = 128
_BUFFERS = 16  # few searches are so late that they are made again
_RECENT = 4096


class BadAddress(Exception):
    """A kernel has read or written outside of all registered memory. Only in the checked job."""


def _address_of(memory: Any, owner: Any = None) -> int:
    """Where the memory of an array, a buffer or bytes begins, for a kernel.

    `owner` is the object with which the memory goes, if that is not the array itself. For the
    checked job only; without one, a buffer or bytes count as there for a while.

    >>> words = np.arange(4)
    >>> address_of(words[1:]) - address_of(words)
    8
    """
    at: int = pa.py_buffer(memory).address
    return at


class Ranges:
    """The registered ranges of a process."""

    def __init__(self) -> None:
        self.root: NDArray[np.int64] = np.zeros(LENT + 2 * SLOTS, np.int64)
        self.bad: list[str] = []
        """What was reported so far: an error may be caught by whoever called the kernel."""
        self.known: NDArray[np.int64] = np.zeros((2, 0), np.int64)
        """Begins and ends, by begin. Replaced in one step: an exception may come at any moment."""
        self._owners: dict[int, tuple[Any, int, int]] = {}  # by id of an array
        self._gone: deque[tuple[int, int]] = deque()
        self._recent: deque[tuple[Any, int, int]] = deque()
        self._lock = threading.Lock()
        self._slots = list(range(SLOTS))
        self._buffers: list[NDArray[np.int64]] = []
        self._turn = 0
        self._retired: list[Any] = []
        self._publish()

    def register(self, memory: Any, owner: Any = None) -> int:
        """As `address_of`, and the range is registered until the owner goes."""
        buffer = pa.py_buffer(memory)
        at: int = buffer.address
        end = at + buffer.size
        if owner is not None:
            weakref.finalize(owner, self._gone.append, (at, end)).atexit = False
            self._add(at, end)
        elif isinstance(memory, np.ndarray):
            self._register_array(memory)
        else:
            self._add(at, end)
            self._recent.append((memory, at, end))
            if len(self._recent) > _RECENT:
                self._gone.append(self._recent.popleft()[1:])
        return at

    def _register_array(self, array: NDArray[Any]) -> None:
        while isinstance(array.base, np.ndarray):
            array = array.base
        at, end = np.lib.array_utils.byte_bounds(array)
        if self._is_known(array, at, end):
            return
        with self._lock:  # known only once it is in the table
            if not self._is_known(array, at, end):
                self._insert(at, end)
                self._note_owner(array, at, end)

    def _is_known(self, array: NDArray[Any], at: int, end: int) -> bool:
        known = self._owners.get(id(array))
        return known is not None and known[0]() is array and known[1:] == (at, end)

    def _note_owner(self, array: NDArray[Any], at: int, end: int) -> None:
        key, owners, gone = id(array), self._owners, self._gone

        def let_go(_: Any) -> None:
            owners.pop(key, None)
            gone.append((at, end))

        owners[key] = weakref.ref(array, let_go), at, end

    def _add(self, at: int, end: int) -> None:
        with self._lock:
            self._insert(at, end)

    def _insert(self, at: int, end: int) -> None:
        self._drop_gone()
        place = int(np.searchsorted(self.known[0], at))
        self.known = np.insert(self.known, place, (at, end), axis=1)
        self._publish()

    def _drop_gone(self) -> bool:
        changed = False
        while self._gone:
            at, end = self._gone.popleft()
            begins, ends = self.known
            first, limit = np.searchsorted(begins, [at, at + 1])
            places = first + np.flatnonzero(ends[first:limit] == end)
            self.known = np.delete(self.known, places[:1], axis=1)
            changed = True
        return changed

    def _publish(self) -> None:
        begins, ends = self.known
        count = len(begins)
        if not self._buffers or len(self._buffers[0]) < 1 + 2 * count:
            self._retired.append(self._buffers)  # somebody may be reading there
            words = 1 + 4 * max(count, 2048)
            self._buffers = [np.zeros(words, np.int64) for _ in range(_BUFFERS)]
        self._turn = (self._turn + 1) % _BUFFERS
        table = self._buffers[self._turn]
        self.root[CHANGES] += 1
        table[0] = count
        table[1 : 1 + count] = begins
        np.maximum.accumulate(ends, out=table[1 + count : 1 + 2 * count])
        self.root[0] = table.ctypes.data
        self.root[CHANGES] += 1

    # ---- around a call --------------------------------------------------------------------

    def lend(self, arrays: list[NDArray[Any]]) -> list[int]:
        """Register the arguments of a call while it runs."""
        with self._lock:
            if self._gone and self._drop_gone():
                self._publish()
            slots = [self._slots.pop() for _ in arrays]
        for slot, array in zip(slots, arrays, strict=True):
            at = array.ctypes.data
            self.root[LENT + 2 * slot + 1] = at + array.nbytes
            self.root[LENT + 2 * slot] = at
        return slots

    def take_back(self, slots: list[int]) -> None:
        """The call has ended."""
        for slot in slots:
            self.root[LENT + 2 * slot] = self.root[LENT + 2 * slot + 1] = 0
        self._slots.extend(slots)


ranges = Ranges() if CHECKED else None
address_of = _address_of if ranges is None else ranges.register
