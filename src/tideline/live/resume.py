"""Going on after a version: the result that a query had then, and what it has missed since.

    log, from the version on -> the writes that concern the query, with old and new documents
    a view of now            -> what meets the condition, with each document that was written since
                                taken back to what it was: the result at the version
    the same stages          -> forward again, write by write

A window finds as many documents more than it shows as were written since: at least as many as it
shows were not, and these never leave. So nothing is lacking on the way forward.

Newest first, a document's place is the seq of its last write, which the log does not tell of an
old version. It is found where it was written: the log is read from the place of the last document
that the window can show at all, of those that were not written since. What is older than that
cannot come in.

Called with the hub's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tideline.documents.feed import Feed
from tideline.documents.follower import Follower, Part
from tideline.errors import InvalidRequest, Unavailable
from tideline.live.entries import Entry, StagedEntry, item_of, rank_of
from tideline.live.groups import Groups
from tideline.live.item import Item
from tideline.live.notes import ADD, CHANGE, REMOVE, Note, plain_change
from tideline.live.query import GroupQuery, Query
from tideline.live.window import Window, ranked
from tideline.model import LiveChange
from tideline.where import Condition
from tideline.where.batch import matching
from tideline.where.keys import decode

if TYPE_CHECKING:
    from tideline.live.hub import Hub

__all__ = ["Missed", "missed"]


class Missed(NamedTuple):
    """The result at a version, and what happened from then on up to another."""

    items: list[Item]
    changes: list[LiveChange]
    version: int


def missed(hub: Hub, entry: Entry, after: int, *, result: bool = False) -> Missed | None:
    """What an entry's query missed since a version; None when that is not kept any more.

    `result`: with the result at that version; a query with positions has it anyway.
    """
    hub.advance()
    if isinstance(entry, StagedEntry) and entry.ready:
        entry.catch_up()
    view = hub.committed_view()
    upto = view.seq
    if isinstance(entry, StagedEntry) and entry.ready:
        upto = entry.version
    if after > upto:
        return None
    query = entry.query
    try:
        notes = list(_notes(hub.feed, query.condition, after, view.seq))
        if isinstance(query, GroupQuery):
            found = _groups(hub, view, query, notes, upto)
        elif query.is_plain:
            found = _plain(hub, view, query, notes, after, upto, result)
        else:
            found = _window(hub, view, query, notes, after, upto)
    except Unavailable:
        return None
    if isinstance(entry, StagedEntry):
        entry.fill(view.seq, hub.hits_of(view, query, entry.room))
    return found


def _notes(feed: Feed, condition: Condition, after: int, upto: int) -> Iterator[Note]:
    """The writes in (after, upto] that concern a condition."""
    for part in _parts(feed, after, upto, before=True):
        assert part.old is not None
        was, now = (_met(condition, texts) for texts in (part.old, part.rows.docs))
        for row in np.flatnonzero(was | now).tolist():
            seq = part.seq + row
            if after < seq <= upto:
                kind = REMOVE if not now[row] else CHANGE if was[row] else ADD
                yield Note(kind, seq, part.rows.keys[row], part.old[row], part.rows.docs[row])


def _met(condition: Condition, texts: Any) -> Any:
    there = texts.offsets[1:] > texts.offsets[:-1]
    given = np.flatnonzero(there)
    if not len(given) or not condition:
        return there
    met = np.zeros(texts.count, bool)
    met[given] = matching(condition, texts.to_arrow().take(given))
    return met


def _parts(feed: Feed, after: int, upto: int, *, before: bool) -> Iterator[Part]:
    if after >= upto:
        return
    try:
        follower = Follower(feed, after, before)
    except InvalidRequest:  # it is of a time that this collection has lost
        raise Unavailable("the version is later than the newest write", after=after) from None
    with contextlib.closing(follower):
        while follower.seq < upto:
            part = follower.take_part()
            if part is None:
                raise Unavailable("the log ends before the newest write", upto=upto)
            yield part


def _before(notes: list[Note]) -> dict[bytes, bytes]:
    """What each key that was written since had then: empty for nothing that concerns."""
    found: dict[bytes, bytes] = {}
    for note in notes:
        found.setdefault(note.key, b"" if note.kind == ADD else note.old)
    return found


def _plain(
    hub: Hub, view: Any, query: Query, notes: list[Note], after: int, upto: int, result: bool
) -> Missed:
    """Without positions; the result then, if asked for, is the newest first.

    What was written since stands where its write before that is in the log, and last when that
    is not kept any more.
    """
    items: list[Item] = []
    if result:
        first = {decode(key): text for key, text in _before(notes).items()}
        found = [(seq, item_of(text, hub.key)) for seq, text in hub.hits_of(view, query, None)]
        placed = [(seq, item) for seq, item in found if item.key not in first]
        back = {key: text for key, text in first.items() if text}
        if back:
            seqs = _written(hub.feed, set(back), min(hub.feed.earliest(), after), after)
            placed += [(seqs.get(key, 0), Item(key, text)) for key, text in back.items()]
            placed.sort(key=lambda one: -one[0])
        items = [item for _, item in placed]
    return Missed(items, [plain_change(note) for note in notes if note.seq <= upto], upto)


def _groups(hub: Hub, view: Any, query: GroupQuery, notes: list[Note], upto: int) -> Missed:
    first = {decode(key): text for key, text in _before(notes).items()}
    found = [item_of(text, hub.key) for _, text in hub.hits_of(view, query, None)]
    texts = [item.raw for item in found if item.key not in first]
    texts += [text for text in first.values() if text]
    stage = Groups(query)
    stage.fill(texts)
    items = stage.shown()
    return Missed(items, [c for n in notes if n.seq <= upto for c in stage.note(n)], upto)


def _window(hub: Hub, view: Any, query: Query, notes: list[Note], after: int, upto: int) -> Missed:
    first = {decode(key): text for key, text in _before(notes).items()}
    most = None if query.limit is None else query.offset + query.limit + len(first)
    hits = hub.hits_of(view, query, most)
    rank = rank_of(query, hub.key)
    whole = most is None or len(hits) < most
    seqs = {item.key: seq for seq, item in ((seq, item_of(text, hub.key)) for seq, text in hits)}
    texts = dict(zip(seqs, (text for _, text in hits), strict=True))
    horizon = None if whole else rank(hits[-1][1], hits[-1][0])
    kept = [Item(key, text) for key, text in texts.items() if key not in first]
    back = [Item(key, text) for key, text in first.items() if text]
    if query.order is None and back:
        least = 0  # no document before this write can come in
        if query.limit is not None and len(kept) >= query.offset + query.limit:
            least = seqs[kept[query.offset + query.limit - 1].key]
        written = _written(hub.feed, {item.key for item in back}, least, after)
        seqs |= written
        if len(written) < len(back):
            back = [item for item in back if item.key in written]
            whole, horizon = False, -least
    pairs = ranked([*kept, *back], [seqs.get(item.key, 0) for item in (*kept, *back)], rank)
    if not whole:
        pairs = [pair for pair in pairs if not horizon < pair[0]]
    stage = Window(rank, query.offset, query.limit, len(first))
    stage.fill(pairs, whole, horizon)
    items = stage.shown()
    return Missed(items, [c for n in notes if n.seq <= upto for c in stage.note(n)], upto)


def _written(feed: Feed, keys: set[Any], after: int, upto: int) -> dict[Any, int]:
    """Of keys that were written in (after, upto], the last seq of each."""
    found: dict[Any, int] = {}
    for part in _parts(feed, after, upto, before=False):
        for row, key in enumerate(part.rows.keys.to_list()):
            if part.seq + row <= upto and (name := decode(key)) in keys:
                found[name] = part.seq + row
    return found
