"""Which candidates of an index count, many at a time.

A candidate is a key and a seq. It counts exactly when the newest version of the key has that seq,
is no tomb and has not expired. Sources hold disjoint ranges of seqs, or of keys, so most of them
need not be asked; the *home* of a candidate is the component that it was written to, as far as
its ranges tell.

    AHEAD candidates    1. home, and the row there by the fence, or in a memory by the seq: begin to
                           load that row, and the slots and blooms of newer sources that may have
                           the key
                        2. rows that the tables of memories lead to: begin to load those
                        3. ask, newest source first

Each step is done for all of them before the next one, so that waits for memory run side by side.

A row that has the seq has the key, too: a write has one seq. So keys are compared only where no
row near has the seq, which means that the candidate is stale, or that its home is another.
A memory knows of each row whether a later one has its key.

What was found is put in order at the end (`settle`): the newest first, each once.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.documents.fence import narrow, row_key, row_of, word_of
from tideline.kernels.documents.layout import (
    COUNTS,
    S_COUNTS,
    S_ENDS,
    S_FOUND_SIZE,
    S_K,
    S_NOW,
    S_OUT_CAP,
    S_OUT_COUNT,
    S_OUT_ROWS,
    S_OUT_SEQS,
    S_OUT_SOURCES,
    S_PRIMARY_BLOCKS,
    S_SEED,
    S_SOURCE_COUNT,
    S_SOURCES,
    S_SPARE,
    S_STEPS,
    S_WORDS,
    X_BLOOM,
    X_BLOOM_LINES,
    X_DOC_OFFSETS,
    X_FLAGS,
    X_HIGH,
    X_LATER,
    X_LOW,
    X_ROWS,
    X_SEQ_HIGH,
    X_SEQ_LOW,
    X_SEQS,
    X_TABLE,
    X_TABLE_CAP,
)
from tideline.kernels.documents.octets import hash_bytes, prefix_of, same_bytes
from tideline.kernels.documents.records import (
    LOW32,
    bloom_line,
    deliver,
    find_row,
    in_view,
    is_gone,
)
from tideline.kernels.lanes import get32, get64, hot, leading_zeros
from tideline.kernels.views import prefetch, words
from tideline.kernels.words import Layout

__all__ = ["AHEAD", "STEPS_WORDS", "follow", "newest", "settle", "some"]

AHEAD = 32  # candidates that are followed side by side
_SOME = 32  # so many are sorted without counting
_NEAR = 64  # rows to each side of the one that the fence says, among which the seq is looked for
STEP = Layout("step", "T_", "what is known of a candidate that is followed", globals())
T_KEY = STEP.address("its key")
T_SIZE = STEP.count("bytes of it")
T_HASH = STEP.word("hash of them; 0: nobody has asked for it")
T_PREFIX = STEP.word("prefix of them")
T_READ = STEP.word("whether the prefix is known: what has its home in the first source needs none")
T_HOME = STEP.word("number of its home; as many as there are sources: none is known")
T_FIRST = STEP.word("the rows of its home that the key is among")
T_LIMIT = STEP.word("... and where they end")
T_ROW = STEP.word("the row to look at first")
T_WORDS = STEP.end(spare=1)
STEPS_WORDS = AHEAD * T_WORDS


@hot
def _may_have(source, prefix):
    """Whether keys with a prefix are in the range of those of a source."""
    return get64(source + 8 * X_LOW) <= prefix and prefix <= get64(source + 8 * X_HIGH)


@hot
def _load_row(source, row):
    prefetch(get64(source + 8 * X_SEQS) + 8 * row)
    prefetch(get64(source + 8 * X_FLAGS) + row)
    prefetch(get64(source + 8 * X_DOC_OFFSETS) + 8 * row)


@hot
def _read(t):
    """The prefix of a candidate's key, for which the key is read."""
    step = words(t, T_WORDS)
    if step[T_READ] == 0:
        step[T_PREFIX] = prefix_of(step[T_KEY], step[T_SIZE])
        step[T_READ] = 1
    return step[T_PREFIX]


@jit
def _hash(state, t):
    """The hash of a candidate's key, worked out when it is first needed."""
    step = words(t, T_WORDS)
    if step[T_HASH] == 0:
        step[T_HASH] = hash_bytes(step[T_KEY], step[T_SIZE], words(state, S_WORDS)[S_SEED])
    return step[T_HASH]


@jit
def _begin(state, t, seq):
    """Step 1 of a candidate."""
    facts = words(state, S_WORDS)
    step = words(t, T_WORDS)
    key, size = step[T_KEY], step[T_SIZE]
    step[T_HASH] = step[T_READ] = 0
    step[T_HOME] = facts[S_SOURCE_COUNT]
    for number in range(facts[S_SOURCE_COUNT]):
        source = get64(facts[S_SOURCES] + 8 * number)
        if get64(source + 8 * X_SEQ_HIGH) < seq:
            continue  # only older ones
        cap = get64(source + 8 * X_TABLE_CAP)
        if cap:
            rows = get64(source + 8 * X_ROWS)
            if rows == 0:
                continue
            row = seq - get64(get64(source + 8 * X_SEQS))  # if no seq is left out
            if 0 <= row and row < rows:
                step[T_HOME], step[T_ROW] = number, row
                prefetch(get64(source + 8 * X_LATER) + 4 * row)
                _load_row(source, row)
                return
            if _may_have(source, _read(t)):
                h = _hash(state, t)
                prefetch(get64(source + 8 * X_TABLE) + 8 * (h & (cap - 1)))
        elif not _may_have(source, _read(t)):
            continue
        elif get64(source + 8 * X_SEQ_LOW) <= seq:
            first, limit, row = narrow(source, word_of(source, key, size))
            row = min(row, limit - 1)
            step[T_HOME], step[T_FIRST], step[T_LIMIT], step[T_ROW] = number, first, limit, row
            _load_row(source, row)
            return
        else:
            lines = get64(source + 8 * X_BLOOM_LINES)
            prefetch(get64(source + 8 * X_BLOOM) + 64 * bloom_line(_hash(state, t), lines))


@jit
def _load(state, t, seq):
    """Step 2 of a candidate."""
    facts = words(state, S_WORDS)
    step = words(t, T_WORDS)
    h = step[T_HASH]
    if h == 0:
        return  # nothing newer may have its key
    for number in range(min(step[T_HOME], facts[S_SOURCE_COUNT])):
        source = get64(facts[S_SOURCES] + 8 * number)
        cap = get64(source + 8 * X_TABLE_CAP)
        if cap == 0:
            return  # memories come first
        rows = get64(source + 8 * X_ROWS)
        newer = rows and get64(source + 8 * X_SEQ_HIGH) >= seq
        if newer and _may_have(source, _read(t)):
            row = (get64(get64(source + 8 * X_TABLE) + 8 * (h & (cap - 1))) & LOW32) - 1
            if row >= 0 and row < rows:  # of what is newer nothing is read
                _load_row(source, row)


@jit
def _row_in_memory(source, key, size, h, seq):
    """The row of the newest version of a key in a memory, or -1."""
    cap = get64(source + 8 * X_TABLE_CAP)
    table = get64(source + 8 * X_TABLE)
    tag = (h >> 32) & LOW32
    i = h & (cap - 1)
    while True:
        entry = get64(table + 8 * i)
        if entry == 0:
            return -1
        if (entry >> 32) & LOW32 == tag:
            row = in_view(source, (entry & LOW32) - 1)
            if row >= 0:
                if get64(get64(source + 8 * X_SEQS) + 8 * row) == seq:
                    return row
                there, there_size = row_key(source, row)
                if there_size == size and same_bytes(there, key, size):
                    return row
        i = (i + 1) & (cap - 1)


@hot
def _is_there(source, row, seq):
    """Whether a row of a memory has a seq."""
    rows = get64(source + 8 * X_ROWS)
    seqs = get64(source + 8 * X_SEQS)
    if get64(seqs + 8 * (rows - 1)) - get64(seqs) == rows - 1:  # no seq is left out
        return get64(seqs) + row == seq
    return get64(seqs + 8 * row) == seq


@hot
def _is_replaced(source, row):
    """Whether a memory has, in the view, a later version of a row's key."""
    later = get32(get64(source + 8 * X_LATER) + 4 * row)
    return later != 0 and later <= get64(source + 8 * X_ROWS)


@jit
def _row_at_home(source, t, seq):
    """The row of a candidate in its home, or that of the version which replaced it there, or -1."""
    step = words(t, T_WORDS)
    row, first, limit = step[T_ROW], step[T_FIRST], step[T_LIMIT]
    seqs = words(get64(source + 8 * X_SEQS), get64(source + 8 * X_ROWS))
    if seqs[row] == seq:
        return row
    for away in range(1, _NEAR):
        below, above = row - away, row + away
        if below < first and above >= limit:
            break
        if above < limit and seqs[above] == seq:
            return above
        if below >= first and seqs[below] == seq:
            return below
    return row_of(source, step[T_KEY], step[T_SIZE])


@jit
def _end(state, t, seq):
    """Step 3: put a candidate among what was found, if it counts; there is room."""
    facts = words(state, S_WORDS)
    step = words(t, T_WORDS)
    key, size = step[T_KEY], step[T_SIZE]
    for number in range(facts[S_SOURCE_COUNT]):
        source = get64(facts[S_SOURCES] + 8 * number)
        if get64(source + 8 * X_SEQ_HIGH) < seq:
            continue
        if get64(source + 8 * X_TABLE_CAP):
            if get64(source + 8 * X_ROWS) == 0:
                continue
            if number == step[T_HOME] and _is_there(source, step[T_ROW], seq):
                row = step[T_ROW]
                if _is_replaced(source, row):
                    return
            elif _may_have(source, _read(t)):
                row = _row_in_memory(source, key, size, _hash(state, t), seq)
            else:
                continue
        elif number == step[T_HOME]:
            facts[S_PRIMARY_BLOCKS] += 1
            row = _row_at_home(source, t, seq)
        elif _may_have(source, _read(t)):
            row = find_row(state, source, key, size, _hash(state, t), step[T_PREFIX])
        else:
            continue
        if row >= 0:
            same = get64(get64(source + 8 * X_SEQS) + 8 * row) == seq
            if same and not is_gone(source, row, facts[S_NOW]):
                found, cap = facts[S_OUT_COUNT], facts[S_OUT_CAP]
                words(facts[S_OUT_SOURCES], cap)[found] = number
                words(facts[S_OUT_ROWS], cap)[found] = row
                words(facts[S_OUT_SEQS], cap)[found] = seq
                facts[S_OUT_COUNT] = found + 1
            return


@jit
def some(state, seqs, first, count):
    """All steps for candidates whose keys are written down."""
    facts = words(state, S_WORDS)
    steps = facts[S_STEPS]
    for j in range(count):
        _begin(state, steps + 8 * T_WORDS * j, seqs[first + j])
    for j in range(count):
        _load(state, steps + 8 * T_WORDS * j, seqs[first + j])
    for j in range(count):
        if facts[S_OUT_COUNT] >= facts[S_K]:
            return
        _end(state, steps + 8 * T_WORDS * j, seqs[first + j])


@jit
def follow(state, keys, sizes, seqs, count):
    """Put those candidates that count among what was found, in their order, up to S_K of all."""
    facts = words(state, S_WORDS)
    steps = words(facts[S_STEPS], STEPS_WORDS)
    for first in range(0, count, AHEAD):
        if facts[S_OUT_COUNT] >= facts[S_K]:
            return
        each = min(AHEAD, count - first)
        for j in range(each):
            steps[T_WORDS * j + T_KEY] = keys[first + j]
            steps[T_WORDS * j + T_SIZE] = sizes[first + j]
        some(state, seqs, first, each)


@jit
def newest(state, offsets_at, base, count, seqs_at):
    """The same of keys that stand one after the other. Returns how many were found by then."""
    facts = words(state, S_WORDS)
    steps = words(facts[S_STEPS], STEPS_WORDS)
    offsets, seqs = words(offsets_at, count + 1), words(seqs_at, count)
    for first in range(0, count, AHEAD):
        if facts[S_OUT_COUNT] >= facts[S_K]:
            break
        each = min(AHEAD, count - first)
        for j in range(each):
            steps[T_WORDS * j + T_KEY] = base + offsets[first + j]
            steps[T_WORDS * j + T_SIZE] = offsets[first + j + 1] - offsets[first + j]
        some(state, seqs, first, each)
    return facts[S_OUT_COUNT]


# ---- order ------------------------------------------------------------------------


@hot
def _is_falling(seqs, count):
    for i in range(1, count):
        if seqs[i - 1] <= seqs[i]:
            return False
    return True


@jit
def _sort_few(state, count):
    """Put little in order."""
    facts = words(state, S_WORDS)
    sources, rows = words(facts[S_OUT_SOURCES], count), words(facts[S_OUT_ROWS], count)
    seqs = words(facts[S_OUT_SEQS], count)
    for i in range(1, count):
        source, row, seq = sources[i], rows[i], seqs[i]
        j = i
        while j > 0 and seqs[j - 1] < seq:
            sources[j], rows[j], seqs[j] = sources[j - 1], rows[j - 1], seqs[j - 1]
            j -= 1
        sources[j], rows[j], seqs[j] = source, row, seq


@jit
def _sort_many(state, count):
    """Put much in order: by some bits of the seq at a time, the lowest first."""
    facts = words(state, S_WORDS)
    seqs, counts = words(facts[S_OUT_SEQS], count), words(facts[S_COUNTS], COUNTS)
    low, high = seqs[0], seqs[0]
    for i in range(count):
        low, high = min(low, seqs[i]), max(high, seqs[i])
    bits = 64 - leading_zeros(np.uint64(high - low))
    passes = 1
    while passes << ((bits + passes - 1) // passes) > COUNTS:
        passes += 1
    each = (bits + passes - 1) // passes
    digits, mask = 1 << each, (1 << each) - 1
    for place in range(passes << each):
        counts[place] = 0
    for i in range(count):
        far = high - seqs[i]
        for number in range(passes):
            counts[(number << each) + ((far >> (number * each)) & mask)] += 1
    order, other = words(facts[S_ENDS], count), words(facts[S_SPARE], count)
    for number in range(passes):
        shift, places = number * each, number << each
        first = 0
        for place in range(places, places + digits):
            first, counts[place] = first + counts[place], first
        for i in range(count):
            row = order[i] if number else i
            place = places + (((high - seqs[row]) >> shift) & mask)
            other[counts[place]] = row
            counts[place] += 1
        order, other = other, order
    for column in (facts[S_OUT_SOURCES], facts[S_OUT_ROWS], facts[S_OUT_SEQS]):
        values = words(column, count)
        for i in range(count):
            other[i] = values[order[i]]
        for i in range(count):
            values[i] = other[i]


@jit
def settle(state, k, texts):
    """Put what was found in order: the newest first, each once, at most `k`. How many there are.

    With `texts`, their documents go to S_REPLY, and S_FOUND_SIZE says how many bytes they have.
    """
    facts = words(state, S_WORDS)
    count = facts[S_OUT_COUNT]
    sources, rows = words(facts[S_OUT_SOURCES], count), words(facts[S_OUT_ROWS], count)
    seqs = words(facts[S_OUT_SEQS], count)
    if not _is_falling(seqs, count):
        if count <= _SOME:
            _sort_few(state, count)
        else:
            _sort_many(state, count)
        kept = 1
        for i in range(1, count):
            if seqs[i] != seqs[kept - 1]:
                sources[kept], rows[kept], seqs[kept] = sources[i], rows[i], seqs[i]
                kept += 1
        count = kept
    count = min(count, k)
    facts[S_OUT_COUNT] = count
    if texts:
        facts[S_FOUND_SIZE] = deliver(state, count, 1)
    return count
