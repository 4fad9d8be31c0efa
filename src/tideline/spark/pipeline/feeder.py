"""The thread that stores: batches of the queue, one after the other, while Spark reads the next.

    reader (Spark's thread)        feeder
    queue(12)                      feed(11)
    put(12)  -> waits while one    feed(12)
    ...         batch waits

At most one batch is being stored and one waits, so memory stays bounded and Spark is held back
when the store is slower. A batch is on disk before it is put here: a kill leaves it in the
queue, and the next run stores it first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tideline.errors import Closed, Conflict, InvalidRequest, TidelineError, Unavailable
from tideline.spark.pipeline.config import Config
from tideline.spark.pipeline.counts import Batch
from tideline.spark.pipeline.feed import feed
from tideline.spark.pipeline.state import State

if TYPE_CHECKING:
    from tideline.channel import Channel
    from tideline.model import Applied

__all__ = ["Feeder"]

Job = tuple[int, pa.Table, pa.Table | None, dict[str, Any]]


class Feeder:
    """Stores batches in its own thread. `put` and `finish` are for one other thread."""

    def __init__(
        self, channel: Channel, state: State, config: Config,
        tell: Callable[[Batch, Applied], None],
    ) -> None:  # fmt: skip
        self._channel = channel
        self._state = state
        self._config = config
        self._tell = tell
        self._changed = threading.Condition()
        self._next: Job | None = None
        self._ending = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tideline-feeder", daemon=True)

    def catch_up(self) -> None:
        """Store what an earlier run left in the queue; in the caller's thread, before `start`."""
        for number in self._state.waiting():
            self._feed((number, *self._state.load(number)), again=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, job: Job) -> bool:
        """Hand over a batch; waits while another one waits. False when the feeder has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is None or self.error is not None)
            if self.error is None:
                self._next = job
                self._changed.notify_all()
            return self.error is None

    def finish(self) -> None:
        """Store what waits, then end. Raises what went wrong."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None or self._ending)
                job, self._next = self._next, None
                self._changed.notify_all()
            if job is None:
                return
            try:
                self._feed(job)
            except BaseException as error:
                with self._changed:
                    self.error = error
                    self._changed.notify_all()
                return

    def _feed(self, job: Job, *, again: bool = False) -> None:
        try:
            batch, applied = feed(self._channel, self._state, self._config, *job, again=again)
        except Conflict:
            raise
        except (TidelineError, OSError) as error:
            kind = type(error) if isinstance(error, (Closed, InvalidRequest)) else Unavailable
            raise kind(
                f"the store could not take batch {job[0]}: {error}. It is kept in the checkpoint: "
                "start the pipeline again, and it goes on from there"
            ) from error
        self._tell(batch, applied)
