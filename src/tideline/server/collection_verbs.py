"""The routes of a collection's verbs: each decodes its body, calls one method, answers.

    POST /v1/collections/{collection}/{verb}          {parameters} -> {"result": ...}
    GET, PUT, DELETE .../documents/{key}              one document, for curl and browsers

How a verb runs:

    here      on the loop: by key, from memory, in microseconds
    beside    one document is written: here, too, when it is small and nothing has to be waited
              for; else in a thread that no long call takes
    long      by condition, or many: in turn, two of one caller at a time (work.py)

A token with rows gets the collection as its rule lets it be seen (collection_limited.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa

from tideline.documents import Collection, rows
from tideline.documents.export import SCANNED
from tideline.errors import Closed, InvalidRequest, NotFound
from tideline.model import Advice, Explanation, Updated, WatchPlan
from tideline.near import did_you_mean
from tideline.server import collection_shapes as shapes
from tideline.server.collection_limited import Limited
from tideline.server.collection_pages import KEPT_S, Question
from tideline.server.collection_streams import ArrowStream
from tideline.server.incoming import DECODED, read_stream
from tideline.server.ops import ANY, ARROW, Call, Op, Reply
from tideline.server.refusals import Refused
from tideline.server.shapes import encode

__all__ = ["OPS", "collection_of"]

HERE, BESIDE, FEW, LONG = "here", "beside", "few", "long"
_LOOK_S = 0.02
_QUICK_BYTES = 64 << 10
_FEW_BYTES = 16 << 10  # of several documents: to hand them to a thread takes as long as to store
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,19}", re.ASCII)  # as JSON writes it
Document = dict[str, Any]


def collection_of(call: Call, *, whole: bool = False) -> Collection:
    """The collection of a request, as its token may use it; `whole`: only all of it will do."""
    name = call.names["collection"]
    if whole:
        call.caller.need_whole(name)
    rule = call.caller.rule(name)
    found: Collection | None = call.hub.db._collections.get(name)
    if found is None:
        seen = [each for each in call.hub.db._collections if call.caller.may(ANY, each)]
        told = NotFound(f"no such collection{did_you_mean(name, seen)}", name=name)
        raise call.hub.absent(told)
    return found if rule is None else Limited(found, rule)


def _result(name: str, kind: Any, *more: Any) -> Any:
    """The type of an answer."""
    return msgspec.defstruct(name, [("result", kind), *more])


@dataclass(frozen=True)
class _Verb:
    """How a verb is served."""

    how: str
    whole: bool
    arrow: Callable[[Collection, pa.Table, Any], Any] | None
    """What is done with a body that is an Arrow stream."""

    async def __call__(self, call: Call) -> Any:
        to, body = collection_of(call, whole=self.whole), call.body
        if isinstance(body, bytes):
            return await self._batch(call, to, body)
        few = self.how == FEW and not call.hub.waits_for_disk and _is_quick(call, to, _FEW_BYTES)
        if self.how == FEW and not few:
            call.hub.work.may_wait()
        if body.weight:
            call.hub.limits.spend(call.caller, body.weight)
        if self.how == HERE:
            return _answer(call, body.call(to))
        run = _Run(call, to, body)
        if few:
            return run()
        if self.how == BESIDE:
            return await _write_one(call, to, run)
        return await call.hub.long(call.caller, to, run)

    async def _batch(self, call: Call, to: Collection, data: bytes) -> Any:
        assert self.arrow is not None
        most_bytes = DECODED * call.hub.settings.batch_bytes
        table = await call.hub.in_thread(read_stream, data, most_bytes)
        call.hub.limits.spend(call.caller, table.num_rows / 100)
        done = await call.hub.long(call.caller, to, self.arrow, to, table, _ttl(call.query))
        return _answer(call, shapes.stored_out(done))


class _Run:
    """A call in a thread; its answer is encoded there, too."""

    def __init__(self, call: Call, to: Collection, body: shapes.Take) -> None:
        self._call, self._to, self._body = call, to, body

    def __call__(self) -> Reply:
        return _answer(self._call, self._body.call(self._to))


async def _write_one(call: Call, to: Collection, run: Callable[[], Reply]) -> Reply:
    """Run a call that writes one document."""
    hub = call.hub
    if _is_quick(call, to):
        if not hub.waits_for_disk:
            return run()
        if hub.cluster is not None and not to._engine.store.log.is_full:
            return await hub.work.agreed(run)
    return await hub.work.beside(run)


def _is_quick(call: Call, to: Collection, most_bytes: int = _QUICK_BYTES) -> bool:
    """Whether documents can be written on the loop: small, and nobody is waited for."""
    engine = to._engine
    if engine.writing.locked():
        return False
    if engine.frozen or engine.active.is_full:  # it may wait for room
        return False
    length = call.header("content-length") or ""
    if call.op.takes and not (length.isdigit() and int(length) <= most_bytes):
        return False
    if not isinstance(call.body, shapes.Update):
        return True
    text = to._get(rows.key_bytes(call.body.key))
    return text is None or len(text) <= _QUICK_BYTES


def _answer(call: Call, result: Any) -> Reply:
    data = encode({"result": result})
    most = call.hub.settings.batch_bytes
    if len(data) > most:
        raise Refused(413, "TooLarge", f"the answer is over {most} bytes: ask for less at a time")
    return Reply(data=data + b"\n")


# ---- verbs that are not like the others -----------------------------------------------------


async def _get(call: Call) -> Reply:
    """The text of a document as it is stored, without decoding it."""
    to = collection_of(call)
    return _text(to._get(rows.key_bytes(call.body.key)))


async def _find_one(call: Call) -> Reply:
    """By its key as `get`, which needs no turn; else as any question."""
    to, asked = collection_of(call), call.body
    key = rows.asked_key(asked.where, to.key)
    run = _Run(call, to, asked)
    if key is None:
        return await call.hub.long(call.caller, to, run)
    if asked.sort is None and asked.fields is None and type(asked.skip) is int and asked.skip == 0:
        return _text(to._get(key))
    return run()


def _text(text: bytes | None) -> Reply:
    return Reply(data=b'{"result":%b}\n' % (b"null" if text is None else text))


async def _update(call: Call) -> Reply:
    """Answers with the document to whoever may read it."""
    to, may_read = collection_of(call), call.caller.may("read", call.names["collection"])

    def run() -> Reply:
        document = call.body.call(to)
        return _answer(call, document if may_read else None)

    return await _write_one(call, to, run)


async def _find(call: Call) -> Any:
    to, asked = collection_of(call), call.body
    if _wants_arrow(call):
        asked.check_whole()
        batches = await call.hub.long(
            call.caller, to,
            lambda: to.find_batches(asked.where, sort=asked.sort, limit=asked.limit,
                                    skip=asked.skip, fields=asked.fields),
        )  # fmt: skip
        return ArrowStream(call.hub, SCANNED, batches)
    question = Question(
        to, asked.where, asked.sort, asked.limit, asked.skip, asked.fields, asked.page,
        asked.cursor, call.caller.key,
    )  # fmt: skip
    pages = call.hub.pages

    def run() -> tuple[bytes, bool]:
        found = question.answer(pages)
        parts = b",".join(found.documents), encode(found.next)
        return b'{"result":[%b],"next":%b}\n' % parts, found.next is not None

    if asked.cursor is None and rows.asked_key(asked.where, to.key) is not None:
        data, more = run()
    else:
        data, more = await call.hub.long(call.caller, to, run)
    if more:  # nobody may come for it
        asyncio.get_running_loop().call_later(KEPT_S + 1, pages.purge)
    return Reply(data=data)


class FormatQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How the answer comes; `Accept` says it, too."""

    format: Literal["json", "arrow"] = "json"


class TtlQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How long the documents of an Arrow stream last; JSON says it in the body."""

    ttl_s: Annotated[str, msgspec.Meta(description="Seconds, or never.")] | None = None


def _ttl(query: TtlQuery) -> Any:
    try:
        return None if query.ttl_s is None else float(query.ttl_s.replace("never", "inf"))
    except ValueError:
        raise InvalidRequest("ttl_s must be seconds, or never", ttl_s=query.ttl_s) from None


def _wants_arrow(call: Call) -> bool:
    return (
        call.query.format == "arrow"
        or (call.header("accept") or "").partition(";")[0].strip().lower() == ARROW
    )


async def _create_index(call: Call) -> Reply:
    to, asked = collection_of(call, whole=True), call.body
    build = await call.hub.in_thread(
        lambda: to.create_index(asked.field, asked.kind, unique=asked.unique)
    )
    limit = time.monotonic() + asked.wait_s
    while not build.done and time.monotonic() < limit:
        if call.hub.stopping:
            raise Closed("the server is stopping; the index is built when it runs again")
        await asyncio.sleep(_LOOK_S)
    return _answer(
        call, BuildOut(build.field, build.kind, build.done, build.progress)
    )  # fmt: skip


# ---- one document at its own address --------------------------------------------------------


def _key(call: Call) -> int | str:
    """The key in a path: a whole number, a JSON text in quotes, or any other text."""
    text = call.names["key"]
    if _NUMBER.fullmatch(text):
        return int(text)
    if len(text) > 1 and text[0] == text[-1] == '"':
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(text, type=str)
    return text


async def get_document(call: Call) -> Reply:
    to, key = collection_of(call), _key(call)
    text = to._get(rows.key_bytes(key))
    if text is None:
        raise NotFound("no document with this key", key=key)
    return Reply(data=text + b"\n")


async def put_document(call: Call) -> Reply:
    to, key = collection_of(call), _key(call)

    def run() -> Reply:
        given = rows.document_of(bytes(call.body))
        if to.key not in given:
            to.put({to.key: key, **given})
        elif rows.key_bytes(given[to.key], to.key) == rows.key_bytes(key):
            to.put(bytes(call.body))
        else:
            raise InvalidRequest("the document has another key", key=key, given=given[to.key])
        return _answer(call, None)

    return await _write_one(call, to, run)


async def delete_document(call: Call) -> Reply:
    to, key = collection_of(call), _key(call)

    def run() -> Reply:
        to.delete(key)
        return _answer(call, None)

    return await _write_one(call, to, run)


# ---- what there is --------------------------------------------------------------------------


class BuildOut(msgspec.Struct):
    """An index: whether it is complete, and how far it is."""

    field: str
    kind: str
    done: bool
    progress: float


class VersionedOut(msgspec.Struct):
    """A document and its version."""

    document: Document
    version: int


class NearestOut(msgspec.Struct):
    """A document, and how far its place is, in metres."""

    document: Document
    metres: float


Nothing = _result("Nothing", None)
Number = _result("Number", int)
OneOrNone = _result("OneOrNone", Document | None)
Documents = _result("Documents", list[Document])
Stored = _result("Stored", shapes.StoredOut)

_C = "/v1/collections/{collection}"
_ONE = ("find", "find_one")  # which may ask for one document by its key


def _op(
    name: str, summary: str, takes: type[shapes.Take], gives: Any, how: str, scope: str, *,
    refuses: tuple[int, ...] = (), large: bool = False, whole: bool = False,
    arrow: Callable[[Collection, pa.Table, Any], Any] | None = None,
    handler: Callable[[Call], Awaitable[Any]] | None = None,
    query: type[msgspec.Struct] | None = None,
) -> Op:  # fmt: skip
    served = handler or _Verb(how, whole, arrow)

    async def run(call: Call) -> Any:
        return await served(call)

    run.__name__ = f"collection_{name}"
    taken: tuple[Any, ...] = (takes, ARROW) if arrow else (takes,)
    return Op("POST", f"{_C}/{name}", summary, run, scope=scope, takes=taken, gives=gives,
              query=query, refuses=refuses, large=large,
              at_once=how != LONG or name in _ONE,
              quick_bytes=_FEW_BYTES if how == FEW else None)  # fmt: skip


OPS = [
    _op("put", "Store a document.", shapes.Put, Nothing, BESIDE, "write", refuses=(409,),
        large=True),
    _op("put_many", "Store many documents; a table of Arrow, too.", shapes.PutMany, Stored, FEW,
        "write", large=True, query=TtlQuery,
        arrow=lambda to, table, ttl_s: to.put_many(table, ttl_s=ttl_s)),
    _op("insert", "Store a new document.", shapes.Insert, Number, BESIDE, "write", refuses=(409,),
        large=True),
    _op("insert_many", "Store many new documents; a table of Arrow, too.", shapes.InsertMany,
        Stored, FEW, "write", large=True, query=TtlQuery,
        arrow=lambda to, table, ttl_s: to.insert_many(table, ttl_s=ttl_s)),
    _op("check_many", "Which documents would be rejected, and why.", shapes.CheckMany,
        _result("Checked", dict[str, str]), LONG, "write", large=True),
    _op("update", "Change a document; what it is now, to a token that may read.", shapes.Update,
        OneOrNone, BESIDE, "write", refuses=(409,), large=True, handler=_update),
    _op("update_many", "Change all documents that meet a condition.", shapes.UpdateMany,
        _result("UpdatedMany", Updated), LONG, "write", refuses=(409,), large=True),
    _op("replace", "Store a document in place of another.", shapes.Replace, Number, BESIDE,
        "write", refuses=(409,), large=True),
    _op("delete", "Delete a document.", shapes.Delete, Nothing, BESIDE, "write", refuses=(409,)),
    _op("delete_many", "Delete documents by their keys.", shapes.DeleteMany, Nothing, LONG,
        "write", large=True),
    _op("delete_where", "Delete all documents that meet a condition.", shapes.DeleteWhere, Number,
        LONG, "write"),
    _op("get", "A document by its key.", shapes.Get, OneOrNone, HERE, "read", handler=_get),
    _op("get_many", "Documents by their keys.", shapes.GetMany,
        _result("DocumentsOrNone", list[Document | None]), LONG, "read", large=True),
    _op("versioned", "A document and its version.", shapes.VersionedIn,
        _result("VersionedOrNone", VersionedOut | None), HERE, "read"),
    _op("find", "A page of the documents that meet a condition; all of them as Arrow.",
        shapes.Find, (_result("Found", list[Document], ("next", str | None)), ARROW), LONG, "read",
        handler=_find, query=FormatQuery),
    _op("find_one", "The first document that meets a condition.", shapes.FindOne, OneOrNone, LONG,
        "read", handler=_find_one),
    _op("count", "How many documents meet a condition.", shapes.Count, Number, LONG, "read"),
    _op("distinct", "The different values of a field.", shapes.Distinct,
        _result("Values", list[Any]), LONG, "read"),
    _op("aggregate", "What comes out of a pipeline.", shapes.Aggregate, Documents, LONG, "read"),
    _op("nearest", "The documents nearest to a point, and how far they are.", shapes.Nearest,
        _result("NearestFound", list[NearestOut]), LONG, "read"),
    _op("aggregate_grid", "How many documents are in each cell of a grid.", shapes.AggregateGrid,
        _result("Cells", shapes.CellsOut), LONG, "read"),
    _op("lookup", "The newest documents with a value of an indexed field.", shapes.Lookup,
        Documents, LONG, "read"),
    _op("range_lookup", "The newest documents with values in a range.", shapes.RangeLookup,
        Documents, LONG, "read"),
    _op("explain", "How a question is answered.", shapes.Explain,
        _result("Explained", Explanation), LONG, "read", whole=True),
    _op("explain_watch", "How a live query would be kept up to date, and what that costs.",
        shapes.ExplainWatch, _result("WatchExplained", WatchPlan), LONG, "read", whole=True),
    _op("advise", "Which index would fit which field.", shapes.Advise,
        _result("Advised", list[Advice]), LONG, "read", whole=True),
    _op("landed", "Whether a writer's batch has landed.", shapes.LandedIn,
        _result("LandedRows", int | None), HERE, "publish|write", whole=True),
    _op("forget_workload", "Let advise begin anew.", shapes.ForgetWorkload, Nothing, BESIDE,
        "admin", whole=True),
    _op("create_index", "Index a field.", shapes.CreateIndex, _result("Built", BuildOut), LONG,
        "admin", refuses=(409,), handler=_create_index),
    _op("drop_index", "Drop the index on a field.", shapes.DropIndex, Nothing, LONG, "admin",
        whole=True),
    Op("GET", f"{_C}/documents/{{key}}", "A document by its key.", get_document, scope="read",
       gives=Document, at_once=True),
    Op("PUT", f"{_C}/documents/{{key}}", "Store a document under this key.", put_document,
       scope="write", takes=(shapes.Document,), gives=Nothing, refuses=(409,), large=True,
       at_once=True),
    Op("DELETE", f"{_C}/documents/{{key}}", "Delete a document by its key.", delete_document,
       scope="write", gives=Nothing, at_once=True),
]  # fmt: skip
