"""What a JSON reader found in many rows, as bytes that sort: the batch twin of where/keys.py.

Takes tags and values as kernels/jsonpath.py gives them. A row that holds no plain scalar (array,
object, text with escapes, a number that was not read exactly) gets no bytes: its place in
`offsets` is empty, and the caller, who knows it by its tag, sees to it.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.documents.octets import copy_bytes, order_bytes, put_sorted
from tideline.kernels.jsonends import FALSE, MISSING, NULL, TEXT, TRUE
from tideline.kernels.jsonnumber import FLOAT, INT
from tideline.kernels.lanes import get64, hot, put64
from tideline.kernels.views import doubles, octets, words

__all__ = ["LIMIT", "ROOM", "encode_column", "extremes"]

LIMIT = 1025  # as where/keys.py
ROOM = 16  # bytes that any scalar but text may take
_SIGN = -9223372036854775808
_EXACT = 9007199254740992  # whole numbers up to here are doubles


@hot
def _ordered(bits):
    """The bits of a double, so that they sort."""
    return bits ^ -1 if bits < 0 else bits ^ _SIGN


@jit
def _put_int(at, number):
    """A whole number; returns the bytes written."""
    octets(at, 1)[0] = 1
    near = float(number)
    if -_EXACT <= number <= _EXACT:
        _put_double(at + 1, near)
        return 9
    # The nearest double may be above: 2**63 itself is no int64, so compare by halves.
    if near >= 9223372036854775808.0 or np.int64(near) > number:
        near = _below(at + 1, near)
    rest = number - np.int64(near)
    _put_double(at + 1, near)
    if rest == 0:
        return 9
    into = octets(at, ROOM)
    if rest < 256:
        into[9] = 1
        into[10] = rest
        return 11
    into[9] = 2
    into[10] = rest >> 8
    into[11] = rest & 255
    return 12


@hot
def _put_double(at, number):
    put_sorted(at, _ordered(_bits(at, number)))


@hot
def _bits(at, number):
    """The bits of a double; `at` is eight bytes to use on the way."""
    doubles(at, 1)[0] = number
    return get64(at)


@hot
def _below(at, number):
    """The next double below a finite one that is not 0."""
    bits = _bits(at, number)
    put64(at, bits - 1 if bits > 0 else bits + 1)
    return doubles(at, 1)[0]


@jit
def encode_column(base, tags, values, rows, offsets, out):
    """The bytes of the scalars in `rows`: offsets[i] .. offsets[i + 1] of `out` for the i-th.

    `base` is the address of the texts. `out` has ROOM bytes a row and the sizes of all texts.
    """
    out_at = np.int64(out.ctypes.data)
    used = 0
    offsets[0] = 0
    for i in range(len(rows)):
        row = rows[i]
        kind = tags[row] & 255
        at = out_at + used
        if kind == TEXT:
            size = min(tags[row] >> 8, LIMIT - 1)
            octets(at, 1)[0] = 2
            copy_bytes(at + 1, base + values[row], size)
            used += 1 + size
        elif kind == INT:
            used += _put_int(at, values[row])
        elif kind == FLOAT:
            octets(at, 1)[0] = 1
            put64(at + 1, values[row])
            bits = get64(at + 1)
            put_sorted(at + 1, _ordered(0 if bits == _SIGN else bits))
            used += 9
        elif kind == NULL or kind == MISSING:
            octets(at, 1)[0] = 0
            used += 1
        elif kind == TRUE or kind == FALSE:
            octets(at, 2)[0] = 5
            octets(at, 2)[1] = 1 if kind == TRUE else 0
            used += 2
        offsets[i + 1] = used
    return used


@jit
def extremes(offsets_at, base, count, out):
    """The numbers of the least and the greatest of some texts (at least one), into `out`."""
    offsets = words(offsets_at, count + 1)
    low = high = 0
    for i in range(1, count):
        at = base + offsets[i]
        size = offsets[i + 1] - offsets[i]
        if order_bytes(at, size, base + offsets[low], offsets[low + 1] - offsets[low]) < 0:
            low = i
        if order_bytes(at, size, base + offsets[high], offsets[high + 1] - offsets[high]) > 0:
            high = i
    out[0] = low
    out[1] = high
