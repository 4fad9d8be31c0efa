"""The routes of collections, as Spark's tasks use them: Arrow streams in and out.

    GET, PUT   collection             what it is; make one
    GET        documents, cuts        what is stored between two keys; keys that cut it into parts
    GET        changes                what was written after one seq, up to another
    POST ...   staged                 rows put aside, checked and landed as one: staged.py

A token that is bound to a user may use none of them: a document belongs to nobody.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pyarrow as pa

from tideline.channel.landing import DocumentLanding, Landed
from tideline.documents.export import SCANNED, changes_table, key_of
from tideline.errors import Closed, NotFound
from tideline.server import staged
from tideline.server.channels import where_of
from tideline.server.incoming import DECODED, read_stream
from tideline.server.ops import ARROW, Call, Op
from tideline.server.refusals import Refused
from tideline.server.tables import answer, stream_of

__all__ = ["OPS"]


class CollectionIn(msgspec.Struct, forbid_unknown_fields=True):
    """A collection to make, or what it must be."""

    key: str
    indexes: dict[str, str] | None = None


class CollectionOut(msgspec.Struct):
    """A collection: what it is, and where its changes stand."""

    key: str
    indexes: dict[str, str]
    identity: str
    position: int
    earliest: int


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


def _collection(call: Call) -> Any:
    if call.caller.user is not None:
        raise Refused(403, "Forbidden", "a token that is bound to a user reads no collection")
    name = call.names["collection"]
    found = call.hub.db._collections.get(name)
    if found is None:
        raise NotFound("no such collection", name=name)
    return found


async def get_collection(call: Call) -> CollectionOut:
    return await call.hub.in_thread(_facts, _collection(call))


def _facts(found: Any) -> CollectionOut:
    return CollectionOut(
        found.key, found.indexes, found.identity, found.position(), found.earliest()
    )


async def put_collection(call: Call) -> CollectionOut:
    def make() -> CollectionOut:
        name, body = call.names["collection"], call.body
        found = call.hub.db.collection(name, key=body.key, indexes=body.indexes)
        return _facts(found)

    return await call.hub.in_thread(make)


async def scan_documents(call: Call) -> Any:
    found, query = _collection(call), call.query

    def run() -> pa.Buffer:
        low, high, limit = (key_of(text) for text in (query.low, query.high, query.limit))
        batches = found.scan(where_of(query.where), low=low, high=high, limit=limit)
        return stream_of(pa.Table.from_batches(batches, schema=SCANNED))

    return answer(await call.hub.in_thread(run), {})


async def cuts(call: Call) -> list[str]:
    found = _collection(call)
    return await call.hub.in_thread(found.cuts, call.query.parts)


async def read_changes(call: Call) -> Any:
    found, query = _collection(call), call.query

    def run() -> pa.Buffer:
        return stream_of(changes_table(found, query.after, query.upto, before=query.before))

    return answer(await call.hub.in_thread(run), {})


# ---- staged ---------------------------------------------------------------------------------


def _spool(call: Call) -> Any:
    return staged.spool_of(call, _collection(call).identity)


def _landing(call: Call) -> DocumentLanding:
    from tideline.documents.landing import Arriving

    def go_on() -> None:
        if call.hub.stopping:
            raise Closed("the server is stopping")

    found, body = _collection(call), call.body
    Arriving(found, body.op, body.version)  # refuses what it cannot be
    return DocumentLanding(
        lambda once: Arriving(found, body.op, body.version, once), found._landing, _spool(call),
        go_on,
    )  # fmt: skip


async def stage_documents(call: Call) -> dict[str, str]:
    spool = _spool(call)
    most_bytes = DECODED * call.hub.settings.batch_bytes
    table = await call.hub.in_thread(read_stream, call.body, most_bytes)
    call.hub.limits.spend(call.caller, table.num_rows / 100)
    return {"token": await call.hub.in_thread(staged.put_aside, call, spool, table, "arrival")}


async def check_documents(call: Call) -> Landed:
    landing = _landing(call)
    return await call.hub.in_thread(landing.check, call.body.tokens, call.body.keep)


async def commit_documents(call: Call) -> Landed:
    body, landing = call.body, _landing(call)

    def run() -> Landed:
        return landing.commit(body.tokens, once=body.once, keep=body.keep)

    return await call.hub.in_thread(run)


async def fetch_documents(call: Call) -> Any:
    return await staged.fetch_from(call, _spool(call))


async def discard_documents(call: Call) -> dict[str, str]:
    await call.hub.in_thread(_spool(call).discard, call.query.job, call.query.over)
    return {"discarded": call.query.job}


_C = "/v1/collections/{collection}"
_S = f"{_C}/staged"

OPS = [
    Op("GET", _C, "What a collection is.", get_collection, scope="read", gives=CollectionOut),
    Op("PUT", _C, "Make a collection, if there is none.", put_collection, scope="admin",
       takes=(CollectionIn,), gives=CollectionOut, refuses=(409,)),
    Op("GET", f"{_C}/documents", "Documents by key.", scan_documents, scope="read",
       query=DocumentsQuery, gives=ARROW),
    Op("GET", f"{_C}/cuts", "Keys that cut a collection into parts.", cuts, scope="read",
       query=CutsQuery, gives=list[str]),
    Op("GET", f"{_C}/changes", "What was written between two seqs.", read_changes, scope="read",
       query=ChangesQuery, gives=ARROW),
    Op("POST", _S, "Put rows aside for a collection.", stage_documents, scope="publish",
       query=staged.DiscardQuery, takes=ARROW, gives=dict[str, str], large=True),
    Op("DELETE", _S, "Remove what a job put aside for a collection.", discard_documents,
       scope="publish", query=staged.DiscardQuery, gives=dict[str, str]),
    Op("POST", f"{_S}/check", "What is wrong with rows put aside for a collection.",
       check_documents, scope="publish", takes=(DocumentsCheckIn,), gives=Landed),
    Op("POST", f"{_S}/commit", "Land rows put aside for a collection.", commit_documents,
       scope="publish", takes=(DocumentsCommitIn,), gives=Landed),
    Op("GET", f"{_S}/{{token}}", "Rows put aside for a collection.", fetch_documents,
       scope="publish", gives=ARROW),
]  # fmt: skip
