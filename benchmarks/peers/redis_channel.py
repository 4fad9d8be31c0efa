"""Redis as a channel: sorted sets per place for both sides, a pipeline of transactions, one trip.

    s:PLACE  subscriptions, score until      publish    ZRANGEBYSCORE s:PLACE (now +inf
    e:PLACE  events, score at                           ZADD e:PLACE at .., HSET b:BUCKET id body
    b:BUCKET bodies that end in 10 s         subscribe  ZRANGEBYSCORE e:PLACE since (until
    u:USER   events a user has got                      ZADD s:PLACE until ..
    now      channel time; arrivals: a count, for `unseen`

On a map (`shapes`) events are in the GEO key `g` and circles in `G0`, `G1`... by the power of two
above their radius; GEOSEARCH finds events in a circle, and circles whose center is within the
largest radius of its key. Distances are computed again from the exact coordinates in the member
(a geohash of Redis is off by up to a metre). `xg`, `xG0`... have the same members by their end.

What is done to be fair to Redis:
- commands go as prepared bytes over a Unix socket, 256 operations in one MULTI/EXEC, four such
  parts ahead of the replies that are read; the last sieve (since <= at; now < until) is done here
  with numpy, from what the member carries;
- the expired are never answered; they are removed by score a few keys at a time, one for every
  operation, as Redis's own expiry works. That one (EXPIRE) follows the wall clock, the
  operations here bring their own time. Bodies go 10 s at a time with UNLINK;
- small sorted sets stay listpacks (16 and 24 bytes of a member are under Redis's limit of 64).

Designs tried, operations/s at 3:1 and at 1:3 (60 000 operations after 20 000, 5 000 a second of
the workload, 5.6 answers each, before sweeping was built, everysec; 2 cores; they vary by a fifth):

    commands in MULTI/EXEC, sieve here      164 000   111 000   (without MULTI 160 000, 145 000)
    one Lua call for 512 operations          81 000    70 000
    one Lua call for each, in a pipeline     65 000    60 000
    the first design by redis-py             46 000    37 000   (building commands is in this)

With a sweep of all keys every 10 s of the workload, 95 000 to 110 000 at 3:1, a quarter of the
time for the sweep; so it is every 20 s now.

Durability: appendonly yes, appendfsync no: Redis writes its file before it replies and leaves the
sync to the system, as ours does. The usual `everysec` is not safe from kill -9: while the sync of
a second runs, writes are put off but replies are not. Killed at such a moment it lost 71 to 118
acknowledged writes, five times of five; killed at random, none (four times). With `no`: none,
eight times of eight.

`unseen` depends on earlier answers, so there operations go as one Lua call each, from the first
batch on that has the column; what a user was answered before that was not noted.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peers import redis, redis_scripts
from benchmarks.peers.base import Cannot, Given, Peer, answer_type
from benchmarks.peers.redis import command
from benchmarks.peers.redis_rows import EVENT, SUBSCRIPTION, TIME, Found, Rows, read_rows, select
from benchmarks.peers.redis_wire import Refused, Server, Wire

__all__ = ["RedisPeer"]

PART = 256
BUCKET_US = 10_000_000
SWEEP_US = 20_000_000
"""The keys are not gone through again before so much channel time has passed."""
SWEPT = 1
"""Keys looked at for every operation."""
_PAGE = 512
_LATITUDE_LIMIT = 85.05112878
_OVER = 1.001  # Redis's earth is 0.03% larger, and a geohash is not exact
_LOAD_PART = 2_000


@dataclass(frozen=True)
class Prepared:
    """Commands, made for a channel whose time had not passed the first row's."""

    rows: Rows
    now: np.ndarray
    parts: list[tuple[bytes, int]]
    radii: dict[int, float]
    noting: bool


class RedisPeer(Peer):
    """One server, one connection."""

    name = "redis"

    @classmethod
    def missing(cls) -> str | None:
        if shutil.which("redis-server") is None:
            return redis.MISSING
        try:
            import hiredis  # noqa: F401
        except ImportError:
            return "hiredis is not installed (pip install 'tideline[bench]')"
        return None

    @classmethod
    def version(cls) -> str:
        return f"Redis {redis.version()}"

    def __init__(self, given: Given) -> None:
        self._shapes = given.shapes
        self._server = Server(given.folder / "redis", given.memory_mb)
        try:
            self._wire = Wire(self._server.folder)
            self._script = {
                name: self._wire.call(b"SCRIPT", b"LOAD", getattr(redis_scripts, name))
                for name in redis_scripts.__all__
            }
            self._now = int(self._wire.call(b"GET", b"now") or -(1 << 62))
            self._noting = bool(self._wire.call(b"EXISTS", b"arrivals"))
            known = self._wire.call(b"HGETALL", b"radii")
        except BaseException:
            self._server.kill()
            raise
        self._radii = {int(k): float(v) for k, v in zip(known[::2], known[1::2], strict=True)}
        self._cursor, self._swept, self._owed = b"0", self._now, 0

    # ---- operations ------------------------------------------------------------------------

    def prepare(self, operations: pa.RecordBatch) -> Prepared:
        rows = read_rows(operations, shapes=self._shapes)
        if self._shapes:
            if any(rows.unseen):
                raise Cannot("GEOSEARCH and what a user has seen: no script was written for both")
            if len(rows) and not np.abs(rows.lat).max() <= _LATITUDE_LIMIT:
                raise Cannot(f"GEOADD takes latitudes up to {_LATITUDE_LIMIT}")
            for radius in np.unique(rows.radius[~rows.event]).tolist():
                power = _power(radius)
                self._radii[power] = max(radius, self._radii.get(power, 0.0))
        elif "unseen" in operations.schema.names:
            self._noting = True
        return self._build(rows, int(rows.at[0]) if len(rows) else 0)

    def _build(self, rows: Rows, now: int) -> Prepared:
        """Commands for a channel whose time is `now` before the first row."""
        times = np.maximum(np.maximum.accumulate(rows.at), now)
        radii = dict(self._radii)
        commands = self._commands(rows, times.tolist(), radii)
        parts = []
        for first in range(0, len(rows), PART):
            upto = min(first + PART, len(rows))
            made = list(islice(commands, upto - first))
            made.append([command(b"SET", b"now", b"%d" % times[upto - 1])])
            if first == 0:
                made += [[command(b"HSET", b"radii", b"%d" % k, b"%r" % v)]
                         for k, v in radii.items()]  # fmt: skip
            count = sum(map(len, made))
            data = [command(b"MULTI"), *(one for some in made for one in some), command(b"EXEC")]
            parts.append((b"".join(data), count + 2))
        return Prepared(rows, times, parts, radii, self._noting)

    def _commands(
        self, rows: Rows, times: list[int], radii: dict[int, float]
    ) -> Iterator[list[bytes]]:
        """The commands of each row."""
        if self._noting:
            yield from self._scripted(rows, times)
            return
        event_of, subscription_of = EVENT[self._shapes], SUBSCRIPTION[self._shapes]
        columns = (rows.event, rows.id, rows.at, rows.since, rows.until,
                   rows.lon, rows.lat, rows.radius)  # fmt: skip
        for number, (event, id, at, since, until, lon, lat, radius) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            now = times[number]
            if event:
                body = command(
                    b"HSET", b"b:%d" % (until // BUCKET_US), b"%d" % id, rows.body[number] or b""
                )
            if not self._shapes:
                place = rows.place[number]
                if event:
                    yield [
                        command(b"ZRANGEBYSCORE", b"s:" + place, b"(%d" % now, b"+inf"),
                        command(b"ZADD", b"e:" + place, b"%d" % at, event_of(until, id)),
                        body,
                    ]
                else:
                    member = subscription_of(since, id, rows.user[number])
                    yield [
                        command(b"ZRANGEBYSCORE", b"e:" + place, b"%d" % since, b"(%d" % until),
                        command(b"ZADD", b"s:" + place, b"%d" % until, member),
                    ]
            elif event:
                member = event_of(until, id, at, lon, lat)
                yield [
                    *(_search(b"G%d" % power, lon, lat, far) for power, far in radii.items()),
                    *_add(b"g", lon, lat, until, member),
                    body,
                ]
            else:
                member = subscription_of(since, id, rows.user[number], until, lon, lat, radius)
                key = b"G%d" % _power(radius)
                yield [_search(b"g", lon, lat, radius), *_add(key, lon, lat, until, member)]

    def _scripted(self, rows: Rows, times: list[int]) -> Iterator[list[bytes]]:
        """One Lua call for each row."""
        columns = (rows.event, rows.id, rows.at, rows.since, rows.until)
        for number, (event, id, at, since, until) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            now, place = times[number], rows.place[number]
            if event:
                bucket = b"b:%d" % (until // BUCKET_US)
                yield [self._call(
                    "PUBLISH", (b"s:" + place, b"e:" + place, bucket), b"%d" % now, b"%d" % at,
                    TIME(at), EVENT[0](until, id), b"%d" % id, TIME(id), rows.body[number] or b"",
                    b"%d" % until,
                )]  # fmt: skip
            else:
                user = rows.user[number]
                yield [self._call(
                    "SUBSCRIBE", (b"e:" + place, b"s:" + place, b"u:" + TIME(user)),
                    b"%d" % since, b"%d" % until, TIME(now), SUBSCRIPTION[0](since, id, user),
                    b"%d" % rows.unseen[number],
                )]  # fmt: skip

    def _call(self, script: str, keys: tuple[bytes, ...], *given: bytes) -> bytes:
        return command(b"EVALSHA", self._script[script], b"%d" % len(keys), *keys, *given)

    def apply(self, prepared: Prepared) -> Found:
        rows = prepared.rows
        if not len(rows):
            return Found(rows, np.zeros(0, np.int64), np.zeros(0, np.int64))
        made_for = (prepared.radii, prepared.noting)
        if self._now > prepared.now[0] or made_for != (self._radii, self._noting):
            prepared = self._build(rows, self._now)
        replies = self._run(prepared.parts)
        if prepared.noting:
            texts = [reply for part in replies for reply in part[-1][:-1]]  # the last one set `now`
            counts = [len(text) // 8 for text in texts]
            other = np.frombuffer(b"".join(texts), ">i8").astype(np.int64)
            found = Found(rows, np.repeat(np.arange(len(rows)), counts), other)
        else:
            lists = [reply for part in replies for reply in part[-1] if type(reply) is list]
            found = select(rows, prepared.now, lists, len(prepared.radii) if self._shapes else 0)
        self._now = int(prepared.now[-1])
        self._sweep(len(rows))
        return found

    def _run(self, parts: list[tuple[bytes, int]]) -> list[list[Any]]:
        try:
            return self._wire.run(parts)
        except Refused as error:
            if "OOM" in str(error) or "EXECABORT" in str(error):
                raise Cannot(f"Redis keeps all data in memory: {error}") from error
            raise

    def answers(self, outcome: Found) -> np.ndarray:
        rows, row = outcome.rows, outcome.row
        event = rows.event[row] if len(row) else np.zeros(0, np.bool_)
        answers = np.empty(len(row), answer_type)
        answers["row"] = row
        answers["event"] = np.where(event, rows.id[row], outcome.other)
        answers["subscription"] = np.where(event, outcome.other, rows.id[row])
        return answers

    def load(self, subscriptions: pa.RecordBatch) -> None:
        if self._shapes:
            super().load(subscriptions)
            return
        rows = read_rows(subscriptions, shapes=False)
        columns = (rows.id.tolist(), rows.user, rows.since.tolist(), rows.until.tolist())
        commands = (
            command(b"ZADD", b"s:" + place, b"%d" % until, SUBSCRIPTION[0](since, id, user))
            for place, id, user, since, until in zip(rows.place, *columns, strict=True)
        )
        counts = [min(_LOAD_PART, len(rows) - n) for n in range(0, len(rows), _LOAD_PART)]
        self._run([(b"".join(islice(commands, count)), count) for count in counts])
        if len(rows):
            self._now = max(self._now, int(rows.at.max()))
            self._wire.call(b"SET", b"now", b"%d" % self._now)

    # ---- what has expired ------------------------------------------------------------------

    def _sweep(self, operations: int) -> None:
        """Remove the expired from some of the keys."""
        if self._shapes:
            keys = (b"g", *(b"G%d" % power for power in self._radii))
            self._wire.run([(self._call("EXPIRE", keys, b"%d" % self._now), 1)])
        self._owed += operations * SWEPT
        while self._owed >= _PAGE:
            if self._cursor == b"0":
                if self._now - self._swept < SWEEP_US:
                    self._owed = 0
                    return
                self._swept = self._now
            self._owed -= _PAGE
            self._page()

    def _page(self) -> None:
        given = (b"%d" % _PAGE, b"%d" % self._now, TIME(self._now),
                 b"%d" % (self._now // BUCKET_US))  # fmt: skip
        [[self._cursor]] = self._wire.run([(self._call("SWEEP", (), self._cursor, *given), 1)])

    def sweep_all(self) -> None:
        """Go through all keys once: for a look at what is really kept."""
        self._sweep(0)
        self._cursor = b"0"
        self._page()
        while self._cursor != b"0":
            self._page()

    # ---- delivery --------------------------------------------------------------------------

    def deliver(self, count: int) -> list[float]:
        """Seconds from an event's publish until its subscriber has it by pub/sub, one at a time."""
        place, since, until = b"deliver", max(self._now, 0), 1 << 61
        listener = Wire(self._server.folder)
        try:
            listener.call(b"SUBSCRIBE", b"d:" + TIME(0))
            self._wire.call(
                b"ZADD", b"s:" + place, b"%d" % until, SUBSCRIPTION[0](since, 0, 0)
            )  # fmt: skip
            taken = []
            for number in range(count):
                at = since + number
                event = EVENT[0](at + BUCKET_US, number)
                send = self._call(
                    "DELIVER", (b"s:" + place, b"e:" + place), b"%d" % at, TIME(at), event,
                    b"%d" % number,
                )  # fmt: skip
                begin = time.perf_counter()
                self._wire.push(send)
                [[_, _, body]] = listener.read(1)
                taken.append(time.perf_counter() - begin)
                if body != b"%d" % number:
                    raise RuntimeError(f"event {number} was not delivered, but {body!r}")
                self._wire.read(1)
        finally:
            listener.close()
            self._wire.call(b"UNLINK", b"s:" + place, b"e:" + place)
        return taken

    # ---- the server ------------------------------------------------------------------------

    def processes(self) -> list[int]:
        return [self._server.process.pid]

    def disk_bytes(self) -> int:
        folder = self._server.folder
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())

    def crash(self) -> None:
        self._server.kill()
        self._wire.close()

    def close(self) -> None:
        self._wire.close()
        self._server.stop()


def _power(radius: float) -> int:
    return max(0, math.ceil(math.log2(radius)))


def _search(key: bytes, lon: float, lat: float, radius: float) -> bytes:
    return command(
        b"GEOSEARCH", key, b"FROMLONLAT", b"%r" % lon, b"%r" % lat, b"BYRADIUS",
        b"%.3f" % (radius * _OVER + 2), b"m",
    )  # fmt: skip


def _add(key: bytes, lon: float, lat: float, until: int, member: bytes) -> list[bytes]:
    return [
        command(b"GEOADD", key, b"%r" % lon, b"%r" % lat, member),
        command(b"ZADD", b"x" + key, b"%d" % until, member),
    ]
