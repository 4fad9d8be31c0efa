"""The processes in which stories run a real store: they can be killed at any moment.

    python channel_store.py SOCKET     the nursery: loads the kernels once, opens no database

Every connection to the nursery's socket is one life: a forked child that opens a folder, carries
out operations (channel_stories.py has their grammar) and answers with plain values. The child ends
when the connection does. Messages are pickles behind their length.

A child can be told to fail or to die in the middle of an operation (`Faults`): the next write to a
log fails as on a full disk, or the process is killed at its n-th file operation, before it, half
way through it or after it, or after so many microseconds.

The nursery ends when its input is closed, so it never outlives who started it.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import gc
import json
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from channel_model import FOREVER, SECOND, WHERES, WORLDS

__all__ = ["Life", "Lost", "nursery"]

PATIENCE_S = float(os.environ.get("TIDELINE_STORY_PATIENCE_S", "120"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEAD = struct.Struct("<Q")


class Lost(Exception):
    """The child has died, or does not answer any more."""


# Messages ---------------------------------------------------------------------------------------


def _send(sock: socket.socket, value: Any) -> None:
    data = pickle.dumps(value)
    sock.sendall(_HEAD.pack(len(data)) + data)


def _receive(sock: socket.socket) -> Any:
    (size,) = _HEAD.unpack(_exactly(sock, _HEAD.size))
    return pickle.loads(_exactly(sock, size))


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


# The side of the test ---------------------------------------------------------------------------


@contextlib.contextmanager
def nursery() -> Iterator[str]:
    """A nursery; gives the address of its socket. PYTHONPATH says where Tideline comes from."""
    with tempfile.TemporaryDirectory(prefix="tideline-nursery-") as folder:
        address = f"{folder}/socket"
        process = subprocess.Popen([sys.executable, __file__, address], stdin=subprocess.PIPE)
        try:
            deadline = time.monotonic() + 900  # kernels may have to be compiled first
            while not os.path.exists(address):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the nursery did not start")
                time.sleep(0.02)
            yield address
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


class Life:
    """One child with the database open, until it is closed or killed."""

    def __init__(self, address: str, settings: dict[str, Any]) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(address)
        self._pid: int | None = None
        try:
            _send(self._socket, settings)
            self._pid = _receive(self._socket)
            self.opened: Any = _receive(self._socket)
        except (EOFError, OSError) as error:
            self.kill()
            raise Lost(f"while opening: {error!r}") from None

    def run(self, ops: list[dict[str, Any]]) -> list[Any]:
        """The results of operations; fewer than there are operations when the child has died."""
        results: list[Any] = []
        try:
            _send(self._socket, ops)
            while len(results) < len(ops):
                results += _receive(self._socket)
        except TimeoutError:
            self.kill()
            raise Lost(f"no answer for {PATIENCE_S:.0f} s") from None
        except (EOFError, OSError):
            pass
        return results

    def kill(self) -> None:
        """kill -9, now."""
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                while self._socket.recv(1 << 16):
                    pass
        self._socket.close()

    def end(self) -> None:
        """Close the database and let the process end."""
        with contextlib.suppress(EOFError, OSError):
            _send(self._socket, None)
            _receive(self._socket)
        self.kill()


# The side of the store --------------------------------------------------------------------------


class Faults:
    """What goes wrong in the next operation. The hooks cost nothing worth naming while unarmed."""

    def __init__(self) -> None:
        self.armed: tuple[Any, ...] | None = None
        self.used = False
        self._count = 0
        for name in ("write", "writev", "fsync", "replace", "rename", "unlink", "ftruncate"):
            setattr(os, name, self._hooked(name, getattr(os, name)))

    def arm(self, how: tuple[Any, ...]) -> None:
        self.used, self._count = False, 0
        if how[0] == "timer":
            signal.setitimer(signal.ITIMER_REAL, how[1] / SECOND)
            return
        self.armed = how

    def disarm(self) -> bool:
        """Whether it has gone wrong."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.armed = None
        return self.used

    def _hooked(self, name: str, real: Any) -> Any:
        def hook(*args: Any, **named: Any) -> Any:
            how = self.armed
            if how is None:
                return real(*args, **named)
            if how[0] == "die":
                return self._die(name, real, how, args, named)
            if name not in ("write", "writev") or not _is_log(args[0]):
                return real(*args, **named)
            self.used = True
            if how[0] == "short":  # a nearly full disk takes a part; the next write says why
                self.armed = ("full",)
                data = args[1] if name == "write" else b"".join(args[1])
                return WRITE(args[0], memoryview(data).cast("B")[: memoryview(data).nbytes // 2])
            self.armed = None
            raise OSError(errno.ENOSPC, "no space left on device, says the story")

        return hook

    def _die(self, name: str, real: Any, how: tuple[Any, ...], args: Any, named: Any) -> Any:
        self._count += 1
        if self._count != how[1]:
            return real(*args, **named)
        if how[2] == "half" and name in ("write", "writev"):
            data = args[1] if name == "write" else b"".join(args[1])
            WRITE(args[0], memoryview(data).cast("B")[: memoryview(data).nbytes // 2])
        elif how[2] == "after":
            real(*args, **named)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")


WRITE = os.write


def _is_log(fd: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").endswith(".log")
    except OSError:
        return False


class Child:
    """Carries out operations on a real channel; every method is one kind of them."""

    def __init__(self, settings: dict[str, Any], faults: Faults | None) -> None:
        import tideline
        from tideline.clock import from_us
        from tideline.testing import ManualClock

        self.tideline, self.from_us, self.manual_clock = tideline, from_us, ManualClock
        self.settings, self.faults = settings, faults
        self.world = WORLDS[settings["space"]]
        name, given = self.world.space
        self.space = getattr(tideline, name)(**given)
        self.places = [self._place(place) for place in self.world.places]
        self.numbers = {place: n for n, place in enumerate(self.places)}
        self.wheres = {json.dumps(where, sort_keys=True): n for n, (where, _) in enumerate(WHERES)}
        self.open(settings["clock"], settings["memory_mb"])

    def _place(self, place: Any) -> Any:
        if place[0] == "circle":
            return self.tideline.Circle((place[1], place[2]), place[3])
        if place[0] == "box":
            return self.tideline.Box(*place[1:])
        if place[0] == "polygon":
            return self.tideline.Polygon(place[1])
        return place

    def open(self, clock_us: int, memory_mb: float) -> None:
        self.clock = self.manual_clock(clock_us / SECOND)
        self.handles: dict[str, Any] = {}
        deadline = time.monotonic() + 30
        while True:
            try:
                self.db = self.tideline.open(
                    self.settings["folder"], clock=self.clock, memory_mb=memory_mb
                )
                break
            except self.tideline.Unavailable:  # who was killed may not be quite gone
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self.channel = self.db.channel("c", space=self.space, layout=self.settings["layout"])

    def run(self, op: dict[str, Any]) -> Any:
        fault = op.get("fault")
        if fault is not None:
            assert self.faults is not None
            self.faults.arm(tuple(fault))
        try:
            result = ("ok", getattr(self, "do_" + op["op"])(op))
        except self.tideline.TidelineError as error:
            result = ("error", type(error).__name__, str(error)[:300])
        except Exception as error:
            result = ("error", type(error).__name__, repr(error)[:300])
        if fault is not None and self.faults is not None and self.faults.disarm():
            result = (*result, "fault")
        return result

    # Plain values

    def _time(self, us: int | None) -> Any:
        return None if us is None else _EPOCH + timedelta(microseconds=us)

    def _seconds(self, us: int | None) -> float | None:
        return None if us is None else (us - self.clock.now()) / SECOND

    def _body(self, body: Any) -> dict[str, Any]:
        n, kind, pad = body
        return {"n": n, "kind": kind, "pad": "x" * pad} if pad else {"n": n, "kind": kind}

    def _events(self, events: Any) -> list[Any]:
        return [(e.id, e.token) for e in events]

    def _facts(self, events: Any) -> list[Any]:
        found = []
        for e in events:
            body = e.body
            plain = (body["n"], body["kind"], len(body.get("pad", "")))
            place = self.numbers.get(e.place, e.place)
            found.append((e.id, place, e.at_us, min(e.until_us, FOREVER), plain))
        return found

    def _info(self, info: Any) -> tuple[Any, ...]:
        where = self.wheres.get(json.dumps(info.where, sort_keys=True), info.where)
        return (
            info.id, info.user, self.numbers.get(info.place, info.place), info.since_us,
            info.until_us, where, info.unseen,
        )  # fmt: skip

    def _hold(self, id: str, handle: Any, hold: bool) -> list[Any]:
        """Keep a new handle or let it go; what the one before still has to hand out."""
        old = self.handles.pop(id, None)
        left = [] if old is None else self._events(old.take())
        if hold:
            self.handles[id] = handle
        return left

    # Operations

    def do_clock(self, op: Any) -> None:
        self.clock.advance(max(op["to"] - self.clock.now(), 0) / SECOND)

    def do_publish(self, op: Any) -> Any:
        named: dict[str, Any] = {"id": op["id"], "related": op["related"]}
        if op.get("replace"):
            named["replace"] = True
        at = op["at"]
        if at is not None:
            named["at"] = self._time(at)
        if op["until"] is not None:
            if op["relative"]:
                first = self.clock.now() if at is None else at
                named["ttl_s"] = (op["until"] - first) / SECOND
            else:
                named["until"] = self._time(op["until"])
        told = self.channel.publish(self.places[op["place"]], self._body(op["body"]), **named)
        return (
            told.duplicate, [(s.id, s.user) for s in told.subscriptions],
            [e[0] for e in self._events(told.related)],
        )  # fmt: skip

    def do_subscribe(self, op: Any) -> Any:
        named: dict[str, Any] = {"user": op["user"], "id": op["id"], "unseen": op["unseen"]}
        where = WHERES[op["where"]][0]
        if op["relative"]:
            since = self._seconds(op["since"])
            named["until_s"] = self._seconds(op["until"])
            if since is not None and since > 0:  # of what begins later, only a datetime says so
                named["since"] = self._time(op["since"])
            else:
                named["since_s"] = since
        else:
            named |= {"since": self._time(op["since"]), "until": self._time(op["until"])}
        handle = self.channel.subscribe(self.places[op["place"]], where=where, **named)
        past = self._events(handle.past)
        return handle.duplicate, past, self._hold(op["id"], handle, op["hold"])

    def do_cancel(self, op: Any) -> Any:
        self.channel.cancel(op["id"])
        return self._hold(op["id"], None, False)

    def do_retract(self, op: Any) -> None:
        self.channel.retract(op["id"])

    def do_move(self, op: Any) -> Any:
        return self._info(self.channel.move(op["id"], self.places[op["place"]]))

    def do_get(self, op: Any) -> Any:
        event = self.channel.get(op["id"])
        return None if event is None else self._facts([event])[0]

    def do_prolong(self, op: Any) -> Any:
        if op["relative"]:
            info = self.channel.prolong(op["id"], until_s=self._seconds(op["until"]))
        else:
            info = self.channel.prolong(op["id"], until=self._time(op["until"]))
        return self._info(info)

    def do_resume(self, op: Any) -> Any:
        handle = self.channel.resume(op["id"], op["token"])
        return self._events(handle.past), self._hold(op["id"], handle, op["hold"])

    def do_let_go(self, op: Any) -> Any:
        return self._hold(op["id"], None, False)

    def do_take(self, op: Any) -> Any:
        taken = {}
        for id, handle in list(self.handles.items()):
            events = self._events(handle.take())
            if events:
                taken[id] = events
            if handle.expired:
                del self.handles[id]
        return taken

    def do_find(self, op: Any) -> Any:
        found = self.channel.find(
            self.places[op["place"]], since=self._time(op["since"]),
            until=self._time(op["until"]), where=WHERES[op["where"]][0], limit=op["limit"],
        )  # fmt: skip
        return self._facts(found)

    def do_list(self, op: Any) -> Any:
        limit, found = op["limit"], []
        after = None
        while True:
            part = self.channel.subscriptions(op["user"], limit=limit, after=after)
            found += part
            if limit is None or len(part) < limit:
                return [self._info(info) for info in found]
            after = part[-1].cursor

    def do_look(self, op: Any) -> Any:
        return self._info(self.channel.subscription(op["id"]))

    def do_stats(self, op: Any) -> Any:
        stats = self.channel.stats()
        return {name: getattr(stats, name) for name in ("events", "subscriptions", "answers")}

    def do_apply(self, op: Any) -> Any:
        import pyarrow as pa

        rows = [self._row(row) for row in op["rows"]]
        moment = pa.timestamp("us", "UTC")
        types = {
            "op": pa.string(), "id": pa.string(), "place": pa.string(), "lon": pa.float64(),
            "lat": pa.float64(), "radius_m": pa.float64(), "user": pa.string(), "at": moment,
            "since": moment, "until": moment, "body": pa.string(), "where": pa.string(),
            "unseen": pa.bool_(), "replace": pa.bool_(),
        }  # fmt: skip
        if self.settings["space"] in ("flat", "topics"):
            for name in ("lon", "lat", "radius_m"):
                del types[name]
        table = pa.table(
            {name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()}
        )
        once = op.get("once")
        done = self.channel.apply(table, once=None if once is None else tuple(once))
        names = ["row", "subscription", "event", "user", "kind"]
        columns = [done.answers.column(name).to_pylist() for name in names]
        return (
            done.repeated, list(zip(*columns, strict=True)),
            sorted(done.rejected.column("row").to_pylist()),
        )  # fmt: skip

    def _row(self, row: Any) -> dict[str, Any]:
        plain: dict[str, Any] = {"op": row["op"], "id": row["id"], "at": self._time(row["at"])}
        if row["op"] not in ("cancel", "retract"):
            place = self.world.places[row["place"]]
            if isinstance(place, str):
                plain["place"] = place
            elif place[0] == "circle":
                _, plain["lon"], plain["lat"], plain["radius_m"] = place
            elif place[0] == "polygon":
                corners = [[*place[1], place[1][0]]]
                plain["place"] = json.dumps({"type": "Polygon", "coordinates": corners})
            else:
                plain["lon"], plain["lat"] = place
            plain["until"] = self._time(row["until"])
        if row["op"] == "publish":
            plain["body"] = json.dumps(self._body(row["body"]))
            plain["replace"] = row.get("replace")
        elif row["op"] == "subscribe":
            where = WHERES[row["where"]][0]
            plain["user"], plain["unseen"] = row["user"], row["unseen"]
            plain["since"] = self._time(row["since"])
            plain["where"] = None if where is None else json.dumps(where)
        return plain | (row.get("bad") or {})

    def do_seal(self, op: Any) -> None:
        self.channel.seal()

    def do_maintain(self, op: Any) -> None:
        self.channel.maintain()

    def do_check(self, op: Any) -> None:
        self.db.check()

    def do_journal_on(self, op: Any) -> str:
        self.db.channel("c", journal_s=op["keep_us"] / SECOND)
        return self.channel.position()

    def do_journal_off(self, op: Any) -> None:
        self.db.channel("c", journal_s=0)

    def do_journal(self, op: Any) -> Any:
        upto = self.channel.position()
        if op["position"] is None:
            return upto, None
        try:
            return upto, self._journal(op["position"], upto)
        except self.tideline.Unavailable:
            return upto, "gone"

    def _journal(self, after: str, upto: str) -> Any:
        parts = []
        for kind in ("events", "subscriptions", "answers"):
            table, reached = self.channel.journal(kind, after=after, upto=upto)
            assert reached == upto, (reached, upto)
            names = {
                "events": ["id", "at", "until"],
                "subscriptions": ["id", "user", "until"],
                "answers": ["subscription", "event", "user", "kind"],
            }[kind]
            columns = [[_us(value) for value in table.column(name).to_pylist()] for name in names]
            parts.append(list(zip(*columns, strict=True)))
        parts[2].sort()
        return tuple(parts)

    def do_dump(self, op: Any) -> Any:
        events = self.channel.scan("events").select(["id", "at", "until"]).to_pylist()
        noted = True
        try:
            self.channel.journal("answers", after=self.channel.position())
        except self.tideline.InvalidRequest:
            noted = False
        journal: Any = None
        if noted and op["position"] is not None:
            try:
                journal = self._journal(op["position"], self.channel.position())
            except self.tideline.Unavailable:
                journal = "gone"
        return {
            "events": [(e["id"], _us(e["at"]), _us(e["until"])) for e in events],
            "subs": [self._info(info) for info in self.channel.subscriptions()],
            "noted": noted,
            "journal": journal,
            "writers": {  # of the numbers asked for, the last that has landed
                name: max(landed) for name, numbers in op["writers"].items()
                if (landed := [n for n in numbers if self.channel.landed(name, n) is None])
            },
        }  # fmt: skip

    def do_reopen(self, op: Any) -> None:
        """A clean close and open in the same process."""
        now = self.clock.now()
        self.db.close()
        self.open(now, op["memory_mb"])


def _us(value: Any) -> Any:
    if value is None:
        return FOREVER
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value


def _live(sock: socket.socket) -> None:
    settings = _receive(sock)
    _send(sock, os.getpid())
    faulthandler.dump_traceback_later(PATIENCE_S * 0.9)
    child = Child(settings, Faults())
    _send(sock, None)
    while True:
        faulthandler.cancel_dump_traceback_later()
        ops = _receive(sock)
        faulthandler.dump_traceback_later(PATIENCE_S * 0.9)
        if ops is None:
            child.db.close()
            _send(sock, None)
            return
        results = []
        for op in ops:
            if op.get("fault") is not None and results:
                _send(sock, results)  # what was done before the process dies was acknowledged
                results = []
            results.append(child.run(op))
        _send(sock, results)


def _warm() -> None:
    """Do everything once: children then find the code loaded. Nothing stays open."""
    from channel_writer import START, Writer

    for number, space in enumerate(WORLDS):
        with tempfile.TemporaryDirectory(prefix="tideline-warm-") as folder:
            child = Child({
                "folder": folder, "space": space, "layout": ("dual", "two")[number % 2],
                "clock": START, "memory_mb": 16,
            }, None)  # fmt: skip
            child.run({"op": "journal_on", "keep_us": SECOND})
            first = child.channel.position()
            for op in Writer(1, space, [16]).story(150):
                if op["op"] not in ("filler", "reopen", "journal"):
                    child.run({**op, "fault": None, "token": None})
            child.run({"op": "journal", "position": first})
            child.run({"op": "seal"})
            child.run({"op": "dump", "position": first, "writers": {"loader": [1]}})
            child.run({"op": "reopen", "memory_mb": 16})
            child.run({"op": "dump", "position": None, "writers": {}})
            child.db.close()


def main(address: str) -> None:
    _warm()
    gc.collect()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address + ".new")
    listener.listen(64)
    os.rename(address + ".new", address)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = 0
            try:
                _live(connection)
            except (EOFError, BrokenPipeError, ConnectionResetError):
                pass  # who asked has gone
            except BaseException:
                code = 1
                import traceback

                traceback.print_exc()
            os._exit(code)
        connection.close()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(sys.argv[1])
