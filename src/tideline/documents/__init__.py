"""Documents by primary key, with secondary indexes.

collection.py   the verbs: put, get, lookup, find, ...
rows.py         documents as users give them -> rows; convert.py a table -> JSON
extract.py      rows -> index entries
plan.py         condition -> which index, or several (intersection.py); search.py goes that way,
                explaining.py tells of it
indexing.py     an index on what is stored; advise.py which kind for which field
changes.py      following what is written; follower.py reads the log, feed.py keeps it
engine.py       memory, log, components, merges; reading.py and writing.py, how it is read and
                written; types.py what goes in and out of it
"""

from __future__ import annotations

from tideline.documents.changes import Changes
from tideline.documents.collection import Collection

__all__ = ["Changes", "Collection"]
