"""The routes whose bodies are Arrow IPC streams: apply, scan, journal.

    apply    in: a stream of operations
             out: two streams, one after the other: the answers, then the rejected rows;
             `Tideline-Repeated: true` when a writer's batch had landed before
    scan     out: one stream
    journal  out: one stream; `Tideline-Position` is where to go on from

Streams that come in are not trusted: incoming.py reads them. What goes out to a token of one user
holds nothing of anybody else, in its rows or beside them.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tideline.errors import InvalidRequest
from tideline.server.channels import place_of, where_of
from tideline.server.incoming import DECODED, read_stream
from tideline.server.ops import ARROW, Call, Op, Reply
from tideline.server.refusals import Refused
from tideline.server.shapes import Time, parse_time

__all__ = ["OPS", "answer", "check_operations", "read_operations", "stream_of"]

_PIECE = 1 << 20


class ApplyQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How to apply."""

    once: Annotated[str, msgspec.Meta(description="writer:number, which makes a retry safe.")] | (
        None
    ) = None


class LandedQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which batch of which writer."""

    once: Annotated[str, msgspec.Meta(description="writer:number")]


class LandedOut(msgspec.Struct):
    """How many rows of a batch have landed; null when it is done with."""

    rows: int | None


class ScanQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What to scan."""

    kind: str
    place: str | None = None
    since: Time | None = None
    until: Time | None = None
    where: str | None = None


class TimesQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many parts; 0: by how much there is."""

    parts: Annotated[int, msgspec.Meta(ge=0, le=10_000)]


class JournalQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What to read of the journal."""

    kind: str
    after: str | None = None
    upto: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000


def stream_of(*tables: pa.Table) -> pa.Buffer:
    """Tables as Arrow streams, one after the other."""
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    return sink.getvalue()


class _Pieces:
    """A large answer, sent as the socket takes it."""

    def __init__(self, data: pa.Buffer, headers: dict[str, str]) -> None:
        self._data = data
        self._headers = headers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [
            (b"content-type", ARROW.encode()),
            (b"content-length", b"%d" % self._data.size),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-store"),
            *((name.lower().encode(), text.encode()) for name, text in self._headers.items()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        view = memoryview(self._data)
        for first in range(0, len(view), _PIECE):
            body = bytes(view[first : first + _PIECE])
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def answer(data: pa.Buffer, headers: dict[str, str]) -> Any:
    """Arrow streams as an answer."""
    if data.size <= _PIECE:
        return Reply(data=data.to_pybytes(), media=ARROW, headers=headers)
    return _Pieces(data, headers)


def _own(table: pa.Table, user: str | None) -> pa.Table:
    """The rows of one user (None: all), with dictionaries of what is in them and no more."""
    if user is None or "user" not in table.column_names:
        return table
    table = table.filter(pc.equal(table["user"].cast(pa.string()), user))
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            texts = table.column(number).cast(field.type.value_type)
            coded = texts.combine_chunks().dictionary_encode().cast(field.type)
            table = table.set_column(number, field, coded)
    return table


async def read_operations(call: Call) -> pa.Table:
    """The operations in the body of a request, counted and allowed."""
    most_bytes = DECODED * call.hub.settings.batch_bytes
    table = await call.hub.in_thread(read_stream, call.body, most_bytes)
    call.hub.limits.spend(call.caller, table.num_rows / 100)
    check_operations(call, table)
    return table


async def apply(call: Call) -> Any:
    once = _once(call.query.once)
    channel, user = call.channel, call.caller.user
    table = await read_operations(call)
    counted = call.hub.counted(channel)

    def run() -> tuple[pa.Buffer, bool]:
        applied = counted.apply(table, once=once)
        return stream_of(_own(applied.answers, user), applied.rejected), applied.repeated

    data, repeated = await call.hub.long(call.caller, channel, run)
    return answer(data, {"Tideline-Repeated": "true"} if repeated else {})


def check_operations(call: Call, table: pa.Table) -> None:
    """Subscriptions in a table belong to any user: that needs a token that may act for any."""
    caller, name = call.caller, call.names["channel"]
    if caller.token is None or "op" not in table.column_names:
        return
    try:
        kinds = set(pc.unique(table["op"].cast(pa.string())).to_pylist())
    except pa.ArrowException:
        return  # no texts: `Channel.apply` says so
    for column, name in zip(table.columns, table.column_names, strict=True):
        if name == "replace" and pa.types.is_boolean(column.type):
            caller.need_all_events(bool(pc.any(column).as_py()))
    caller.need_all_events("retract" in kinds)
    if kinds & {"subscribe", "cancel"}:
        caller.need("subscribe", name)
        if caller.user is not None:
            raise Refused(
                403, "Forbidden", "a token of one user can only publish with apply: subscribe and"
                " cancel one by one",
            )  # fmt: skip


def _once(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    writer, colon, number = text.rpartition(":")
    if not colon or not (number.isascii() and number.isdigit()):
        raise InvalidRequest("once must be writer:number", once=text)
    return writer, int(number)


async def landed(call: Call) -> LandedOut:
    once = _once(call.query.once)
    assert once is not None
    return LandedOut(await call.hub.write(call.caller, call.channel, call.channel.landed, *once))


async def scan(call: Call) -> Any:
    query, channel, user = call.query, call.channel, call.caller.user

    def run() -> pa.Buffer:
        table = channel.scan(
            query.kind, place=None if query.place is None else place_of(query.place, channel.space),
            since=parse_time(query.since, "since"), until=parse_time(query.until, "until"),
            where=where_of(query.where),
        )  # fmt: skip
        return stream_of(_own(table, user))

    return answer(await call.hub.long(call.caller, channel, run), {})


async def journal(call: Call) -> Any:
    query, channel, user = call.query, call.channel, call.caller.user

    def run() -> tuple[pa.Buffer, str]:
        table, position = channel.journal(
            query.kind, after=query.after, upto=query.upto, limit=query.limit
        )
        return stream_of(_own(table, user)), position

    data, position = await call.hub.in_thread(run)
    return answer(data, {"Tideline-Position": position})


async def times(call: Call) -> list[str]:
    found = await call.hub.long(
        call.caller, call.channel, call.channel.times_between, call.query.parts
    )
    return [time.isoformat() for time in found]


_C = "/v1/channels/{channel}"

OPS = [
    Op("POST", f"{_C}/apply", "Run a table of operations in order.", apply, scope="publish",
       query=ApplyQuery, takes=ARROW, gives=ARROW, large=True),
    Op("GET", f"{_C}/landed", "How much of a writer's batch has landed.", landed, scope="publish",
       query=LandedQuery, gives=LandedOut),
    Op("GET", f"{_C}/scan", "Everything of one kind, as a table.", scan, scope="read",
       query=ScanQuery, gives=ARROW),
    Op("GET", f"{_C}/times", "Times that cut the events into parts.", times, scope="read",
       query=TimesQuery, gives=list[str]),
    Op("GET", f"{_C}/journal", "What was written after a position, as a table.", journal,
       scope="read", query=JournalQuery, gives=ARROW),
]  # fmt: skip
