"""Searching sorted runs: a directory of top bits leads to a few keys, halving to the one.

A run is the words of `RUN` (layout.py). A bucket of its directory has the keys whose bits above
`R_SHIFT` are equal, counted from the least key. Reads only, but for `direct`; safe from any thread.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.stream.layout import (
    R_BUCKETS,
    R_COUNT,
    R_DIRECTORY,
    R_HIGH,
    R_KEYS,
    R_LOW,
    R_NARROW,
    R_SHIFT,
    R_WORDS,
)
from tideline.kernels.views import halves, words

_LOW32 = 0xFFFFFFFF


@jit
def _bucket(key, low, shift):
    return np.int64((np.uint64(key) - np.uint64(low)) >> np.uint64(shift))


@jit
def direct(run_at):
    """Fill the directory of a run."""
    run = words(run_at, R_WORDS)
    count, buckets = run[R_COUNT], run[R_BUCKETS]
    low, shift = run[R_LOW], run[R_SHIFT]
    directory = halves(run[R_DIRECTORY], buckets + 1)
    filled = 0  # starts of the buckets before this one are known
    if run[R_NARROW]:
        keys = halves(run[R_KEYS], count)
        for i in range(count):
            bucket = _bucket(np.int64(keys[i]) & _LOW32, low, shift)
            while filled <= bucket:
                directory[filled] = i
                filled += 1
    else:
        wide = words(run[R_KEYS], count)
        for i in range(count):
            bucket = _bucket(wide[i], low, shift)
            while filled <= bucket:
                directory[filled] = i
                filled += 1
    while filled <= buckets:
        directory[filled] = count
        filled += 1


@jit
def _seek(run, key, after):
    count = run[R_COUNT]
    if key < run[R_LOW]:
        return 0
    if key > run[R_HIGH]:
        return count
    directory = halves(run[R_DIRECTORY], run[R_BUCKETS] + 1)
    bucket = _bucket(key, run[R_LOW], run[R_SHIFT])
    start, limit = np.int64(directory[bucket]), np.int64(directory[bucket + 1])
    if run[R_NARROW]:
        keys = halves(run[R_KEYS], count)
        while start < limit:
            middle = (start + limit) >> 1
            if (np.int64(keys[middle]) & _LOW32) < key + after:
                start = middle + 1
            else:
                limit = middle
    else:
        wide = words(run[R_KEYS], count)
        while start < limit:
            middle = (start + limit) >> 1
            here = wide[middle]
            if here < key or (after and here == key):
                start = middle + 1
            else:
                limit = middle
    return start


@jit
def seek(run_at, first, last, out_at):
    """out := the positions [start, limit) of the keys from `first` up to `last`, both included."""
    run, out = words(run_at, R_WORDS), words(out_at, 2)
    out[0] = _seek(run, first, 0)
    out[1] = _seek(run, last, 1)


@jit
def find_many(run_at, keys_at, count, out_at):
    """Of each key: the last position that has it, or -1."""
    run, keys, out = words(run_at, R_WORDS), words(keys_at, count), words(out_at, count)
    narrow, own = run[R_NARROW], run[R_COUNT]
    found, wide = halves(run[R_KEYS], own), words(run[R_KEYS], own)
    for i in range(count):
        key = keys[i]
        place = _seek(run, key, 1) - 1
        out[i] = -1
        if place >= 0:
            here = np.int64(found[place]) & _LOW32 if narrow else wide[place]
            if here == key:
                out[i] = place


@jit
def scan(keys_at, count, narrow, first, last, out_at):
    """The positions of the keys from `first` up to `last` in keys without order; how many."""
    out = words(out_at, count)
    found = 0
    if narrow:
        keys = halves(keys_at, count)
        for i in range(count):
            key = np.int64(keys[i]) & _LOW32
            if key >= first and key <= last:
                out[found] = i
                found += 1
    else:
        wide = words(keys_at, count)
        for i in range(count):
            if wide[i] >= first and wide[i] <= last:
                out[found] = i
                found += 1
    return found
