"""Runs: tokens sorted by their hashes, with the postings of each.

    run := tokens | hashes, first, ats, sizes: one for each token | entries, positions

The postings of token t are those from first[t] to first[t + 1], by entry and then position. A run
is seen through a row of words that has the addresses of its columns (`R_WORDS`). `ats` are where
the bytes of a token are, counted from `R_TEXTS`.

Different tokens may have one hash. They stand beside each other, by their bytes, so a token has
exactly the postings that are its own. Where `R_TEXTS` is BY_HASH they are one token: so it was in
components before, which have the bytes of the first of them alone.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.lanes import get8, get64, hot
from tideline.kernels.views import halves, words

__all__ = [
    "BY_HASH", "RADIX_WORDS", "R_ATS", "R_ENTRIES", "R_FIRST", "R_HASHES", "R_POSITIONS",
    "R_SIZES", "R_TEXTS", "R_TOKENS", "R_WORDS", "check_run", "compare", "count_tokens",
    "make_run", "merge_runs", "remap_run",
]  # fmt: skip

R_TOKENS, R_HASHES, R_FIRST, R_ENTRIES, R_POSITIONS, R_ATS, R_SIZES, R_TEXTS = range(8)
R_WORDS = 8
BY_HASH = -1
_BITS, _PASSES, _LOW = 11, 3, 30
RADIX_WORDS = 1 << _BITS
_MANY = 1 << 60


@jit
def compare(a, a_size, b, b_size):
    """The order of two tokens of one hash: 0 when they are the same bytes."""
    if a_size != b_size:
        return a_size - b_size
    i = 0
    while i + 8 <= a_size and get64(a + i) == get64(b + i):
        i += 8
    while i < a_size:
        difference = get8(a + i) - get8(b + i)
        if difference != 0:
            return difference
        i += 1
    return 0


@jit
def _sort(hashes, count, order, other, counts, texts, ats, sizes):
    """The numbers of tokens by hash, the same ones in their order, in `order`.

    Whether different tokens have one hash: those are in order by their bytes, too.
    """
    for i in range(count):
        other[i] = i
    source, target = other, order
    for turn in range(_PASSES):
        shift = _LOW + _BITS * turn
        for i in range(RADIX_WORDS):
            counts[i] = 0
        for i in range(count):
            counts[(hashes[i] >> shift) & (RADIX_WORDS - 1)] += 1
        total = 0
        for i in range(RADIX_WORDS):
            total, counts[i] = total + counts[i], total
        for i in range(count):
            number = source[i]
            bucket = (hashes[number] >> shift) & (RADIX_WORDS - 1)
            target[counts[bucket]] = number
            counts[bucket] += 1
        source, target = target, source
    # The highest 33 bits are in order. What has the same ones is nearly always the same token.
    for i in range(1, count):
        number = order[i]
        at = i
        while at > 0 and hashes[order[at - 1]] > hashes[number]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = number
    mixed = False
    for i in range(1, count):
        a, b = order[i - 1], order[i]
        if hashes[a] == hashes[b] and (
            compare(texts + ats[a], sizes[a], texts + ats[b], sizes[b]) != 0
        ):
            mixed = True
            break
    if not mixed:
        return False
    for i in range(1, count):
        number = order[i]
        text, size = texts + ats[number], sizes[number]
        at = i
        while (
            at > 0
            and hashes[order[at - 1]] == hashes[number]
            and compare(texts + ats[order[at - 1]], sizes[order[at - 1]], text, size) > 0
        ):
            order[at] = order[at - 1]
            at -= 1
        order[at] = number
    return True


@jit
def make_run(
    count, hashes_at, entries_at, positions_at, ats_at, sizes_at, order_at, other_at, counts_at,
    texts, run_at,
):  # fmt: skip
    """A run of `count` tokens that come by entry and position; how many different ones.

    `ats` count from `texts`.
    """
    hashes, ats, sizes = words(hashes_at, count), words(ats_at, count), halves(sizes_at, count)
    entries, positions = halves(entries_at, count), halves(positions_at, count)
    order = words(order_at, count)
    other, counts = words(other_at, count), words(counts_at, RADIX_WORDS)
    mixed = _sort(hashes, count, order, other, counts, texts, ats, sizes)
    run = words(run_at, R_WORDS)
    made, first = words(run[R_HASHES], count), words(run[R_FIRST], count + 1)
    to_entries, to_positions = halves(run[R_ENTRIES], count), halves(run[R_POSITIONS], count)
    to_ats, to_sizes = words(run[R_ATS], count), halves(run[R_SIZES], count)
    tokens = 0
    for i in range(count):
        number = order[i]
        fresh = tokens == 0 or made[tokens - 1] != hashes[number]
        if mixed and not fresh:
            last = texts + to_ats[tokens - 1]
            fresh = compare(last, to_sizes[tokens - 1], texts + ats[number], sizes[number]) != 0
        if fresh:
            made[tokens], first[tokens] = hashes[number], i
            to_ats[tokens], to_sizes[tokens] = ats[number], sizes[number]
            tokens += 1
        to_entries[i], to_positions[i] = entries[number], positions[number]
    first[tokens] = count
    run[R_TOKENS] = tokens
    return tokens


@jit
def count_tokens(run_at, first_entry, counts_at):
    """Count the different tokens of each entry of a run, into counts[entry - first_entry]."""
    run = words(run_at, R_WORDS)
    tokens = run[R_TOKENS]
    first = words(run[R_FIRST], tokens + 1)
    entries, counts = halves(run[R_ENTRIES], first[tokens]), halves(counts_at, _MANY)
    for i in range(first[tokens]):
        counts[entries[i] - first_entry] = 0  # a call that was cut may have counted before
    for token in range(tokens):
        last = -1
        for i in range(first[token], first[token + 1]):
            if entries[i] != last:
                last = entries[i]
                counts[last - first_entry] += 1


@hot
def _copy(target, at, source, start, limit):
    for i in range(start, limit):
        target[at + i - start] = source[i]


@hot
def _joined(entries, positions, start, limit):
    """Bring the postings of two lists that stand one behind the other in order."""
    for i in range(start, limit):
        entry, position = entries[i], positions[i]
        at = i
        while at > start and (
            entries[at - 1] > entry or (entries[at - 1] == entry and positions[at - 1] > position)
        ):
            entries[at], positions[at] = entries[at - 1], positions[at - 1]
            at -= 1
        entries[at], positions[at] = entry, position


@jit
def merge_runs(a_at, b_at, texts, run_at):
    """A run of two; how many different tokens. Room is for the tokens and postings of both.

    `ats` of both count from `texts`. With BY_HASH, tokens of one hash become one.
    """
    a, b, run = words(a_at, R_WORDS), words(b_at, R_WORDS), words(run_at, R_WORDS)
    m, n = a[R_TOKENS], b[R_TOKENS]
    a_hashes, b_hashes = words(a[R_HASHES], m), words(b[R_HASHES], n)
    a_first, b_first = words(a[R_FIRST], m + 1), words(b[R_FIRST], n + 1)
    a_entries, b_entries = halves(a[R_ENTRIES], _MANY), halves(b[R_ENTRIES], _MANY)
    a_positions, b_positions = halves(a[R_POSITIONS], _MANY), halves(b[R_POSITIONS], _MANY)
    a_ats, b_ats = words(a[R_ATS], m), words(b[R_ATS], n)
    a_sizes, b_sizes = halves(a[R_SIZES], m), halves(b[R_SIZES], n)
    hashes, first = words(run[R_HASHES], m + n), words(run[R_FIRST], m + n + 1)
    entries, positions = halves(run[R_ENTRIES], _MANY), halves(run[R_POSITIONS], _MANY)
    ats, sizes = words(run[R_ATS], m + n), halves(run[R_SIZES], m + n)
    i = j = tokens = used = 0
    while i < m or j < n:
        if i >= m or j >= n:
            side = -1 if i < m else 1
        elif a_hashes[i] != b_hashes[j]:
            side = -1 if a_hashes[i] < b_hashes[j] else 1
        elif texts == BY_HASH:
            side = 0
        else:
            side = compare(texts + a_ats[i], a_sizes[i], texts + b_ats[j], b_sizes[j])
        from_a, from_b = side <= 0, side >= 0
        first[tokens] = used
        x, x_limit = (a_first[i], a_first[i + 1]) if from_a else (0, 0)
        y, y_limit = (b_first[j], b_first[j + 1]) if from_b else (0, 0)
        if from_a:
            hashes[tokens], ats[tokens], sizes[tokens] = a_hashes[i], a_ats[i], a_sizes[i]
            i += 1
        else:
            hashes[tokens], ats[tokens], sizes[tokens] = b_hashes[j], b_ats[j], b_sizes[j]
        if from_b:
            j += 1
        tokens += 1
        while x < x_limit and y < y_limit:
            if a_entries[x_limit - 1] < b_entries[y]:
                break  # the rest of one comes before the rest of the other
            if a_entries[x] <= b_entries[y]:  # no entry is in both runs
                entries[used], positions[used] = a_entries[x], a_positions[x]
                x += 1
            else:
                entries[used], positions[used] = b_entries[y], b_positions[y]
                y += 1
            used += 1
        _copy(entries, used, a_entries, x, x_limit)
        _copy(positions, used, a_positions, x, x_limit)
        used += x_limit - x
        _copy(entries, used, b_entries, y, y_limit)
        _copy(positions, used, b_positions, y, y_limit)
        used += y_limit - y
        if texts == BY_HASH and tokens > 1 and hashes[tokens - 2] == hashes[tokens - 1]:
            tokens -= 1
            _joined(entries, positions, first[tokens - 1], used)
    first[tokens] = used
    run[R_TOKENS] = tokens
    return tokens


@jit
def remap_run(from_at, numbers_at, run_at):
    """A run with other numbers of entries, without those whose number is -1; its tokens.

    The numbers rise with the entries.
    """
    source, run = words(from_at, R_WORDS), words(run_at, R_WORDS)
    count = source[R_TOKENS]
    numbers = halves(numbers_at, _MANY)
    hashes, first = words(source[R_HASHES], count), words(source[R_FIRST], count + 1)
    entries, positions = halves(source[R_ENTRIES], _MANY), halves(source[R_POSITIONS], _MANY)
    ats, sizes = words(source[R_ATS], count), halves(source[R_SIZES], count)
    to_hashes, to_first = words(run[R_HASHES], count), words(run[R_FIRST], count + 1)
    to_entries, to_positions = halves(run[R_ENTRIES], _MANY), halves(run[R_POSITIONS], _MANY)
    to_ats, to_sizes = words(run[R_ATS], count), halves(run[R_SIZES], count)
    tokens = used = 0
    for token in range(count):
        start = used
        for i in range(first[token], first[token + 1]):
            number = numbers[entries[i]]
            if number >= 0:
                to_entries[used], to_positions[used] = number, positions[i]
                used += 1
        if used > start:
            to_hashes[tokens], to_first[tokens] = hashes[token], start
            to_ats[tokens], to_sizes[tokens] = ats[token], sizes[token]
            tokens += 1
    to_first[tokens] = used
    run[R_TOKENS] = tokens
    return tokens


@jit
def check_run(run_at, entry_count, posting_count):
    """0, or what is wrong: 1 order of tokens, 2 of lists, 3 of postings."""
    run = words(run_at, R_WORDS)
    tokens = run[R_TOKENS]
    hashes, first = words(run[R_HASHES], tokens), words(run[R_FIRST], tokens + 1)
    entries = halves(run[R_ENTRIES], posting_count)
    positions = halves(run[R_POSITIONS], posting_count)
    texts, ats, sizes = run[R_TEXTS], words(run[R_ATS], tokens), halves(run[R_SIZES], tokens)
    if tokens > 0 and (first[0] != 0 or first[tokens] != posting_count):
        return 2
    for token in range(tokens):
        if hashes[token] < 0 or (token > 0 and hashes[token] < hashes[token - 1]):
            return 1
        if token > 0 and hashes[token] == hashes[token - 1]:
            if texts == BY_HASH:
                return 1
            at, before = texts + ats[token], texts + ats[token - 1]
            if compare(before, sizes[token - 1], at, sizes[token]) >= 0:
                return 1
        start, limit = first[token], first[token + 1]
        if start >= limit or start < 0 or limit > posting_count:
            return 2
        for i in range(start, limit):
            if entries[i] < 0 or entries[i] >= entry_count or positions[i] < 0:
                return 3
            if i > start and (
                entries[i] < entries[i - 1]
                or (entries[i] == entries[i - 1] and positions[i] <= positions[i - 1])
            ):
                return 3
    return 0
