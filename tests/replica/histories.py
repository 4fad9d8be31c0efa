"""Whether a history of calls is linearizable: our own checker, and one by brute force to check it.

A call was made at `begin` and answered at `end`; one that was never answered (`end` is `NEVER`) may
have happened at any time after `begin`, or not at all. A history is linearizable when its calls can
be put in an order that agrees with these times and explains every result.

The state of one key is a tuple of words. Calls: put a word, append a word, read.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

NEVER = 1 << 60
MOST_TRIES = 20_000  # of a right history a few hundred are needed


class Undecided(AssertionError):
    """Too many orders to try: not shown to be linearizable."""


State = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    begin: int
    end: int
    key: int
    kind: str  # "put", "append" or "read"
    word: int = 0
    result: State | None = None  # of a read
    hint: int = NEVER  # where it stands in an order that is likely to explain everything


def apply(state: State, call: Call) -> State:
    if call.kind == "put":
        return (call.word,)
    return (*state, call.word) if call.kind == "append" else state


def explains(state: State, call: Call) -> bool:
    """Whether the call can have had its result in this state."""
    return call.kind != "read" or call.end == NEVER or call.result == state


def is_linearizable(history: list[Call]) -> bool:
    """Each key on its own: a history is linearizable exactly when it is for every key."""
    keys = {call.key for call in history}
    return all(_key_is([c for c in history if c.key == key]) for key in keys)


def _key_is(calls: list[Call]) -> bool:
    """Depth first over which call comes next, never twice from the same calls and state.

    What has the lowest hint is tried first: a good hint finds an order at once.

    A write that was neither answered nor seen by a read is left out: what follows from it up to the
    next put would have been seen with it.
    """
    seen = {word for c in calls if c.end != NEVER and c.result for word in c.result}
    calls = [c for c in calls if c.end != NEVER or (c.kind != "read" and c.word in seen)]
    calls.sort(key=lambda c: c.begin)
    needed = sum(1 << n for n, c in enumerate(calls) if c.end != NEVER)
    tried: set[tuple[int, State]] = set()
    stack: list[tuple[int, State]] = [(0, ())]
    while stack:
        done, state = stack.pop()
        if done & needed == needed:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        if len(tried) > MOST_TRIES:
            raise Undecided("too many orders to try: not shown to be linearizable")
        # The next call is one that began before any other that is left ended.
        left, limit = [], NEVER
        for n in range((~done & (done + 1)).bit_length() - 1, len(calls)):
            call = calls[n]
            if call.begin > limit:
                break
            if not done >> n & 1:
                limit = min(limit, call.end)
                left.append((call.hint, call.kind == "read", call.end, n))
        for *_, n in sorted(left, reverse=True):
            call = calls[n]
            if call.begin <= limit and explains(state, call):
                stack.append((done | 1 << n, apply(state, call)))
    return False


def is_linearizable_by_brute_force(history: list[Call]) -> bool:
    """Every order of every choice of the unanswered calls."""
    answered = [c for c in history if c.end != NEVER]
    open_ones = [c for c in history if c.end == NEVER]
    for chosen in range(1 << len(open_ones)):
        calls = answered + [c for n, c in enumerate(open_ones) if chosen >> n & 1]
        if any(_order_explains(order) for order in permutations(calls)):
            return True
    return False


def _order_explains(order: tuple[Call, ...]) -> bool:
    states: dict[int, State] = {}
    for at, call in enumerate(order):
        if any(later.end < call.begin for later in order[at + 1 :]):
            return False
        state = states.get(call.key, ())
        if not explains(state, call):
            return False
        states[call.key] = apply(state, call)
    return True
