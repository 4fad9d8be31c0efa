"""Components that were made elsewhere, on their way into a tree: checked, numbered, taken.

    made elsewhere   records numbered from some number on, a file in a folder of its own
    Arriving.check   the file is what it says; any thread, no lock
    Arriving.number  the seqs of its records are what they will be here, added in the file itself
    Arriving.take    renamed into the folder of the tree; counts once the manifest names it

Whoever loads numbers files before a lock is held, by the seq that is next at that moment, and
once more under the lock if another was given meanwhile: mostly none was, and then there is only a
name to change while writers wait.

The seqs of a file are the whole numbers named `seq`: a column, or a field of the records in a
column of lists.

A file belongs to one thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from tideline.addresses import address_of
from tideline.errors import Corruption
from tideline.lsm.component import Component, ComponentInfo
from tideline.lsm.files import checksum
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import Kind, Tree

__all__ = ["Arriving", "each"]


class Arriving:
    """A file of a folder, which is to be a component of a tree."""

    def __init__(self, folder: str | Path, info: ComponentInfo, kind: Kind[Any]) -> None:
        self.path = Path(folder) / info.name
        self.info = info
        self._kind = kind
        self._added = 0  # to the numbers it was made with

    def check(self) -> None:
        """Refuse what is not what it says."""
        reader = self._kind.open(Component.open(self.path.parent, self.info))
        reader.check()
        reader.component.close()

    def number(self, more: int) -> None:
        """Let every seq be that much greater than the file was made with."""
        step = more - self._added
        if not step:
            return
        _shift(self.path, step)
        span = self.info.filters["seq"]
        with pa.memory_map(str(self.path), "r") as file:
            crc = checksum(memoryview(file.read_buffer()))
        filters = {**self.info.filters, "seq": MinMax(span.low + step, span.high + step)}
        self.info = replace(self.info, crc=crc, filters=filters)
        self._added = more

    def take(self, tree: Tree[Any], number: int, *, sync: bool) -> Any:
        """Put the file with the others of a tree, as component `number`; a reader of it."""
        name = f"c-{number:06d}.arrow"
        if sync:
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
        os.replace(self.path, tree.folder / name)
        info = replace(self.info, name=name)
        return tree.kind.open(Component.open(tree.folder, info, verify=False))


def each(work: Callable[[Arriving], None], files: Sequence[Arriving]) -> None:
    """Do the same with every file, several at a time: most of it needs no Python."""
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for done in [pool.submit(work, file) for file in files]:
            done.result()


def _shift(path: Path, step: int) -> None:
    """Add a number to all seqs of a component's file, in place."""
    with pa.memory_map(str(path), "r") as file:
        whole = file.read_buffer()
        table = pa.Table.from_batches([pa.ipc.open_file(whole).get_batch(0)])
        base = address_of(np.frombuffer(whole, np.uint8))
        found = [(address_of(seqs) - base, len(seqs)) for seqs in _seqs(table, path)]
        del table, whole
    for start, count in found:
        if count:
            numbers = np.memmap(path, np.int64, "r+", start, (count,))
            numbers += step
            numbers.flush()
            del numbers


def _seqs(table: pa.Table, path: Path) -> Iterator[Any]:
    """The columns of seqs, in place."""
    there = False
    for name in table.column_names:
        column = table[name].chunk(0)
        if pa.types.is_large_list(column.type) or pa.types.is_list(column.type):
            records = column.values
            if not (pa.types.is_struct(records.type) and records.type.get_field_index("seq") >= 0):
                continue
            column = records.field("seq")
        elif name != "seq":
            continue
        if column.offset or column.null_count or column.type != pa.int64():
            raise Corruption("component has other columns than it should", file=path)
        there = True
        yield column.to_numpy()
    if not there:
        raise Corruption("component has no seqs", file=path)
