"""Kafka for real: operations from a topic through the pipeline, answers to another topic.

The broker is a real one (kafka_broker.py). The config and the program are those of
docs/guide/kafka.md, in a process that is killed in the middle. A consumer that is not Spark's reads
the answers.

Spark's Kafka sink is at-least-once: a micro-batch of answers that was sent but not noted down
before the kill is sent again. So the consumer takes the first message of each (subscription,
event) and holds the others to be the same text. The store itself gives every answer
once: that is looked up in its journal.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_broker import Broker, connector_jars
from kafka_broker import kafka as kafka  # a fixture

import tideline

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide" / "kafka.md"
BAD = ['{"op":"publish","id":"x1",', "not JSON at all", '{"op":"shout","id":"x2","road":"r1"}']

BEFORE = """
import os, sys, threading

def die_with_the_test():  # its end of the pipe closes when it is gone
    sys.stdin.read()
    os._exit(1)

threading.Thread(target=die_with_the_test, daemon=True).start()
"""


def from_the_guide(kind: str, address: str) -> str:
    """The one block of a kind in the guide, for this broker, with jars instead of the registry."""
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)
    package = '"org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"'
    fetched, local = {
        "toml": (f"packages = [{package}]", f'config = {{ "spark.jars" = "{connector_jars()}" }}'),
        "py": (f'"spark.jars.packages": {package}', f'"spark.jars": "{connector_jars()}"'),
    }[kind]
    for old, new in ((fetched, local), ("localhost:9092", address)):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def operations(count: int, seed: int = 5) -> list[dict[str, Any]]:
    """Events and subscriptions on a few roads, one a millisecond, all valid until tomorrow."""
    draw = random.Random(seed)
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    until = start + timedelta(days=1)
    made = []
    for number in range(count):
        at = start + timedelta(milliseconds=number)
        row: dict[str, Any] = {"at": at, "until": until, "road": f"r{draw.randrange(400)}"}
        if draw.random() < 0.4:
            row |= {"op": "subscribe", "id": f"s{number}", "user": f"u{draw.randrange(50)}"}
            row["since"] = at - timedelta(milliseconds=draw.randrange(1000))
            if draw.random() < 0.5:
                row["where"] = json.dumps({"speed": {"$lt": draw.randrange(120)}})
        else:
            row |= {"op": "publish", "id": f"e{number}", "speed": draw.randrange(120)}
            row["kind"] = draw.choice(["jam", "ice", "fog"])
        made.append(row)
    return made


def messages(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """As they are sent. All of one road have one key, so that Kafka keeps their order."""
    return [(row["road"], json.dumps(row, default=lambda value: value.isoformat())) for row in rows]


def expected(rows: list[dict[str, Any]], folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What an embedded channel answers, by (subscription, event)."""
    at = {row["id"]: row["at"] for row in rows}
    names = ("op", "id", "road", "user", "at", "since", "until", "where")
    columns = {name: [row.get(name) for row in rows] for name in names}
    columns["place"] = columns.pop("road")
    columns["body"] = [
        json.dumps({"kind": row["kind"], "speed": row["speed"]}) if "speed" in row else None
        for row in rows
    ]
    with tideline.open(folder) as db:
        told = db.channel("roads").apply(pa.table(columns))
        assert told.rejected.num_rows == 0
        found = told.answers.to_pylist()
    for answer in found:
        caused = at[columns["id"][answer.pop("row")]]
        answer["at"] = caused.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {(answer["subscription"], answer["event"]): answer for answer in found}


class Job:
    """The process under test, as a group of processes that end together."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "roads.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "roads.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True, cwd=folder, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            )  # fmt: skip

    def kill(self) -> None:
        """As if the machine had lost its power: nobody gets to say goodbye."""
        if self.process.poll() is None:
            self._kill_all()
        self.process.communicate()

    def end(self) -> dict[str, int]:
        """Ask it to end; what it says it has done since it began."""
        self.process.terminate()
        assert self.process.stdout is not None
        timer = threading.Timer(60, self._kill_all)
        timer.start()
        said = self.process.stdout.read()
        timer.cancel()
        assert self.process.wait() == 0, self.log.read_text()[-5000:]
        done: dict[str, int] = ast.literal_eval(said)
        return done

    def _kill_all(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)


class Consumer:
    """Takes messages as they come: the first of each answer counts, others must be the same."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.answers: dict[tuple[str, str], dict[str, Any]] = {}

    def take(self, value: str) -> bool:
        """Take a message; True when there are as many answers as wanted."""
        answer = json.loads(value)
        pair = (answer["subscription"], answer["event"])
        assert self.answers.setdefault(pair, answer) == answer
        return len(self.answers) >= self.wanted


def test_answers_reach_kafka_once_each_over_a_kill_in_the_middle(
    kafka: Broker, tmp_path: Path
) -> None:
    rows = operations(6_000)
    want = expected(rows, tmp_path / "embedded")
    first_half = expected(rows[:3_000], tmp_path / "half")
    assert len(first_half) > 1_000
    topic, out = kafka.topic("operations"), kafka.topic("answers")
    config = from_the_guide("toml", kafka.address).replace("100_000", "500")  # many batches
    (tmp_path / "pipeline.toml").write_text(config, "utf-8")
    (tmp_path / "roads.py").write_text(BEFORE + from_the_guide("py", kafka.address), "utf-8")
    kafka.send(topic, messages(rows[:3_000]))
    kafka.send(topic, [("r1", text) for text in BAD])

    job = Job(tmp_path)
    consumer = Consumer(len(want))
    try:
        kafka.read(out, Consumer(50).take)
        job.kill()
        assert kafka.count(out) < len(first_half)  # it was the middle
        kafka.send(topic, messages(rows[3_000:]))
        job = Job(tmp_path)
        kafka.read(out, consumer.take, timeout_s=400)
        totals = job.end()
    finally:
        job.kill()

    # What came after the last answer that was waited for is looked at too.
    sent = kafka.count(out)
    consumer.wanted = len(want) + 1
    numbers = itertools.count(1)
    kafka.read(out, lambda value: consumer.take(value) or next(numbers) == sent)
    assert consumer.answers == want
    assert totals["read"] == len(rows) + len(BAD)
    assert totals["stored"] == len(rows)
    assert totals["dead"] == len(BAD)
    with tideline.open(tmp_path / "data") as db:
        roads = db.channel("roads")
        given, _ = roads.journal("answers", limit=10 * len(want))
        names = (given[name].to_pylist() for name in ("subscription", "event"))
        once = list(zip(*names, strict=True))
        assert len(once) == len(set(once))
        assert set(once) == set(want)
        assert roads.stats().events == sum(row["op"] == "publish" for row in rows)


def test_the_changes_of_a_table_come_from_debezium_as_they_are(
    kafka: Broker, tmp_path: Path
) -> None:
    topic = kafka.topic("cars")
    draw = random.Random(9)
    rows: dict[int, int] = {}
    sent: list[tuple[str, str]] = []
    for rev in range(1, 401):
        key = draw.randrange(30)
        row = {"id": key, "name": f"n{rev}", "updated": rev}
        op = "d" if key in rows and draw.random() < 0.2 else "u" if key in rows else "c"
        told: dict[str, Any] = {"op": op, "ts_ms": rev, "source": {"table": "cars"}}
        told |= {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        sent.append((str(key), json.dumps(told if rev % 2 else {"payload": told})))
        if op == "d":
            del rows[key]
        else:
            rows[key] = rev
    kafka.send(topic, sent)
    pattern = r"## Changes of a database\n.*?```\n(.*?)```"
    (block,) = re.findall(pattern, GUIDE.read_text("utf-8"), re.S)
    block = block.replace("localhost:9092", kafka.address).replace("shop.public.cars", topic)
    block = block.replace("subscribe =", "maxOffsetsPerTrigger = 150, subscribe =")
    config = f'''{block}
[spark]
master = "local[2]"
memory = "1g"
config = {{ "spark.jars" = "{connector_jars()}" }}
'''
    (tmp_path / "pipeline.toml").write_text(config, "utf-8")
    for _ in range(2):  # the second finds nothing new
        done = subprocess.run(
            [sys.executable, "-m", "tideline", "pipeline", "run", "pipeline.toml", "--json"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True,
            text=True, timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        totals = json.loads(done.stdout.splitlines()[-1])["totals"]
        assert (totals["read"], totals["stored"], totals["dead"]) == (400, 400, 0)
    with tideline.open(tmp_path / "data") as db:
        found = db.collection("cars").find()
    assert {each["id"]: each["updated"] for each in found} == rows


def test_a_broker_that_is_not_there_is_said_in_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        nobody = f"127.0.0.1:{held.getsockname()[1]}"
    patience = '"kafka.default.api.timeout.ms" = 4000\n"kafka.request.timeout.ms" = 2000\n\n[parse]'
    config = from_the_guide("toml", nobody).replace("[parse]", patience)
    (tmp_path / "pipeline.toml").write_text(config, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tideline", "pipeline", "run", "pipeline.toml"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True,
        timeout=400,
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "Kafka cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert "\tat org.apache" not in done.stderr


def test_the_example_goes_from_kafka_to_kafka() -> None:
    done = subprocess.run(
        [sys.executable, "examples/kafka_pipeline", "--messages", "400"], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True,
        timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the pipeline stored 400, dead letters: 1" in done.stdout
    assert "300 events" in done.stdout
    assert re.search(r"driver \d+ is told of e\d+", done.stdout)
