"""A pipeline's config: read from TOML, every mistake found, each with its line.

    read_config("pipeline.toml") -> Config
    make_config({...})           -> Config      the same from a dict

All mistakes are reported at once, one a line: `pipeline.toml:12: [store] has no key
'chanel': did you mean 'channel'?`. What can only be known with Spark (are the columns there,
is an expression right) is found when the pipeline starts, and says its line too.

A relative path is meant from the folder of the config file. Needs no Spark; frozen values.
"""

from __future__ import annotations

import codecs
import dataclasses
import datetime
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any
from urllib.parse import urlsplit

from tideline import near
from tideline.errors import InvalidRequest, NotFound
from tideline.spark.pipeline import keys
from tideline.spark.pipeline.locate import Path, lines, nearest
from tideline.spark.pipeline.typenames import type_problem

__all__ = [
    "FILES", "Config", "Problems", "did_you_mean", "is_uri", "make_config", "read_config",
]  # fmt: skip

FILES = ("json", "csv", "text", "parquet", "orc", "avro", "xml", "binaryFile")
"""The formats that read files, which Spark can also follow as new files come."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_OWN = f"names that begin with {keys.OWN} are the pipeline's own: give the column another one"
_TEXTS = {"json": "json", "csv": "csv"}  # how a source's format is parsed, unless told


@dataclass(frozen=True)
class Config:
    """Everything a pipeline is told. Made by `read_config` or `make_config`."""

    name: str
    source: keys.Source
    parse: keys.Parse
    schema: dict[str, str]
    clean: dict[str, keys.Clean]
    rules: list[keys.Rule]
    place: keys.Place
    deduplicate: keys.Deduplicate | None
    condition: keys.Condition | None
    store: keys.Store
    operation: keys.Operation
    archive: keys.Archive | None
    dead_letters: keys.DeadLetters
    run: keys.Run
    spark: keys.Spark
    base: File = field(default_factory=File.cwd)
    file: str = ""
    lines: dict[Path, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def parsed_as(self) -> str:
        """`json`, `csv`, `avro`, `protobuf` or `columns`."""
        return self.parse.format or _TEXTS.get(self.source.format, "columns")

    def resolve(self, path: str) -> str:
        """A path as it is used: relative ones are meant from the config's folder."""
        return path if is_uri(path) else os.path.abspath(self.base / path)

    def here(self, path: str) -> File | None:
        """Where a path is on this machine; None when it is of another file system."""
        found = self.resolve(path)
        if found.startswith("file:"):
            return File(urlsplit(found).path)
        return None if is_uri(found) else File(found)

    @property
    def store_folder(self) -> File | None:
        """The folder of the store."""
        return None if self.store.folder is None else self.here(self.store.folder)

    @property
    def paths(self) -> list[str]:
        """The source's paths."""
        given = self.source.path
        texts = [given] if isinstance(given, str) else given or []
        return [self.resolve(text) for text in texts]

    @property
    def checkpoint(self) -> str:
        return self.resolve(self.run.checkpoint).rstrip("/")

    @property
    def dead_folder(self) -> str:
        given = self.dead_letters.folder
        return self.resolve(given).rstrip("/") if given else f"{self.checkpoint}/dead"

    @property
    def target(self) -> str:
        """The name of the channel or collection."""
        return self.store.collection or self.store.channel or ""

    @property
    def op_column(self) -> str | None:
        """The column that says what a row does."""
        told = self.operation.op_column
        return "__op" if told is None and self.parse.envelope else told

    def place_of(self, *path: str | int) -> str:
        """Where a key stands, for a message: `pipeline.toml:12`, or the key without a file."""
        return _place_of(self.file, self.lines, path)

    def wrong(self, path: Path, message: str, **values: Any) -> InvalidRequest:
        """The error about a key."""
        return InvalidRequest(f"{self.place_of(*path)}: {message}", **values)


class Problems:
    """What is wrong with a config, as far as it was read."""

    def __init__(self, file: str, found: dict[Path, int]) -> None:
        self.file = file
        self.lines = found
        self.texts: list[tuple[int, str]] = []

    def add(self, path: Path, message: str) -> None:
        line = nearest(self.lines, path) or 0
        self.texts.append((line, f"{_place_of(self.file, self.lines, path)}: {message}"))

    def when_refused(self, path: Path, function: Callable[..., Any], *given: Any) -> None:
        """What a function that checks a value says about it, if it refuses it."""
        try:
            function(*given)
        except InvalidRequest as error:
            self.add(path, str(error))

    def check(self) -> None:
        """Raise what was found, in the order of the lines."""
        if self.texts:
            in_order = sorted(self.texts, key=lambda item: item[0])
            raise InvalidRequest("\n".join(text for _, text in in_order))


def read_config(path: str | os.PathLike[str]) -> Config:
    """A config from a file; `InvalidRequest` names the line of every mistake."""
    file = File(path)
    try:
        data = file.read_bytes().removeprefix(codecs.BOM_UTF8)  # some editors begin with one
        text = data.decode().replace("\r\n", "\n")
    except FileNotFoundError:
        raise NotFound("no such file", file=str(file)) from None
    except OSError as error:
        raise InvalidRequest("the file cannot be read", file=str(file), error=str(error)) from None
    except UnicodeDecodeError as error:
        number = data[: error.start].count(b"\n") + 1
        raise InvalidRequest(f"{file.name}:{number}: this is not UTF-8: {error.reason}") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).rpartition(" (at ")
        line = place.removeprefix("line ").split(",")[0] if place.startswith("line") else "end"
        if line == "end":
            line, message = str(text.count("\n") + 1), message or str(error)
        raise InvalidRequest(f"{file.name}:{line}: this is no TOML: {message}") from None
    return make_config(document, base=file.resolve().parent, file=file.name, found=lines(text))


def make_config(
    document: Mapping[str, Any], *, base: str | os.PathLike[str] | None = None, file: str = "",
    found: dict[Path, int] | None = None,
) -> Config:  # fmt: skip
    """A config from a dict with the keys of the TOML file.

    >>> make_config({"name": "n", "sauce": {}})
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: sauce: there is no section [sauce]: did you mean [source]?
    source: the section [source] is missing
    store: the section [store] is missing
    run: the section [run] is missing
    """
    from tideline.spark.pipeline.check import check_config

    problems = Problems(file, found or {})
    name = document.get("name")
    if "name" not in document:
        problems.add((), 'the pipeline needs a name: name = "..." at the top')
    elif not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode()) <= 128:
        problems.add(("name",), "name must be a printable text of 1 to 128 bytes")
    for section in document:
        if section not in keys.SECTIONS and section not in ("name", "schema"):
            if isinstance(document[section], (dict, list)):
                close = did_you_mean(section, [*keys.SECTIONS, "schema"], "[{}]")
                problems.add((section,), f"there is no section [{section}]{close}")
            else:
                message = f"there is no key {section!r} at the top, only 'name'"
                problems.add((section,), f"{message}; the others stand in sections")
    read = {name: _section(problems, name, document) for name in keys.SECTIONS}
    schema = _schema(problems, document.get("schema", {}))
    problems.check()
    config = Config(
        name=str(name), source=read["source"], parse=read["parse"] or keys.Parse(),
        schema=schema, clean=read["clean"], rules=read["rule"], place=read["place"] or keys.Place(),
        deduplicate=read["deduplicate"], condition=read["condition"], store=read["store"],
        operation=read["operation"] or keys.Operation(), archive=read["archive"],
        dead_letters=read["dead_letters"] or keys.DeadLetters(), run=read["run"],
        spark=read["spark"] or keys.Spark(), base=File(base) if base else File.cwd(), file=file,
        lines=found or {},
    )  # fmt: skip
    check_config(config, problems)
    problems.check()
    return config


def is_uri(path: str) -> bool:
    """Whether a path names its file system.

    >>> is_uri("s3a://bucket/in"), is_uri("file:/data/in"), is_uri("in/2026:01")
    (True, True, False)
    """
    return _SCHEME.match(path) is not None


def did_you_mean(word: str, known: Iterable[str], form: str = "'{}'") -> str:
    """`: did you mean ...?` when a known word is near, else what there is.

    >>> did_you_mean("chanel", ["channel", "folder"])
    ": did you mean 'channel'?"
    >>> did_you_mean("xyz", ["channel", "folder"])
    ": there are 'channel', 'folder'"
    """
    names = list(known)
    meant = near.nearest(word, names)
    if meant:
        return f": did you mean {form.format(meant)}?"
    return f": there are {', '.join(form.format(name) for name in names)}" if names else ""


def _place_of(file: str, found: dict[Path, int], path: Path) -> str:
    if not file:
        return ".".join(map(str, path)) or "the config"
    line = nearest(found, path)
    return f"{file}:{line}" if line else f"{file}:1"


def _section(problems: Problems, name: str, document: Mapping[str, Any]) -> Any:
    """One section as its class (a dict or a list of them for `named` and `many`)."""
    cls, how = keys.SECTIONS[name]
    given = document.get(name)
    if how == "named":
        tables = _table(problems, (name,), given, f"[{name}] holds a table for each column")
        for column in tables:
            if keys.is_own(column):
                problems.add((name, column), _OWN)
        return {
            column: _read(problems, cls, (name, column), table) for column, table in tables.items()
        }
    if how == "many":
        if given is None:
            return []
        if not isinstance(given, list):
            problems.add((name,), f"{name} is an array of tables: write [[{name}]]")
            return []
        return [_read(problems, cls, (name, n), table) for n, table in enumerate(given)]
    if given is None:
        if how == "one":
            problems.add((name,), f"the section [{name}] is missing")
        return None
    return _read(problems, cls, (name,), given)


def _table(problems: Problems, path: Path, given: Any, message: str) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        problems.add(path, message)
        return {}
    return given


def _read(problems: Problems, cls: type[Any], path: Path, given: Any) -> Any:
    """A section's table as its class, as far as it is right."""
    shown = ".".join(str(part) for part in path if isinstance(part, str))
    table = _table(problems, path, given, f"{shown} must be a table")
    fields = {keys.key_of(item): item for item in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in fields:
            close = did_you_mean(name, fields)
            problems.add((*path, name), f"[{shown}] has no key {name!r}{close}")
            continue
        kind = fields[name].metadata["kind"]
        if not _fits(kind, value):
            problems.add((*path, name), f"{shown}.{name} must be {_a(kind)}, not {_shown(value)}")
            continue
        values[fields[name].name] = value
    missing = [
        name for name, item in fields.items()
        if item.default is keys.REQUIRED and name not in table
    ]  # fmt: skip
    for name in missing:
        problems.add(path, f"[{shown}] needs the key {name!r}: {fields[name].metadata['doc']}")
    if missing or not isinstance(given, dict) or len(values) < len(table):
        return None
    return cls(**values)


def _fits(kind: str, value: Any) -> bool:
    """Whether a value is of a kind."""
    text = isinstance(value, str) and bool(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = whole or (isinstance(value, float) and math.isfinite(value))
    texts = isinstance(value, list) and bool(value) and all(isinstance(v, str) and v for v in value)
    moment = isinstance(value, (datetime.datetime, datetime.date))
    match kind:
        case "text" | "column":
            return text
        case "whole":
            return whole and value >= 0
        case "number":
            return number
        case "number or inf":
            return number or value == math.inf
        case "flag":
            return isinstance(value, bool)
        case "texts" | "columns":
            return texts
        case "paths" | "columns or text":
            return text or texts
        case "point":
            return texts and len(value) == 2
        case "table":
            return isinstance(value, dict)
        case "number or column":
            return number or text
        case "flag or column":
            return isinstance(value, bool) or text
        case "value":
            return isinstance(value, (str, bool)) or number or moment
        case "values":
            return isinstance(value, list) and bool(value) and all(_fits("value", v) for v in value)
        case "bound":
            return number or moment
        case "condition":
            return text or isinstance(value, dict)
    raise AssertionError(kind)


def _a(kind: str) -> str:
    name = keys.KINDS[kind]
    return name if name.startswith(("text or", "true", "two")) else f"a {name}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _schema(problems: Problems, given: Any) -> dict[str, str]:
    """`column = "type"`, every type checked."""
    types: dict[str, str] = {}
    for column, kind in _table(problems, ("schema",), given, "[schema] must be a table").items():
        if not isinstance(kind, str):
            problems.add(("schema", column), f'the type of {column} must be a text such as "int"')
            continue
        wrong = type_problem(kind)
        if wrong:
            problems.add(("schema", column), f"{column}: {wrong}")
        if keys.is_own(column):
            problems.add(("schema", column), _OWN)
        twin = next((name for name in types if name.casefold() == column.casefold()), None)
        if twin is not None:
            message = f"{column} and {twin} differ in case only, and to Spark they are one column"
            problems.add(("schema", column), message)
        types[column] = kind
    return types
