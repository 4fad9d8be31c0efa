"""Hot loops over arrays, compiled by numba. No Python objects in here.

Importing this package imports numba, so nothing imports it at `import tideline`.

Where compiled code is kept: numba keys its cache by the path and age of a source
file, so every clone would compile again. Here the key is the *content* of all the
kernel sources: two clones share one cache, and a change of one kernel (which may
be inlined into another) recompiles all of them. Bounds-checked code
(`NUMBA_BOUNDSCHECK=1`) gets a folder of its own.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from numba.core import caching

__all__ = ["cache_folder", "inline", "jit"]

_HERE = Path(__file__).parent


def _fingerprint() -> str:
    host = (numba.__version__, sys.version, llvmlite.binding.get_host_cpu_name())
    digest = hashlib.sha256(repr(host).encode())
    for source in sorted(_HERE.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    checked = "-checked" if numba.config.BOUNDSCHECK else ""  # type: ignore[attr-defined]
    return digest.hexdigest()[:16] + checked


def cache_folder() -> Path:
    """Where the compiled kernels are kept: `NUMBA_CACHE_DIR`, else the user's cache."""
    base = os.environ.get("NUMBA_CACHE_DIR")
    if base is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(home, "tideline", "kernels")
    return Path(base) / _FINGERPRINT


class _ContentLocator(caching._CacheLocator):
    """Finds the cache of a kernel by the content of the kernel sources."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._name = Path(py_file).stem
        self._line = py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_folder() / self._name)

    def get_source_stamp(self) -> str:
        return _FINGERPRINT

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _ContentLocator | None:
        if Path(py_file).parent != _HERE:
            return None
        self = cls(py_func, py_file)
        try:
            self.ensure_cache_path()
        except OSError:
            return None
        return self


_FINGERPRINT = _fingerprint()
caching.CacheImpl._locator_classes.insert(0, _ContentLocator)

# Without reference counting: no kernel makes or keeps an array of its own, and counting
# references to borrowed ones costs more than many of these functions do.
jit = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
# For functions that only name a part of memory: they vanish at the call.
inline = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False, inline="always")
