"""Checking that bytes are JSON text, without building anything.

`valid_json` accepts what RFC 8259 calls a JSON text, and no more than every reader
can decode again, which is stricter than the grammar in four points:

1. arrays and objects nest at most `DEPTH_LIMIT` deep;
2. the bytes are UTF-8 (no overlong forms, no surrogates) and have no byte order mark;
3. an escaped surrogate (`\\ud83d`) is followed by its other half;
4. a number fits a 64-bit float: at most 1.7976931348623157e308 either way.

So what passes here, `msgspec.json.decode` reads. One pass over the bytes with an
explicit stack of open brackets; plain text is skipped eight bytes at a time.

Pure functions of arrays; the GIL is released.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tideline.kernels import allocating, checks, jit

__all__ = ["DEPTH_LIMIT", "check_rows", "valid_json"]

DEPTH_LIMIT = 256
Octets = np.ndarray[Any, np.dtype[np.uint8]]

_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 0x7B, 0x7D, 0x5B, 0x5D
_MINUS, _PLUS, _DOT, _ZERO, _NINE, _E = 0x2D, 0x2B, 0x2E, 0x30, 0x39, 0x65

# The bytes a string may hold that need no second look: ASCII but for control
# characters, the quote and the backslash.
_PLAIN = np.zeros(256, np.uint8)
_PLAIN[0x20:0x80] = 1
_PLAIN[[_QUOTE, _BACKSLASH]] = 0
_SPACE = np.zeros(256, np.uint8)
_SPACE[[0x20, 0x09, 0x0A, 0x0D]] = 1
_ESCAPES = np.zeros(256, np.uint8)
_ESCAPES[list(b'"\\/bfnrt')] = 1

# The largest float is 1.7976931348623157e308: these 17 digits at this exponent.
_TOP_EXPONENT, _TOP_DIGITS, _DIGITS = 308, 17976931348623157, 17


_ONES = np.uint64(0x0101010101010101)
_QUOTES = np.uint64(0x22 * 0x0101010101010101)
_BACKSLASHES = np.uint64(0x5C * 0x0101010101010101)
_SPACES = np.uint64(0x20 * 0x0101010101010101)
_HIGH_BITS = np.uint64(0x80 * 0x0101010101010101)


def _loader(bits: int) -> Any:
    """A load of `bits` at an address of any alignment, widened to 64 bits."""
    kind = types.uint64 if bits == 64 else types.int64

    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            checks.guard(context, builder, args[0], bits // 8)
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return kind(types.int64), codegen

    return intrinsic(load)


# The functions below take addresses, not arrays, which made them two to three times
# faster: no counting of references at calls, no check for negative indexes.
_byte: Any = _loader(8)
_word8: Any = _loader(64)


@jit
def _skip_space(i: int, limit: int) -> int:
    while i < limit and _SPACE[_byte(i)]:
        i += 1
    return i


@jit
def _hex4(i: int, limit: int) -> int:
    """The value of four hex digits at `i`, or -1."""
    if i + 4 > limit:
        return -1
    value = 0
    for k in range(i, i + 4):
        c = _byte(k)
        if 0x30 <= c <= 0x39:
            digit = c - 0x30
        elif 0x41 <= c <= 0x46:
            digit = c - 0x37
        elif 0x61 <= c <= 0x66:
            digit = c - 0x57
        else:
            return -1
        value = value * 16 + digit
    return value


@jit
def _escape(i: int, limit: int) -> int:
    """The end of the escape whose backslash is at `i`, or -1."""
    if i + 1 >= limit:
        return -1
    c = _byte(i + 1)
    if _ESCAPES[c]:
        return i + 2
    if c != 0x75:  # u
        return -1
    value = _hex4(i + 2, limit)
    if value < 0 or 0xDC00 <= value <= 0xDFFF:
        return -1
    if not 0xD800 <= value <= 0xDBFF:
        return i + 6
    if i + 8 > limit or _byte(i + 6) != _BACKSLASH or _byte(i + 7) != 0x75:
        return -1
    value = _hex4(i + 8, limit)
    return i + 12 if 0xDC00 <= value <= 0xDFFF else -1


@jit
def _utf8(i: int, limit: int) -> int:
    """The end of the character of two to four bytes at `i`, or -1 (RFC 3629's table)."""
    c = _byte(i)
    low, high = 0x80, 0xBF  # what the second byte may be
    if 0xC2 <= c <= 0xDF:
        size = 2
    elif 0xE0 <= c <= 0xEF:
        size = 3
        if c == 0xE0:
            low = 0xA0
        elif c == 0xED:
            high = 0x9F
    elif 0xF0 <= c <= 0xF4:
        size = 4
        if c == 0xF0:
            low = 0x90
        elif c == 0xF4:
            high = 0x8F
    else:
        return -1
    if i + size > limit or _byte(i + 1) < low or _byte(i + 1) > high:
        return -1
    for k in range(i + 2, i + size):
        if _byte(k) & 0xC0 != 0x80:
            return -1
    return i + size


@jit
def _string(i: int, limit: int) -> int:
    """The end of the string whose opening quote is at `i`, or -1."""
    i += 1
    while True:
        # A byte below 0x80 that is below 0x20, a quote or a backslash turns its high
        # bit on when 0x20, or 1 after an xor, is taken from it. The first byte to do so
        # is truly not plain; the loop below finds it.
        while i + 8 <= limit:
            word = _word8(i)
            found = word | (word - _SPACES)
            found |= (word ^ _QUOTES) - _ONES
            found |= (word ^ _BACKSLASHES) - _ONES
            if found & _HIGH_BITS:
                break
            i += 8
        while i < limit and _PLAIN[_byte(i)]:
            i += 1
        if i >= limit:
            return -1
        c = _byte(i)
        if c == _QUOTE:
            return i + 1
        if c == _BACKSLASH:
            i = _escape(i, limit)
        elif c >= 0x80:
            i = _utf8(i, limit)
        else:
            return -1
        if i < 0:
            return -1


@jit
def _number(i: int, limit: int) -> int:
    """The end of the number at `i`, or -1.

    The number is d.ddd * 10**top with d > 0; `digits` holds its first 17 digits.
    """
    if _byte(i) == _MINUS:
        i += 1
    digits, count, top = 0, 0, -1
    begin = i
    while i < limit and _ZERO <= _byte(i) <= _NINE:
        if count < _DIGITS and (count or _byte(i) != _ZERO):
            digits = digits * 10 + (_byte(i) - _ZERO)
            count += 1
        i += 1
    whole = i - begin
    if whole == 0 or (whole > 1 and _byte(begin) == _ZERO):
        return -1
    if count:
        top = whole - 1
    if i < limit and _byte(i) == _DOT:
        i += 1
        begin = i
        while i < limit and _ZERO <= _byte(i) <= _NINE:
            if count < _DIGITS and (count or _byte(i) != _ZERO):
                if count == 0:
                    top = begin - i - 1
                digits = digits * 10 + (_byte(i) - _ZERO)
                count += 1
            i += 1
        if i == begin:
            return -1
    if i < limit and _byte(i) | 0x20 == _E:
        i += 1
        negative = False
        if i < limit and (_byte(i) == _MINUS or _byte(i) == _PLUS):
            negative = _byte(i) == _MINUS
            i += 1
        begin = i
        exponent = 0
        while i < limit and _ZERO <= _byte(i) <= _NINE:
            if exponent < 1 << 40:  # longer than any text, so more digits change nothing
                exponent = exponent * 10 + (_byte(i) - _ZERO)
            i += 1
        if i == begin:
            return -1
        top += -exponent if negative else exponent
    if count == 0 or top < _TOP_EXPONENT:
        return i
    while count < _DIGITS:
        digits *= 10
        count += 1
    return i if top == _TOP_EXPONENT and digits <= _TOP_DIGITS else -1


@jit
def _word(i: int, limit: int) -> int:
    """The end of `true`, `false` or `null` at `i`, or -1."""
    c = _byte(i)
    if i + 4 > limit:
        return -1
    if c == 0x74:
        right = _byte(i + 1) == 0x72 and _byte(i + 2) == 0x75 and _byte(i + 3) == 0x65
        return i + 4 if right else -1
    if c == 0x6E:
        right = _byte(i + 1) == 0x75 and _byte(i + 2) == 0x6C and _byte(i + 3) == 0x6C
        return i + 4 if right else -1
    if c != 0x66 or i + 5 > limit or _byte(i + 1) != 0x61 or _byte(i + 2) != 0x6C:
        return -1
    return i + 5 if _byte(i + 3) == 0x73 and _byte(i + 4) == 0x65 else -1


@jit
def _key(i: int, limit: int) -> int:
    """Where the value after the key at `i` begins, or -1."""
    if i >= limit or _byte(i) != _QUOTE:
        return -1
    i = _string(i, limit)
    if i < 0:
        return -1
    i = _skip_space(i, limit)
    if i >= limit or _byte(i) != _COLON:
        return -1
    return _skip_space(i + 1, limit)


@jit
def _valid(i: int, limit: int, stack: Octets) -> bool:
    """Whether `[i, limit)` is a JSON text; `stack` has room for DEPTH_LIMIT brackets."""
    i = _skip_space(i, limit)
    depth = 0
    while True:
        # Here a value must begin at `i`.
        if i >= limit:
            return False
        c = _byte(i)
        if c == _QUOTE:
            i = _string(i, limit)
        elif c == _MINUS or _ZERO <= c <= _NINE:
            i = _number(i, limit)
        elif c in (_OPEN_OBJECT, _OPEN_ARRAY):
            if depth == DEPTH_LIMIT:
                return False
            closing = c + 2  # true of both kinds in ASCII
            stack[depth] = closing
            depth += 1
            i = _skip_space(i + 1, limit)
            if i >= limit:
                return False
            if _byte(i) != closing:
                if c == _OPEN_OBJECT:
                    i = _key(i, limit)
                    if i < 0:
                        return False
                continue
            depth -= 1
            i += 1
        else:
            i = _word(i, limit)
        if i < 0:
            return False
        # Here a value has ended at `i`.
        while True:
            i = _skip_space(i, limit)
            if depth == 0:
                return i == limit
            if i >= limit:
                return False
            c = _byte(i)
            i += 1
            if c == _COMMA:
                i = _skip_space(i, limit)
                if stack[depth - 1] == _CLOSE_OBJECT:
                    i = _key(i, limit)
                    if i < 0:
                        return False
                break
            if c != stack[depth - 1]:
                return False
            depth -= 1


@allocating
def valid_json(data: Octets, start: int, limit: int) -> bool:
    """Whether `data[start:limit]` (contiguous bytes) is one JSON text.

    >>> text = np.frombuffer(b'{"a": [1, true]} {', np.uint8)
    >>> valid_json(text, 0, 16), valid_json(text, 0, 18), valid_json(text, 0, 0)
    (True, False, False)
    """
    base: Any = np.int64(data.ctypes.data)
    return _valid(base + start, base + limit, np.empty(DEPTH_LIMIT, np.uint8))


@allocating
def check_rows(data: Octets, offsets: Any, wanted: Any, ok: Any) -> int:
    """Check many texts: row r is `data[offsets[r]:offsets[r + 1]]`, as in an Arrow column.

    Sets `ok[r]` (bool) for every row; a row that is not `wanted[r]` is ok unread.
    Returns how many are not ok.

    >>> data = np.frombuffer(b"1{}x", np.uint8)
    >>> ok = np.empty(3, np.bool_)
    >>> check_rows(data, np.array([0, 1, 3, 4]), np.ones(3, np.bool_), ok), ok.tolist()
    (1, [True, True, False])
    """
    stack = np.empty(DEPTH_LIMIT, np.uint8)
    base: Any = np.int64(data.ctypes.data)
    bad = 0
    for row in range(len(wanted)):
        good = True
        if wanted[row]:
            start, limit = np.int64(offsets[row]), np.int64(offsets[row + 1])
            good = _valid(base + start, base + limit, stack)
            if not good:
                bad += 1
        ok[row] = good
    return bad
