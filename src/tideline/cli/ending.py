"""How the demo ends: Ctrl-C, SIGTERM, its time, and at the latest by force.

    starting    a signal ends it at once (KeyboardInterrupt): there is nothing to sum up yet
    running     a signal sets `stop`; the demo closes everything in good order
    stopping    a second signal, or `_LATEST_S` later a thread, ends the process by force

By force means: Spark's processes are killed, the folder is removed, the process is gone. All that
the demo holds is temporary, so nothing is lost by that. The thread is there for a machine so busy
that closing takes long, and for a main thread that waits for something that never comes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Ending"]

_LATEST_S = 10.0
_TRIES = 100  # to delete the folder
_SHOW_CURSOR = b"\x1b[?25h"


class Ending:
    """A context: signals are the demo's inside it. Use it from the main thread."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        """Set when the demo has been told to stop."""
        self.running = False
        """Whether there is something to close in good order."""
        self.folder: Path | None = None
        self.kill: Callable[[], None] = lambda: None
        """Ends Spark's processes at once."""
        self._done = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Ending:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._asked)
        threading.Thread(target=self._watch, name="tideline-ending", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.stop.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begin(self) -> None:
        """Stopping begins: from now on it takes a bounded time."""
        self.stop.set()

    def _asked(self, number: int, frame: object) -> None:
        if self.stop.is_set():
            self._force(130)
        self.stop.set()
        if not self.running:
            raise KeyboardInterrupt

    def _watch(self) -> None:
        self.stop.wait()
        if not self._done.wait(_LATEST_S):
            self._force(0)

    def _force(self, code: int) -> None:
        with contextlib.suppress(Exception):
            self.kill()
        if self.folder is not None:
            for _ in range(_TRIES):  # other threads still write into it
                shutil.rmtree(self.folder, ignore_errors=True)
                if not self.folder.exists():
                    break
        with contextlib.suppress(OSError):
            if sys.stdout.isatty():
                os.write(1, _SHOW_CURSOR)
            os.write(2, b"\ntideline: ended without waiting for what was still running\n")
        os._exit(code)
