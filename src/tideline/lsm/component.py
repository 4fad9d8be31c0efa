"""A component: records sealed into one immutable Arrow IPC file.

    c-000007.arrow := Arrow IPC file, uncompressed, one record batch, the columns its kind wants

Its `ComponentInfo` stands in the manifest and carries what must be known without reading the
file: rows, size, crc32 of the whole file, filters, its level, and `extra` for whoever made it.
What is about to become a component is a `Product`.

Invariants:
1. A file under its final name is complete: it is written as `.tmp` and renamed.
2. It counts only once a manifest names it; `remove_strays` removes the others.
3. It never changes. `drop` unlinks it; memory that is mapped stays readable.
4. A missing file, another size, another checksum or unreadable Arrow is `Corruption`.

`write_component` and `remove_strays` are for the owner of the folder; a `Component` is safe
from any thread. Byte layout and costs: docs/internals/components.md.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.ipc

from tideline.errors import Closed, Corruption, InvalidRequest
from tideline.lsm.files import checksum, sync_folder, telling, unavailable, write_all
from tideline.lsm.filter import Filter, filter_from_json
from tideline.lsm.pages import reserve

__all__ = [
    "Component",
    "ComponentInfo",
    "Product",
    "Streamed",
    "remove_strays",
    "write_component",
]

_NAME = re.compile(r"c-[0-9]{6,}\.arrow")


@dataclass(frozen=True)
class ComponentInfo:
    """What the manifest says about a component.

    A component of level 0 was sealed, or merged by a policy without levels. Above, those of one
    level do not overlap: the policy cut them apart by one of their filters (policy.py).

    >>> from tideline.lsm.filter import MinMax
    >>> info = ComponentInfo("c-000001.arrow", "sorted", 2, 640, 7, {"until": MinMax(3, 9)})
    >>> info.to_json()["filters"]
    {'until': [3, 9]}
    >>> ComponentInfo.from_json(info.to_json()) == info
    True
    """

    name: str
    kind: str
    rows: int
    size_bytes: int
    crc: int
    filters: dict[str, Any] = field(default_factory=dict)
    """What it can hold, by name: `MinMax` or `Extent`."""
    extra: dict[str, Any] = field(default_factory=dict)
    level: int = 0

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "name": self.name,
            "kind": self.kind,
            "rows": self.rows,
            "size_bytes": self.size_bytes,
            "crc": self.crc,
            "filters": {name: value.to_json() for name, value in self.filters.items()},
            "extra": self.extra,
            **({"level": self.level} if self.level else {}),
        }

    @classmethod
    def from_json(cls, value: Any) -> ComponentInfo:
        """What `to_json` gave; anything else is `Corruption` of the manifest it came from."""
        try:
            filters = {name: filter_from_json(each) for name, each in value["filters"].items()}
            info = cls(
                name=value["name"],
                kind=value["kind"],
                rows=value["rows"],
                size_bytes=value["size_bytes"],
                crc=value["crc"],
                filters=filters,
                extra=value["extra"],
                level=value.get("level", 0),
            )
            numbers = (info.rows, info.size_bytes, info.crc, info.level)
            good = all(type(number) is int and number >= 0 for number in numbers)
            # A name with a slash in it would open, and later delete, a file somewhere else.
            good = good and bool(_NAME.fullmatch(info.name)) and isinstance(info.extra, dict)
        except (AttributeError, InvalidRequest, KeyError, TypeError) as error:
            raise _misdescribed(value) from error
        if not good:
            raise _misdescribed(value)
        return info


@dataclass
class Product:
    """What sealing or merging made: a component about to be written.

    `rows` is what its kind counts as records; `streams` are buffers of the table whose bytes
    are made while they are written.
    """

    table: pa.Table
    rows: int
    filters: Mapping[str, Filter]
    extra: Mapping[str, Any] = field(default_factory=dict)
    streams: Sequence[Streamed] = ()


def write_component(
    folder: Path, number: int, product: Product, *, kind: str, level: int = 0, sync: bool
) -> ComponentInfo:
    """Write a product as component `number`; on error no file is left.

    With `sync` the file is on disk on return.
    """
    rows = product.rows
    if number < 1 or rows < 0:
        raise InvalidRequest("number starts at 1, rows at 0", number=number, rows=rows)
    batch = _one_batch(product.table)
    path = folder / f"c-{number:06d}.arrow"
    temporary = path.with_name(path.name + ".tmp")
    made = temporary
    fd = -1
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        sink = _Sink(fd, product.streams)
        options = pa.ipc.IpcWriteOptions(compression=None)
        with pa.ipc.new_file(pa.PythonFile(sink, "w"), batch.schema, options=options) as writer:
            writer.write_batch(batch)
        if sink.streams:
            raise InvalidRequest("a stream is no buffer of the table", streams=len(sink.streams))
        if sync:
            os.fsync(fd)
        fd, closing = -1, fd
        os.close(closing)
        os.replace(temporary, path)
        made = path
        if sync:
            sync_folder(folder)
    except BaseException as error:
        if fd >= 0:
            os.close(fd)
        with contextlib.suppress(OSError):
            made.unlink()
        if isinstance(error, OSError):
            raise unavailable(error, "component write failed", path) from error
        raise
    return ComponentInfo(
        path.name,
        kind,
        rows,
        sink.size,
        sink.crc,
        dict(product.filters),
        dict(product.extra),
        level,
    )


class Streamed:
    """A buffer of a table that need not fit in memory: its bytes are made while it is written.

    Arrow is given addresses that are reserved and never touched; whoever writes the file asks
    `pieces` instead.

    >>> stream = Streamed(5, lambda: iter([memoryview(b"ab"), memoryview(b"cde")]))
    >>> stream.buffer.size
    5
    """

    def __init__(self, size: int, pieces: Callable[[], Iterator[memoryview]]) -> None:
        self.buffer: pa.Buffer = pa.py_buffer(reserve(max(size, 1)))
        self.buffer = self.buffer.slice(0, size)
        self.size = size
        self.pieces = pieces


class Component:
    """An open component: its table is the mapped file, nothing is copied.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> product = Product(pa.table({"key": [1, 2, 3]}), rows=3, filters={})
    >>> info = write_component(Path(folder.name), 7, product, kind="sorted", sync=False)
    >>> component = Component.open(Path(folder.name), info)
    >>> component.info.name, component.table["key"].to_pylist()
    ('c-000007.arrow', [1, 2, 3])
    >>> component.drop(); component.close(); folder.cleanup()
    """

    def __init__(self, path: Path, info: ComponentInfo, buffer: pa.Buffer) -> None:
        """Use `Component.open`."""
        self.info = info
        self._path = path
        self._buffer: pa.Buffer | None = buffer
        self._table: pa.Table | None = None

    @classmethod
    def open(cls, folder: Path, info: ComponentInfo, *, verify: bool = True) -> Component:
        """Map the file; with `verify` its checksum is computed, else only its size is compared."""
        path = folder / info.name
        try:
            size = path.stat().st_size
            if size != info.size_bytes:
                raise Corruption(
                    "component has another size", file=path, size=size, expected=info.size_bytes
                )
            with pa.memory_map(str(path), "r") as file:
                buffer = file.read_buffer()
        except FileNotFoundError:
            raise Corruption("component is missing", file=path) from None
        except OSError as error:
            raise unavailable(error, "component cannot be opened", path) from error
        self = cls(path, info, buffer)
        if verify:
            self.verify()
        try:
            reader = pa.ipc.open_file(buffer)
            if reader.num_record_batches != 1:
                raise Corruption("component must be one record batch", file=path)
            self._table = pa.Table.from_batches([reader.get_batch(0)])
            self._table.validate()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise Corruption("component is not readable Arrow", file=path) from error
        return self

    @property
    def table(self) -> pa.Table:
        """The columns, in place."""
        if self._table is None:
            raise Closed("the component was closed", file=str(self._path))
        return self._table

    def verify(self) -> None:
        """Read every byte and compare the checksum."""
        if self._buffer is None:
            raise Closed("the component was closed", file=str(self._path))
        if checksum(memoryview(self._buffer)) != self.info.crc:
            raise Corruption("component is damaged: its checksum differs", file=self._path)

    def close(self) -> None:
        """Let go of the map; it ends when the last array made from it is gone."""
        self._table = None
        self._buffer = None

    def drop(self) -> None:
        """Delete the file without reading it. Whoever still reads the map may go on."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise unavailable(error, "component cannot be deleted", self._path) from error


def remove_strays(folder: Path, known: set[str]) -> list[str]:
    """Remove the component and temporary files that are not in `known`; returns their names.

    They were left by a killed process: nothing that counts is among them.
    """
    removed = []
    with telling("folder cannot be read", folder):
        names = sorted(os.listdir(folder))
    for name in names:
        if name not in known and (_NAME.fullmatch(name) or name.endswith(".tmp")):
            try:
                (folder / name).unlink()
            except OSError as error:
                raise unavailable(error, "file cannot be deleted", folder / name) from error
            removed.append(name)
    return removed


class _Sink:
    """A file for Arrow to write to that keeps count and checksum on the way.

    The checksum is of the bytes as they were in memory: what the disk makes of them later shows.
    """

    closed = False

    def __init__(self, fd: int, streams: Sequence[Streamed]) -> None:
        self._fd = fd
        # Those still to be written, by address.
        self.streams = {stream.buffer.address: stream for stream in streams if stream.size}
        self.size = 0
        self.crc = 0

    def write(self, data: bytes | pa.Buffer) -> int:
        stream = self.streams.pop(data.address, None) if isinstance(data, pa.Buffer) else None
        before = self.size
        for piece in (memoryview(data).cast("B"),) if stream is None else stream.pieces():
            write_all(self._fd, piece)
            self.crc = crc32(piece, self.crc)
            self.size += len(piece)
        if self.size - before != len(data):
            raise InvalidRequest("a stream gave other bytes than it said", size_bytes=len(data))
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _misdescribed(value: Any) -> Corruption:
    return Corruption("manifest describes a component wrongly", file="MANIFEST", value=value)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as the single batch of the file; no copy when its columns are single chunks."""
    batches = table.unify_dictionaries().combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_arrays(
            [pa.array([], type=column.type) for column in table.schema], schema=table.schema
        )
    if len(batches) > 1:  # a text column of more than 2 GiB does not fit 32-bit offsets
        raise InvalidRequest(
            "a component is one record batch: use large_string", batches=len(batches)
        )
    return batches[0]
