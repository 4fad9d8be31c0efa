"""Rows that Spark's tasks put aside for a stream window, and then append as one batch.

    POST   staged          rows of one task -> a token        DELETE staged?job=   what it staged
    POST   staged/check    what is wrong with them            GET    staged/{token}
    POST   staged/commit   all of them, by time, once -> what became of them

As for channels (staged.py); stream/landing.py says what rows are.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from tideline.channel.landing import Landed, WindowLanding
from tideline.errors import InvalidRequest
from tideline.server import staged
from tideline.server.incoming import DECODED, read_stream
from tideline.server.ops import ARROW, Call, Op
from tideline.server.windows import window_of
from tideline.stream.landing import AT, Arriving

__all__ = ["OPS"]


class StageQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Whose rows these are; `order` is what the window needs: `time` where rows have one."""

    job: staged.Job
    order: staged.Order | None = None


class WindowCheckIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Rows to check; `keep` is the job that the bad ones are staged for."""

    tokens: list[str]
    keep: staged.Job | None = None


class WindowCommitIn(WindowCheckIn):
    """Rows to append; `once` is a writer and the number of its batch."""

    once: tuple[str, Annotated[int, msgspec.Meta(ge=0, lt=1 << 43)]] | None = None


def _window(call: Call) -> Any:
    return window_of(call.hub, call.caller, call.names["window"])


def _spool(call: Call) -> Any:
    return staged.spool_of(call, f"window {_window(call).name}")


def _landing(call: Call) -> WindowLanding:
    return WindowLanding(Arriving(_window(call)), _spool(call), partial(staged.go_on, call))


async def stage_rows(call: Call) -> dict[str, str]:
    order, spool = Arriving(_window(call)).order, _spool(call)
    most_bytes = DECODED * call.hub.settings.batch_bytes
    table = await call.hub.in_thread(partial(read_stream, points=True), call.body, most_bytes)
    if order == "time" and (
        AT not in table.column_names or not pa.types.is_timestamp(table[AT].type)
    ):
        raise InvalidRequest("rows are staged with their time: the column at must be timestamps")
    if call.query.order not in (None, order):
        raise InvalidRequest(f"rows of this window are staged by {order}", order=call.query.order)
    call.hub.limits.spend(call.caller, table.num_rows / 100)
    return {"token": await call.hub.in_thread(staged.put_aside, call, spool, table, order)}


check, commit, fetch, discard = staged.handlers("rows", _spool, _landing)

_S = "/v1/windows/{window}/staged"

OPS = [
    Op("POST", _S, "Put rows aside for a window.", stage_rows, scope="write", query=StageQuery,
       takes=ARROW, gives=dict[str, str], large=True),
    Op("DELETE", _S, "Remove what a job put aside for a window.", discard, scope="write",
       query=staged.DiscardQuery, gives=dict[str, str]),
    Op("POST", f"{_S}/check", "What is wrong with rows put aside for a window.", check,
       scope="write", takes=(WindowCheckIn,), gives=Landed),
    Op("POST", f"{_S}/commit", "Append rows put aside for a window.", commit, scope="write",
       takes=(WindowCommitIn,), gives=Landed),
    Op("GET", f"{_S}/{{token}}", "Rows put aside for a window.", fetch, scope="write",
       gives=ARROW),
]  # fmt: skip
