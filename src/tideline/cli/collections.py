"""Collections of documents, one command a verb: `tideline collection ...`.

    create   Database.collection        list     Database.collections
    put      Collection.put_many        get      Collection.get_many
    delete   Collection.delete_many     lookup   Collection.lookup
    range    Collection.range_lookup    find     Collection.find
    count    Collection.count           explain  Collection.explain
    index    Collection.create_index    unindex  Collection.drop_index
    advise   Collection.advise          stats    Collection.stats
    drop     Database.drop_collection

and `tideline changes`, which prints what was written: Collection.changes.

Documents go in and come out as JSON lines. A KEY or VALUE is JSON if it reads as JSON, else text:
17 is a number, '"17"' and A1 are texts.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tideline.cli.manage import AsJson, Folder
from tideline.cli.output import line, plain, show, warn
from tideline.cli.parse import parse_json
from tideline.cli.session import failed
from tideline.cli.store import open_folder
from tideline.errors import InvalidRequest, NotFound, Unavailable

__all__ = ["existing_collection", "register"]

_BATCH = 10_000
_TABLES = (".parquet", ".arrow", ".feather", ".ipc")

Name = Annotated[str, typer.Argument(metavar="COLLECTION", help="The name of the collection.")]
Field = Annotated[str, typer.Argument(metavar="FIELD", help="An indexed field.")]
Keys = Annotated[list[str], typer.Argument(metavar="KEY...", help="Primary keys.")]
Most = Annotated[int | None, typer.Option("--k", "-k", help="At most so many, the newest.")]
Where = Annotated[str | None, typer.Argument(metavar="WHERE", help="A condition, as JSON.")]
Sort = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD[:1|:-1]",
        help="Order, 1 up and -1 down; repeatable. A FIELD that holds a colon needs one: a:b:1.",
    ),
]
Limit = Annotated[int | None, typer.Option(help="At most so many.")]


def register(app: typer.Typer) -> None:
    """Hang the commands of this file on the command line."""
    group = typer.Typer(
        help="Documents by key, with indexes.", no_args_is_help=True, rich_markup_mode=None
    )
    for name, command in (
        ("create", create), ("list", list_), ("put", put), ("get", get), ("delete", delete),
        ("lookup", lookup), ("range", range_), ("find", find), ("count", count),
        ("explain", explain), ("index", index), ("unindex", unindex), ("advise", advise),
        ("stats", stats), ("drop", drop),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="collection")
    app.command("changes")(changes)


# ---- the collection ---------------------------------------------------------------------------


def create(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the collection.")],
    key: Annotated[str, typer.Option(help="The field that documents are known by.")],
    index: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=KIND", help="eager, lazy, composite or embedded; repeatable."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="none, constant, prefix (the default), correlated-prefix or leveled."),
    ] = None,
    filter: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Keep its range for every component.")
    ] = None,
    bloom_bits: Annotated[int | None, typer.Option(help="Of embedded indexes, an entry.")] = None,
    journal_s: Annotated[
        float | None, typer.Option(help="Keep changes readable for so many seconds.")
    ] = None,
    journal_before: Annotated[
        bool | None,
        typer.Option("--journal-before/--no-journal-before", help="Keep old versions with them."),
    ] = None,
) -> None:
    """Make a collection, and the database if there is none.

    Twin of Database.collection.
    """
    indexes: dict[str, str] = {}
    for each in index or []:
        field, _, kind = each.partition("=")
        if not field or not kind or field in indexes:
            raise InvalidRequest("--index must be FIELD=KIND, once a field", index=each)
        indexes[field] = kind
    with open_folder(folder, create=True) as database:
        made = database.collection(
            name, key=key, indexes=indexes or None, policy=policy, filter=filter,
            bloom_bits=bloom_bits, journal_s=journal_s, journal_before=journal_before,
        )  # fmt: skip
        line(_fields(made))


def list_(folder: Folder, as_json: AsJson = False) -> None:
    """List the collections.

    Twin of Database.collections.
    """
    with open_folder(folder) as database:
        rows = [_fields(database.collection(name)) for name in database.collections()]
        show(rows, title="collections", as_json=as_json)


def stats(folder: Folder, collection: Name, as_json: AsJson = False) -> None:
    """Count what is stored.

    Twin of Collection.stats.
    """
    with _opened(folder, collection) as opened:
        show([{"collection": collection, **plain(opened.stats())}], title="stats", as_json=as_json)


def drop(folder: Folder, collection: Name) -> None:
    """Drop a collection with everything in it.

    Twin of Database.drop_collection.
    """
    with open_folder(folder) as database:
        database.drop_collection(collection)
        line({"dropped": collection})


# ---- writing ------------------------------------------------------------------------------------


def put(
    folder: Folder,
    collection: Name,
    document: Annotated[
        str | None, typer.Argument(metavar="DOCUMENT", help="JSON; without it, lines on stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help=".jsonl, .parquet or .arrow")
    ] = None,
) -> None:
    """Store documents, in place of those with the same keys.

    Twin of Collection.put and Collection.put_many.

    Bad lines are reported on stderr and the others are stored.
    """
    if document is not None and file is not None:
        raise InvalidRequest("give a DOCUMENT or --file, not both")
    if document is None and file is None and (sys.stdin is None or sys.stdin.isatty()):
        raise InvalidRequest("give a DOCUMENT, --file, or JSON lines on stdin")
    with _opened(folder, collection) as opened:
        if document is not None:
            opened.put(document)
            line({"stored": 1, "rejected": 0})
            return
        stored = 0
        rejected: list[tuple[int, str]] = []
        for numbers, part, what in _parts(file):
            done = opened.put_many(part)
            stored += done.stored
            for bad in done.rejected.to_pylist():
                warn("InvalidRequest", f"{what} {numbers[bad['row']]}: {bad['reason']}")
                rejected.append((bad["row"], bad["reason"]))
        line({"stored": stored, "rejected": len(rejected)})
        if rejected:
            raise failed(InvalidRequest("documents were rejected"))


def delete(folder: Folder, collection: Name, keys: Keys) -> None:
    """Delete documents by key.

    Twin of Collection.delete_many. Deleting what is not there changes nothing, and is not counted.
    """
    with _opened(folder, collection) as opened:
        given = list(dict.fromkeys(map(_value, keys)))
        there = [key for key, found in zip(given, opened.get_many(given), strict=True) if found]
        opened.delete_many(there)
        line({"deleted": len(there)})


# ---- reading ------------------------------------------------------------------------------------


def get(folder: Folder, collection: Name, keys: Keys) -> None:
    """Print documents by key; NotFound if one is not there.

    Twin of Collection.get and Collection.get_many.
    """
    with _opened(folder, collection) as opened:
        missing = []
        for key, document in zip(keys, opened.get_many([_value(k) for k in keys]), strict=True):
            if document is None:
                missing.append(key)
            else:
                line(document)
        if missing:
            raise NotFound("no such document", collection=collection, keys=missing)


def lookup(
    folder: Folder,
    collection: Name,
    field: Field,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON, or text.")],
    k: Most = None,
) -> None:
    """Documents whose field has a value, newest first.

    Twin of Collection.lookup.
    """
    with _opened(folder, collection) as opened:
        _print(opened.lookup(field, _value(value), k=k))


def range_(
    folder: Folder,
    collection: Name,
    field: Field,
    low: Annotated[str | None, typer.Option(help="From here, included.")] = None,
    high: Annotated[str | None, typer.Option(help="Up to here, included.")] = None,
    k: Most = None,
) -> None:
    """Documents whose field lies in a range, newest first.

    Twin of Collection.range_lookup.
    """
    with _opened(folder, collection) as opened:
        sides = [None if side is None else _value(side) for side in (low, high)]
        _print(opened.range_lookup(field, *sides, k=k))


def find(
    folder: Folder,
    collection: Name,
    where: Where = None,
    sort: Sort = None,
    limit: Limit = None,
) -> None:
    """Documents that meet a condition.

    Twin of Collection.find.
    """
    with _opened(folder, collection) as opened:
        _print(opened.find(_where(where), sort=_sort(sort), limit=limit))


def count(folder: Folder, collection: Name, where: Where = None) -> None:
    """How many documents meet a condition.

    Twin of Collection.count.
    """
    with _opened(folder, collection) as opened:
        line({"count": opened.count(_where(where))})


def explain(
    folder: Folder,
    collection: Name,
    where: Where = None,
    sort: Sort = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """How a condition is answered: which index, what was expected and what was read.

    Twin of Collection.explain.
    """
    with _opened(folder, collection) as opened:
        told = opened.explain(_where(where), sort=_sort(sort), limit=limit)
        if as_json or not sys.stdout.isatty():
            line(plain(told))
        else:
            print(told)


def changes(
    folder: Folder,
    collection: Name,
    after: Annotated[
        int | None, typer.Option(metavar="SEQ", help="From the next one on; the earliest there is.")
    ] = None,
    before: Annotated[bool, typer.Option("--before", help="With old versions.")] = False,
    limit: Limit = None,
) -> None:
    """Print what was written, in order, as far as the log still has it.

    Twin of Collection.changes. --journal-s of a collection keeps more of it, --journal-before old
    versions. Nobody else writes while a command has the folder, so it ends with the newest change.
    """
    with _opened(folder, collection) as opened:
        begin = opened.earliest() if after is None else after
        left = limit
        with opened.changes(after=begin, before=before) as found:
            while part := found.take(_BATCH if left is None else min(left, _BATCH)):
                for change in part:
                    old = {"before": change.before} if before else {}
                    line({"seq": change.seq, "key": change.key, **old, "after": change.after})
                left = None if left is None else left - len(part)
                if left == 0:
                    break


# ---- indexes ------------------------------------------------------------------------------------


def index(
    folder: Folder,
    collection: Name,
    field: Annotated[str, typer.Argument(metavar="FIELD", help="The field to index.")],
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="eager, lazy, composite or embedded.")
    ],
) -> None:
    """Index a field of what is stored, with progress on stderr.

    Twin of Collection.create_index. Interrupted, it goes on when the collection is opened again.
    """
    with _opened(folder, collection) as opened:
        build = opened.create_index(field, kind)
        live = sys.stderr.isatty()
        while live and not build.done:
            print(f"\r{field}: {build.progress:.0%}", end="", file=sys.stderr, flush=True)
            with suppress(Unavailable):
                build.wait(timeout_s=0.2)
        build.wait()
        if live:
            print(f"\r{field}: 100%", file=sys.stderr)
        line({"indexed": field, "kind": kind})


def unindex(folder: Folder, collection: Name, field: Field) -> None:
    """Drop the index on a field.

    Twin of Collection.drop_index.
    """
    with _opened(folder, collection) as opened:
        opened.drop_index(field)
        line({"unindexed": field})


def advise(
    folder: Folder,
    collection: Name,
    scarce: Annotated[bool, typer.Option("--scarce", help="Space is scarce.")] = False,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="JSON", help="A condition that will be asked; repeatable."),
    ] = None,
    limit: Limit = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Forget what was done before, now and from now on.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Which kind of index fits which field, and why.

    Twin of Collection.advise. It speaks of all that was asked since counting began, by whatever
    process; conditions that are given count in this advice alone. --anew is the twin of
    Collection.forget_workload.
    """
    with _opened(folder, collection) as opened:
        if anew:
            opened.forget_workload()
        asked = [_where(each) for each in where or []]
        rows = [plain(advice) for advice in opened.advise(scarce=scarce, where=asked, limit=limit)]
        show(rows, title="advice", as_json=as_json)


# ---- inside -------------------------------------------------------------------------------------


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[Any]:
    with open_folder(folder) as database:
        yield existing_collection(database, name)


def existing_collection(database: Any, name: str) -> Any:
    """A stored collection; `NotFound` names those that are there."""
    names = database.collections()
    if name not in names:
        raise NotFound(
            "no such collection; `tideline collection create` makes one",
            collection=name, collections=names,
        )  # fmt: skip
    return database.collection(name)


def _fields(collection: Any) -> dict[str, Any]:
    return {
        "name": collection.name,
        "key": collection.key,
        "indexes": collection.indexes,
        "policy": collection.policy["name"],
        "filter": collection.filter,
    }


def _print(documents: list[dict[str, Any]]) -> None:
    for document in documents:
        line(document)


def _value(text: str) -> Any:
    """JSON, if it is; else the text itself.

    >>> _value("17"), _value('"17"'), _value("A1")
    (17, '17', 'A1')
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def _where(text: str | None) -> Any:
    return None if text is None else parse_json(text, "where")


def _sort(given: list[str] | None) -> list[tuple[str, int]] | None:
    """Fields with their directions.

    >>> _sort(["time:-1", "user", "a:b:1"])
    [('time', -1), ('user', 1), ('a:b', 1)]
    """
    if not given:
        return None
    found = []
    for each in given:
        name, colon, direction = each.rpartition(":")
        if not colon:
            found.append((each, 1))
        elif direction in ("1", "-1"):
            found.append((name, int(direction)))
        else:
            raise InvalidRequest(
                "--sort must be FIELD, FIELD:1 or FIELD:-1; "
                "a FIELD that holds a colon needs its direction",
                sort=each,
            )
    return found


def _parts(file: Path | None) -> Iterator[tuple[list[int], Any, str]]:
    """Documents in batches: their line or row numbers, themselves, and what a number counts."""
    if file is not None and file.suffix.lower() in _TABLES:
        from tideline.cli.batch import read_table

        table = read_table(file)
        for first in range(0, table.num_rows, _BATCH):
            part = table.slice(first, _BATCH)
            yield list(range(first, first + part.num_rows)), part, "row"
        return
    if file is not None and file.suffix.lower() not in (".jsonl", ".ndjson"):
        raise InvalidRequest("FILE must end in .jsonl, .parquet or .arrow", file=str(file))
    stream = sys.stdin.buffer if file is None else file.open("rb")
    try:
        lines = ((number, text) for number, text in enumerate(stream, start=1) if text.strip())
        while part := list(itertools.islice(lines, _BATCH)):
            yield [number for number, _ in part], [text for _, text in part], "line"
    finally:
        if file is not None:
            stream.close()
