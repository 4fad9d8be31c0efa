"""Numbers in JSON text, read exactly.

A whole number that fits int64 is read as one. A number with a point or an exponent is
read as the float64 nearest to it, as every decoder of JSON must give it: by one division
or multiplication where both sides are exact floats, else by the method of Eisel and
Lemire, which multiplies the digits by a 128-bit power of five. What neither covers (more
than 19 digits, subnormal floats, whole numbers of 19 digits) is `UNSURE`: the caller
decodes the text instead. No number is ever read approximately.

Functions of addresses; they may read up to 32 bytes past the end of a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba import uint64 as U
from numba.extending import intrinsic

from tideline.kernels import jsontext
from tideline.kernels.lanes import (
    apart,
    get8,
    get64,
    high_product,
    hot,
    leading_zeros,
    non_digits,
    trailing_zeros,
)  # fmt: skip

__all__ = [
    "FLOAT", "INT", "UNSURE", "bits_of", "check_number", "double_of", "eight_digits", "read_number",
]  # fmt: skip

INT, FLOAT, UNSURE = 4, 5, 10  # of the kinds in jsonpath.py

_MINUS, _PLUS, _DOT, _ZERO, _E = 0x2D, 0x2B, 0x2E, 0x30, 0x65
_SIGN = -(1 << 63)
_LEAST, _MOST = -342, 308  # beyond these powers of ten a float64 is zero or infinite


def _powers_of_five() -> Any:
    """Row q - _LEAST: the leading 128 bits of 5**q, the upper half first.

    Cut off, except that the reciprocals of powers that fit 64 bits are rounded up, so
    that a quotient that comes out even is seen to: the table the method was proved with.
    """
    table = np.empty((_MOST - _LEAST + 1, 2), np.uint64)
    for q in range(_LEAST, _MOST + 1):
        power = 5 ** abs(q) << 128 if q >= 0 else (1 << 1024 - 3 * q) // 5**-q
        top = (power >> (power.bit_length() - 128)) + (-27 <= q < 0)
        table[q - _LEAST] = top >> 64, top & ((1 << 64) - 1)
    return table


_FIVES = _powers_of_five()
_TENS = np.array([10.0**k for k in range(23)])  # all exact
_WHOLE_TENS = np.array([10**k for k in range(20)], np.uint64)


@intrinsic
def bits_of(typingctx: Any, value: Any) -> Any:
    """The bits of a float64 as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def double_of(typingctx: Any, bits: Any) -> Any:
    """The float64 of these bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@apart
def _nearest(digits, q):
    """The bits of the float64 nearest to digits * 10**q, or -1 if that is not normal.

    The product with the upper half of the power decides, unless the bits below those of
    the result are all ones: then the lower half may carry into them.
    """
    zeros = leading_zeros(digits)
    digits <<= U(zeros)
    high = high_product(digits, _FIVES[q - _LEAST, 0])
    low = digits * _FIVES[q - _LEAST, 0]
    if high & U(0x1FF) == U(0x1FF):
        more = high_product(digits, _FIVES[q - _LEAST, 1])
        low += more
        if low < more:
            high += U(1)
    upper = np.int64(high >> U(63))
    shift = U(upper + 9)
    mantissa = high >> shift  # 53 bits, and one more to round by
    power = ((217706 * q) >> 16) + 1086 + upper - zeros  # 217706 / 65536 is log2(10)
    if power <= 0 or power >= 2046:
        return -1
    if low <= U(1) and -4 <= q <= 23 and mantissa & U(3) == U(1) and mantissa << shift == high:
        mantissa -= U(1)  # exactly between two floats: to the even one
    mantissa = (mantissa + (mantissa & U(1))) >> U(1)
    # Rounding up to 2**53 carries into the exponent, which is right.
    return np.int64(mantissa - U(1 << 52)) + (power << 52)


@hot
def eight_digits(word, count):
    """The value of the first `count` (1 to 8) digits in eight bytes."""
    word = (word - U(0x3030303030303030)) << U(64 - 8 * count)
    word = word * U(10) + (word >> U(8))  # pairs of digits
    odd = (word & U(0x000000FF000000FF)) * U(0x000F424000000064)
    even = ((word >> U(16)) & U(0x000000FF000000FF)) * U(0x0000271000000001)
    return (odd + even) >> U(32)


@hot
def _value(i, count):
    """The value of `count` (1 to 19) digits at `i`."""
    if count <= 8:
        return eight_digits(U(get64(i)), count)
    value = U(0)
    if count > 16:
        value = eight_digits(U(get64(i)), count - 16)
        i += count - 16
        count = 16
    value = value * U(100_000_000) + eight_digits(U(get64(i)), count - 8)
    return value * U(100_000_000) + eight_digits(U(get64(i + count - 8)), 8)


@apart
def check_number(i, limit):
    """The end of the number at `i` in a text that ends at `limit`, or -1."""
    return jsontext._number(i, limit)


@apart
def read_number(i, limit):
    """The number at `i` in a text that ends at `limit`: (end, kind, value).

    The value of an INT is an int64, of a FLOAT the bits of a float64. The end is -1 when
    this is no number, or one out of range.
    """
    negative = get8(i) == _MINUS
    begin = i + negative
    stops = non_digits(begin) | 1 << 32
    count = trailing_zeros(stops)
    if count == 0 or (count > 1 and get8(begin) == _ZERO):
        return -1, UNSURE, 0
    end = begin + count
    c = get8(end)
    if count > 19 or (count > 18 and c != _DOT):
        return check_number(i, limit), UNSURE, 0
    digits = _value(begin, count)
    if c != _DOT and c | 0x20 != _E:
        value = np.int64(digits)
        return end, INT, -value if negative else value
    power = 0
    if c == _DOT:
        count = trailing_zeros(stops >> (count + 1))
        if count == 0:
            return -1, UNSURE, 0
        if (end - begin if digits else 0) + count > 19:
            return check_number(i, limit), UNSURE, 0
        digits = digits * _WHOLE_TENS[count] + _value(end + 1, count)
        power = -count
        end += 1 + count
        c = get8(end)
    if c | 0x20 == _E:
        sign = end + 1
        end = check_number(i, limit)
        if end < 0:
            return -1, UNSURE, 0
        c = get8(sign)
        sign += c == _MINUS or c == _PLUS
        if end - sign > 8:
            return end, UNSURE, 0
        exponent = np.int64(_value(sign, end - sign))
        power += -exponent if c == _MINUS else exponent
    if digits <= U(1 << 53) and -22 <= power <= 22:
        value = np.float64(digits)
        value = value / _TENS[-power] if power < 0 else value * _TENS[power]
        bits = bits_of(value)
    elif digits == U(0) or power < _LEAST or power > _MOST:
        return end, UNSURE, 0
    else:
        bits = _nearest(digits, power)
        if bits < 0:
            return end, UNSURE, 0
    return end, FLOAT, bits | _SIGN if negative else bits
