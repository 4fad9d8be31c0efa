"""More ways to ask a collection by condition, beside `find`, `count` and `scan`.

    find_one        the first of what `find` gives
    find_iter       what `find` gives, one at a time and with little memory: cursor.py
    find_batches    the same as Arrow batches
    distinct        the different values of a field: distinct.py
    aggregate       MongoDB's pipelines: aggregation.py

Each answers from one moment. Safe from any thread; what `find_iter` and `find_batches` return is
for one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pyarrow as pa

from tideline.documents import checks, cursor
from tideline.documents.aggregation import parse_pipeline
from tideline.documents.distinct import distinct_values
from tideline.documents.export import scanned_batch
from tideline.documents.projection import Projection, parse_fields
from tideline.documents.types import Found
from tideline.index.texts import Texts
from tideline.where import parse

if TYPE_CHECKING:
    from tideline.documents.finding import Finder

__all__ = ["Queries"]

_BATCH_ROWS = 10_000
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

Document = dict[str, Any]
Fields = Sequence[str] | dict[str, int] | None


class Queries:
    """A part of `Collection`."""

    key: str
    _finder: Finder

    def find_one(
        self, where: Document | None = None, *, sort: Any = None, skip: int = 0,
        fields: Fields = None,
    ) -> Document | None:  # fmt: skip
        """The first document that `find` would give, or None.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.put_many([{"id": n, "speed": 10 * n} for n in range(10)])
        >>> cars.find_one({"speed": {"$lt": 50}}, fields=["speed"])
        {'id': 4, 'speed': 40}
        >>> db.close()
        """
        order = checks.sort(sort, self.key)
        project = parse_fields(fields, self.key)
        found = self._finder.find(parse(where), order, 1, checks.skip(skip))
        return (project(found[0]) if project else found[0]) if found else None

    def find_iter(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> Iterator[Document]:  # fmt: skip
        """What `find` gives, one at a time: read as it is asked for, all of one moment.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.put_many([{"id": n} for n in range(5000)])
        >>> found = cars.find_iter({"id": {"$lt": 4000}})
        >>> cars.delete_where({})
        5000
        >>> next(found), sum(1 for _ in found)
        ({'id': 3999}, 3999)
        >>> db.close()
        """
        project = parse_fields(fields, self.key)
        most, without = checks.count(limit, "limit"), checks.skip(skip)
        if most is not None and without + most <= cursor.BATCH:  # an index may stop early
            few = self._finder.find(parse(where), checks.sort(sort, self.key), most, without)
            return iter(few if project is None else [project(one) for one in few])
        found = self._read(where, sort, limit, skip, cursor.BATCH)
        return (
            project(_decode(text)) if project else _decode(text)
            for part in found for text in part.docs
        )  # fmt: skip

    def find_batches(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """What `find` gives as batches of at most 10,000: key, seq, document, as `scan`.

        `seq` is the version of the document. Documents are JSON, with these `fields` alone.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.put_many([{"id": n, "speed": 10 * n} for n in range(3)])
        >>> [batch.to_pylist() for batch in cars.find_batches(limit=1, fields={"id": 0})]
        [[{'key': '2', 'seq': 3, 'document': '{"speed":20}'}]]
        >>> db.close()
        """
        project = parse_fields(fields, self.key)
        found = self._read(where, sort, limit, skip, _BATCH_ROWS)
        return (_batch(part, project) for part in found if part.docs)

    def distinct(self, field: str, where: Document | None = None) -> list[Any]:
        """The different values of a field in the documents that meet a condition, in order.

        An array counts by its elements; a missing field does not count, null does.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.put_many([{"id": 1, "road": "B2"}, {"id": 2, "road": ["A1", "B2"]}])
        >>> cars.distinct("road"), cars.distinct("road", {"id": 1})
        (['A1', 'B2'], ['B2'])
        >>> db.close()
        """
        checks.name_without_comma(field, "field")
        parts = self._finder.hits(parse(where)).parts
        return distinct_values((Texts.of([text for _, text in part]) for part in parts), field)

    def aggregate(self, pipeline: Sequence[Document]) -> list[Document]:
        """What comes out of MongoDB's stages: $match, $group, $sort, $limit, $skip, $project, ...

        Documents go in as `find` gives them, newest first. Groups come in the order of `_id`.
        docs/guide/documents.md lists stages and what can stand in them.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.put_many([{"id": n, "road": "AB"[n % 2], "speed": n} for n in range(9)])
        >>> cars.aggregate([
        ...     {"$match": {"speed": {"$gt": 2}}},
        ...     {"$group": {"_id": "$road", "cars": {"$sum": 1}, "mean": {"$avg": "$speed"}}},
        ... ])
        [{'_id': 'A', 'cars': 3, 'mean': 6.0}, {'_id': 'B', 'cars': 3, 'mean': 5.0}]
        >>> db.close()
        """
        asked = parse_pipeline(pipeline, self.key)
        order = checks.sort(asked.sort, self.key)
        if asked.is_ordered:
            found = self._finder.find(asked.condition, order, asked.limit, asked.skip)
            return asked.run(found)
        parts = self._finder.hits(asked.condition).parts
        decode = _decode if asked.fields is None else _decoder_of(asked.fields)
        return asked.run(decode(text) for part in parts for _, text in part)

    def _read(self, where: Any, sort: Any, limit: Any, skip: Any, batch: int) -> Iterator[Found]:
        """What a condition finds, in order and some at a time; checked at once."""
        condition = parse(where)
        order = checks.sort(sort, self.key)
        most = checks.count(limit, "limit")
        return cursor.read(
            self._finder.hits(condition), self.key, order, checks.skip(skip), most, batch
        )


def _decoder_of(fields: set[str]) -> Callable[[bytes], Document]:
    """Decodes these fields of a document and passes over the others: several times as fast."""
    return msgspec.json.Decoder(TypedDict("Some", dict.fromkeys(fields, Any), total=False)).decode  # type: ignore[operator]


def _batch(part: Found, project: Projection | None) -> pa.RecordBatch:
    docs = part.docs
    if project is not None:
        docs = [_encode(project(_decode(text))) for text in docs]
    return scanned_batch(Texts.of(list(part.keys)), part.seqs, Texts.of(docs))
