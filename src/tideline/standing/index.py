"""Standing conditions, and which of them the documents of a batch meet.

    conditions -> clauses (clauses.py) -> postings and a program (filing.py) -> arrays (tables.py)
    documents -> what lies at the columns in use (rows.py) -> the kernel: tokens, lists, checks
    -> what only the predicate knows (patterns, negations, ...) is asked of it, by condition

Exact: what it says is what `Condition.matches` says of the decoded document. An empty text is
no document and meets nothing, not even the empty condition. No membership is kept: what a change
means for a condition comes from matching the old and the new document. docs/internals/standing.md
tells how it works.

Not safe from several threads: callers hold a lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import InvalidRequest
from tideline.index.texts import Texts
from tideline.kernels.standing import layout as at
from tideline.kernels.standing import match
from tideline.kernels.standing.layout import ADD, CHANGE, REMOVE
from tideline.kernels.warm import ensure
from tideline.standing.explain import explained
from tideline.standing.filing import Columns, Filing
from tideline.standing.places import asks_places
from tideline.standing.rows import Given, Images, Reader, decoded
from tideline.standing.tables import Tables
from tideline.where import Condition, parse_text
from tideline.where.batch import matching as rows_of

__all__ = ["ADD", "CHANGE", "REMOVE", "Candidates", "Kinds", "Pairs", "Standing"]

Words = NDArray[np.int64]
Octets = NDArray[np.uint8]

_CELLS = 1 << 15  # nodes times rows that are read at a time
_ROWS_LEAST = 64
_FOUND_ROOM = 500
_MANY = 16  # rows of which one condition is asked in a batch


class Pairs(NamedTuple):
    """Which rows meet which conditions, ordered by row."""

    rows: Words
    numbers: Words


class Candidates(NamedTuple):
    """Which rows meet which conditions, or may, ordered by row."""

    rows: Words
    numbers: Words
    open: NDArray[np.bool_]
    """Whether only the predicate knows."""


class Kinds(NamedTuple):
    """What became of which rows for which conditions, ordered by row: ADD, CHANGE or REMOVE."""

    rows: Words
    numbers: Words
    kinds: Octets


class Standing:
    """Many conditions, each known by a number.

    >>> from tideline.where import parse
    >>> standing = Standing()
    >>> cheap = standing.add(parse({"shop": 7, "total": {"$lt": 20}}))
    >>> dear = standing.add(parse({"shop": 7, "total": {"$gte": 20}}))
    >>> old = Texts.of([b'{"shop": 7, "total": 5}', b""])
    >>> new = Texts.of([b'{"shop": 7, "total": 25}', b'{"shop": 7, "total": 1}'])
    >>> pairs = standing.matching(new)
    >>> pairs.rows.tolist(), pairs.numbers.tolist() == [dear, cheap]
    ([0, 1], True)
    >>> sorted(zip(*(part.tolist() for part in standing.changes(old, new))))
    [(0, 0, 2), (0, 1, 0), (1, 0, 0)]
    """

    def __init__(self) -> None:
        ensure("standing")  # the first time it takes seconds
        self._tables = Tables()
        self._columns = Columns()
        self._sets: NDArray[np.int32] = np.zeros(64, np.int32)
        self._count = 0
        self._places: dict[int, None] = {}  # the conditions that ask for places
        self._free: list[int] = []
        self._reader: Reader | None = None
        self._call = np.zeros(at.C_WORDS, np.int64)
        self._call_at = address_of(self._call)
        self._scratch: dict[str, Any] = {}
        self._hits_room = 0

    def __len__(self) -> int:
        return self._count

    # ---- conditions -----------------------------------------------------------------------

    def add(self, condition: Condition) -> int:
        """File a condition; returns its number, which is small and used again after `remove`."""
        return self.add_many((condition,))[0]

    def add_many(self, conditions: Iterable[Condition], *, named: bool = False) -> list[int]:
        """File many conditions; returns their numbers, in order. All of them, or none.

        `named`: they are found by their texts, which all differ.
        """
        tables, columns = self._tables, self._columns
        filings = [(condition, self._filing(condition)) for condition in conditions]
        numbers, rows = [], []
        for condition, filing in filings:
            number = self._free.pop() if self._free else self._count
            words = filing.program_words
            text_at, program_at = tables.keep(number, condition.text, words)
            filing.place(number, text_at, program_at)
            if words:
                tables.put_program(program_at, filing.program)
            rows += filing.rows
            if number >= len(self._sets):
                self._sets = np.concatenate([self._sets, np.zeros_like(self._sets)])
            self._sets[number] = columns.use(filing.used)
            if asks_places(condition.tree):
                self._places[number] = None
            self._count += 1
            numbers.append(number)
        tables.file(rows)
        if named:
            tables.enter(numbers)
        return numbers

    def find(self, text: bytes) -> int:
        """The number of the named condition that has this canonical text, or -1.

        >>> from tideline.where import parse
        >>> standing = Standing()
        >>> [number] = standing.add_many([parse({"a": 1})], named=True)
        >>> standing.find(b'{"a":1}') == number, standing.find(b'{"a":2}')
        (True, -1)
        """
        return self._tables.find(text)

    def _filing(self, condition: Condition) -> Filing:
        if condition.deltas:
            raise InvalidRequest("where: $delta cannot be asked of documents")
        return Filing(condition, self._tables, self._columns)

    def remove(self, number: int, *, named: bool = False) -> None:
        """Forget a condition; `named`: as it was when it was added."""
        self._check(number)
        if named:
            self._tables.drop(number)
        self._tables.take_out(number)
        self._places.pop(number, None)
        self._columns.give_up(self._sets.item(number))
        self._free.append(number)
        self._count -= 1

    def condition(self, number: int) -> Condition:
        """The condition of a number. Those used last are kept parsed.

        >>> from tideline.where import parse
        >>> standing = Standing()
        >>> standing.condition(standing.add(parse({"a": {"$gt": 1}})))
        Condition({"a":{"$gt":1}})
        """
        self._check(number)
        return parse_text(self._tables.text(number))

    def text(self, number: int) -> bytes:
        """The canonical text of a condition. Needs no lock, while the condition stays."""
        return self._tables.text(number)

    @property
    def texts(self) -> tuple[Octets, Words, NDArray[np.int32]]:
        """For kernels: bytes of texts; by number, where each begins, and its size, -1 for none.

        Good until a condition is added or removed.
        """
        return self._tables.texts

    def _check(self, number: int) -> None:
        if not self._tables.has(number):
            raise InvalidRequest("no condition has this number", number=number)

    # ---- documents ------------------------------------------------------------------------

    def matching(self, docs: Texts) -> Pairs:
        """Exactly the pairs of a document and a condition it meets."""
        rows, numbers, _ = self._matched(None, docs)
        return Pairs(rows, numbers)

    def changes(self, old: Texts, new: Texts) -> Kinds:
        """What the change of each document is for the conditions that the old or the new one meets.

        ADD: only the new one meets it, REMOVE: only the old one, CHANGE: both. Rows are paired;
        an empty text is no document.
        """
        if old.count != new.count:
            raise InvalidRequest("old and new must be as many", old=old.count, new=new.count)
        return self._matched(old, new)

    def candidates(self, docs: Texts) -> Candidates:
        """The pairs of a document and a condition it meets, or may meet: no predicate is asked.

        >>> from tideline.where import parse
        >>> standing = Standing()
        >>> numbers = standing.add_many(map(parse, [{"a": 1}, {"a": {"$exists": 1}}, {"a": 2}]))
        >>> found = standing.candidates(Texts.of([b'{"a": 2}']))
        >>> sorted(zip(found.numbers.tolist(), found.open.tolist()))
        [(1, True), (2, False)]
        """
        rows, numbers, kinds = self._matched(None, docs, settle=False)
        return Candidates(rows, numbers, kinds & at.OPEN != 0)

    def _matched(self, old: Texts | None, new: Texts, settle: bool = True) -> Kinds:
        if self._columns.changed or self._reader is None:
            self._columns.tidy()
            columns, call = self._columns, self._call
            self._reader = reader = Reader(columns.numbers, columns.count, self._tables.seed)
            call[at.C_COLUMNS], call[at.C_COLUMNS_COUNT] = address_of(reader.table), reader.count
            call[at.C_PARENTS] = address_of(reader.parents)
        step = max(_ROWS_LEAST, _CELLS // len(self._reader.paths.paths))
        parts = [
            self._part(
                self._reader,
                None if old is None else old.slice(first, first + step),
                new.slice(first, min(first + step, new.count)),
                first,
                settle,
            )
            for first in range(0, new.count, step)
        ]
        if len(parts) == 1:
            return parts[0]
        empty = np.empty(0, np.int64)
        if not parts:
            return Kinds(empty, empty, np.empty(0, np.uint8))
        return Kinds(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.kinds for part in parts]),
        )

    def _part(
        self, reader: Reader, old: Texts | None, new: Texts, first: int, settle: bool
    ) -> Kinds:
        """The changes of some rows, the first of which is row `first` of the caller."""
        images = Images(reader, old, new)
        call = self._prepared(reader, images.rows)
        images.tell(call)
        found = [self._run(call)]
        documents: dict[tuple[int, int], Any] = {}
        if call[at.C_SLOW_COUNT]:
            rows = self._scratch["slow"][: call[at.C_SLOW_COUNT]].copy()
            both = [
                [decoded(images.text(image, row), first + row) for row in rows.tolist()]
                for image in (0, 1)
            ]
            for image in (0, 1):
                documents.update(zip(((image, r) for r in rows.tolist()), both[image], strict=True))
            given = Given(reader, rows, both, self._tables.levels() if self._places else {})
            given.tell(call)
            found.append(self._run(call))
            if given.wide and self._places:
                shaped = {
                    int(rows[place]): (both[0][place] is not ...) * at.OLD_MAYBE
                    | (both[1][place] is not ...) * at.NEW_MAYBE
                    for place in given.wide
                }
                found = [_without(each, shaped, self._places) for each in found]
                found.append(_left_open(shaped, self._places))
                call[at.C_OUT_OPEN] += len(found[-1].rows)
        kinds = found[0] if len(found) == 1 else _joined(found)
        if settle and call[at.C_OUT_OPEN]:
            kinds = self._settled(kinds, images, documents, first)
        if first:
            kinds.rows.__iadd__(first)
        return kinds

    def _prepared(self, reader: Reader, rows: int) -> Words:
        """The call, with scratch memory."""
        self._tables.before_rows(rows)
        call, scratch = self._call, self._scratch
        if "starts" not in scratch or len(scratch["starts"]) < 2 * at.BLOCK * (reader.count + 1):
            images, room = 2 * at.BLOCK, _FOUND_ROOM + reader.count
            scratch["starts"] = np.zeros(images * (2 * reader.count + 1), np.int64)
            scratch["found"] = np.empty(images * at.VALUE * (room + 1), np.int64)
            scratch["block"] = np.zeros(images * at.R_WORDS, np.int64)
            call[at.C_FOUND_ROOM] = room
            call[at.C_STARTS] = address_of(scratch["starts"])
            call[at.C_FOUND] = address_of(scratch["found"])
            call[at.C_BLOCK] = address_of(scratch["block"])
        if "tokens" not in scratch:
            self._more_tokens(1000)
            self._more_out(4096)
        if "slow" not in scratch or len(scratch["slow"]) < rows:
            scratch["slow"] = np.empty(2 * rows, np.int64)
            call[at.C_SLOW] = address_of(scratch["slow"])
        if self._hits_room < self._tables.room:
            self._hits_room = self._tables.room
            scratch["hits"] = np.empty(self._hits_room, np.int64)
            call[at.C_HITS] = address_of(scratch["hits"])
        call[at.C_SLOW_COUNT] = call[at.C_OUT_OPEN] = 0
        return call

    def _more_tokens(self, room: int) -> None:
        self._scratch["tokens"] = np.empty(2 * at.BLOCK * room, np.int64)
        self._call[at.C_TOKENS] = address_of(self._scratch["tokens"])
        self._call[at.C_TOKENS_ROOM] = room

    def _more_out(self, room: int) -> None:
        """Room for what is found, with what was found so far."""
        call, scratch = self._call, self._scratch
        count = call.item(at.C_OUT_COUNT)
        for name, kind, place in (
            ("rows", np.int64, at.C_OUT_ROWS),
            ("numbers", np.int64, at.C_OUT_NUMBERS),
            ("kinds", np.uint8, at.C_OUT_KINDS),
        ):
            larger = np.empty(room, kind)
            if count:
                larger[:count] = scratch[name][:count]
            scratch[name] = larger
            call[place] = address_of(larger)
        call[at.C_OUT_ROOM] = room

    def _run(self, call: Words) -> Kinds:
        """Run the kernel over the rows of a call: copies of what it found."""
        call[at.C_ROW] = call[at.C_OUT_COUNT] = 0
        state, call_at = self._tables.address, self._call_at
        while not match.match(state, call_at):
            self._more_tokens(2 * call.item(at.C_TOKENS_ROOM))
            self._more_out(2 * call.item(at.C_OUT_ROOM))
        count = call.item(at.C_OUT_COUNT)
        scratch = self._scratch
        return Kinds(*(scratch[name][:count].copy() for name in ("rows", "numbers", "kinds")))

    # ---- what only the predicate knows ----------------------------------------------------

    def _settled(
        self, kinds: Kinds, images: Images, documents: dict[tuple[int, int], Any], first: int
    ) -> Kinds:
        """Ask the predicates about what the kernel left open; those of one condition together."""
        code = kinds.kinds
        open_at = np.flatnonzero(code & at.OPEN)
        bits = code[open_at]
        holds = [(bits & yes) != 0 for yes in (at.OLD_YES, at.NEW_YES)]
        numbers, rows = kinds.numbers[open_at], kinds.rows[open_at]
        for image, maybe in ((0, at.OLD_MAYBE), (1, at.NEW_MAYBE)):
            asked = np.flatnonzero(bits & maybe)
            asked = asked[np.argsort(numbers[asked], kind="stable")]
            cuts = np.flatnonzero(np.diff(numbers[asked])) + 1
            for group in np.split(asked, cuts):
                if len(group):
                    condition = self.condition(numbers.item(group[0]))
                    own = rows[group].tolist()
                    holds[image][group] = _asked(condition, image, own, images, documents, first)
        was, now = holds
        code[open_at] = np.where(was & now, CHANGE, np.where(now, ADD, REMOVE))
        kept = np.ones(len(code), np.bool_)
        kept[open_at] = was | now
        return Kinds(kinds.rows[kept], kinds.numbers[kept], code[kept])

    # ---- about it -------------------------------------------------------------------------

    def explain(self, number: int) -> dict[str, Any]:
        """How a condition is filed, and what finding it costs now.

        `filed` says by what and on which fields, under how many tokens, and how many entries
        the longest of those lists has: so many are looked at for a document that makes that
        token. `decided` by the "kernel", or by the "predicate" where no kernel can.

        >>> from tideline.where import parse
        >>> standing = Standing()
        >>> number = standing.add(parse({"shop": {"$in": [1, 2]}, "note": {"$exists": True}}))
        >>> standing.explain(number)  # doctest: +NORMALIZE_WHITESPACE
        {'filed': [{'by': 'value', 'fields': ['shop'], 'tokens': 2, 'longest': 1}],
         'decided': 'predicate', 'always_looked_at': False}
        """
        self._check(number)
        return explained(self._tables.postings(number), self._columns.numbers)

    def stats(self) -> dict[str, int]:
        """How many conditions stand, and the bytes they take, by what these are for."""
        return {"conditions": self._count, **self._tables.sizes()}


def _asked(
    condition: Condition,
    image: int,
    rows: list[int],
    images: Images,
    documents: dict[tuple[int, int], Any],
    first: int,
) -> Any:
    """What the predicate of a condition says of an image of some rows."""
    if len(rows) >= _MANY:
        return rows_of(condition, pa.array([images.text(image, row) for row in rows], pa.binary()))
    given = []
    for row in rows:
        document = documents.get((image, row))
        if document is None:
            document = documents[image, row] = decoded(images.text(image, row), first + row)
        given.append(condition.matches(document))
    return given


def _without(kinds: Kinds, shaped: dict[int, int], places: dict[int, None]) -> Kinds:
    """All but what was found of some conditions in some rows."""
    gone = np.isin(kinds.rows, list(shaped)) & np.isin(kinds.numbers, list(places))
    rows, numbers, codes = kinds
    return Kinds(rows[~gone], numbers[~gone], codes[~gone])


def _left_open(shaped: dict[int, int], places: dict[int, None]) -> Kinds:
    """Every one of some conditions in some rows, for the predicates."""
    rows = np.repeat(np.array(list(shaped), np.int64), len(places))
    numbers = np.tile(np.array(list(places), np.int64), len(shaped))
    bits = np.repeat(np.array(list(shaped.values()), np.uint8), len(places))
    return Kinds(rows, numbers, (bits | at.OPEN).astype(np.uint8))


def _joined(found: list[Kinds]) -> Kinds:
    """What was found in two runs, in the order of rows."""
    rows, numbers, kinds = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.argsort(rows, kind="stable")
    return Kinds(rows[order], numbers[order], kinds[order])
