"""A table of operations, checked and turned into columns that kernels can encode.

Everything is vectorised: places by the space, conditions once per distinct text,
bodies by a JSON kernel. A bad row is noted with its reason and becomes VOID; a bad
column (missing, of the wrong type) is the caller's mistake and raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.channel.ahead import Ahead
from tideline.channel.checks import OUT_OF_TIME
from tideline.clock import EARLIEST, FOREVER, LATEST
from tideline.errors import InvalidRequest
from tideline.kernels import encode
from tideline.kernels import layout as at
from tideline.kernels.jsontext import check_rows
from tideline.space import Space
from tideline.space.columns import bytes_of, text_column
from tideline.space.place import Places
from tideline.where import parse_text

__all__ = ["Operations", "read_operations"]

Words = NDArray[np.int64]
_KNOWN = frozenset([
    "op", "id", "place", "lon", "lat", "radius_m", "user", "at", "since", "until", "body", "where",
    "unseen", "replace",
])  # fmt: skip


@dataclass
class Operations:
    """n operations as columns, and what is wrong with the bad ones."""

    kinds: Words
    flags: Words
    now: Words
    first: Words
    until: Words
    places: Places
    ids: tuple[NDArray[np.uint8], Words]
    users: tuple[NDArray[np.uint8], Words]
    bodies: tuple[NDArray[np.uint8], Words]
    wheres: tuple[NDArray[np.uint8], Words]
    rejected: dict[int, str] = field(default_factory=dict)
    deltas: bool = False
    """Whether a condition asks for a change."""
    repeated: set[int] = field(default_factory=set)
    """Rows that stored nothing because their id was there, or ended nothing, once they have run."""

    @property
    def ending(self) -> NDArray[np.bool_]:
        """The rows that end an event: they retract or replace one."""
        found: NDArray[np.bool_] = (self.kinds == at.RETRACT) | (self.flags & at.R_REPLACES != 0)
        return found

    def reject(self, row: int, reason: str) -> None:
        """Take a row out, before they are encoded."""
        self.rejected.setdefault(row, reason)
        self.kinds[row], self.flags[row] = at.VOID, 0

    def encode(self) -> tuple[Words, Words, int]:
        """The operations as rows: (rows, where each starts, words used)."""
        n = len(self.kinds)
        texts = sum(
            len(part) for part in (
                self.places.data, self.ids[0], self.users[0], self.bodies[0], self.wheres[0]
            )
        )  # fmt: skip
        corners, corner_at = self._corners()
        rows = np.empty(n * (at.R_BODY + 9) + texts // 8 + len(corners) + 16, np.int64)
        starts = np.empty(max(n, 1), np.int64)
        used = encode.encode_rows(
            self.kinds, self.flags, self.now, self.first, self.until, self.places.data,
            self.places.offsets, self.places.kinds.astype(np.int64), self.places.shapes,
            *self.ids, *self.users, *self.bodies, *self.wheres, corners, corner_at, rows,
            address_of(rows), starts,
        )  # fmt: skip
        return rows, starts, int(used)

    def _corners(self) -> tuple[Words, Words]:
        """The corners of polygons end to end, and where those of each row begin; most have none."""
        found = self.places.corners
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        offsets = np.zeros(len(self.kinds) + 1, np.int64)
        for row, corners in found.items():
            offsets[row + 1] = len(corners) // 8
        np.cumsum(offsets, out=offsets)
        joined = bytearray().join(found[row] for row in sorted(found))
        return np.frombuffer(joined, np.int64), offsets


def read_operations(
    table: pa.Table, space: Space, new_ids: Callable[[int], list[str]], *, id_limit: int,
    body_limit: int, ahead: Ahead | None = None,
) -> Operations:  # fmt: skip
    """Check a table of operations; `ahead` says how late an `at` may be."""
    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        raise InvalidRequest("apply takes a pyarrow Table", type=type(table).__name__)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    names = table.column_names
    wrong = [name for name in names if name not in _KNOWN or names.count(name) > 1]
    if wrong:
        raise InvalidRequest(
            "unknown or repeated columns: allowed are " + ", ".join(sorted(_KNOWN)), columns=wrong
        )
    for name in ("op", "at"):
        if name not in table.column_names:
            raise InvalidRequest(f"the column {name} is missing", columns=table.column_names)
    n = table.num_rows
    rejected: dict[int, str] = {}

    def reject(mask: NDArray[np.bool_], reason: str) -> None:
        if not mask.any():
            return
        for row in np.flatnonzero(mask & (kinds != at.VOID)).tolist():
            rejected.setdefault(row, reason)
            kinds[row] = at.VOID

    kinds = np.zeros(n, np.int64)
    encode.kinds_of(*bytes_of(text_column(table, "op")), kinds)
    for row in np.flatnonzero(kinds == 0).tolist():
        given = table["op"][row].as_py()
        rejected[row] = (
            "op is missing"
            if given is None
            else f"op must be publish, subscribe, cancel or retract, not {str(given)[:40]!r}"
        )
    publish, subscribe = kinds == at.PUBLISH, kinds == at.SUBSCRIBE

    now, has_now = _times(table, "at")
    since, has_since = _times(table, "since")
    until, has_until = _times(table, "until")
    reject(~has_now, "at is missing")
    stored = publish | subscribe
    for name, times, rows in (("at", now, kinds != 0), ("since", since, subscribe),
                              ("until", until, stored)):  # fmt: skip
        if n and (times.min() < EARLIEST or times.max() >= LATEST):
            reject(rows & ((times < EARLIEST) | (times >= LATEST)), f"{name} {OUT_OF_TIME}")
    if ahead is not None:
        reject(ahead.beyond(now), ahead.reason)
    first = np.where(subscribe & has_since, since, now)
    until = np.where(has_until, until, FOREVER)
    reject(publish & (until <= first), "until must be after at: an event stays valid for a while")
    reject(subscribe & (until <= first), "until must be after since")

    places = space.encode_many(table, n)
    if places.bad:
        for row, reason in places.bad.items():
            if kinds[row] in (at.PUBLISH, at.SUBSCRIBE):
                rejected.setdefault(row, reason)
                kinds[row] = at.VOID

    ids, missing = _texts(table, "id")
    reject((kinds == at.CANCEL) & missing, "a cancel needs the id of a subscription")
    reject((kinds == at.RETRACT) & missing, "a retract needs the id of an event")
    replaces = _yes(table, "replace")
    reject((kinds == at.PUBLISH) & replaces & missing, "replace needs the id of what it replaces")
    wanted = np.flatnonzero(missing & (kinds != at.VOID))
    if len(wanted):
        fresh = np.full(n, None, dtype=object)
        fresh[wanted] = new_ids(len(wanted))
        ids = pc.coalesce(ids, pa.array(fresh, pa.large_string()))
    id_data, id_at = bytes_of(ids)
    lengths = np.diff(id_at)
    reject((lengths < 1) | (lengths > id_limit), f"id must be 1 to {id_limit} bytes")

    users, missing = _texts(table, "user")
    user_data, user_at = bytes_of(users)
    lengths = np.diff(user_at)
    bad = missing | (lengths < 1) | (lengths > id_limit)
    reject((kinds == at.SUBSCRIBE) & bad, f"user must be text of 1 to {id_limit} bytes")

    bodies, missing = _texts(table, "body")
    body_data, body_at = bytes_of(bodies)
    wanted_bodies = kinds == at.PUBLISH
    reject(wanted_bodies & missing, "body is missing")
    reject(wanted_bodies & (np.diff(body_at) > body_limit), f"body is over {body_limit} bytes")
    good = np.ones(n, np.bool_)
    check_rows(body_data, body_at, kinds == at.PUBLISH, good)
    reject(~good, "body is not JSON")

    flags = np.zeros(n, np.int64)
    wheres, deltas = _conditions(table, kinds, flags, rejected)
    flags[_yes(table, "unseen") & (kinds == at.SUBSCRIBE)] |= at.R_UNSEEN
    flags[replaces & (kinds == at.PUBLISH)] |= at.R_REPLACES
    return Operations(
        kinds, flags, now, first, until, places, (id_data, id_at), (user_data, user_at),
        (body_data, body_at), bytes_of(wheres), rejected, deltas,
    )  # fmt: skip


def _yes(table: pa.Table, name: str) -> NDArray[np.bool_]:
    """The rows that say yes in a column of booleans; none when there is no such column."""
    if name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_boolean(column.type):
            return np.array(pc.fill_null(column, False).to_numpy(zero_copy_only=False), np.bool_)
        if not pa.types.is_null(column.type):
            raise InvalidRequest(f"the column {name} must hold booleans", type=str(column.type))
    return np.zeros(table.num_rows, np.bool_)


def _times(table: pa.Table, name: str) -> tuple[Words, NDArray[np.bool_]]:
    """A column of times as microseconds, and which rows have one."""
    n = table.num_rows
    if name not in table.column_names:
        return np.zeros(n, np.int64), np.zeros(n, np.bool_)
    column = table[name]
    if pa.types.is_null(column.type):
        return np.zeros(n, np.int64), np.zeros(n, np.bool_)
    if not pa.types.is_timestamp(column.type):
        raise InvalidRequest(f"the column {name} must hold timestamps", type=str(column.type))
    column = column.combine_chunks()
    has = np.ones(n, np.bool_)
    if column.null_count:
        has = column.is_valid().to_numpy(zero_copy_only=False)
        column = column.fill_null(0)
    numbers = column.view(pa.int64()).to_numpy(zero_copy_only=False)
    unit = column.type.unit
    if unit == "us":
        return np.array(numbers), has  # a copy: kernels are compiled for arrays they may write to
    if unit == "ns":
        return numbers // 1000, has
    factor = {"s": 1_000_000, "ms": 1000}[unit]
    # What does not fit into microseconds is none of the times that happen: it is not to wrap.
    return np.clip(numbers, -FOREVER // factor, FOREVER // factor) * factor, has


def _texts(table: pa.Table, name: str) -> tuple[Any, NDArray[np.bool_]]:
    """A column of texts (absent: all missing) and which rows have none."""
    column = text_column(table, name)
    if column is None:
        n = table.num_rows
        return pa.nulls(n, pa.large_string()), np.ones(n, np.bool_)
    if not column.null_count:
        return column, np.zeros(len(column), np.bool_)
    return column, column.is_null().to_numpy(zero_copy_only=False)


def _conditions(
    table: pa.Table, kinds: Words, flags: Words, rejected: dict[int, str]
) -> tuple[Any, bool]:
    """Conditions parsed once per distinct text, as canonical texts; whether one has `$delta`."""
    column, missing = _texts(table, "where")
    if missing.all():
        return pa.nulls(len(kinds), pa.large_string()), False
    deltas = False
    coded = column.dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    texts: list[str | None] = []
    reasons: list[str | None] = []
    for text in coded.dictionary.to_pylist():
        try:
            condition = parse_text(text, delta=True)
            deltas = deltas or bool(condition.deltas)
            texts.append(condition.text.decode())
            reasons.append(None)
        except InvalidRequest as error:
            texts.append(None)
            reasons.append(str(error))
    for row in np.flatnonzero((codes >= 0) & (kinds == at.SUBSCRIBE)).tolist():
        reason = reasons[codes[row]]
        if reason is not None:
            rejected.setdefault(row, reason)
            kinds[row] = at.VOID
        elif texts[codes[row]]:
            flags[row] |= at.R_COND
    array = pa.array([*texts, None], pa.large_string())
    return array.take(pa.array(codes % (len(texts) + 1))), deltas
