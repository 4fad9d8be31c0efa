"""NATS JetStream as a channel: a subject per place, a stream for history, a consumer each.

    publish    PUB e.PLACE "id body"              acknowledged once the stream has it
    subscribe  SUB d.ID, and create a consumer: filter e.PLACE, from the time `since`, push to d.ID
    answers    what is pushed to d.ID             past and future, one after the other

One request asks for past and future: the consumer starts in the stream's past and goes on. The
wall clock rules. An operation happens when it is given; `apply` gives each at its time, counted
from the first row, and says by `behind_s` how late the latest was. A window is [now - back, now +
ahead) at that moment, and an event's time is the server's when it stores it. So what happens
within `tolerance_s` of a window's edge may fall on either side; all else must be exact. The end of
a window is kept by deleting the consumer, and by dropping what was stored later.

Designs:
- `ephemeral`: push consumers in memory, without acknowledgement, as an ordered consumer is made.
  A killed server forgets them.
- `durable`: the same with a name, kept on disk; a killed server finds them again.
- `core`: the stream publishes again what it stored (`republish`), a subscription is a plain SUB,
  its past is read message by message (direct get, as this version has no start time there). SUB
  comes first, so nothing is missed; the sequence number, which both ways carry, drops what comes
  twice. Without `republish` a plain subscription has no number: one that is made before its past
  is read gets some events twice, one made after it misses some.

What has no way: `unseen` (the server does not know what a user got), circles (a subject is a
text), an end for single events (a stream has one max_age; this version has no TTL of a message),
operations that come with their own time (late rows).

Durability: file storage. Four times kill -9 under load (60 000 to 115 000 events acknowledged at
full speed) lost none. A `core` subscription is known to its own connection alone: who is killed
must ask again. `durable` is the default, as it keeps what ours keeps.

Figures (2 cores, not alone on them). Subscriptions created: ephemeral 2 500 to 5 000/s and 38 kB
of the server's memory each, durable 1 400 to 2 500/s and 43 kB, core 30 000 to 70 000/s and 1 kB.
The protocol by hand (nats_wire.py) against nats-py 2.16: 116 000 against 19 000 acknowledged
publishes/s, 147 000 against 84 000 messages received/s.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.peers import nats_wire
from benchmarks.peers.base import Cannot, Given, Peer, answer_type
from benchmarks.peers.nats_watches import Watch, Watches
from benchmarks.peers.nats_wire import Message, Server, Wire, header, token
from benchmarks.peers.redis_rows import Rows, read_rows

__all__ = ["NatsPeer"]

DESIGNS = ("ephemeral", "durable", "core")
PATIENCE_S = 3.0
"""So long without a message, and what is still due counts as missing."""
_ACKS, _MADE, _GOT, _LIVE = 1, 2, 3, 1_000
_DEFAULT_AGE_US = 20_000_000
ONE_AGE = "a stream has one max_age for all its events, and no end for single ones"


@dataclass(frozen=True)
class Got:
    """What came in during a call: (subscription, event), and the rows of the call."""

    rows: Rows
    pairs: list[tuple[int, int]]


class NatsPeer(Peer):
    """One server, one connection."""

    name = "nats"
    wall_clock = True
    tolerance_s = 0.1

    @classmethod
    def missing(cls) -> str | None:
        return nats_wire.MISSING if nats_wire.version() == "absent" else None

    @classmethod
    def version(cls) -> str:
        return f"nats-server {nats_wire.version()}"

    def __init__(self, given: Given, *, design: str = "durable", paced: bool = True) -> None:
        if given.shapes:
            raise Cannot("a subject is a text: there is no way to ask for a circle")
        if design not in DESIGNS:
            raise ValueError(f"design must be one of {DESIGNS}")
        self.design, self.paced, self.behind_s = design, paced, 0.0
        self._age_us: int | None = None
        self._age_chosen = False
        self._watches = Watches()
        self._pairs: list[tuple[int, int]] = []
        self._due = 0
        self._begin: tuple[float, int] | None = None
        self._server = Server(given.folder / "nats", given.memory_mb)
        try:
            self._connect()
        except BaseException:
            self._server.kill()
            raise

    def _connect(self) -> None:
        self._wire = Wire(self._server.port)
        self._wire.write(b"SUB a.> %d\r\nSUB m.> %d\r\nSUB g.> %d\r\n" % (_ACKS, _MADE, _GOT))
        self._wire.meet()
        known = self._wire.request("$JS.API.STREAM.INFO.events")
        if "config" in known:  # started again
            self._age_us, self._age_chosen = known["config"]["max_age"] // 1000, True
            self._find_consumers()

    def _find_consumers(self) -> None:
        """The consumers that the server still has, with their ends, which stand in their names."""
        offset, total = 0, 1
        while offset < total:
            page = self._wire.request("$JS.API.CONSUMER.LIST.events", {"offset": offset})
            for info in page["consumers"] or ():
                _, id, until = info["name"].split("-")
                place = info["config"]["filter_subject"][2:].encode()
                last = info["delivered"]["stream_seq"]
                self._watches.add(Watch(int(id), place, 0, int(until), last))
                self._wire.write(b"SUB d.%d %d\r\n" % (int(id), _LIVE + int(id)))
            offset, total = offset + page["limit"], page["total"]

    def _make_stream(self, age_us: int, *, chosen: bool = True) -> None:
        """The stream, with the age that the events have; a first guess may be mended once."""
        if self._age_us == age_us or (self._age_us is not None and not chosen):
            self._age_chosen = self._age_chosen or chosen
            return
        if self._age_chosen:
            raise Cannot(ONE_AGE)
        config: dict[str, Any] = {
            "name": "events", "subjects": ["e.>"], "storage": "file", "retention": "limits",
            "max_age": age_us * 1000, "num_replicas": 1, "allow_direct": True,
            "duplicate_window": min(age_us, 100_000) * 1000,
        }  # fmt: skip
        if self.design == "core":
            config["republish"] = {"src": "e.>", "dest": "l.e.>"}
        verb = "CREATE" if self._age_us is None else "UPDATE"
        made = self._wire.request(f"$JS.API.STREAM.{verb}.events", config)
        if "error" in made:
            raise RuntimeError(f"nats-server: {made['error']}")
        self._age_us, self._age_chosen = age_us, chosen

    # ---- operations ------------------------------------------------------------------------

    def prepare(self, operations: pa.RecordBatch) -> Rows:
        rows = read_rows(operations, shapes=False)
        if any(rows.unseen):
            raise Cannot("the server does not know what a user has got: no unseen")
        if len(rows) and (np.diff(rows.at) < 0).any():
            raise Cannot("the wall clock rules: an event cannot come with an earlier time")
        ages = np.unique((rows.until - rows.at)[rows.event])
        if len(ages) > 1:
            raise Cannot(ONE_AGE)
        if len(ages):
            self._make_stream(int(ages[0]))
        rows.place[:] = [token(place) for place in rows.place]
        return rows

    def apply(self, prepared: Rows) -> Got:
        rows, self._pairs = prepared, []
        if not len(rows):
            return Got(rows, [])
        self._make_stream(_DEFAULT_AGE_US, chosen=False)
        columns = (rows.event, rows.id, rows.at, rows.since, rows.until)
        for number, (event, id, at, since, until) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            self._wait_for(at)
            place = rows.place[number]
            if event:
                body = b"%d %b" % (id, rows.body[number] or b"")
                self._wire.publish(b"e." + place, b"a." + place, body)
                self._due += 1
            else:
                now = time.time_ns() // 1000
                self._subscribe(Watch(id, place, now - (at - since), now + (until - at)))
            if number & 63 == 63:
                self._pump(0.0)
        self._settle()
        self._expire()
        return Got(rows, self._pairs)

    def _wait_for(self, at: int) -> None:
        """Until an operation's time has come."""
        if self._begin is None:
            self._begin = (time.time(), at)
        if not self.paced:
            return
        while True:
            ahead = (at - self._begin[1]) / 1e6 - (time.time() - self._begin[0])
            if ahead <= 0:
                self.behind_s = max(self.behind_s, -ahead)
                return
            self._expire()
            self._pump(min(ahead, 0.05))

    def _subscribe(self, watch: Watch) -> None:
        self._watches.add(watch)
        self._due += 1
        if self.design == "core":
            self._wire.write(b"SUB l.e.%b %d\r\n" % (watch.place, _LIVE + watch.id))
            self._get(watch.id, 1)
            return
        # A consumer pushes only where somebody listens to its very subject: d.> would not do.
        self._wire.write(b"SUB d.%d %d\r\n" % (watch.id, _LIVE + watch.id))
        name = f"c-{watch.id}-{watch.until}"
        start = datetime.fromtimestamp(watch.since / 1e6, UTC).isoformat()
        config = {
            "name": name, "deliver_policy": "by_start_time", "opt_start_time": start,
            "ack_policy": "none", "filter_subject": "e." + watch.place.decode(),
            "deliver_subject": f"d.{watch.id}", "replay_policy": "instant", "num_replicas": 1,
        }  # fmt: skip
        if self.design == "durable":
            config["durable_name"] = name
        else:
            config |= {"mem_storage": True, "inactive_threshold": 3_600_000_000_000}
        subject = f"$JS.API.CONSUMER.CREATE.events.{name}.e.{watch.place.decode()}"
        request = {"stream_name": "events", "config": config}
        self._wire.publish(subject.encode(), b"m.%d" % watch.id, json.dumps(request).encode())

    def _get(self, id: int, number: int) -> None:
        """Ask for the first event of a subscription's place from a number on."""
        watch = self._watches.get(id)
        assert watch is not None
        place = watch.place.decode()
        body = json.dumps({"seq": number, "next_by_subj": "e." + place}).encode()
        self._wire.publish(b"$JS.API.DIRECT.GET.events", b"g.%d" % id, body)

    # ---- what comes in ---------------------------------------------------------------------

    def _pump(self, wait_s: float) -> bool:
        """Send what is written, take what has come; whether anything has."""
        self._wire.flush()
        messages = self._wire.read(wait_s)
        for message in messages:
            if message.sid >= _LIVE:
                self._arrived(message)
            elif message.sid == _ACKS:
                self._acked(message)
            elif message.sid == _MADE:
                self._due -= 1
                made = json.loads(message.body)
                if "error" in made:
                    raise RuntimeError(f"nats-server: {made['error']}")
            elif message.sid == _GOT:
                self._history(message)
        return bool(messages)

    def _arrived(self, message: Message) -> None:
        """An event for a subscription."""
        if self.design == "core":
            number, at = int(header(message.head, b"Nats-Sequence")), time.time_ns() // 1000
        else:  # $JS.ACK.stream.consumer.times.number.count.nanoseconds.pending
            words = message.reply.split(b".")
            number, at = int(words[5]), int(words[7]) // 1000
        self._take(message.sid - _LIVE, number, at, message.body)

    def _acked(self, message: Message) -> None:
        self._due -= 1
        ack = json.loads(message.body)
        if "error" in ack:
            raise RuntimeError(f"nats-server: {ack['error']}")
        now = time.time_ns() // 1000
        self._watches.stored(message.subject[2:], ack["seq"], now, self._age_us or 0)

    def _history(self, message: Message) -> None:
        """One event of the past of a subscription, or that there are no more."""
        id = int(message.subject[2:])
        if message.head.startswith(b"NATS/1.0 404") or self._watches.get(id) is None:
            self._due -= 1
            return
        number = int(header(message.head, b"Nats-Sequence"))
        stamp = header(message.head, b"Nats-Time-Stamp").decode()
        at = int(datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00").timestamp() * 1e6)
        self._take(id, number, at, message.body)
        self._get(id, number + 1)

    def _take(self, id: int, number: int, at: int, body: bytes) -> None:
        watch = self._watches.get(id)
        if watch is None:
            return  # its window is over
        if self.design == "core":
            if number in watch.seen:
                return
            watch.seen.add(number)
        watch.last = max(watch.last, number)
        if watch.since <= at < watch.until:
            self._pairs.append((id, int(body[: body.index(b" ")])))

    def _settle(self) -> None:
        """Until all is acknowledged, and every subscription got what the stream has for it."""
        quiet, edge = time.monotonic(), round(self.tolerance_s * 1e6)
        while time.monotonic() - quiet < PATIENCE_S:
            if self._due == 0 and not self._watches.lacking(edge):
                return
            if self._pump(0.02):
                quiet, edge = time.monotonic(), round(self.tolerance_s * 1e6)
        if self._due:
            raise RuntimeError(f"nats-server left {self._due} requests without a reply")

    def _expire(self) -> None:
        """Delete the consumers whose window is over."""
        for watch in self._watches.over(time.time_ns() // 1000):
            self._delete(watch)
        self._wire.flush()

    def _delete(self, watch: Watch) -> None:
        self._wire.write(b"UNSUB %d\r\n" % (_LIVE + watch.id))
        if self.design != "core":
            subject = b"$JS.API.CONSUMER.DELETE.events.c-%d-%d" % (watch.id, watch.until)
            self._wire.publish(subject, b"gone", b"")

    def answers(self, outcome: Got) -> np.ndarray:
        """Row -1: it came after the call of its later side had returned."""
        row_of = {
            (event, id): row
            for row, (event, id) in enumerate(
                zip(outcome.rows.event.tolist(), outcome.rows.id.tolist(), strict=True)
            )
        }
        answers = np.empty(len(outcome.pairs), answer_type)
        for number, (subscription, event) in enumerate(outcome.pairs):
            row = max(row_of.get((False, subscription), -1), row_of.get((True, event), -1))
            answers[number] = (row, subscription, event)
        return answers

    # ---- delivery and growth ---------------------------------------------------------------

    def deliver(self, count: int) -> list[float]:
        """Seconds from an event's publish until its subscriber has it by push, one at a time."""
        self._make_stream(_DEFAULT_AGE_US, chosen=False)
        now = time.time_ns() // 1000
        self._subscribe(Watch(1 << 40, b"deliver", now, now + 3_600_000_000))
        self._settle()
        taken = []
        for number in range(count):
            begin = time.perf_counter()
            self._wire.publish(b"e.deliver", b"a.deliver", b"%d {}" % number)
            self._due, self._pairs = self._due + 1, []
            while (1 << 40, number) not in self._pairs:
                if not self._pump(PATIENCE_S):
                    raise RuntimeError(f"event {number} was not delivered")
            taken.append(time.perf_counter() - begin)
        self._settle()
        watch = self._watches.remove(1 << 40)
        assert watch is not None
        self._delete(watch)
        return taken

    def consumers(self, limit_s: float, *, step: int = 1_000, memory_mb: int = 8_000,
                  places: int = 250_000) -> list[tuple[int, float, int]]:  # fmt: skip
        """Create subscriptions until time or memory is used up; (count, created/s, bytes) by step.

        They live for an hour, over so many places; bytes are the server's.
        """
        self._make_stream(_DEFAULT_AGE_US, chosen=False)
        server = psutil.Process(self._server.process.pid)
        found: list[tuple[int, float, int]] = []
        begin = time.perf_counter()
        while time.perf_counter() - begin < limit_s:
            start, first = time.perf_counter(), len(found) * step
            now = time.time_ns() // 1000
            for number in range(first, first + step):
                place = b"%d" % (number * 7919 % places)
                self._subscribe(Watch(1 << 41 | number, place, now, now + 3_600_000_000))
                if number & 63 == 63:
                    self._pump(0.0)
            while self._due:
                if not self._pump(PATIENCE_S * 10):
                    raise RuntimeError("nats-server does not reply any more")
            rate = step / (time.perf_counter() - start)
            found.append((first + step, rate, server.memory_info().rss))
            if found[-1][2] > memory_mb << 20:
                break
        return found

    # ---- the server ------------------------------------------------------------------------

    def processes(self) -> list[int]:
        return [self._server.process.pid]

    def disk_bytes(self) -> int:
        files = (self._server.folder / "streams").rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())

    def crash(self) -> None:
        self._server.kill()
        self._wire.close()

    def close(self) -> None:
        self._wire.close()
        self._server.stop()
