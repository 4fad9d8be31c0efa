"""A component comes back as it was written, or not at all."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tideline.errors import Closed, Corruption, InvalidRequest, Unavailable
from tideline.lsm.component import (
    Component,
    ComponentInfo,
    Product,
    Streamed,
    remove_strays,
    write_component,
)
from tideline.lsm.files import checksum
from tideline.lsm.filter import MinMax

ROOT = Path(__file__).parents[2]
KEYS = pa.table({"key": pa.array([1, 2, 3], pa.int64())})


def write(folder, table=KEYS, number=7, sync=False, **extra):
    filters = {"key": MinMax(1, 3), "none": MinMax.empty()}
    product = Product(table, 3, filters, extra)
    return write_component(folder, number, product, kind="sorted", level=2, sync=sync)


@pytest.mark.parametrize("sync", [False, True])
def test_a_component_comes_back_as_it_was_written(tmp_path, sync):
    table = pa.table(
        {
            "n": pa.chunked_array([[1, 2], [3]]),
            "text": pa.chunked_array([["a", None], ["ccc"]]),
            "lists": [[1], [], [2, 3]],
            "user": pa.chunked_array(
                [pa.array(["u", "v"]).dictionary_encode(), pa.array(["w"]).dictionary_encode()]
            ),
        }
    )
    info = write(tmp_path, table, sync=sync, bucket=[10, 20])
    assert os.listdir(tmp_path) == ["c-000007.arrow"]
    assert (info.name, info.kind, info.rows) == ("c-000007.arrow", "sorted", 3)
    content = (tmp_path / info.name).read_bytes()
    assert (info.size_bytes, info.crc) == (len(content), checksum(content))
    component = Component.open(tmp_path, info)
    assert component.table.to_pylist() == table.to_pylist()
    assert all(column.num_chunks == 1 for column in component.table.columns)
    component.verify()
    component.close()


@pytest.mark.parametrize(
    "table",
    [
        KEYS.slice(0, 0),
        KEYS.slice(1, 1),
        pa.table({"d": pa.array([], pa.dictionary("int32", "string"))}),
    ],
    ids=["empty", "slice", "empty dictionary"],
)
def test_empty_and_sliced_tables_come_back(tmp_path, table):
    component = Component.open(tmp_path, write(tmp_path, table))
    assert component.table == table.unify_dictionaries()


def test_the_bytes_are_the_documented_ones(tmp_path):
    info = write(tmp_path)
    content = (tmp_path / info.name).read_bytes()
    page = (ROOT / "docs/internals/components.md").read_text()
    column = np.array([1, 2, 3], np.int64).tobytes()
    start = content.index(column)
    assert start % 8 == 0
    assert f"{start:4d}  {column.hex(' ', 4)}" in page
    assert f"   0  {content[:8].hex(' ', 4)}" in page
    assert f" {len(content) - 6}  4152524f 5731" in page
    assert content.endswith(b"ARROW1")


def test_columns_are_read_in_place(tmp_path):
    component = Component.open(tmp_path, write(tmp_path))
    before = pa.total_allocated_bytes()
    column = component.table["key"].chunk(0).to_numpy(zero_copy_only=True)
    assert pa.total_allocated_bytes() == before
    assert column.ctypes.data % 8 == 0
    assert column.tolist() == [1, 2, 3]


def test_info_survives_json(tmp_path):
    info = write(tmp_path, bucket=[10, 20])
    assert ComponentInfo.from_json(json.loads(json.dumps(info.to_json()))) == info


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../c-000001.arrow"},
        {"name": 7},
        {"rows": -1},
        {"crc": "7"},
        {"filters": {"key": [1]}},
        {"filters": None},
        {"extra": []},
        {"level": -1},
        {"level": "0"},
    ],
    ids=str,
)
def test_a_wrong_description_is_corruption(tmp_path, change):
    good = write(tmp_path).to_json()
    with pytest.raises(Corruption, match="describes a component wrongly"):
        ComponentInfo.from_json({**good, **change})
    for missing in good.keys() - {"level"}:  # which a component of level 0 need not say
        with pytest.raises(Corruption):
            ComponentInfo.from_json({name: good[name] for name in good if name != missing})


def test_every_flipped_byte_is_found(tmp_path):
    info = write(tmp_path)
    path = tmp_path / info.name
    good = path.read_bytes()
    for offset in range(len(good)):
        for mask in (0x01, 0xFF):
            bad = bytearray(good)
            bad[offset] ^= mask
            path.write_bytes(bad)
            with pytest.raises(Corruption, match=info.name):
                Component.open(tmp_path, info)


def test_another_size_a_missing_file_and_other_content_are_corruption(tmp_path):
    info = write(tmp_path)
    path = tmp_path / info.name
    good = path.read_bytes()
    for bad in (good[:-1], good + b"\0", b""):
        path.write_bytes(bad)
        with pytest.raises(Corruption, match="another size"):
            Component.open(tmp_path, info, verify=False)
    path.unlink()
    with pytest.raises(Corruption, match="missing"):
        Component.open(tmp_path, info)
    junk = bytes(range(200))
    path.write_bytes(junk)
    with pytest.raises(Corruption, match="not readable Arrow"):
        Component.open(tmp_path, replace(info, size_bytes=len(junk), crc=checksum(junk)))


def test_a_file_of_several_batches_is_corruption(tmp_path):
    path = tmp_path / "c-000001.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, KEYS.schema) as writer:
        writer.write_table(KEYS)
        writer.write_table(KEYS)
    content = path.read_bytes()
    info = ComponentInfo(path.name, "sorted", 6, len(content), checksum(content))
    with pytest.raises(Corruption, match="one record batch"):
        Component.open(tmp_path, info)


def test_verify_finds_damage_after_opening(tmp_path):
    info = write(tmp_path)
    component = Component.open(tmp_path, info, verify=False)
    with (tmp_path / info.name).open("r+b") as file:
        file.seek(280)
        file.write(b"\x09")
    with pytest.raises(Corruption, match=info.name):
        component.verify()


def test_a_dropped_component_is_readable_while_mapped(tmp_path):
    component = Component.open(tmp_path, write(tmp_path))
    column = component.table["key"].chunk(0).to_numpy()
    component.drop()
    component.drop()
    assert os.listdir(tmp_path) == []
    component.verify()
    component.close()
    assert column.tolist() == [1, 2, 3]
    with pytest.raises(Closed):
        component.verify()
    with pytest.raises(Closed):
        _ = component.table


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
def test_a_failed_write_leaves_no_file(tmp_path, monkeypatch, step):
    def fail(*arguments):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(Unavailable, match="component write failed"):
            write(tmp_path, sync=True)
    assert os.listdir(tmp_path) == []


FULL = """
import os, resource, signal, sys
from pathlib import Path
import pyarrow as pa
from tideline.errors import Unavailable
from tideline.lsm.component import Component, Product, write_component
from tideline.lsm.manifest import Manifest
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
table = pa.table({"n": range(10_000)})
manifest = Manifest(folder / "MANIFEST")
manifest.save({"n": 1})
def write():
    return write_component(folder, 1, Product(table, 10_000, {}), kind="sorted", sync=False)
for limit in (0, 100, 5_000, 80_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    for attempt in (write, lambda: manifest.save({"n": "x" * 100_000})):
        try:
            attempt()
        except Unavailable as error:
            assert "disk is full" in str(error), error
        else:
            raise AssertionError("nothing was refused")
        assert os.listdir(folder) == ["MANIFEST"]
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert manifest.load() == {"n": 1}
assert Component.open(folder, write()).table.equals(table)
"""


def test_a_full_disk_leaves_nothing_and_goes_on_when_there_is_room(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_strays_are_removed_and_nothing_else(tmp_path):
    names = ["MANIFEST", "log-000001.log", "c-000001.arrow", "notes.arrow", "LOCK"]
    strays = ["MANIFEST.tmp", "c-000002.arrow", "c-000003.arrow.tmp"]
    for name in names + strays:
        (tmp_path / name).write_bytes(b"x")
    assert remove_strays(tmp_path, {"c-000001.arrow"}) == strays
    assert sorted(os.listdir(tmp_path)) == sorted(names)
    assert remove_strays(tmp_path, {"c-000001.arrow"}) == []


@pytest.mark.parametrize(("number", "rows"), [(0, 3), (1, -1)])
def test_wrong_numbers_are_refused(tmp_path, number, rows):
    with pytest.raises(InvalidRequest):
        write_component(tmp_path, number, Product(KEYS, rows, {}), kind="k", sync=False)


def streamed(folder, pieces, size=6, *, named=True):
    """A column of texts whose bytes are made while it is written."""
    stream = Streamed(size, lambda: map(memoryview, pieces))
    offsets = pa.py_buffer(np.array([0, 2, 2, size], np.int64))
    data = stream.buffer if named else pa.py_buffer(b"......"[:size])
    texts = pa.Array.from_buffers(pa.large_string(), 3, [None, offsets, data])
    table = pa.table({"n": [1, 2, 3], "text": texts})
    product = Product(table, 3, {}, streams=[stream])
    return write_component(folder, 1, product, kind="sorted", sync=False)


@pytest.mark.parametrize("pieces", [[b"abcdef"], [b"a", b"", b"bcd", b"ef"]])
def test_a_streamed_column_comes_back_as_it_was_made(tmp_path, pieces):
    info = streamed(tmp_path, pieces)
    component = Component.open(tmp_path, info)
    assert component.table.to_pydict() == {"n": [1, 2, 3], "text": ["ab", "", "cdef"]}
    component.close()


def test_a_stream_that_gives_other_bytes_or_is_not_asked_is_refused(tmp_path):
    for pieces in ([b"abcde"], [b"abcdef", b"g"]):
        with pytest.raises(InvalidRequest):
            streamed(tmp_path, pieces)
    with pytest.raises(InvalidRequest):
        streamed(tmp_path, [b"abcdef"], named=False)
    assert os.listdir(tmp_path) == []


def test_an_empty_stream_is_an_empty_column(tmp_path):
    product = Product(pa.table({"n": [1]}), 1, {}, streams=[Streamed(0, lambda: iter(()))])
    info = write_component(tmp_path, 1, product, kind="sorted", sync=False)
    Component.open(tmp_path, info).close()
