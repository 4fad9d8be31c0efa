"""Target: which of many bodies meet a condition, without decoding them.

    paths of the tree -> one pass over the texts (paths.py) -> verdicts (verdicts.py)
    -> rows that are unsure are decoded and given to the predicate

Same answer as the predicate on every decoded body, always: what the fast way does not
know, it does not guess. Unsure are rows with an array where the condition looks, or an
object it compares, escapes in a text it reads, a number too long to be read exactly, a
name that stands twice; and whatever is not an object or not JSON at all.

Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.where.parse import Condition
from tideline.where.paths import Paths
from tideline.where.tree import At, Node, Not
from tideline.where.verdicts import UNSURE, YES, Judge, PathValues, Verdicts, verdicts

__all__ = ["matching"]

_CELLS = 1 << 16  # nodes times rows at a time: what was found fits the processor's cache
_ROWS_LEAST = 64
_LARGE = (pa.large_string(), pa.large_binary())
_PLAIN = (pa.string(), pa.binary(), *_LARGE)


def matching(condition: Condition, bodies: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Which bodies meet the condition: for every row, what `condition.matches` says of it.

    The bodies are JSON texts, as text or as binary. A row that is null meets only the empty
    condition, which every row meets, unread. A row that is not JSON is `InvalidRequest`.

    >>> from tideline.where import parse
    >>> bodies = pa.array(['{"speed": 60}', '{"speed": [7, 90]}', '{"speed": "60"}', None])
    >>> matching(parse({"speed": {"$gt": 50}}), bodies)
    array([ True,  True, False, False])
    """
    if not isinstance(bodies, (pa.Array, pa.ChunkedArray)):
        raise InvalidRequest("bodies must be an Arrow array", type=type(bodies).__name__)
    kind = _plain_type(bodies.type)
    met = np.ones(len(bodies), np.bool_)
    if condition:
        row = 0
        for chunk in bodies.chunks if isinstance(bodies, pa.ChunkedArray) else [bodies]:
            texts = _Texts(chunk if chunk.type == kind else chunk.cast(kind))
            _chunk(condition, _plan(condition), texts, row, met[row : row + len(chunk)])
            row += len(chunk)
    return met


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type, of text with offsets, that texts of any type can be cast to."""
    if kind in _PLAIN:
        return kind
    if isinstance(kind, pa.BaseExtensionType):  # like Arrow's own type of JSON
        return _plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if kind in (pa.string_view(), pa.binary_view(), pa.null()):
        return pa.large_binary()
    raise InvalidRequest("bodies must be JSON texts, as text or binary", type=str(kind))


class _Plan(Paths):
    """The paths of a tree, and the tree as a function of what lies at them."""

    def __init__(self, tree: Node) -> None:
        super().__init__(_paths(tree))
        self.judge: Judge = verdicts(tree, self.numbers)


def _paths(node: Node) -> Iterator[tuple[str, ...]]:
    if isinstance(node, At):
        yield node.path
    else:
        for part in (node.node,) if isinstance(node, Not) else node.nodes:
            yield from _paths(part)


@lru_cache(maxsize=64)
def _plan(condition: Condition) -> _Plan:
    return _Plan(condition.tree)


class _Texts:
    """An Arrow array of texts as numpy arrays over its memory."""

    def __init__(self, array: pa.Array) -> None:
        _, offsets, data = array.buffers()
        self.count = len(array)
        if offsets is None or not len(offsets):
            self.offsets = np.zeros(self.count + 1, np.int64)
        else:
            stored = np.frombuffer(offsets, np.int64 if array.type in _LARGE else np.int32)
            self.offsets = stored[array.offset : array.offset + self.count + 1].astype(np.int64)
        self.data = np.frombuffer(data or b"", np.uint8)
        self.valid: NDArray[np.bool_] | None = None
        if array.null_count:
            self.valid = array.is_valid().to_numpy(zero_copy_only=False)

    def row(self, row: int) -> memoryview:
        """The bytes of a text."""
        return self.data[self.offsets[row] : self.offsets[row + 1]].data


def _chunk(
    condition: Condition, plan: _Plan, texts: _Texts, first: int, met: NDArray[np.bool_]
) -> None:
    """Fill `met` for the texts of one array, the first of which is row `first` for the caller."""
    count = len(plan.paths)
    step = min(max(_ROWS_LEAST, _CELLS // count), texts.count)
    cells = np.empty((2, count * step), np.int64)
    for begin in range(0, texts.count, max(step, 1)):
        limit = min(begin + step, texts.count)
        tags, values = cells[:, : count * (limit - begin)].reshape(2, count, limit - begin)
        given = _judged(plan, texts, begin, limit, tags, values)
        if texts.valid is not None:
            given[~texts.valid[begin:limit]] = 0
        met[begin:limit] = given == YES
        for unsure in np.flatnonzero(given == UNSURE):
            row = begin + int(unsure)
            met[row] = condition.matches(_decoded(texts.row(row), first + row))


def _judged(
    plan: _Plan,
    texts: _Texts,
    begin: int,
    limit: int,
    tags: NDArray[np.int64],
    values: NDArray[np.int64],
) -> Verdicts:
    """The verdicts on the rows `[begin, limit)`."""
    unread = plan.read(texts.data, texts.offsets[begin : limit + 1], tags, values)
    given = plan.judge(PathValues(texts.data, tags, values))
    given[unread] = UNSURE
    return given


def _decoded(text: memoryview, row: int) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"a body is not valid JSON ({error})", row=row) from error
