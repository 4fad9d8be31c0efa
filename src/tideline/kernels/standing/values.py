"""Hashes and tokens, and what lies at the columns of a row.

A row is read from tags and values (kernels/jsonpath.py) unless it is SLOW: an array on the way of
a path, or with more in it than scalars; escapes, numbers that are not read exactly, words that are
not ASCII. Python decodes such a row and gives its values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba import uint64 as U
from numba.extending import intrinsic

from tideline.kernels import brief, jit
from tideline.kernels.jsonends import (
    ARRAY,
    ESCAPED,
    FALSE,
    MISSING,
    NULL,
    TEXT,
    TRUE,
    skip_space,
    spaced_number,
)
from tideline.kernels.jsonends import OBJECT as OBJECT_TAG
from tideline.kernels.jsonnumber import (
    FLOAT,
    INT,
    UNSURE,
    bits_of,
    double_of,
    read_number,
)
from tideline.kernels.lanes import apart, get8, get64, hot, put64
from tideline.kernels.standing.layout import (
    COLUMN,
    GRAMS,
    K_ARRAY,
    K_FALSE,
    K_GRAMS,
    K_NULL,
    K_NUMBER,
    K_OBJECT,
    K_POINT,
    K_TEXT,
    K_TRUE,
    K_WORD,
    MANY,
    NONE,
    OBJECT,
    POINT,
    SLOW,
    VALUE,
    VALUES,
    WORDS,
)

__all__ = ["NAN", "double_of", "hash_text", "hash_word", "load", "mix", "point_at", "single_of",
           "text_is_point"]  # fmt: skip

NAN = 0x7FF8000000000000  # the bits of what no check of a number holds for
_RADIANS = math.pi / 180.0
_MINUS, _NINE, _QUOTE, _BACKSLASH = 0x2D, 0x39, 0x22, 0x5C
_N, _T, _F = 0x6E, 0x74, 0x66
_POINT = int.from_bytes(b"Point", "little")


@intrinsic
def single_of(typingctx: Any, bits: Any) -> Any:
    """The float32 of the low 32 bits, as float64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        single = builder.bitcast(builder.trunc(args[0], ir.IntType(32)), ir.FloatType())
        return builder.fpext(single, ir.DoubleType())

    return types.float64(types.int64), codegen


@hot
def mix(seed, shape, a, b):
    """The token of a shape and two words; never 0."""
    h = U(a) * U(0x9E3779B97F4A7C15) ^ (U(b) + U(seed)) * U(0xC2B2AE3D27D4EB4F)
    h ^= (U(shape) + U(0x165667B19E3779F9)) * U(0xD6E8FEB86659FD93)
    h ^= h >> U(32)
    h *= U(0xD6E8FEB86659FD93)
    h ^= h >> U(32)
    h *= U(0xD6E8FEB86659FD93)
    h ^= h >> U(29)
    return np.int64(h | U(h == U(0)))


@brief
def hash_text(at, size, seed):
    """The hash of a text."""
    h = U(seed) ^ U(size) * U(0x9E3779B97F4A7C15)
    k = 0
    while k + 8 <= size:
        h = (h ^ U(get64(at + k))) * U(0xD6E8FEB86659FD93)
        h ^= h >> U(32)
        k += 8
    word = U(0)
    shift = 0
    while k < size:
        word |= U(get8(at + k)) << U(shift)
        shift += 8
        k += 1
    h = (h ^ word) * U(0xC2B2AE3D27D4EB4F)
    h ^= h >> U(29)
    h *= U(0x9E3779B97F4A7C15)
    return np.int64(h ^ (h >> U(32)))


@hot
def _hash_byte(h, c):
    return (h ^ U(c)) * U(0x9E3779B97F4A7C15) ^ (h >> U(31))


@brief
def hash_word(at, size, seed):
    """The hash of a folded word."""
    h = U(seed)
    for k in range(size):
        h = _hash_byte(h, get8(at + k))
    return np.int64(h)


@hot
def _put(at, kind, hashed, number, address, size):
    put64(at, kind)
    put64(at + 8, hashed)
    put64(at + 16, number)
    put64(at + 24, address)
    put64(at + 32, size)


@apart
def _words(at, size, seed, found, room):
    """The words of an ASCII text: how many, or -1 when it is not ASCII or there are too many."""
    count = 0
    h = U(seed)
    inside = False
    for k in range(size + 1):
        c = 0x20
        if k < size:
            c = get8(at + k)
        if c >= 0x80:
            return -1
        if 0x41 <= c <= 0x5A:
            c += 0x20
        if 0x61 <= c <= 0x7A or 0x30 <= c <= 0x39:
            h = _hash_byte(h, c)
            inside = True
        elif inside:
            if count == room:
                return -1
            _put(found + 8 * VALUE * count, K_WORD, np.int64(h), NAN, 0, 0)
            count += 1
            h = U(seed)
            inside = False
    return count


@apart
def _grams(at, size, found):
    """The masks of the pairs of bytes of an ASCII text; False when it is not ASCII."""
    low = high = 0
    before = -1
    for k in range(size):
        c = get8(at + k)
        if c >= 0x80:
            return False
        if 0x41 <= c <= 0x5A:
            c += 0x20
        if before >= 0:
            bit = (before * 0x9E3779B1 + c * 0x85EBCA77) >> 16 & 127
            if bit < 64:
                low |= 1 << bit
            else:
                high |= 1 << (bit - 64)
        before = c
    _put(found, K_GRAMS, low, high, at, size)
    return True


@apart
def point_at(i, limit, count, most, found):
    """The point that the array at `i` is: 1 and into `found`, 0 for none, -1 when unsure."""
    if count < 2 or count > most:
        return 0
    i, sure, lon = spaced_number(i, limit)
    if i < 0 or not sure:
        return 0 if sure else -1
    i, sure, lat = spaced_number(i + 1, limit)
    if i < 0 or not sure:
        return 0 if sure else -1
    if count == 3:
        i, sure, height = spaced_number(i + 1, limit)
        if i < 0 or not sure:
            return 0 if sure else -1
    if not (-180.0 <= lon <= 180.0 and -90.0 <= lat <= 90.0):
        return 0
    phi = lat * _RADIANS
    _put(found, K_POINT, bits_of(math.cos(phi)), bits_of(lon), bits_of(lat), bits_of(math.sin(phi)))
    return 1


@hot
def text_is_point(tag, at):
    if tag >> 8 != 5:
        return False
    word = 0
    for k in range(5):
        word |= get8(at + k) << 8 * k
    return word == _POINT


@apart
def _elements(i, limit, count, found, room, seed):
    """The array at `i` and its elements, as values: how many, or -1 for what is not plain."""
    if count >= room:
        return -1
    _put(found, K_ARRAY, K_ARRAY, NAN, 0, 0)
    for k in range(count):
        found += 8 * VALUE
        i = skip_space(i, limit)
        c = get8(i)
        if c == _QUOTE:
            begin = i + 1
            i = begin
            while get8(i) != _QUOTE:
                if get8(i) == _BACKSLASH:
                    return -1
                i += 1
            _put(found, K_TEXT, hash_text(begin, i - begin, seed), NAN, begin, i - begin)
            i += 1
        elif c == _MINUS or 0x30 <= c <= _NINE:
            i, kind, value = read_number(i, limit)
            if i < 0 or kind == UNSURE:
                return -1
            number = float(value) if kind == INT else double_of(value) + 0.0
            _put(found, K_NUMBER, bits_of(number), bits_of(number), 0, 0)
        elif c == _N or c == _T:
            kind = K_NULL if c == _N else K_TRUE
            _put(found, kind, kind, NAN, 0, 0)
            i += 4
        elif c == _F:
            _put(found, K_FALSE, K_FALSE, NAN, 0, 0)
            i += 5
        else:
            return -1
        i = skip_space(i, limit) + 1  # the comma, or the bracket
    return count + 1


@jit
def load(image, row, rows, columns, count, parents, starts, found, room, seed):
    """What lies at the columns of a row; what the row is.

    `image` is the address of the words of an image in a call; `rows` how many tags a node has.
    """
    tags, values, data = get64(image), get64(image + 8), get64(image + 16)
    offsets = get64(image + 24)
    begin, limit = get64(offsets + 8 * row), get64(offsets + 8 * row + 8)
    if begin == limit:
        return NONE
    if get64(tags + 8 * row) & 255 != OBJECT_TAG:
        return SLOW
    used = many = 0
    for c in range(count):
        put64(starts + 8 * c, used)
        if used == room:
            return SLOW
        at = found + 8 * VALUE * used
        column = columns + 8 * COLUMN * c
        view = get64(column)
        if view < 0:  # not in use
            continue
        cell = 8 * (get64(column + 8) * rows + row)
        tag, value = get64(tags + cell), get64(values + cell)
        kind = tag & 255
        if kind == UNSURE or kind == ESCAPED:
            return SLOW
        above = get64(column + 16)
        while above:  # below an array nothing was looked for
            there = get64(tags + 8 * (above * rows + row)) & 255
            if there == ARRAY or there == UNSURE:
                return SLOW
            above = get64(parents + 8 * above)
        if view == VALUES:
            if kind == INT:
                number = bits_of(float(value))
                _put(at, K_NUMBER, number, number, 0, 0)
            elif kind == FLOAT:
                value = bits_of(double_of(value) + 0.0)  # -0.0 is 0.0
                _put(at, K_NUMBER, value, value, 0, 0)
            elif kind == TEXT:
                address, size = data + value, tag >> 8
                _put(at, K_TEXT, hash_text(address, size, seed), NAN, address, size)
            elif kind == MISSING or kind == NULL:
                _put(at, K_NULL, K_NULL, NAN, 0, 0)
            elif kind == TRUE:
                _put(at, K_TRUE, K_TRUE, NAN, 0, 0)
            elif kind == FALSE:
                _put(at, K_FALSE, K_FALSE, NAN, 0, 0)
            elif kind == OBJECT_TAG:
                _put(at, K_OBJECT, K_OBJECT, NAN, 0, 0)
            else:
                more = _elements(data + (tag >> 8), data + limit, value, at, room - used, seed)
                if more < 0:
                    return SLOW
                used += more - 1
                many = MANY
            used += 1
        elif view == WORDS:
            if kind == ARRAY:
                return SLOW
            if kind == TEXT:
                more = _words(data + value, tag >> 8, seed, at, room - used)
                if more < 0:
                    return SLOW
                used += more
        elif view == GRAMS:
            if kind == ARRAY:
                return SLOW
            if kind == TEXT:
                if not _grams(data + value, tag >> 8, at):
                    return SLOW
                used += 1
        elif view == POINT:
            more = 0
            if kind == ARRAY:
                more = point_at(data + (tag >> 8), data + limit, value, 2, at)
            elif kind == OBJECT_TAG:
                cell = 8 * (get64(column + 24) * rows + row)
                tag, value = get64(tags + cell), get64(values + cell)
                if tag & 255 == ESCAPED or tag & 255 == UNSURE:
                    return SLOW
                if tag & 255 == TEXT and not text_is_point(tag, data + value):
                    return SLOW  # perhaps another geometry
                if tag & 255 == TEXT:
                    cell = 8 * (get64(column + 32) * rows + row)
                    tag, value = get64(tags + cell), get64(values + cell)
                    if tag & 255 == UNSURE:
                        return SLOW
                    if tag & 255 == ARRAY:
                        more = point_at(data + (tag >> 8), data + limit, value, 3, at)
            if more < 0:
                return SLOW
            used += more
    put64(starts + 8 * count, used)
    return OBJECT | many
