"""A toy kind of index in one file: every suffix of a text, to find texts by what they contain.

It serves `$regex` with a pattern of plain characters, has a setting, and may be on several fields.
Everything is plain Python and slow: what it shows is that a kind needs this file and nothing else.
tests/documents/test_kinds.py holds it to the contract of every kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tideline.errors import Corruption, InvalidRequest
from tideline.index.compound import parts_of
from tideline.index.kind import Asked, Chunk, Entries, Estimate, IndexKind, register
from tideline.index.texts import Texts
from tideline.lsm.component import Component, Product
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import MergeContext
from tideline.where.order import entries
from tideline.where.tree import Regex

_CUT = 12  # bytes of a suffix, unless a setting says so: longer ones are found by their beginning

Entry = tuple[bytes, bytes, int]
"""A suffix, a key, and the seq of the write."""


class SuffixAsk(NamedTuple):
    """A piece of text."""

    text: bytes
    begin: bytes = b""
    exact: bool = False
    point: bool = True

    def __str__(self) -> str:
        return f"contains {self.text.decode()!r}"


class SuffixMemory:
    """Entries in the order of their arrival."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._seen: set[Entry] = set()

    @property
    def size_bytes(self) -> int:
        return sum(len(suffix) + len(key) + 8 for suffix, key, _ in self.entries)

    def add(self, values: Texts, keys: Texts, seqs: int, rows: Any) -> None:
        for value, row in zip(values.to_list(), rows.tolist(), strict=True):
            entry = (value, keys[row], seqs + row)
            if entry not in self._seen:  # a call that was cut is made again
                self._seen.add(entry)
                self.entries.append(entry)


class SuffixReader:
    """An open component."""

    def __init__(self, component: Component) -> None:
        self.component = component
        table = component.table
        columns = (table[name].to_pylist() for name in ("suffix", "key", "seq"))
        self.entries: list[Entry] = list(zip(*columns, strict=True))

    def nothing_from(self, ask: SuffixAsk) -> bool:
        text = ask.begin + ask.text
        return not self.component.info.filters["suffix"].overlaps(text, text + b"\xff")

    def check(self) -> None:
        self.component.verify()
        if self.entries != sorted(self.entries):
            raise Corruption("suffixes are out of order", file=self.component.info.name)


class SuffixKind(IndexKind):
    name = "suffix"
    several = True  # then each entry begins with the number of its field

    def __init__(self, *, seed: int, cut: int = _CUT) -> None:
        if isinstance(cut, bool) or not isinstance(cut, int) or not 1 <= cut <= 100:
            raise InvalidRequest("cut must be a whole number from 1 to 100", cut=cut)
        self.cut = cut

    def extract(self, docs: Texts, fields: Sequence[str]) -> list[Entries]:
        found: list[tuple[list[int], list[bytes]]] = [([], []) for _ in fields]
        for row, text in enumerate(docs.to_list()):
            document = msgspec.json.decode(text) if text else {}
            for (rows, values), field in zip(found, fields, strict=True):
                parts = parts_of(field)
                for number, part in enumerate(parts):
                    begin = bytes([number]) if len(parts) > 1 else b""
                    for suffix in sorted(_suffixes(document, part, self.cut)):
                        rows.append(row)
                        values.append(begin + suffix)
        return [Entries(np.array(rows, np.int64), Texts.of(values)) for rows, values in found]

    def memory(self, capacity: int, older: Any) -> SuffixMemory:
        return SuffixMemory()

    def open(self, component: Component) -> SuffixReader:
        return SuffixReader(component)

    def seal(self, memory: SuffixMemory, context: Mapping[str, MinMax]) -> list[Product]:
        return _products(memory.entries, context)

    def merge(self, readers: Sequence[SuffixReader], context: MergeContext) -> list[Product]:
        found = [entry for reader in readers for entry in reader.entries]
        if context.owner is not None and found:
            keys, seqs = Texts.of([e[1] for e in found]), np.array([e[2] for e in found])
            kept = context.owner(keys, seqs)
            found = [entry for entry, stays in zip(found, kept, strict=True) if stays]
        wanted = MinMax.empty()
        for reader in readers:
            wanted = wanted.merge(reader.component.info.filters["wanted"])
        return _products(found, {"wanted": wanted})

    def build(
        self, values: Texts, keys: Texts, seqs: Any, older: Sequence[Any],
        filters: Mapping[str, MinMax],
    ) -> list[Product]:  # fmt: skip
        found = zip(values.to_list(), keys.to_list(), seqs.tolist(), strict=True)
        return _products(list(found), filters)

    def serves(self, asked: Asked) -> list[tuple[SuffixAsk, ...]]:
        several = bool(asked.tests_of)
        return [
            (SuffixAsk(test.pattern.encode()[: self.cut], bytes([number]) if several else b""),)
            for number, tests in enumerate(asked.tests_of or (asked.tests,))
            for test in tests
            if isinstance(test, Regex) and not test.options and test.pattern
            and re.fullmatch(r"[\w ]+", test.pattern)
        ]  # fmt: skip

    def passing(self, view: list[Any], filters: Mapping[str, tuple[bytes, bytes]]) -> list[Any]:
        return [
            place for place in view
            if isinstance(place, SuffixMemory) or all(
                place.component.info.filters[name].overlaps(*span) for name, span in filters.items()
            )
        ]  # fmt: skip

    def filters_of(self, ask: SuffixAsk) -> dict[str, list[MinMax]]:
        return {"suffix": [MinMax(ask.begin + ask.text, ask.begin + ask.text + b"\xff")]}

    def estimate(self, view: list[Any], ask: SuffixAsk) -> Estimate:
        return Estimate(float(sum(1 for _ in _matches(view, ask, 1 << 62))), float(len(view)))

    def search(self, view: list[Any], ask: SuffixAsk, k: int | None, below: int) -> Iterable[Chunk]:
        found = list(_matches(view, ask, below))
        if found:
            seqs, keys = zip(*found, strict=True)
            yield Chunk(np.array(seqs, np.int64), Texts.of(keys))


def _suffixes(document: Any, field: str, cut: int) -> set[bytes]:
    texts = [one for one in entries(document, field) if isinstance(one, str)]
    return {text[start:].encode()[:cut] for text in texts for start in range(len(text))}


def _matches(view: list[Any], ask: SuffixAsk, below: int) -> Iterable[tuple[int, bytes]]:
    for place in view:
        if isinstance(place, SuffixReader) and place.nothing_from(ask):
            continue
        for suffix, key, seq in list(place.entries):
            if seq < below and suffix.startswith(ask.begin + ask.text):
                yield seq, key


def _products(found: Sequence[Entry], filters: Mapping[str, MinMax]) -> list[Product]:
    if not found:
        return []
    suffixes, keys, seqs = zip(*sorted(found), strict=True)
    table = pa.table({
        "suffix": pa.array(suffixes, pa.large_binary()), "key": pa.array(keys, pa.large_binary()),
        "seq": pa.array(seqs, pa.int64()),
    })  # fmt: skip
    bounds = {"seq": MinMax(min(seqs), max(seqs)), "suffix": MinMax(suffixes[0], suffixes[-1])}
    return [Product(table, len(found), {**filters, **bounds})]


register("suffix", SuffixKind)
