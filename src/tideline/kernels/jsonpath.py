"""What lies at a few paths in each of many JSON texts, in one pass and without decoding.

    nodes    the paths as a tree in preorder, NODE words each: node 0 is the body itself
             0 the first node after its subtree | 1 address and 2 size of its name (UTF-8)
    tags     [node, row]   kind + more << 8        values   [node, row]
             MISSING, NULL, FALSE, TRUE, OBJECT
             INT        the number                 FLOAT    the bits of the number
             TEXT       where it begins in the data; the tag has its size in bytes
             ESCAPED    the same, but it has escapes: the bytes are not yet the text
             ARRAY      how many elements it has; the tag has where it begins in the data,
                        after its bracket
             UNSURE     a number that is not read exactly here
    row 0    of the tags: OBJECT when the row is valid JSON, an object and read, else UNSURE

So UNSURE is the way out for everything rare, a wanted name that stands twice for one, and
for all that is not JSON: the caller decodes such a row. What is not UNSURE is exactly what
a decoder gives; below an array nothing is looked for, so nodes there are MISSING.

How it is fast. The texts are taken in tiles of rows. First, two maps are made of a tile,
with a bit a byte: where plain text stops, and what is no digit. The end of a text or a
number is then found by one look at a map (`jsonends.py`). Second, what stands before a
value, its *lead* (separator, name, colon, white space, opening quote or bracket), is
mostly what stood there in the row before. Leads are kept, each with a guess which one
comes next; if the 32 bytes at hand confirm it, all of that is done by one comparison.

    lead     LEAD bytes: 0 the text | 32 context: twice the address of the lead of the
             object around it, plus 1 for a first member | 40 guess: address of a lead
             48 mask of the size (32 bits) | 52 size | 54 node, 0 when unwanted
             56 the opening quote or bracket, or 0 (16 bits each)
             60 the guess before this one, in bytes from the first lead (32 bits)
    leads    the first stands for leads that are not kept: its context is none.
             The second stands before a row: its guess is how rows begin. Then LEADS slots.

A lead is never replaced while rows are read, so its address stands for one path: two
objects with members of the same names have different leads.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.jsonends import (
    ARRAY,
    ESCAPED,
    FALSE,
    MISSING,
    NULL,
    OBJECT,
    TEXT,
    TRUE,
    array_end,
    number_end,
    skip_space,
    take_number,
    text_end,
    text_stop,
    word_kind,
    word_size,
)  # fmt: skip
from tideline.kernels.jsonnumber import FLOAT, INT, UNSURE
from tideline.kernels.lanes import (
    LANES,
    apart,
    differences,
    get8,
    get16,
    get32,
    get64,
    hot,
    non_digits,
    put16,
    put32,
    put64,
    text_stops,
)  # fmt: skip

__all__ = [
    "ARRAY", "DEPTH", "ESCAPED", "FALSE", "FLOAT", "INT", "KINDS", "LEAD", "LEADS", "MISSING",
    "NODE", "NULL", "OBJECT", "PADDING", "TEXT", "TRUE", "UNSURE", "scan",
]  # fmt: skip

KINDS = 11
PADDING = 192  # how many bytes past the end of a row may be read, whatever they are
DEPTH = 64  # objects inside one another; what is deeper is UNSURE
NODE = 3
LEAD, LEADS, _PROBES = 64, 256, 8
_TILE_ROWS = 64

_BODY = 2  # the context of the body's members: no address
_CONTEXT, _GUESS, _MASK, _SIZE, _NODE, _OPENING, _GUESS2 = 32, 40, 48, 52, 54, 56, 60
_QUOTE, _COMMA, _COLON, _NINE = 0x22, 0x2C, 0x3A, 0x39
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY = 0x7B, 0x7D, 0x5B


# ---- leads ----------------------------------------------------------------------


@apart
def _child(i, size, node, nodes):
    """The child of a node that has the name of `size` bytes at `i`, or 0."""
    if node < 0:
        return 0
    child = node + 1
    after = get64(nodes + 8 * NODE * node)
    while child < after:
        at = nodes + 8 * NODE * child
        if get64(at + 16) == size:
            name = get64(at + 8)
            k = 0
            while k < size and get8(name + k) == get8(i + k):
                k += 1
            if k == size:
                return child
        child = get64(at)
    return 0


@hot
def _set_guess(last, lead, leads):
    """A new guess; the one before becomes the second."""
    put32(last + _GUESS2, get64(last + _GUESS) - leads)
    put64(last + _GUESS, lead)


@apart
def _read_lead(i, limit, node, context, last, leads, nodes, stops):
    """The lead at `i`, not guessed: (its end, the lead).

    The end is -1 if this is no lead, and -2 - address if the object ends at that address.
    The lead is kept if there is room, and becomes the guess of the last one.
    """
    begin = i
    at = leads + get32(last + _GUESS2)
    if get64(at + _CONTEXT) == context and not differences(i, at) & get32(at + _MASK):
        _set_guess(last, at, leads)
        return i + get16(at + _SIZE), at
    i = skip_space(i, limit)
    if get8(i) == _CLOSE_OBJECT:
        return -2 - i, leads
    if not context & 1:
        if get8(i) != _COMMA:
            return -1, leads
        i = skip_space(i + 1, limit)
    if get8(i) != _QUOTE:
        return -1, leads
    name = i + 1
    i, kind = text_end(name, limit, stops)
    if i < 0 or (kind == ESCAPED and node >= 0):  # what it says may be a name we look for
        return -1, leads
    size = i - 1 - name
    i = skip_space(i, limit)
    if get8(i) != _COLON:
        return -1, leads
    i = skip_space(i + 1, limit)
    if i >= limit:
        return -1, leads
    opening = get8(i)
    if opening == _QUOTE or opening == _OPEN_OBJECT or opening == _OPEN_ARRAY:
        i += 1
    else:
        opening = 0
    count = i - begin
    mask = (1 << count) - 1
    lead = leads
    if count <= LANES:
        slot = (get64(name) & ((1 << min(8 * size, 62)) - 1)) + context + count
        slot *= -7046029254386353131
        slot ^= slot >> 32
        for probe in range(_PROBES):
            at = leads + LEAD * (2 + ((slot + probe) & (LEADS - 1)))
            there = get64(at + _CONTEXT)
            if there == context and get16(at + _SIZE) == count:
                if differences(begin, at) & mask == 0:
                    _set_guess(last, at, leads)
                    return i, at
            if there == 0:
                lead = at
                for k in range(0, LANES, 8):
                    put64(lead + k, get64(begin + k))
                put64(lead + _CONTEXT, context)
                put64(lead + _GUESS, leads)
                put32(lead + _MASK, mask)
                put16(lead + _SIZE, count)
                _set_guess(last, lead, leads)
                break
    put16(lead + _NODE, _child(name, size, node, nodes))
    put16(lead + _OPENING, opening)
    return i, lead


# ---- rows -----------------------------------------------------------------------


@hot
def _read_row(i, limit, base, nodes, leads, stack, tags, values, stride, stops, others):
    """Read the row `[i, limit)`: whether it is a valid object that was read whole.

    What no node wants goes to node 0, whose tag the caller sets afterwards.
    """
    i = skip_space(i, limit)
    if i >= limit or get8(i) != _OPEN_OBJECT:
        return False
    i += 1
    node = 0  # of the object around; -1 when nothing in it is wanted
    context = _BODY | 1
    depth = 0
    lead = leads + LEAD
    while i < limit:
        guess = get64(lead + _GUESS)
        if get64(guess + _CONTEXT) == context and not (
            differences(i, guess) & get32(guess + _MASK)
        ):
            i += get16(guess + _SIZE)
            lead = guess
        else:
            if get8(i) == _CLOSE_OBJECT:
                i = -2 - i
            else:
                i, lead = _read_lead(i, limit, node, context, lead, leads, nodes, stops)
            if i < 0:
                if i == -1:
                    return False
                i = -1 - i
                if depth == 0:
                    return i <= limit and skip_space(i, limit) == limit
                depth -= 1
                context = get64(stack + 16 * depth)
                node = get64(stack + 16 * depth + 8)
                continue
        context &= -2
        child = get16(lead + _NODE)
        opening = get16(lead + _OPENING)
        if child == 0:  # unwanted: the common cases, in a few instructions
            if opening == _QUOTE:
                end = text_stop(i, limit, stops)
                if get8(end) == _QUOTE:
                    i = end + 1
                    continue
            elif opening == 0 and get8(i) <= _NINE:
                i = number_end(i, limit, others)
                if i < 0:
                    return False
                continue
        tag = tags + child * stride
        value = values + child * stride
        if child and get64(tag) != MISSING:
            return False  # the name stands twice
        if opening == _QUOTE:
            begin = i
            i, kind = text_end(i, limit, stops)
            put64(tag, kind | (i - 1 - begin) << 8)
            put64(value, begin - base)
        elif opening == _OPEN_OBJECT:
            put64(tag, OBJECT)
            if depth == DEPTH:
                return False
            put64(stack + 16 * depth, context)
            put64(stack + 16 * depth + 8, node)
            depth += 1
            node = child if child and get64(nodes + 8 * NODE * child) > child + 1 else -1
            # A lead that was not kept is no address of a path; the node says enough then.
            context = (lead if lead != leads else -2 - node) << 1 | 1
        elif opening == _OPEN_ARRAY:
            put64(tag, ARRAY | (i - base) << 8)
            i, count = array_end(i, limit, stops, others)
            put64(value, count)
        else:
            c = get8(i)
            if c > _NINE:
                kind = word_kind(i, c)
                if kind == MISSING:
                    return False
                put64(tag, kind)
                i += word_size(c)
            else:
                i, kind, number = take_number(i, limit, others)
                put64(tag, kind)
                put64(value, number)
        if i < 0:
            return False
    return False


@jit
def scan(base, offsets, first, last, nodes, leads, stack, tags, values, maps):
    """Read the rows `[first, last)`: row r is the text at `base + offsets[r]`, to the next offset.

    `tags`, which must be MISSING, and `values` get what was found. `leads`, zeros at first,
    may be kept for more rows with the same nodes. `stack` has room for DEPTH pairs, `maps`
    are two rows of bits with room for the longest text and PADDING more. Up to PADDING
    bytes after the last row are read, and before the first the rest of its aligned word.
    """
    nodes_at, stack_at = np.int64(nodes.ctypes.data), np.int64(stack.ctypes.data)
    leads_at = np.int64(leads.ctypes.data)
    tags_at, values_at = np.int64(tags.ctypes.data), np.int64(values.ctypes.data)
    stride = 8 * tags.shape[1]
    room = 8 * maps.shape[1] - PADDING
    put64(leads_at + _GUESS, leads_at)
    if get64(leads_at + LEAD + _GUESS) == 0:
        put64(leads_at + LEAD + _GUESS, leads_at)
    maps_at = np.int64(maps.ctypes.data)
    row = first
    while row < last:
        tile_row = row
        tile = (base + offsets[row]) & -8
        row += 1
        while row < last and row - tile_row < _TILE_ROWS and base + offsets[row + 1] <= tile + room:
            row += 1
        stops = maps_at - (tile >> 3)
        others = stops + maps.shape[1]
        for i in range(tile, base + offsets[row] + 128, LANES):
            put32(stops + (i >> 3), text_stops(i))
            put32(others + (i >> 3), non_digits(i))
        for r in range(tile_row, row):
            good = _read_row(
                base + offsets[r], base + offsets[r + 1], base, nodes_at, leads_at, stack_at,
                tags_at + 8 * r, values_at + 8 * r, stride, stops, others,
            )  # fmt: skip
            put64(tags_at + 8 * r, OBJECT if good else UNSURE)
