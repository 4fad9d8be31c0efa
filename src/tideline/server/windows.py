"""The routes of stream windows: each decodes its body, calls one method, answers.

    GET        windows                  those that the token may use
    GET, PUT, DELETE   window           what it is; make one; drop it
    POST       window/append            rows, or an Arrow stream
    POST       window/get, get_many, range, find
    POST       window/moment, part  a range in parts of one moment

Scopes are those of collections: `read` to ask and watch, `write` to append, `admin` to make and
drop. Rows of a window belong to nobody: a token of a user, or with rows, may use none.

What WebSockets are told at each slide is in window_watch.py.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from tideline.errors import Closed, InvalidRequest, NotFound
from tideline.model import Appended, WindowStats
from tideline.near import did_you_mean
from tideline.server.collection_shapes import Where, described
from tideline.server.collection_verbs import FormatQuery
from tideline.server.incoming import DECODED, read_stream
from tideline.server.ops import ANY, ARROW, Call, Op, Reply
from tideline.server.refusals import Refused
from tideline.server.shapes import encode
from tideline.server.tables import answer, stream_of
from tideline.stream import StreamWindow

__all__ = ["OPS", "window_of"]

_SPAN = Annotated[Any, described("Seconds.", type=["number", "null"], exclusiveMinimum=0)]
_KEY = Annotated[
    Any,
    described(
        "The fields rows are found by; or each with its range, its type, or null.",
        anyOf=[
            {"type": ["string", "null"]},
            {"type": "array", "items": {"type": "string"}},
            {"type": "object", "additionalProperties": {"type": ["string", "array", "null"]}},
        ],
    ),
]
_VALUES = Annotated[
    Any,
    described(
        "What else a row has, with its types: numbers, point, text.", type=["object", "null"],
        additionalProperties={"type": "string"},
    ),
]  # fmt: skip
_INDEXES = Annotated[
    Any,
    described(
        "The kind of index on each value that is a point or a text.", type=["object", "null"],
        additionalProperties={"type": ["string", "object"]},
    ),
]  # fmt: skip
_TEXT = Annotated[Any, described("A name.", type=["string", "null"])]
_FLAG = Annotated[Any, described("Whether.", type=["boolean", "null"])]
_AHEAD = Annotated[
    Any, described("Seconds, or never: no limit.",
                   anyOf=[{"type": ["number", "null"], "minimum": 0}, {"const": "never"}])
]  # fmt: skip
_MAP = Annotated[
    Any,
    described(
        "What is made of the rows: mean(vel), or several.",
        anyOf=[
            {"type": ["string", "null"]},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
        ],
    ),
]
_KEYS = Annotated[Any, described("A prefix of the key, or [low, high].")]
_ONE = Annotated[Any, described("A whole key.")]
_LAST = Annotated[Any, described("The last so many seconds.", type=["number", "null"])]


class WindowIn(msgspec.Struct, forbid_unknown_fields=True):
    """A stream window to make, or what it must be. A new one needs `span_s` and `key`."""

    span_s: _SPAN = None
    slide_s: _SPAN = None
    key: _KEY = None
    values: _VALUES = None
    keep: _TEXT = None
    time: _TEXT = None
    durable: _FLAG = None
    max_ahead_s: _AHEAD = None
    indexes: _INDEXES = None


class WindowOut(msgspec.Struct):
    """A stream window: what it is and holds."""

    name: str
    settings: dict[str, Any]
    stats: WindowStats


class AppendIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Rows; `once` is a writer and the number of its batch, which makes a retry safe."""

    rows: list[Any]
    once: tuple[str, Annotated[int, msgspec.Meta(ge=0, lt=1 << 43)]] | None = None


class AppendedOut(msgspec.Struct):
    """What became of rows; `rejected` has the reason by row."""

    stored: int
    late: int
    rejected: dict[str, str]
    repeated: bool


class AppendQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Of an Arrow stream."""

    once: Annotated[str, msgspec.Meta(description="writer:number, which makes a retry safe.")] | (
        None
    ) = None


class GetIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A whole key."""

    key: _ONE
    last_s: _LAST = None


class GetManyIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Whole keys."""

    keys: list[Any]
    last_s: _LAST = None


class RangeIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which rows, and what is made of them; without `map` the rows."""

    keys: _KEYS = None
    map: _MAP = None
    last_s: _LAST = None
    closed: Annotated[Any, described("Without the open sub-window.", type="boolean")] = False


class FindIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A condition, and what is made of the rows that meet it; without `map` the rows."""

    where: Where = None
    keys: _KEYS = None
    newest: Annotated[Any, described("Only the newest row of each key counts.", type="boolean")] = (
        False
    )
    limit: Annotated[Any, described("How many.", type=["integer", "null"], minimum=1)] = None
    map: _MAP = None
    last_s: _LAST = None
    closed: Annotated[Any, described("Without the open sub-window.", type="boolean")] = False


class MomentIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which rows, and into how many parts they are cut; 0: as many as they need."""

    keys: _KEYS = None
    last_s: _LAST = None
    closed: Annotated[Any, described("Without the open sub-window.", type="boolean")] = False
    parts: Annotated[Any, described("How many.", type="integer", minimum=0)] = 0


class MomentOut(msgspec.Struct):
    """A moment, and the keys between its parts."""

    moment: str
    cuts: list[list[Any]]


class PartIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Of the rows of a moment those with keys in [low, high)."""

    moment: str
    keys: _KEYS = None
    low: Annotated[Any, described("The first key; null: no limit.")] = None
    high: Annotated[Any, described("The key that ends the part; null: no limit.")] = None
    last_s: _LAST = None
    closed: Annotated[Any, described("Without the open sub-window.", type="boolean")] = False


class GotOut(msgspec.Struct):
    """The newest row of a key, or all; null when there is none."""

    result: Any


def window_of(hub: Any, caller: Any, name: str) -> StreamWindow:
    """A window that is there, for a caller who may use all of it."""
    caller.need_whole(name)
    found: StreamWindow | None = hub.db._windows.get(name)
    if found is None:
        seen = [each for each in hub.db._windows if caller.may(ANY, each)]
        raise hub.absent(NotFound(f"no such window{did_you_mean(name, seen)}", name=name))
    return found


def _window(call: Call) -> StreamWindow:
    return window_of(call.hub, call.caller, call.names["window"])


def _facts(found: StreamWindow) -> WindowOut:
    return WindowOut(found.name, found.settings, found.stats())


async def list_windows(call: Call) -> list[WindowOut]:
    found = []
    for name, each in sorted(call.hub.db._windows.items()):
        with contextlib.suppress(Refused):
            if call.caller.may(ANY, name):
                call.caller.need_whole(name)
                found.append(each)

    def run() -> list[WindowOut]:
        told = []
        for each in found:
            with contextlib.suppress(Closed):  # dropped meanwhile
                told.append(_facts(each))
        return told

    return await call.hub.in_thread(run)


async def get_window(call: Call) -> WindowOut:
    return await call.hub.in_thread(_facts, _window(call))


async def put_window(call: Call) -> Reply:
    call.caller.need_whole(call.names["window"])
    db, name = call.hub.db, call.names["window"]
    given = {field: value for field, value in msgspec.to_builtins(call.body).items()
             if value is not None}  # fmt: skip
    if given.get("max_ahead_s") == "never":
        given["max_ahead_s"] = float("inf")

    def make() -> Reply:
        new = name not in db.windows()
        return Reply(_facts(db.window(name, **given)), status=201 if new else 200)

    return await call.hub.in_thread(make)


async def drop_window(call: Call) -> dict[str, str]:
    _window(call)
    await call.hub.in_thread(call.hub.db.drop_window, call.names["window"])
    return {"dropped": call.names["window"]}


async def append_rows(call: Call) -> Reply:
    to, body = _window(call), call.body
    if isinstance(body, bytes):
        most_bytes = DECODED * call.hub.settings.batch_bytes
        rows: Any = await call.hub.in_thread(partial(read_stream, points=True), body, most_bytes)
        once, count = _once(call.query.once), rows.num_rows
    else:
        rows, once, count = body.rows, body.once, len(body.rows)
    call.hub.limits.spend(call.caller, count / 100)

    def run() -> Reply:
        return _answer(call, _appended(to.append(rows, once=once)))

    return await call.hub.in_thread(run)


def _once(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    writer, _, number = text.rpartition(":")
    if not writer or not number.isdecimal():
        raise InvalidRequest("once must be writer:number", once=text)
    return writer, int(number)


def _appended(done: Appended) -> AppendedOut:
    rows, reasons = done.rejected["row"].to_pylist(), done.rejected["reason"].to_pylist()
    rejected = {str(row): why for row, why in zip(rows, reasons, strict=True)}
    return AppendedOut(done.stored, done.late, rejected, done.repeated)


async def get_row(call: Call) -> Reply:
    to, body = _window(call), call.body

    def run() -> Reply:
        return _answer(call, {"result": to.get(body.key, last_s=body.last_s)})

    return await call.hub.in_thread(run)


async def get_rows(call: Call) -> Any:
    to, body = _window(call), call.body
    call.hub.limits.spend(call.caller, len(body.keys) / 100)

    def run() -> Any:
        return _table(call, to.get_many(body.keys, last_s=body.last_s))

    return await call.hub.in_thread(run)


async def range_rows(call: Call) -> Any:
    to, body = _window(call), call.body

    def run() -> Any:
        found = to.range(body.keys, map=body.map, last_s=body.last_s, closed=body.closed)
        return _table(call, found) if body.map is None else _answer(call, {"result": found})

    return await call.hub.in_thread(run)


async def hold_moment(call: Call) -> MomentOut:
    to, body = _window(call), call.body

    def run() -> MomentOut:
        return MomentOut(
            *to.moment(body.keys, last_s=body.last_s, closed=body.closed, parts=body.parts)
        )

    return await call.hub.in_thread(run)


async def read_part(call: Call) -> Any:
    to, body = _window(call), call.body

    def run() -> Any:
        found = to.part(
            body.moment, body.keys, low=body.low, high=body.high, last_s=body.last_s,
            closed=body.closed,
        )  # fmt: skip
        return _table(call, found)

    return await call.hub.in_thread(run)


async def find_rows(call: Call) -> Any:
    to, body = _window(call), call.body

    def run() -> Any:
        found = to.find(
            body.where, keys=body.keys, newest=body.newest, limit=body.limit, map=body.map,
            last_s=body.last_s, closed=body.closed,
        )  # fmt: skip
        return _table(call, found) if body.map is None else _answer(call, {"result": found})

    return await call.hub.in_thread(run)


def _table(call: Call, table: pa.Table) -> Any:
    accepts = (call.header("accept") or "").partition(";")[0].strip().lower()
    if call.query.format == "arrow" or accepts == ARROW:
        return answer(stream_of(table), {})
    return _answer(call, {"result": table.to_pylist()})


def _answer(call: Call, document: Any) -> Reply:
    data = encode(document)
    most = call.hub.settings.batch_bytes
    if len(data) > most:
        raise Refused(413, "TooLarge", f"the answer is over {most} bytes: ask for less at a time")
    return Reply(data=data + b"\n")


_W = "/v1/windows/{window}"

OPS = [
    Op("GET", "/v1/windows", "The stream windows the token has a scope for.", list_windows,
       scope=ANY, gives=list[WindowOut]),
    Op("GET", _W, "What a window is and holds.", get_window, scope=ANY, gives=WindowOut),
    Op("PUT", _W, "Make a window, or check that it is as given.", put_window, scope="admin",
       takes=(WindowIn,), gives=WindowOut, statuses=(200, 201), refuses=(409,)),
    Op("DELETE", _W, "Drop a window with everything in it.", drop_window, scope="admin",
       gives=dict[str, str]),
    Op("POST", f"{_W}/append", "Store rows; a table of Arrow, too.", append_rows, scope="write",
       query=AppendQuery, takes=(AppendIn, ARROW), gives=AppendedOut, large=True),
    Op("POST", f"{_W}/get", "The newest row of a key, or all of them.", get_row, scope="read",
       takes=(GetIn,), gives=GotOut),
    Op("POST", f"{_W}/get_many", "The newest row of each key.", get_rows, scope="read",
       query=FormatQuery, takes=(GetManyIn,), gives=(GotOut, ARROW), large=True),
    Op("POST", f"{_W}/range", "Rows by key, or what is made of them.", range_rows, scope="read",
       query=FormatQuery, takes=(RangeIn,), gives=(GotOut, ARROW)),
    Op("POST", f"{_W}/find", "Rows that meet a condition, or what is made of them.", find_rows,
       scope="read", query=FormatQuery, takes=(FindIn,), gives=(GotOut, ARROW)),
    Op("POST", f"{_W}/moment", "Hold what there is now, to read it in parts.", hold_moment,
       scope="read", takes=(MomentIn,), gives=MomentOut),
    Op("POST", f"{_W}/part", "Rows of a moment.", read_part, scope="read", query=FormatQuery,
       takes=(PartIn,), gives=(GotOut, ARROW), refuses=(409,)),
]  # fmt: skip
