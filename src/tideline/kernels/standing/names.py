"""Which condition has this text? A table of numbers by the hashes of the texts.

    slot    number of a condition + 1, 32 bits; 0 is empty

Open addressing with linear probing, at most half full. What follows a number that goes moves up, so
nothing is left behind. The texts are compared where they lie, so nothing rests on a hash.
`state` is that of the index (layout.py); callers see to it that there is room.
"""

from __future__ import annotations

from tideline.kernels import brief
from tideline.kernels.lanes import get8, get32, get64, hot, put32
from tideline.kernels.standing.layout import (
    S_NAMES,
    S_NAMES_MASK,
    S_SEED,
    S_TEXT_AT,
    S_TEXT_SIZE,
    S_TEXTS,
)
from tideline.kernels.standing.values import hash_text

__all__ = ["drop", "enter", "find"]


@hot
def _home(state, number):
    """The slot where a number would best be."""
    at = get64(state + 8 * S_TEXTS) + get64(get64(state + 8 * S_TEXT_AT) + 8 * number)
    size = get32(get64(state + 8 * S_TEXT_SIZE) + 4 * number)
    return hash_text(at, size, get64(state + 8 * S_SEED)) & get64(state + 8 * S_NAMES_MASK)


@hot
def _same(a, b, size):
    k = 0
    while k + 8 <= size:
        if get64(a + k) != get64(b + k):
            return False
        k += 8
    while k < size:
        if get8(a + k) != get8(b + k):
            return False
        k += 1
    return True


@brief
def find(state, text, size):
    """The number of a text, or -1."""
    slots, mask = get64(state + 8 * S_NAMES), get64(state + 8 * S_NAMES_MASK)
    i = hash_text(text, size, get64(state + 8 * S_SEED)) & mask
    while True:
        number = get32(slots + 4 * i) - 1
        if number < 0:
            return -1
        at = get64(state + 8 * S_TEXTS) + get64(get64(state + 8 * S_TEXT_AT) + 8 * number)
        if get32(get64(state + 8 * S_TEXT_SIZE) + 4 * number) == size and _same(at, text, size):
            return number
        i = (i + 1) & mask


@brief
def enter(state, numbers, count):
    """Enter the numbers of texts, none of which is there."""
    slots, mask = get64(state + 8 * S_NAMES), get64(state + 8 * S_NAMES_MASK)
    for k in range(count):
        number = get32(numbers + 4 * k)
        i = _home(state, number)
        while get32(slots + 4 * i):
            i = (i + 1) & mask
        put32(slots + 4 * i, number + 1)


@brief
def drop(state, number):
    """Take a number out that is there, while its text is."""
    slots, mask = get64(state + 8 * S_NAMES), get64(state + 8 * S_NAMES_MASK)
    i = _home(state, number)
    while get32(slots + 4 * i) != number + 1:
        i = (i + 1) & mask
    j = i
    while True:
        j = (j + 1) & mask
        other = get32(slots + 4 * j)
        if other == 0:
            put32(slots + 4 * i, 0)
            return
        if (j - _home(state, other - 1)) & mask >= (j - i) & mask:
            put32(slots + 4 * i, other)
            i = j
