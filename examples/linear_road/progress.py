"""Where a run stands, so that another process goes on with it after this one was killed.

    second s       -> windows, each append once for s -> answers, in files -> document `run`: done
    a new minute   -> behind the answers of its first second: what is known of cars -> window `cars`

A run that is taken up again has what it knew at the first second of the last minute. It takes the
seconds from there to the last one that was done once more, and tells nobody: what they append has
landed, so it changes nothing. Then it goes on. Of a second that was not done some answers may have
been written; those are not read, and given again.

For one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from examples.linear_road.answers import AnswerFiles
from examples.linear_road.drive import Run
from examples.linear_road.tolls import Tolls
from tideline.errors import InvalidRequest
from tideline.workload.linear_road import LinearRoad

__all__ = ["Progress"]


class Progress:
    """The progress of one run, in its database."""

    def __init__(self, db: Any, road: LinearRoad) -> None:
        self._runs = db.collection("run", key="id")
        self._input = {
            "L": road.expressways, "seconds": road.duration_s, "seed": road.seed,
            "start": road.start_s,
        }  # fmt: skip
        self._first = road.start_s
        self._kept = -1  # the second behind which what is known of cars was stored
        self._minute = -1

    def found(self) -> Run | None:
        """What an earlier process has done, if there was one and its input was the same."""
        document = self._runs.get("now")
        if document is None:
            return None
        if document["input"] != self._input:
            raise InvalidRequest(
                "the folder has a run with other traffic: go on with that, or take another folder",
                folder=document["input"], given=self._input,
            )  # fmt: skip
        self._kept = document["kept"]
        return Run(**document["run"])

    def begin(self) -> Run:
        """A new run, once everything is loaded."""
        run = Run(second=self._first - 1)
        self._put(run)
        return run

    @property
    def known(self) -> int:
        """How many seconds of the input are not needed any more."""
        return max(0, self._kept - self._first + 1)

    def resume(self, app: Tolls, run: Run, batches: Iterator[Any]) -> None:
        """Bring the application to where a run stands, by the batches from `known` on."""
        app.restore(self._kept)
        self._minute = app.now.minute
        for batch in islice(batches, run.second + 1 - self._first - self.known):
            app.second(batch)

    def done(self, app: Tolls, run: Run, answers: AnswerFiles) -> None:
        """A second is done: its answers have been given."""
        answers.write()
        if app.now.minute != self._minute:
            app.keep(run.second)
            self._minute, self._kept = app.now.minute, run.second
        self._put(run)

    def _put(self, run: Run) -> None:
        facts = {name: value for name, value in vars(run).items() if name != "took"}
        self._runs.put({"id": "now", "input": self._input, "kept": self._kept, "run": facts})
