"""Sealed marks: which user was told which event, as one sorted column.

    mark: int64, rising      see kernels/told.py for what a mark is

A component holds the marks of events that end about together, and is dropped whole, unread, when
all of them have ended. Marks are hashes, so a search guesses where one stands and is there in a
step or two.

Written once, read by kernels in place; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import Corruption
from tideline.index.memory import Memory, WindowFacts
from tideline.kernels import layout as at
from tideline.kernels.marks import list_marks
from tideline.lsm.component import Component, Product
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import MergeContext

__all__ = ["ToldKind", "ToldReader"]

Words = NDArray[np.int64]


class ToldReader:
    """An open component of marks: where they are, for kernels."""

    def __init__(self, component: Component) -> None:
        self.component = component
        column = component.table["mark"].chunk(0)
        if column.type != pa.int64():
            raise KeyError("mark")
        self.marks: Words = column.to_numpy(zero_copy_only=True)
        self.row = np.zeros(at.T_WORDS, np.int64)
        self.row[at.T_MARKS] = address_of(self.marks)
        self.row[at.T_COUNT] = len(self.marks)
        self.row[at.T_UNTIL_HIGH] = int(component.info.filters["until"].high)

    def check(self) -> None:
        """Verify the checksum and the order that searches rely on."""
        self.component.verify()
        if np.any(np.diff(self.marks) <= 0):
            raise Corruption("marks are out of order", file=self.component.info.name)


class ToldKind:
    """How the LSM framework opens and merges components of marks."""

    name = "told"

    def open(self, component: Component) -> ToldReader:
        """A reader over an open component."""
        try:
            return ToldReader(component)
        except (KeyError, IndexError, pa.ArrowException) as error:
            raise Corruption(
                "component has other columns than it should", file=component.info.name
            ) from error

    def seal(self, memory: Memory, context: WindowFacts) -> list[Product]:
        """A frozen window of marks as a component."""
        window = context
        marks = np.empty(window.told, np.int64)
        count = int(list_marks(memory.address, window.number, marks))
        bucket = [window.width, window.limit]
        return _products(_distinct(marks[:count]), window.event_until_high, bucket)

    def merge(self, readers: Sequence[ToldReader], context: MergeContext) -> list[Product]:
        """One component of several: when a mark ends is not known, so all stay."""
        until = max(int(reader.row[at.T_UNTIL_HIGH]) for reader in readers)
        marks = _distinct(np.concatenate([reader.marks for reader in readers]))
        return _products(marks, until, readers[0].component.info.extra["bucket"])


def _distinct(marks: Words) -> Words:
    """The marks in order, each once. `np.unique` was nine tenths of a run with many millions."""
    marks.sort()
    fresh = np.ones(len(marks), bool)
    np.not_equal(marks[1:], marks[:-1], out=fresh[1:])
    return marks if fresh.all() else marks[fresh]


def _products(marks: Words, until: int, bucket: list[int]) -> list[Product]:
    if not len(marks):
        return []
    filters = {"until": MinMax(until, until)}
    return [Product(pa.table({"mark": marks}), len(marks), filters, {"bucket": bucket})]
