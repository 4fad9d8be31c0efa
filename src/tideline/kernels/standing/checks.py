"""Checks of what lies at the columns of a row: 0 for no, 1 for perhaps, 2 for yes.

A column may have several values, as a row with arrays has: then a check holds when one of them
meets it, and the two ends of a range may be met by two of them (where/bounds.py).
"""

from __future__ import annotations

import math

import numpy as np
from numba import uint64 as U

from tideline.kernels import jit
from tideline.kernels.documents.octets import same_bytes
from tideline.kernels.geo import haversine_m
from tideline.kernels.jsonnumber import double_of
from tideline.kernels.lanes import apart, get64, hot
from tideline.kernels.standing.layout import (
    CHECK,
    K_LOOSE,
    K_POINT,
    K_SHAPED,
    K_TEXT,
    LOW,
    NOT,
    OP_BOX,
    OP_CIRCLE,
    OP_GRAMS,
    OP_HASH,
    OP_KIND,
    OP_NEAR_RING,
    OP_NUMBER,
    OP_PREFIX,
    OP_RANGE,
    OP_RING,
    OP_TEXT,
    OR,
    VALUE,
)
from tideline.kernels.standing.values import single_of

__all__ = ["check", "run_box"]

_HALF_RADIANS = math.pi / 360.0
_SMALL = 1e-4  # of the square below: a circle of 127 km


@apart
def _in_circle(at, more, value):
    """Whether a point lies in a circle, by a series that is good to 1e-9 for small ones.

    `more` has, as a float32, the square of the sine of half the angle of its radius.
    """
    limit = single_of(more >> 32)
    lat = double_of(get64(value + 24))
    high = (lat - double_of(get64(at + 8))) * _HALF_RADIANS
    high2 = high * high
    if limit > _SMALL:
        return 1
    if high2 > limit * 1.001:
        return 0
    wide = (double_of(get64(value + 16)) - double_of(get64(at))) * _HALF_RADIANS
    wide2 = wide * wide
    if wide2 > 1e-3:
        return 1  # near a pole, or across the antimeridian
    cosine = double_of(get64(value + 8))
    # The cosine of the center's latitude, from that of the point.
    turn = 2.0 * high
    turn2 = turn * turn
    center = cosine * (1.0 - turn2 * (0.5 - turn2 / 24.0)) + double_of(get64(value + 32)) * (
        turn * (1.0 - turn2 / 6.0)
    )
    found = high2 * (1.0 - high2 / 3.0)
    found += center * cosine * wide2 * (1.0 - wide2 * (1.0 / 3.0 - wide2 * (2.0 / 45.0)))
    if found < limit * (1.0 - 1e-6):
        return 2
    return 0 if found > limit * (1.0 + 1e-6) else 1


@hot
def _bits(word):
    """How many bits of a word are 1."""
    w = U(word)
    w -= (w >> U(1)) & U(0x5555555555555555)
    w = (w & U(0x3333333333333333)) + ((w >> U(2)) & U(0x3333333333333333))
    w = (w + (w >> U(4))) & U(0x0F0F0F0F0F0F0F0F)
    return np.int64((w * U(0x0101010101010101)) >> U(56))


@jit
def _check_point(op, at, more, value):
    lon, lat = double_of(get64(value + 16)), double_of(get64(value + 24))
    if op == OP_CIRCLE:
        return _in_circle(at, more, value)
    if op == OP_NEAR_RING:
        return min(1, _in_circle(at, more, value))
    if op == OP_RING:
        far = haversine_m(double_of(get64(at)), double_of(get64(at + 8)), lon, lat)
        inside = double_of(get64(at + 16)) <= far <= double_of(get64(at + 24))
        return 2 if inside else 0
    if op == OP_BOX:
        inside = double_of(get64(at)) <= lon <= double_of(get64(at + 16))
        inside = inside and double_of(get64(at + 8)) <= lat <= double_of(get64(at + 24))
        return 2 if inside else 0
    low, high = get64(at), get64(at + 8)  # OP_NEAR_BOX: rounded outwards
    inside = single_of(low) <= lon <= single_of(high)
    inside = inside and single_of(low >> 32) <= lat <= single_of(high >> 32)
    return 1 if inside else 0


@hot
def check(op, column, at, more, starts, found, texts):
    """A check with its operands at an address and, of an inline one, the word after them."""
    value = found + 8 * VALUE * get64(starts + 8 * column)
    limit = found + 8 * VALUE * get64(starts + 8 * column + 8)
    if op == OP_RANGE:
        low, high = double_of(get64(at)), double_of(get64(at + 8))
        above = below = False
        while value < limit:
            number = double_of(get64(value + 16))
            above |= number >= low
            below |= number <= high
            value += 8 * VALUE
        return 2 * (above & below)
    if op == OP_CIRCLE and limit - value == 8 * VALUE and get64(value) == K_POINT:
        return _in_circle(at, more, value)
    return _check_more(op, at, more, value, limit, texts)


@apart
def _check_more(op, at, more, value, limit, texts):
    best = 0
    while value < limit:
        kind = get64(value)
        if op == OP_NUMBER:
            if double_of(get64(value + 16)) == double_of(get64(at)):
                return 2
        elif op == OP_KIND:
            if kind == get64(at):
                return 2
        elif op == OP_TEXT:
            where = get64(at + 8)
            size = where & 0xFFFFFF
            if get64(value + 8) == get64(at) and kind == K_TEXT and get64(value + 32) == size:
                if same_bytes(get64(value + 24), texts + (where >> 24), size):
                    return 2
        elif op == OP_HASH:
            if get64(value + 8) == get64(at):
                return 2
        elif op == OP_PREFIX:
            where = get64(at + 8)
            size = where & 0xFFFFFF
            if kind == K_TEXT and get64(value + 32) >= size:
                if same_bytes(get64(value + 24), texts + (where >> 24), size):
                    return 2
        elif op == OP_GRAMS:
            allowed = more >> 32 if more else get64(at + 16)
            missing = _bits(get64(at) & ~get64(value + 8))
            missing += _bits(get64(at + 8) & ~get64(value + 16))
            if missing <= allowed:
                return 1
        elif op >= OP_CIRCLE and kind == K_SHAPED:
            best = 1
        elif op >= OP_CIRCLE:
            verdict = _check_point(op, at, more, value)
            if kind == K_LOOSE:
                verdict = min(verdict, 1)
            best = max(best, verdict)
        else:
            return 2
        value += 8 * VALUE
    return best


@jit
def run_box(box, skip, starts, found, texts):
    """All checks of a box of a program, but the first `skip`."""
    given = 2
    at = box + 8 + 8 * CHECK * skip
    limit = box + 8 + 8 * CHECK * (get64(box) & LOW)
    while at < limit:
        word = get64(at)
        op = word & 255
        verdict = check(op & ~NOT, (word >> 8) & 0xFFFF, at + 8, 0, starts, found, texts)
        if op & NOT:
            verdict = 2 - verdict
        if word & OR:  # one of several: on to the next, or past the last
            if verdict:
                while get64(at) & OR:
                    at += 8 * CHECK
            else:
                at += 8 * CHECK
                continue
        if verdict == 0:
            return 0
        given = min(given, verdict)
        at += 8 * CHECK
    return given
