"""The table of tokens: filing a condition, and taking it out.

Open addressing with linear probing. A list that is full moves to one of twice its size; what it
leaves is kept by class for the next. The last entry of a list takes the place of one that goes:
its posting is found among those of its condition. So both cost the same, however long lists are.
"""

from __future__ import annotations

from tideline.kernels import brief, jit
from tideline.kernels.lanes import get32, get64, hot, put32, put64
from tideline.kernels.standing.layout import (
    ENTRY,
    HEAD,
    LOW,
    NEED_ENTRIES,
    NEED_POSTINGS,
    NEED_SLOTS,
    PLAN,
    POSTING,
    S_CHANGED,
    S_ENTRIES,
    S_ENTRIES_ROOM,
    S_ENTRIES_TOP,
    S_FIRST,
    S_FREE,
    S_LIVE,
    S_MASK,
    S_NEED,
    S_POSTINGS,
    S_POSTINGS_FREE,
    S_POSTINGS_ROOM,
    S_POSTINGS_TOP,
    S_SEED,
    S_SHAPES,
    S_SLOTS,
    S_USED,
    SHAPE,
    SLOT,
)
from tideline.kernels.standing.values import mix

__all__ = ["file", "lengths", "rehash", "slot_of", "take_out"]


@hot
def slot_of(slots, mask, token):
    """The address of the slot of a token, or of the empty one where it would be."""
    i = token & mask
    while True:
        at = slots + 8 * SLOT * i
        there = get64(at)
        if there == token or there == 0:
            return at
        i = (i + 1) & mask


@hot
def _class(word):
    return (word >> 32) & 255


@hot
def _give_back(state, offset, size_class):
    """A list that is no longer used; its first word names the next of its class."""
    free = state + 8 * (S_FREE + size_class)
    put64(get64(state + 8 * S_ENTRIES) + 8 * ENTRY * offset, get64(free))
    put64(free, offset)


@jit
def _room(state, slot):
    """Make room for one more entry in the list of a slot: whether there is."""
    word = get64(slot + 16)
    length = word & LOW
    size_class = _class(word)
    has_list = get64(slot + 8) >= 0
    if has_list and length < 1 << size_class:
        return True
    wanted = size_class + 1 if has_list else 0
    free = state + 8 * (S_FREE + wanted)
    entries = get64(state + 8 * S_ENTRIES)
    offset = get64(free)
    if offset >= 0:
        put64(free, get64(entries + 8 * ENTRY * offset))
    else:
        offset = get64(state + 8 * S_ENTRIES_TOP)
        if offset + (1 << wanted) > get64(state + 8 * S_ENTRIES_ROOM):
            put64(state + 8 * S_NEED, NEED_ENTRIES)
            return False
        put64(state + 8 * S_ENTRIES_TOP, offset + (1 << wanted))
    if has_list:
        old = get64(slot + 8)
        for k in range(ENTRY * length):
            put64(entries + 8 * (ENTRY * offset + k), get64(entries + 8 * (ENTRY * old + k)))
        _give_back(state, old, size_class)
    put64(slot + 8, offset)
    put64(slot + 16, word & ~(255 << 32) | wanted << 32)
    return True


@hot
def _count(state, shape, by):
    refs = get64(state + 8 * S_SHAPES) + 8 * (SHAPE * shape + 4)
    was = get64(refs)
    put64(refs, was + by)
    if was == 0 or was + by == 0:
        put64(state + 8 * S_CHANGED, 1)


@brief
def lengths(state, plan, count, out):
    """How long the lists of planned postings are, now."""
    for i in range(count):
        at = plan + 8 * PLAN * i
        token = mix(get64(state + 8 * S_SEED), get64(at), get64(at + 8), get64(at + 16))
        slot = slot_of(get64(state + 8 * S_SLOTS), get64(state + 8 * S_MASK), token)
        out[i] = get64(slot + 16) & LOW if get64(slot) else 0


@brief
def file(state, plan, first, count):
    """File the postings [first, count) of a plan, of one condition or many: how many are filed now.

    Fewer than `count`: more of what S_NEED says is needed, then call again with that `first`.
    A planned posting is: shape | a | b | the four words of an entry, the last with the number of
    its condition | bits for the mask, when it counts in the slot of HEADS, else 0.
    """
    slots, mask = get64(state + 8 * S_SLOTS), get64(state + 8 * S_MASK)
    seed = get64(state + 8 * S_SEED)
    postings = get64(state + 8 * S_POSTINGS)
    firsts = get64(state + 8 * S_FIRST)
    for i in range(first, count):
        at = plan + 8 * PLAN * i
        shape = get64(at)
        owner = firsts + 4 * (get64(at + 48) & LOW)
        levels = get64(at + 56)
        token = mix(seed, shape, get64(at + 8), get64(at + 16))
        slot = slot_of(slots, mask, token)
        if get64(slot) == 0:
            used = get64(state + 8 * S_USED)
            if 8 * used >= 6 * mask:
                put64(state + 8 * S_NEED, NEED_SLOTS)
                return i
            put64(state + 8 * S_USED, used + 1)
            put64(slot, token)
            put64(slot + 8, -1)
            put64(slot + 16, shape << 40)
            put64(slot + 24, 0)
        posting = get64(state + 8 * S_POSTINGS_FREE)
        if posting == 0 and get64(state + 8 * S_POSTINGS_TOP) == get64(state + 8 * S_POSTINGS_ROOM):
            put64(state + 8 * S_NEED, NEED_POSTINGS)
            return i
        if levels == 0 and not _room(state, slot):
            return i
        if posting:
            put64(state + 8 * S_POSTINGS_FREE, get64(postings + 8 * POSTING * posting) & LOW)
        else:
            posting = get64(state + 8 * S_POSTINGS_TOP)
            put64(state + 8 * S_POSTINGS_TOP, posting + 1)
        word = get64(slot + 16)
        place = word & LOW
        if place == 0:
            put64(state + 8 * S_LIVE, get64(state + 8 * S_LIVE) + 1)
        put64(slot + 16, word + 1)
        if levels:
            put64(slot + 24, get64(slot + 24) | levels)
            place = HEAD
        else:
            entry = get64(state + 8 * S_ENTRIES) + 8 * ENTRY * (get64(slot + 8) + place)
            for k in range(ENTRY):
                put64(entry + 8 * k, get64(at + 24 + 8 * k))
        record = postings + 8 * POSTING * posting
        put64(record, get32(owner) | place << 32)
        put64(record + 8, token)
        put32(owner, posting)
        _count(state, shape, 1)
    return count


@hot
def _move_posting(state, number, token, place, to):
    """The posting of a condition at a place of a list is now at another."""
    postings = get64(state + 8 * S_POSTINGS)
    posting = get32(get64(state + 8 * S_FIRST) + 4 * number)
    while posting:
        record = postings + 8 * POSTING * posting
        word = get64(record)
        if get64(record + 8) == token and (word >> 32) & LOW == place:
            put64(record, word & LOW | to << 32)
            return
        posting = word & LOW


@brief
def take_out(state, number):
    """Take all postings of a condition out."""
    slots, mask = get64(state + 8 * S_SLOTS), get64(state + 8 * S_MASK)
    postings = get64(state + 8 * S_POSTINGS)
    owner = get64(state + 8 * S_FIRST) + 4 * number
    posting = get32(owner)
    while posting:
        record = postings + 8 * POSTING * posting
        word, token = get64(record), get64(record + 8)
        put32(owner, word & LOW)  # what is moved below may be another posting of this condition
        slot = slot_of(slots, mask, token)
        about = get64(slot + 16)
        _count(state, (about >> 40) & 0xFFFFFF, -1)
        last = (about & LOW) - 1
        put64(slot + 16, about - 1)
        place = (word >> 32) & LOW
        if place != HEAD:
            entries = get64(state + 8 * S_ENTRIES) + 8 * ENTRY * get64(slot + 8)
            if place != last:
                entry, moved = entries + 8 * ENTRY * place, entries + 8 * ENTRY * last
                for k in range(ENTRY):
                    put64(entry + 8 * k, get64(moved + 8 * k))
                _move_posting(state, get64(entry + 24) & LOW, token, last, place)
        if last == 0:
            put64(slot + 24, 0)
            put64(state + 8 * S_LIVE, get64(state + 8 * S_LIVE) - 1)
            if get64(slot + 8) >= 0:
                _give_back(state, get64(slot + 8), _class(about))
                put64(slot + 8, -1)
            put64(slot + 16, get64(slot + 16) & ~(255 << 32))
        after = word & LOW
        put64(record, get64(state + 8 * S_POSTINGS_FREE))
        put64(state + 8 * S_POSTINGS_FREE, posting)
        posting = after


@jit
def rehash(state, slots, mask):
    """Move the slots that are in use into another table, of zeros."""
    old, old_mask = get64(state + 8 * S_SLOTS), get64(state + 8 * S_MASK)
    used = 0
    for i in range(old_mask + 1):
        at = old + 8 * SLOT * i
        token = get64(at)
        if token and get64(at + 16) & LOW:
            to = slot_of(slots, mask, token)
            for k in range(SLOT):
                put64(to + 8 * k, get64(at + 8 * k))
            used += 1
    put64(state + 8 * S_SLOTS, slots)
    put64(state + 8 * S_MASK, mask)
    put64(state + 8 * S_USED, used)
