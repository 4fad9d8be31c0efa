"""One call of a search: the question, how far it is, and the newest entries so far.

    call   C_* words: where the search stands and what it gave
           Q_* words: the question (low and high bytes, flags)
           seqs[room] | addresses of keys[room] | lengths[room] | offsets[room + 1] | keys
           (offsets of keys count from the start of the call)

The newest entries of a place are kept in a heap with the oldest at its root (paper 001,
algorithm 6); a list that is read in falling order fills it and needs no more.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.octets import prefix_of
from tideline.kernels.words import Layout

LOW_OPEN, HIGH_OPEN, NO_HIGH, POINT, EAGER, ALL = 1, 2, 4, 8, 16, 32
SEARCH = Layout("search", "C_", "where a search of entries stands and what it gave", globals())
C_PLACE = SEARCH.word("in, out: the place where the search goes on")
C_BELOW = SEARCH.word("in, out: seq below which it goes on")
C_BYTES = SEARCH.count("out: bytes of their keys; not copied when there is no room for them")
C_BLOCKS = SEARCH.count("out: blocks of components that were read")
C_COUNT = SEARCH.count("in the heap of the running place")
C_HEAPED = SEARCH.word("whether they are in the order of a heap")
C_LEFT = SEARCH.word("whether the running place has more than there was room for")
C_WORDS = SEARCH.end(spare=1)
QUESTION = Layout("question", "Q_", "what a search of entries looks for", globals())
Q_LOW = QUESTION.address("bytes of the least value")
Q_LOW_SIZE = QUESTION.count("how many")
Q_LOW_PREFIX = QUESTION.word("their prefix")
Q_HIGH = QUESTION.address("bytes of the greatest value")
Q_HIGH_SIZE = QUESTION.count("how many")
Q_HIGH_PREFIX = QUESTION.word("their prefix")
Q_FLAGS = QUESTION.word("LOW_OPEN, HIGH_OPEN, NO_HIGH, POINT, EAGER, ALL")
Q_WORDS = QUESTION.end(spare=1)
CALL_WORDS = C_WORDS + Q_WORDS
EVERYTHING = (1 << 62) - 1  # above every seq


@jit
def ask(q, text, low_size, high_size, flags):
    """Write down a question; at `text` there is low, then high."""
    q[Q_LOW] = text
    q[Q_LOW_SIZE] = low_size
    q[Q_HIGH] = text + low_size
    q[Q_HIGH_SIZE] = high_size
    q[Q_LOW_PREFIX] = prefix_of(q[Q_LOW], low_size)
    q[Q_HIGH_PREFIX] = prefix_of(q[Q_HIGH], high_size)
    q[Q_FLAGS] = flags


@jit
def sink(seqs, addresses, lengths, base, at, count):
    """Put the entry at `at` of a heap of `count` where it belongs below."""
    seq, address, length = seqs[base + at], addresses[base + at], lengths[base + at]
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and seqs[base + child + 1] < seqs[base + child]:
            child += 1
        if seqs[base + child] >= seq:
            break
        seqs[base + at] = seqs[base + child]
        addresses[base + at] = addresses[base + child]
        lengths[base + at] = lengths[base + child]
        at = child
    seqs[base + at] = seq
    addresses[base + at] = address
    lengths[base + at] = length


@jit
def heapify(seqs, addresses, lengths, base, count):
    for at in range(count // 2 - 1, -1, -1):
        sink(seqs, addresses, lengths, base, at, count)


@jit
def offer(c, seqs, addresses, lengths, base, room, seq, address, length):
    """Keep an entry if it is among the newest. False: neither it nor an older one is."""
    count = c[C_COUNT]
    if count < room:
        seqs[base + count] = seq
        addresses[base + count] = address
        lengths[base + count] = length
        c[C_COUNT] = count + 1
        return True
    c[C_LEFT] = 1
    if c[C_HEAPED] == 0:
        heapify(seqs, addresses, lengths, base, count)
        c[C_HEAPED] = 1
    if seq <= seqs[base]:
        return False
    seqs[base] = seq
    addresses[base] = address
    lengths[base] = length
    sink(seqs, addresses, lengths, base, 0, count)
    return True


@jit
def sort_falling(c, seqs, addresses, lengths, base):
    """Sort what a place gave by falling seq and leave out repetitions. Returns how many stay."""
    count = c[C_COUNT]
    falling = c[C_HEAPED] == 0
    for i in range(base + 1, base + count):
        if not falling:
            break
        falling = seqs[i - 1] > seqs[i]
    if falling:
        return count
    if c[C_HEAPED] == 0:
        heapify(seqs, addresses, lengths, base, count)
    for last in range(count - 1, 0, -1):
        seq, address, length = seqs[base + last], addresses[base + last], lengths[base + last]
        seqs[base + last] = seqs[base]
        addresses[base + last] = addresses[base]
        lengths[base + last] = lengths[base]
        seqs[base], addresses[base], lengths[base] = seq, address, length
        sink(seqs, addresses, lengths, base, 0, last)
    kept = 0
    for i in range(base, base + count):
        if kept > 0 and seqs[i] == seqs[base + kept - 1]:
            continue
        seqs[base + kept] = seqs[i]
        addresses[base + kept] = addresses[i]
        lengths[base + kept] = lengths[i]
        kept += 1
    return kept
