"""Commands that write what depends on what is stored, and questions of more than one step.

insert         Collection.insert, insert_many    update        Collection.update
update-many    Collection.update_many            replace       Collection.replace
delete-where   Collection.delete_where
distinct       Collection.distinct               aggregate     Collection.aggregate
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from tideline.cli.command import Database
from tideline.cli.documents import (
    Change,
    Document,
    File,
    IfVersion,
    Key,
    Met,
    Name,
    TtlS,
    Where,
    check_given,
    condition_of,
    lasting,
    opened_collection,
    store,
    value_of,
)
from tideline.cli.output import line, print_all
from tideline.cli.parse import parse_json

__all__ = ["COMMANDS"]



def insert(
    database: Database,
    collection: Name,
    document: Document = None,
    file: File = None,
    ttl_s: TtlS = None,
) -> None:
    """Store new documents.

    Twin of Collection.insert and Collection.insert_many.

    A DOCUMENT whose key is there is a Conflict. Lines whose keys are there, and bad lines, are
    reported on stderr and the others are stored.
    """
    check_given(document, file)
    with opened_collection(database, collection) as opened:
        store(lasting(opened.insert, ttl_s), lasting(opened.insert_many, ttl_s), document, file)


def update(
    database: Database,
    collection: Name,
    key: Key,
    change: Change,
    upsert: Annotated[
        bool, typer.Option("--upsert", help="Make the document if there is none.")
    ] = False,
    if_version: IfVersion = None,
    ttl_s: TtlS = None,
) -> None:
    """Change a document by MongoDB's operators, and print what it is now.

    Twin of Collection.update. The operators: $set $unset $inc $mul $min $max $rename
    $setOnInsert $push $addToSet $pull $pullAll $pop.
    """
    asked = parse_json(change, "change")
    with opened_collection(database, collection) as opened:
        update = lasting(partial(opened.update, upsert=upsert, if_version=if_version), ttl_s)
        line(update(value_of(key), asked))


def update_many(database: Database, collection: Name, where: Met, change: Change) -> None:
    """Change all documents that meet a condition.

    Twin of Collection.update_many.
    """
    asked = parse_json(change, "change")
    with opened_collection(database, collection) as opened:
        done = opened.update_many(condition_of(where), asked)
        line({"matched": done.matched, "changed": done.changed})


def replace(
    database: Database,
    collection: Name,
    key: Key,
    document: Annotated[str, typer.Argument(metavar="DOCUMENT", help="JSON, whole.")],
    if_version: IfVersion = None,
    ttl_s: TtlS = None,
) -> None:
    """Store a document in place of one that is there.

    Twin of Collection.replace. `tideline collection get --versions` shows versions.
    """
    with opened_collection(database, collection) as opened:
        replace = lasting(partial(opened.replace, if_version=if_version), ttl_s)
        line({"version": replace(value_of(key), document)})


def delete_where(database: Database, collection: Name, where: Met) -> None:
    """Delete all documents that meet a condition.

    Twin of Collection.delete_where.
    """
    with opened_collection(database, collection) as opened:
        line({"deleted": opened.delete_where(condition_of(where))})


def distinct(
    database: Database,
    collection: Name,
    field: Annotated[str, typer.Argument(metavar="FIELD", help="A field, indexed or not.")],
    where: Where = None,
) -> None:
    """Print the different values of a field, one a line.

    Twin of Collection.distinct.
    """
    with opened_collection(database, collection) as opened:
        print_all(opened.distinct(field, condition_of(where)), title=field)


def aggregate(
    database: Database,
    collection: Name,
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="A list of stages, as JSON.")],
) -> None:
    """Print what comes out of MongoDB's stages.

    Twin of Collection.aggregate. The stages: $match $group $sort $limit $skip $project $unwind
    $count.
    """
    asked = parse_json(pipeline, "pipeline")
    with opened_collection(database, collection) as opened:
        print_all(opened.aggregate(asked), title=collection)


COMMANDS: dict[str, Callable[..., None]] = {
    "insert": insert, "update": update, "update-many": update_many, "replace": replace,
    "delete-where": delete_where, "distinct": distinct, "aggregate": aggregate,
}  # fmt: skip
