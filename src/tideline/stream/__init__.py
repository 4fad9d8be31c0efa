"""Stream windows: rows of the last so many seconds, found by key, forgotten a sub-window at a time.

window.py     the object a user holds: append, get, range, watch
settings.py   what a window is, checked
rows.py       what is appended, as arrays: columns.py, rowwise.py -> incoming.py
batch.py      rows as one frame of the log
memory.py     sub-windows in memory; what there is at one moment
landing.py    rows that Spark staged, appended as one batch
engine.py     log, slides, watchers: a client of lsm/dataset.py
publishing.py the state that readers see, and how batches and slides make the next one
sealing.py    closed and large sub-windows become one run, in memory or on disk
recovery.py   facts, and the memory again from the log
reading.py    searches over the sub-windows of a moment
finding.py    rows that meet a condition, by the indexes of their runs
moments.py    what there was at a moment, held for who reads it in parts
tables.py     rows as tables and dicts
mappers.py    what a range becomes: sums, quantiles, functions of the user's
sliding.py    aggregates of a window that moves, kept by sub-windows
watching.py   panes, told as the window slides
"""

from tideline.stream.watching import Watch
from tideline.stream.window import StreamWindow

__all__ = ["StreamWindow", "Watch"]
