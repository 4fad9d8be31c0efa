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

More commands are in edits.py. Documents go in and come out as JSON lines.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from tideline.cli import edits
from tideline.cli.command import AsJson, Database, add
from tideline.cli.documents import (
    BATCH,
    Document,
    Field,
    File,
    IfVersion,
    Keys,
    Limit,
    Most,
    Name,
    Sort,
    TtlS,
    Where,
    check_given,
    condition_of,
    fields_of,
    kind_of,
    lasting,
    opened_collection,
    order_of,
    store,
    value_of,
)
from tideline.cli.output import line, plain, print_all, show
from tideline.cli.store import open_database
from tideline.errors import InvalidRequest, NotFound, Unavailable

__all__ = ["register"]


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
        add(group, command, name)
    for name, more in edits.COMMANDS.items():
        add(group, more, name)
    app.add_typer(group, name="collection")
    add(app, changes)


# ---- the collection ---------------------------------------------------------------------------


def create(
    database: Database,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the collection.")],
    key: Annotated[str, typer.Option(help="The field that documents are known by.")],
    index: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD[=KIND[,SETTING=VALUE]]",
            help="eager, lazy (if none is named), composite or embedded; spatial for places; "
            "words, ngrams or fuzzy for text. Repeatable. Several fields, with commas between, "
            "are one index. Settings of the kind follow it: name=ngrams,n=3.",
        ),
    ] = None,
    unique: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="An indexed field whose values are unique; repeatable."),
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
    ttl_s: Annotated[
        float | None, typer.Option(help="Documents are gone after so many seconds; inf: never.")
    ] = None,
) -> None:
    """Make a collection, and the database if there is none.

    Twin of Database.collection.
    """
    indexes: dict[str, Any] = {}
    for each in index or []:
        field, equals, kind = each.partition("=")
        if not field or (equals and not kind) or field in indexes:
            raise InvalidRequest("--index must be FIELD or FIELD=KIND, once a field", index=each)
        indexes[field] = kind_of(kind) if kind else None
    for field in unique or []:
        spec = indexes.get(field)
        given = spec if isinstance(spec, dict) else {"kind": spec}
        indexes[field] = {**given, "unique": True}
    with open_database(database, create=True) as found:
        made = found.collection(
            name, key=key, indexes=indexes or None, policy=policy, filter=filter,
            bloom_bits=bloom_bits, journal_s=journal_s, journal_before=journal_before,
            ttl_s=ttl_s,
        )  # fmt: skip
        line(_fields(made))


def list_(database: Database, as_json: AsJson = False) -> None:
    """List the collections.

    Twin of Database.collections.
    """
    with open_database(database) as found:
        rows = [_fields(found.collection(name)) for name in found.collections()]
        show(rows, title="collections", as_json=as_json)


def stats(database: Database, collection: Name, as_json: AsJson = False) -> None:
    """Count what is stored.

    Twin of Collection.stats.
    """
    with opened_collection(database, collection) as opened:
        show([{"collection": collection, **plain(opened.stats())}], title="stats", as_json=as_json)


def drop(database: Database, collection: Name) -> None:
    """Drop a collection with everything in it.

    Twin of Database.drop_collection.
    """
    with open_database(database) as found:
        found.drop_collection(collection)
        line({"dropped": collection})


# ---- writing ------------------------------------------------------------------------------------


def put(
    database: Database,
    collection: Name,
    document: Document = None,
    file: File = None,
    ttl_s: TtlS = None,
) -> None:
    """Store documents, in place of those with the same keys.

    Twin of Collection.put and Collection.put_many.

    Bad lines are reported on stderr and the others are stored.
    """
    check_given(document, file)
    with opened_collection(database, collection) as opened:
        store(lasting(opened.put, ttl_s), lasting(opened.put_many, ttl_s), document, file)


def delete(
    database: Database, collection: Name, keys: Keys,
    if_version: IfVersion = None,
) -> None:  # fmt: skip
    """Delete documents by key.

    Twin of Collection.delete_many, and of Collection.delete with --if-version. Deleting what is not
    there changes nothing, and is not counted.
    """
    if if_version is not None:
        if len(keys) != 1:
            raise InvalidRequest("--if-version is for one KEY", keys=keys)
        with opened_collection(database, collection) as opened:
            opened.delete(value_of(keys[0]), if_version=if_version)
            line({"deleted": 1})
        return
    with opened_collection(database, collection) as opened:
        given = list(dict.fromkeys(map(value_of, keys)))
        there = [key for key, found in zip(given, opened.get_many(given), strict=True) if found]
        opened.delete_many(there)
        line({"deleted": len(there)})


# ---- reading ------------------------------------------------------------------------------------


def get(
    database: Database, collection: Name, keys: Keys,
    versions: Annotated[
        bool, typer.Option("--versions", help="Each with its version: {version, document}.")
    ] = False,
) -> None:  # fmt: skip
    """Print documents by key; NotFound if one is not there.

    Twin of Collection.get and Collection.get_many, and of Collection.versioned with --versions.
    """
    with opened_collection(database, collection) as opened:
        missing = []
        for key, document in zip(keys, opened.get_many([value_of(k) for k in keys]), strict=True):
            if document is None:
                missing.append(key)
            elif versions:
                found = opened.versioned(value_of(key))
                line({"version": found.version, "document": found.document})
            else:
                line(document)
        if missing:
            raise NotFound("no such document", collection=collection, keys=missing)


def lookup(
    database: Database,
    collection: Name,
    field: Field,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON, or text.")],
    k: Most = None,
) -> None:
    """Documents whose field has a value, newest first.

    Twin of Collection.lookup.
    """
    with opened_collection(database, collection) as opened:
        print_all(opened.lookup(field, value_of(value), k=k), title=collection)


def range_(
    database: Database,
    collection: Name,
    field: Field,
    low: Annotated[str | None, typer.Option(help="From here, included.")] = None,
    high: Annotated[str | None, typer.Option(help="Up to here, included.")] = None,
    k: Most = None,
) -> None:
    """Documents whose field lies in a range, newest first.

    Twin of Collection.range_lookup.
    """
    with opened_collection(database, collection) as opened:
        sides = [None if side is None else value_of(side) for side in (low, high)]
        print_all(opened.range_lookup(field, *sides, k=k), title=collection)


def find(
    database: Database,
    collection: Name,
    where: Where = None,
    sort: Sort = None,
    limit: Limit = None,
    skip: Annotated[int, typer.Option(help="Leave out so many at the start.")] = 0,
    fields: Annotated[
        str | None,
        typer.Option(
            metavar="FIELDS", help="""These fields, a,b.c; or as JSON: '{"text": 0}' for all but."""
        ),
    ] = None,
) -> None:
    """Documents that meet a condition.

    Twin of Collection.find_iter: they are read as they are printed.
    """
    with opened_collection(database, collection) as opened:
        found = opened.find_iter(
            condition_of(where), sort=order_of(sort), limit=limit, skip=skip,
            fields=fields_of(fields),
        )  # fmt: skip
        print_all(found, title=collection)


def count(database: Database, collection: Name, where: Where = None) -> None:
    """How many documents meet a condition.

    Twin of Collection.count.
    """
    with opened_collection(database, collection) as opened:
        line({"count": opened.count(condition_of(where))})


def explain(
    database: Database,
    collection: Name,
    where: Where = None,
    sort: Sort = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """How a condition is answered: which index, what was expected and what was read.

    Twin of Collection.explain.
    """
    with opened_collection(database, collection) as opened:
        told = opened.explain(condition_of(where), sort=order_of(sort), limit=limit)
        if as_json or not sys.stdout.isatty():
            line(plain(told))
        else:
            print(told)


def changes(
    database: Database,
    collection: Name,
    after: Annotated[
        int | None,
        typer.Option(metavar="SEQ", help="From the next one on, not the earliest."),
    ] = None,
    before: Annotated[bool, typer.Option("--before", help="With old versions.")] = False,
    limit: Limit = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for what is written next, until Ctrl-C.")
    ] = False,
) -> None:
    """Print what was written, in order, from the earliest that the log still has on.

    Twin of Collection.changes. --after SEQ begins behind that one. --journal-s of a collection
    keeps more of it, --journal-before old versions. It ends with the newest change; --follow goes
    on, for the database of a server: nobody else writes while a command has a folder.
    """
    with opened_collection(database, collection) as opened:
        begin = opened.earliest() if after is None else after
        left = limit
        with opened.changes(after=begin, before=before) as found:
            while part := found.take(BATCH if left is None else min(left, BATCH)):
                print_all([_change(each, before) for each in part], title=collection)
                left = None if left is None else left - len(part)
                if left == 0:
                    break
            if follow:
                if sys.stderr.isatty():
                    print(f"waiting for changes after seq {found.seq}", file=sys.stderr)
                for change in itertools.islice(found, left):
                    line(_change(change, before))


# ---- indexes ------------------------------------------------------------------------------------


def index(
    database: Database,
    collection: Name,
    field: Annotated[
        str, typer.Argument(metavar="FIELD", help="The field to index; or several: road,speed.")
    ],
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND[,SETTING=VALUE]",
            help="eager, lazy, composite or embedded; spatial for places; words, ngrams or fuzzy "
            "for text; without it, what fits. With settings of the kind: ngrams,n=3.",
        ),
    ] = None,
    unique: Annotated[
        bool, typer.Option("--unique", help="No two documents may have one value.")
    ] = False,
) -> None:
    """Index a field of what is stored, with progress on stderr.

    Twin of Collection.create_index. Interrupted, it goes on when the collection is opened again.
    """
    with opened_collection(database, collection) as opened:
        build = opened.create_index(field, kind_of(kind) if kind else None, unique=unique)
        live = sys.stderr.isatty()
        while live and not build.done:
            print(f"\r{field}: {build.progress:.0%}", end="", file=sys.stderr, flush=True)
            with suppress(Unavailable):
                build.wait(timeout_s=0.2)
        build.wait()
        if live:
            print(f"\r{field}: 100%", file=sys.stderr)
        line({"indexed": field, "kind": build.kind, **({"unique": True} if unique else {})})


def unindex(database: Database, collection: Name, field: Field) -> None:
    """Drop the index on a field.

    Twin of Collection.drop_index.
    """
    with opened_collection(database, collection) as opened:
        opened.drop_index(field)
        line({"unindexed": field})


def advise(
    database: Database,
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
    with opened_collection(database, collection) as opened:
        if anew:
            opened.forget_workload()
        asked = [condition_of(each) for each in where or []]
        rows = [plain(advice) for advice in opened.advise(scarce=scarce, where=asked, limit=limit)]
        show(rows, title="advice", as_json=as_json)


def _change(change: Any, before: bool) -> dict[str, Any]:
    old = {"before": change.before} if before else {}
    return {"seq": change.seq, "key": change.key, **old, "after": change.after}


def _fields(collection: Any) -> dict[str, Any]:
    return {
        "name": collection.name,
        "key": collection.key,
        "indexes": collection.indexes,
        **({"unique": list(collection.unique)} if collection.unique else {}),
        "policy": collection.policy["name"],
        "filter": collection.filter,
        "journal_s": collection.journal_s,
        "journal_before": collection.journal_before,
        "ttl_s": collection.ttl_s,
    }
