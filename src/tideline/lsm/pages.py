"""Memory from the operating system: reserved ranges, large pages, and pages fetched before use.

A reserved range is addresses, not memory: the system must not count it as memory in use, or a
program that has reserved more than the machine has can start no other (`fork` copies what is
counted). Python's mmap learned the flag for that in 3.13 only.

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
import platform
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ask_for_huge_pages", "fetch", "reserve", "zeros"]

# 0x4000 on these machines; others number it otherwise, and are counted.
_COMMON = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
_UNCOUNTED = getattr(mmap, "MAP_NORESERVE", 0x4000 if _COMMON else 0)
_HUGE = 2 << 20  # bytes of a huge page
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14; older ones refuse it, and nothing is lost


def _system() -> Any:
    if sys.platform != "linux":
        return None
    system = ctypes.CDLL(None)
    system.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return system


_libc = _system()


def reserve(size: int) -> mmap.mmap:
    """A range of zeroed bytes that takes memory only where it is touched, and never moves.

    >>> pages = reserve(1 << 40)
    >>> pages[1 << 39], len(pages) == 1 << 40
    (0, True)
    """
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNCOUNTED)


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
    pages = reserve(-(-count * 8 // _HUGE) * _HUGE)
    ask_for_huge_pages(pages)
    return np.frombuffer(pages, np.int64, count)


def ask_for_huge_pages(pages: mmap.mmap) -> None:
    """Every probe of a table may miss the page tables too: large pages make that rare."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
