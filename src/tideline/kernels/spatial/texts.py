"""Places out of JSON texts: points read without decoding.

No Python objects, no state; all release the GIL.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.jsonends import spaced_number
from tideline.kernels.jsonpath import ARRAY, ESCAPED, OBJECT, TEXT
from tideline.kernels.jsonpath import UNSURE as UNREAD
from tideline.kernels.lanes import get8
from tideline.kernels.views import doubles, words

__all__ = ["read_points"]

_MINUS, _NINE = 0x2D, 0x39
_WORD = int.from_bytes(b"Point", "little")
NONE, POINT, OPEN = 0, 1, 2


@jit
def _point(i, limit, count, most, out, at):
    """Read the point that the array at `i` is: NONE, POINT or OPEN."""
    if count < 2 or count > most:
        return NONE
    i, sure, lon = spaced_number(i, limit)
    if i < 0 or not sure:
        return NONE if sure else OPEN
    i, sure, lat = spaced_number(i + 1, limit)
    if i < 0 or not sure:
        return NONE if sure else OPEN
    if count == 3:
        i, sure, height = spaced_number(i + 1, limit)
        if i < 0 or not sure:
            return NONE if sure else OPEN
    if not (-180.0 <= lon <= 180.0 and -90.0 <= lat <= 90.0):
        return NONE
    out[at] = lon + 0.0
    out[at + 1] = lat + 0.0
    return POINT


@jit
def read_points(base, limit, first, rows, cells_at, points_at, kinds_at):
    """What each row from `first` on has at a field: NONE, a POINT, or OPEN: for a decoder to say.

    Texts begin at `base`, and a little may be read past `limit`. `cells`: addresses of the tags and
    values of the field, of its field "type", and of its field "coordinates" (kernels/jsonpath.py).
    Points go to `points`, two numbers a row.
    """
    cells = words(cells_at, 6)
    tags, values = words(cells[0], rows), words(cells[1], rows)
    type_tags, type_values = words(cells[2], rows), words(cells[3], rows)
    deep_tags, deep_values = words(cells[4], rows), words(cells[5], rows)
    points, kinds = doubles(points_at, 2 * rows), words(kinds_at, rows)
    for row in range(first, rows):
        tag = tags[row]
        kind = tag & 255
        found = NONE
        if kind == ARRAY:
            found = _point(base + (tag >> 8), limit, values[row], 2, points, 2 * row)
        elif kind == UNREAD:
            found = OPEN
        elif kind == OBJECT:
            name = type_tags[row]
            deep = deep_tags[row]
            if name & 255 == TEXT and _is_point(name, base + type_values[row]):
                if deep & 255 == ARRAY:
                    found = _point(base + (deep >> 8), limit, deep_values[row], 3, points, 2 * row)
                elif deep & 255 == UNREAD:
                    found = OPEN
            elif name & 255 == TEXT or name & 255 == ESCAPED or name & 255 == UNREAD:
                found = OPEN
        kinds[row] = found


@jit
def _is_point(tag, at):
    if tag >> 8 != 5:
        return False
    word = 0
    for k in range(5):
        word |= get8(at + k) << 8 * k
    return word == _WORD
