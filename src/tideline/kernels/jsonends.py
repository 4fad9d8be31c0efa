"""Where things end in JSON text that has a map: texts, numbers, words, arrays.

Two maps of a stretch of text have a bit for every byte: `stops`, where plain text stops
(`lanes.text_stops`), and `others`, what is no digit. Both are given as the address their
bit for the byte at address 0 would have, so an address finds its own bit. One look at a
map shows the end of most texts and numbers; what is not plain is checked byte by byte.

All functions take and give addresses; -1 is the end of what is not valid. They may find
an end past the `limit` of a row, in the text of the next one: whoever calls them looks at
`limit` before going on. They read at most 96 bytes past what lies before `limit`.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jsontext
from tideline.kernels.jsonnumber import (
    FLOAT,
    INT,
    UNSURE,
    bits_of,
    check_number,
    double_of,
    eight_digits,
    read_number,
)  # fmt: skip
from tideline.kernels.lanes import apart, get8, get64, hot, trailing_zeros

__all__ = [
    "ARRAY", "ESCAPED", "FALSE", "MISSING", "NULL", "OBJECT", "TEXT", "TRUE", "array_end",
    "number_end", "skip_space", "spaced_number", "take_number", "text_end", "text_stop",
    "word_kind", "word_size",
]  # fmt: skip

# With INT, FLOAT and UNSURE, which are 4, 5 and 10.
MISSING, NULL, FALSE, TRUE, TEXT, ESCAPED, ARRAY, OBJECT = 0, 1, 2, 3, 6, 7, 8, 9

_SIGHT = 57  # how many bits ahead one look at a map shows at least

_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 0x7B, 0x7D, 0x5B, 0x5D
_MINUS, _DOT, _ZERO, _NINE, _E = 0x2D, 0x2E, 0x30, 0x39, 0x65
_TENS = np.array([10**k for k in range(9)], np.uint64)
_SPACE = jsontext._SPACE

# How a plain number begins: a character, and which classes of characters may follow it.
_BEGINS, _FOLLOWS = np.zeros(256, np.uint8), np.full(256, 4, np.uint8)
_FOLLOWS[_ZERO], _FOLLOWS[_ZERO + 1 : _NINE + 1] = 2, 1
_BEGINS[_MINUS], _BEGINS[_ZERO], _BEGINS[_ZERO + 1 : _NINE + 1] = 1, 4, 7

# By the low bits of their first letter: the words, and as what they are kept.
_WORD_MASK, _WORD = np.zeros(16, np.int64), np.ones(16, np.int64)
_WORD_KIND = np.zeros(16, np.int64)
for _word, _kind in ((b"null", NULL), (b"false", FALSE), (b"true", TRUE)):
    _WORD_MASK[_word[0] & 15] = (1 << 8 * len(_word)) - 1
    _WORD[_word[0] & 15] = int.from_bytes(_word, "little")
    _WORD_KIND[_word[0] & 15] = _kind


@hot
def _ahead(bits, i):
    """A map from the bit of the byte at `i` on; the lowest bit is that byte's."""
    return get64(bits + (i >> 3)) >> (i & 7)


@hot
def skip_space(i, limit):
    while get8(i) <= 0x20 and i < limit and _SPACE[get8(i)]:
        i += 1
    return i


@hot
def spaced_number(i, limit):
    """(end, whether it is sure, the number); the end is -1 when no number begins here."""
    i = skip_space(i, limit)
    c = get8(i)
    if c > _NINE or (c < 0x30 and c != _MINUS):
        return -1, True, 0.0
    i, kind, value = read_number(i, limit)
    if i < 0 or kind == UNSURE:
        return i, False, 0.0
    number = float(value) if kind == INT else double_of(value)
    return skip_space(i, limit), True, number


@hot
def text_stop(i, limit, stops):
    """Where the plain text from `i` on stops: at its closing quote, or it is not plain."""
    while True:
        count = trailing_zeros(_ahead(stops, i))
        if count < _SIGHT:
            return i + count
        i += _SIGHT
        if i >= limit:
            return i


@apart
def _checked_text(i, limit):
    """(end, kind) of the text whose opening quote is at `i`; the end is -1 if it is none."""
    end = jsontext._string(i, limit)
    kind = TEXT
    while i < end:
        if get8(i) == _BACKSLASH:
            kind = ESCAPED
        i += 1
    return end, kind


@hot
def text_end(i, limit, stops):
    """(end, kind) of the text whose opening quote is before `i`; the end is -1 if it is none."""
    end = text_stop(i, limit, stops)
    if get8(end) == _QUOTE:
        return end + 1, TEXT
    return _checked_text(i - 1, limit)


@hot
def number_end(i, limit, others):
    """The end of the number at `i`, or -1."""
    if _BEGINS[get8(i)] & _FOLLOWS[get8(i + 1)]:
        ahead = _ahead(others, i) & -2  # after a sign or a first digit
        count = trailing_zeros(ahead)
        c = get8(i + count)
        if c == _DOT:
            point = count
            count = trailing_zeros(ahead & (ahead - 1))
            c = _E if count == point + 1 else get8(i + count)
        if count < _SIGHT and c | 0x20 != _E:
            return i + count
    return check_number(i, limit)


@hot
def take_number(i, limit, others):
    """(end, kind, value) of the number at `i`, as `read_number` gives it.

    Short ones are read here: up to 8 digits, or 7 before a point and 8 after it, which
    make a whole number and a power of ten that are both exact floats.
    """
    if _BEGINS[get8(i)] & _FOLLOWS[get8(i + 1)]:
        ahead = _ahead(others, i)
        negative = ahead & 1
        ahead &= -2
        begin, end = i + negative, i + trailing_zeros(ahead)
        c = get8(end)
        if c != _DOT:
            if end <= begin + 8 and c | 0x20 != _E:
                value = np.int64(eight_digits(np.uint64(get64(begin)), end - begin))
                return end, INT, (value ^ -negative) + negative
        elif end <= begin + 7:
            point, end = end + 1, i + trailing_zeros(ahead & (ahead - 1))
            if point < end <= point + 8 and get8(end) | 0x20 != _E:
                tens = _TENS[end - point]
                value = eight_digits(np.uint64(get64(begin)), point - 1 - begin) * tens
                value += eight_digits(np.uint64(get64(point)), end - point)
                bits = bits_of(np.float64(value) / np.float64(tens))
                return end, FLOAT, bits | -negative << 63
    return read_number(i, limit)


@hot
def word_kind(i, c):
    """NULL, FALSE or TRUE for that word at `i`, where `c` is; MISSING for anything else."""
    at = c & 15
    return _WORD_KIND[at] if get64(i) & _WORD_MASK[at] == _WORD[at] else MISSING


@hot
def word_size(c):
    """5 for the letter f, 4 for n and t; no branch, as booleans cannot be guessed."""
    return 4 + (c >> 1 & ~(c >> 3) & 1)


@hot
def _name_end(i, limit, stops):
    """Where the value after the name at `i` begins, or -1."""
    if get8(i) != _QUOTE:
        return -1
    i, kind = text_end(i + 1, limit, stops)
    if i < 0:
        return -1
    i = skip_space(i, limit)
    return skip_space(i + 1, limit) if get8(i) == _COLON else -1


@apart
def array_end(i, limit, stops, others):
    """(end, elements) of the array whose bracket is before `i`; the end is -1 if it is none."""
    objects = 0  # a bit for every open bracket, the last one lowest: whether it is a brace
    depth = 1
    count = 0
    i = skip_space(i, limit)
    if get8(i) == _CLOSE_ARRAY:
        return i + 1, 0
    while i < limit:
        # Here a value must begin.
        count += depth == 1
        c = get8(i)
        if c == _QUOTE:
            i, kind = text_end(i + 1, limit, stops)
        elif c <= _NINE:
            i = number_end(i, limit, others)
        elif c == _OPEN_OBJECT or c == _OPEN_ARRAY:
            i = skip_space(i + 1, limit)
            if get8(i) == c + 2:
                i += 1
            else:
                if depth == 62:
                    return -1, 0
                objects = objects << 1 | (c == _OPEN_OBJECT)
                depth += 1
                if c == _OPEN_OBJECT:
                    i = _name_end(i, limit, stops)
                    if i < 0:
                        return -1, 0
                continue
        else:
            i = i + word_size(c) if word_kind(i, c) else -1
        if i < 0:
            return -1, 0
        # Here a value has ended.
        while True:
            i = skip_space(i, limit)
            if i >= limit:
                return -1, 0
            c = get8(i)
            i += 1
            if c == _COMMA:
                i = skip_space(i, limit)
                if objects & 1:
                    i = _name_end(i, limit, stops)
                    if i < 0:
                        return -1, 0
                break
            if c != (_CLOSE_OBJECT if objects & 1 else _CLOSE_ARRAY):
                return -1, 0
            objects >>= 1
            depth -= 1
            if depth == 0:
                return i, count
    return -1, 0
