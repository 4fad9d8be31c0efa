"""The first stage: texts become columns of the schema, or a reason why they do not.

    json      one object a text; nothing before it, nothing after it
    csv       one record a text, with as many fields as the schema has
    avro      one record in the bytes; protobuf the same
    columns   the source has columns; they are brought to the schema's types

A text is parsed once, typed. Only where that fails is it parsed again as plain texts, to say
which field is wrong: a field that has a text but no value.
"""

from __future__ import annotations

import csv

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tideline.spark.pipeline.check import BINARY
from tideline.spark.pipeline.config import Config, did_you_mean
from tideline.spark.pipeline.faults import said_by
from tideline.spark.pipeline.keys import OWN
from tideline.spark.pipeline.reasons import PROBLEM, shown
from tideline.where.schema import quoted

__all__ = ["ORIGINAL", "WAS", "csv_header", "header_fields", "option_text", "parse"]

_JSON = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
ORIGINAL = f"{OWN}original"
"""The column with a row's text as it came."""
WAS = f"{OWN}was_"
"""Before the name of a column that a stage replaces: the column as it came."""
_BROKEN, _PARSED, _PLAIN = f"{OWN}broken", f"{OWN}parsed", f"{OWN}plain"
_TEXT, _CHANGE = f"{OWN}text", f"{OWN}change"


def parse(config: Config, frame: DataFrame, fields: list[str]) -> tuple[DataFrame, Column | None]:
    """The frame with the schema's columns (and the source's others), and what is wrong.

    `fields` are the fields of a CSV line, in order; those not in the schema are passed over.
    """
    if config.parsed_as == "columns":
        return _typed(config, frame)
    if config.parsed_as in BINARY:
        return _decoded(config, frame)
    if config.parse.envelope:
        frame = _opened(frame)
    text = F.col(_TEXT if config.parse.envelope else ORIGINAL)
    others = [F.col(quoted(name)) for name in frame.columns if name not in config.schema]
    typed = _parsed(config, text, config.schema, fields)
    frame = frame.select(*others, typed.alias(_PARSED))
    # Made for bad texts only, and a column of its own: each field's reason looks at it.
    plain = _parsed(config, text, dict.fromkeys(config.schema, "string"), fields)
    bad = ~_whole(config, F.col(_PARSED))
    frame = frame.select("*", F.when(bad, plain).alias(_PLAIN))
    row = _row(config, F.col(_PARSED))
    columns = [row.getField(name).alias(name) for name in config.schema]
    problem = _problem(config, text, fields)
    if config.parse.envelope:
        change = F.col("__op").isin("c", "u", "d", "r") & F.col(_TEXT).isNotNull()
        wrong = F.when(~F.coalesce(change, F.lit(False)), F.lit("this is no change of Debezium's"))
        problem = F.when(F.col(ORIGINAL).isNotNull(), F.coalesce(wrong, problem))
    return frame.select(*others, *columns, problem.alias(PROBLEM)), F.col(PROBLEM)


def _opened(frame: DataFrame) -> DataFrame:
    """The row of a change, as text, and what Debezium says about it.

        {"payload": {"op": "u", "before": {...}, "after": {...}, "ts_ms": 5}}, or the inner one

    A delete has no `after`: its row is `before`.
    """
    kind = "payload string, op string, before string, after string, ts_ms bigint"
    outer = F.from_json(F.col(ORIGINAL), kind)
    payload = outer.getField("payload")
    change = F.when(payload.isNotNull(), F.from_json(payload, kind)).otherwise(outer)
    frame = frame.withColumn(_CHANGE, change)
    inner = F.col(_CHANGE)
    return frame.withColumns({
        _TEXT: F.coalesce(inner.getField("after"), inner.getField("before")),
        "__op": inner.getField("op"), "__ts_ms": inner.getField("ts_ms"),
    }).drop(_CHANGE)  # fmt: skip


def _parsed(config: Config, text: Column, schema: dict[str, str], fields: list[str]) -> Column:
    """A text as a struct of the fields and `_BROKEN`, the text when it does not fit."""
    options = {name: option_text(value) for name, value in (config.parse.options or {}).items()}
    options.pop("header", None)
    options["columnNameOfCorruptRecord"] = _BROKEN
    if config.parsed_as == "csv":
        kinds = [f"{quoted(name)} {schema.get(name, 'string')}" for name in fields]
        return F.from_csv(text, ", ".join([*kinds, f"{_BROKEN} string"]), options)
    # In an array inside an object, so that anything after the object is a mistake: Spark
    # reads the first value of a text and is content.
    inner = ", ".join(f"{quoted(name)}: {kind}" for name, kind in schema.items())
    wrapped = F.concat(F.lit('{"_":['), text, F.lit("]}"))
    kind = f"_ array<struct<{inner}>>, {_BROKEN} string"
    return F.from_json(wrapped, kind, {**_JSON, **options})


def _row(config: Config, parsed: Column) -> Column:
    """The struct of the fields in what was parsed."""
    return parsed if config.parsed_as == "csv" else parsed.getField("_")[0]


def _whole(config: Config, parsed: Column) -> Column:
    """Whether a text was one record, whatever its fields are."""
    if config.parsed_as == "csv":
        return parsed.getField(_BROKEN).isNull()
    one = (F.size(parsed.getField("_")) == 1) & parsed.getField("_")[0].isNotNull()
    return F.coalesce(one & parsed.getField(_BROKEN).isNull(), F.lit(False))


def _problem(config: Config, text: Column, fields: list[str]) -> Column:
    """Why a text gives no row; null when it does."""
    typed, plain = F.col(_PARSED), F.col(_PLAIN)
    kinds = []
    for name, kind in config.schema.items():
        given = _row(config, plain).getField(name)
        wrong = given.isNotNull() & _row(config, typed).getField(name).isNull()
        reason = F.concat(F.lit(f"{name}: "), shown(given), F.lit(f" is not of the type {kind}"))
        kinds.append(F.when(wrong, reason))
    if config.parsed_as == "csv":
        broken = f"the line does not have {len(fields)} fields"
    else:
        broken = "the text is not one JSON object"
    said = F.when(~_whole(config, plain), F.lit(broken)).otherwise(
        F.coalesce(*kinds, F.lit("the text does not fit the schema"))
    )
    return (
        F.when(text.isNull() | (F.trim(text) == ""), F.lit("the text is empty"))
        .when(~F.is_valid_utf8(text), F.lit("the text is not UTF-8"))
        .when(plain.isNotNull(), said)
    )


def _decoded(config: Config, frame: DataFrame) -> tuple[DataFrame, Column]:
    """The fields of an Avro or Protobuf record; what [schema] names is brought to its type."""
    options = {name: option_text(value) for name, value in (config.parse.options or {}).items()}
    options.setdefault("mode", "PERMISSIVE")
    data = F.col(quoted(config.parse.column))
    if config.parsed_as == "avro":
        from pyspark.sql.avro.functions import from_avro

        record = from_avro(data, options.pop("schema"), options)
    else:
        from pyspark.sql.protobuf.functions import from_protobuf

        message, file = options.pop("message"), config.resolve(options.pop("descriptor"))
        record = from_protobuf(data, message, file, options)
    kept = [F.col(quoted(name)) for name in frame.columns if name != config.parse.column]
    frame = frame.select(*kept, record.alias(_PARSED))
    whole = F.col(_PARSED)
    reasons = [F.when(whole.isNull(), F.lit(f"the bytes are no {config.parsed_as} record"))]
    columns = {}
    for field in frame.schema[_PARSED].dataType:  # type: ignore[attr-defined]
        value = whole.getField(field.name)
        kind = config.schema.get(field.name)
        columns[field.name] = value if kind is None else value.try_cast(kind)
        if kind is not None:
            wrong = value.isNotNull() & columns[field.name].isNull()
            what = F.lit(f" is not of the type {kind}")
            reasons.append(F.when(wrong, F.concat(F.lit(f"{field.name}: "), shown(value), what)))
    for name in config.schema:
        if name not in columns:
            near = did_you_mean(name, columns)
            raise config.wrong(("schema", name), f"the record has no field {name!r}{near}")
    made = [value.alias(name) for name, value in columns.items()]
    problem = F.coalesce(*reasons).alias(PROBLEM)
    return frame.select(*kept, *made, problem), F.col(PROBLEM)


def _typed(config: Config, frame: DataFrame) -> tuple[DataFrame, Column | None]:
    """Columns brought to the types of the schema."""
    reasons = []
    columns = {}
    for name, kind in config.schema.items():
        wanted = T._parse_datatype_string(kind)
        if frame.schema[name].dataType == wanted:
            continue
        given = F.col(quoted(f"{WAS}{name}"))
        try:
            columns[name] = given.try_cast(kind)
            frame.select(columns[name])
        except Exception as error:
            said = said_by(error)
            if said is None:
                raise
            has = frame.schema[name].dataType.simpleString()
            message = f"the source's column {name} is of the type {has}, which is no {kind}"
            raise config.wrong(("schema", name), message) from None
        wrong = given.isNotNull() & columns[name].isNull()
        reason = F.concat(F.lit(f"{name}: "), shown(given), F.lit(f" is not of the type {kind}"))
        reasons.append(F.when(wrong, reason))
    return frame.withColumns(columns) if columns else frame, (
        F.coalesce(*reasons) if reasons else None
    )


def csv_header(config: Config) -> bool:
    """Whether the files begin with the names of the columns."""
    given = (config.parse.options or {}).get("header", False)
    return config.parsed_as == "csv" and option_text(given) == "true"


def header_fields(config: Config, line: str) -> list[str]:
    """The names in the first line of a CSV file; a column of the schema that is missing raises."""
    options = config.parse.options or {}
    sign = str(options.get("sep", options.get("delimiter", ",")))
    names = next(csv.reader([line.lstrip("\ufeff").rstrip("\r\n")], delimiter=sign[:1]), [])
    names = [name.strip() for name in names]
    for column in config.schema:
        if column not in names:
            near = did_you_mean(column, names)
            message = f"the first line of the CSV files has no column {column!r}{near}"
            raise config.wrong(("schema", column), message)
    if len(set(names)) < len(names):
        raise config.wrong(("source", "path"), "a column stands twice in the first line", line=line)
    return names


def option_text(value: object) -> str:
    """A value of the config as Spark's options have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
