"""How marks lie in memory and in the log: as *runs*, lists of who was told what.

A run has one fixed number and a list of words. With each word it says one mark (told.py):

    heap    head | fixed | word ...                     its own words
            head | fixed | where the words stand        the words of an earlier run (REF)
    head    kind + number of words << 8

    kind    by event: fixed is the event's seq, the words are users, or roots of subscriptions
            by asker (BY_ASKER): fixed is a user, or a root; the words are seqs of events
            OF_SUB: the marks are those of subscriptions, not of users
            VOID: taken back

Events at one place are told to much the same subscriptions. So a batch writes each user once, and
later runs of the same call refer to the words of earlier ones: a call notes, for every record that
answers, where its word stands (C_SUB_TOLD, C_EVENT_TOLD: heap place + generation of the window
<< 40, and the place in the log's row). A run refers to words of its own window only, because
windows are dropped whole.

The log's row of a call has the same runs in the same order, with two differences. A run has one
more word, after the fixed one: the end of its event, by which recovery finds its window. And REF
counts words from the beginning of the row:

    TOLD row    head .. text (R_*) | run ...     at: answers so far; until: the latest end
    run         head + heap place << 24 | fixed | until | word ..., or the word of the row

The heap place is for taking a call back; it means nothing to recovery.

Runs lie in chunks, in windows of marks (heap.py `pick_window`). A run is within one chunk.
"""

from __future__ import annotations

from tideline.kernels import inline, jit
from tideline.kernels.heap import (
    LEAST_WIDTH,
    MOST_MARKS,
    allocate,
    free_segments,
    pick_window,
    windows_of,
)
from tideline.kernels.layout import (
    C_ANSWERED,
    C_EVENT_TOLD,
    C_NEWEST,
    C_REFS_CAP,
    C_REMEMBER,
    C_SUB_TOLD,
    C_TOLD,
    C_TOLD_CAP,
    C_TOLD_HEAP,
    C_TOLD_RUN,
    C_TOLD_UNTIL,
    C_TOLD_USED,
    C_TOLD_WANTED,
    CHUNK,
    DONE,
    E_TOLD_CAP,
    E_TOLD_USED,
    FOREVER,
    LOW40,
    NEED_MEMORY,
    NEED_OUTPUT,
    OPEN,
    R_AT,
    R_BODY,
    R_LENGTHS,
    R_NOW,
    R_SEQ,
    R_TEXT,
    R_UNTIL,
    SEGMENT,
    SPARE,
    SUBS,
    TOLD,
    TOLD_SIDE,
    W_EVENT_UNTIL_HIGH,
    W_GEN,
    W_LIMIT,
    W_STATE,
    W_TOLD,
    W_TOLD_HEAD,
    W_WIDTH,
)
from tideline.kernels.slots import chunk_used
from tideline.kernels.views import words

BY_ASKER, OF_SUB, REF, VOID = 1, 2, 4, 8
MOST_WORDS = 0xFFFF  # of one run
HEAP_RUN, LOG_RUN = 2, 3  # words before the list
LEAST_SHARED = 6  # words worth a run that refers to them
_CHUNK_WORDS = 2047  # of a large chunk
_GENERATION = 0x3FFFFF


@jit
def run_words(head):
    """How many words a run has."""
    return (head >> 8) & MOST_WORDS


# ---- windows and room ------------------------------------------------------------------


@jit
def window_for(e, w, until, made):
    """The window for marks of an event that was stored at `made`; often it is the last one, `w`."""
    ws = windows_of(e)
    if ws[w + W_STATE] == OPEN and ws[w + W_WIDTH] & 1 and ws[w + W_TOLD] < MOST_MARKS:
        width = ws[w + W_WIDTH] - 1
        life = until - made
        if until <= ws[w + W_LIMIT] and until > ws[w + W_LIMIT] - width:
            if life <= width and (life * 2 > width or width == LEAST_WIDTH):
                return w
    return pick_window(e, TOLD_SIDE, until, made)


@jit
def generation_of(e, w):
    """What tells a window from all others, in the bits from 40 on; never 0."""
    return ((windows_of(e)[w + W_GEN] & _GENERATION) | (1 << 22)) << 40


@inline
def shared_words(c, side):
    """For every code of a side: where its word stands in the heap and in the log's row."""
    return words(c[C_SUB_TOLD if side == SUBS else C_EVENT_TOLD], 2 * c[C_REFS_CAP])


@jit
def room_for(c, e, count, by_asker):
    """DONE when so many marks can be left, else what is needed. Nothing has happened then."""
    # The events of one asker may lie in many windows: a run may begin with every mark. The log
    # has one word more a run.
    need = (LOG_RUN + 1 if by_asker else 2) * count
    c[C_TOLD_WANTED] = need
    if c[C_TOLD_USED] + need + LOG_RUN + 1 > c[C_TOLD_CAP]:
        return NEED_OUTPUT
    if free_segments(e) < SPARE + need // SEGMENT:
        return NEED_MEMORY
    if e[E_TOLD_CAP] > 0 and (e[E_TOLD_USED] + count) * 5 >= e[E_TOLD_CAP] * 3:
        return NEED_MEMORY
    return DONE


@jit
def chunk_with(e, h, w, count):
    """A chunk of a window that has room for so many words, few."""
    ws = windows_of(e)
    chunk = ws[w + W_TOLD_HEAD]
    cap = h[chunk] >> 52 if chunk > 0 else 0
    if chunk > 0 and chunk_used(h, chunk) + count <= cap:
        return chunk
    cap = min(max(2 * cap, 16), _CHUNK_WORDS)
    fresh = allocate(e, h, w, CHUNK + cap)
    h[fresh] = chunk | (cap << 52)
    ws[w + W_TOLD_HEAD] = fresh
    return fresh


# ---- writing ---------------------------------------------------------------------------


@jit
def begin_run(c, e, h, w, kind, fixed):
    """Begin a run in a window and in the row of the log; there is room for one word of it."""
    chunk = chunk_with(e, h, w, HEAP_RUN + 1)
    at = chunk + CHUNK + chunk_used(h, chunk)
    h[at] = kind
    h[at + 1] = fixed
    h[chunk] += HEAP_RUN << 40
    out = words(c[C_TOLD], c[C_TOLD_CAP])
    run = c[C_TOLD_USED]
    out[run] = kind | (at << 24)
    out[run + 1] = fixed
    out[run + 2] = -FOREVER
    c[C_TOLD_RUN] = run
    c[C_TOLD_HEAP] = at
    c[C_TOLD_USED] = run + LOG_RUN


@jit
def end_run(c, e, h, w, marks, until, listed):
    """End the run that is open, if one is: so many marks, the last of whose events ends at `until`.

    `listed` of its words were written behind it, in the heap and in the log.
    """
    run = c[C_TOLD_RUN]
    if run < 0:
        return
    ws = windows_of(e)
    out = words(c[C_TOLD], c[C_TOLD_CAP])
    h[c[C_TOLD_HEAP]] += marks << 8
    h[ws[w + W_TOLD_HEAD]] += listed << 40
    out[run] += marks << 8
    out[run + 2] = until
    ws[w + W_TOLD] += marks
    c[C_TOLD_USED] += listed
    c[C_TOLD_RUN] = -1
    if until > c[C_TOLD_UNTIL]:
        c[C_TOLD_UNTIL] = until
    if until > ws[w + W_EVENT_UNTIL_HIGH]:
        ws[w + W_EVENT_UNTIL_HIGH] = until


@jit
def room_of_chunk(e, h, w):
    """Where the chunk ends that a window writes to."""
    chunk = windows_of(e)[w + W_TOLD_HEAD]
    return chunk + CHUNK + (h[chunk] >> 52)


@jit
def add_shared(c, e, h, w, kind, fixed, until, at, in_row, count):
    """A run of words that stand in the same window already, and in the row of the log."""
    begin_run(c, e, h, w, kind | REF, fixed)
    h[c[C_TOLD_HEAP] + HEAP_RUN] = at
    words(c[C_TOLD], c[C_TOLD_CAP])[c[C_TOLD_USED]] = in_row
    end_run(c, e, h, w, count, until, 1)


# ---- the log ---------------------------------------------------------------------------


@jit
def no_runs(c):
    """What the call told so far is logged, or was not told."""
    c[C_TOLD_USED] = R_BODY
    c[C_TOLD_RUN] = -1
    c[C_TOLD_UNTIL] = -FOREVER


@jit
def finish_told_row(c, answered):
    """Complete the row of the call's marks, which stands at C_TOLD. Returns its words."""
    out = words(c[C_TOLD], c[C_TOLD_CAP])
    used = c[C_TOLD_USED]
    out[0] = TOLD | (used << 32)
    out[R_SEQ] = 0
    out[R_NOW] = c[C_NEWEST]
    out[R_AT] = answered
    out[R_UNTIL] = c[C_TOLD_UNTIL]
    out[R_LENGTHS] = 0
    out[R_TEXT] = 0
    return used


@jit
def replay_told(c, e, h, row, p):
    """Bring the marks of a row back, unless their events have expired. Returns a status.

    C_TOLD is a map meanwhile: for every word of the row, its window and its place in the heap.
    """
    size = row[p] >> 32
    if row[p + R_AT] > c[C_ANSWERED]:
        c[C_ANSWERED] = row[p + R_AT]
    if row[p + R_UNTIL] <= c[C_NEWEST] or not c[C_REMEMBER]:
        return DONE
    if size > c[C_TOLD_CAP]:
        c[C_TOLD_WANTED] = size
        return NEED_OUTPUT
    e[E_TOLD_CAP] = 0  # it is made anew when somebody asks
    places = words(c[C_TOLD], c[C_TOLD_CAP])
    w = 0
    at = max(c[C_TOLD_RUN], R_BODY)  # where it stopped for want of memory, or the first
    while at < size:
        head = row[p + at]
        kind = head & 0xFF
        count = run_words(head)
        until = row[p + at + 2]
        first = row[p + at + LOG_RUN] if kind & REF else at + LOG_RUN
        if until > c[C_NEWEST]:
            if free_segments(e) < SPARE + 2 * count // SEGMENT:
                c[C_TOLD_WANTED] = 2 * count
                c[C_TOLD_RUN] = at
                return NEED_MEMORY
            w = window_for(e, w, until, row[p + R_NOW])
            replay_run(e, h, w, kind, row[p + at + 1], until, row, p, first, count, places)
        elif kind & REF == 0:
            for i in range(first, first + count):
                places[i] = 0
        at += LOG_RUN + (1 if kind & REF else count)
    no_runs(c)
    return DONE


@jit
def replay_run(e, h, w, kind, fixed, until, row, p, first, count, places):
    """Store the words [first, first + count) of a row as runs, shared where they can be."""
    ws = windows_of(e)
    generation = generation_of(e, w)
    open_run = -1
    i = first
    while i < first + count:
        n = 0
        if kind & REF and places[i] & ~LOW40 == generation:
            n = 1
            while i + n < first + count and places[i + n] == places[i] + n:
                n += 1
        chunk = ws[w + W_TOLD_HEAD]
        if n >= LEAST_SHARED or open_run < 0 or chunk_used(h, chunk) == h[chunk] >> 52:
            chunk = chunk_with(e, h, w, HEAP_RUN + 1)
            open_run = chunk + CHUNK + chunk_used(h, chunk)
            h[open_run] = kind & ~REF
            h[open_run + 1] = fixed
            h[chunk] += HEAP_RUN << 40
        if n >= LEAST_SHARED:
            h[open_run] += REF + (n << 8)
            h[open_run + 2] = places[i] & LOW40
            h[chunk] += 1 << 40
            ws[w + W_TOLD] += n
            open_run = -1
            i += n
        else:
            at = chunk + CHUNK + chunk_used(h, chunk)
            h[at] = row[p + i]
            h[open_run] += 1 << 8
            h[chunk] += 1 << 40
            ws[w + W_TOLD] += 1
            if kind & REF == 0:
                places[i] = generation | at
            i += 1
    if until > ws[w + W_EVENT_UNTIL_HIGH]:
        ws[w + W_EVENT_UNTIL_HIGH] = until


@jit
def take_told_back(c, e, h):
    """The answers of the call were not given: their marks go, and the table with them."""
    out = words(c[C_TOLD], c[C_TOLD_CAP])
    at = R_BODY
    while at < c[C_TOLD_USED]:
        head = out[at]
        h[head >> 24] |= VOID
        at += LOG_RUN + (1 if head & REF else run_words(head))
        e[E_TOLD_CAP] = 0
    no_runs(c)
