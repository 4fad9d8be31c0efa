"""`Channel.scan`: everything of one kind, or what meets a place and a time, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.channel.bodies import parse_where
from tideline.channel.checks import check_time
from tideline.channel.core import Core
from tideline.channel.tables import Columns, read_columns, records_table, schema_of
from tideline.clock import FOREVER, to_us
from tideline.errors import InvalidRequest
from tideline.kernels import layout as at
from tideline.space import Space
from tideline.space.place import Place, meets
from tideline.where import Condition

__all__ = ["scan", "scan_parts", "times_between"]

_SIDES = {"events": (at.EVENTS, at.PUBLISH), "subscriptions": (at.SUBS, at.SUBSCRIBE)}
_SLICE = 65_536  # records packed at a time
_PART_ROWS, _MOST_PARTS = 1_000_000, 64  # of a read in parts
_SAMPLES = 200  # events of each part


def scan(
    core: Core, kind: str, place: Any, since: datetime | None, until: datetime | None,
    where: dict[str, Any] | None,
) -> pa.Table:  # fmt: skip
    """See `Channel.scan`."""
    tables = list(scan_parts(core, kind, place, since, until, where))
    if len(tables) < 2:
        return tables[0] if tables else schema_of(kind, core.space).empty_table()
    return pa.concat_tables(tables).sort_by("seq")


def scan_parts(
    core: Core, kind: str, place: Any, since: datetime | None, until: datetime | None,
    where: dict[str, Any] | None,
) -> Iterator[pa.Table]:  # fmt: skip
    """The same in parts, each in order of arrival, made when it is asked for.

    What is read is what there was when the first part was asked for: its rows are copied then,
    and writers wait for that alone.
    """
    if kind not in _SIDES:
        raise InvalidRequest(f"kind must be one of {', '.join(_SIDES)}", kind=kind)
    core.subscriptions.check_listed(kind)
    condition, _ = parse_where(where)
    if condition and kind == "subscriptions":
        raise InvalidRequest("where asks about the bodies of events", kind=kind)
    encoded = None if place is None else core.space.encode(place)
    low = -FOREVER if since is None else check_time(to_us(since, "since"), "since")
    high = FOREVER if until is None else check_time(to_us(until, "until"), "until")
    side, row_kind = _SIDES[kind]
    with core.engine.lock:
        core.begin()
        records = core.engine.records
        refs = records.listed(side, core.now(), low, high)
        packed = [
            records.pack(side, refs[first : first + _SLICE])
            for first in range(0, len(refs), _SLICE)
        ]  # fmt: skip
    allowance = core.engine.conditions.allowance
    packed.reverse()
    while packed:
        rows = read_columns(packed.pop(), row_kind)
        table = records_table(kind, rows, core.space)
        if encoded is not None:
            table = table.filter(_near(core.space, rows, encoded))
        if condition and allowance is not None:
            values = pc.sum(pc.count_substring(table["body"], ",")).as_py() or 0
            allowance(condition.cost.steps(table["body"].nbytes, values))
        yield _meeting(table, condition).sort_by("seq")


def times_between(core: Core, parts: int) -> list[int]:
    """Times that cut the valid events into about so many parts of one size, by when they happened.

    Known from a sample. Fewer, when many events happened at one time. 0 parts is one for every
    million events.
    """
    with core.engine.lock:
        core.begin()
        records = core.engine.records
        refs = records.listed(at.EVENTS, core.now(), -FOREVER, FOREVER)
        parts = parts or min(_MOST_PARTS, len(refs) // _PART_ROWS)
        if parts < 2:
            return []
        refs = refs[:: max(1, len(refs) // (_SAMPLES * parts))]
        if not len(refs):
            return []
        rows = read_columns(records.pack(at.EVENTS, refs), at.PUBLISH)
        table = records_table("events", rows, core.space)
    times = np.sort(table["at"].cast(pa.int64()).to_numpy())
    found = times[np.arange(1, parts) * len(times) // parts]
    return [int(us) for us in np.unique(found) if us > times[0]]


def _near(space: Space, rows: Columns, place: Place) -> pa.Array:
    """Which rows' places meet a place; each distinct place is asked once."""
    coded = rows.keys.dictionary_encode()
    polygons = np.zeros(len(rows.seq))  # by row, the number of its corners among all, from 1 on
    numbers: dict[bytes, int] = {b"": 0}
    for row, corners in rows.corners.items():
        polygons[row] = numbers.setdefault(corners, len(numbers))
    known = list(numbers)
    shapes = np.column_stack([coded.indices.to_numpy(), rows.shape_kind, *rows.shapes, polygons])
    distinct, back = np.unique(shapes, axis=0, return_inverse=True)
    keys = coded.dictionary.to_pylist()
    near = [
        meets(space, Place(keys[int(code)], int(kind), a, b, c, d, known[int(polygon)]), place)
        for code, kind, a, b, c, d, polygon in distinct.tolist()
    ]
    return pa.array(np.array(near, np.bool_)[back.ravel()])


def _meeting(table: pa.Table, condition: Condition) -> pa.Table:
    if not condition or not len(table):
        return table
    from tideline.where.batch import matching  # its kernels load when somebody asks

    return table.filter(pa.array(matching(condition, pc.cast(table["body"], pa.large_string()))))
