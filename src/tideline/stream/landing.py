"""Rows from elsewhere into a stream window: what Spark's tasks stage, appended as one batch.

    staged     the key, the values, and the time as `at`, whatever the window calls it
    order      by time, where rows have one: a batch then lands as if its rows had come in order,
               and none of it is late because of another. Else as they come
    land       tables of the batch, one append each

`channel/landing.py` `WindowLanding` reads the spool and counts; a table goes through here.
"""

from __future__ import annotations

import pyarrow as pa

from tideline.model import Appended
from tideline.stream.settings import CLOCK
from tideline.stream.window import StreamWindow

__all__ = ["AT", "Arriving"]

AT = "at"
"""What the time is called in staged rows."""


class Arriving:
    """Rows that arrive for a window.

    >>> import tideline
    >>> db = tideline.open(":memory:")
    >>> cars = db.window("cars", span_s=60, key="vid", values={"vel": "int32"}, time="ts",
    ...                  max_ahead_s=float("inf"))
    >>> batch = Arriving(cars)
    >>> staged = pa.table({"vid": [1, 2], "vel": [50, None], "at": [7, 8]})
    >>> batch.order, batch.check(batch.named(staged))
    ('time', {1: 'vel is missing'})
    >>> batch.land(batch.named(staged), ("loader", 1)).stored, cars.get(1)
    (1, {'vel': 50})
    >>> db.close()
    """

    def __init__(self, window: StreamWindow) -> None:
        self._window = window
        self._time = window.settings["time"]
        self.order = "arrival" if self._time == CLOCK else "time"
        """Of the staged rows."""

    def named(self, table: pa.Table) -> pa.Table:
        """Staged rows with their time as the window calls it."""
        if self._time in (CLOCK, AT):
            return table
        names = [self._time if name == AT else name for name in table.column_names]
        return table.rename_columns(names)

    def check(self, table: pa.Table) -> dict[int, str]:
        """What is wrong with rows, by their number; nothing is stored."""
        return self._window._incoming(table).rejected

    def land(self, table: pa.Table, once: tuple[str, int] | None) -> Appended:
        """Append rows; with `once`, those that have landed change nothing."""
        return self._window.append(table, once=once)
