"""Live queries: a question to a collection that is answered now and stays answered.

collection.py   the verbs: watch, watch_groups, watch_again, explain_watch
live.py         the handle of a user: result, take, for, async for; handed.py its changes
hub.py          one a collection: matches what is written and tells everybody who asked
following.py    reads the log for it, keeps blocks that handles have not read yet, has a thread
entries.py      one a distinct query, shared by everybody who asks it
window.py       the sort stage; groups.py the stage of groups
difference.py   two results compared; remaining.py places among what is left
resume.py       the state at an earlier version, and what was missed since
query.py        what is asked, checked; its canonical text; tokens
notes.py        what the filter stage found in some writes
"""

from __future__ import annotations

from tideline.live.collection import Collection
from tideline.live.live import Live

__all__ = ["Collection", "Live"]
