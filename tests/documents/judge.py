"""A collection by brute force, in two parts: the judge of the tests, and an engine of dicts.

`Judge` says what a collection must answer. `ModelEngine` has the interface of
`documents.engine.Engine`, so that the upper layer can be tested alone.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from tideline.clock import SystemClock
from tideline.documents.types import DELETE, Found, Rows
from tideline.documents.updates import parse_update
from tideline.errors import Closed, Conflict, InvalidRequest, NotFound
from tideline.index.extract import ARRAYS, extract
from tideline.index.kind import Chunk, Entries, Estimate, make_kind
from tideline.index.sorted import Gathered
from tideline.index.texts import Texts
from tideline.where import parse
from tideline.where.keys import encode
from tideline.where.order import entries, sort_key, sort_keys
from tideline.where.values import RANK

_text = msgspec.json.Encoder().encode
SCALARS = (type(None), bool, int, float, str)


class Judge:
    """What must come out, from a dict of documents in the order of their writes."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.documents: dict[Any, tuple[int, dict[str, Any]]] = {}
        self.seq = 0

    def put(self, document: dict[str, Any]) -> None:
        self.seq += 1
        self.documents[document[self.key]] = (self.seq, document)

    def delete(self, key: Any) -> None:
        self.seq += 1
        self.documents.pop(key, None)

    def updated(self, key: Any, change: Any, upsert: bool, stale: bool) -> Any:
        """The document after an update, or the error it must end with."""
        old = self.get(key)
        if old is None and not upsert:
            return NotFound
        if old is not None and stale:
            return Conflict
        try:
            new = self._changed({self.key: key} if old is None else old, change)
        except InvalidRequest:
            return InvalidRequest
        if old is None or _text(new) != _text(old):
            self.put(new)
        return new

    def update_many(self, where: Any, change: Any) -> Any:
        """How many met the condition and how many changed, or the error; in key order."""
        condition = parse(where)
        met = [doc for doc in self.newest() if condition.matches(doc)]
        try:
            made = [(old, self._changed(old, change)) for old in met]
        except InvalidRequest:
            return InvalidRequest
        changed = [new for old, new in made if _text(new) != _text(old)]
        for new in changed:
            self.put(new)
        return len(met), len(changed)

    def _changed(self, document: dict[str, Any], change: Any) -> dict[str, Any]:
        return parse_update(change, self.key).apply(document)

    def follow(self, versions: dict[Any, int]) -> None:
        """The order of writes that were one step, in which any order is right."""
        self.documents = {
            key: (versions[key], document) for key, (_, document) in self.documents.items()
        }
        self.seq = max([self.seq, *versions.values()])

    def newest(self) -> list[dict[str, Any]]:
        return [doc for _, doc in sorted(self.documents.values(), key=lambda p: -p[0])]

    def get(self, key: Any) -> dict[str, Any] | None:
        return self.documents.get(key, (0, None))[1]

    def lookup(self, field: str, value: Any, k: int | None = None) -> list[dict[str, Any]]:
        return [d for d in self.newest() if _has(d, field, value, value)][:k]

    def range_lookup(self, field: str, low: Any, high: Any, k: int | None = None) -> Any:
        return [d for d in self.newest() if _has(d, field, low, high)][:k]

    def find(self, where: Any, sort: Any = None, limit: int | None = None) -> Any:
        condition = parse(where)
        found = [doc for doc in self.newest() if condition.matches(doc)]
        if sort is not None:
            found.sort(key=sort_keys(sort, self.key))
        return found[:limit]


def _has(document: dict[str, Any], field: str, low: Any, high: Any) -> bool:
    rank = RANK[type(high if low is None else low)]
    for value in entries(document, field):
        if type(value) not in SCALARS or RANK[type(value)] != rank:
            continue
        if (low is None or sort_key(low) <= sort_key(value)) and (
            high is None or sort_key(value) <= sort_key(high)
        ):
            return True
    return False


class Sources:
    """What there is to read until an index comes or goes."""

    def __init__(self, kinds: dict[str, Any]) -> None:
        self.kinds = kinds
        self.components: dict[str, Any] = dict.fromkeys(kinds, ())
        self.readers: tuple[Any, ...] = ()
        self.filtered = False


class ModelEngine:
    """`documents.engine.Engine`, by dicts and loops."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.indexes: dict[str, str] = dict(facts["indexes"])
        self.kinds = {field: make_kind(name, seed=7) for field, name in self.indexes.items()}
        self.sources = Sources(self.kinds)
        self.building: list[str] = []
        self.unique: tuple[str, ...] = ()
        self.records: dict[bytes, tuple[int, bytes]] = {}
        self.next_seq = 1
        self.closed = False
        self.writes: list[Rows] = []
        self.store = SimpleNamespace(log=SimpleNamespace(leads=True))  # no cluster
        self.expiry = SimpleNamespace(ttl_us=0, clock=SystemClock())  # nothing expires here

    def untils(self, keys: Texts) -> Any:
        return np.zeros(keys.count, np.int64)

    def write(self, rows: Rows, once: Any = None) -> int:
        self._open()
        first = self.next_seq
        keys, docs = rows.keys.to_list(), rows.docs.to_list()
        for field in self.indexes:
            assert field in rows.entries or not docs or (rows.ops == DELETE).all()
            if field in rows.entries:
                _check(rows.entries[field], docs, field)
        for op, key, doc in zip(rows.ops.tolist(), keys, docs, strict=True):
            if op == DELETE:
                self.records.pop(key, None)
            else:
                self.records[key] = (self.next_seq, doc)
            self.next_seq += 1
        return first

    def change(self, compute: Any) -> tuple[int, Any]:
        rows, found = compute(self.view())
        return self.write(rows), found

    def view(self) -> ModelEngine:
        self._open()
        now = copy.copy(self)
        now.records = dict(self.records)
        return now

    @property
    def seq(self) -> int:
        return self.next_seq - 1

    @property
    def now(self) -> tuple[Any, ...]:
        return (self.sources,)

    def get(self, key: bytes) -> bytes | None:
        self._open()
        return self.records.get(key, (0, None))[1]

    def get_many(self, keys: Texts) -> list[bytes | None]:
        return [self.get(key) for key in keys.to_list()]

    def fetch(self, keys: Texts) -> Found:
        self._open()
        there = [key for key in keys.to_list() if key in self.records]
        return _found([(self.records[key][0], key, self.records[key][1]) for key in there])

    def lookup(
        self, field: str, low: bytes, high: bytes, k: int | None = None, *,
        low_open: bool = False, high_open: bool = False, filter: Any = None,
    ) -> Found:  # fmt: skip
        self._open()
        if field not in self.indexes:
            raise NotFound("no index on this field", field=field)
        hits = []
        for key, (seq, doc) in self.records.items():
            for value in extract(Texts.of([doc]), [field])[0].values.to_list():
                after = value > low or (value == low and not low_open)
                before = value < high or (value == high and not high_open)
                if after and before and self._wanted(doc, filter):
                    hits.append((seq, key, doc))
                    break
        return _found(sorted(hits, reverse=True)[:k])

    def search(self, field: str, ask: Any, k: int | None = None, *, filter: Any = None) -> Found:
        return self.lookup(
            field, ask.low, ask.high, k, low_open=ask.low_open, high_open=ask.high_open,
            filter=filter,
        )  # fmt: skip

    def lookup_text(self, *arguments: Any, **options: Any) -> bytes:
        return b"[" + b",".join(self.lookup(*arguments, **options).docs) + b"]"

    def scan(
        self, low: bytes | None = None, high: bytes | None = None, *, filter: Any = None,
        batch: int = 3,
    ) -> Any:  # fmt: skip
        self._open()
        hits = [
            (seq, key, doc)
            for key, (seq, doc) in sorted(self.records.items())
            if (low is None or key >= low) and (high is None or key < high)
            and self._wanted(doc, filter)
        ]  # fmt: skip
        for first in range(0, len(hits), batch):
            yield _found(hits[first : first + batch])

    def scan_columns(self, *given: Any, **options: Any) -> Any:
        for part in self.scan(*given, **options):
            flags = np.zeros(len(part.docs), np.uint8)
            yield Gathered(Texts.of(list(part.keys)), part.seqs, flags, Texts.of(part.docs))

    def _wanted(self, doc: bytes, filter: Any) -> bool:
        if filter is None:
            return True
        values = extract(Texts.of([doc]), [self.facts["filter"]])[0].values.to_list()
        values = [value for value in values if value != ARRAYS]
        # A component of one document: outside, or not.
        return not values or not (max(values) < filter[0] or min(values) > filter[1])

    def count(self) -> int:
        return len(self.records)

    def candidates(self, field: str, asks: Any, filter: Any = None) -> Chunk:
        found = {}
        for ask in asks:
            hits = self.search(field, ask, filter=filter)
            found.update(zip(hits.seqs.tolist(), hits.keys, strict=True))
        seqs = sorted(found, reverse=True)
        return Chunk(np.array(seqs, np.int64), Texts.of([found[seq] for seq in seqs]))

    def follow(self, found: Chunk, k: int | None = None) -> Found:
        hits = [
            (seq, key, self.records[key][1])
            for seq, key in zip(found.seqs.tolist(), found.keys.to_list(), strict=True)
            if self.records[key][0] == seq
        ]
        return _found(hits[:k])

    def share(self, filter: Any) -> float:
        return sum(self._wanted(doc, filter) for _, doc in self.records.values()) / max(
            len(self.records), 1
        )

    def estimate(self, field: str, ask: Any, filter: Any = None) -> Estimate:
        count = len(self.lookup(field, ask.low, ask.high, filter=filter).seqs)
        return Estimate(count, count)

    def decides(self, field: str, ask: Any) -> bool:
        return bool(ask.exact)

    def counters(self) -> dict[str, int]:
        return dict.fromkeys(["primary_blocks", "index_blocks", "bloom_checks", "bloom_false"], 0)

    def stats(self) -> dict[str, Any]:
        self._open()
        return {
            "seq": self.next_seq - 1, "memory_rows": len(self.records), "memory_bytes": 0,
            "log_bytes": 0, "component_bytes": 0, "components": {"primary": []},
        }  # fmt: skip

    def add_index(self, field: str, kind: str, progress: Any = None) -> None:
        self.indexes[field] = kind
        self.kinds = {**self.kinds, field: make_kind(kind, seed=7)}
        self.sources = Sources(self.kinds)
        if progress:
            progress(len(self.records), len(self.records))

    def drop_index(self, field: str) -> None:
        del self.indexes[field]
        self.kinds = {name: kind for name, kind in self.kinds.items() if name != field}
        self.sources = Sources(self.kinds)

    def close(self) -> None:
        self.closed = True

    def _open(self) -> None:
        if self.closed:
            raise Closed("the database was closed")


def _found(hits: list[tuple[int, bytes, bytes]]) -> Found:
    return Found(
        np.array([hit[0] for hit in hits], np.int64), [hit[2] for hit in hits],
        [hit[1] for hit in hits],
    )  # fmt: skip


def _check(given: Entries, docs: list[bytes], field: str) -> None:
    """Entries are what the contract says, whichever way they were made."""
    found: dict[int, set[bytes]] = {}
    for row, value in zip(given.row.tolist(), given.values.to_list(), strict=True):
        assert value not in found.setdefault(row, set())
        found[row].add(value)
    assert given.row.tolist() == sorted(given.row.tolist())
    for row, doc in enumerate(docs):
        if doc:
            wanted = {
                encode(value)
                for value in entries(msgspec.json.decode(doc), field)
                if type(value) in SCALARS
            }
            assert found.get(row, set()) - {ARRAYS} == wanted, (doc, field)
