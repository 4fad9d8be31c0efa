"""The client: a database on a server, with the names of the one in this process.

    connect() -> Remote -> channel() -> RemoteChannel -> subscribe() -> RemoteSubscription

    remote.py        what `Database` is for a folder
    channel.py       the verbs of a channel;  collection.py  those of a collection
    subscription.py  a handle: past, take, iteration;  changes.py  what is written
    live.py          the WebSocket of all subscriptions; reconnects, resumes (feeds.py, resting.py)
    http.py          requests, retries;  wire.py JSON;  tables.py, batches.py Arrow
    connection.py    one request on a kept connection, a pool of those;  websocket.py
    answers.py, frames.py, receiving.py, arriving.py    what the bytes mean, without sockets
    blocking.py      verbs are coroutines: here they run to their end, in aclient/ they wait

Imports point down that list. Nothing here loads the compiled kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tideline.clock import Seconds
from tideline.errors import Unavailable

if TYPE_CHECKING:
    from tideline.client.remote import Remote

__all__ = ["connect"]


def connect(
    url: str | Sequence[str],
    *,
    token: str | None = None,
    timeout_s: Seconds = 30.0,
    ca: str | None = None,
) -> Remote:  # fmt: skip
    """A server of `tideline serve`, used like the database that `open` gives.

    `url`: its address. For a cluster the addresses of its nodes, as a list or with commas between:
    the client finds the one that leads, and goes on with another when that one fails.
    `timeout_s`: how long a call waits for an answer, new connections included. `ca`: a file
    with the certificates to trust, for a server with one of its own. The server is asked once:
    `Unavailable` when nobody answers there, `Unauthorized` when it does not take the token. When
    there were too many calls a second, this one and every later call waits as the server asks.

    >>> import tideline
    >>> from tideline.server import running
    >>> with tideline.open(":memory:") as db, running(db) as url, connect(url) as remote:
    ...     roads = remote.channel("roads")
    ...     sub = roads.subscribe("I-87", user="ann", until_s=60)
    ...     told = roads.publish("I-87", {"kind": "accident"}, ttl_s=600)
    ...     [s.user for s in told.subscriptions], [event.body for event in sub.take()]
    (['ann'], [{'kind': 'accident'}])
    """
    try:
        from tideline.client.remote import Remote
    except ModuleNotFoundError as error:
        raise Unavailable(
            "the client needs more packages: pip install 'tideline[client]'", missing=error.name
        ) from None
    remote = Remote(url, token, timeout_s, ca)
    try:
        remote._http.check()
    except BaseException:
        remote.close()
        raise
    return remote
