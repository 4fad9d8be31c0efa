"""Which candidates of an index count, many at a time.

A candidate is a key and a seq. It counts exactly when the newest version of the key has that seq,
is no tomb and has not expired. Sources hold disjoint ranges of seqs, or of keys, so most of them
need not be asked; the *home* of a candidate is the component that it was written to, as far as
its ranges tell.

    AHEAD candidates    1. hash of the key, home and the row there that the fence says: begin to
                           load that row, and the slots and blooms of newer sources
                        2. rows that the tables of memories lead to: begin to load those
                        3. ask, newest source first

Each step is done for all of them before the next one, so that waits for memory run side by side.

A row that has the seq has the key, too: a write has one seq. So keys are compared only where no
row near has the seq, which means that the candidate is stale, or that its home is another.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.fence import narrow, row_key, row_of, word_of
from tideline.kernels.documents.layout import (
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
    S_STEPS,
    S_WORDS,
    X_BLOOM,
    X_BLOOM_LINES,
    X_DOC_OFFSETS,
    X_FLAGS,
    X_HIGH,
    X_LOW,
    X_ROWS,
    X_SEQ_HIGH,
    X_SEQ_LOW,
    X_SEQS,
    X_TABLE,
    X_TABLE_CAP,
)
from tideline.kernels.documents.octets import hash_bytes, prefix_of, same_bytes
from tideline.kernels.documents.records import LOW32, bloom_line, find_row, in_view, is_gone
from tideline.kernels.lanes import get64, hot
from tideline.kernels.views import prefetch, words
from tideline.kernels.words import Layout

__all__ = ["AHEAD", "STEPS_WORDS", "follow", "newest"]

AHEAD = 32  # candidates that are followed side by side
_NEAR = 64  # rows to each side of the one that the fence says, among which the seq is looked for
STEP = Layout("step", "T_", "what is known of a candidate that is followed", globals())
T_KEY = STEP.address("its key")
T_SIZE = STEP.count("bytes of it")
T_HASH = STEP.word("hash of them")
T_PREFIX = STEP.word("prefix of them")
T_HOME = STEP.word("number of its home; as many as there are sources: none is known")
T_FIRST = STEP.word("the rows of its home that the key is among")
T_LIMIT = STEP.word("... and where they end")
T_ROW = STEP.word("the row to look at first")
T_WORDS = STEP.end(spare=1)
STEPS_WORDS = AHEAD * T_WORDS


@hot
def _may_have(source, prefix):
    """Whether keys with a prefix are in the range of those of a component."""
    return get64(source + 8 * X_LOW) <= prefix and prefix <= get64(source + 8 * X_HIGH)


@hot
def _load_row(source, row):
    prefetch(get64(source + 8 * X_SEQS) + 8 * row)
    prefetch(get64(source + 8 * X_FLAGS) + row)
    prefetch(get64(source + 8 * X_DOC_OFFSETS) + 8 * row)


@jit
def _begin(state, t, seq):
    """Step 1 of a candidate."""
    facts = words(state, S_WORDS)
    step = words(t, T_WORDS)
    key, size = step[T_KEY], step[T_SIZE]
    h = hash_bytes(key, size, facts[S_SEED])
    prefix = prefix_of(key, size)
    step[T_HASH], step[T_PREFIX] = h, prefix
    step[T_HOME] = facts[S_SOURCE_COUNT]
    for number in range(facts[S_SOURCE_COUNT]):
        source = get64(facts[S_SOURCES] + 8 * number)
        if get64(source + 8 * X_SEQ_HIGH) < seq:
            continue  # only older ones
        cap = get64(source + 8 * X_TABLE_CAP)
        if cap:
            if get64(source + 8 * X_ROWS):
                prefetch(get64(source + 8 * X_TABLE) + 8 * (h & (cap - 1)))
        elif not _may_have(source, prefix):
            continue
        elif get64(source + 8 * X_SEQ_LOW) <= seq:
            first, limit, row = narrow(source, word_of(source, key, size))
            row = min(row, limit - 1)
            step[T_HOME], step[T_FIRST], step[T_LIMIT], step[T_ROW] = number, first, limit, row
            _load_row(source, row)
            return
        else:
            lines = get64(source + 8 * X_BLOOM_LINES)
            prefetch(get64(source + 8 * X_BLOOM) + 64 * bloom_line(h, lines))


@jit
def _load(state, t, seq):
    """Step 2 of a candidate."""
    facts = words(state, S_WORDS)
    h = words(t, T_WORDS)[T_HASH]
    for number in range(min(words(t, T_WORDS)[T_HOME], facts[S_SOURCE_COUNT])):
        source = get64(facts[S_SOURCES] + 8 * number)
        cap = get64(source + 8 * X_TABLE_CAP)
        if cap == 0:
            return  # memories come first
        rows = get64(source + 8 * X_ROWS)
        if rows and get64(source + 8 * X_SEQ_HIGH) >= seq:
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
    key, size, h = step[T_KEY], step[T_SIZE], step[T_HASH]
    for number in range(facts[S_SOURCE_COUNT]):
        source = get64(facts[S_SOURCES] + 8 * number)
        if get64(source + 8 * X_SEQ_HIGH) < seq:
            continue
        if get64(source + 8 * X_TABLE_CAP):
            if get64(source + 8 * X_ROWS) == 0:
                continue
            row = _row_in_memory(source, key, size, h, seq)
        elif number == step[T_HOME]:
            facts[S_PRIMARY_BLOCKS] += 1
            row = _row_at_home(source, t, seq)
        elif _may_have(source, step[T_PREFIX]):
            row = find_row(state, source, key, size, h, step[T_PREFIX])
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
def _some(state, seqs, first, some):
    """All steps for candidates whose keys are written down."""
    facts = words(state, S_WORDS)
    steps = facts[S_STEPS]
    for j in range(some):
        _begin(state, steps + 8 * T_WORDS * j, seqs[first + j])
    for j in range(some):
        _load(state, steps + 8 * T_WORDS * j, seqs[first + j])
    for j in range(some):
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
        some = min(AHEAD, count - first)
        for j in range(some):
            steps[T_WORDS * j + T_KEY] = keys[first + j]
            steps[T_WORDS * j + T_SIZE] = sizes[first + j]
        _some(state, seqs, first, some)


@jit
def newest(state, offsets_at, base, count, seqs_at):
    """The same of keys that stand one after the other. Returns how many were found by then."""
    facts = words(state, S_WORDS)
    steps = words(facts[S_STEPS], STEPS_WORDS)
    offsets, seqs = words(offsets_at, count + 1), words(seqs_at, count)
    for first in range(0, count, AHEAD):
        if facts[S_OUT_COUNT] >= facts[S_K]:
            break
        some = min(AHEAD, count - first)
        for j in range(some):
            steps[T_WORDS * j + T_KEY] = base + offsets[first + j]
            steps[T_WORDS * j + T_SIZE] = offsets[first + j + 1] - offsets[first + j]
        _some(state, seqs, first, some)
    return facts[S_OUT_COUNT]
