"""Target: a condition as a filter on a Spark frame.

    filter_frame(frame, condition)      the rows whose document meets the condition
    split(condition, schema)            what Spark does of it, and what is left

The parts of a condition that must all hold are taken one by one. A part that Spark can say
exactly, given the types of the columns, is *pushed*: it becomes part of one Column, which
Spark runs in its own code, and may hand on to a file reader. The rest is *checked* afterwards,
on the document of each row that is left. A part goes one way or the other as a whole.

The document of a row: its columns that are not null, by name (`rows.py` has the details). So
in a frame a null and a missing field are the same, and both are missing: `{"$exists": true}`
is "not null".

Pushed, by the type of the column (`exact.py`); a column the schema does not have, and a test
that no value of the type meets, need no row at all:

    boolean, whole number, float, text     $eq $ne $in $nin $gt $gte $lt $lte $exists $type
    whole number, float                    $mod
    text                                   $regex of plain text with `^` before or `$` after
    array                                  $size, $elemMatch, and all of these on its elements
    struct                                 $exists, $type, and all of these on its fields
    array of two numbers, GeoJSON          $geoWithin a $box

and `$and $or $nor $not` of these. Checked: other patterns (Java's differ from ours), text
with a collation, a path through an array, arrays and objects compared as a whole, other
shapes, `$words`, `$fuzzy`, `$contains`, `$jaccard`. A condition on a type that no JSON value has
is refused.

Needs the extra `spark` when called, not when imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tideline.errors import InvalidRequest
from tideline.where.build import COMPANIONS
from tideline.where.parse import Condition, parse
from tideline.where.rows import documents
from tideline.where.tree import All, At, Node, Not

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["Split", "filter_frame", "split", "top_fields"]


@dataclass(frozen=True, slots=True)
class Split:
    """A condition in two parts; a row meets it when it meets both."""

    pushed: Column | None
    """True or false for every row, never null; `None` when all rows meet it."""
    pushed_tree: Node
    """What `pushed` says."""
    checked: Condition
    """What is left; `ALWAYS` when Spark does everything."""


def filter_frame(frame: DataFrame, condition: object) -> DataFrame:
    """The rows whose document meets the condition, a `Condition` or a document of one.

    The frame may be a stream. Rows keep their columns, of whatever type; only the columns
    that the checked part names go through Python, in Arrow batches.

    >>> frame = spark.createDataFrame([("A1", 60), ("B2", 40), ("A7", None)], "road string, n int")
    >>> filter_frame(frame, {"road": {"$regex": "^A"}, "n": {"$not": {"$gt": 50}}}).collect()
    [Row(road='A7', n=None)]
    """
    from pyspark.sql import functions as F

    from tideline.where.schema import quoted

    parts = split(condition if isinstance(condition, Condition) else parse(condition), frame.schema)
    if parts.pushed is not None:
        frame = frame.filter(parts.pushed)
    if parts.checked:
        wanted = top_fields(parts.checked.tree)
        columns = [F.col(quoted(name)) for name in frame.columns if name in wanted]
        # pyspark's stub does not have it yet
        holds = F.arrow_udf(_holds(parts.checked), "boolean")  # type: ignore[attr-defined]
        frame = frame.filter(holds(F.struct(*columns)))
    return frame


def split(condition: Condition, schema: StructType) -> Split:
    """What Spark can say of a condition about rows of a schema, and what is left.

    >>> schema = spark.sql("SELECT 'A1' AS road, 60 AS speed").schema
    >>> parts = split(parse({"speed": {"$gt": 50}, "road": {"$words": "A1"}}), schema)
    >>> parts.pushed
    Column<'and(isNotNull(speed), >=(speed, 51))'>
    >>> parts.checked
    Condition({"road":{"$words":"A1"}})
    """
    from tideline.where.exact import NotExact, exact
    from tideline.where.said import as_column, every
    from tideline.where.schema import check_types

    if condition.deltas:
        place = f"where.{condition.deltas[0]}.$delta"
        raise InvalidRequest(f"{place} is supported in the subscriptions of a channel only")
    check_types(condition.tree, schema)
    nodes: list[Node] = []
    said: list[Column | bool] = []

    def push(part: dict[str, Any]) -> bool:
        node = parse(part).tree
        try:
            said.append(exact(node, schema))
        except NotExact:
            return False
        nodes.append(node)
        return True

    checked = parse(_left(condition.document, push))
    whole = every(said)
    return Split(None if whole is True else as_column(whole), All(tuple(nodes)), checked)


def _left(document: dict[str, Any], push: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The document without the parts that `push` took.

    It has the shape of the whole, so it is within every limit that the whole is within.
    """
    left: dict[str, Any] = {}
    for name, asked in document.items():
        if name == "$and":
            queries = [query for query in (_left(query, push) for query in asked) if query]
            if queries:
                left[name] = queries
        elif not name.startswith("$") and _is_operators(asked):
            rest: dict[str, Any] = {}
            for operator in asked:
                part = _with_companions(operator, asked)
                if operator not in COMPANIONS and not push({name: part}):
                    rest |= part
            if rest:
                left[name] = rest
        elif not push({name: asked}):
            left[name] = asked
    return left


def _is_operators(asked: object) -> bool:
    return isinstance(asked, dict) and any(name.startswith("$") for name in asked)


def _with_companions(operator: str, asked: dict[str, Any]) -> dict[str, Any]:
    """An operator with what stands beside it and belongs to it."""
    return {
        name: operand
        for name, operand in asked.items()
        if name == operator or operator in COMPANIONS.get(name, ())
    }


def top_fields(node: Node) -> set[str]:
    """The top-level fields a tree reads: of a frame, its columns.

    >>> sorted(top_fields(parse({"a.b": 1, "$or": [{"c": 2}, {"a": 3}]}).tree))
    ['a', 'c']
    """
    if isinstance(node, At):
        return {node.path[0]}
    if isinstance(node, Not):
        return top_fields(node.node)
    return set().union(*map(top_fields, node.nodes))


def _holds(condition: Condition) -> Callable[[pa.Array], pa.Array]:
    """The condition on a batch of rows, each a struct; sent to Spark's workers."""

    def holds(rows: pa.Array) -> pa.Array:
        names = [field.name for field in rows.type]
        bodies = documents(names, rows.flatten(), len(rows))
        return pa.array(map(condition.matches, bodies), pa.bool_(), size=len(rows))

    return holds
