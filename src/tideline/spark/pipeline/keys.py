"""The keys a pipeline's config may have: one class a section, one field a key.

    key(kind, doc, default)     kind says what a value may be (`KINDS`), doc what it is for

The classes are plain data: `config.py` reads them from TOML and finds what is wrong, and the
reference in docs/guide/pipeline.md is made of them (tests/spark/pipeline_reference.py).
Needs neither Spark nor a store.
"""

# ruff: noqa: RUF009
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "KINDS", "OWN", "REQUIRED", "SECTIONS", "Archive", "Clean", "Condition", "DeadLetters",
    "Deduplicate", "Operation", "Parse", "Place", "Rule", "Run", "Source", "Spark", "Store",
    "is_own", "key_of",
]  # fmt: skip

REQUIRED = dataclasses.MISSING
OWN = "_tideline_"
"""Columns that stages add for themselves begin with this, so no other column may."""

KINDS = {
    "text": "text",
    "whole": "whole number",
    "number": "number",
    "number or inf": "number or `inf`",
    "flag": "true or false",
    "texts": "list of texts",
    "paths": "text or list of texts",
    "table": "table",
    "column": "column",
    "columns": "list of columns",
    "point": "two columns",
    "number or column": "number or column",
    "flag or column": "true, false or column",
    "columns or text": "list of columns, or `*`",
    "value": "text, number, time, true or false",
    "values": "list of values",
    "bound": "number or time",
    "condition": "table or JSON text",
}
"""The kinds of values, as messages and the reference name them."""


def is_own(column: str) -> bool:
    """Whether a column would be taken for one of the pipeline's own. Spark compares without case.

    >>> is_own("_Tideline_x"), is_own("_id")
    (True, False)
    """
    return column.casefold().startswith(OWN)


def key(kind: str, doc: str, default: Any = REQUIRED) -> Any:
    """A field of a section."""
    assert kind in KINDS, kind
    return dataclasses.field(default=default, metadata={"kind": kind, "doc": doc}, kw_only=True)


@dataclass(frozen=True)
class Source:
    """Where rows come from."""

    format: str = key("text", "`generator`, `json`, `csv`, `text`, `parquet`, `orc`, `kafka`, "
                      "`rate`, or any other format that Spark knows")  # fmt: skip
    path: str | list[str] | None = key("paths", "the files, or the folder they are in", None)
    stream: bool = key("flag", "`false` reads everything as one batch, even where Spark could "
                       "follow the source", True)  # fmt: skip
    options: Mapping[str, Any] = key("table", "handed to Spark's reader as they are", None)


@dataclass(frozen=True)
class Parse:
    """How a row's text becomes columns."""

    format: str | None = key("text", "`json`, `csv`, `avro`, `protobuf`, or `columns` when the "
                             "source has columns already; by default what the source's format "
                             "says", None)  # fmt: skip
    envelope: str | None = key("text", "`debezium`: each JSON text is a change as Debezium tells "
                               "it, with its `payload` or without; the columns of [schema] are "
                               "those of the row, `__op` and `__ts_ms` come too", None)  # fmt: skip
    column: str = key("column", "the column that holds the text", "value")
    options: Mapping[str, Any] = key("table", "handed to Spark's parser; `header = true` for CSV "
                                     "files that begin with the names of the columns; of Avro "
                                     "`schema`, of Protobuf `message` and `descriptor`, a file",
                                     None)  # fmt: skip


@dataclass(frozen=True)
class Clean:
    """What becomes of one column; done in the order of the keys here."""

    from_: str | None = key("column", "the column it is made from, which is then gone", None)
    sql: str | None = key("text", "the Spark SQL expression it is made from", None)
    trim: bool = key("flag", "cut blanks off both ends; nothing left counts as missing", False)
    cast: str | None = key("text", "the type to turn it into; a value that is none is bad", None)
    default: Any = key("value", "the value where there is none", None)
    required: bool = key("flag", "a row without a value is bad", False)
    min: Any = key("bound", "a smaller value is bad", None)
    max: Any = key("bound", "a greater value is bad", None)
    one_of: list[Any] | None = key("values", "any other value is bad", None)


@dataclass(frozen=True)
class Rule:
    """A rule that every row must keep."""

    sql: str = key("text", "a Spark SQL expression; a row for which it is not true is bad")
    reason: str | None = key("text", "what the dead letter says; by default the expression", None)


@dataclass(frozen=True)
class Place:
    """Where a row's event is, or what its subscription watches. A channel needs it."""

    point: list[str] | None = key("point", "the columns of longitude and latitude", None)
    radius_m: float | str | None = key("number or column", "makes the point a circle", None)
    store_as: str = key("text", "`point`, or `cell` for the name of the cell the point lies in",
                        "point")  # fmt: skip
    level: int | None = key("whole", "with `cell` in a quad tree: how deep; by default as deep as "
                            "the tree", None)  # fmt: skip
    column: str | None = key("column", "the column with the key, path or cell as text", None)


@dataclass(frozen=True)
class Deduplicate:
    """Which rows are one and the same, and how long that is remembered."""

    by: list[str] = key("columns", "rows with equal values here are duplicates; with "
                          "`op_column`, of one operation")  # fmt: skip
    time: str | None = key("column", "the time of a row; by default `at` of the operation", None)
    within_s: float = key("number", "a row is a duplicate less than this before or after the last "
                          "one of its key that was taken; a row more than this older than the "
                          "newest of the batches before is late")  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """Which rows are wanted."""

    where: Any = key("condition", "a condition on the columns; a row that does not meet it is "
                     "left out")  # fmt: skip


@dataclass(frozen=True)
class Store:
    """The channel or the collection that takes the rows."""

    folder: str | None = key("text", "the folder of the database; not needed when `run` is given "
                             "an open one", None)  # fmt: skip
    url: str | None = key("text", "the address of a server, instead of a folder", None)
    token: str | None = key("text", "the server's token; better in the environment variable "
                            "`TIDELINE_TOKEN`", None)  # fmt: skip
    channel: str | None = key("text", "the channel; it is made if it is not there", None)
    collection: str | None = key("text", "the collection, instead of a channel; it is made if it "
                                 "is not there", None)  # fmt: skip
    key_: str | None = key("column", "the key of the collection's documents", None)
    version: str | None = key("column", "the version of a document: an older one never replaces a "
                              "newer one", None)  # fmt: skip
    space: Mapping[str, Any] | None = key("table", "the space of a new channel: `kind` (`flat`, "
                                          "`topics`, `grid`, `quadtree`), `bounds`, `depth`, "
                                          "`rows`, `cols`", None)  # fmt: skip
    memory_mb: int = key("whole", "memory for live data", 1024)
    durability: str = key("text", "`os` survives a killed process, `disk` also a power cut", "os")
    journal_s: float | None = key("number", "keep operations and answers readable for so long",
                                  None)  # fmt: skip
    max_ahead_s: float | None = key("number or inf", "a row that is further ahead of the clock is "
                                    "a dead letter; `inf` for no limit. Without it, as the channel "
                                    "has it: 60 for a new one", None)  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """What is done with a row."""

    op: str = key("text", "`publish`, `subscribe` or `cancel`", "publish")
    op_column: str | None = key("column", "the column that says so for each row; for a collection "
                                "`c`, `u` and `r` put, `d` deletes", None)  # fmt: skip
    id: str | None = key("column", "the id; without one the store makes one up", None)
    at: str = key("column", "the time of the operation", "at")
    until: str | None = key("column", "the end of an event or of a window", None)
    ttl_s: float | str | None = key("number or column", "the same, in seconds after `at`", None)
    since: str | None = key("column", "the start of a subscription's window", None)
    since_s: float | str | None = key("number or column", "the same, in seconds after `at`; "
                                      "negative looks back", None)  # fmt: skip
    user: str | None = key("column", "who subscribes", None)
    body: str | list[str] = key("columns or text", "the columns that make up an event's body, or a "
                                "document", "*")  # fmt: skip
    body_json: str | None = key("column", "the column that holds the body as JSON text", None)
    where: str | None = key("column", "the column with a subscription's condition as JSON text",
                            None)  # fmt: skip
    unseen: bool | str = key("flag or column", "whether a subscription is `unseen`", False)


@dataclass(frozen=True)
class Archive:
    """What was stored, kept as Parquet files."""

    folder: str = key(
        "text", "the folder, partitioned by `day`, `area` (not with level 0) and `batch`"
    )
    level: int = key("whole", "how much of the place names the area: levels of the tree of cells, "
                     "segments of a topic, characters of a key; 0 for none", 0)  # fmt: skip


@dataclass(frozen=True)
class DeadLetters:
    """Rows that could not be stored, with the reason."""

    folder: str = key("text", "the folder of Parquet files, partitioned by `batch`; "
                      "by default `dead` in the checkpoint", "")  # fmt: skip


@dataclass(frozen=True)
class Run:
    """How it runs."""

    checkpoint: str = key("text", "the folder that says how far the pipeline is: keep it")
    every_s: float | None = key("number", "look for new data so often, until stopped; without it, "
                                "read what is there and end", None)  # fmt: skip


@dataclass(frozen=True)
class Spark:
    """The Spark session, when the pipeline starts one."""

    master: str | None = key("text", "by default all cores of this machine", None)
    memory: str | None = key("text", "of each Java process that runs tasks, such as `2g`", None)
    packages: list[str] | None = key("texts", "Maven coordinates of connectors", None)
    config: Mapping[str, Any] = key("table", "settings of Spark as they are", None)


SECTIONS: dict[str, tuple[type[Any], str]] = {
    "source": (Source, "one"),
    "parse": (Parse, "optional"),
    "clean": (Clean, "named"),
    "rule": (Rule, "many"),
    "place": (Place, "optional"),
    "deduplicate": (Deduplicate, "optional"),
    "condition": (Condition, "optional"),
    "store": (Store, "one"),
    "operation": (Operation, "optional"),
    "archive": (Archive, "optional"),
    "dead_letters": (DeadLetters, "optional"),
    "run": (Run, "one"),
    "spark": (Spark, "optional"),
}
"""The sections in the order of the stages; `named` is [clean.COLUMN], `many` is [[rule]]."""


def key_of(item: dataclasses.Field[Any]) -> str:
    """The key a field is read from: `from_` stands for `from`, which is a word of Python's."""
    return item.name.rstrip("_")
