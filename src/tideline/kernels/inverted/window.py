"""Words nearly right inside a window: which entries have them.

    place   := dictionary | postings of each word | boxes, seqs, keys of the entries | fence | nodes
    query   := words with their limits, and windows                          (Q_...)

Entries of a component are numbered along a Hilbert curve, so what lies in a window is in few ranges
of numbers: the window is covered with cells of the curve, and the `fence`, the key of every 64th
entry, leads from keys to numbers. Entries without a place come first, with key -1.

*Nodes* say where words are looked up, in preorder: numbers from start to limit, the node after all
below it, what it does. The words of a node and of those above it are all that its entries have:

    GO     nothing is looked up, the nodes below are gone through
    MORE   words are looked up, and hold for all nodes below as well
    HERE   words are looked up, and its entries are searched

One root that says HERE is one dictionary for all. In a node, the lists of the rarer word are
walked, the others are held against what is left.

Where few entries lie in the window, their own words are looked through instead, and no dictionary
is asked: a component is told the words of each entry (`turn_lists`) when it is first asked about a
window, and how many entries are few.
"""

from __future__ import annotations

import math

from tideline.kernels import jit
from tideline.kernels.inverted.dictionary import (
    CLASSES,
    D_WORDS,
    QUERY_WORD,
    find_by_pieces,
    find_by_scan,
    is_word_near,
    prepare,
)
from tideline.kernels.inverted.lists import seek
from tideline.kernels.lanes import hot
from tideline.kernels.views import doubles, halves, octets, words

__all__ = [
    "CALL_WORDS", "DEEPEST", "FENCE", "F_BOXES", "F_COUNT", "F_FENCE", "F_FENCES", "F_FEW",
    "F_FIRST", "F_KEYS", "F_KEY_OFFSETS", "F_MARGINS", "F_NODES", "F_NODE_COUNT", "F_POSTINGS",
    "F_SEQS", "F_STARTS_OF", "F_WORDS", "F_WORDS_OF", "GO", "HERE", "MORE", "N_BOX", "N_LIMIT",
    "N_NEXT", "N_START", "N_WHAT", "N_WORDS", "emit", "hilbert_keys", "search_fuzzy", "turn_lists",
]  # fmt: skip

# A place: the words of a dictionary, and these.
F_FIRST, F_POSTINGS, F_BOXES, F_SEQS, F_KEY_OFFSETS, F_KEYS, F_COUNT = range(D_WORDS, D_WORDS + 7)
F_FENCE, F_FENCES, F_MARGINS, F_NODES, F_NODE_COUNT = range(D_WORDS + 7, D_WORDS + 12)
# Where the words of each entry begin, and they; how many entries are few, 0: words are not known.
F_STARTS_OF, F_WORDS_OF, F_FEW, F_WORDS = range(D_WORDS + 12, D_WORDS + 16)
N_START, N_LIMIT, N_NEXT, N_WHAT, N_BOX, N_WORDS = 0, 1, 2, 3, 4, 8
GO, MORE, HERE = 0, 1, 2
FENCE = 64
DEEPEST = 16  # nodes one below the other
_RANGES = 40  # of two windows, and one more while they are joined
_SIDE = 24  # bits of a side of the curve
_AROUND = 8  # so many entries are looked at for each that may be in the window
_CELLS = 4  # cells that a window is wide, at most
_MANY = 1 << 60
# A query: words, windows; address of characters (64 halves each), of lengths, of limits (256 halves
# each), of windows (four doubles each).
Q_COUNT, Q_WINDOWS, Q_CODES, Q_LENGTHS, Q_LIMITS, Q_BOXES = range(6)
CALL_WORDS = 128 + 2 * _RANGES + 2 * _RANGES  # scratch: masks, ranges of keys, ranges of numbers


@jit
def _hilbert(x, y):
    """The number of a cell on the curve, 24 bits a side."""
    key = 0
    s = 1 << (_SIDE - 1)
    while s > 0:
        rx = 1 if x & s else 0
        ry = 1 if y & s else 0
        key = (key << 2) | ((3 * rx) ^ ry)
        if ry == 0:
            if rx == 1:
                x = (s - 1) - (x & (s - 1))
                y = (s - 1) - (y & (s - 1))
            x, y = y, x
        x &= s - 1
        y &= s - 1
        s >>= 1
    return key


@hot
def _column(lon):
    return min(max(int((lon + 180.0) * (16777216.0 / 360.0)), 0), 16777215)


@hot
def _row(lat):
    return min(max(int((lat + 90.0) * (16777216.0 / 180.0)), 0), 16777215)


@jit
def hilbert_keys(boxes_at, count, keys_at):
    """The keys of the middles of boxes; -1 for what is nowhere."""
    boxes, keys = doubles(boxes_at, 4 * count), words(keys_at, count)
    for i in range(count):
        x = 0.5 * (boxes[4 * i] + boxes[4 * i + 2])
        y = 0.5 * (boxes[4 * i + 1] + boxes[4 * i + 3])
        keys[i] = -1 if math.isnan(x) else _hilbert(_column(x), _row(y))


@hot
def _first_not_below(fence, count, key):
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if fence[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@hot
def _add_range(ranges, used, start, limit):
    """Add a range to those in order, which do not touch; how many there are then."""
    at = used
    while at > 0 and ranges[2 * at - 2] > start:
        at -= 1
    for i in range(used, at, -1):
        ranges[2 * i], ranges[2 * i + 1] = ranges[2 * i - 2], ranges[2 * i - 1]
    ranges[2 * at], ranges[2 * at + 1] = start, limit
    kept = 0
    for i in range(used + 1):
        if kept > 0 and ranges[2 * i] <= ranges[2 * kept - 1]:
            ranges[2 * kept - 1] = max(ranges[2 * kept - 1], ranges[2 * i + 1])
        else:
            ranges[2 * kept], ranges[2 * kept + 1] = ranges[2 * i], ranges[2 * i + 1]
            kept += 1
    return kept


@jit
def _cover(place, windows, window_count, keys, ranges):
    """The ranges of numbers that what lies in the windows is in; how many.

    `keys` and `ranges` are scratch of `_RANGES` ranges each.
    """
    margins, fence = doubles(place[F_MARGINS], 2), words(place[F_FENCE], place[F_FENCES])
    count, fences = place[F_COUNT], place[F_FENCES]
    used = 0
    for window in range(window_count):
        west = _column(windows[4 * window] - margins[0])
        south = _row(windows[4 * window + 1] - margins[1])
        east = _column(windows[4 * window + 2] + margins[0])
        north = _row(windows[4 * window + 3] + margins[1])
        level = 0
        while (east >> level) - (west >> level) >= _CELLS or (
            (north >> level) - (south >> level) >= _CELLS
        ):
            level += 1
        found = 0
        for x in range(west >> level, (east >> level) + 1):
            for y in range(south >> level, (north >> level) + 1):
                key = (_hilbert(x << level, y << level) >> (2 * level)) << (2 * level)
                found = _add_range(keys, found, key, key + (1 << (2 * level)))
        for i in range(found):
            start = max(_first_not_below(fence, fences, keys[2 * i]) - 1, 0) * FENCE
            limit = min(_first_not_below(fence, fences, keys[2 * i + 1]) * FENCE, count)
            if start < limit:
                used = _add_range(ranges, used, start, limit)
    return used


@hot
def _meets(boxes, at, windows, window_count):
    west, south, east, north = boxes[at], boxes[at + 1], boxes[at + 2], boxes[at + 3]
    for i in range(window_count):
        if (
            west <= windows[4 * i + 2] and east >= windows[4 * i]
            and south <= windows[4 * i + 3] and north >= windows[4 * i + 1]
        ):  # fmt: skip
            return True
    return False


@jit
def _sort(numbers, first, count):
    """Numbers in order, each once; how many are left."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(first + gap, first + count):
            one = numbers[i]
            at = i
            while at - gap >= first and numbers[at - gap] > one:
                numbers[at] = numbers[at - gap]
                at -= gap
            numbers[at] = one
        gap //= 3
    kept = min(count, 1)
    for i in range(1, count):
        if numbers[first + i] != numbers[first + kept - 1]:
            numbers[first + kept] = numbers[first + i]
            kept += 1
    return kept


@jit
def _walk(
    place, found, counts, keywords, room, ranges, range_count, start, limit, windows,
    window_count, out, used, out_room, marks,
):  # fmt: skip
    """Add the entries of a node that have a word of each keyword; how many there are then.

    Those beyond the room are only counted.
    """
    first, postings = words(place[F_FIRST], _MANY), halves(place[F_POSTINGS], _MANY)
    boxes = doubles(place[F_BOXES] if place[F_BOXES] else place[F_FIRST], _MANY)
    driver, cost = 0, _MANY
    for keyword in range(keywords):
        total = 0
        for i in range(keyword * room, keyword * room + counts[keyword]):
            total += first[found[i] + 1] - first[found[i]]
        if total < cost:
            driver, cost = keyword, total
    begin = used
    over = 0
    for i in range(driver * room, driver * room + counts[driver]):
        at, end = first[found[i]], first[found[i] + 1]
        turn = 0
        while turn < range_count:
            low, high = max(ranges[2 * turn], start), min(ranges[2 * turn + 1], limit)
            turn += 1
            if low >= high:
                continue
            at = seek(postings, at, end, low)
            while at < end and postings[at] < high:
                entry = postings[at]
                at += 1
                if window_count == 0 or _meets(boxes, 4 * entry, windows, window_count):
                    if used < out_room:
                        out[used] = entry
                        used += 1
                    else:
                        over += 1
    count = _sort(out, begin, used - begin)
    for keyword in range(keywords):
        if keyword == driver or count == 0:
            continue
        for i in range(count):
            marks[i] = 0
        for i in range(keyword * room, keyword * room + counts[keyword]):
            at, end = first[found[i]], first[found[i] + 1]
            for j in range(count):
                at = seek(postings, at, end, out[begin + j])
                if at == end:
                    break
                if postings[at] == out[begin + j]:
                    marks[j] = 1
        kept = 0
        for i in range(count):
            if marks[i]:
                out[begin + kept] = out[begin + i]
                kept += 1
        count = kept
    return begin + count + (out_room if over else 0) + over


@jit
def turn_lists(place_at, word_count, starts_at, words_at):
    """The words of each entry, given the entries of each word; there is room for all."""
    place = words(place_at, F_WORDS)
    count = place[F_COUNT]
    first = words(place[F_FIRST], word_count + 1)
    postings = halves(place[F_POSTINGS], first[word_count])
    starts, into = words(starts_at, count + 2), halves(words_at, first[word_count])
    for entry in range(count + 2):
        starts[entry] = 0
    for i in range(first[word_count]):
        if 0 <= postings[i] < count:  # of what is damaged nothing is written elsewhere
            starts[postings[i] + 2] += 1
    for entry in range(count):
        starts[entry + 2] += starts[entry + 1]
    for word in range(word_count):  # each start moves to its end, where the next one begins
        for i in range(first[word], first[word + 1]):
            entry = postings[i]
            if 0 <= entry < count:
                into[starts[entry + 1]] = word
                starts[entry + 1] += 1


@jit
def _look_through(place_at, query, windows, window_count, ranges, range_count, out, few, scratch):
    """The entries of ranges that meet a query, by their own words; -1 when more than a few lie in
    the windows."""
    place = words(place_at, F_WORDS)
    boxes = doubles(place[F_BOXES], 4 * place[F_COUNT])
    used = 0
    for turn in range(range_count):
        for entry in range(ranges[2 * turn], ranges[2 * turn + 1]):
            if _meets(boxes, 4 * entry, windows, window_count):
                if used == few:
                    return -1
                out[used] = entry
                used += 1
    starts, of = words(place[F_STARTS_OF], place[F_COUNT] + 1), halves(place[F_WORDS_OF], _MANY)
    lengths = words(query[Q_LENGTHS], query[Q_COUNT])
    for keyword in range(query[Q_COUNT]):
        if used == 0:
            break
        codes_at = query[Q_CODES] + 4 * QUERY_WORD * keyword
        limits_at = query[Q_LIMITS] + 4 * CLASSES * keyword
        length = lengths[keyword]
        signature = prepare(codes_at, length, scratch)
        limits = halves(limits_at, CLASSES)
        most = 0
        for other in range(CLASSES):
            most = max(most, limits[other])
        kept = 0
        for i in range(used):
            entry = out[i]
            for at in range(starts[entry], starts[entry + 1]):
                if is_word_near(
                    place_at, of[at], codes_at, length, signature, limits_at, scratch, most
                ):
                    out[kept] = entry
                    kept += 1
                    break
        used = kept
    return used


@jit
def search_fuzzy(
    place_at, query_at, found_at, room, out_at, out_room, marks_at, counts_at, scratch_at
):  # fmt: skip
    """The entries of a place that have a word near each one asked for; how many.

    `found` has room for so many words of each keyword, `out` and `marks` for entries, `counts` for
    a count of each keyword, at each depth. A result above `out_room` says how much room is wanted;
    one below 0, how much for words.
    """
    place, query = words(place_at, F_WORDS), words(query_at, 6)
    keywords, window_count = query[Q_COUNT], query[Q_WINDOWS]
    windows = doubles(query[Q_BOXES], 4 * window_count)
    lengths = words(query[Q_LENGTHS], keywords)
    found, out, marks = (
        halves(found_at, keywords * room),
        halves(out_at, out_room),
        octets(marks_at, out_room),
    )
    counts = words(counts_at, (DEEPEST + 1) * keywords)
    keys_at = scratch_at + 8 * 128
    ranges = words(keys_at + 16 * _RANGES, 2 * _RANGES)
    if window_count and place[F_BOXES] == 0:
        return 0  # nothing has a place
    range_count = 1
    ranges[0], ranges[1] = 0, place[F_COUNT]
    if window_count and place[F_FENCES]:
        range_count = _cover(place, windows, window_count, words(keys_at, 2 * _RANGES), ranges)
        if range_count == 0:
            return 0
        if place[F_FEW]:
            near = 0
            for i in range(range_count):
                near += ranges[2 * i + 1] - ranges[2 * i]
            if near <= _AROUND * place[F_FEW]:
                used = _look_through(
                    place_at, query, windows, window_count, ranges, range_count, out,
                    min(place[F_FEW], out_room), scratch_at,
                )  # fmt: skip
                if used >= 0:
                    return used
    most = 0
    for keyword in range(keywords):
        codes_at = query[Q_CODES] + 4 * QUERY_WORD * keyword
        limits_at = query[Q_LIMITS] + 4 * CLASSES * keyword
        signature = prepare(codes_at, lengths[keyword], scratch_at)
        counts[keyword] = find_by_scan(
            place_at, codes_at, lengths[keyword], signature, limits_at, scratch_at,
            found_at + 4 * room * keyword, 0, room,
        )  # fmt: skip
        most = max(most, counts[keyword])
    if most > room:
        return -most
    nodes = words(place[F_NODES], N_WORDS * place[F_NODE_COUNT])
    node, used = 0, 0
    depth = 0
    ends = words(counts_at + 8 * (DEEPEST + 1) * keywords, DEEPEST + 1)
    ends[0] = place[F_NODE_COUNT]
    while node < place[F_NODE_COUNT]:
        at = N_WORDS * node
        while depth > 0 and node >= ends[depth]:
            depth -= 1
        inside = False
        for i in range(range_count):
            if ranges[2 * i] < nodes[at + N_LIMIT] and ranges[2 * i + 1] > nodes[at + N_START]:
                inside = True
        if inside and window_count and place[F_NODE_COUNT] > 1:
            box = doubles(place[F_NODES] + 8 * (at + N_BOX), 4)
            inside = _meets(box, 0, windows, window_count)
        if not inside:
            node = nodes[at + N_NEXT]
            continue
        what = nodes[at + N_WHAT]
        here = depth + 1
        for keyword in range(keywords):
            count = counts[depth * keywords + keyword]
            if what != GO:
                codes_at = query[Q_CODES] + 4 * QUERY_WORD * keyword
                limits_at = query[Q_LIMITS] + 4 * CLASSES * keyword
                signature = prepare(codes_at, lengths[keyword], scratch_at)
                count = find_by_pieces(
                    place_at, node, codes_at, lengths[keyword], signature, limits_at, scratch_at,
                    found_at + 4 * room * keyword, count, room,
                )  # fmt: skip
                if count > room:
                    return -count
                # Those of the nodes above stay in front.
                above = counts[depth * keywords + keyword]
                count = above + _sort(found, keyword * room + above, count - above)
            counts[here * keywords + keyword] = count
        if what == HERE:
            all_there = True
            for keyword in range(keywords):
                if counts[here * keywords + keyword] == 0:
                    all_there = False
            if all_there:
                used = _walk(
                    place, found, words(counts_at + 8 * here * keywords, keywords), keywords, room,
                    ranges, range_count, nodes[at + N_START], nodes[at + N_LIMIT], windows,
                    window_count, out, used, out_room, marks,
                )  # fmt: skip
                if used > out_room:
                    return used
            node = nodes[at + N_NEXT]
        else:
            depth = here
            ends[depth] = nodes[at + N_NEXT]
            node += 1
    return used


@jit
def emit(place_at, entries_at, count, below, seqs_at, ats_at, sizes_at):
    """Seq, address and size of the key of entries with a seq below `below`; how many."""
    place, entries = words(place_at, F_WORDS), halves(entries_at, count)
    seqs, key_offsets = words(place[F_SEQS], _MANY), words(place[F_KEY_OFFSETS], _MANY)
    to_seqs, to_ats, to_sizes = words(seqs_at, count), words(ats_at, count), words(sizes_at, count)
    found = 0
    for i in range(count):
        entry = entries[i]
        if seqs[entry] < below:
            to_seqs[found] = seqs[entry]
            to_ats[found] = place[F_KEYS] + key_offsets[entry]
            to_sizes[found] = key_offsets[entry + 1] - key_offsets[entry]
            found += 1
    return found
