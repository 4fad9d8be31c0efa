"""The demo as a user meets it: a real process, its page in a real browser, visitors, Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import tideline
from tideline.cli.traffic import Traffic
from tideline.space import QuadTree
from tideline.workload.fleet import Fleet
from tideline.workload.newyork import BOUNDS

pytestmark = pytest.mark.spark

SOURCE = Path(__file__).resolve().parents[1] / "src"
TIMEOUT_S = 240


class Demo:
    """`tideline demo` in a process group of its own, as a terminal would start it."""

    def __init__(self, tmp_path: Path, *words: str, terminal: bool = False, **more: str) -> None:
        """`terminal`: its output is a terminal, and it shows its table there."""
        self.mark = f"demo-{uuid.uuid4()}"
        self.temp = tmp_path / "temp"
        self.temp.mkdir()
        env = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(SOURCE)}
        for name in ("DEMO_S", "DISPLAY", "WAYLAND_DISPLAY"):
            env.pop(name, None)
        env |= {
            "TERM": "xterm" if terminal else "dumb", "COLUMNS": "100", "LINES": "40",
            "TMPDIR": str(self.temp), "TIDELINE_TEST": self.mark, **more,
        }  # fmt: skip
        out: Any = subprocess.PIPE
        if terminal:
            ours, out = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tideline", "demo", *words],
            cwd=tmp_path, env=env, stdout=out, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        if terminal:
            os.close(out)
            self.process.stdout = os.fdopen(ours, encoding="utf-8", errors="replace")
        self.said: list[str] = []
        self.errors: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._read), threading.Thread(target=self._read_errors)
        ]  # fmt: skip
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read on until a line matches."""
        limit = time.monotonic() + TIMEOUT_S
        while True:
            line = self._lines.get(timeout=max(0.1, limit - time.monotonic()))
            assert line is not None, "".join([*self.said, *self.errors])
            self.said.append(line)
            if found := re.search(pattern, line):
                return found

    def end(self, expected: int = 0) -> str:
        """Wait for its end; all it said."""
        code = self.process.wait(TIMEOUT_S)
        for thread in self._threads:
            thread.join()
        while (line := self._lines.get()) is not None:
            self.said.append(line)
        text = "".join(self.said)
        assert code == expected, text + "".join(self.errors)
        assert "Traceback" not in "".join(self.errors)
        return text

    def left(self) -> list[str]:
        """Processes that were started by it and are still there, by their environment."""
        return [words[:200] for _, words in self._started()]

    def spark(self) -> int:
        """The process that feeds by Spark."""
        return next(number for number, words in self._started() if "demo_spark" in words)

    def _started(self) -> list[tuple[int, str]]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    words = (folder / "cmdline").read_bytes().decode()
                    found.append((int(folder.name), words))
            except OSError:
                continue  # it ended, or is somebody else's
        return found

    def close(self) -> None:
        """For a test that failed: nothing may stay behind."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        for number, _ in self._started():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self.process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*words: str, terminal: bool = False, **env: str) -> Demo:
        started.append(Demo(tmp_path, *words, terminal=terminal, **env))
        return started[-1]

    yield start
    for each in started:
        each.close()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def send(method: str, url: str, body: bytes) -> int:
    """A request as somebody might send it; the status of whatever is answered."""
    asked = urllib.request.Request(url, data=body, method=method)
    asked.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code
    except OSError:
        return 0  # the server hung up before it had read all of it


def until(true: Callable[[], bool]) -> None:
    """Wait for a condition."""
    limit = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_it_stops_by_itself_and_sums_up(demo: Callable[..., Demo]) -> None:
    running = demo("--drivers", "200", "--port", "0", DEMO_S="1.5")
    text = running.end()
    assert "s, 200 drivers\n" in text
    assert re.search(r"the server: [1-9][\d,]* subscriptions, [1-9][\d,]* events, ", text)
    assert "\x1b[" not in text  # TERM=dumb: no colours, no cursor moves
    assert list(running.temp.iterdir()) == []
    until(lambda: running.left() == [])


def test_traffic_runs_at_once_spark_joins_and_ctrl_c_stops_all_of_it(
    demo: Callable[..., Demo], tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        running = demo("--drivers", "300", "--port", str(port))
        running.wait_for(f"Port {port} is in use; \\d+ is free.")
    url = running.wait_for(r"The live map is at (http://\S+)")[1]
    assert get(url + "/healthz")
    # There is life before Spark is up, and the terminal says why there is not more of it.
    running.wait_for(r"[1-9][\d,]* answers/s .*[1-9]\d* valid, [\d,]+ open.*Spark: starting")
    running.wait_for(r"Spark: feeding [1-9][\d,]* rows/s")
    with ThreadPoolExecutor(1) as aside:  # a thread has one Playwright: this one may have its own
        aside.submit(look, url, tmp_path / "demo.png").result()

    os.killpg(running.process.pid, signal.SIGINT)  # as a terminal does: all of the group
    text = running.end()
    assert "300 drivers" in text
    assert re.search(r"Spark: \d+ batches; rows: ([\d,]+) read, \1 stored, 0 dup.*, 0 dead", text)
    assert list(running.temp.iterdir()) == []
    until(lambda: running.left() == [])
    with pytest.raises(urllib.error.URLError):
        get(url + "/healthz")


BODIES = [
    b"null", b"[]", b"17", b"-1.5e300", b"true", b'""', b"{}", b'"text"', b"[" * 500 + b"]" * 500,
    b'{"kind": null}', b'{"kind": ["a"]}', b'{"road": 1}', b'{"kind": {}, "near": [1], "road": {}}',
    b'{"kind": "[/nope]", "near": "[red]", "road": "[link"}',  # markup of the terminal's table
    rb'{"kind": "\u001b[2J\u0007\n\r", "near": "\u202e"}', '{"kind": "\u6ce2 \U0001f30a"}'.encode(),
    rb'{"kind": "\ud800"}', b'{"kind": 123456789012345678901234567890}', b'{"kind": 1e999}',
    b'{"kind": "' + b"long " * 20_000 + b'"}', b'{"kind": "' + b"x" * 2_000_000 + b'"}', b"{", b"",
]  # fmt: skip
SUBSCRIPTIONS = [
    b"null", b"[]", b'{"place": null, "user": "u"}', b'{"place": [-75, 43], "user": 17}',
    b'{"place": {"box": [-79.8, 40.4, -71.8, 45.1]}, "user": "u", "until_s": 60, "unseen": true}',
    b'{"place": {"circle": [-75, 43, 1e9]}, "user": "driver-1", "until_s": 1e9}',
    b'{"place": [-75, 43], "user": "u", "where": {"kind": {"$regex": "(a|b)*c"}}}',
    b'{"place": [-75, 43], "user": "u", "where": {"$nope": 1}}',
]  # fmt: skip


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_a_visitor_sends_ends_it(demo: Callable[..., Demo], terminal: bool) -> None:
    """Whatever is published, asked, cancelled or dropped, the traffic goes on."""
    running = demo("--drivers", "100", "--port", "0", "--no-spark", terminal=terminal)
    url = running.wait_for(r"The live map is at (http://[\d.:]+)")[1]
    roads = f"{url}/v1/channels/roads"
    for body in BODIES:
        send("POST", f"{roads}/events", b'{"place": [-75, 43], "ttl_s": 60, "body": %b}' % body)
        send("POST", f"{roads}/events", body)
    for body in SUBSCRIPTIONS:
        send("POST", f"{roads}/subscriptions", body)
    # Ids that the traffic is about to use, and the questions of others.
    for number in range(0, 60, 3):
        event = {"id": f"i{number}", "place": [-75, 43], "body": None, "ttl_s": 60}
        send("POST", f"{roads}/events", json.dumps(event).encode())
    for listed in json.loads(get(f"{roads}/subscriptions"))["subscriptions"][:200]:
        send("DELETE", f"{roads}/subscriptions/{quote(listed['id'])}", b"")
    assert send("PUT", f"{url}/v1/channels/other", b'{"space": {"kind": "topics"}}') < 300
    send("POST", f"{url}/v1/channels/other/events", b'{"place": "a/b", "body": null}')
    send("DELETE", f"{url}/v1/channels/other", b"")

    def alive() -> bool:
        try:
            found = json.loads(get(roads))
        except urllib.error.HTTPError as error:
            error.close()
            return False  # between dropped and made again
        stats = found["stats"]
        kind = found["space"]["kind"]
        return bool(kind == "quadtree" and stats["events"] and stats["subscriptions"] > 50)

    until(alive)
    assert send("DELETE", roads, b"") < 300
    until(alive)
    assert send("DELETE", roads, b"") < 300
    send("PUT", roads, b'{"space": {"kind": "topics"}}')  # this or the demo is first
    until(alive)
    running.process.send_signal(signal.SIGTERM)
    text = running.end()
    assert "100 drivers" in text
    assert "Traceback" not in text
    assert list(running.temp.iterdir()) == []


def test_term_ends_it_while_spark_starts(demo: Callable[..., Demo]) -> None:
    running = demo("--drivers", "100", "--port", "0")
    running.wait_for("Spark: starting")
    until(lambda: any("java" in each for each in running.left()))
    running.process.send_signal(signal.SIGTERM)
    assert "it had not started when the demo ended" in running.end()
    assert list(running.temp.iterdir()) == []
    until(lambda: running.left() == [])


@pytest.mark.parametrize(
    "signals",
    [pytest.param([signal.SIGINT], marks=pytest.mark.long), [signal.SIGINT, signal.SIGTERM]],
)
def test_it_ends_though_spark_hangs_and_a_second_signal_forces_it(
    demo: Callable[..., Demo], signals: list[int]
) -> None:
    running = demo("--drivers", "100", "--port", "0")
    running.wait_for("Spark: feeding")
    os.kill(running.spark(), signal.SIGSTOP)  # it will not stop when asked
    for number in signals:  # two of one kind might arrive as one
        running.process.send_signal(number)
    if len(signals) == 1:
        assert "100 drivers" in running.end()
    else:
        running.end(130)
        assert "without waiting" in "".join(running.errors)
    assert list(running.temp.iterdir()) == []
    until(lambda: running.left() == [])


@pytest.mark.parametrize("when", ["starts", pytest.param("feeds", marks=pytest.mark.long)])
def test_spark_ends_when_the_demo_is_killed(demo: Callable[..., Demo], when: str) -> None:
    running = demo("--drivers", "100", "--port", "0")
    running.wait_for("Spark: starting" if when == "starts" else "Spark: feeding")
    until(lambda: any("java" in each for each in running.left()))
    running.process.kill()
    until(lambda: running.left() == [])


@pytest.mark.parametrize(
    ("missing", "says"),
    [("java", "Spark: off, Spark needs Java 17"), ("pyspark", "Spark: off, this needs pyspark")],
)
def test_without_spark_it_runs_and_says_so(
    demo: Callable[..., Demo], tmp_path: Path, missing: str, says: str
) -> None:
    env = {"JAVA_HOME": str(tmp_path)}
    if missing == "pyspark":
        (tmp_path / "none").mkdir()
        (tmp_path / "none" / "pyspark.py").write_text("raise ImportError('not installed')")
        env = {"PYTHONPATH": f"{tmp_path / 'none'}:{os.environ.get('PYTHONPATH') or SOURCE}"}
    running = demo("--drivers", "200", "--port", "0", **env)
    running.wait_for(says)
    # This process drives the other half too: 200 drivers, each with about two questions open.
    running.wait_for(r" (2[5-9]\d|[3-9]\d\d) open")
    running.process.send_signal(signal.SIGTERM)
    assert says in running.end().rpartition("200 drivers")[2]


def test_a_store_that_is_late_gets_less_traffic(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        roads = db.channel("roads", space=QuadTree(bounds=BOUNDS, depth=9), journal_s=60)
        traffic = Traffic(lambda: roads, Fleet(drivers=1_000, drivers_s=1_000, incidents_s=1))
        began = time.monotonic()
        traffic.start()
        until(lambda: roads.stats().subscriptions > 0)
        with roads.core.engine.lock:  # nothing is stored meanwhile
            time.sleep(4)
        stored = roads.stats().subscriptions
        until(lambda: roads.stats().subscriptions > stored)
        until(lambda: traffic.pace < 0.9)
        traffic.stop()
        took = time.monotonic() - began
        assert roads.stats().subscriptions < 1_000 * (took - 2)  # what was not made is not made up


def look(url: str, picture: Path) -> None:
    """The page in a browser: drivers on it, the figures running, no error."""
    from playwright.sync_api import sync_playwright

    names = [os.environ.get("CHROMIUM") or "chromium", "chromium-browser", "google-chrome"]
    path = next(found for name in names if (found := shutil.which(name)))
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(TIMEOUT_S * 1000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        page.goto(url)
        page.wait_for_selector("#said >> text=/Spark: feeding [1-9]/")
        page.wait_for_function("() => parseInt(document.querySelector('#frames').title) > 250")
        for figure in ("#rate-answers", "#latency-p50"):
            page.wait_for_function(
                "(name) => parseFloat(document.querySelector(name).textContent) > 0", arg=figure
            )
        page.screenshot(path=picture)
        browser.close()
    assert errors == []
