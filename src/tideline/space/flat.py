"""The flat space: a place is a text, and meets only the same text.

    key := utf-8 of the text, 1 to 512 bytes

`encode` is on the path of every single publish and subscribe: it does one thing, and
says what is wrong elsewhere. Frozen; safe from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tideline.errors import InvalidRequest
from tideline.space.place import FLAT, KEY_LIMIT_BYTES, NONE, Place, Places

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Flat"]

_new = tuple.__new__  # Place(key) fills in its defaults in Python: twice the time


@dataclass(frozen=True)
class Flat:
    """Places are texts without any order among them.

    >>> Flat().encode("sensor-17").key
    b'sensor-17'
    """

    mode: ClassVar[int] = FLAT
    plain: ClassVar[bool] = True

    def spec(self) -> dict[str, Any]:
        return {"kind": "flat"}

    def encode(self, value: object) -> Place:
        if isinstance(value, str):
            try:
                key = value.encode()
            except UnicodeEncodeError:  # half of a surrogate pair
                key = b""
            if 0 < len(key) <= KEY_LIMIT_BYTES:
                return _new(Place, (key, NONE, 0.0, 0.0, 0.0, 0.0, b""))
        raise InvalidRequest(
            f"a place must be text of 1 to {KEY_LIMIT_BYTES} bytes in UTF-8", place=value
        )

    def encode_many(self, table: pa.Table, rows: int) -> Places:
        import numpy as np

        from tideline.space import columns

        array = columns.text_column(table, "place")
        if array is None:
            return columns.nothing(rows, columns.MISSING)
        bad: dict[int, str] = {}
        data, offsets = columns.bytes_of(array)
        sizes = np.diff(offsets)
        wrong = (sizes == 0) | (sizes > KEY_LIMIT_BYTES)
        if not array.null_count and not wrong.any():
            return columns.without_shapes(data, offsets, bad)
        if array.null_count:
            null = array.is_null().to_numpy(zero_copy_only=False)
            bad = dict.fromkeys(np.flatnonzero(null).tolist(), columns.MISSING)
            wrong &= ~null
        for row in np.flatnonzero(wrong).tolist():
            try:
                self.encode(array[row].as_py())
            except InvalidRequest as error:
                bad[row] = str(error)
        return columns.text_places(array, bad)

    def decode(
        self, key: bytes, kind: int, a: float, b: float, c: float, d: float, corners: bytes = b""
    ) -> object:
        return key.decode()
