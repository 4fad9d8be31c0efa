"""Packed rows: what is made of them in one go is what `read_rows` says, whatever is in them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tideline
from tideline.channel.codec import read_events, read_rows, read_subscribers, write_row
from tideline.kernels import layout as at
from tideline.model import Event, Subscriber
from tideline.space import Flat, Polygon
from tideline.space.place import BOX, CELL, CIRCLE, NONE, POINT, POLYGON, Place
from tideline.space.polygon import corners_of
from tideline.testing import ManualClock

_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    st.sampled_from(["x" * n for n in (31, 32, 255, 256, 1000)] + ["é" * 128, "\0", "日本" * 40]),
)
_SHAPES = (CELL, POINT, CIRCLE, BOX, POLYGON)
_TIMES = st.integers(-(1 << 62), 1 << 62)
_ROWS = st.lists(
    st.tuples(
        st.integers(0, 1 << 50), _TIMES, _TIMES, _TEXTS, _TEXTS, _TEXTS,
        st.binary(max_size=300) | st.just(b"y" * 70_000), st.sampled_from([NONE, *_SHAPES]),
    ),
    max_size=60, unique_by=lambda row: row[0],
)  # fmt: skip


class _Decoded(Flat):
    """A space whose places must be decoded one by one; a point is its first two numbers in all."""

    plain: ClassVar[bool] = False

    def decode(
        self, key: bytes, kind: int, a: float, b: float, c: float, d: float, corners: bytes = b""
    ) -> object:
        return (a, b) if kind == POINT else (key, kind, a, b, c, d, corners)


def _packed(rows: list[Any]) -> np.ndarray[Any, Any]:
    buffer = np.zeros(20_000, np.int64)
    parts = []
    for seq, first, until, key, ident, user, text, kind in rows:
        numbers = (seq / 3, -1.5, first / 7, float("inf")) if kind else ()
        place = Place(key.encode(), kind, *numbers)
        if kind == POLYGON:
            shape = Polygon([(seq % 89 + 1, 0), (0, 1), (0, 0)] * (1 + seq % 40))
            place = place._replace(corners=corners_of(shape))
        size = write_row(
            memoryview(buffer).cast("B"), at.PUBLISH, 0, seq, 7, first, until, place,
            ident.encode(), user.encode(), text,
        )  # fmt: skip
        parts.append(buffer[:size].copy())
    return np.concatenate([*parts, buffer[:0]])


@given(_ROWS)
def test_subscribers_are_those_of_the_rows_in_order(rows: list[Any]) -> None:
    packed = _packed(rows)
    slowly = [Subscriber(row.id, row.user) for row in sorted(read_rows(packed), key=_seq)]
    assert read_subscribers(packed) == slowly
    assert all(type(each) is Subscriber for each in read_subscribers(packed))
    assert [(row.seq, row.id, row.user, row.text) for row in read_rows(packed)] == [
        (seq, ident, user, text) for seq, _, _, _, ident, user, text, _ in rows
    ]


@given(_ROWS)
def test_events_are_those_of_the_rows_in_order(rows: list[Any]) -> None:
    packed = _packed(rows)
    sorted_rows = sorted(read_rows(packed), key=_seq)
    for space in (_Decoded(), Flat()):
        events = read_events(packed, space)
        assert all(type(event) is Event for event in events)
        places = [
            row.place.key.decode() if space.plain else space.decode(*row.place)
            for row in sorted_rows
        ]
        assert [_facts(event) for event in events] == [
            (row.id, place, row.first, row.until, row.seq, row.text)
            for row, place in zip(sorted_rows, places, strict=True)
        ]


@given(st.integers(1, 3000))
def test_many_rows_are_sorted_too(count: int) -> None:
    """More than are sorted by insertion; in falling order, which is the worst."""
    rows = [(count - n, 0, 1, "p", f"s{count - n}", "u", b"", NONE) for n in range(count)]
    assert [each.id for each in read_subscribers(_packed(rows))] == [
        f"s{n}" for n in range(1, count + 1)
    ]


def test_what_calls_return_is_in_order_of_arrival() -> None:
    """Over windows of several lengths, which lie apart in memory."""
    clock = ManualClock(1000)
    with tideline.open(":memory:", clock=clock) as db:
        roads = db.channel("roads")
        for n in range(100):
            roads.subscribe("I-87", user=f"u{n % 7}", id=f"s{n}", until_s=[5, 500, 50_000][n % 3])
            roads.publish("A 9", {"n": n}, id=f"e{n}", ttl_s=[50_000, 5, 500][n % 3])
        told = roads.publish("I-87", None, ttl_s=1)
        assert told.subscriptions == [Subscriber(f"s{n}", f"u{n % 7}") for n in range(100)]
        past = roads.subscribe("A 9", user="ann", since_s=-60, until_s=60).past
        assert [(event.id, event.place, event.body) for event in past] == [
            (f"e{n}", "A 9", {"n": n}) for n in range(100)
        ]


def _seq(row: Any) -> int:
    return int(row.seq)


def _facts(event: Event) -> tuple[Any, ...]:
    return event.id, event.place, event.at_us, event.until_us, event.seq, event.raw
