"""A place as the index sees it: a key in a tree and, where needed, an exact shape.

    mode    key                                      two places meet when
    FLAT    the text                                 the keys are equal
    TOPICS  segments, each ends with 0x00            one key is a prefix of the other
    CELLS   one byte 0x01..0x04 a level, root b""    the same, and their exact shapes meet

    kind    a, b, c, d
    NONE    nothing: the key says all
    CELL    west, south, east, north of a named cell
    POINT   lon, lat
    CIRCLE  lon, lat, radius_m
    BOX     west, south, east, north
    POLYGON west, south, east, north around it; its corners come beside (polygon.py)

Invariant: in mode CELLS, two places whose exact shapes meet have keys of which one
is a prefix of the other. So walking the tree up and down from a key finds them all.

The numbers are stored in files: never renumber them. Pure values; safe from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = [
    "BOX",
    "CELL",
    "CELLS",
    "CIRCLE",
    "FLAT",
    "KEY_LIMIT_BYTES",
    "NONE",
    "POINT",
    "POLYGON",
    "TOPICS",
    "Place",
    "Places",
    "Space",
    "meets",
]

NONE, CELL, POINT, CIRCLE, BOX, POLYGON = 0, 1, 2, 3, 4, 5
FLAT, CELLS, TOPICS = 0, 1, 2
KEY_LIMIT_BYTES = 512


class Place(NamedTuple):
    """One place, encoded."""

    key: bytes
    kind: int = NONE
    a: float = 0.0
    b: float = 0.0
    c: float = 0.0
    d: float = 0.0
    corners: bytes = b""


class Places(NamedTuple):
    """Many places, encoded, as columns. A bad row has an empty key and kind NONE."""

    data: NDArray[np.uint8]  # the keys end to end; never of length 0
    offsets: NDArray[np.int64]  # [n + 1]
    kinds: NDArray[np.uint8]  # [n]
    shapes: NDArray[np.float64]  # [n, 4]
    bad: dict[int, str]  # row -> reason
    corners: dict[int, bytes] = {}  # noqa: RUF012 - row -> corners of a polygon; nobody writes

    def place(self, row: int) -> Place:
        """One row as a `Place`."""
        key = self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()
        a, b, c, d = self.shapes[row].tolist()
        return Place(key, int(self.kinds[row]), a, b, c, d, self.corners.get(row, b""))


class Space(Protocol):
    """How places relate. Frozen, comparable, safe from any thread."""

    mode: ClassVar[int]
    plain: ClassVar[bool]
    """Whether a place is a text, and its key that text."""

    def spec(self) -> dict[str, Any]:
        """This space as JSON-able values; `space_from_spec` turns them back."""
        ...

    def encode(self, value: object) -> Place:
        """A user's place as the index sees it; `InvalidRequest` when it is none."""
        ...

    def encode_many(self, table: pa.Table, rows: int) -> Places:
        """The places of a table: column `place`, or `lon`, `lat` and maybe `radius_m`."""
        ...

    def decode(
        self, key: bytes, kind: int, a: float, b: float, c: float, d: float, corners: bytes = b""
    ) -> object:
        """What the user gave: text, `(lon, lat)`, `Circle`, `Box` or a polygon."""
        ...


def meets(space: Space, p: Place, q: Place) -> bool:
    """Whether two places meet, by definition and without an index.

    >>> from tideline.space import Topics
    >>> topics = Topics()
    >>> meets(topics, topics.encode("sports"), topics.encode("sports/soccer"))
    True
    >>> meets(topics, topics.encode("sports"), topics.encode("sport"))
    False
    """
    if space.mode == FLAT:
        return p.key == q.key
    if not (p.key.startswith(q.key) or q.key.startswith(p.key)):
        return False
    if space.mode == TOPICS:
        return True
    from tideline.kernels.geo import shapes_meet  # numba is slow to import: only when needed

    if not shapes_meet(*p[1:6], *q[1:6]):
        return False
    if POLYGON not in (p.kind, q.kind):
        return True
    import numpy as np

    from tideline.addresses import address_of
    from tideline.kernels.polygon import polygon_meets

    one, other = (np.frombuffer(each.corners or bytes(8), np.int64) for each in (p, q))
    addresses = [address_of(each) + 8 for each in (one, other)]  # behind the count
    return bool(polygon_meets(*p[1:6], addresses[0], *q[1:6], addresses[1]))
