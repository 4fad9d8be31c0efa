"""Memory from the operating system: zeroed words, large pages, and pages fetched before use.

A page is made when it is first touched. That takes about a microsecond for a small one that the
machine has at hand, and milliseconds for a large one that a virtual machine has to get from its
host: a writer that meets it stands still for as long. `fetch` makes pages beside the writers, in
a thread that waits for nobody; it changes no byte, so it may run while the memory is written to.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PRIVATE", "ask_for_huge_pages", "fetch", "zeros"]

PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_HUGE = 2 << 20  # bytes of a huge page
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14; older ones refuse it, and nothing is lost


def _system() -> Any:
    if sys.platform != "linux":
        return None
    system = ctypes.CDLL(None)
    system.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return system


_libc = _system()


def fetch(address: int, size: int) -> None:
    """Have the pages of a range made now; other threads of Python run meanwhile.

    >>> words = zeros(1 << 20)
    >>> fetch(words.ctypes.data, words.nbytes)
    >>> int(words.sum())
    0
    """
    if _libc is not None and size > 0:
        first = address & ~(mmap.PAGESIZE - 1)
        _libc.madvise(first, address + size - first, _POPULATE_WRITE)


def zeros(count: int) -> NDArray[np.int64]:
    """Words that are 0, on huge pages if there are enough of them to fill one."""
    if count * 8 < _HUGE:
        return np.zeros(count, np.int64)
    pages = mmap.mmap(-1, -(-count * 8 // _HUGE) * _HUGE, flags=PRIVATE)
    ask_for_huge_pages(pages)
    return np.frombuffer(pages, np.int64, count)


def ask_for_huge_pages(pages: mmap.mmap) -> None:
    """Every probe of a table may miss the page tables too: large pages make that rare."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
