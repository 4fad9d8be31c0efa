"""Columns of places: row by row the same as single calls, and bad rows say why."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import many

from tideline.errors import InvalidRequest
from tideline.space import NONE, Circle, Flat, Grid, Place, QuadTree, Topics
from tideline.space.columns import text_column

STATE = QuadTree((-79.8, 40.4, -71.8, 45.1), 9)
ODD = Grid((0, 0, 10, 5), rows=5, cols=10)


def _check(space, table, values):
    """Every row as `encode` has it; `values` holds what each row means."""
    places = space.encode_many(table, table.num_rows)
    assert len(places.data) >= 1
    assert places.offsets[0] == 0
    assert places.shapes.flags.c_contiguous
    for array, kind in zip(places[:4], ("u1", "i8", "u1", "f8"), strict=True):
        assert array.dtype == kind
        assert array.flags.writeable
    for row, value in enumerate(values):
        expected, reason = _single(space, value)
        assert (row in places.bad) == (reason is not None)
        if reason is not None and value is not None:
            assert places.bad[row] == reason
        assert places.place(row) == expected
    return places


def _single(space, value):
    """What a single call gives: a place and no reason, or the empty place and a reason."""
    try:
        return space.encode(value), None
    except InvalidRequest as error:
        return Place(b"", NONE), str(error)


_texts = st.one_of(
    st.none(), st.text(max_size=5), st.sampled_from(["a" * 512, "a" * 513, "é" * 257, "a/b", "a//"])
)


def _forms(texts):
    """The same column in every form Arrow may bring it."""
    plain = pa.array(texts, pa.string())
    padded = pa.concat_arrays([pa.array(["pad"]), plain, pa.array(["pad"])])
    half = len(texts) // 2
    chunks = pa.chunked_array([plain[:half], plain[half:half], plain[half:]], pa.string())
    yield plain
    yield pa.array(texts, pa.large_string())
    yield pa.array(texts, pa.string_view())
    yield padded[1 : len(texts) + 1]
    yield chunks
    yield plain.dictionary_encode()
    yield pa.chunked_array([c.dictionary_encode() for c in chunks.chunks])
    yield padded.dictionary_encode()[1 : len(texts) + 1]


@settings(deadline=None, max_examples=many(60))
@given(st.lists(_texts, max_size=12))
@pytest.mark.parametrize("space", [Flat(), Topics()])
def test_texts_are_the_same_in_every_form(space, texts):
    for form in _forms(texts):
        _check(space, pa.table({"place": form}), texts)


def test_a_null_that_hides_bytes_gets_an_empty_key():
    array = pa.StringArray.from_buffers(
        3,
        pa.py_buffer(np.array([0, 1, 4, 5], np.int32)),
        pa.py_buffer(b"axyzb"),
        pa.py_buffer(bytes([0b101])),
        1,
    )
    places = _check(Flat(), pa.table({"place": array}), ["a", None, "b"])
    assert places.data.tobytes() == b"ab"


def test_bytes_that_are_no_text_are_refused():
    array = pa.StringArray.from_buffers(
        1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")
    )
    with pytest.raises(InvalidRequest, match="UTF-8"):
        Flat().encode_many(pa.table({"place": array}), 1)


@given(
    texts=st.lists(st.none() | st.binary(max_size=6) | st.text(max_size=4).map(str.encode)),
    first=st.integers(0, 3), flip=st.integers(0, 9), by=st.integers(-9, 9),
)  # fmt: skip
@example(texts=[b"ab", b"cd"], first=0, flip=1, by=5)
@example(texts=[b"ab", b"cd"], first=0, flip=1, by=-4)
@example(texts=[b"ab", b"cd"], first=0, flip=1, by=1)
def test_a_column_is_taken_exactly_when_arrow_finds_nothing_wrong_with_it(texts, first, flip, by):
    kind = pa.large_string()
    array = pa.array(texts, pa.large_binary()).view(kind)
    if by and 0 < flip < len(texts):  # an offset inside that points elsewhere
        offsets = np.frombuffer(array.buffers()[1], np.int64)[: len(texts) + 1].copy()
        offsets[flip] += by
        buffers = [array.buffers()[0], pa.py_buffer(offsets), array.buffers()[2]]
        array = pa.Array.from_buffers(kind, len(texts), buffers)
    array = array[first:]
    try:
        array.validate(full=True)
        wrong = False
    except pa.ArrowInvalid:
        wrong = True
    try:
        assert text_column(pa.table({"place": array}), "place") is not None
        assert not wrong
    except InvalidRequest:
        assert wrong


@pytest.mark.parametrize("space", [Flat(), Topics(), STATE])
def test_without_a_place_every_row_is_bad(space):
    for table in (pa.table({"id": ["a", "b"]}), pa.table({"place": pa.nulls(2)})):
        places = _check(space, table, [None, None])
        assert all(reason.startswith("place is missing") for reason in places.bad.values())
    assert space.encode_many(pa.table({"id": pa.array([], pa.string())}), 0).bad == {}


def test_columns_of_the_wrong_type_are_refused():
    for table, name in (
        (pa.table({"place": [1, 2]}), "place"),
        (pa.table({"place": [b"a"]}), "place"),
        (pa.table({"lon": ["1"], "lat": [1.0]}), "lon"),
        (pa.table({"lon": [1.0], "lat": [True]}), "lat"),
        (pa.Table.from_arrays([pa.array([1.0])] * 2, names=["lon", "lon"]), "lon"),
    ):
        with pytest.raises(InvalidRequest, match=name):
            STATE.encode_many(table, table.num_rows)


_odd = [math.nan, math.inf, -math.inf, 1e300, -0.0]
_lons = st.one_of(st.none(), st.floats(-80, -71), st.sampled_from([-79.8, -71.8, *_odd]))
_lats = st.one_of(st.none(), st.floats(40, 46), st.sampled_from([40.4, 45.1, *_odd]))
_radii = st.one_of(st.none(), st.floats(1, 1e6), st.sampled_from([0.0, -1.0, 3e7, *_odd]))
_names = st.one_of(st.none(), st.sampled_from(["1.4.2", "3", "", "5", "1.4.2.1.4.2.1.4.2.1"]))


def _value(lon, lat, radius_m, name):
    """What a row says, as a user would say it in a single call."""
    if name is not None:
        return name if (lon, lat, radius_m) == (None, None, None) else None
    if lon is None or lat is None:
        return None
    if radius_m is None:
        return (lon, lat)
    return lambda: Circle((lon, lat), radius_m)


class _Lazy:
    """`STATE`, except that a circle is made inside encode: one that cannot be is an error."""

    def __getattr__(self, name):
        return getattr(STATE, name)

    def encode(self, value):
        return STATE.encode(value() if callable(value) else value)


@settings(deadline=None, max_examples=many(200))
@given(st.lists(st.tuples(_lons, _lats, _radii, _names), min_size=1, max_size=20))
def test_rows_on_a_map_are_the_same_as_single_calls(rows):
    lon, lat, radius_m, name = (list(column) for column in zip(*rows, strict=True))
    table = pa.table(
        {
            "lon": pa.array(lon, pa.float64()),
            "lat": pa.array(lat, pa.float64()),
            "radius_m": pa.array(radius_m, pa.float64()),
            "place": pa.array(name, pa.string()),
        }
    )
    values = [_value(*row) for row in rows]
    _check(_Lazy(), table, values)
    # A slice of chunks says the same.
    doubled = pa.concat_tables([table, table]).slice(len(rows) // 2, len(rows))
    _check(_Lazy(), doubled, (values + values)[len(rows) // 2 :][: len(rows)])


def test_whole_numbers_and_decimals_are_coordinates():
    points = [(0, 0), (9, 4), (10, 5), (11, 0)]
    for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(20)):
        lon = pa.array([p[0] for p in points]).cast(kind)
        lat = pa.array([p[1] for p in points]).cast(kind)
        _check(ODD, pa.table({"lon": lon, "lat": lat}), points)


def test_reasons_name_the_value_and_what_is_allowed():
    table = pa.table(
        {
            "lon": [-73.0, None, -90.0, -73.0, -73.0],
            "lat": [41.0, 41.0, 41.0, 41.0, 41.0],
            "radius_m": [None, None, None, -5.0, None],
            "place": [None, None, None, None, "1.4"],
        }
    )
    bad = STATE.encode_many(table, 5).bad
    assert set(bad) == {1, 2, 3, 4}
    assert "place is missing" in bad[1]
    assert "within the bounds. point=(-90.0, 41.0), bounds=(-79.8, 40.4, -71.8, 45.1)" in bad[2]
    assert "radius_m=-5.0" in bad[3]
    assert "not both" in bad[4]


def test_many_random_points_and_circles_agree_with_single_calls():
    random = np.random.default_rng(7)
    lon = random.uniform(-79.9, -71.7, 3000)
    lat = random.uniform(40.3, 45.2, 3000)
    radius_m = pa.array(random.uniform(1, 20_000, 3000), mask=random.random(3000) < 0.5)
    values = [
        (x, y) if r is None else Circle((x, y), r)
        for x, y, r in zip(lon.tolist(), lat.tolist(), radius_m.to_pylist(), strict=True)
    ]
    _check(STATE, pa.table({"lon": lon, "lat": lat, "radius_m": radius_m}), values)
