"""A collection of the demo that is kept in motion by a thread, whatever visitors do to it.

The collection belongs to the demo. If a visitor drops it, or puts another one in its place, it is
made again with all that is in it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from tideline.errors import Conflict, TidelineError

__all__ = ["Feed"]


class Feed:
    """Writes to the collection `name` every `pause_s`, from `start` to `stop`."""

    name: str

    def __init__(self, database: Any, pause_s: float) -> None:
        self._database = database
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._run, name=f"tideline-{self.name}", daemon=True)

    def settings(self) -> dict[str, Any]:
        """How the collection is made."""
        raise NotImplementedError

    def documents(self) -> Iterable[Any]:
        """All that is in it now."""
        raise NotImplementedError

    def write(self, collection: Any) -> None:
        """Change something."""
        raise NotImplementedError

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the current write."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        collection: Any = None
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                collection = self._made() if collection is None else collection
                self.write(collection)
            except Exception as error:  # the demo goes on, whatever became of the collection
                collection = None
                self._say(error)
            took = time.monotonic() - began
            self._stop.wait(max(self._pause_s - took, took))

    def _made(self) -> Any:
        """The collection, with all that is in it. What a visitor put in its place goes."""
        try:
            found = self._database.collection(self.name, **self.settings())
        except Conflict:
            drop = "drop_channel" if self.name in self._database.channels() else "drop_collection"
            getattr(self._database, drop)(self.name)
            found = self._database.collection(self.name, **self.settings())
        found.put_many(list(self.documents()))
        return found

    def _say(self, error: Exception) -> None:
        """What is no error of ours is a bug: said once, in full."""
        if isinstance(error, TidelineError) or self._told:
            return
        self._told = True
        what = f"tideline: the demo's {self.name} failed, and go on"
        print(f"{what}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
