"""Which standing conditions the old and the new image of each row meet.

A row makes a token for every shape in use (tokens.py) and walks the lists of those that are in the
table. Eight rows are done together, tokens first and lists after: so slots, then lists, are on
their way into the cache before they are looked at. A token that both images make is walked once for
both. What was met is stamped on the condition; at the end of the row, the stamps say what the
change is. Nothing is kept from one row to the next.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.lanes import get32, get64, hot, put32, put64
from tideline.kernels.standing.checks import check, run_box
from tideline.kernels.standing.layout import (
    ADD,
    BLOCK,
    C_BLOCK,
    C_COLUMNS,
    C_COLUMNS_COUNT,
    C_FOUND,
    C_FOUND_ROOM,
    C_GIVEN,
    C_HITS,
    C_NEW_TAGS,
    C_OLD_TAGS,
    C_OUT_COUNT,
    C_OUT_KINDS,
    C_OUT_NUMBERS,
    C_OUT_OPEN,
    C_OUT_ROOM,
    C_OUT_ROWS,
    C_PARENTS,
    C_ROW,
    C_ROWS,
    C_SLOW,
    C_SLOW_COUNT,
    C_STARTS,
    C_STRIDE,
    C_TOKENS,
    C_TOKENS_ROOM,
    CELL,
    CHANGE,
    ENTRY,
    F_ALONE,
    F_ANY,
    F_MAYBE,
    K_NUMBER,
    K_TEXT,
    LOW,
    MANY,
    NEW_MAYBE,
    NEW_YES,
    NONE,
    NOT,
    OBJECT,
    OLD_MAYBE,
    OLD_YES,
    OP_CIRCLE,
    OP_NEAR_RING,
    OPEN,
    OTHER,
    PAIR,
    R_COUNT,
    R_FOUND,
    R_MANY,
    R_STARTS,
    R_STATE,
    R_TOKENS,
    R_WORDS,
    REMOVE,
    S_ENTRIES,
    S_EPOCH,
    S_MASK,
    S_PROGRAMS,
    S_SEED,
    S_SHAPES,
    S_SHAPES_COUNT,
    S_SLOTS,
    S_STAMPS,
    S_TEXTS,
    SHAPE,
    SLOT,
    SLOW,
    VALUE,
)
from tideline.kernels.standing.tokens import pairs_of, slots_of, tokens_of
from tideline.kernels.standing.values import load
from tideline.kernels.views import octets

__all__ = ["match"]

# ---- lists ----------------------------------------------------------------------------


@hot
def _inline(state, entry, starts, found, is_object):
    """What the check inside an entry says of an image."""
    about = get64(entry + 24)
    if not is_object:
        return 2 if (about >> 56) & F_ANY else 0
    op = (about >> 48) & 255
    if op == 0:
        return 2
    texts, more = get64(state + 8 * S_TEXTS), get64(entry + 16)
    verdict = check(op & ~NOT, (about >> 32) & 0xFFFF, entry, more, starts, found, texts)
    return 2 - verdict if op & NOT else verdict


@hot
def _finished(state, entry, verdict, starts, found, is_object):
    """What an entry says of an image, once the check inside it has not said no."""
    about = get64(entry + 24)
    flags = (about >> 56) & 255
    box = get64(entry + 16) & LOW
    if box and is_object and (verdict == 1 or not flags & F_ALONE):
        op = (about >> 48) & 255
        skip = 1 if verdict == 2 and (op == OP_CIRCLE or op == OP_NEAR_RING) else 0
        box = get64(state + 8 * S_PROGRAMS) + 8 * box
        verdict = run_box(box, skip, starts, found, get64(state + 8 * S_TEXTS))
    return min(verdict, 1) if flags & F_MAYBE else verdict


@hot
def _stamp(state, number, bits, epoch, hits, count):
    """Stamp a condition; those met first in this row are noted."""
    at = get64(state + 8 * S_STAMPS) + 4 * number
    there = get32(at)
    if there >> 4 != epoch:
        put32(at, epoch << 4 | bits)
        put64(hits + 8 * count, number)
        return count + 1
    put32(at, there | bits)
    return count


@jit
def _same_columns(old, new, columns):
    """Which of the first 63 columns have one and the same value in both images; 0 if unlike."""
    if get64(old + 8 * R_STATE) != OBJECT or get64(new + 8 * R_STATE) != OBJECT:
        return 0
    old_starts, old_found = get64(old + 8 * R_STARTS), get64(old + 8 * R_FOUND)
    new_starts, new_found = get64(new + 8 * R_STARTS), get64(new + 8 * R_FOUND)
    same = 0
    for c in range(min(columns, 63)):
        a, b = get64(old_starts + 8 * c), get64(new_starts + 8 * c)
        if get64(old_starts + 8 * c + 8) - a != 1 or get64(new_starts + 8 * c + 8) - b != 1:
            continue
        a, b = old_found + 8 * VALUE * a, new_found + 8 * VALUE * b
        if get64(a) == get64(b) and get64(a + 8) == get64(b + 8) and get64(a) != K_TEXT:
            if get64(a + 16) == get64(b + 16) and get64(a + 24) == get64(b + 24):
                same |= 1 << c
    return same


@jit
def _walk(state, slot, images, same, old, new, epoch, hits, count):
    """Every entry of a list, for the images (1 the old, 2 the new, 3 both).

    What the check in an entry says of a column that is the same in both, it says of both.
    """
    entry = get64(state + 8 * S_ENTRIES) + 8 * ENTRY * get64(slot + 8)
    limit = entry + 8 * ENTRY * (get64(slot + 16) & LOW)
    old_starts, old_found = get64(old + 8 * R_STARTS), get64(old + 8 * R_FOUND)
    new_starts, new_found = get64(new + 8 * R_STARTS), get64(new + 8 * R_FOUND)
    old_object = get64(old + 8 * R_STATE) == OBJECT
    new_object = get64(new + 8 * R_STATE) == OBJECT
    while entry < limit:
        was = now = 0
        if images & 1:
            was = _inline(state, entry, old_starts, old_found, old_object)
        if images & 2:
            column = (get64(entry + 24) >> 32) & 0xFFFF
            if images == 3 and column < 63 and same >> column & 1:
                now = was
            else:
                now = _inline(state, entry, new_starts, new_found, new_object)
        if was:
            was = _finished(state, entry, was, old_starts, old_found, old_object)
        if now:
            now = _finished(state, entry, now, new_starts, new_found, new_object)
        if was | now:
            bits = 0
            if was:
                bits = OLD_YES if was == 2 else OLD_MAYBE
            if now:
                bits |= NEW_YES if now == 2 else NEW_MAYBE
            count = _stamp(state, get64(entry + 24) & LOW, bits, epoch, hits, count)
        entry += 8 * ENTRY
    return count


@jit
def _walk_ranges(state, column, images, old, new, epoch, hits, count):
    """Every condition that is filed by a range of a column, for images with several numbers there.

    Their two ends may be met by two numbers, so no cell finds them.
    """
    slots, shapes = get64(state + 8 * S_SLOTS), get64(state + 8 * S_SHAPES)
    for i in range(get64(state + 8 * S_MASK) + 1):
        slot = slots + 8 * SLOT * i
        if get64(slot) and get64(slot + 16) & LOW:
            shape = shapes + 8 * SHAPE * ((get64(slot + 16) >> 40) & 0xFFFFFF)
            kind = get64(shape)
            ranged = kind == CELL and get64(shape + 8) == column
            if ranged or (kind == PAIR and get64(shape + 16) == column):
                count = _walk(state, slot, images, 0, old, new, epoch, hits, count)
    return count


@jit
def _several(image, column):
    """Whether a column of an image has several numbers."""
    if get64(image + 8 * R_STATE) != OBJECT:
        return False
    starts, found = get64(image + 8 * R_STARTS), get64(image + 8 * R_FOUND)
    value = found + 8 * VALUE * get64(starts + 8 * column)
    limit = found + 8 * VALUE * get64(starts + 8 * column + 8)
    numbers = 0
    while value < limit:
        numbers += get64(value) == K_NUMBER
        value += 8 * VALUE
    return numbers > 1


@jit
def _ranges(state, columns, old, new, epoch, hits, count):
    """Conditions by ranges, for the columns that have several numbers in an image."""
    shapes = get64(state + 8 * S_SHAPES)
    for column in range(columns):
        images = 1 if _several(old, column) else 0
        if _several(new, column):
            images |= 2
        if images:
            for s in range(get64(state + 8 * S_SHAPES_COUNT)):
                shape = shapes + 8 * SHAPE * s
                if get64(shape + 32) and (
                    (get64(shape) == CELL and get64(shape + 8) == column)
                    or (get64(shape) == PAIR and get64(shape + 16) == column)
                ):
                    count = _walk_ranges(state, column, images, old, new, epoch, hits, count)
                    break
    return count


# ---- rows -----------------------------------------------------------------------------


@jit
def _image(state, call, image, read, place, number):
    """Read an image of the row at a place, as image `number` of the block, and make its tokens."""
    columns = get64(call + 8 * C_COLUMNS_COUNT)
    if get64(call + 8 * C_GIVEN):
        states = get64(image + 32)
        what = NONE if states == 0 else get64(states + 8 * place)
        put64(read + 8 * R_MANY, MANY)
        starts, found = get64(image + 40) + 8 * (columns + 1) * place, get64(image + 48)
    else:
        room = get64(call + 8 * C_FOUND_ROOM)
        starts = get64(call + 8 * C_STARTS) + 8 * (columns + 1) * number
        found = get64(call + 8 * C_FOUND) + 8 * VALUE * (room + 1) * number
        what = NONE
        if get64(image):
            what = load(
                image, place, get64(call + 8 * C_STRIDE), get64(call + 8 * C_COLUMNS), columns,
                get64(call + 8 * C_PARENTS), starts, found, room, get64(state + 8 * S_SEED),
            )  # fmt: skip
        put64(read + 8 * R_MANY, what & MANY)
        what &= ~MANY
    room = get64(call + 8 * C_TOKENS_ROOM)
    tokens = get64(call + 8 * C_TOKENS) + 8 * room * number
    count = 0
    if what == OBJECT or what == OTHER:
        count = tokens_of(state, starts, found, what == OBJECT, tokens, room)
    put64(read + 8 * R_STATE, what)
    put64(read + 8 * R_STARTS, starts)
    put64(read + 8 * R_FOUND, found)
    put64(read + 8 * R_TOKENS, tokens)
    put64(read + 8 * R_COUNT, count)


@jit
def _emit(state, call, row, hits, count):
    """Tell what became of a row for the conditions that were stamped."""
    out = get64(call + 8 * C_OUT_COUNT)
    rows, numbers = get64(call + 8 * C_OUT_ROWS), get64(call + 8 * C_OUT_NUMBERS)
    kinds = octets(get64(call + 8 * C_OUT_KINDS), get64(call + 8 * C_OUT_ROOM))
    stamps = get64(state + 8 * S_STAMPS)
    for i in range(count):
        number = get64(hits + 8 * i)
        bits = get32(stamps + 4 * number) & 15
        if bits & OLD_YES:
            bits &= ~OLD_MAYBE
        if bits & NEW_YES:
            bits &= ~NEW_MAYBE
        kind = OPEN + bits
        if bits == NEW_YES:
            kind = ADD
        elif bits == OLD_YES:
            kind = REMOVE
        elif bits == OLD_YES | NEW_YES:
            kind = CHANGE
        else:
            put64(call + 8 * C_OUT_OPEN, get64(call + 8 * C_OUT_OPEN) + 1)
        put64(rows + 8 * out, row)
        put64(numbers + 8 * out, number)
        kinds[out] = kind
        out += 1
    put64(call + 8 * C_OUT_COUNT, out)


@jit
def _row(state, call, old, new):
    """Walk the lists of one row: how many conditions are among the hits."""
    epoch = get64(state + 8 * S_EPOCH) + 1
    put64(state + 8 * S_EPOCH, epoch)
    hits = get64(call + 8 * C_HITS)
    old_slots, new_slots = get64(old + 8 * R_TOKENS), get64(new + 8 * R_TOKENS)
    old_count, new_count = get64(old + 8 * R_COUNT), get64(new + 8 * R_COUNT)
    count = 0
    together = old_count == new_count
    columns = get64(call + 8 * C_COLUMNS_COUNT)
    same = _same_columns(old, new, columns)
    for i in range(max(old_count, new_count)):
        old_slot = get64(old_slots + 8 * i) if i < old_count else 0
        new_slot = get64(new_slots + 8 * i) if i < new_count else 0
        if together and old_slot == new_slot:
            if old_slot:
                count = _walk(state, old_slot, 3, same, old, new, epoch, hits, count)
            continue
        if old_slot:
            count = _walk(state, old_slot, 1, 0, old, new, epoch, hits, count)
        if new_slot:
            count = _walk(state, new_slot, 2, 0, old, new, epoch, hits, count)
    if get64(old + 8 * R_MANY) | get64(new + 8 * R_MANY):
        count = _ranges(state, columns, old, new, epoch, hits, count)
    return count


@jit
def match(state, call):
    """Match the rows from C_ROW on. False: there was no room for what was found, or for tokens.

    Rows that have to be decoded are noted and left out.
    """
    given = get64(call + 8 * C_GIVEN)
    block = get64(call + 8 * C_BLOCK)
    rows = get64(call + 8 * C_ROWS)
    room = get64(call + 8 * C_TOKENS_ROOM)
    place = get64(call + 8 * C_ROW)
    good = True
    while place < rows and good:
        size = min(BLOCK, rows - place)
        for b in range(size):
            read = block + 16 * R_WORDS * b
            _image(state, call, call + 8 * C_OLD_TAGS, read, place + b, 2 * b)
            _image(state, call, call + 8 * C_NEW_TAGS, read + 8 * R_WORDS, place + b, 2 * b + 1)
        for b in range(2 * size):
            read = block + 8 * R_WORDS * b
            if get64(read + 8 * R_STATE) == OBJECT and get64(read + 8 * R_COUNT) <= room:
                count = pairs_of(
                    state, get64(read + 8 * R_STARTS), get64(read + 8 * R_FOUND),
                    get64(read + 8 * R_TOKENS), get64(read + 8 * R_COUNT), room,
                )  # fmt: skip
                put64(read + 8 * R_COUNT, count)
        for b in range(2 * size):
            read = block + 8 * R_WORDS * b
            count = min(get64(read + 8 * R_COUNT), room)
            slots_of(state, get64(read + 8 * R_TOKENS), count)
        for b in range(size):
            old = block + 16 * R_WORDS * b
            new = old + 8 * R_WORDS
            row = get64(given + 8 * place) if given else place
            if get64(old + 8 * R_STATE) == SLOW or get64(new + 8 * R_STATE) == SLOW:
                slow = get64(call + 8 * C_SLOW_COUNT)
                put64(get64(call + 8 * C_SLOW) + 8 * slow, row)
                put64(call + 8 * C_SLOW_COUNT, slow + 1)
            elif max(get64(old + 8 * R_COUNT), get64(new + 8 * R_COUNT)) > room:
                good = False
                break
            else:
                count = _row(state, call, old, new)
                if get64(call + 8 * C_OUT_COUNT) + count > get64(call + 8 * C_OUT_ROOM):
                    good = False
                    break
                _emit(state, call, row, get64(call + 8 * C_HITS), count)
            place += 1
    put64(call + 8 * C_ROW, place)
    return good
