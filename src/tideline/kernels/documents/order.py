"""Byte strings in order: a merge sort by prefix, then bytes (octets.py)."""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.entries import (
    LOW32,
    M_ARENA,
    V_AT,
    V_PREFIX,
    V_SIZE,
    V_WORDS,
    memory,
    values_of,
)
from tideline.kernels.documents.octets import order_bytes
from tideline.kernels.views import words

__all__ = ["compare", "merge_orders", "sort_run", "sort_ties"]


@jit
def compare(a_prefix, a, a_size, b_prefix, b, b_size):
    """-1, 0 or 1 as the bytes at `a` sort before, with or after those at `b`."""
    if a_prefix != b_prefix:
        return -1 if a_prefix < b_prefix else 1
    return order_bytes(a, a_size, b, b_size)


@jit
def sort_run(order, scratch, start, limit, prefixes, addresses, lengths):
    """Sort order[start:limit), numbers of byte strings, by their bytes; a stable merge sort.

    Short runs by insertion, then merged pairwise with the help of `scratch`, which is as
    long as `order`.
    """
    step = 12
    at = start
    while at < limit:
        end = min(at + step, limit)
        for i in range(at + 1, end):
            one = order[i]
            p, a, n = prefixes[one], addresses[one], lengths[one]
            j = i - 1
            while j >= at:
                other = order[j]
                if compare(prefixes[other], addresses[other], lengths[other], p, a, n) <= 0:
                    break
                order[j + 1] = other
                j -= 1
            order[j + 1] = one
        at = end
    while step < limit - start:
        at = start
        while at + step < limit:
            middle = at + step
            end = min(middle + step, limit)
            for i in range(at, middle):
                scratch[i] = order[i]
            left, right, put = at, middle, at
            while left < middle and right < end:
                x = scratch[left]
                y = order[right]
                if compare(prefixes[x], addresses[x], lengths[x],
                           prefixes[y], addresses[y], lengths[y]) <= 0:  # fmt: skip
                    order[put] = x
                    left += 1
                else:
                    order[put] = y
                    right += 1
                put += 1
            while left < middle:
                order[put] = scratch[left]
                left += 1
                put += 1
            at = end
        step *= 2


@jit
def sort_ties(order_at, scratch_at, prefixes_at, addresses_at, lengths_at, count):
    """Finish an order by prefix: sort every run of one prefix by the rest of the bytes."""
    order = words(order_at, count)
    scratch = words(scratch_at, count)
    prefixes = words(prefixes_at, count)
    addresses = words(addresses_at, count)
    lengths = words(lengths_at, count)
    start = 0
    while start < count:
        limit = start + 1
        while limit < count and prefixes[order[limit]] == prefixes[order[start]]:
            limit += 1
        if limit - start > 1:
            sort_run(order, scratch, start, limit, prefixes, addresses, lengths)
        start = limit


@jit
def merge_orders(address, a_at, a_count, b_at, b_count, out_at):
    """Merge two orders of values of a memory into one."""
    m = memory(address)
    values = values_of(m)
    a = words(a_at, a_count)
    b = words(b_at, b_count)
    out = words(out_at, a_count + b_count)
    i, j = 0, 0
    while i < a_count and j < b_count:
        x, y = a[i] * V_WORDS, b[j] * V_WORDS
        side = compare(
            values[x + V_PREFIX], m[M_ARENA] + values[x + V_AT], values[x + V_SIZE] & LOW32,
            values[y + V_PREFIX], m[M_ARENA] + values[y + V_AT], values[y + V_SIZE] & LOW32,
        )  # fmt: skip
        if side < 0:
            out[i + j] = a[i]
            i += 1
        else:
            out[i + j] = b[j]
            j += 1
    while i < a_count:
        out[i + j] = a[i]
        i += 1
    while j < b_count:
        out[i + j] = b[j]
        j += 1
