"""What a config would do, in plain words, stage by stage. Starts neither Spark nor a store.

`preflight.py` looks at what is there already.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable

from tideline.spark.pipeline import generator, keys
from tideline.spark.pipeline.check import BINARY, deduplicated_by
from tideline.spark.pipeline.config import Config
from tideline.spark.pipeline.source import is_endless

__all__ = ["explain"]

_WIDTH = 96


def explain(config: Config) -> str:
    """The stages of a pipeline, in the order they run."""
    stages: list[tuple[str, Iterable[str]]] = [
        ("source", _source(config)),
        ("parse", _parse(config)),
        ("clean", _clean(config)),
        ("place", _place(config)),
        ("deduplicate", _deduplicate(config)),
        ("condition", _condition(config)),
        ("store", _store(config)),
        ("archive", _archive(config)),
        ("dead letters", _dead(config)),
        ("restart", _restart(config)),
    ]
    lines = [f"The pipeline {config.name}"]
    for title, sentences in stages:
        for n, sentence in enumerate(sentences):
            head = f"  {title if n == 0 else '':<13}"
            lines += textwrap.wrap(
                sentence, _WIDTH, initial_indent=head, subsequent_indent=" " * 15,
                break_on_hyphens=False, break_long_words=False,
            )  # fmt: skip
    return "\n".join(lines)


def _source(config: Config) -> Iterable[str]:
    source = config.source
    options = source.options or {}
    if source.format == "generator":
        rows, rate = options.get("rows"), options.get("rows_per_second")
        many = f"{rows:,} rows" if rows else "rows without end"
        speed = f", {rate:,} a second" if rate else ""
        yield f"makes {many}{speed} of incidents over New York State"
        shares = [f"{options[name]:.1%} {word}" for name, word in (
            ("subscribe", "subscriptions"), ("bad", "broken"), ("repeat", "repeated"),
            ("late", "an hour late")) if options.get(name)]  # fmt: skip
        if shares:
            yield f"of these are {', '.join(shares)}"
    elif config.paths:
        yield f"reads {source.format} files from {', '.join(config.paths)}"
    elif source.format == "kafka":
        topic = options.get("subscribe") or options.get("subscribePattern") or options.get("assign")
        first = options.get("startingOffsets", "earliest")
        yield (
            f"reads the Kafka topic {topic} at {options.get('kafka.bootstrap.servers')}, "
            f"from {first} on"
        )
    else:
        yield f"reads Spark's source {source.format}"
    yield _how_long(config)
    names = sorted(name for name in options if name not in generator.OPTIONS)
    if names:
        given = ", ".join(f"{name} = {options[name]}" for name in names)
        yield f"Spark's reader is told: {given}"


def _how_long(config: Config) -> str:
    every_s = config.run.every_s
    if not config.source.stream:
        return "everything is one batch; a second run finds it stored and does nothing"
    if (config.source.options or {}).get("rows") and config.source.format == "generator":
        return "a batch after the other until the last, then it ends"
    if every_s is None and not is_endless(config):
        return (
            "what is there when it starts, then it ends; a later run goes on with what is new "
            "(a source that Spark cannot follow is read as one batch, once)"
        )
    pause = f"every {every_s:g} s" if every_s else "without a pause"
    return f"looks for new rows {pause}, until it is stopped"


def _parse(config: Config) -> Iterable[str]:
    fields = ", ".join(f"{name} ({kind})" for name, kind in config.schema.items())
    if config.parsed_as == "columns":
        yield "nothing to do: the source has columns"
        if fields:
            yield f"these must be there, or be castable: {fields}"
        return
    kind, column = config.parsed_as, config.parse.column
    if kind in BINARY:
        yield f"the bytes in `{column}` must be one {kind.capitalize()} record"
        if fields:
            yield f"of its fields these are brought to a type: {fields}"
        return
    if config.parse.envelope:
        yield f"each text in `{column}` must be a change of Debezium's, of a row with {fields}"
        yield "what happened is in `__op`, when in `__ts_ms`; a message without a value is filtered"
        return
    what = "one JSON object" if kind == "json" else "one CSV record"
    yield f"each text in `{column}` must be {what} with {fields}"
    if kind == "json":
        yield "fields may be missing (they are null) and others are passed over"


def _clean(config: Config) -> Iterable[str]:
    said = [f"{name}: {', '.join(_steps(clean))}" for name, clean in config.clean.items()]
    said += [f"every row must keep the rule {rule.sql}" for rule in config.rules]
    return said or ["nothing to do"]


def _steps(clean: keys.Clean) -> Iterable[str]:
    if clean.from_:
        yield f"renamed from {clean.from_}"
    if clean.sql:
        yield f"made by {clean.sql}"
    if clean.trim:
        yield "blanks cut off, empty is missing"
    if clean.cast:
        yield f"cast to {clean.cast}"
    if clean.default is not None:
        yield f"{clean.default!r} where there is none"
    if clean.required:
        yield "must be there"
    for name, words in (("min", "at least"), ("max", "at most")):
        if getattr(clean, name) is not None:
            yield f"{words} {getattr(clean, name)}"
    if clean.one_of:
        yield f"one of {', '.join(map(str, clean.one_of))}"


def _place(config: Config) -> Iterable[str]:
    place = config.place
    if place.column is not None:
        yield f"the text in {place.column} is the place"
        return
    if place.point is None:
        return  # documents have no place
    point = f"({place.point[0]}, {place.point[1]})"
    if place.store_as == "cell":
        level = f" at level {place.level}" if place.level else ""
        yield f"the cell{level} that the point {point} lies in"
    elif place.radius_m is None:
        yield f"the point {point}; one outside the bounds is a dead letter"
    else:
        radius = place.radius_m
        metres = f"{radius} metres" if isinstance(radius, str) else f"{radius:g} metres"
        yield f"a circle around {point} of {metres}"


def _deduplicate(config: Config) -> Iterable[str]:
    wanted = config.deduplicate
    if wanted is None:
        yield "no: every row counts, none is late"
        return
    time = wanted.time or config.operation.at
    by = deduplicated_by(config)
    yield (
        f"of rows with the same {', '.join(by)} one is taken, and those whose {time} lies less "
        f"than {wanted.within_s:g} s before or after it are counted as duplicates; then the next "
        "is taken"
    )
    yield (
        f"rows whose {time} is more than {wanted.within_s:g} s before the newest that "
        "the batch before the last had seen are counted as late"
    )


def _condition(config: Config) -> Iterable[str]:
    if config.condition is None:
        return ["none: every row is wanted"]
    where = config.condition.where
    shown = where if isinstance(where, str) else json.dumps(where, default=str)
    return [f"only rows that meet {shown}; the others are counted as filtered"]


def _store(config: Config) -> Iterable[str]:
    store, operation = config.store, config.operation
    where = str(config.store_folder or "the database that is passed to run")
    if store.url is not None:
        where = f"the server at {store.url}"
    space = ""
    if store.space is not None:
        settings = ", ".join(f"{k} {v}" for k, v in store.space.items() if k != "kind")
        space = f" ({store.space['kind']}{': ' if settings else ''}{settings})"
    verb = f"does what {config.op_column} says" if config.op_column else operation.op
    if store.collection is not None:
        verb = verb if config.op_column else "puts documents"
        yield f"{verb} in the collection {store.collection} of {where}, by the key {store.key_}"
        if store.version is not None:
            yield f"an older {store.version} never replaces a newer one"
        yield f"document {_body(operation)}; a batch is stored once, whatever happens"
        return
    yield f"{verb} in the channel {store.channel}{space} of {where}"
    parts = [f"id from {operation.id}" if operation.id else "ids made up", f"time {operation.at}"]
    for name in ("until", "ttl_s", "since", "since_s", "user", "where"):
        value = getattr(operation, name)
        if value is not None:
            parts.append(f"{name} {value}")
    if operation.op == "publish":
        parts.append(f"body {_body(operation)}")
    yield "; ".join(parts)
    yield "each batch in the order of its times; a batch is stored once, whatever happens"


def _body(operation: keys.Operation) -> str:
    """What a body or a document is made of."""
    if operation.body_json:
        return f"the JSON in {operation.body_json}"
    return "all columns" if isinstance(operation.body, str) else ", ".join(operation.body)


def _archive(config: Config) -> Iterable[str]:
    archive = config.archive
    if archive is None:
        yield "none"
        return
    by = "day" if archive.level == 0 else f"day and area ({archive.level} of the place)"
    yield f"what was stored, as Parquet files by {by} in {config.resolve(archive.folder)}"


def _dead(config: Config) -> Iterable[str]:
    yield f"bad rows with stage, reason and text, as Parquet files in {config.dead_folder}"


def _restart(config: Config) -> Iterable[str]:
    yield f"goes on from {config.checkpoint}: nothing lost, nothing twice"
