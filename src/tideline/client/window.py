"""A stream window on a server: the verbs of `StreamWindow`, one request each.

Each verb is written once, as a coroutine of `WindowVerbs`: `RemoteWindow` runs it blocking. Rows go
as JSON, tables and columns as an Arrow stream; rows come back as a table. Functions cannot be sent:
a `map` is text, or several. What only reads is asked again when the connection breaks; an append is
only with `once`.
"""

# Answers are decoded as the types that verbs name; mypy sees `Any`.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tideline.client.blocking import blocking
from tideline.client.http import Http, Requests
from tideline.client.panes import RemotePanes, plain_result
from tideline.client.tables import read_table, table_bytes
from tideline.clock import Seconds, span_s
from tideline.errors import InvalidRequest
from tideline.model import Appended, WindowStats
from tideline.where.plain import plain_json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RemoteWindow", "WindowFacts", "WindowVerbs", "asked_of", "check_no_function"]


class WindowFacts(msgspec.Struct):
    """A window, as the server describes it."""

    name: str
    settings: dict[str, Any]
    stats: WindowStats


class _Appended(msgspec.Struct):
    stored: int
    late: int
    rejected: dict[int, str]
    repeated: bool


class _Result(msgspec.Struct):
    result: Any


class _Moment(msgspec.Struct):
    moment: str
    cuts: list[list[Any]]


def asked_of(
    keys: Any, map: Any, last_s: Seconds | None, where: Any = None
) -> dict[str, Any]:  # fmt: skip
    """What `range`, `find` and `watch` ask, as JSON; what is wrong with it, the server says."""
    asked = {
        "keys": keys,
        "map": map,
        "last_s": None if last_s is None else span_s(last_s, "last_s"),
        "where": where,
    }
    return {name: _plain(value, name) for name, value in asked.items() if value is not None}


def check_no_function(map: Any, initial: Any, combine: Any) -> None:
    """Refuse what a server cannot run."""
    if callable(map):
        raise InvalidRequest("a function runs only in the process that has the window", map=map)
    if initial is not None or combine is not None:
        raise InvalidRequest("initial and combine are for functions", initial=initial)


def _plain(value: Any, name: str) -> Any:
    return msgspec.json.decode(plain_json(_listed(value), name))


def _listed(value: Any) -> Any:
    """Tuples as lists, and numpy's numbers as Python's."""
    if isinstance(value, (tuple, list)):
        return [_listed(each) for each in value]
    if getattr(value, "ndim", 0):
        return value.tolist()
    return value.item() if hasattr(value, "item") else value


class WindowVerbs:
    """What a stream window on a server can do."""

    def __init__(self, http: Requests, facts: WindowFacts) -> None:
        self.name = facts.name
        self.settings = facts.settings
        """The settings, as `Database.window` takes them."""
        self._http = http
        self._path = ("v1", "windows", self.name)

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's fields."""
        return tuple(self.settings["key"])

    @property
    def values(self) -> dict[str, str]:
        """The names and types of the values."""
        return dict(self.settings["values"])

    async def append(self, rows: Any, *, once: tuple[str, int] | None = None) -> Appended:
        """Store rows: an Arrow table or batch, columns, dicts, or one dict: `StreamWindow.append`.

        It goes as one request: what is too large for that is refused, send less at a time.
        """
        points = {name for name, kind in self.values.items() if kind == "point"}
        table = _table_of(rows, points)
        if table is not None:
            query = {"once": None if once is None else _once_text(once)}
            found = await self._ask("append", query=query, arrow=table_bytes(table),
                                    again=once is not None)  # fmt: skip
        else:
            given = [rows] if isinstance(rows, Mapping) else rows
            if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
                raise InvalidRequest("append takes a table, rows as dicts, or columns by name")
            text = plain_json({"rows": [_row(row) for row in given], "once": once}, "rows")
            found = await self._ask("append", body=msgspec.Raw(text), again=once is not None)
        done = msgspec.json.decode(found.data, type=_Appended)
        return Appended(done.stored, done.late, _rejected(done.rejected), done.repeated)

    async def get(self, key: Any, *, last_s: Seconds | None = None) -> Any:
        """The newest row of a key, or all of them: `StreamWindow.get`."""
        body = asked_of(None, None, last_s) | {"key": _plain(key, "key")}
        return (await self._json("get", body)).result

    async def get_many(self, keys: Any, *, last_s: Seconds | None = None) -> pa.Table:
        """The newest row of each key: `StreamWindow.get_many`."""
        if isinstance(keys, Mapping) or hasattr(keys, "column"):
            names = self.key
            there = list(keys) if isinstance(keys, Mapping) else keys.column_names
            if missing := [name for name in names if name not in there]:
                raise InvalidRequest("columns are missing", missing=missing, there=there)
            columns = [keys[name] if isinstance(keys, Mapping) else keys.column(name).to_pylist()
                       for name in names]  # fmt: skip
            if len({len(column) for column in columns}) != 1:
                lengths = {name: len(each) for name, each in zip(names, columns, strict=True)}
                raise InvalidRequest("columns must have one length", lengths=lengths)
            keys = list(zip(*columns, strict=True))
        if isinstance(keys, (str, bytes)) or not hasattr(keys, "__iter__"):
            raise InvalidRequest(
                "get_many takes keys as tuples, or columns by name", given=type(keys).__name__
            )
        body = asked_of(None, None, last_s) | {"keys": _plain(list(keys), "keys")}
        return read_table(await self._ask("get_many", query={"format": "arrow"}, body=body))

    async def range(
        self, keys: Any = None, *, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any:  # fmt: skip
        """Rows by key as a table, or what a mapper makes of them: `StreamWindow.range`."""
        check_no_function(map, initial, combine)
        body = asked_of(keys, map, last_s) | {"closed": closed}
        if map is None:
            return read_table(await self._ask("range", query={"format": "arrow"}, body=body))
        return plain_result(map, (await self._json("range", body)).result)

    async def find(
        self, where: Any = None, *, keys: Any = None, newest: bool = False,
        limit: int | None = None, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any:  # fmt: skip
        """Rows that meet a condition, or what a mapper makes of them: `StreamWindow.find`."""
        check_no_function(map, initial, combine)
        asked = {"newest": newest, "limit": limit, "closed": closed}
        given = {name: value for name, value in asked.items() if value is not None}
        body = asked_of(keys, map, last_s, where) | given
        if map is None:
            return read_table(await self._ask("find", query={"format": "arrow"}, body=body))
        return plain_result(map, (await self._json("find", body)).result)

    async def moment(
        self, keys: Any = None, *, last_s: Seconds | None = None, closed: bool = False,
        parts: int = 0,
    ) -> tuple[str, list[list[Any]]]:  # fmt: skip
        """A moment to read a range of in parts, and where to cut: `StreamWindow.moment`."""
        body = asked_of(keys, None, last_s) | {"closed": closed, "parts": parts}
        found = await self._http.ask_json("POST", *self._path, "moment", body=body, type=_Moment)
        return found.moment, found.cuts

    async def part(
        self, moment: str, keys: Any = None, *, low: Any = None, high: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> pa.Table:  # fmt: skip
        """The rows of a moment with keys in [low, high): `StreamWindow.part`."""
        ends = {"low": low, "high": high}
        body = asked_of(keys, None, last_s) | {"closed": closed, "moment": moment}
        body |= {name: _plain(end, name) for name, end in ends.items() if end is not None}
        return read_table(await self._ask("part", query={"format": "arrow"}, body=body))

    async def stats(self) -> WindowStats:
        """What it holds and has done since it was opened."""
        facts = await self._http.ask_json("GET", *self._path, type=WindowFacts)
        return facts.stats

    async def _ask(self, verb: str, **options: Any) -> Any:
        return await self._http.ask("POST", *self._path, verb, **options)

    async def _json(self, verb: str, body: Any) -> _Result:
        return await self._http.ask_json("POST", *self._path, verb, body=body, type=_Result)


def _row(row: Any) -> Any:
    if not isinstance(row, Mapping):
        return row
    listed = {name: _listed(value) for name, value in row.items()}
    for name, value in listed.items():
        if isinstance(value, float) and not math.isfinite(value):
            listed[name] = None  # JSON has none of these: this row is rejected, not the request
    return listed


def _once_text(once: Any) -> str:
    if not isinstance(once, (tuple, list)) or len(once) != 2:
        raise InvalidRequest("once must be a writer and a number", once=once)
    return f"{once[0]}:{once[1]}"


def _table_of(rows: Any, points: Collection[str]) -> pa.Table | None:
    """Rows as a table, if they are one or columns; a point has a length in a row, too."""
    import pyarrow as pa

    is_table = hasattr(rows, "__arrow_c_stream__")  # of Arrow, pandas or Polars
    if is_table or (
        isinstance(rows, Mapping)
        and any(
            not isinstance(value, (str, bytes)) and hasattr(value, "__len__")
            for name, value in rows.items()
            if name not in points
        )
    ):
        try:
            if is_table:
                return pa.table(rows)
            return pa.table({name: _pairs(value) for name, value in rows.items()})
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidRequest(f"these are no columns: {error}") from None
    return None


def _pairs(column: Any) -> Any:
    """An array of two columns as Arrow has it."""
    import pyarrow as pa

    if getattr(column, "ndim", 1) != 2:
        return column
    return pa.FixedSizeListArray.from_arrays(pa.array(column.ravel()), column.shape[1])


def _rejected(rejected: dict[int, str]) -> pa.Table:
    import pyarrow as pa

    rows = sorted(rejected)
    return pa.table({
        "row": pa.array(rows, pa.int64()),
        "reason": pa.array([rejected[row] for row in rows], pa.string()),
    })  # fmt: skip


class RemoteWindow:
    """Rows of the last so many seconds, on a server. Made by `Remote.window`.

    >>> import tideline
    >>> from tideline.server import running
    >>> with tideline.open(":memory:") as db, running(db) as url, tideline.connect(url) as remote:
    ...     cars = remote.window("cars", span_s=300, key=("seg", "vid"), values={"vel": "int32"})
    ...     done = cars.append([{"seg": 4, "vid": 7, "vel": 50}, {"seg": 4, "vid": 9, "vel": 60}])
    ...     cars.range((4,), map="mean(vel)")
    55.0
    """

    def __init__(self, http: Http, facts: WindowFacts) -> None:
        self._http = http
        self._verbs = WindowVerbs(http, facts)
        self.name = facts.name
        self.settings = facts.settings

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's fields."""
        return self._verbs.key

    @property
    def values(self) -> dict[str, str]:
        """The names and types of the values."""
        return self._verbs.values

    append = blocking(WindowVerbs.append)
    get = blocking(WindowVerbs.get)
    get_many = blocking(WindowVerbs.get_many)
    range = blocking(WindowVerbs.range)
    find = blocking(WindowVerbs.find)
    moment = blocking(WindowVerbs.moment)
    part = blocking(WindowVerbs.part)
    stats = blocking(WindowVerbs.stats)

    def watch(
        self, keys: Any = None, *, map: Any, where: Any = None, newest: bool = False,
        initial: Any = None, combine: Any = None, last_s: Seconds | None = None,
    ) -> RemotePanes:  # fmt: skip
        """What `range` or `find` gives, told at each slide: `StreamWindow.watch`."""
        check_no_function(map, initial, combine)
        asked = {"map": None, "newest": newest, **asked_of(keys, map, last_s, where)}
        return RemotePanes(self._http, self.name, asked, self.settings["slide_s"])

    def __repr__(self) -> str:
        return f"RemoteWindow({self.name!r})"
