"""The process that test_faults.py kills, starves of disk or lets hold a folder.

    python worker.py churn FOLDER LAYOUT ROUND   operations for ever, one line per acknowledgement
    python worker.py full FOLDER LAYOUT          runs into a full disk; prints a JSON report
    python worker.py hold FOLDER                 holds the folder until its input closes

Lines of `churn`: `P id place` published, `S id place` subscribed, `c id` about to cancel,
`C id` cancelled. A line is one write, made after the call returned: what was printed was
acknowledged.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tables import table_of

import tideline
from tideline.clock import FOREVER
from tideline.errors import Unavailable

PLACES = ["a", "b", "c"]
HOUR_S = 3600


def body_of(id: str) -> dict[str, Any]:
    """The body every event of this id has: half of it would be noticed."""
    return {"id": id, "fill": id * 20}


def say(*lines: str) -> None:
    os.write(1, "".join(f"{line}\n" for line in lines).encode())


def rows(prefix: str, count: int) -> list[dict[str, Any]]:
    """Rows for `apply`: every third a subscription."""
    now = time.time_ns() // 1000
    made = []
    for n in range(count):
        row = {"id": f"{prefix}-{n}", "place": PLACES[n % 3], "at": now, "until": FOREVER}
        if n % 3 == 2:
            row |= {"op": "subscribe", "user": "w", "where": None, "unseen": False}
            row |= {"since": now - HOUR_S * 1_000_000}
        else:
            row |= {"op": "publish", "body": body_of(f"{prefix}-{n}")}
        made.append(row)
    return made


def churn(folder: str, layout: str, turn: str) -> None:
    channel = tideline.open(folder, memory_mb=4).channel("c", layout=layout)
    stored: list[str] = []
    say("ready")
    for n in itertools.count():
        id, place = f"{turn}-{n}", PLACES[n % 3]
        if n % 10 == 9:
            batch = rows(id, 6)
            applied = channel.apply(table_of(batch))
            assert applied.rejected.num_rows == 0
            say(*(f"{'P' if r['op'] == 'publish' else 'S'} {r['id']} {r['place']}" for r in batch))
        elif n % 5 == 4:
            channel.subscribe(place, user="w", id=id, since_s=-HOUR_S)
            stored.append(id)
            say(f"S {id} {place}")
        elif n % 20 == 12 and stored:
            gone = stored.pop(0)
            say(f"c {gone}")
            channel.cancel(gone)
            say(f"C {gone}")
        else:
            channel.publish(place, body_of(id), id=id)
            say(f"P {id} {place}")
        if n % 40 == 39:
            channel.seal()
        if n % 70 == 69:
            channel.maintain()


def limit_files(size_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))


def full(folder: str, layout: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
    db = tideline.open(folder, memory_mb=4)
    channel = db.channel("c", layout=layout)

    def publish(id: str) -> bool:
        """Whether it was a retry of something stored."""
        return bool(channel.publish("a", body_of(id), id=id).duplicate)

    def found() -> list[str]:
        return sorted(e.id for place in PLACES for e in channel.find(place))

    def refused(call: Any) -> bool:
        try:
            call()
        except Unavailable:
            return True
        return False

    # Everything is compiled and once used before the disk is full.
    publish("first")
    assert channel.apply(table_of(rows("warm", 6))).rejected.num_rows == 0
    channel.seal()
    publish("second")
    report: dict[str, Any] = {"acknowledged": found()}

    logs = max(p.stat().st_size for p in Path(folder).rglob("log-*"))
    limit_files(logs + 4096)
    last = ""
    for n in range(1000):
        last = f"e{n}"
        if refused(lambda: publish(last)):  # noqa: B023 - called at once
            break
        report["acknowledged"].append(last)
    report["last"] = last
    report["readable"] = found() == sorted(report["acknowledged"])
    report["apply_refused"] = refused(lambda: channel.apply(table_of(rows("batch", 60))))
    report["subscriptions"] = sorted(s.id for s in channel.subscriptions())
    limit_files(256)
    report["seal_refused"] = refused(channel.seal)
    report["still_readable"] = found() == sorted(report["acknowledged"])

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit_files(hard)
    report["retry_was_new"] = not publish(last)
    report["acknowledged"].append(last)
    channel.seal()
    publish("end")
    report["acknowledged"].append("end")
    report["goes_on"] = found() == sorted(report["acknowledged"])
    db.close()
    say(json.dumps(report))


def hold(folder: str) -> None:
    with tideline.open(folder) as db:
        db.channel("c")
        say("ready")
        sys.stdin.read()


if __name__ == "__main__":
    {"churn": churn, "full": full, "hold": hold}[sys.argv[1]](*sys.argv[2:])
