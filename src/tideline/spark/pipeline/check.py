"""What a config says as a whole: keys that do not go together, columns that are not there.

`columns_of(config)` follows the names of the columns through the stages, as far as they are
known before Spark has looked at the source. Needs no Spark.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as File
from typing import TYPE_CHECKING, Any

from tideline.channel.ahead import check_max_ahead_s
from tideline.clock import span_us
from tideline.database import check_journal_s, check_memory_mb, check_name
from tideline.errors import InvalidRequest
from tideline.space import Space, space_from_spec
from tideline.space.place import CELLS
from tideline.spark.pipeline import generator, keys
from tideline.spark.pipeline.fits import misfits
from tideline.spark.pipeline.locate import Path
from tideline.spark.pipeline.typenames import type_problem
from tideline.spark.place import depth_of
from tideline.spark.session import check_memory

if TYPE_CHECKING:
    from tideline.spark.pipeline.config import Config, Problems

__all__ = [
    "BINARY", "check_columns", "check_config", "columns_of", "condition_of", "deduplicated_by",
    "space_of",
]  # fmt: skip

_KAFKA = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint",
    "timestamp": "timestamp", "timestampType": "int",
}  # fmt: skip
OPS = ("publish", "subscribe", "cancel")
BINARY = {"avro": ("schema",), "protobuf": ("message", "descriptor")}
"""The formats of bytes that Spark's packages parse, with the options that each needs."""
FORMATS = ("json", "csv", *BINARY, "columns")
_ASKING, _TELLING, _LASTING = ("subscribe",), ("publish",), ("publish", "subscribe")
_ONLY = {
    "user": _ASKING, "unseen": _ASKING, "where": _ASKING, "since": _ASKING, "since_s": _ASKING,
    "body": _TELLING, "body_json": _TELLING, "until": _LASTING, "ttl_s": _LASTING,
}  # fmt: skip
"""Keys of [operation] that mean nothing to the other operations."""


def check_config(config: Config, problems: Problems) -> None:
    """Add everything that is wrong with a config whose keys are right."""
    _check_source(config, problems)
    _check_clean(config, problems)
    if config.store.collection is None:
        _check_place(config, problems)
        _check_operation(config, problems)
    else:
        _check_collection(config, problems)
    _check_folders(config, problems)
    deduplicate, run = config.deduplicate, config.run
    if deduplicate and not 0 < deduplicate.within_s <= 1e9:
        problems.add(("deduplicate", "within_s"), "within_s must be over 0 and at most 1e9")
    if run.every_s is not None and not 0 <= run.every_s <= 86_400:
        problems.add(("run", "every_s"), "every_s must be 0 to 86400 seconds")
    if config.store.folder is not None and config.store.url is not None:
        problems.add(("store", "url"), "give folder or url, not both")
    if config.store.token is not None and config.store.url is None:
        problems.add(("store", "token"), "token goes with url")
    if config.store.url is not None and not config.store.url.startswith(("http://", "https://")):
        problems.add(("store", "url"), "url must be http://HOST:PORT or https://...")
    store = config.store
    if (store.channel is None) == (store.collection is None):
        problems.add(("store",), "[store] needs channel or collection, one of the two")
    elif store.channel is not None:
        problems.when_refused(("store", "channel"), check_name, store.channel, "channel")
    else:
        problems.when_refused(("store", "collection"), check_name, store.collection, "collection")
    problems.when_refused(("store", "memory_mb"), check_memory_mb, store.memory_mb)
    if store.journal_s is not None:
        problems.when_refused(("store", "journal_s"), check_journal_s, store.journal_s)
    if store.max_ahead_s is not None:
        problems.when_refused(("store", "max_ahead_s"), check_max_ahead_s, store.max_ahead_s)
    problems.when_refused(("spark", "memory"), check_memory, config.spark.memory)
    if config.store.durability not in ("os", "disk"):
        problems.add(("store", "durability"), 'durability must be "os" or "disk"')
    problems.when_refused(("store", "space"), space_of, config)
    problems.when_refused(("condition", "where"), condition_of, config)
    if not problems.texts:
        known = columns_of(config)
        if known is not None:
            check_columns(config, known, problems)


def space_of(config: Config) -> Space | None:
    """The space the config names; None when it leaves it to the channel."""
    return None if config.store.space is None else space_from_spec(dict(config.store.space))


def condition_of(config: Config) -> Any:
    """The condition, parsed; None when there is none."""
    from tideline.where import parse, parse_text

    if config.condition is None:
        return None
    where = config.condition.where
    return parse_text(where) if isinstance(where, str) else parse(where)


def deduplicated_by(config: Config) -> list[str]:
    """The columns of a row's key: those asked for, and the operation where rows say theirs.

    A cancel has the id of its subscription, and is no second one of it.
    """
    by = list(config.deduplicate.by) if config.deduplicate else []
    op = config.op_column
    return by if op is None or op in by else [*by, op]


# ---- columns -----------------------------------------------------------------------------


def columns_of(config: Config) -> list[str] | None:
    """The columns after parsing, as far as they are known without Spark; else None."""
    kind = config.source.format
    if config.parsed_as in BINARY or (
        config.parsed_as == "columns" and kind not in ("generator", "rate")
    ):
        return None
    return list(types_of(config))


def types_of(config: Config) -> dict[str, str]:
    """The types of the columns after parsing that are known without Spark."""
    kind = config.source.format
    own: dict[str, str] = {}
    if kind == "generator":
        own = generator.columns(config.source.options or {})
    elif kind == "rate":
        own = {"timestamp": "timestamp", "value": "bigint"}
    elif kind == "kafka":
        own = _KAFKA
    elif config.parsed_as != "columns":
        own = {config.parse.column: "string"}
    if config.parse.envelope:
        own = {**own, "__op": "string", "__ts_ms": "bigint"}
    return {**own, **config.schema}


def check_columns(config: Config, known: list[str], problems: Problems) -> None:
    """Every column that is named is there when it is named."""
    from tideline.where.column import top_fields

    names = list(known)

    def need(path: Path, column: Any) -> None:
        from tideline.spark.pipeline.config import did_you_mean

        if isinstance(column, str) and column not in names:
            problems.add(path, f"there is no column {column!r}{did_you_mean(column, names)}")

    for column, clean in config.clean.items():
        if clean.sql is None:
            need(("clean", column, "from") if clean.from_ else ("clean", column),
                 clean.from_ or column)  # fmt: skip
        if clean.from_ in names and clean.from_ != column:
            names.remove(str(clean.from_))
        if column not in names:
            names.append(column)
    place, operation = config.place, config.operation
    for n, column in enumerate(place.point or []):
        need(("place", "point", n), column)
    need(("place", "column"), place.column)
    need(("place", "radius_m"), place.radius_m)
    need(("store", "key"), config.store.key_)
    need(("store", "version"), config.store.version)
    for name in ("op_column", "id", "at", "until", "ttl_s", "since", "since_s", "user",
                 "body_json", "where", "unseen"):  # fmt: skip
        if name != "at" or config.store.collection is None:
            need(("operation", name), getattr(operation, name))
    for n, column in enumerate(operation.body if isinstance(operation.body, list) else []):
        need(("operation", "body", n), column)
    if config.deduplicate:
        for n, column in enumerate(config.deduplicate.by):
            need(("deduplicate", "by", n), column)
        need(("deduplicate", "time"), config.deduplicate.time)
    condition = condition_of(config)
    for column in sorted(top_fields(condition.tree)) if condition else ():
        need(("condition", "where", column), column)


# ---- sections ------------------------------------------------------------------------------


def _check_source(config: Config, problems: Problems) -> None:
    from tideline.spark.pipeline.config import FILES

    source, parse = config.source, config.parse
    if source.format in FILES and not source.path:
        problems.add(("source",), f"the format {source.format} needs a path")
    if source.format in ("generator", "kafka", "rate") and source.path:
        problems.add(("source", "path"), f"the format {source.format} takes no path")
    if source.format == "generator":
        for name, message in generator.problems(source.options or {}).items():
            path: Path = ("source", "options", name) if name else ("source",)
            problems.add(path, message)
    if source.format == "kafka":
        options = source.options or {}
        if not any(name in options for name in ("subscribe", "subscribePattern", "assign")):
            problems.add(("source",), 'kafka needs the option "subscribe" with the topic')
        if "kafka.bootstrap.servers" not in options:
            problems.add(("source",), 'kafka needs the option "kafka.bootstrap.servers"')
    _check_options(source.options, ("source", "options"), problems)
    _check_options(parse.options, ("parse", "options"), problems)
    _check_options(config.spark.config, ("spark", "config"), problems)
    if parse.envelope not in (None, "debezium"):
        problems.add(("parse", "envelope"), 'parse.envelope must be "debezium"')
    elif parse.envelope is not None and config.parsed_as != "json":
        problems.add(("parse", "envelope"), 'envelope goes with parse.format = "json"')
    if parse.format not in (None, *FORMATS):
        known = ", ".join(f'"{name}"' for name in FORMATS)
        problems.add(("parse", "format"), f"parse.format must be one of {known}")
    elif parse.format in BINARY:
        for name in BINARY[parse.format]:
            if name not in (parse.options or {}):
                problems.add(("parse",), f"{parse.format} needs the option {name} in parse.options")
    elif config.parsed_as != "columns" and not config.schema:
        problems.add(
            ("parse", "format") if parse.format else ("source", "format"),
            f"{config.parsed_as} text needs a [schema]: its columns and their types",
        )
    elif parse.format is None and (
        source.format in ("text", "kafka") or (source.options or {}).get("text") is True
    ):
        message = f'{source.format} holds texts: say parse.format = "json" or "csv"'
        problems.add(("source", "format"), f'{message}, or "columns" to take them as they are')


def _check_options(given: Mapping[str, Any] | None, path: Path, problems: Problems) -> None:
    for name, value in (given or {}).items():
        if not isinstance(value, (str, bool, int, float)):
            problems.add((*path, name), f"{name} must be a text, a number, true or false")


def _check_clean(config: Config, problems: Problems) -> None:
    types: dict[str, str | None] = {**types_of(config)}
    for column, clean in config.clean.items():
        path: Path = ("clean", column)
        if clean.from_ and clean.sql:
            problems.add((*path, "sql"), f"{column} is made from a column or by sql, not both")
        if clean == keys.Clean():
            problems.add(path, f"[clean.{column}] says nothing to do")
        wrong = type_problem(clean.cast) if clean.cast else None
        if wrong:
            problems.add((*path, "cast"), wrong)
        if clean.min is not None and clean.max is not None:
            try:
                if clean.min > clean.max:
                    problems.add((*path, "max"), f"max is below min, {clean.min}")
            except TypeError:
                problems.add((*path, "max"), "min and max must be of one kind")
        given = None if clean.sql else types.get(clean.from_ or column)
        if not wrong:
            for key, message in misfits(clean, given):
                problems.add((*path, key), message)
        types[column] = clean.cast or given


def _check_collection(config: Config, problems: Problems) -> None:
    """What goes with a collection, and what with a channel only."""
    store, operation = config.store, config.operation
    if store.key_ is None:
        problems.add(("store",), "a collection needs key: the column with its documents' keys")
    if config.place != keys.Place():
        problems.add(("place",), "[place] goes with a channel: documents have fields")
    for name in ("space", "journal_s", "max_ahead_s"):
        if getattr(store, name) is not None:
            problems.add(("store", name), f"{name} goes with channel")
    if operation.op != "publish":
        problems.add(("operation", "op"), "op goes with channel; a collection has op_column")
    for name in (*_ONLY, "id"):
        if name not in ("body", "body_json") and getattr(operation, name) not in (None, False):
            problems.add(("operation", name), f"{name} goes with channel")
    if config.deduplicate is not None and config.deduplicate.time is None:
        problems.add(("deduplicate",), "with a collection, deduplicate needs time: a column")
    if config.deduplicate is not None and store.version is None:
        message = "with a collection, deduplicate needs store.version: Spark keeps no order of rows"
        problems.add(("deduplicate",), message)


def _check_place(config: Config, problems: Problems) -> None:
    place = config.place
    if place == keys.Place() and ("place",) not in problems.lines:
        problems.add(("place",), "the section [place] is missing")
        return
    if (place.point is None) == (place.column is None):
        problems.add(("place",), "[place] needs point = [lon, lat] or column, one of the two")
        return
    if place.store_as not in ("point", "cell"):
        problems.add(("place", "store_as"), 'store_as must be "point" or "cell"')
    for name in ("radius_m", "level") if place.point is None else ():
        if getattr(place, name) is not None:
            problems.add(("place", name), f"{name} goes with point")
    if place.level is not None and place.store_as != "cell":
        problems.add(("place", "level"), 'level goes with store_as = "cell"')
    if place.radius_m is not None and place.store_as == "cell":
        problems.add(("place", "radius_m"), "a cell has no radius")
    if isinstance(place.radius_m, (int, float)) and place.radius_m <= 0:
        problems.add(("place", "radius_m"), "radius_m must be over 0")
    try:
        space = space_of(config)
    except InvalidRequest:
        return  # said elsewhere
    if space is not None:
        check_space(config, space, problems)


def check_space(config: Config, space: Space, problems: Problems) -> None:
    """Whether places of this config are places of a space."""
    place = config.place
    kind = space.spec()["kind"]
    if place.point is not None and space.mode != CELLS:
        problems.add(("place", "point"), f"a {kind} channel has no points: give column")
    depth = space.spec().get("depth")
    if place.level is not None and (depth is None or not 1 <= place.level <= depth):
        limit = "only a quad tree has levels" if depth is None else f"level must be 1 to {depth}"
        problems.add(("place", "level"), limit)
    archive = config.archive
    if archive is not None and place.point is not None and space.mode == CELLS:
        deepest = depth_of(space)
        if archive.level > deepest:
            problems.add(
                ("archive", "level"), f"level must be 0 to {deepest}, as deep as the space"
            )


def _check_operation(config: Config, problems: Problems) -> None:
    operation = config.operation
    path: Path = ("operation",)
    if operation.op not in OPS:
        problems.add((*path, "op"), 'op must be "publish", "subscribe" or "cancel"')
    if operation.op_column and operation.op != "publish":
        problems.add((*path, "op_column"), "give op or op_column, not both")
    for one, other in (("until", "ttl_s"), ("since", "since_s")):
        if getattr(operation, one) is not None and getattr(operation, other) is not None:
            problems.add((*path, other), f"give {one} or {other}, not both")
    if operation.body != "*" and operation.body_json:
        problems.add((*path, "body_json"), "give body or body_json, not both")
    if isinstance(operation.body, str) and operation.body != "*":
        problems.add((*path, "body"), 'body is a list of columns, or "*" for all of them')
    if not operation.op_column and operation.op in OPS:
        for name in _ONLY:
            given = getattr(operation, name) not in (None, False, "*")
            if given and operation.op not in _ONLY[name]:
                who = " or ".join(f'"{op}"' for op in _ONLY[name])
                problems.add((*path, name), f"{name} goes with op = {who}, not {operation.op!r}")
    if operation.op == "subscribe" and not operation.user:
        problems.add(path, "a subscription needs user: the column that says who subscribes")
    if operation.op == "cancel" and not operation.id:
        problems.add(path, "a cancel needs id: the column with the subscription's id")
    for name in ("ttl_s", "since_s"):
        seconds = getattr(operation, name)
        if isinstance(seconds, (int, float)):
            problems.when_refused((*path, name), span_us, seconds, name)
    if isinstance(operation.ttl_s, (int, float)) and operation.ttl_s <= 0:
        problems.add((*path, "ttl_s"), "ttl_s must be over 0")


def _check_folders(config: Config, problems: Problems) -> None:
    """What the pipeline writes must not be what it reads, nor lie in one folder."""
    written = {
        ("run", "checkpoint"): config.run.checkpoint,
        ("store", "folder"): config.store.folder,
        ("archive", "folder"): config.archive.folder if config.archive else None,
        ("dead_letters", "folder"): config.dead_letters.folder,
    }
    seen: dict[File, Path] = {}
    sources = [found for found in map(config.here, config.paths) if found is not None]
    for path, given in written.items():
        if not given:
            continue
        folder = config.here(given)
        if folder is None:
            if path == ("store", "folder"):
                problems.add(path, "store.folder must be a folder of this machine")
            continue
        for source in sources:
            if folder.is_relative_to(_fixed_part(source)):
                problems.add(path, f"{folder} lies in the folder that the source reads, {source}")
        if folder in seen:
            other = ".".join(map(str, seen[folder]))
            problems.add(path, f"{'.'.join(path)} and {other} are the same folder")
        seen[folder] = path


def _fixed_part(path: File) -> str:
    """A path up to its first wildcard; a file's folder is not meant by its name."""
    parts = path.parts
    for n, part in enumerate(parts):
        if any(sign in part for sign in "*?[{"):
            return os.path.join(*parts[:n], "\0")  # files of a folder: nothing lies in them
    return str(path)
