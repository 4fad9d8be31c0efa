"""An engine of documents beside a plain dict that says what it must answer.

The model keeps every document with the number of its write. Entries are taken from decoded
documents, one at a time, by `entries_of`: slow and plain, and the engine is given the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tideline.documents.engine import Engine
from tideline.documents.types import DELETE, PUT, Found, Rows
from tideline.index.kind import Entries
from tideline.index.memory import Budget
from tideline.index.texts import Texts
from tideline.where.keys import encode

Document = dict[str, Any]
Write = tuple[Any, Document | None]  # key, document or None for a delete


def entries_of(document: Document, field: str) -> list[bytes]:
    """The values of a field: a scalar, or each scalar of an array once."""
    value = document.get(field)
    values = value if isinstance(value, list) else [value]
    return list({encode(v): None for v in values if not isinstance(v, (list, dict))})


def extract(docs: Texts, fields: Sequence[str]) -> list[Entries]:
    """What index/extract.py does, in the plainest way."""
    decoded = [json.loads(doc) if doc else None for doc in docs.to_list()]
    found = []
    for field in fields:
        pairs = [(n, value) for n, document in enumerate(decoded) if document is not None
                 for value in entries_of(document, field)]  # fmt: skip
        row = np.array([n for n, _ in pairs], np.int64)
        found.append(Entries(row, Texts.of([value for _, value in pairs])))
    return found


def rows_of(writes: Sequence[Write], fields: Sequence[str] = ()) -> Rows:
    """Writes as the upper layer hands them over, with entries of `fields`."""
    ops = np.array([DELETE if doc is None else PUT for _, doc in writes], np.uint8)
    docs = Texts.of([b"" if doc is None else json.dumps(doc).encode() for _, doc in writes])
    keys = Texts.of([encode(key) for key, _ in writes])
    return Rows(ops, keys, docs, dict(zip(fields, extract(docs, fields), strict=True)))


def open_engine(folder: Path, facts: dict[str, Any] | None = None, **settings: Any) -> Engine:
    """An engine with generations so small that a few writes are sealed and merged."""
    settings = {"generation_bytes": 16_000, "segment_bytes": 1 << 20, **settings}
    return Engine(
        folder, {"seed": 99, **(facts or {})}, budget=Budget(8 << 20), logged=True,
        **{"extract": extract, "durability": "os", **settings},
    )  # fmt: skip


class Model:
    """Newest versions by key bytes: (seq, document)."""

    def __init__(self) -> None:
        self.seq = 0
        self.records: dict[bytes, tuple[int, Document]] = {}

    def write(self, writes: Sequence[Write]) -> None:
        for key, document in writes:
            self.seq += 1
            self.records.pop(encode(key), None)
            if document is not None:
                self.records[encode(key)] = (self.seq, document)

    def get(self, key: Any) -> Document | None:
        found = self.records.get(encode(key))
        return None if found is None else found[1]

    def lookup(
        self, field: str, low: bytes, high: bytes, k: int | None, low_open: bool, high_open: bool
    ) -> list[tuple[int, Document]]:
        def inside(value: bytes) -> bool:
            above = low < value if low_open else low <= value
            return above and (value < high if high_open else value <= high)

        found = [
            record for record in self.records.values()
            if any(map(inside, entries_of(record[1], field)))
        ]  # fmt: skip
        return sorted(found, key=lambda record: -record[0])[:k]

    def scan(self, low: bytes | None, high: bytes | None) -> list[tuple[bytes, int, Document]]:
        return [
            (key, seq, document) for key, (seq, document) in sorted(self.records.items())
            if (low is None or low <= key) and (high is None or key < high)
        ]  # fmt: skip


def records_in(found: Found) -> list[tuple[int, Document]]:
    return [(int(seq), json.loads(doc)) for seq, doc in zip(found.seqs, found.docs, strict=True)]
