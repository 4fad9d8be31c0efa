"""Where compiled kernels are kept, and under which names.

    <cache>/<fingerprint>/<processor>/<module>.<function>-<line>.<types>.<kind>

The *fingerprint* is a hash of the content of all kernel sources and of the versions of Python,
numba and LLVM: equal sources share one cache wherever they lie, and a change of one kernel,
which may be inlined into another, gives all of them new names. The sources are read through the
loader, so that this holds inside a zip as well. The *processor* is what the code was made for.

There are two places. `<cache>` is the user's: `NUMBA_CACHE_DIR`, else `~/.cache/tideline/kernels`;
when it cannot be written, a temporary folder of this process. `SHIPPED`, in this package, holds
what came with a platform wheel or with the files of a Spark job; it is only read, and may lie in
a zip.

A file is written whole under another name and then renamed: whoever reads finds all or nothing,
and two processes that compile the same kernel write the same file. Safe from any thread.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.resources
import os
import pickle
import platform
import shutil
import sys
import tempfile
import uuid
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding
import numba

__all__ = [
    "BASELINES", "SHIPPED", "Entry", "cache_base", "cache_folder", "fingerprint", "has", "load",
    "processor", "read_nothing", "save", "shipped_folders",
]  # fmt: skip

SHIPPED = "compiled"
"""The folder of this package with the kernels that were shipped."""

_PACKAGE = "tideline.kernels"
_NO_KERNELS = ("warm.py", "workers.py")  # lists of kernels and who compiles them, none itself

BASELINES = {
    "x86_64": ("x86-64-v3", (
        "avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf",
        "sse3", "sse4.1", "sse4.2", "ssse3", "xsave",
    )),
    "aarch64": ("generic", ()),
    "arm64": ("generic", ()),
}  # fmt: skip
"""By machine: the processor that shipped kernels are made for, and what it must be able to do."""


class Entry(NamedTuple):
    """One compiled function, or what makes one callable from Python."""

    needs: tuple[str, ...]
    """The names of the entries whose machine code this one calls."""
    code: bytes | None
    """Machine code; None for what is only ever copied into others."""
    bitcode: bytes | None
    """What callers copy into their own code; None for what they call."""
    about: bytes
    """A pickle of what numba has to know to call it."""


@functools.cache
def fingerprint(group: str) -> str:
    """What the kernels of a group (a folder in here; "" for these) are known by."""
    made = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag,
            sys.platform, platform.machine())  # fmt: skip
    digest = hashlib.sha256(repr(made).encode())
    top = importlib.resources.files(_PACKAGE)
    for folder in (top, top / group) if group else (top,):
        sources = {each.name: each for each in folder.iterdir() if each.name.endswith(".py")}
        for name in sorted(sources.keys() - set(_NO_KERNELS)):
            digest.update(name.encode() + b"\0" + sources[name].read_bytes())
    checked = "-checked" if numba.config.BOUNDSCHECK else ""  # type: ignore[attr-defined]
    return digest.hexdigest()[:16] + checked


@functools.cache
def processor() -> str:
    """The processor that this process compiles for, as a name."""
    config: Any = numba.config
    name = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = config.CPU_FEATURES
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    if not features:
        return str(name)
    return f"{name}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"


@functools.cache
def cache_base() -> Path:
    """The user's cache of kernels, or a temporary folder when that cannot be written."""
    base = os.environ.get("NUMBA_CACHE_DIR")
    if base is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(home, "tideline", "kernels")
    with contextlib.suppress(OSError):
        os.makedirs(base, exist_ok=True)
        if os.access(base, os.W_OK | os.X_OK):
            return Path(base)
    base = tempfile.mkdtemp(prefix="tideline-kernels-")
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    return Path(base)


def cache_folder(group: str = "") -> Path:
    """Where this process keeps the kernels of a group that it compiles."""
    return cache_base() / fingerprint(group) / processor()


@functools.cache
def shipped_folders(group: str) -> tuple[Traversable, ...]:
    """Where shipped kernels of a group are, of those that this machine can run."""
    shipped = importlib.resources.files(_PACKAGE) / SHIPPED / fingerprint(group)
    names = [processor()]
    baseline = BASELINES.get(platform.machine())
    if baseline is not None and _can(baseline[1]):
        names.append(baseline[0])
    return tuple(shipped / name for name in names if (shipped / name).is_dir())


def _can(features: tuple[str, ...]) -> bool:
    host = llvmlite.binding.get_host_cpu_features()
    return all(host.get(feature) for feature in features)


# What is not there, in a folder or in a zip, or was cut off.
_UNREADABLE = (OSError, KeyError, EOFError, TypeError, ValueError, pickle.UnpicklingError)
_distrusted: list[set[str]] = []  # names that may be read although nothing else may


def read_nothing() -> None:
    """From now on, read only what this process saves: the cache has been damaged."""
    _distrusted[:] = [set()]


def _places(name: str) -> list[Path | Traversable]:
    group, _, file = name.rpartition("/")
    if _distrusted and name not in _distrusted[0]:
        return []
    return [folder / file for folder in (cache_folder(group), *shipped_folders(group))]


def load(name: str) -> Entry | None:
    """The entry of a name, or None when nobody has made it."""
    for place in _places(name):
        with contextlib.suppress(*_UNREADABLE):
            return Entry(*pickle.loads(place.read_bytes()))
    return None


def has(name: str) -> bool:
    """Whether the entry of a name is there."""
    return any(place.is_file() for place in _places(name))


def save(name: str, entry: Entry) -> None:
    """Keep an entry, for this process and all others."""
    group, _, file = name.rpartition("/")
    path = cache_folder(group) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{file}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        unfinished.write_bytes(pickle.dumps(tuple(entry), protocol=4))
        os.replace(unfinished, path)
        for trusted in _distrusted:
            trusted.add(name)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
