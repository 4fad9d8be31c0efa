"""Bytes by address: hash, compare, copy, and prefixes that sort.

Nothing is read outside the bytes that are named. A *prefix* is the first eight bytes as a signed
word that orders as the bytes do; shorter ones are filled up with zeros. So prefixes that differ
decide, and equal ones do not.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tideline.kernels import checks, jit
from tideline.kernels.lanes import get8, get64, hot, put64
from tideline.kernels.views import octets

__all__ = [
    "copy_bytes", "digest", "first_not_below", "hash_bytes", "order_bytes", "prefix_of",
    "put_sorted", "same_bytes", "sorted_word",
]  # fmt: skip

_SIGN = -9223372036854775808
_P1 = -7046029254386353131
_P2 = -4417276706812531889


@intrinsic
def sorted_word(typingctx: Any, address: Any) -> Any:
    """The eight bytes at an address as a signed word that orders as they do."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        checks.guard(context, builder, args[0], 8)
        word = builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), align=1)
        return builder.xor(builder.bswap(word), ir.IntType(64)(_SIGN))

    return types.int64(types.int64), codegen


@intrinsic
def put_sorted(typingctx: Any, address: Any, word: Any) -> Any:
    """Write a word as eight bytes, the highest first."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        checks.guard(context, builder, args[0], 8)
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        builder.store(builder.bswap(args[1]), pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@hot
def _mix(h):
    # Shifts without a sign: with one, the highest bit of the result would always be 0.
    h = (h ^ ((h >> 32) & 0xFFFFFFFF)) * _P2
    return h ^ ((h >> 29) & 0x7FFFFFFFF)


@hot
def digest(at, size, seed):
    """A hash of `size` bytes."""
    h = seed ^ (size * _P1)
    i = 0
    while i + 8 <= size:
        h = _mix((h ^ get64(at + i)) * _P1)
        i += 8
    if i < size:
        tail = 0
        if size >= 8:
            tail = get64(at + size - 8)
        else:
            while i < size:
                tail = (tail << 8) | get8(at + i)
                i += 1
        h = _mix((h ^ tail) * _P1)
    return _mix(h * _P2)


@jit
def hash_bytes(at, size, seed):
    """A hash of `size` bytes that is never 0."""
    h = digest(at, size, seed)
    return h if h != 0 else 1


@jit
def prefix_of(at, size):
    """The first eight bytes as a word that sorts."""
    if size >= 8:
        return sorted_word(at)
    value = 0
    for i in range(size):
        value |= get8(at + i) << (56 - 8 * i)
    return value ^ _SIGN


@hot
def first_not_below(prefixes, low, high, wanted):
    """The first of prefixes[low:high), which never fall, that is not below the one wanted."""
    while low < high:
        middle = (low + high) >> 1
        if prefixes[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def same_bytes(a, b, size):
    """Whether the bytes at two addresses are the same."""
    i = 0
    while i + 8 <= size:
        if get64(a + i) != get64(b + i):
            return False
        i += 8
    while i < size:
        if get8(a + i) != get8(b + i):
            return False
        i += 1
    return True


@jit
def order_bytes(a, a_size, b, b_size):
    """-1, 0 or 1 as the bytes at `a` sort before, with or after those at `b`."""
    n = min(a_size, b_size)
    i = 0
    while i + 8 <= n:
        if get64(a + i) != get64(b + i):
            return -1 if sorted_word(a + i) < sorted_word(b + i) else 1
        i += 8
    while i < n:
        x8 = get8(a + i)
        y8 = get8(b + i)
        if x8 != y8:
            return -1 if x8 < y8 else 1
        i += 1
    if a_size == b_size:
        return 0
    return -1 if a_size < b_size else 1


@jit
def copy_bytes(target, source, size):
    """Copy bytes that do not overlap; the last word is written over once more."""
    if size < 8:
        if size > 0:
            into = octets(target, size)
            for i in range(size):
                into[i] = get8(source + i)
        return
    last = get64(source + size - 8)
    for i in range(0, size - 8, 8):
        put64(target + i, get64(source + i))
    put64(target + size - 8, last)
