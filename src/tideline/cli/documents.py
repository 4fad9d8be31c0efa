"""What the commands on documents share: their arguments, and how text becomes values.

A KEY or VALUE is JSON if it reads as JSON, else text: 17 is a number, '"17"' and A1 are texts.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tideline.cli.output import line, warn
from tideline.cli.parse import parse_json
from tideline.cli.session import failed
from tideline.cli.store import open_database
from tideline.errors import InvalidRequest, NotFound
from tideline.near import did_you_mean

__all__ = [
    "BATCH", "Change", "Document", "Field", "File", "IfVersion", "Key", "Keys", "Limit", "Met",
    "Most", "Name", "Sort", "TtlS", "Where",
    "check_given", "condition_of", "documents_in", "existing_collection", "fields_of",
    "kind_of", "lasting", "opened_collection", "order_of", "store", "value_of",
]  # fmt: skip

BATCH = 10_000
_SETTING = re.compile(r",(?=\w+=)")
_TABLES = (".parquet", ".arrow", ".feather", ".ipc")

Name = Annotated[str, typer.Argument(metavar="COLLECTION", help="The name of the collection.")]
Field = Annotated[str, typer.Argument(metavar="FIELD", help="An indexed field.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The primary key.")]
Keys = Annotated[list[str], typer.Argument(metavar="KEY...", help="Primary keys.")]
Most = Annotated[int | None, typer.Option("--k", "-k", help="At most so many, the newest.")]
Where = Annotated[str | None, typer.Argument(metavar="WHERE", help="A condition, as JSON.")]
Met = Annotated[
    str, typer.Argument(metavar="WHERE", help="A condition, as JSON; {} is every document.")
]
Change = Annotated[
    str, typer.Argument(metavar="CHANGE", help="""Operators, as JSON: '{"$inc": {"seen": 1}}'.""")
]
IfVersion = Annotated[
    int | None,
    typer.Option(
        "--if-version", metavar="N", help="Of one KEY: only if it has this version, else Conflict."
    ),
]
Sort = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD[:1|:-1]",
        help="Order, 1 up and -1 down; repeatable. A FIELD that holds a colon needs one: a:b:1.",
    ),
]
Limit = Annotated[int | None, typer.Option(help="At most so many.")]
Document = Annotated[
    str | None, typer.Argument(metavar="DOCUMENT", help="JSON; without it, lines on stdin.")
]
TtlS = Annotated[
    float | None,
    typer.Option("--ttl-s", metavar="S", help="Gone by itself after so many seconds; inf: never."),
]
File = Annotated[Path | None, typer.Option(metavar="FILE", help=".jsonl, .parquet or .arrow")]


@contextmanager
def opened_collection(database: str, name: str) -> Iterator[Any]:
    """A stored collection, of a database that is open as long as it is used."""
    with open_database(database) as opened:
        yield existing_collection(opened, name)


def existing_collection(database: Any, name: str) -> Any:
    """A stored collection; `NotFound` names those that are there."""
    names = database.collections()
    if name not in names:
        raise NotFound(
            "no such collection; `tideline collection create` makes one"
            + did_you_mean(name, names),
            collection=name, collections=names,
        )  # fmt: skip
    return database.collection(name)


def value_of(text: str) -> Any:
    """JSON, if it is; else the text itself.

    >>> value_of("17"), value_of('"17"'), value_of("A1")
    (17, '17', 'A1')
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def condition_of(text: str | None) -> Any:
    """A condition; None when there is none."""
    return None if text is None else parse_json(text, "where")


def kind_of(text: str) -> Any:
    """A kind of index, with its settings if any are given; a value is JSON, or else text.

    >>> kind_of("lazy"), kind_of("ngrams,n=3,levels=[1,2],mode=fast")
    ('lazy', {'kind': 'ngrams', 'n': 3, 'levels': [1, 2], 'mode': 'fast'})
    """
    kind, *settings = _SETTING.split(text)
    found: dict[str, Any] = {"kind": kind}
    for each in settings:
        name, _, value = each.partition("=")
        if name in found:
            raise InvalidRequest("a setting of an index is given once", setting=name, given=text)
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found if settings else kind


def order_of(given: list[str] | None) -> list[tuple[str, int]] | None:
    """Fields with their directions.

    >>> order_of(["time:-1", "user", "a:b:1"])
    [('time', -1), ('user', 1), ('a:b', 1)]
    """
    if not given:
        return None
    found = []
    for each in given:
        name, colon, direction = each.rpartition(":")
        if not colon and each.startswith("-"):
            raise InvalidRequest(
                f"--sort must be FIELD, FIELD:1 or FIELD:-1: did you mean {each[1:]}:-1?", sort=each
            )
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


def documents_in(file: Path | None) -> Iterator[tuple[list[int], Any, str]]:
    """Documents in batches: their line or row numbers, themselves, and what a number counts."""
    if file is not None and file.suffix.lower() in _TABLES:
        from tideline.cli.batch import read_table

        table = read_table(file)
        for first in range(0, table.num_rows, BATCH):
            part = table.slice(first, BATCH)
            yield list(range(first, first + part.num_rows)), part, "row"
        return
    if file is not None and file.suffix.lower() not in (".jsonl", ".ndjson"):
        raise InvalidRequest("FILE must end in .jsonl, .parquet or .arrow", file=str(file))
    stream = sys.stdin.buffer if file is None else file.open("rb")
    try:
        lines = ((number, text) for number, text in enumerate(stream, start=1) if text.strip())
        while part := list(itertools.islice(lines, BATCH)):
            yield [number for number, _ in part], [text for _, text in part], "line"
    finally:
        if file is not None:
            stream.close()


def fields_of(text: str | None) -> Any:
    """Fields that are wanted: JSON, or names with commas between them.

    >>> fields_of("speed,place.road"), fields_of('{"text": 0}')
    (['speed', 'place.road'], {'text': 0})
    """
    if text is None:
        return None
    return parse_json(text, "fields") if text.lstrip()[:1] in ("{", "[") else text.split(",")


def lasting(verb: Callable[..., Any], ttl_s: float | None) -> Callable[..., Any]:
    """A verb that stores, with `ttl_s`."""
    return verb if ttl_s is None else partial(verb, ttl_s=ttl_s)


def check_given(document: str | None, file: Path | None) -> None:
    """`InvalidRequest` when there is nothing to store, or too much."""
    if document is not None and file is not None:
        raise InvalidRequest("give a DOCUMENT or --file, not both")
    if document is None and file is None and (sys.stdin is None or sys.stdin.isatty()):
        raise InvalidRequest("give a DOCUMENT, --file, or JSON lines on stdin")


def store(
    one: Callable[[Any], Any], many: Callable[[Any], Any], document: str | None, file: Path | None
) -> None:
    """Store what a command was given, by a verb for one and a verb for many; tell the bad ones."""
    if document is not None:
        one(document)
        line({"stored": 1, "rejected": 0})
        return
    stored = rejected = 0
    for numbers, part, what in documents_in(file):
        done = many(part)
        stored += done.stored
        for bad in done.rejected.to_pylist():
            warn("InvalidRequest", f"{what} {numbers[bad['row']]}: {bad['reason']}")
            rejected += 1
    line({"stored": stored, "rejected": rejected})
    if rejected:
        raise failed(InvalidRequest("documents were rejected"))
