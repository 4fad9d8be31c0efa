"""More ways to ask a collection by condition, beside `find`, `count` and `scan`.

    find_one        the first of what `find` gives
    find_lazily     what `find` gives, each decoded when it is looked at
    find_iter       what `find` gives, one at a time and with little memory: cursor.py
    find_batches    the same as Arrow batches
    distinct        the different values of a field: distinct.py
    aggregate       MongoDB's pipelines: aggregation.py
    aggregate_grid  how many are where: grid.py

Each answers from one moment. Safe from any thread; what `find_iter` and `find_batches` return is
for one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pyarrow as pa

from tideline.documents import checks, cursor, grid, rows
from tideline.documents.aggregation import parse_pipeline
from tideline.documents.distinct import distinct_values
from tideline.documents.export import scanned_batch
from tideline.documents.projection import Projection, parse_fields
from tideline.errors import InvalidRequest
from tideline.index.sorted import Gathered
from tideline.index.texts import Texts
from tideline.model import Documents, Nearest
from tideline.where import Condition, parse

if TYPE_CHECKING:
    from tideline.documents.advise import Workload
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
    _workload: Workload
    _get: Callable[[bytes], bytes | None]

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
        condition = parse(where)
        order = checks.sort(sort, self.key, condition)
        project = parse_fields(fields, self.key, condition.near)
        without = checks.skip(skip)
        key = None if without else rows.asked_key(where, self.key)
        if key is None:
            found = self._finder.find(condition, order, 1, without)
        else:  # one at most, in whatever order
            text = self._get(key)
            found = [] if text is None else [_decode(text)]
            self._workload.finds += 1
        return (project(found[0]) if project else found[0]) if found else None

    def find_lazily(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> Documents:  # fmt: skip
        """What `find` gives as a sequence that decodes a document when it is looked at.

        For many of which few are looked at, or which are passed on as JSON (`json`, `texts()`).

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> done = cars.put_many([{"id": n, "speed": 10 * n} for n in range(1000)])
        >>> found = cars.find_lazily({"speed": {"$gte": 50}})
        >>> len(found), found[0], found.texts()[-1]
        (995, {'id': 999, 'speed': 9990}, b'{"id":5,"speed":50}')
        >>> db.close()
        """
        condition = parse(where)
        order = checks.sort(sort, self.key, condition)
        most, without = checks.count(limit, "limit"), checks.skip(skip)
        project = parse_fields(fields, self.key, condition.near)
        return self._finder.lazily(condition, order, most, without, project)

    def nearest(
        self, point: Any, limit: int = 10, where: Document | None = None, *,
        field: str | None = None, max_distance_m: float | None = None,
        min_distance_m: float | None = None, fields: Fields = None,
    ) -> list[Nearest]:  # fmt: skip
        """The documents nearest to a point, with how far they are in metres.

        `point` is (lon, lat). `field` is where their places are; without, the one that has an
        index of places. Those of one distance come by their key.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id", indexes={"at": "spatial"})
        >>> done = cars.put_many([{"id": n, "at": [2.0, 48.0 + n / 100]} for n in range(9)])
        >>> [(found.document["id"], round(found.metres)) for found in cars.nearest((2, 48.052), 2)]
        [(5, 222), (6, 890)]
        >>> db.close()
        """
        if field is None:
            name = self._field_of_places()
        else:
            name = checks.name_without_comma(field, "field")
        asked: Document = {"$near": list(point) if isinstance(point, tuple) else point}
        if max_distance_m is not None:
            asked["$maxDistance"] = max_distance_m
        if min_distance_m is not None:
            asked["$minDistance"] = min_distance_m
        inner = parse(where)
        condition = parse({"$and": [{name: asked}, inner.document]} if inner else {name: asked})
        near = condition.near
        if near is None:
            raise InvalidRequest("where must not have a $near of its own", where=where)
        project = parse_fields(fields, self.key)
        most = checks.count(limit, "limit")
        found = self._finder.find(condition, near.order, most)
        return [
            Nearest(one if project is None else project(one), near.metres(one) or 0.0)
            for one in found
        ]

    def _field_of_places(self) -> str:
        """The one field that has an index which knows what is near."""
        names = [name for name, kind in self._finder.kinds.items() if kind.orders_arrays]
        if len(names) != 1:
            raise InvalidRequest(
                "name the field of the places: field=...; without, there must be one spatial index",
                indexes=names,
            )
        return names[0]

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
        condition = parse(where)
        project = parse_fields(fields, self.key, condition.near)
        most, without = checks.count(limit, "limit"), checks.skip(skip)
        if most is not None and without + most <= cursor.BATCH:  # an index may stop early
            order = checks.sort(sort, self.key, condition)
            few = self._finder.find(condition, order, most, without)
            return iter(few if project is None else [project(one) for one in few])
        found = self._read(condition, sort, limit, skip, cursor.BATCH)
        return (
            project(_decode(text)) if project else _decode(text)
            for part in found for text in part.docs.to_list()
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
        condition = parse(where)
        project = parse_fields(fields, self.key, condition.near)
        found = self._read(condition, sort, limit, skip, _BATCH_ROWS)
        return (_batch(part, project) for part in found if len(part.seqs))

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

    def aggregate_grid(
        self, box: Any, *, rows: int = 50, cols: int = 50, where: Document | None = None,
        field: str | None = None,
    ) -> pa.Table:  # fmt: skip
        """How many documents are in each cell of a grid over a box, as an Arrow table.

        `box` is west, south, east and north in degrees. The table has the cells that have any:
        row (from the south), col (from the west), the edges and the count. `field` has the
        places; without it, the one field with a spatial index. A condition on the filter field
        counts what is recent. `tideline.heatmap.picture.heatmap` draws it.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> places = db.collection("places", key="id")
        >>> done = places.put_many([{"id": n, "at": [n / 10, 0.5], "x": n} for n in range(9)])
        >>> found = places.aggregate_grid((0, 0, 1, 1), rows=1, cols=2, field="at")
        >>> found.select(["row", "col", "west", "east", "count"]).to_pylist()[0]
        {'row': 0, 'col': 0, 'west': 0.0, 'east': 0.5, 'count': 5}
        >>> found = places.aggregate_grid([0, 0, 1, 1], cols=1, where={"x": {"$gt": 2}}, field="at")
        >>> found.column("count").to_pylist()
        [6]
        >>> db.close()
        """
        cells = grid.grid_of(box, rows, cols)
        name = grid.field_of(field, self._finder.indexes())
        parse(where)  # what is wrong is told of it alone
        condition = parse(grid.condition_of(where, name, cells))
        parts = self._finder.hits(condition).parts
        return grid.count_on(([text for _, text in part] for part in parts), name, cells)

    def _read(
        self, condition: Condition, sort: Any, limit: Any, skip: Any, batch: int
    ) -> Iterator[Gathered]:
        """What a condition finds, in order and some at a time; checked at once."""
        order = checks.sort(sort, self.key, condition)
        most = checks.count(limit, "limit")
        return cursor.read(
            self._finder.hits(condition), self.key, order, checks.skip(skip), most, batch
        )


def _decoder_of(fields: set[str]) -> Callable[[bytes], Document]:
    """Decodes these fields of a document and passes over the others: several times as fast."""
    return msgspec.json.Decoder(TypedDict("Some", dict.fromkeys(fields, Any), total=False)).decode  # type: ignore[operator]


def _batch(part: Gathered, project: Projection | None) -> pa.RecordBatch:
    docs = part.docs
    if project is not None:
        docs = Texts.of([_encode(project(_decode(text))) for text in docs.to_list()])
    return scanned_batch(part.keys, part.seqs, docs)
