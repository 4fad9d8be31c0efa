"""A process that writes documents until it is killed, for test_engine_faults.py.

churn FOLDER TURN    prints "ready", then a line for every write once it is acknowledged;
                     indexes come and go in between
full FOLDER SEGMENT  writes while files may not grow beyond 8,000 bytes, the log beginning a
                     new one after SEGMENT; then lets them grow; prints a report as JSON
"""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from engine_model import open_engine, records_in, rows_of

from tideline.errors import TidelineError, Unavailable
from tideline.kernels import warm
from tideline.where.keys import encode

FACTS: dict[str, Any] = {
    "indexes": {"n": "embedded", "tag": "lazy", "turn": "composite", "mod": "eager"},
    "policy": {"name": "prefix", "max_bytes": 60_000, "max_count": 3},
    "filter": "n",
}
EXTRA = "pad"  # a field whose index is made and dropped while documents come in


def document(n: int, turn: int) -> dict[str, Any]:
    """What a write with this number holds: told from the number alone."""
    return {"n": n, "tag": f"t{n % 7}", "turn": turn, "mod": [n % 3, n % 5], "pad": "x" * (n % 300)}


def churn(folder: Path, turn: int) -> None:
    engine = open_engine(folder, FACTS)
    choose = random.Random(turn)
    print("ready", flush=True)
    n = turn * 1_000_000
    for step in range(1_000_000):
        writes = []
        for _ in range(choose.randint(1, 20)):
            n += 1
            key = choose.randint(0, 200)
            writes.append((key, None if choose.random() < 0.2 else document(n, turn)))
        engine.write(rows_of(writes))
        print(json.dumps([[key, None if doc is None else doc["n"]] for key, doc in writes]),
              flush=True)  # fmt: skip
        if step % 9 == 4:
            if EXTRA in engine.indexes:
                engine.drop_index(EXTRA)
            else:
                engine.add_index(EXTRA, choose.choice(["embedded", "lazy", "composite", "eager"]))


def full(folder: Path, segment_bytes: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    engine = open_engine(folder, FACTS, segment_bytes=segment_bytes)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, hard))
    report: dict[str, Any] = {"acknowledged": {}, "refused": [], "seal_refused": False}
    for n in range(200):
        try:
            engine.write(rows_of([(n, document(n, 0))]))
            report["acknowledged"][n] = n
        except Unavailable:
            report["refused"].append(n)
    try:
        engine.seal()
    except Unavailable:
        report["seal_refused"] = True
    report["readable"] = all(engine.get(encode(n)) for n in report["acknowledged"])
    found = engine.lookup("tag", encode("t3"), encode("t3"))
    report["found"] = sorted(doc["n"] for _, doc in records_in(found))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for n in range(200, 300):
        try:
            engine.write(rows_of([(n, document(n, 0))]))
            report["acknowledged"][n] = n
        except TidelineError as error:
            report["refused"].append(str(error))
    try:
        engine.drain()
    except Unavailable:
        engine.drain()
    engine.seal()
    engine.check()
    engine.close()
    print(json.dumps(report))


if __name__ == "__main__":
    warm.ensure("documents")  # compiling would write files too
    if sys.argv[1] == "churn":
        churn(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        full(Path(sys.argv[2]), int(sys.argv[3]))
