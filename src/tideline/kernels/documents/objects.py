"""Columns as JSON text: objects of named values, arrays of elements; and keys.

    column   C_WORDS words: kind | address of the values | address of the offsets (int64)
             address of a byte a row, whether it is there, or 0 | address and size of `"name":`
    kinds    INT    int64          FLAG   a byte, 0 or 1
             TEXT   UTF-8 bytes, which are escaped      RAW   JSON text, copied as it is
             FLOAT  text of a number, which gets `.0` when it looks like a whole one

A value that is not there is left out of an object, and is `null` in an array. Nothing is read
outside the values. Whoever calls sees to room: `ROOM` says how much a value may take.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.documents.octets import copy_bytes, sorted_word
from tideline.kernels.lanes import get8, get64, hot, put16, put64
from tideline.kernels.views import doubles, words
from tideline.kernels.words import Layout

__all__ = ["C_WORDS", "ESCAPED", "FLAG", "FLOAT", "INT", "RAW", "ROOM", "TEXT", "write_arrays",
           "write_keys", "write_objects"]  # fmt: skip

INT, FLAG, TEXT, RAW, FLOAT = range(5)
COLUMN = Layout("column", "C_", "values that become JSON text", globals())
C_KIND = COLUMN.word("INT, FLAG, TEXT, RAW or FLOAT")
C_VALUES = COLUMN.address("values")
C_OFFSETS = COLUMN.address("int64: where each value begins")
C_VALID = COLUMN.address("a byte a row: whether it is there; or 0")
C_NAME = COLUMN.address("bytes of its name in quotes with a colon")
C_NAME_SIZE = COLUMN.count("how many")
C_WORDS = COLUMN.end()
ROOM = 24
"""Bytes that a value may take beside its own; a text takes ESCAPED times its own."""
ESCAPED = 6

_QUOTE, _BACKSLASH, _COMMA, _DOT, _MINUS, _ZERO, _E = 0x22, 0x5C, 0x2C, 0x2E, 0x2D, 0x30, 0x65
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 0x7B, 0x7D, 0x5B, 0x5D
_NULL = int.from_bytes(b"null\0\0\0\0", "little")
_TRUE = int.from_bytes(b"true\0\0\0\0", "little")
_FALSE = int.from_bytes(b"false\0\0\0", "little")
_U00 = int.from_bytes(b"\\u00\0\0\0\0", "little")
_NUMBER = 1  # how such a key begins
_MOST = (1 << 63) - 1
_ONES = 0x0101010101010101
_SPACES, _QUOTES, _BACKSLASHES = 0x20 * _ONES, 0x22 * _ONES, 0x5C * _ONES
_HIGH_BITS = 0x80 * _ONES - (1 << 64)

# The second character of a short escape, by control character.
_SHORT = np.zeros(32, np.int64)
for _from, _to in zip(b"\b\t\n\f\r", b"btnfr", strict=True):
    _SHORT[_from] = _to


@hot
def _hex(digit):
    return digit + (0x30 if digit < 10 else 0x57)


@hot
def _octet(p, c):
    """One character of a text, escaped if it must be; where the next goes."""
    if c == _QUOTE or c == _BACKSLASH:
        put16(p, _BACKSLASH | c << 8)
        return p + 2
    if c >= 0x20:
        put16(p, c)
        return p + 1
    if _SHORT[c]:
        put16(p, _BACKSLASH | _SHORT[c] << 8)
        return p + 2
    put64(p, _U00)
    put16(p + 4, _hex(c >> 4) | _hex(c & 15) << 8)
    return p + 6


@jit
def _text(p, i, limit):
    put16(p, _QUOTE)
    p += 1
    while i + 8 <= limit:
        word = get64(i)
        # A byte that is below 0x20, a quote or a backslash turns its high bit on.
        quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
        found = (word - _SPACES) & ~word
        found |= (quotes - _ONES) & ~quotes
        found |= (slashes - _ONES) & ~slashes
        if found & _HIGH_BITS:
            for k in range(8):
                p = _octet(p, get8(i + k))
        else:
            put64(p, word)
            p += 8
        i += 8
    while i < limit:
        p = _octet(p, get8(i))
        i += 1
    put16(p, _QUOTE)
    return p + 1


@jit
def _int(p, value):
    if value < 0:
        put16(p, _MINUS)
        p += 1
        left = np.uint64(-(value + 1)) + np.uint64(1)
    else:
        left = np.uint64(value)
    size = 1
    power = np.uint64(10)
    while left >= power:  # at most 19 digits: powers do not overflow
        size += 1
        power *= np.uint64(10)
    end = p + size
    at = end
    # From the last digit on; each store also writes the byte after it, which is put right.
    after = np.int64(0)
    while at > p:
        digit = np.int64(left % np.uint64(10)) + _ZERO
        left //= np.uint64(10)
        at -= 1
        put16(at, digit | after << 8)
        after = digit
    return end


@jit
def _float(p, i, limit):
    whole = True
    begin = i
    while i < limit:
        c = get8(i)
        if c == _DOT or c == _E:
            whole = False
        i += 1
    copy_bytes(p, begin, limit - begin)
    p += limit - begin
    if whole:
        put16(p, _DOT | _ZERO << 8)
        p += 2
    return p


@hot
def _value(p, column, row):
    kind = column[C_KIND]
    values = column[C_VALUES]
    if kind == INT:
        return _int(p, get64(values + 8 * row))
    if kind == FLAG:
        if get8(values + row):
            put64(p, _TRUE)
            return p + 4
        put64(p, _FALSE)
        return p + 5
    places = column[C_OFFSETS] + 8 * row
    begin, limit = values + get64(places), values + get64(places + 8)
    if kind == TEXT:
        return _text(p, begin, limit)
    if kind == FLOAT:
        return _float(p, begin, limit)
    copy_bytes(p, begin, limit - begin)
    return p + limit - begin


@jit
def write_objects(count, columns, offsets, out):
    """One object a row; fills `offsets` and returns the bytes written."""
    base = np.int64(out.ctypes.data)
    p = base
    for row in range(count):
        offsets[row] = p - base
        put16(p, _OPEN_OBJECT)
        p += 1
        begin = p
        for number in range(columns.shape[0]):
            column = columns[number]
            if column[C_VALID] and not get8(column[C_VALID] + row):
                continue
            if p > begin:
                put16(p, _COMMA)
                p += 1
            copy_bytes(p, column[C_NAME], column[C_NAME_SIZE])
            p = _value(p + column[C_NAME_SIZE], column, row)
        put16(p, _CLOSE_OBJECT)
        p += 1
    offsets[count] = p - base
    return p - base


@jit
def write_arrays(starts, columns, offsets, out):
    """One array for each two starts, of the elements of the first column between them."""
    base = np.int64(out.ctypes.data)
    p = base
    column = columns[0]
    for row in range(len(starts) - 1):
        offsets[row] = p - base
        put16(p, _OPEN_ARRAY)
        p += 1
        for element in range(starts[row], starts[row + 1]):
            if element > starts[row]:
                put16(p, _COMMA)
                p += 1
            if column[C_VALID] and not get8(column[C_VALID] + element):
                put64(p, _NULL)
                p += 4
            else:
                p = _value(p, column, element)
        put16(p, _CLOSE_ARRAY)
        p += 1
    offsets[len(starts) - 1] = p - base
    return p - base


@jit
def _whole_number(p, key, size):
    """The whole number that a key is (where/keys.py); the bytes at `p` are written over."""
    word = sorted_word(key + 1)  # as a signed word, so the sign bit is as that of the double
    put64(p, word if word >= 0 else word ^ _MOST)
    value = np.int64(doubles(p, 1)[0])
    rest = 0
    for i in range(10, size):
        rest = rest << 8 | get8(key + i)
    return value + rest


@jit
def write_keys(offsets_at, base, count, ends, out):
    """Keys of documents as JSON, one after the other; returns the bytes written."""
    offsets = words(offsets_at, count + 1)
    start = np.int64(out.ctypes.data)
    p = start
    ends[0] = 0
    for i in range(count):
        key, limit = base + offsets[i], base + offsets[i + 1]
        if get8(key) == _NUMBER:
            p = _int(p, _whole_number(p, key, limit - key))
        else:
            p = _text(p, key + 1, limit)
        ends[i + 1] = p - start
    return p - start
