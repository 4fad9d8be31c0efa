"""The JSON of the verbs of collections: what each takes, and calls.

The body of `POST /v1/collections/{collection}/{verb}` is one object with the parameters of the
method of `Collection`, by their names. Types are checked as a body is decoded; what they mean
is checked by the method, in its own words. Documents stay the text that they came as.

Pure; safe from any thread.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import msgspec

from tideline.documents import Collection
from tideline.errors import InvalidRequest
from tideline.model import Stored

__all__ = ["StoredOut", "Take", "described", "stored_out", "ttl_of"]

Document = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
AnyDocument = Annotated[
    msgspec.Raw, msgspec.Meta(description="Each is stored, or rejected with a reason.")
]
Key = int | str


def described(description: str, **schema: Any) -> msgspec.Meta:
    """What a value should be, for the description: the method checks it, in its own words."""
    return msgspec.Meta(description=description, extra_json_schema=schema)


_WHOLE = {"type": ["integer", "null"], "minimum": 1}
Where = Annotated[Any, described("A condition.", type=["object", "null"])]
Change = Annotated[Any, described("Update operators with fields.", type="object", minProperties=1)]
Sort = Annotated[Any, described(
    "Fields with 1 (up) or -1 (down); without it the newest come first.",
    anyOf=[
        {"type": "null"},
        {"type": "object", "minProperties": 1, "additionalProperties": {"enum": [1, -1]}},
        {"type": "array", "minItems": 1, "items": {"type": "array", "prefixItems": [
            {"type": "string"}, {"enum": [1, -1]}], "minItems": 2, "maxItems": 2}},
    ],
)]  # fmt: skip
Fields = Annotated[
    Any,
    described(
        'These fields and the key, or {"text": 0} for all but these.',
        anyOf=[
            {"type": "null"},
            {"type": "array", "items": {"type": "string"}},
            {"type": "object", "additionalProperties": {"enum": [0, 1, True, False]}},
        ],
    ),
]
Most = Annotated[Any, described("At most so many.", **_WHOLE)]
Spare = Annotated[
    Any, described("So many are known beyond the limit.", type=["integer", "null"], minimum=0)
]
Skip = Annotated[Any, described("So many of the first are left out.", type="integer", minimum=0)]
Version = Annotated[Any, described("The version that the document must have.", **_WHOLE)]
Flag = Annotated[Any, described("Whether.", type="boolean")]
Scalar = Annotated[Any, described("A value.", type=["null", "boolean", "number", "string"])]
Name = Annotated[Any, described("A field.", type="string")]
Number = Annotated[Any, described("Of the batch.", type="integer", minimum=0)]
LASTING = {"anyOf": [{"type": ["number", "null"], "exclusiveMinimum": 0}, {"const": "never"}]}
Ttl = Annotated[Any, described("Seconds after which it is gone by itself; or never.", **LASTING)]
Index = Annotated[
    Any,
    described(
        "A field, or several.",
        anyOf=[{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
    ),
]
Kind = Annotated[
    Any,
    described(
        'Of index; without it the one that fits. With settings like {"kind": "ngrams", "n": 3}.',
        type=["string", "object", "null"],
    ),
]
Stages = Annotated[Any, described("Stages.", type="array", items={"type": "object"})]
Conditions = Annotated[Any, described("Conditions.", type="array", items={"type": "object"})]


class Take(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of a verb."""

    def call(self, to: Collection) -> Any:
        """The method of the collection with these parameters."""
        raise NotImplementedError

    @property
    def weight(self) -> float:
        """How many operations it counts as, beside one."""
        return 0.0


def ttl_of(value: Any) -> Any:
    """How long a document lasts: JSON has no infinity, and says never."""
    return math.inf if value == "never" else value


class StoredOut(msgspec.Struct):
    """How many were stored, and why the others were not, by their row."""

    stored: int
    rejected: dict[str, str]


def stored_out(done: Stored) -> StoredOut:
    """What `put_many` returned, as JSON has it."""
    rows, reasons = done.rejected["row"].to_pylist(), done.rejected["reason"].to_pylist()
    return StoredOut(done.stored, {str(row): why for row, why in zip(rows, reasons, strict=True)})


# ---- writing --------------------------------------------------------------------------------


class Put(Take):
    """A document to store."""

    document: Document
    ttl_s: Ttl = None

    def call(self, to: Collection) -> None:
        to.put(bytes(self.document), ttl_s=ttl_of(self.ttl_s))


class Insert(Take):
    """A document to store, if there is none with its key."""

    document: Document
    ttl_s: Ttl = None

    def call(self, to: Collection) -> int:
        return to.insert(bytes(self.document), ttl_s=ttl_of(self.ttl_s))


class _Many(Take):
    documents: list[AnyDocument]

    @property
    def texts(self) -> list[bytes]:
        return [bytes(one) for one in self.documents]

    @property
    def weight(self) -> float:
        return len(self.documents) / 100


class PutMany(_Many):
    """Documents to store."""

    ttl_s: Ttl = None

    def call(self, to: Collection) -> StoredOut:
        return stored_out(to.put_many(self.texts, ttl_s=ttl_of(self.ttl_s)))


class InsertMany(_Many):
    """Documents to store, where there is none with the key."""

    ttl_s: Ttl = None

    def call(self, to: Collection) -> StoredOut:
        return stored_out(to.insert_many(self.texts, ttl_s=ttl_of(self.ttl_s)))


class CheckMany(_Many):
    """Documents to look at."""

    def call(self, to: Collection) -> dict[str, str]:
        return {str(row): why for row, why in to.check_many(self.texts).items()}


class Update(Take):
    """A change of one document."""

    key: Key
    change: Change
    upsert: Flag = False
    if_version: Version = None
    ttl_s: Ttl = None

    def call(self, to: Collection) -> dict[str, Any]:
        return to.update(self.key, self.change, upsert=self.upsert, if_version=self.if_version,
                         ttl_s=ttl_of(self.ttl_s))  # fmt: skip


class UpdateMany(Take):
    """A change of all documents that meet a condition."""

    where: Where
    change: Change

    def call(self, to: Collection) -> Any:
        return to.update_many(self.where, self.change)


class Replace(Take):
    """A document in place of the one with this key."""

    key: Key
    document: Document
    if_version: Version = None
    ttl_s: Ttl = None

    def call(self, to: Collection) -> int:
        return to.replace(self.key, bytes(self.document), if_version=self.if_version,
                          ttl_s=ttl_of(self.ttl_s))  # fmt: skip


class Delete(Take):
    """The key of a document to delete."""

    key: Key
    if_version: Version = None

    def call(self, to: Collection) -> None:
        to.delete(self.key, if_version=self.if_version)


class DeleteMany(Take):
    """The keys of documents to delete."""

    keys: list[Key]

    def call(self, to: Collection) -> None:
        to.delete_many(self.keys)

    @property
    def weight(self) -> float:
        return len(self.keys) / 100


class DeleteWhere(Take):
    """A condition that documents to delete meet."""

    where: Where

    def call(self, to: Collection) -> int:
        return to.delete_where(self.where)


# ---- reading --------------------------------------------------------------------------------


class Get(Take):
    """The key of a document."""

    key: Key

    def call(self, to: Collection) -> dict[str, Any] | None:
        return to.get(self.key)


class GetMany(Take):
    """The keys of documents."""

    keys: Annotated[list[Key], msgspec.Meta(max_length=10_000)]

    def call(self, to: Collection) -> list[dict[str, Any] | None]:
        return to.get_many(self.keys)

    @property
    def weight(self) -> float:
        return len(self.keys) / 100


class VersionedIn(Take):
    """The key of a document."""

    key: Key

    def call(self, to: Collection) -> Any:
        found = to.versioned(self.key)
        return None if found is None else found._asdict()


class FindOne(Take):
    """Which document."""

    where: Where = None
    sort: Sort = None
    skip: Skip = 0
    fields: Fields = None

    def call(self, to: Collection) -> dict[str, Any] | None:
        return to.find_one(self.where, sort=self.sort, skip=self.skip, fields=self.fields)


class Find(FindOne):
    """Which documents, and which page of them."""

    limit: Most = None
    page: Most = None
    """Documents in one answer; more than 1,000 never come."""
    cursor: Annotated[str, msgspec.Meta(description="`next` of the page before.")] | None = None

    def check_whole(self) -> None:
        """Refuse what has no meaning for an answer without pages."""
        if self.cursor is not None or self.page is not None:
            raise InvalidRequest("an Arrow stream has all documents: leave out cursor and page")


class Count(Take):
    """A condition."""

    where: Where = None

    def call(self, to: Collection) -> int:
        return to.count(self.where)


class Distinct(Take):
    """A field, and a condition."""

    field: Name
    where: Where = None

    def call(self, to: Collection) -> list[Any]:
        return to.distinct(self.field, self.where)


class Aggregate(Take):
    """Stages."""

    pipeline: Stages

    def call(self, to: Collection) -> list[dict[str, Any]]:
        return to.aggregate(self.pipeline)


class Nearest(Take):
    """A point, and which documents."""

    point: Annotated[Any, described(
        "[lon, lat], or a GeoJSON Point.", anyOf=[
            {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
            {"type": "object"},
        ],
    )]  # fmt: skip
    limit: Most = 10
    where: Where = None
    field: Annotated[str, msgspec.Meta(
        description="The field of the places; without it, that of the one spatial index."
    )] | None = None  # fmt: skip
    max_distance_m: Annotated[Any, described("Not farther.", type=["number", "null"])] = None
    min_distance_m: Annotated[Any, described("Not nearer.", type=["number", "null"])] = None
    fields: Fields = None

    def call(self, to: Collection) -> list[dict[str, Any]]:
        found = to.nearest(
            self.point, self.limit, self.where, field=self.field,
            max_distance_m=self.max_distance_m, min_distance_m=self.min_distance_m,
            fields=self.fields,
        )  # fmt: skip
        return [one._asdict() for one in found]


class CellsOut(msgspec.Struct):
    """The cells of a grid that have any: cell n is in row `row[n]`, from the south, and column
    `col[n]`, from the west."""

    box: list[float]
    rows: int
    cols: int
    row: list[int]
    col: list[int]
    count: list[int]


class AggregateGrid(Take):
    """A box in equal cells, and a condition."""

    box: Annotated[Any, described("West, south, east, north in degrees.", type="array",
                                  items={"type": "number"}, minItems=4, maxItems=4)]  # fmt: skip
    rows: Annotated[Any, described("Cells from south to north.", type="integer", minimum=1)] = 50
    cols: Annotated[Any, described("Cells from west to east.", type="integer", minimum=1)] = 50
    where: Where = None
    field: Annotated[str, msgspec.Meta(
        description="The field of the places; without it, that of the one spatial index."
    )] | None = None  # fmt: skip

    def call(self, to: Collection) -> CellsOut:
        box, rows, cols = self.box, self.rows, self.cols
        found = to.aggregate_grid(box, rows=rows, cols=cols, where=self.where, field=self.field)
        row, col, count = (found.column(name).to_pylist() for name in ("row", "col", "count"))
        return CellsOut(list(box), rows, cols, row, col, count)


class Lookup(Take):
    """A value of an indexed field."""

    field: Name
    value: Scalar
    k: Most = None

    def call(self, to: Collection) -> list[dict[str, Any]]:
        return to.lookup(self.field, self.value, self.k)


class RangeLookup(Take):
    """A range of values of an indexed field."""

    field: Name
    low: Scalar = None
    high: Scalar = None
    k: Most = None

    def call(self, to: Collection) -> list[dict[str, Any]]:
        return to.range_lookup(self.field, self.low, self.high, self.k)


class Explain(Take):
    """A question to explain."""

    where: Where = None
    sort: Sort = None
    limit: Most = None

    def call(self, to: Collection) -> Any:
        return to.explain(self.where, sort=self.sort, limit=self.limit)


class ExplainWatch(Take):
    """A live query to explain."""

    where: Where = None
    sort: Sort = None
    limit: Most = None
    offset: Skip = 0
    slack: Spare = None

    def call(self, to: Any) -> Any:
        return to.explain_watch(
            self.where, sort=self.sort, limit=self.limit, offset=self.offset, slack=self.slack
        )


class Advise(Take):
    """What is scarce, and what will be asked."""

    scarce: Flag = False
    where: Conditions = []
    limit: Most = None

    def call(self, to: Collection) -> Any:
        return to.advise(scarce=self.scarce, where=self.where, limit=self.limit)


class LandedIn(Take):
    """A writer's batch."""

    writer: Name
    number: Number

    def call(self, to: Collection) -> int | None:
        return to.landed(self.writer, self.number)


class ForgetWorkload(Take):
    """Nothing."""

    def call(self, to: Collection) -> None:
        to.forget_workload()


class CreateIndex(Take):
    """An index to build; the answer comes when it is there, or after `wait_s`."""

    HINT: ClassVar[str] = '; settings of a kind stand in it: {"kind": {"kind": "ngrams", "n": 3}}'

    field: Index
    kind: Kind = None
    unique: Flag = False
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 600.0


class DropIndex(Take):
    """An index to drop."""

    field: Index

    def call(self, to: Collection) -> None:
        to.drop_index(self.field)
