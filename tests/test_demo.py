"""The demo as a user meets it: a real process, its page in a real browser, Ctrl-C."""

from __future__ import annotations

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

import pytest

pytestmark = pytest.mark.spark

SOURCE = Path(__file__).resolve().parents[1] / "src"
TIMEOUT_S = 120


class Demo:
    """`tideline demo` in a process group of its own, as a terminal would start it."""

    def __init__(self, tmp_path: Path, *words: str, **more: str) -> None:
        self.mark = f"demo-{uuid.uuid4()}"
        self.temp = tmp_path / "temp"
        self.temp.mkdir()
        env = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(SOURCE)}
        for name in ("DEMO_S", "DISPLAY", "WAYLAND_DISPLAY"):
            env.pop(name, None)
        env |= {"TERM": "dumb", "TMPDIR": str(self.temp), "TIDELINE_TEST": self.mark, **more}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tideline", "demo", *words],
            cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
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

    def end(self) -> str:
        """Wait for its end; all it said."""
        code = self.process.wait(TIMEOUT_S)
        for thread in self._threads:
            thread.join()
        while (line := self._lines.get()) is not None:
            self.said.append(line)
        text = "".join(self.said)
        assert code == 0, text + "".join(self.errors)
        assert "Traceback" not in "".join(self.errors)
        return text

    def left(self) -> list[str]:
        """Processes that were started by it and are still there, by their environment."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().decode()[:200])
            except OSError:
                continue  # it ended, or is somebody else's
        return found

    def close(self) -> None:
        """For a test that failed: nothing may stay behind."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*words: str, **env: str) -> Demo:
        started.append(Demo(tmp_path, *words, **env))
        return started[-1]

    yield start
    for each in started:
        each.close()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def test_it_stops_by_itself_and_sums_up(demo: Callable[..., Demo]) -> None:
    text = demo("--drivers", "200", "--port", "0", DEMO_S="1.5").end()
    assert "200 drivers" in text
    assert "told live" in text
    assert " 0 dead" in text
    assert "\x1b[" not in text  # TERM=dumb: no colours, no cursor moves
    # The pipeline and the server count the same answers.
    [(told,)] = [m.groups() for m in re.finditer(r"^  ([\d,]+) answers:", text, re.MULTILINE)]
    assert f" subscriptions, {told} answers; to a socket" in text


def test_ctrl_c_stops_server_spark_and_page(demo: Callable[..., Demo], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        running = demo("--drivers", "300", "--port", str(port))
        running.wait_for(f"Port {port} is in use; \\d+ is free.")
    url = running.wait_for(r"The live map is at (http://\S+)")[1]
    assert get(url + "/healthz")
    running.wait_for(r"[1-9]\d* valid, [\d,]+ open")
    with ThreadPoolExecutor(1) as aside:  # a thread has one Playwright: this one may have its own
        aside.submit(look, url, tmp_path / "demo.png").result()

    os.killpg(running.process.pid, signal.SIGINT)  # as a terminal does: all of the group
    text = running.end()
    assert "300 drivers" in text
    assert "told live" in text
    assert list(running.temp.glob("tideline-demo-*")) == []
    assert running.left() == []
    with pytest.raises(urllib.error.URLError):
        get(url + "/healthz")


def look(url: str, picture: Path) -> None:
    """The page in a browser: drivers on it, the figures running, no error."""
    from playwright.sync_api import sync_playwright

    names = [os.environ.get("CHROMIUM") or "chromium", "chromium-browser", "google-chrome"]
    path = next(found for name in names if (found := shutil.which(name)))
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        page.goto(url)
        page.wait_for_function("() => parseInt(document.querySelector('#frames').title) > 250")
        page.wait_for_function(
            "() => parseFloat(document.querySelector('#rate-answers').textContent) > 0"
        )
        page.wait_for_function(
            "() => parseFloat(document.querySelector('#latency-p50').textContent) > 0"
        )
        page.screenshot(path=picture)
        browser.close()
    assert errors == []
