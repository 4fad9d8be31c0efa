"""The routes of collections: what they are, and Arrow streams for Spark's tasks.

    GET        collections            those that the token may use
    GET, PUT, DELETE   collection     what it is; make one; drop it
    GET        documents, cuts        what is stored between two keys; keys that cut it into parts
    GET        changes                what was written after one seq, up to another
    POST ...   staged                 rows put aside, checked and landed as one: staged.py

The verbs are in collection_verbs.py. A token with rows may read documents and changes, as far as
its rule lets them be seen; all else here needs one that may see all documents.
"""

from __future__ import annotations

import contextlib
import math
from functools import partial
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from tideline.channel.landing import DocumentLanding, Landed
from tideline.documents import Collection, settings
from tideline.documents.export import SCANNED, changes_table, key_of
from tideline.errors import Closed, NotFound
from tideline.model import CollectionStats
from tideline.server import collection_verbs, staged
from tideline.server.channels import where_of
from tideline.server.collection_limited import Limited, seen_table
from tideline.server.collection_shapes import LASTING, described, ttl_of
from tideline.server.collection_verbs import collection_of
from tideline.server.incoming import DECODED, read_stream
from tideline.server.ops import ANY, ARROW, Call, Op, Reply
from tideline.server.refusals import Refused
from tideline.server.tables import answer, stream_of

__all__ = ["OPS"]


_TEXT = Annotated[Any, described("The name of a field.", type=["string", "null"])]
_INDEXES = Annotated[
    Any,
    described(
        "Fields with the kind of their index, null for the one that fits; or with the settings "
        "of a kind; or fields alone.",
        anyOf=[
            {"type": "null"},
            {"type": "array", "items": {"type": "string"}},
            {"type": "object", "additionalProperties": {"type": ["string", "null", "object"]}},
        ],
    ),
]
_POLICY = Annotated[Any, described("Which components merge.", type=["string", "object", "null"])]
_BITS = Annotated[Any, described("Bits an entry.", type=["integer", "null"], minimum=1)]
_SECONDS = Annotated[
    Any, described("How long changes are kept.", type=["number", "null"], minimum=0)
]
_LASTING = Annotated[Any, described("How long documents last, in seconds.", **LASTING)]
_FLAG = Annotated[Any, described("Whether old versions are kept, too.", type=["boolean", "null"])]


class CollectionIn(msgspec.Struct, forbid_unknown_fields=True):
    """A collection to make, or what it must be. A new one needs `key`."""

    key: _TEXT = None
    indexes: _INDEXES = None
    policy: _POLICY = None
    filter: _TEXT = None
    bloom_bits: _BITS = None
    journal_s: _SECONDS = None
    journal_before: _FLAG = None
    ttl_s: _LASTING = None


class CollectionOut(msgspec.Struct):
    """A collection: what it is, what it holds, and where its changes stand.

    `stats` is null for a token that may not see all documents.
    """

    name: str
    key: str
    indexes: dict[str, str | dict[str, Any]]
    unique: list[str]
    policy: dict[str, Any]
    filter: str | None
    bloom_bits: int
    journal_s: float
    journal_before: bool
    ttl_s: float | None
    identity: str
    position: int
    earliest: int
    stats: CollectionStats | None


class DocumentsQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which documents: keys from `low` on, before `limit` or up to `high`, as JSON."""

    where: str | None = None
    low: str | None = None
    high: str | None = None
    limit: str | None = None


class CutsQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many parts; 0: by how much there is."""

    parts: Annotated[int, msgspec.Meta(ge=0, le=10_000)]


class ChangesQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which changes: those with a seq in (after, upto]."""

    after: Annotated[int, msgspec.Meta(ge=0)]
    upto: Annotated[int, msgspec.Meta(ge=0)]
    before: bool = False


class DocumentsCheckIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Rows to check, and what they are; `keep` is the job that the bad ones are staged for."""

    tokens: list[str]
    op: str = "put"
    version: str | None = None
    keep: staged.Job | None = None


class DocumentsCommitIn(DocumentsCheckIn):
    """Rows to land; `once` is a writer and the number of its batch."""

    once: tuple[str, Annotated[int, msgspec.Meta(ge=0, lt=1 << 43)]] | None = None


def _whole(call: Call) -> Collection:
    return collection_of(call, whole=True)


def _facts(found: Collection) -> CollectionOut:
    facts = found._engine.facts
    return CollectionOut(
        found.name, found.key, found.indexes, list(found.unique), found.policy, found.filter,
        facts["bloom_bits"], found.journal_s, found.journal_before, found.ttl_s, found.identity,
        found.position(), found.earliest(),
        None if isinstance(found, Limited) else found.stats(),
    )  # fmt: skip


async def list_collections(call: Call) -> list[CollectionOut]:
    found = []
    for name, each in sorted(call.hub.db._collections.items()):
        if call.caller.may(ANY, name):
            with contextlib.suppress(Refused):  # it has no rows there
                rule = call.caller.rule(name)
                found.append(each if rule is None else Limited(each, rule))

    def run() -> list[CollectionOut]:
        described = []
        for each in found:
            with contextlib.suppress(Closed):  # dropped meanwhile
                described.append(_facts(each))
        return described

    return await call.hub.in_thread(run)


async def get_collection(call: Call) -> CollectionOut:
    return await call.hub.in_thread(_facts, collection_of(call))


async def put_collection(call: Call) -> Reply:
    db, name = call.hub.db, call.names["collection"]
    given = msgspec.to_builtins(call.body)
    given["ttl_s"] = ttl_of(given["ttl_s"])
    if not call.caller.may("admin", name):
        return await call.hub.in_thread(_as_given, call, given)
    call.caller.need_whole(name)

    def make() -> Reply:
        new = name not in db.collections()
        return Reply(_facts(db.collection(name, **given)), status=201 if new else 200)

    return await call.hub.in_thread(make)


def _as_given(call: Call, given: dict[str, Any]) -> Reply:
    """For who may not make collections: whether one is there as given; nothing is changed."""
    try:
        found = collection_of(call)
    except NotFound:
        call.caller.need("admin", call.names["collection"])
        raise
    for setting in ("journal_s", "journal_before", "ttl_s"):  # another value would change these
        value = given.pop(setting)
        if value is not None and (None if value == math.inf else value) != getattr(found, setting):
            call.caller.need("admin", found.name)
    settings.same(found.name, settings.given(**given), found)
    return Reply(_facts(found))


async def drop_collection(call: Call) -> dict[str, str]:
    _whole(call)
    await call.hub.in_thread(call.hub.db.drop_collection, call.names["collection"])
    return {"dropped": call.names["collection"]}


async def scan_documents(call: Call) -> Any:
    found, query = collection_of(call), call.query

    def run() -> pa.Buffer:
        low, high, limit = (key_of(text) for text in (query.low, query.high, query.limit))
        batches = found.scan(where_of(query.where), low=low, high=high, limit=limit)
        return stream_of(pa.Table.from_batches(batches, schema=SCANNED))

    return answer(await call.hub.in_thread(run), {})


async def cuts(call: Call) -> list[str]:
    found = _whole(call)
    return await call.hub.in_thread(found.cuts, call.query.parts)


async def read_changes(call: Call) -> Any:
    found, query = collection_of(call), call.query
    rule = call.caller.rule(found.name)

    def run() -> pa.Buffer:
        wanted = query.before or rule is not None
        table = changes_table(found, query.after, query.upto, before=wanted)
        return stream_of(table if rule is None else seen_table(table, rule, query.before))

    return answer(await call.hub.in_thread(run), {})


# ---- staged ---------------------------------------------------------------------------------


def _spool(call: Call) -> Any:
    return staged.spool_of(call, _whole(call).identity)


def _landing(call: Call) -> DocumentLanding:
    from tideline.documents.landing import Arriving

    found, body = _whole(call), call.body
    Arriving(found, body.op, body.version)  # refuses what it cannot be
    return DocumentLanding(
        lambda once: Arriving(found, body.op, body.version, once), found._landing, _spool(call),
        partial(staged.go_on, call),
    )  # fmt: skip


async def stage_documents(call: Call) -> dict[str, str]:
    spool = _spool(call)
    most_bytes = DECODED * call.hub.settings.batch_bytes
    table = await call.hub.in_thread(read_stream, call.body, most_bytes)
    call.hub.limits.spend(call.caller, table.num_rows / 100)
    return {"token": await call.hub.in_thread(staged.put_aside, call, spool, table, "arrival")}


check, commit, fetch, discard = staged.handlers("documents", _spool, _landing)

_C = "/v1/collections/{collection}"
_S = f"{_C}/staged"

OPS = [
    Op("GET", "/v1/collections", "The collections the token has a scope for.", list_collections,
       scope=ANY, gives=list[CollectionOut]),
    Op("GET", _C, "What a collection is and holds.", get_collection, scope=ANY,
       gives=CollectionOut),
    Op("PUT", _C, "Make a collection (admin), or check that it is as given.", put_collection,
       scope=ANY, takes=(CollectionIn,), gives=CollectionOut, statuses=(200, 201),
       refuses=(409,)),
    Op("DELETE", _C, "Drop a collection with everything in it.", drop_collection, scope="admin",
       gives=dict[str, str]),
    Op("GET", f"{_C}/documents", "Documents by key.", scan_documents, scope="read",
       query=DocumentsQuery, gives=ARROW),
    Op("GET", f"{_C}/cuts", "Keys that cut a collection into parts.", cuts, scope="read",
       query=CutsQuery, gives=list[str]),
    Op("GET", f"{_C}/changes", "What was written between two seqs.", read_changes, scope="read",
       query=ChangesQuery, gives=ARROW),
    Op("POST", _S, "Put rows aside for a collection.", stage_documents, scope="publish|write",
       query=staged.DiscardQuery, takes=ARROW, gives=dict[str, str], large=True),
    Op("DELETE", _S, "Remove what a job put aside for a collection.", discard,
       scope="publish|write", query=staged.DiscardQuery, gives=dict[str, str]),
    Op("POST", f"{_S}/check", "What is wrong with rows put aside for a collection.",
       check, scope="publish|write", takes=(DocumentsCheckIn,), gives=Landed),
    Op("POST", f"{_S}/commit", "Land rows put aside for a collection.", commit,
       scope="publish|write", takes=(DocumentsCommitIn,), gives=Landed),
    Op("GET", f"{_S}/{{token}}", "Rows put aside for a collection.", fetch,
       scope="publish|write", gives=ARROW),
    *collection_verbs.OPS,
]  # fmt: skip
