"""A `Client` on a server: what Spark's readers and writers do, over HTTP.

    describe, scan, journal    one request each
    stage                      rows go to the server in pieces; a token names all of them
    check, commit              the server does it, beside its store: server/staged.py

So tasks on any machine stage in parallel, and one request of the driver makes their rows one
sequence, at most once with `once`. A server that was started again in between has nothing staged:
that is `Unavailable`, and Spark runs the batch again.

Needs the extra `client`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tideline.channel.landed import Landed, Once
from tideline.channel.spool import SLICE
from tideline.errors import Conflict, InvalidRequest, NotFound, Unavailable
from tideline.spark.client import Arriving, Client, Facts

if TYPE_CHECKING:
    from tideline.client.channel import RemoteChannel
    from tideline.client.remote import Remote

__all__ = ["HttpClient"]

_PIECE_BYTES = 16 << 20  # of a request that stages rows
_LAND_S = 1800.0  # a batch of any size is one request


class HttpClient(Client):
    """A store behind a server; rows are staged for one channel, collection or
    stream window. For one thread."""

    def __init__(
        self, url: str, token: str | None = None, channel: str = "", what: str = "channel"
    ) -> None:
        self._staged, self._what = channel, what
        self._remote = self._store = _remote(url, token, 60.0)
        self._patient = _remote(url, token, _LAND_S)
        self._channels: dict[str, RemoteChannel] = {}

    # ---- reading ------------------------------------------------------------------------

    def describe(self, channel: str) -> Facts:
        # Asked every time: a channel may have been dropped and made again.
        self._channels.pop(channel, None)
        return super().describe(channel)

    def collection(
        self, name: str, key: str | None = None, indexes: dict[str, str] | None = None
    ) -> dict[str, Any]:
        http, path = self._remote._http, ("v1", "collections", name)
        if key is not None:
            with contextlib.suppress(NotFound):  # whoever may not make one may use it
                found: dict[str, Any] = http.json("GET", *path)
                if found["key"] != key:
                    raise Conflict("the collection has another key", stored=found["key"], given=key)
                return found
            return dict(http.json("PUT", *path, body={"key": key, "indexes": indexes}))
        return dict(http.json("GET", *path))

    def documents(
        self, name: str, *, where: str | None = None, low: str | None = None,
        high: str | None = None, limit: str | None = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        query = {"where": where, "low": low, "high": high, "limit": limit}
        return self._batches("collections", name, "documents", query=query)

    def cuts(self, name: str, parts: int) -> list[str]:
        path = ("v1", "collections", name, "cuts")
        return list(self._remote._http.json("GET", *path, query={"parts": parts}))

    def changes(
        self, name: str, after: int, upto: int, before: bool = False
    ) -> Iterator[pa.RecordBatch]:
        query = {"after": after, "upto": upto, "before": "true" if before else "false"}
        return self._batches("collections", name, "changes", query=query)

    def window(self, name: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        http, path = self._remote._http, ("v1", "windows", name)
        if settings is not None:
            with contextlib.suppress(NotFound):  # whoever may not make one may use it
                found: dict[str, Any] = http.json("GET", *path)["settings"]
                check_same(name, found, settings)
                return found
            return dict(http.json("PUT", *path, body=settings)["settings"])
        return dict(http.json("GET", *path)["settings"])

    def panes(
        self, name: str, keys: Any = None, last_s: float | None = None, closed: bool = False
    ) -> Iterator[pa.RecordBatch]:
        body = {"keys": keys, "last_s": last_s, "closed": closed}
        yield from self._rows_of(name, "range", body)

    def moment(
        self, name: str, keys: Any = None, last_s: float | None = None, closed: bool = False,
        parts: int = 0,
    ) -> tuple[str, list[list[Any]]]:  # fmt: skip
        body = {"keys": keys, "last_s": last_s, "closed": closed, "parts": parts}
        found = self._remote._http.json("POST", "v1", "windows", name, "moment", body=body)
        return found["moment"], found["cuts"]

    def part(
        self, name: str, moment: str, low: Any, high: Any, keys: Any = None,
        last_s: float | None = None, closed: bool = False,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        body = {"moment": moment, "low": low, "high": high, "keys": keys, "last_s": last_s,
                "closed": closed}  # fmt: skip
        yield from self._rows_of(name, "part", body)

    def _rows_of(self, name: str, verb: str, body: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        from tideline.client.tables import read_table

        http, path = self._patient._http, ("v1", "windows", name, verb)
        data = http.request("POST", *path, query={"format": "arrow"}, body=body, again=True)
        yield from read_table(data).to_batches(max_chunksize=SLICE)

    # ---- writing ------------------------------------------------------------------------

    def stage(self, job: str, batches: Iterable[pa.RecordBatch], order: str = "time") -> str:
        query = {"job": job} if self._what == "collection" else {"job": job, "order": order}
        tokens = [
            self._call("POST", query=query, arrow=piece)["token"] for piece in _pieces(batches)
        ]
        return ",".join(tokens)

    def check(
        self, channel: str, tokens: Sequence[str], *, keep: str | None = None,
        arriving: Arriving = None,
    ) -> Landed:  # fmt: skip
        body = {"tokens": _each(tokens), "keep": keep, **self._told(arriving)}
        return Landed(**self._call("POST", "check", channel=channel, body=body))

    def commit(
        self, channel: str, tokens: Sequence[str], *, once: Once | None = None,
        order: str = "time", keep: str | None = None, arriving: Arriving = None,
    ) -> Landed:  # fmt: skip
        body = {"tokens": _each(tokens), "once": once, "keep": keep}
        body |= {"order": order} if arriving is None else self._told(arriving)
        again = once is not None
        return Landed(**self._call("POST", "commit", channel=channel, body=body, again=again))

    def loading(self, name: str, documents: bool) -> tuple[dict[str, Any], str]:
        raise InvalidRequest(
            "a server takes rows, never files: a bulk load needs the folder of the store, opened "
            "and shared on a machine of the tasks. Write with the sink instead", name=name,
        )  # fmt: skip

    def fetch(self, token: str) -> Iterator[pa.RecordBatch]:
        return self._batches(*self._base(self._staged), token)

    def discard(self, job: str, over: bool = False) -> None:
        self._call("DELETE", query={"job": job, "over": "true" if over else None})

    def close(self) -> None:
        self._remote.close()
        self._patient.close()

    # ---- inside -------------------------------------------------------------------------

    def _call(self, method: str, *path: str, channel: str = "", **options: Any) -> dict[str, Any]:
        asked = self._patient if path else self._remote
        base = self._base(channel or self._staged)
        found = asked._http.json(method, "v1", *base, *path, **options)
        assert isinstance(found, dict)
        return found

    def _told(self, arriving: Arriving) -> dict[str, str | None]:
        """What a request says about rows: those for a window are what they are."""
        return {} if arriving is None or self._what == "window" else arriving

    def _base(self, name: str) -> tuple[str, str, str]:
        return f"{self._what}s", name, "staged"

    def _batches(self, *path: str, **options: Any) -> Iterator[pa.RecordBatch]:
        from tideline.client.tables import read_table

        data = self._patient._http.request("GET", "v1", *path, **options)
        yield from read_table(data).to_batches()

    def _channel(self, name: str) -> RemoteChannel:
        found = self._channels.get(name)
        if found is None:
            from tideline.client.channel import Facts as Described
            from tideline.client.channel import RemoteChannel

            http = self._remote._http
            # Not `Remote.channel`, which would make one that is not there.
            facts = http.json("GET", "v1", "channels", name, type=Described)
            found = self._channels[name] = RemoteChannel(http, self._remote._live, facts)
        return found


def _remote(url: str, token: str | None, timeout_s: float) -> Remote:
    try:
        from tideline.client.remote import Remote
    except ModuleNotFoundError as error:
        raise Unavailable(
            "a server is reached with more packages: pip install 'tideline[client]'",
            missing=error.name,
        ) from None
    return Remote(url, token, timeout_s, None)


def check_same(name: str, found: dict[str, Any], settings: dict[str, Any]) -> None:
    """`Conflict` when a window that is there is another than these settings say."""
    from tideline.stream.settings import given, same

    same(name, given(name, [], found), settings)


def _each(tokens: Sequence[str]) -> list[str]:
    """The tokens of the pieces."""
    return [one for token in tokens for one in token.split(",") if one]


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Rows as Arrow streams that a server takes in one request."""
    from tideline.client.tables import table_bytes

    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        rows = max(1, batch.num_rows * _PIECE_BYTES // max(batch.nbytes, 1))
        for first in range(0, batch.num_rows, rows):
            part = batch.slice(first, rows)
            if held and size + part.nbytes > _PIECE_BYTES:
                yield table_bytes(pa.Table.from_batches(held))
                held, size = [], 0
            held.append(part)
            size += part.nbytes
    if held:
        yield table_bytes(pa.Table.from_batches(held))
