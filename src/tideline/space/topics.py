"""The space of topics: a place is a path, and meets its ancestors and descendants.

The byte layout of a key, and why its order is the order of the tree: `dewey.py`.
Frozen; safe from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tideline.errors import InvalidRequest
from tideline.space.dewey import decode_path, encode_path
from tideline.space.place import TOPICS, Place, Places

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Topics"]


@dataclass(frozen=True)
class Topics:
    """Places are paths such as `"sports/soccer"`.

    >>> topics = Topics()
    >>> topics.decode(*topics.encode("sports/soccer"))
    'sports/soccer'
    """

    mode: ClassVar[int] = TOPICS
    plain: ClassVar[bool] = False

    def spec(self) -> dict[str, Any]:
        return {"kind": "topics"}

    def encode(self, value: object) -> Place:
        if not isinstance(value, str):
            raise InvalidRequest("a place must be a path such as 'sports/soccer'", place=value)
        return Place(encode_path(value))

    def encode_many(self, table: pa.Table, rows: int) -> Places:
        import numpy as np

        from tideline.space import columns

        array = columns.text_column(table, "place")
        if array is None:
            return columns.nothing(rows, columns.MISSING)
        places, codes, bad = columns.distinct_places(array, self.encode)
        if array.null_count:
            null = array.is_null().to_numpy(zero_copy_only=False)
            bad.update(dict.fromkeys(np.flatnonzero(null).tolist(), columns.MISSING))
        return columns.gathered(places, codes, bad)

    def decode(
        self, key: bytes, kind: int, a: float, b: float, c: float, d: float, corners: bytes = b""
    ) -> object:
        return decode_path(key)
