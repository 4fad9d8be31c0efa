"""The checked job sees every bad access; all other processes run code without the checks.

The tests of bad accesses run in the checked job only (`make test-bounds`). Those of the list of
ranges run everywhere.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import llvmlite.binding as ll
import numpy as np
import pyarrow as pa
import pytest
from numba import types

import tideline
from tideline import addresses
from tideline.addresses import CHECKED, BadAddress, Ranges, address_of
from tideline.kernels import cache, jit, lanes, views
from tideline.kernels import layout as at
from tideline.kernels.documents import octets

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tideline"
checked = pytest.mark.skipif(not CHECKED, reason="in the checked job: make test-bounds")

# ---- the list of ranges --------------------------------------------------------------------


def listed(ranges: Ranges) -> list[tuple[int, int]]:
    ranges.take_back(ranges.lend([]))  # what has gone is taken out
    return list(map(tuple, ranges.known.T.tolist()))


def test_a_range_goes_with_its_array() -> None:
    ranges = Ranges()
    array = np.zeros(5)
    begin = ranges.register(array[2:])
    assert listed(ranges) == [(begin - 16, begin + 24)]  # all of the memory that has an owner
    ranges.register(array)
    assert len(listed(ranges)) == 1
    del array
    gc.collect()
    assert listed(ranges) == []


def test_two_threads_register_one_array() -> None:
    """Whoever is told that an array is known finds it in the table."""
    array, found = np.zeros(5), []

    class Slow(Ranges):
        """Another thread registers the array just before the table with it is published."""

        other: Thread | None = None

        def _publish(self) -> None:
            if self.known.size and self.other is None:
                self.other = Thread(target=self.look)
                self.other.start()
                self.other.join(0.2)
            super()._publish()

        def look(self) -> None:
            begin = self.register(array)
            table = next(each for each in self._buffers if each.ctypes.data == self.root[0])
            found.append(begin in table[1 : 1 + table[0]])

    ranges = Slow()
    ranges.register(array)
    assert ranges.other is not None
    ranges.other.join()
    assert found == [True]
    assert len(listed(ranges)) == 1


def test_a_buffer_goes_with_the_owner_that_is_named() -> None:
    class Owner:
        pass

    ranges, owner, text = Ranges(), Owner(), b"x" * 100
    begin = ranges.register(pa.py_buffer(text).slice(10, 20), owner)
    assert listed(ranges) == [(begin, begin + 20)]
    del owner
    gc.collect()
    assert listed(ranges) == []


def test_the_table_has_the_greatest_end_of_all_ranges_up_to_each() -> None:
    ranges, words = Ranges(), np.zeros(100, np.int64)
    keep = [words[:50].copy() for _ in range(3)]
    for each in (*keep, words):
        ranges.register(each)
    table = next(each for each in ranges._buffers if each.ctypes.data == ranges.root[0])
    count = int(table[0])
    assert count == 4
    begins, ends = table[1 : 1 + count], table[1 + count : 1 + 2 * count]
    assert begins.tolist() == sorted(begins.tolist())
    assert ends.tolist() == np.maximum.accumulate(ranges.known[1]).tolist()


def test_one_way_leads_from_memory_to_an_address() -> None:
    other = re.compile(r"\.ctypes\.data\b|__array_interface__|\.buffers\(\)\[\d\]\.address")
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        if "kernels" not in path.parts
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if other.search(line) and path.name not in ("addresses.py", "pages.py")
    ]
    assert found == [], "use tideline.addresses.address_of"


# ---- accesses ------------------------------------------------------------------------------


@jit
def get_byte(address):
    return lanes.get8(address)


@jit
def get_word(address):
    return lanes.get64(address)


@jit
def put_word(address):
    lanes.put64(address, 1)


@jit
def stops(address):
    return lanes.text_stops(address)


@jit
def sorted_word(address):
    return octets.sorted_word(address)


@jit
def put_sorted(address):
    octets.put_sorted(address, 1)


@jit
def element(address, count, index):
    return views.words(address, count)[index]


@jit
def unaligned(address, count, index):
    return views.word_at(views.octets(address, count), index)


@jit
def add_up(address, count, times):
    total = 0
    for _ in range(times):
        for number in range(count):
            total += lanes.get64(address + 8 * number)
    return total


def test_code_that_is_not_checked_looks_nothing_up() -> None:
    word = np.zeros(1, np.int64)
    get_word(address_of(word))
    entry = cache.load(get_word.entry_name((types.int64,), "body"))
    assert entry is not None
    assert entry.bitcode is not None
    code = str(ll.parse_bitcode(entry.bitcode))
    assert ("tideline_look_up" in code) == CHECKED


@pytest.fixture
def reports() -> Iterator[list[str]]:
    """What was reported in this test: it is meant to be."""
    assert addresses.ranges is not None
    yield addresses.ranges.bad
    addresses.ranges.bad.clear()


@checked
@pytest.mark.parametrize(
    ("kernel", "size"),
    [(get_byte, 1), (get_word, 8), (put_word, 8), (stops, 32), (sorted_word, 8), (put_sorted, 8)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_access_outside_of_registered_memory_is_reported(
    kernel: Callable[[int], Any], size: int, reports: list[str]
) -> None:
    # The neighbours in memory are not registered: `room` is a part of a larger buffer.
    class Owner:
        pass

    whole, owner = pa.py_buffer(bytes(256)), Owner()
    begin = address_of(whole.slice(64, 64), owner)
    kernel(begin)
    kernel(begin + 64 - size)
    assert reports == []
    name = kernel.__name__  # type: ignore[attr-defined]
    for bad in (begin - 1, begin + 64 - size + 1, 0, -8, 1 << 62):
        with pytest.raises(BadAddress, match=rf"\.{name}: {size} bytes at {bad:#x} ") as error:
            kernel(bad)
        assert str(error.value) == reports[-1]
    del owner
    with pytest.raises(BadAddress):
        kernel(begin)


@checked
def test_a_view_is_no_longer_than_its_range(reports: list[str]) -> None:
    words = np.arange(10)
    begin = address_of(words)
    assert element(begin, 10, 9) == 9
    with pytest.raises(BadAddress, match=f"88 bytes at {begin:#x} .*element"):
        element(begin, 11, 0)
    with pytest.raises(BadAddress):
        element(begin - 8, 1, 0)


@checked
def test_a_view_without_a_length_ends_with_its_range(reports: list[str]) -> None:
    words = np.arange(10)
    begin = address_of(words)
    assert element(begin + 16, at.FOREVER, 7) == 9
    for index in (8, -1):
        with pytest.raises(IndexError):
            element(begin + 16, at.FOREVER, index)
    with pytest.raises(IndexError):
        element(12345, at.FOREVER, 0)


@checked
def test_eight_bytes_of_an_array_lie_in_it(reports: list[str]) -> None:
    begin = address_of(text := np.arange(20, dtype=np.uint8))
    assert unaligned(begin, len(text), 12) == int.from_bytes(bytes(range(12, 20)), "little")
    for index in (13, -1):
        with pytest.raises(IndexError):
            unaligned(begin, len(text), index)


@checked
@pytest.mark.parametrize("word", [at.C_SCRATCH, at.C_ROW_COUNTS, at.C_SUBS], ids="word {}".format)
def test_a_wrong_word_of_a_state_is_reported_by_the_kernel_that_uses_it(
    word: int, reports: list[str]
) -> None:
    with tideline.open(":memory:") as database:
        channel = database.channel("roads")
        channel.publish("a", {}, ttl_s=5)
        state = channel.core.engine.parts.state
        kept = int(state[word])
        state[word] = address_of(np.zeros(1, np.int64))  # memory that was freed
        with pytest.raises((BadAddress, IndexError)):
            channel.publish("a", {}, ttl_s=5)
        state[word] = kept
        assert reports[0].startswith("tideline.kernels.rows.run_one: ")


@checked
def test_a_search_in_a_list_that_changes_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that loses its core in the middle of one may find its buffer written again."""
    monkeypatch.setattr(addresses, "_BUFFERS", 1)  # so that every change is written there
    words = np.arange(100)
    begin = address_of(words)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(add_up, begin, 100, 10_000) for _ in range(2)]
        while not all(job.done() for job in jobs):
            some = [np.zeros(100) for _ in range(10)]
            for each in some:
                address_of(each)
        assert [job.result() for job in jobs] == [10_000 * 4950] * 2
