"""The JSON of the verbs of collections: what each takes, and calls.

The body of `POST /v1/collections/{collection}/{verb}` is one object with the parameters of the
method of `Collection`, by their names. Types are checked as a body is decoded; what they mean
is checked by the method, in its own words. Documents stay the text that they came as.

Pure; safe from any thread.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tideline.documents import Collection
from tideline.errors import InvalidRequest
from tideline.model import Stored

__all__ = ["StoredOut", "Take", "stored_out"]

Document = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
AnyDocument = Annotated[
    msgspec.Raw, msgspec.Meta(description="Each is stored, or rejected with a reason.")
]
Key = int | str
Where = Annotated[dict[str, Any], msgspec.Meta(description="A condition.")]
Change = Annotated[dict[str, Any], msgspec.Meta(description="Update operators with fields.")]
Sort = Annotated[
    dict[str, int] | list[tuple[str, int]],
    msgspec.Meta(description="Fields with 1 (up) or -1 (down); without it the newest come first."),
]
Fields = Annotated[
    list[str] | dict[str, int | bool],
    msgspec.Meta(description='These fields and the key, or {"text": 0} for all but these.'),
]
Scalar = bool | int | float | str | None


class Take(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of a verb."""

    def call(self, to: Collection) -> Any:
        """The method of the collection with these parameters."""
        raise NotImplementedError

    @property
    def weight(self) -> float:
        """How many operations it counts as, beside one."""
        return 0.0


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

    def call(self, to: Collection) -> None:
        to.put(bytes(self.document))


class Insert(Take):
    """A document to store, if there is none with its key."""

    document: Document

    def call(self, to: Collection) -> int:
        return to.insert(bytes(self.document))


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

    def call(self, to: Collection) -> StoredOut:
        return stored_out(to.put_many(self.texts))


class InsertMany(_Many):
    """Documents to store, where there is none with the key."""

    def call(self, to: Collection) -> StoredOut:
        return stored_out(to.insert_many(self.texts))


class CheckMany(_Many):
    """Documents to look at."""

    def call(self, to: Collection) -> dict[str, str]:
        return {str(row): why for row, why in to.check_many(self.texts).items()}


class Update(Take):
    """A change of one document."""

    key: Key
    change: Change
    upsert: bool = False
    if_version: int | None = None

    def call(self, to: Collection) -> dict[str, Any]:
        return to.update(self.key, self.change, upsert=self.upsert, if_version=self.if_version)


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
    if_version: int | None = None

    def call(self, to: Collection) -> int:
        return to.replace(self.key, bytes(self.document), if_version=self.if_version)


class Delete(Take):
    """The key of a document to delete."""

    key: Key
    if_version: int | None = None

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

    where: Where | None = None
    sort: Sort | None = None
    skip: int = 0
    fields: Fields | None = None

    def call(self, to: Collection) -> dict[str, Any] | None:
        return to.find_one(self.where, sort=self.sort, skip=self.skip, fields=self.fields)


class Find(FindOne):
    """Which documents, and which page of them."""

    limit: int | None = None
    page: Annotated[int, msgspec.Meta(description="Documents in one answer; at most 1,000.")] | (
        None
    ) = None
    cursor: Annotated[str, msgspec.Meta(description="`next` of the page before.")] | None = None

    def check_whole(self) -> None:
        """Refuse what has no meaning for an answer without pages."""
        if self.cursor is not None or self.page is not None:
            raise InvalidRequest("an Arrow stream has all documents: leave out cursor and page")


class Count(Take):
    """A condition."""

    where: Where | None = None

    def call(self, to: Collection) -> int:
        return to.count(self.where)


class Distinct(Take):
    """A field, and a condition."""

    field: str
    where: Where | None = None

    def call(self, to: Collection) -> list[Any]:
        return to.distinct(self.field, self.where)


class Aggregate(Take):
    """Stages."""

    pipeline: list[dict[str, Any]]

    def call(self, to: Collection) -> list[dict[str, Any]]:
        return to.aggregate(self.pipeline)


class Lookup(Take):
    """A value of an indexed field."""

    field: str
    value: Scalar
    k: int | None = None

    def call(self, to: Collection) -> list[dict[str, Any]]:
        return to.lookup(self.field, self.value, self.k)


class RangeLookup(Take):
    """A range of values of an indexed field."""

    field: str
    low: Scalar = None
    high: Scalar = None
    k: int | None = None

    def call(self, to: Collection) -> list[dict[str, Any]]:
        return to.range_lookup(self.field, self.low, self.high, self.k)


class Explain(Take):
    """A question to explain."""

    where: Where | None = None
    sort: Sort | None = None
    limit: int | None = None

    def call(self, to: Collection) -> Any:
        return to.explain(self.where, sort=self.sort, limit=self.limit)


class Advise(Take):
    """What is scarce, and what will be asked."""

    scarce: bool = False
    where: list[Where] = []
    limit: int | None = None

    def call(self, to: Collection) -> Any:
        return to.advise(scarce=self.scarce, where=self.where, limit=self.limit)


class LandedIn(Take):
    """A writer's batch."""

    writer: str
    number: int

    def call(self, to: Collection) -> int | None:
        return to.landed(self.writer, self.number)


class ForgetWorkload(Take):
    """Nothing."""

    def call(self, to: Collection) -> None:
        to.forget_workload()


class CreateIndex(Take):
    """An index to build; the answer comes when it is there, or after `wait_s`."""

    field: str
    kind: str | None = None
    unique: bool = False
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 600.0


class DropIndex(Take):
    """An index to drop."""

    field: str

    def call(self, to: Collection) -> None:
        to.drop_index(self.field)
