"""Pages of what a condition finds, and the cursors between them.

    cursor := base64 of JSON [request, left, place, kept]
    place  := the seq of the last document, newest first; or its sort values and key

A cursor says where a page ended. The next page begins right behind that place, whatever was written
since: a document that did not change comes once. One that changed has another place; without a
sort it is not seen twice, because its seq is greater than all that are still to come.

Looking for that place takes as long as the whole question. So the server keeps what is left of a
large answer for a minute: the moment it was asked at, and the keys in order (`Pages`). Where that
is gone (another server, too many of them) the place alone leads on, at the moment it is then.

`Pages` is safe from any thread.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.documents import Collection, checks
from tideline.documents import rows as written
from tideline.documents.projection import Projection, parse_fields
from tideline.documents.search import Order
from tideline.documents.types import Found
from tideline.errors import InvalidRequest
from tideline.index.texts import Texts
from tideline.server.collection_limited import Limited
from tideline.where import Condition, parse
from tideline.where.order import Key, key_of_plain, plain_of_key, sort_keys

__all__ = ["KEPT_S", "PAGE", "Page", "Pages", "Question"]

PAGE = 1_000
"""Documents in one answer at most."""
PAGE_BYTES = 8 << 20
KEPT_S = 60.0
_KEPT_BYTES = 64 << 20
_MOST_KEPT = 256
_NO_CURSOR = "cursor must be `next` of the page before"
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Page(NamedTuple):
    """A part of an answer: JSON texts, and where it goes on."""

    documents: list[bytes]
    next: str | None


class _Place(NamedTuple):
    """What a cursor says."""

    left: int | None
    """How many documents are still wanted; None: all."""
    at: Any
    kept: str


class _Rest(NamedTuple):
    """What is left of an answer: documents of one moment, by their keys."""

    view: Any
    keys: Texts
    question: str
    """Whose rest it is: a question of a caller."""

    @property
    def size_bytes(self) -> int:
        return int(self.keys.data.nbytes + self.keys.offsets.nbytes)


class Pages:
    """What is left of large answers, for whoever asks for the next page within a minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[_Rest, float]] = {}

    def keep(self, rest: _Rest) -> str:
        """Keep it; the name to ask for it by, which nobody can guess."""
        name = secrets.token_urlsafe(9)
        with self._lock:
            self._kept[name] = rest, time.monotonic() + KEPT_S
            size = sum(kept.size_bytes for kept, _ in self._kept.values())
            while self._kept and (size > _KEPT_BYTES or len(self._kept) > _MOST_KEPT):
                size -= self._kept.pop(next(iter(self._kept)))[0].size_bytes
        return name

    def take(self, name: str, question: str) -> _Rest | None:
        """What was kept of a question under a name, if it still is; it is not any more."""
        self.purge()
        with self._lock:
            found = self._kept.get(name)
            if found is None or found[0].question != question:
                return None
            del self._kept[name]
        return found[0]

    def purge(self) -> None:
        """Let go of what nobody asked for."""
        now = time.monotonic()
        with self._lock:
            for name in [name for name, (_, until) in self._kept.items() if until <= now]:
                del self._kept[name]


@dataclass
class Question:
    """`find`, as it was asked: what it needs to give one page."""

    collection: Collection
    where: dict[str, Any] | None
    sort: Any
    limit: int | None
    skip: int
    fields: Any
    page: int | None
    cursor: str | None
    caller: str

    def answer(self, pages: Pages) -> Page:
        """The page behind the cursor, or the first."""
        collection = self.collection
        limited = isinstance(collection, Limited)
        where = collection.limited(self.where) if limited else self.where  # type: ignore[attr-defined]
        condition = parse(where, stored=limited)
        order = checks.sort(self.sort, collection.key, condition)
        limit, skip = checks.count(self.limit, "limit"), checks.skip(self.skip)
        most = min(checks.count(self.page, "page") or PAGE, PAGE)
        project = parse_fields(self.fields, collection.key, condition.near)
        if self.cursor is None:
            place = _Place(limit, None, "")
        else:
            place, skip = self._place(order), 0
        most = most if place.left is None else min(most, place.left)
        few = self.cursor is None and (self.page is not None or most == place.left)
        if few and skip + most <= PAGE:
            found, rest = self._few(condition, order, skip, most), None
            more = len(found.docs) > most
        else:
            rest = pages.take(place.kept, self._name) if place.kept else None
            if rest is not None:
                collection._engine.require_open()
            else:
                rest = self._rest(condition, order, place, skip)
            rest, live = self._lasting(rest, most)
            found = rest.view.fetch(rest.keys.take(live))
            more = rest.keys.count > most
        documents = _fitting(found.docs[:most], project)
        count = len(documents)
        left = None if place.left is None else place.left - count
        if left == 0 or not (more or count < len(found.docs)):
            return Page(documents, None)
        at: Any = int(found.seqs[count - 1])
        if order is not None:
            at = plain_of_key(sort_keys(order, collection.key)(_decode(found.docs[count - 1])))
        kept = ""
        if rest is not None:
            used = most if count == len(found.docs) else int(live[count - 1]) + 1
            kept = pages.keep(_Rest(rest.view, rest.keys.slice(used, rest.keys.count), self._name))
        return Page(documents, self._text(_Place(left, at, kept)))

    def _lasting(self, rest: _Rest, most: int) -> tuple[_Rest, NDArray[np.int64]]:
        """What is left, and which of the next keys have not expired since it was kept.

        Of keys that have all expired none is left: a page that is not the last has documents.
        """
        while True:
            untils = rest.view.untils(rest.keys.slice(0, min(most, rest.keys.count)))
            live = np.flatnonzero((untils == 0) | (untils > self.collection._engine.expiry.time()))
            if len(live) or rest.keys.count <= most:
                return rest, live
            rest = _Rest(rest.view, rest.keys.slice(most, rest.keys.count), rest.question)

    def _few(self, condition: Condition, order: Order, skip: int, most: int) -> Found:
        """The first page, and one more: an index may stop early."""
        finder = self.collection._finder
        if order is None:
            hits = finder.newest(condition, skip + most + 1)[skip:]
            seqs = np.array([seq for seq, _ in hits], np.int64)
            return Found(seqs, [text for _, text in hits])
        documents = finder.find(condition, order, most + 1, skip)
        return Found(np.zeros(len(documents), np.int64), [_encode(one) for one in documents])

    def _rest(self, condition: Condition, order: Order, place: _Place, skip: int) -> _Rest:
        """What is found now behind a place, as far as it is wanted."""
        collection = self.collection
        hits = collection._finder.hits(condition)
        try:
            keys = _ordered(hits.parts, collection.key, order, place.at)
        except TypeError:  # of sort values that no document has
            raise InvalidRequest(_NO_CURSOR) from None
        limit = keys.count if place.left is None else min(keys.count, skip + place.left)
        return _Rest(hits.view, keys.slice(min(skip, limit), limit), self._name)

    # ---- cursors ------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        """What tells this question, of this caller, from all others."""
        rule = self.collection.rule.where if isinstance(self.collection, Limited) else None
        asked = [self.collection.identity, self.caller, rule, self.where, self.sort, self.skip,
                 self.limit]  # fmt: skip
        return hashlib.sha256(_encode(asked)).hexdigest()[:16]

    def _text(self, place: _Place) -> str:
        text = json.dumps([self._name, *place], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode()

    def _place(self, order: Order) -> _Place:
        """The cursor, read; it may be anything."""
        assert self.cursor is not None
        try:
            name, left, at, kept = json.loads(base64.b64decode(self.cursor, b"-_", validate=True))
        except (ValueError, TypeError, RecursionError):
            raise InvalidRequest(_NO_CURSOR) from None
        if name != self._name:
            raise InvalidRequest(
                "the cursor is of another question: ask the same one with it, by the same token"
            )
        good = (left is None or (type(left) is int and left > 0)) and isinstance(kept, str)
        if not good or (order is None and not (type(at) is int and 0 <= at < 1 << 62)):
            raise InvalidRequest(_NO_CURSOR)
        return _Place(left, at, kept)


def _ordered(parts: Any, key: str, order: Order, at: Any) -> Texts:
    """The keys of hits, newest first or in an order, behind a place if there is one."""
    make: Callable[[object], Key] | None = None if order is None else sort_keys(order, key)
    keys: list[Texts] = []
    marks: list[Any] = []
    for part in parts:
        if part:
            keys.append(written.keys_of(Texts.of([text for _, text in part]), key))
            marks += (
                [seq for seq, _ in part]
                if make is None
                else [make(_decode(text)) for _, text in part]
            )
    if not keys:
        return Texts.of([])
    if make is None or order is None:
        seqs = np.array(marks, np.int64)
        places = np.argsort(seqs)[::-1]
        if at is not None:
            places = places[seqs[places] < at]
    else:
        wanted: Sequence[int] = range(len(marks))
        if at is not None:
            place = key_of_plain(at, order, key)
            wanted = [row for row in wanted if place < marks[row]]
        places = np.array(sorted(wanted, key=marks.__getitem__), np.int64)
    return Texts.join(keys).take(places)


def _fitting(texts: list[bytes], project: Projection | None) -> list[bytes]:
    """The first documents that fit into one answer, one at least."""
    documents: list[bytes] = []
    size = 0
    for text in texts:
        shown = text if project is None else _encode(project(_decode(text)))
        size += len(shown)
        if documents and size > PAGE_BYTES:
            break
        documents.append(shown)
    return documents
