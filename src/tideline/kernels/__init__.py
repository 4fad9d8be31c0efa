"""Hot loops over arrays, compiled by numba. No Python objects in here.

Importing this package imports numba, so nothing imports it at `import tideline`.

Where compiled code is kept: numba keys its cache by the path and age of a source
file, so every clone would compile again. Here the key is the *content* of all the
kernel sources: two clones share one cache, and a change of one kernel (which may
be inlined into another) recompiles all of them. Bounds-checked code
(`NUMBA_BOUNDSCHECK=1`) gets a folder of its own.

A folder in here is a *group* of kernels that only some databases need. Its key is its own
content and that of the kernels above, so a change in it recompiles nothing but itself.
"""

from __future__ import annotations

import functools
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


@functools.cache
def _fingerprint(group: str) -> str:
    host = (numba.__version__, sys.version, llvmlite.binding.get_host_cpu_name())
    digest = hashlib.sha256(repr(host).encode())
    sources = sorted(_HERE.glob("*.py"))
    if group:
        sources += sorted((_HERE / group).glob("*.py"))
    for source in sources:
        if source.name == "warm.py":  # lists of kernels, none itself
            continue
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    checked = "-checked" if numba.config.BOUNDSCHECK else ""  # type: ignore[attr-defined]
    return digest.hexdigest()[:16] + checked


def cache_folder(group: str = "") -> Path:
    """Where the compiled kernels are kept: `NUMBA_CACHE_DIR`, else the user's cache.

    `group` is a folder of kernels in here; without it, these.
    """
    base = os.environ.get("NUMBA_CACHE_DIR")
    if base is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(home, "tideline", "kernels")
    return Path(base) / _fingerprint(group)


class _ContentLocator(caching._CacheLocator):
    """Finds the cache of a kernel by the content of the kernel sources."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._name = Path(py_file).stem
        self._group = _group(py_file)
        self._line = py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_folder(self._group) / self._name)

    def get_source_stamp(self) -> str:
        return _fingerprint(self._group)

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _ContentLocator | None:
        if _HERE not in (Path(py_file).parent, Path(py_file).parent.parent):
            return None
        self = cls(py_func, py_file)
        try:
            self.ensure_cache_path()
        except OSError:
            return None
        return self


def _group(py_file: str) -> str:
    folder = Path(py_file).parent
    return "" if folder == _HERE else folder.name


caching.CacheImpl._locator_classes.insert(0, _ContentLocator)

# Without reference counting: no kernel makes or keeps an array of its own, and counting
# references to borrowed ones costs more than many of these functions do.
jit = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
# For functions that only name a part of memory: they vanish at the call.
inline = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False, inline="always")
