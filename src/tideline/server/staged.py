"""Rows of many programs, put aside on the server and then applied as one: for Spark's tasks.

    POST   staged          rows of one task -> a token        DELETE staged?job=   what it staged
    POST   staged/check    what is wrong with them            GET    staged/{token}
    POST   staged/commit   all of them, in order of time, once -> what became of them

Rows lie in the database folder, in a folder of the caller's and the channel's own, so nobody else's
token leads to them; they are nothing until they are committed, and gone when the server ends.
channel/spool.py and channel/landing.py do the work, in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa

from tideline.channel.landing import Landed, Landing
from tideline.channel.spool import Spool
from tideline.errors import Closed, InvalidRequest
from tideline.server.ops import ARROW, Call, Op
from tideline.server.refusals import Refused
from tideline.server.tables import answer, read_operations, stream_of

__all__ = ["OPS", "forget_staged", "go_on", "handlers", "put_aside", "spool_of"]

Handler = Callable[[Call], Awaitable[Any]]
Order = Literal["time", "arrival"]
Job = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,100}$")]


class StageQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Whose rows these are, and whether they are ordered by time."""

    job: Job
    order: Order = "time"


class DiscardQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Whose rows to remove; `over`: also those that come later."""

    job: Job
    over: bool = False


class CheckIn(msgspec.Struct, forbid_unknown_fields=True):
    """Rows to check; `keep` is the job that the bad ones are staged for."""

    tokens: list[str]
    keep: Job | None = None


class CommitIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Rows to apply; `once` is a writer and the number of its batch."""

    tokens: list[str]
    once: tuple[str, Annotated[int, msgspec.Meta(ge=0, lt=1 << 43)]] | None = None
    order: Order = "time"
    keep: Job | None = None


def _root(hub: Any) -> Path:
    return Path(hub.db.path) / "staged"


def forget_staged(hub: Any) -> None:
    """Remove everything, at the start and at the end of a server."""
    shutil.rmtree(_root(hub), ignore_errors=True)


def _spool(call: Call) -> Spool:
    """The caller's own, for this channel."""
    return spool_of(call, call.channel.identity)


def spool_of(call: Call, identity: str) -> Spool:
    """The caller's own, for a channel or a collection."""
    whose = f"{call.caller.key}\0{identity}"
    folder = _root(call.hub) / hashlib.sha256(whose.encode()).hexdigest()[:32]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Spool(folder)


def _landing(call: Call) -> Landing:
    if call.channel.layout == "poll":
        raise InvalidRequest("layout 'poll' takes no staged rows", channel=call.channel.name)
    return Landing(call.hub.counted(call.channel), _spool(call), partial(go_on, call))


async def stage(call: Call) -> dict[str, str]:
    table = await read_operations(call)
    if "at" not in table.column_names or not pa.types.is_timestamp(table["at"].type):
        raise InvalidRequest("rows are staged with their time: the column at must be timestamps")
    spool, order = _spool(call), call.query.order
    return {"token": await call.hub.in_thread(put_aside, call, spool, table, order)}


def put_aside(call: Call, spool: Spool, table: pa.Table, order: str) -> str:
    """Stage the rows of a request; their token."""
    # Written out: what is staged takes as much again when it is applied, and no more.
    plain = _without_dictionaries(table)
    used = sum(_size(path) for path in _root(call.hub).glob("*/*"))
    if used + plain.nbytes > call.hub.settings.staged_bytes:
        raise Refused(429, "TooMany", "too many rows are staged: commit or discard some")
    try:
        return spool.stage(call.query.job, plain.to_batches(), order)
    except pa.ArrowException as error:  # columns that have no order
        raise InvalidRequest(f"rows cannot be put in order: {error}") from None


def _without_dictionaries(table: pa.Table) -> pa.Table:
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(number).cast(field.type.value_type)
            table = table.set_column(number, field.name, column)
    return table


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):  # removed meanwhile
        return path.stat().st_size
    return 0


async def _spend_rows(call: Call) -> None:
    """Count staged rows that are gone through again: each time costs what applying them does."""
    runs = await call.hub.in_thread(_spool(call).runs, call.body.tokens)
    call.hub.limits.spend(call.caller, sum(run.num_rows for run in runs) / 100)


async def check_staged(call: Call) -> Landed:
    body, landing = call.body, _landing(call)
    await _spend_rows(call)
    return await call.hub.in_thread(landing.check, body.tokens, body.keep)


async def commit_staged(call: Call) -> Landed:
    body, landing = call.body, _landing(call)
    await _spend_rows(call)

    def run() -> Landed:
        return landing.commit(body.tokens, once=body.once, order=body.order, keep=body.keep)

    return await call.hub.long(call.caller, call.channel, run)


def go_on(call: Call) -> None:
    """Raises when what goes over staged rows should end."""
    if call.hub.stopping:
        raise Closed("the server is stopping")


def handlers(
    what: str, spool: Callable[[Call], Spool], landing: Callable[[Call], Any]
) -> tuple[Handler, Handler, Handler, Handler]:
    """What checks, commits, fetches and discards rows that were put aside."""

    async def check(call: Call) -> Landed:
        found: Landing = landing(call)
        return await call.hub.in_thread(found.check, call.body.tokens, call.body.keep)

    async def commit(call: Call) -> Landed:
        body, run = call.body, partial(landing(call).commit, call.body.tokens)
        return await call.hub.in_thread(partial(run, once=body.once, keep=body.keep))

    async def fetch(call: Call) -> Any:
        def run() -> pa.Buffer:
            return stream_of(pa.Table.from_batches(spool(call).runs([call.names["token"]])))

        try:
            return answer(await call.hub.in_thread(run), {})
        except pa.ArrowInvalid:
            raise InvalidRequest("nothing is staged under this token") from None

    async def discard(call: Call) -> dict[str, str]:
        await call.hub.in_thread(spool(call).discard, call.query.job, call.query.over)
        return {"discarded": call.query.job}

    for each in (check, commit, fetch, discard):
        each.__name__ = f"{each.__name__}_{what}"  # of the operation in OpenAPI
    return check, commit, fetch, discard


*_, fetch_staged, discard_staged = handlers("staged", _spool, _landing)

_C = "/v1/channels/{channel}/staged"

OPS = [
    Op("POST", _C, "Put rows aside for a later commit.", stage, scope="publish", query=StageQuery,
       takes=ARROW, gives=dict[str, str], large=True),
    Op("DELETE", _C, "Remove what a job put aside.", discard_staged, scope="publish",
       query=DiscardQuery, gives=dict[str, str]),
    Op("POST", f"{_C}/check", "What is wrong with rows that were put aside.", check_staged,
       scope="publish", takes=(CheckIn,), gives=Landed),
    Op("POST", f"{_C}/commit", "Apply rows that were put aside as one sequence.", commit_staged,
       scope="publish", takes=(CommitIn,), gives=Landed),
    Op("GET", f"{_C}/{{token}}", "Rows that were put aside.", fetch_staged, scope="publish",
       gives=ARROW),
]  # fmt: skip
