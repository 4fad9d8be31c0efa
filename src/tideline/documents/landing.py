"""A batch of changes from elsewhere into a collection: puts and deletes, by version, once.

    table -> rows.prepare -> one row a key -> newer than what is stored? -> engine.write

`op` is what the rows are: "put", "delete", or "change": then a column `op` says it row by row,
with the letters of change capture: c, u and r put, d deletes. A delete needs the key alone.

`version` names a field: a row counts when its version is greater than that of the stored document
with its key, and of every row with its key that came before it in the batch, deletes too. An older
or equal one changes nothing. But a delete counts with an equal one, too: change capture tells the
version that the row had last. A delete leaves nothing behind: in a later batch, an older put with
its key counts again.

Without a version the last row of a key counts, in the order given.

`once` is a writer's batch. One that has landed changes nothing. One of which a kill left a part
is landed again from its first row: the same documents, so nobody can tell but who follows the
changes; with a version, nobody.

One batch at a time lands in a collection. Who puts otherwise meanwhile is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tideline.documents import rows
from tideline.documents.parts import taken
from tideline.documents.types import PUT, Rows
from tideline.errors import InvalidRequest
from tideline.index.extract import Scanned
from tideline.index.texts import Texts
from tideline.lsm.writers import check_once
from tideline.where.keys import is_cut

if TYPE_CHECKING:
    from tideline.documents.collection import Collection

__all__ = ["OPS", "ROWS", "Arriving", "versions_of"]

OPS = ("put", "delete", "change")
ROWS = 16_384
"""How many rows are landed in one step, at most."""

_PUTS, _DELETE = ("c", "u", "r"), "d"
_LETTERS = ", ".join((*_PUTS, _DELETE))
_NUMBER, _TEXT = 1, 2  # how a version begins that is a number or text


class Arriving:
    """One batch of changes.

    >>> import tideline
    >>> db = tideline.open(":memory:")
    >>> cars = db.collection("cars", key="id")
    >>> batch = Arriving(cars, "change", "v", once=("loader", 1))
    >>> rows = {"op": ["c", "u", "d"], "id": [1, 1, 2], "v": [2, 1, 1]}
    >>> batch.land(pa.table(rows), last=True)
    {}
    >>> cars.find(), Arriving(cars, once=("loader", 1)).is_repeated
    ([{'id': 1, 'v': 2}], True)
    >>> db.close()
    """

    def __init__(
        self, collection: Collection, op: str = "put", version: str | None = None,
        once: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        if op not in OPS:
            raise InvalidRequest(f"op must be one of {', '.join(OPS)}", op=op)
        self._collection = collection
        self._op = op
        self._version = version
        self._once = None if once is None else check_once(once)
        self._deleted: dict[bytes, bytes] = {}  # keys of this batch, and their versions

    @property
    def is_repeated(self) -> bool:
        """Whether the batch has landed before."""
        writers = self._collection._engine.writers
        return self._once is not None and writers.landed(*self._once) is None

    def check(self, table: pa.Table) -> dict[int, str]:
        """What is wrong with rows, by their number; nothing is stored."""
        return self._read(table, (), None)[1]

    def land(self, table: pa.Table, *, last: bool) -> dict[int, str]:
        """Store rows, at most `ROWS` of them; gives back what is wrong with which.

        `last`: with these, the batch has landed.
        """
        collection = self._collection
        found, rejected, arrays = self._read(table, collection._fields(), collection.filter)
        kept = self._newest(found)
        if self._version is not None:
            kept = self._newer(found, kept)
        deletes = kept[found.ops[kept] != PUT]
        puts = kept[found.ops[kept] == PUT]
        once = self._once if last else None
        if len(deletes):
            keys = [found.keys[row] for row in deletes.tolist()]
            gone = rows.deletions(keys, collection._fields(), collection.filter)
            collection._write(gone, (), None if len(puts) else once)
            collection._workload.deletes += len(deletes)
        if len(puts):
            collection._write(collection._lasting(taken(found, puts), None), arrays, once)
            collection._workload.puts += len(puts)
        if once is not None and not len(kept):
            collection._engine.note_landed(once)
        return rejected

    # ---- inside -------------------------------------------------------------------------------

    def _read(
        self, table: pa.Table, fields: tuple[str, ...], filter: str | None
    ) -> tuple[Rows, dict[int, str], Iterable[str]]:
        """The good rows with their ops, what is wrong with the others, fields with arrays."""
        letters: list[Any] | None = None
        if self._op == "change":
            if "op" not in table.column_names:
                raise InvalidRequest("the column op is missing", columns=table.column_names)
            letters = table["op"].to_pylist()
            table = table.drop_columns("op")
        prepared = rows.prepare(table, self._collection.key, fields, filter)
        rejected = dict(prepared.rejected)
        found = prepared.rows
        numbers = np.setdiff1d(np.arange(table.num_rows), list(rejected))
        ops = np.full(found.count, PUT if self._op != "delete" else PUT + 1, np.uint8)
        if letters is not None:
            for at, number in enumerate(numbers.tolist()):
                if letters[number] == _DELETE:
                    ops[at] = PUT + 1
                elif letters[number] not in _PUTS:
                    given = letters[number]
                    rejected[number] = f"the column op must be one of {_LETTERS}, not {given!r}"
        if self._version is not None:
            for at, version in enumerate(versions_of(found.docs, self._version)):
                if version is None:
                    rejected.setdefault(
                        int(numbers[at]),
                        f"the version, the field {self._version}, is no number and no text of less "
                        "than a kilobyte",
                    )
        found = found._replace(ops=ops)
        if len(rejected) > len(prepared.rejected):
            found = taken(found, np.flatnonzero(~np.isin(numbers, list(rejected))))
        return found, rejected, prepared.arrays

    def _newest(self, found: Rows) -> np.ndarray[Any, np.dtype[np.int64]]:
        """One row a key."""
        keys = found.keys.to_list()
        if len(set(keys)) == len(keys):
            return np.arange(len(keys))
        best: dict[bytes, int] = {}
        if self._version is None:
            best = {key: row for row, key in enumerate(keys)}
        else:
            versions = versions_of(found.docs, self._version)
            for row, key in enumerate(keys):
                other = best.get(key)
                if other is None or _after(versions[row], versions[other], found.ops[row]):
                    best[key] = row
        return np.array(sorted(best.values()), np.int64)

    def _newer(self, found: Rows, kept: Any) -> Any:
        """Of these rows, those that are newer than what is stored and what was deleted."""
        assert self._version is not None
        versions = versions_of(found.docs, self._version)
        keys = found.keys.take(kept)
        stored = self._collection._engine.get_many(keys)
        there = versions_of(Texts.of([text or b"{}" for text in stored]), self._version)
        good = []
        for at, row in enumerate(kept.tolist()):
            key, version, old = keys[at], versions[row], there[at]
            assert version is not None
            deleted = self._deleted.get(key)
            if old is not None and not _after(version, old, found.ops[row]):
                continue
            if deleted is not None and version <= deleted:
                continue
            if found.ops[row] == PUT:
                self._deleted.pop(key, None)
            else:
                self._deleted[key] = version
                if stored[at] is None:
                    continue  # nothing to delete
            good.append(row)
        return np.array(good, np.int64)


def _after(version: bytes | None, other: bytes | None, op: int) -> bool:
    """Whether a row with a version counts after one that has the other version."""
    assert version is not None
    assert other is not None
    return version > other or (version == other and op != PUT)


def versions_of(docs: Texts, field: str) -> list[bytes | None]:
    """The versions of documents, as bytes that compare as they do; None where there is none.

    A text that is too long for an index is none: it would be cut.
    """
    found: list[bytes | None] = [None] * docs.count
    entries = Scanned(docs, [field]).entries(field)
    counts = np.bincount(entries.row, minlength=docs.count)  # arrays have more than one
    for row, value in zip(entries.row.tolist(), entries.values.to_list(), strict=True):
        if counts[row] == 1 and value[:1] and value[0] in (_NUMBER, _TEXT) and not is_cut(value):
            found[row] = value
    return found
