"""What goes to the executors of a cluster: this library as a zip, with compiled kernels in it.

    tideline/...                                  the sources that run here
    tideline/kernels/compiled/<version>/<cpu>/    the kernels this machine has compiled for them

Spark hands the zip to every worker and puts it on the path of its Python before what is installed
there, so driver and executors run the same version. An executor with the same versions of Python,
numba and LLVM and the same processor (or any that can run them, if they came with a platform
wheel) reads the kernels out of the zip; another one compiles them as usual.

The executors must have what the library needs installed: numpy, numba, pyarrow, msgspec, re2.
Imports no pyspark.
"""

from __future__ import annotations

import importlib.resources
import zipfile
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

from tideline.kernels import cache, warm

__all__ = ["pack"]


def pack(target: Path) -> Path:
    """Write the zip; kernels that are not compiled yet are compiled, visibly."""
    missing = [group for group in warm.GROUPS if not warm.ready(group)]
    if missing:
        warm.compile_groups(*missing)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for path, file in _files(importlib.resources.files("tideline"), "tideline"):
            made.writestr(path, file.read_bytes())
        for group in warm.FOLDERS:
            for folder in (cache.cache_folder(group), *cache.shipped_folders(group)):
                for path, file in _kernels(group, folder):
                    if path not in made.NameToInfo:
                        made.writestr(path, file.read_bytes())
    return target


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """The files of the package, without what machines have left in it."""
    for each in folder.iterdir():
        inside = f"{path}/{each.name}"
        if each.is_file():
            yield inside, each
        elif each.name not in ("__pycache__", cache.SHIPPED):
            yield from _files(each, inside)


def _kernels(group: str, folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    """The compiled kernels of a group in a folder, which is named after the processor."""
    shipped = f"tideline/kernels/{cache.SHIPPED}/{cache.fingerprint(group)}/{folder.name}"
    if folder.is_dir():
        for each in folder.iterdir():
            if each.name.endswith((".body", ".wrapper")):
                yield f"{shipped}/{each.name}", each
