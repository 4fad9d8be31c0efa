"""Hot loops over arrays, compiled by numba. No Python objects in here.

Importing this package imports numba, so nothing imports it at `import tideline`.

    compiler.py   how a function becomes machine code
    cache.py      where machine code is kept: by the content of the sources
    words.py      tables of what stands where; layout.py has those of channels
    checks.py     looking up every address, in the checked job
    warm.py       which kernels Python calls, with which types; compiling them ahead
    workers.py    compiling on all cores

A folder in here is a *group* of kernels that only some databases need. Its key is its own
content and that of the kernels above, so a change in it recompiles nothing but itself.
Checked code (`NUMBA_BOUNDSCHECK=1`, `make test-bounds`) is kept apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tideline.kernels.cache import cache_folder
from tideline.kernels.compiler import Kernel

__all__ = ["allocating", "brief", "cache_folder", "inline", "jit", "jit_with"]

# Without reference counting: no kernel makes or keeps an array of its own, and counting
# references to borrowed ones costs more than many of these functions do. numba hands options
# down to what a function calls unless that says them itself, so all of them are said here.
_OPTIONS = {
    "nopython": True, "nogil": True, "error_model": "numpy", "_nrt": False, "forceinline": False,
    "fastmath": False,
}  # fmt: skip


def jit_with(**options: Any) -> Callable[[Any], Any]:
    """As `jit`, with other options of numba's."""
    return lambda function: Kernel(function, {**_OPTIONS, **options})


jit = jit_with()
"""Compile a function when it is first called with its types, or load it."""

brief = jit_with(nogil=False)
"""For calls of a microsecond: who lets go of the interpreter's lock for so short may wait
milliseconds until it is back."""

inline = jit_with(inline="always")
"""For functions that only name a part of memory: they vanish at the call."""

allocating = jit_with(_nrt=True)
"""For the few that make an array of their own."""
