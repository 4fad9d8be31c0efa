"""Which entries have what is asked for, by the lists of tokens.

    place   := a run, with the seqs, keys and token counts of its entries       (P_WORDS)
    query   := requirements, each of some tokens                                (Q_..., I_...)

A requirement is met by an entry that has enough of its tokens:

    enough   `Q_LEAST` different ones. With `Q_SHARE`, as many as its own number of tokens demands:
             both / either >= share / 2^20
    phrase   all of them, each as far behind the first as its offset says
    near     enough of them, whose positions less their offsets lie within `Q_SPAN` of each other

A token of a query has its hash and its bytes: what has the hash alone is another token.

One kernel call finds the lists (`find_lists`), and which requirement has the shortest ones in each
place: an entry that has `least` of n tokens has one of the n - least + 1 rarest. Those lists are
collected, and each candidate is held against all requirements (`hold`), along every list once.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.inverted.runs import (
    BY_HASH,
    R_ATS,
    R_ENTRIES,
    R_FIRST,
    R_HASHES,
    R_POSITIONS,
    R_SIZES,
    R_TEXTS,
    R_TOKENS,
    compare,
)
from tideline.kernels.inverted.tokens import hash_token
from tideline.kernels.lanes import hot
from tideline.kernels.views import halves, octets, words

__all__ = [
    "I_WORDS", "L_WORDS", "NEAR", "PHRASE", "P_COUNTS", "P_KEYS", "P_KEY_OFFSETS",
    "P_SEQS", "P_WORDS", "Q_FIRST", "Q_HEAD", "Q_KIND", "Q_LEAST", "Q_LIMIT", "Q_OWN", "Q_SHARE",
    "Q_SPAN", "Q_WORDS", "SHARES", "collect", "find_lists", "gather", "hash_items", "hold",
    "search_places",
]  # fmt: skip

# A place: the words of a run (runs.py), and these.
P_SEQS, P_KEY_OFFSETS, P_KEYS, P_COUNTS, P_WORDS = 8, 9, 10, 11, 12
# A query: how many requirements and tokens; the requirements; of each token its hash, its offset,
# where its bytes are and how many.
Q_HEAD = 2
Q_FIRST, Q_LIMIT, Q_LEAST, Q_KIND, Q_SPAN, Q_SHARE, Q_OWN, Q_WORDS = 0, 1, 2, 3, 4, 5, 6, 8
I_WORDS = 4
PHRASE, NEAR = 1, 2
SHARES = 1 << 20
# What is found of a token in a place: its list, and whether it is one of those to collect.
L_FIRST, L_LIMIT, L_TAKEN, L_WORDS = 0, 1, 2, 3
_MANY = 1 << 60
_OFTEN = 8  # postings of a token in an entry, from where on positions are not looked at


@jit
def hash_items(items_at, count, seed):
    """Write down the hashes of the tokens of a query."""
    items = words(items_at, I_WORDS * count)
    for i in range(0, I_WORDS * count, I_WORDS):
        items[i] = hash_token(items[i + 2], items[i + 3], seed)


@hot
def _list_of(place, hash_, at, size):
    """The list of a token: by halves, from where it is expected among hashes spread evenly."""
    count = place[R_TOKENS]
    hashes = words(place[R_HASHES], count)
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if hashes[middle] < hash_:
            low = middle + 1
        else:
            high = middle
    texts = place[R_TEXTS]
    if texts != BY_HASH:
        ats, sizes = words(place[R_ATS], count), halves(place[R_SIZES], count)
        while (
            low < count
            and hashes[low] == hash_
            and compare(texts + ats[low], sizes[low], at, size) != 0
        ):
            low += 1
    if low == count or hashes[low] != hash_:
        return 0, 0
    first = words(place[R_FIRST], count + 1)
    return first[low], first[low + 1]


@jit
def find_lists(places_at, place_count, query_at, lists_at, drivers_at):
    """Fill the lists of each token in each place; how many postings are to be collected at most.

    `drivers` has, for each place, the requirement that is walked and its number of postings; -1
    when nothing there can meet the query.
    """
    query = words(query_at, _MANY)
    requirements, items = query[0], query[1]
    item_at = Q_HEAD + Q_WORDS * requirements
    lists, drivers = words(lists_at, _MANY), words(drivers_at, 2 * place_count)
    total = 0
    for number in range(place_count):
        place = words(places_at + 8 * P_WORDS * number, P_WORDS)
        base = L_WORDS * items * number
        for item in range(items):
            i = item_at + I_WORDS * item
            start, limit = _list_of(place, query[i], query[i + 2], query[i + 3])
            lists[base + L_WORDS * item + L_FIRST] = start
            lists[base + L_WORDS * item + L_LIMIT] = limit
            lists[base + L_WORDS * item + L_TAKEN] = 0
        best, cost = -1, 0
        for requirement in range(requirements):
            q = Q_HEAD + Q_WORDS * requirement
            wanted = query[q + Q_LIMIT] - query[q + Q_FIRST] - query[q + Q_LEAST] + 1
            there = 0
            for item in range(query[q + Q_FIRST], query[q + Q_LIMIT]):
                if lists[base + L_WORDS * item + L_LIMIT] > lists[base + L_WORDS * item + L_FIRST]:
                    there += 1
            if there < query[q + Q_LEAST]:
                best, cost = -1, 0
                break
            # Take the shortest lists: mark them, and count their postings.
            size = 0
            for _ in range(wanted):
                shortest, length = -1, 0
                for item in range(query[q + Q_FIRST], query[q + Q_LIMIT]):
                    at = base + L_WORDS * item
                    one = lists[at + L_LIMIT] - lists[at + L_FIRST]
                    if lists[at + L_TAKEN] == 0 and (shortest < 0 or one < length):
                        shortest, length = item, one
                lists[base + L_WORDS * shortest + L_TAKEN] = 1
                size += length
            if best < 0 or size < cost:
                best, cost = requirement, size
        drivers[2 * number], drivers[2 * number + 1] = best, cost
        total += cost
    return total


@jit
def collect(place_at, query_at, lists_at, driver, out_at):
    """The entries of the lists to collect of one requirement in one place, each list rising."""
    place, query, out = words(place_at, P_WORDS), words(query_at, _MANY), words(out_at, _MANY)
    lists = words(lists_at, _MANY)
    entries = halves(place[R_ENTRIES], _MANY)
    q = Q_HEAD + Q_WORDS * driver
    used = 0
    for item in range(query[q + Q_FIRST], query[q + Q_LIMIT]):
        at = L_WORDS * item
        if lists[at + L_TAKEN]:
            last = -1
            for i in range(lists[at + L_FIRST], lists[at + L_LIMIT]):
                if entries[i] != last:
                    last = entries[i]
                    out[used] = last
                    used += 1
    return used


@hot
def seek(entries, low, limit, wanted):
    """The first place from `low` on whose entry is not below the one wanted; by growing steps."""
    step = 1
    high = low
    while high < limit and entries[high] < wanted:
        low = high + 1
        high += step
        step += step
    if high > limit:
        high = limit
    while low < high:
        middle = (low + high) >> 1
        if entries[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@hot
def _follows(entries, positions, at, limit, entry, wanted):
    """Whether a token is at a position of an entry; its postings of the entry begin at `at`."""
    while at < limit and entries[at] == entry and positions[at] < wanted:
        at += 1
    return at < limit and entries[at] == entry and positions[at] == wanted


@jit
def _in_line(query, q, item_at, lists, entries, positions, entry):
    """Whether the tokens of a phrase stand one behind the other."""
    head = query[q + Q_FIRST]
    i, limit = lists[L_WORDS * head + L_FIRST], lists[L_WORDS * head + L_LIMIT]
    while i < limit and entries[i] == entry:
        start = positions[i] - query[item_at + I_WORDS * head + 1]
        good = True
        for item in range(head + 1, query[q + Q_LIMIT]):
            at = L_WORDS * item
            wanted = start + query[item_at + I_WORDS * item + 1]
            if not _follows(
                entries, positions, lists[at + L_FIRST], lists[at + L_LIMIT], entry, wanted
            ):
                good = False
                break
        if good:
            return True
        i += 1
    return False


@jit
def _together(query, q, item_at, lists, entries, positions, entry, least):
    """Whether enough tokens are about as far from each other as they should be."""
    first, last, span = query[q + Q_FIRST], query[q + Q_LIMIT], query[q + Q_SPAN]
    for item in range(first, last):
        i, limit = lists[L_WORDS * item + L_FIRST], lists[L_WORDS * item + L_LIMIT]
        if i + _OFTEN < limit and entries[i + _OFTEN] == entry:
            return True
    for item in range(first, last):
        i, limit = lists[L_WORDS * item + L_FIRST], lists[L_WORDS * item + L_LIMIT]
        while i < limit and entries[i] == entry:
            low = positions[i] - query[item_at + I_WORDS * item + 1]
            count = 0
            for other in range(first, last):
                j, end = lists[L_WORDS * other + L_FIRST], lists[L_WORDS * other + L_LIMIT]
                while j < end and entries[j] == entry:
                    shift = positions[j] - query[item_at + I_WORDS * other + 1]
                    if low <= shift <= low + span:
                        count += 1
                        break
                    j += 1
            if count >= least:
                return True
            i += 1
    return False


@jit
def hold(place_at, query_at, lists_at, candidates_at, count, below, seqs_at, ats_at, sizes_at):
    """Hold candidates, which rise, against all requirements; how many are left.

    Of each, the seq, where its key is, and the size of the key. The lists are moved along.
    """
    place, query, lists = words(place_at, P_WORDS), words(query_at, _MANY), words(lists_at, _MANY)
    candidates = words(candidates_at, count)
    entries, positions = halves(place[R_ENTRIES], _MANY), halves(place[R_POSITIONS], _MANY)
    seqs, key_offsets = words(place[P_SEQS], _MANY), words(place[P_KEY_OFFSETS], _MANY)
    to_seqs, to_ats, to_sizes = words(seqs_at, count), words(ats_at, count), words(sizes_at, count)
    counted = place[P_COUNTS]
    requirements = query[0]
    item_at = Q_HEAD + Q_WORDS * requirements
    found = 0
    for i in range(count):
        entry = candidates[i]
        if seqs[entry] >= below:
            continue
        good = True
        for requirement in range(requirements):
            q = Q_HEAD + Q_WORDS * requirement
            first, last, least = query[q + Q_FIRST], query[q + Q_LIMIT], query[q + Q_LEAST]
            share = query[q + Q_SHARE]
            if share and counted:
                own = halves(counted, _MANY)[entry]
                if own > 0:
                    demanded = share * (query[q + Q_OWN] + own)
                    least = max(least, -(-demanded // (SHARES + share)))
            there = 0
            for item in range(first, last):
                if there + last - item < least:
                    break
                at = L_WORDS * item
                start = seek(entries, lists[at + L_FIRST], lists[at + L_LIMIT], entry)
                lists[at + L_FIRST] = start
                if start < lists[at + L_LIMIT] and entries[start] == entry:
                    there += 1
            if there < least:
                good = False
                break
            if query[q + Q_KIND] == PHRASE:
                good = _in_line(query, q, item_at, lists, entries, positions, entry)
            elif query[q + Q_KIND] == NEAR:
                good = _together(query, q, item_at, lists, entries, positions, entry, least)
            if not good:
                break
        if good:
            to_seqs[found] = seqs[entry]
            to_ats[found] = place[P_KEYS] + key_offsets[entry]
            to_sizes[found] = key_offsets[entry + 1] - key_offsets[entry]
            found += 1
    return found


@jit
def search_places(
    places_at, place_count, query_at, lists_at, drivers_at, below, scratch_at, room, out_at
):  # fmt: skip
    """`collect` and `hold` in each place whose driver has one list to collect; how many are left.

    `scratch` and each of the three columns of `out` have `room` for the postings of all drivers.
    Lists of several tokens have to be brought in order: for the driver of such a place is asked
    one by one, and its cost is left as it is; that of the others becomes 0.
    """
    query, drivers = words(query_at, _MANY), words(drivers_at, 2 * place_count)
    stride = 8 * L_WORDS * query[1]
    used = 0
    for number in range(place_count):
        driver = drivers[2 * number]
        if driver < 0 or drivers[2 * number + 1] == 0:
            continue
        q = Q_HEAD + Q_WORDS * driver
        if query[q + Q_LIMIT] - query[q + Q_FIRST] > query[q + Q_LEAST]:
            continue
        place, lists = places_at + 8 * P_WORDS * number, lists_at + stride * number
        some = collect(place, query_at, lists, driver, scratch_at)
        at = out_at + 8 * used
        used += hold(
            place, query_at, lists, scratch_at, some, below, at, at + 8 * room, at + 16 * room
        )
        drivers[2 * number + 1] = 0
    return used


@jit
def gather(ats_at, sizes_at, count, offsets_at, data_at):
    """Copy the bytes at some addresses one behind the other; the offsets of each."""
    ats, sizes, offsets = words(ats_at, count), words(sizes_at, count), words(offsets_at, count + 1)
    offsets[0] = 0
    for i in range(count):
        _copy_bytes(data_at + offsets[i], ats[i], sizes[i])
        offsets[i + 1] = offsets[i] + sizes[i]


@hot
def _copy_bytes(target, source, size):
    to, at = octets(target, size), octets(source, size)
    for i in range(size):
        to[i] = at[i]
