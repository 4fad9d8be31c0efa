"""Spark beside the demo: its process, and what it says.

    starting --first batch stored--> feeding --the process ends--> off

The process (demo_spark.py) has a session of its own, so that a Ctrl-C at the terminal reaches the
demo alone and the demo can end all of it at once. It may be ended at any moment: what it holds is
temporary, and lies in the demo's folder. If the demo is killed, its stdin ends, and so does it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tideline.errors import TidelineError

__all__ = ["EVERY_S", "SparkFeed"]

EVERY_S = 1.0
"""A batch so often."""
_MOST_S = 1.5 * EVERY_S  # of traffic in a batch: a late batch is no larger
_GRACE_S = 4.0  # for the batch that is being stored, when asked to stop


class SparkFeed:
    """Spark's process. `state` and the batches may be read from any thread."""

    def __init__(
        self, url: str, folder: Path, options: dict[str, Any], ended: Callable[[], None]
    ) -> None:
        """`ended()` is called when Spark cannot be started, or ends by itself."""
        self.state = "starting"
        self.why = ""
        """Why Spark is off."""
        self.batches: deque[tuple[float, dict[str, Any]]] = deque(maxlen=4_000)
        self.counts = dict.fromkeys(("read", "stored", "duplicate", "late", "dead"), 0)
        self._folder = folder
        self._told = {
            "url": url, "folder": str(folder), "every_s": EVERY_S,
            "options": {**options, "most_s": _MOST_S},
        }  # fmt: skip
        self._ended = ended
        self._lock = threading.Lock()
        self._stopping = False
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name="tideline-spark", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def decline(self, why: str) -> None:
        """Do without Spark; instead of `start`."""
        self.state, self.why = "off", why
        self._ended()

    def last(self, seconds: float) -> list[dict[str, Any]]:
        """The batches of the last seconds."""
        horizon = time.monotonic() - seconds
        return [batch for when, batch in list(self.batches) if when >= horizon]

    def stop(self) -> None:
        """End it: after the batch it is at if that is soon, else at once."""
        with self._lock:
            self._stopping = True
            process = self._process
        if process is not None:
            if self.state == "feeding":
                with contextlib.suppress(OSError):
                    assert process.stdin is not None
                    process.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE_S)
            self.kill()
            process.wait()
        if self._thread.ident is not None:
            self._thread.join(_GRACE_S)

    def kill(self) -> None:
        """End it now, with Java and all that it started (any thread, also a signal's handler)."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def _run(self) -> None:
        try:
            self._check()
            self._follow()
        except (TidelineError, OSError) as error:
            self.why = self.why or str(error)
        self.state = "off"
        if not self._stopping:
            self._ended()

    def _check(self) -> None:
        """What is not installed is said at once, not by a process that fails."""
        from tideline.errors import Unavailable
        from tideline.spark.session import find_java

        if importlib.util.find_spec("pyspark") is None:
            raise Unavailable("it needs pyspark: pip install 'tideline[spark]'")
        find_java()

    def _follow(self) -> None:
        errors = self._folder / "stderr.txt"
        with errors.open("w") as stderr, self._lock:
            if self._stopping:
                return
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "tideline.cli.demo_spark"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
                start_new_session=True, env={**os.environ, "TMPDIR": str(self._folder)},
            )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.write(json.dumps(self._told) + "\n")
            process.stdin.flush()
        with process.stdout:
            for text in process.stdout:
                self._take(text)
        process.wait()
        if not self.why and not self._stopping:
            said = errors.read_text(errors="replace").strip().splitlines()
            self.why = said[-1] if said else f"its process ended with {process.returncode}"

    def _take(self, text: str) -> None:
        """A line of the process; other lines are somebody's prints."""
        try:
            said = json.loads(text)
            what = said.pop("is")
        except (ValueError, AttributeError, KeyError, TypeError):
            return
        if what == "failed":
            self.why = said["error"]
        elif what == "batch":
            for name in self.counts:
                self.counts[name] += said[name]
            self.batches.append((time.monotonic(), said))
            if said["stored"]:
                self.state = "feeding"
