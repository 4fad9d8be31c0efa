"""A server killed in the middle of `update_many`: every document is old or new, none is both."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import tideline
from tideline.errors import Unavailable

COUNT = 100_000
SERVING = Path(__file__).with_name("serving.py")
PATIENCE_S = 300.0


def test_a_killed_update_leaves_every_document_old_or_new(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with tideline.open(folder) as db:
        cars = db.collection("cars", key="id", indexes={"n": "lazy"})
        cars.put_many([{"id": n, "n": 0, "pad": "x" * 40} for n in range(COUNT)])
    # The port is not known before it listens: the process says it.
    process = subprocess.Popen(
        [sys.executable, str(SERVING), str(folder), "0"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready, url = process.stdout.readline().split()
        assert ready == "ready"
        with tideline.connect(url, timeout_s=PATIENCE_S) as remote:
            cars = remote.collection("cars")
            before = cars.position()
            told: list[object] = []

            def update() -> None:
                try:
                    told.append(cars.update_many({}, {"$inc": {"n": 1}}))
                except Unavailable as error:
                    told.append(error)

            worker = threading.Thread(target=update)
            worker.start()
            watching = remote.collection("cars")
            deadline = time.monotonic() + PATIENCE_S
            while watching.position() == before and not told and time.monotonic() < deadline:
                pass  # until a first part has landed
            process.kill()
            worker.join(PATIENCE_S)
            assert told, "the call ends when the server does"
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        process.stdout.close()  # type: ignore[union-attr]

    with tideline.open(folder) as db:
        cars = db.collection("cars")
        assert cars.count() == COUNT
        old, new = cars.count({"n": 0}), cars.count({"n": 1})
        assert old + new == COUNT
        assert len(cars.lookup("n", 1)) == new
        if not isinstance(told[0], Exception):
            assert told[0] == tideline.Updated(COUNT, COUNT)
            assert new == COUNT
        # A version is the seq of its write: new ones come after all old ones, each once.
        assert cars.position() == before + new
        batches = [
            (batch["seq"].to_pylist(), batch["document"].to_pylist()) for batch in cars.scan()
        ]
        seqs = [seq for part, _ in batches for seq in part]
        news = {seq for part, texts in batches for seq, text in zip(part, texts, strict=True)
                if '"n":1' in text}  # fmt: skip
        assert news == set(range(before + 1, before + new + 1))
        assert len(set(seqs)) == COUNT
        db.check()
