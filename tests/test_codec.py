"""Packed rows: what the short readers say is what `read_rows` says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tideline.channel.codec import read_events, read_rows, read_subscribers, write_row
from tideline.kernels import layout as at
from tideline.space.place import Place

_texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).map(str.encode)
_number = st.integers(-(1 << 62), 1 << 62)
_rows = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=20), st.booleans(), st.floats(-180, 180), _texts, _texts,
        st.binary(max_size=40) | st.integers(500, 700).map(lambda size: b"x" * size),
        _number, _number,
    ),
    max_size=6,
)  # fmt: skip


def _packed(rows: list[tuple], kind: int) -> bytes:
    room = memoryview(bytearray(1 << 14))
    parts = []
    for number, (key, shaped, lon, ident, user, text, first, until) in enumerate(rows):
        place = Place(key, 2, lon, 1.0, 2.0, 3.0) if shaped else Place(key)
        seq = number * 7919 % 31  # the order of rows is not that of seqs
        words = write_row(room, kind, 0, seq, 1, first, until, place, ident, user, text)
        parts.append(bytes(room[: words * 8]))
    return b"".join(parts)


@given(rows=_rows)
def test_subscribers_are_those_of_the_rows(rows: list[tuple]) -> None:
    packed = _packed(rows, at.SUBSCRIBE)
    by_seq = sorted(read_rows(packed), key=lambda row: row.seq)
    assert [tuple(who) for who in read_subscribers(packed)] == [(r.id, r.user) for r in by_seq]
    assert sorted((r.id.encode(), r.user.encode(), r.text) for r in by_seq) == sorted(
        (ident, user, text) for _, _, _, ident, user, text, _, _ in rows
    )


@given(rows=_rows)
def test_events_are_those_of_the_rows(rows: list[tuple]) -> None:
    packed = _packed(rows, at.PUBLISH)
    by_seq = sorted(read_rows(packed), key=lambda row: row.seq)
    for given_as in (packed, memoryview(packed)):
        events = read_events(given_as, lambda *place: place)
        assert [(e.id, e.place, e.at_us, e.until_us, e.seq, e.raw) for e in events] == [
            (r.id, tuple(r.place), r.first, r.until, r.seq, r.text) for r in by_seq
        ]
