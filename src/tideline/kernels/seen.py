"""Keys that were seen, with the time of each: which rows of a stream come a second time.

A key is 128 bits of a hash (`high`, `low`). The table is open addressing over three arrays of
one length, a power of two at most half full; a slot whose time is `EMPTY` holds nothing.

    judge_rows   each row in order: late, a duplicate, or new, and then the table knows it
    move_keys    the keys that are still needed, into another table

The caller owns the arrays and sees to their room. One call at a time.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit

__all__ = ["EMPTY", "NEW", "judge_rows", "move_keys"]

EMPTY = -(1 << 63)
NEW, LATE, DUPLICATE, PASSED = 0, 1, 2, 3
_EMPTY = np.int64(EMPTY)


@jit
def _slot(high, low, highs, lows, times):
    """Where a key is, or where it would go."""
    mask = len(times) - 1
    at = (low ^ (high >> 17)) & mask
    while times[at] != _EMPTY:
        if lows[at] == low and highs[at] == high:
            return at
        at = (at + 1) & mask
    return at


@jit
def judge_rows(high, low, time, verdict, oldest, within, highs, lows, times):
    """Judge the rows whose verdict is NEW so far; returns how many keys the table gained.

    A row older than `oldest` is LATE. One less than `within` apart from the last NEW row of its
    key is a DUPLICATE. Any other stays NEW, and its key is known from now on, by its latest time.
    """
    gained = 0
    for row in range(len(verdict)):
        if verdict[row] != NEW:
            continue
        moment = time[row]
        if moment < oldest:
            verdict[row] = LATE
            continue
        at = _slot(high[row], low[row], highs, lows, times)
        if times[at] == _EMPTY:
            highs[at] = high[row]
            lows[at] = low[row]
            times[at] = moment
            gained += 1
        elif abs(moment - times[at]) < within:
            verdict[row] = DUPLICATE
        else:
            times[at] = max(times[at], moment)
    return gained


@jit
def move_keys(highs, lows, times, horizon, to_highs, to_lows, to_times):
    """Put the keys later than `horizon` into another table; returns how many they are."""
    count = 0
    for k in range(len(times)):
        if times[k] > horizon:
            at = _slot(highs[k], lows[k], to_highs, to_lows, to_times)
            if to_times[at] == _EMPTY:
                count += 1
            if to_times[at] == _EMPTY or times[k] > to_times[at]:
                to_highs[at] = highs[k]
                to_lows[at] = lows[k]
                to_times[at] = times[k]
    return count
