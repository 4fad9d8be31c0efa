"""The tokens that a document makes: one for every shape in use, and their slots.

Several, where a column has several values. Of pairs only those whose equality is in the table, and
only at the levels that this equality has.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.jsonnumber import bits_of, double_of
from tideline.kernels.lanes import apart, get8, get64, hot, put64
from tideline.kernels.standing.layout import (
    ABOVE,
    ALWAYS,
    BELOW,
    BRACKET,
    BUCKET,
    CELL,
    ENTRY,
    EQUAL,
    GRAM,
    GRID,
    HEADS,
    K_LOOSE,
    K_NUMBER,
    K_POINT,
    K_SHAPED,
    K_TEXT,
    NO_LEVEL,
    PAIR,
    PAIR_ABOVE,
    PREFIX,
    S_ENTRIES,
    S_MASK,
    S_SEED,
    S_SHAPES,
    S_SHAPES_COUNT,
    S_SLOTS,
    SHAPE,
    SLOT,
    VALUE,
)
from tideline.kernels.standing.table import slot_of
from tideline.kernels.standing.values import hash_text, mix
from tideline.kernels.views import prefetch

__all__ = ["bucket", "cell", "pairs_of", "slots_of", "tokens_of"]

_LOWER = 0x7FFFFFFFFFFFFFFF


@hot
def cell(number, level):
    """The cell of a number, 2**level wide, as the bits of its number; -1000 <= level <= 1000."""
    return bits_of(np.floor(number * double_of((1023 - level) << 52)) + 0.0)


@hot
def bucket(bits):
    """The bucket of a number: a few bits of a word that sorts as doubles do."""
    return (bits ^ ((bits >> 63) & _LOWER)) >> BUCKET


@hot
def _push(state, tokens, count, room, shape, a, b):
    """Note a token, and begin to load its slot."""
    if count < room:
        token = mix(get64(state + 8 * S_SEED), shape, a, b)
        put64(tokens + 8 * count, token)
        where = token & get64(state + 8 * S_MASK)
        prefetch(get64(state + 8 * S_SLOTS) + 8 * SLOT * where)
    return count + 1


@apart
def _grams(state, tokens, count, room, shape, size, value):
    """The tokens of all grams of so many bytes of a text."""
    at = get64(value + 24)
    word, mask = 0, (1 << 8 * size) - 1
    for k in range(get64(value + 32)):
        c = get8(at + k)
        if 0x41 <= c <= 0x5A:
            c += 0x20
        word = (word << 8 | c) & mask
        if k + 1 >= size:
            count = _push(state, tokens, count, room, shape, word, 0)
    return count


@jit
def tokens_of(state, starts, found, is_object, tokens, room):
    """The tokens of an image: how many; more than `room` means that not all are there."""
    shapes = get64(state + 8 * S_SHAPES)
    count = 0
    for s in range(get64(state + 8 * S_SHAPES_COUNT)):
        shape = shapes + 8 * SHAPE * s
        kind = get64(shape)
        if get64(shape + 32) == 0 or kind >= PAIR:
            continue
        if kind == ALWAYS:
            count = _push(state, tokens, count, room, s, 0, 0)
            continue
        if not is_object:
            continue
        column, level = get64(shape + 8), get64(shape + 24)
        value = found + 8 * VALUE * get64(starts + 8 * column)
        limit = found + 8 * VALUE * get64(starts + 8 * column + 8)
        while value < limit:
            has = get64(value)
            hashed = get64(value + 8)
            if kind == EQUAL:
                count = _push(state, tokens, count, room, s, hashed, 0)
            elif kind == CELL:
                if has == K_NUMBER:
                    a = cell(double_of(hashed), level)
                    count = _push(state, tokens, count, room, s, a, 0)
            elif kind == GRID:
                if has == K_SHAPED and hashed != level:
                    value += 8 * VALUE
                    continue
                x = cell(double_of(get64(value + 16)), level)
                y = cell(double_of(get64(value + 24)), level)
                count = _push(state, tokens, count, room, s, x, y)
            elif kind == ABOVE:
                if has == K_NUMBER and bucket(hashed) >= level:
                    count = _push(state, tokens, count, room, s, 0, 0)
            elif kind == BELOW:
                if has == K_NUMBER and bucket(hashed) <= level:
                    count = _push(state, tokens, count, room, s, 0, 0)
            elif kind == GRAM:
                count = _grams(state, tokens, count, room, s, level, value)
            elif kind == BRACKET:
                if has == K_SHAPED and hashed != NO_LEVEL:
                    value += 8 * VALUE
                    continue
                a = K_POINT if has == K_LOOSE or has == K_SHAPED else has
                count = _push(state, tokens, count, room, s, a, 0)
            elif kind == PREFIX:
                if has == K_TEXT and get64(value + 32) >= level:
                    a = hash_text(get64(value + 24), level, get64(state + 8 * S_SEED))
                    count = _push(state, tokens, count, room, s, a, 0)
            elif kind == HEADS:
                count = _push(state, tokens, count, room, s, hashed, 0)
            value += 8 * VALUE
    return count


@jit
def pairs_of(state, starts, found, tokens, count, room):
    """The tokens of pairs: those whose equality is in the table and has such a level."""
    shapes = get64(state + 8 * S_SHAPES)
    slots, mask = get64(state + 8 * S_SLOTS), get64(state + 8 * S_MASK)
    seed = get64(state + 8 * S_SEED)
    for s in range(get64(state + 8 * S_SHAPES_COUNT)):
        shape = shapes + 8 * SHAPE * s
        if get64(shape + 32) == 0 or get64(shape) != HEADS:
            continue
        column = get64(shape + 8)
        value = found + 8 * VALUE * get64(starts + 8 * column)
        limit = found + 8 * VALUE * get64(starts + 8 * column + 8)
        while value < limit:
            hashed = get64(value + 8)
            value += 8 * VALUE
            slot = slot_of(slots, mask, mix(seed, s, hashed, 0))
            if get64(slot) == 0:
                continue
            levels = get64(slot + 24)
            pair = get64(shape + 40) if levels else 0
            second = get64(shape + 16)
            first = found + 8 * VALUE * get64(starts + 8 * second)
            last = found + 8 * VALUE * get64(starts + 8 * second + 8)
            while pair:
                at = shapes + 8 * SHAPE * pair
                level = get64(at + 24)
                if get64(at + 32) and levels >> (level & 63) & 1:
                    kind = get64(at)
                    number = first
                    while number < last:
                        bits = get64(number + 8)
                        if get64(number) == K_NUMBER:
                            if kind == PAIR:
                                a = cell(double_of(bits), level)
                                count = _push(state, tokens, count, room, pair, a, hashed)
                            elif kind == PAIR_ABOVE:
                                if bucket(bits) >= level:
                                    count = _push(state, tokens, count, room, pair, 0, hashed)
                            elif bucket(bits) <= level:
                                count = _push(state, tokens, count, room, pair, 0, hashed)
                        number += 8 * VALUE
                pair = get64(at + 40)
    return count


@jit
def slots_of(state, tokens, count):
    """Replace tokens by their slots, or 0; begin to load the lists."""
    slots, mask = get64(state + 8 * S_SLOTS), get64(state + 8 * S_MASK)
    entries = get64(state + 8 * S_ENTRIES)
    for i in range(count):
        slot = slot_of(slots, mask, get64(tokens + 8 * i))
        if get64(slot) == 0 or get64(slot + 8) < 0:
            slot = 0
        else:
            prefetch(entries + 8 * ENTRY * get64(slot + 8))
        put64(tokens + 8 * i, slot)
