"""Throw exceptions into calls: at every line, after every call, by signals, from another thread.

    Thrower("line", 7)       raises at the 7th line of Tideline's own code that a call comes to
    Thrower("call", 7)       raises at the 7th begin of a function, or end of a C function, there
    Thrower("line", 7, 3)    and again at the 3rd place of the other kind after that: while mending
    Storm                    a timer's signal handler raises in the main thread
    throw_into               throws into another thread, with PyThreadState_SetAsyncExc

    try_every_place          one operation, cut at its first place, its second, and so on; by
                             default at every third (profiles.py)
    twice, by_signals, thrown_from_another_thread        a call, cut somehow, for random operations

An *operation* gets a model ready. It returns the call, and what must hold after it, hit or not.

The first are exact and can be replayed: run with 1, 2, 3 ... until the call ends without being hit,
and every place was tried. CPython delivers an asynchronous exception after a call of a C function,
at a backward jump, and at the begin of a function; a line is at least as strict, but for one
place: when a `with` block ends, there is an event for its line before the lock is given back, where
nothing can ever be thrown. That one is left out.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import itertools
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from profiles import STRIDE

import tideline

_ROOT = str(Path(tideline.__file__).parent)
_PARTS = tuple(
    f"{_ROOT}/{part}"
    for part in ("channel/", "lsm/", "index/", "documents/", "database", "shelter")
)

Operation = Callable[[Any], tuple[Callable[[], Any], Callable[[bool], None]]]
Interrupted = Callable[[Callable[[], Any], random.Random], tuple[bool, str]]
"""Runs a call and cuts it; whether it did, and where."""


class Cut(BaseException):
    """What is thrown in; nothing of Tideline knows it."""


@functools.cache
def _with_ends(code: CodeType) -> frozenset[int]:
    """Where a `with` block ends: before `__exit__`, where nothing can be thrown.

    Without an exception, that is called with None, None, None; when it ends by `return`, the
    value is put aside first.
    """
    found = list(dis.get_instructions(code))
    ends = set()
    for k in range(len(found) - 2):
        nones = [x for x in found[k : k + 3] if x.opname == "LOAD_CONST" and x.argval is None]
        if len(nones) == 3:
            ends.add(found[k].offset)
            if k and found[k - 1].opname == "SWAP":
                ends.add(found[k - 1].offset)
    ends |= {each.offset for each in found if each.opname == "NOP"}  # `try:`, of no handler
    for first, second in itertools.pairwise(found):
        if second.opname == "WITH_EXCEPT_START":
            ends |= {first.offset, second.offset}
    return frozenset(ends)


class Thrower:
    """A context in which the n-th place of a kind raises; `hit` tells whether there was one.

    With `again`, the so-many-th place of the other kind after that raises as well. `parts` are
    the files that count, by how their paths begin.
    """

    def __init__(
        self, kind: str, n: int, again: int = 0, parts: tuple[str, ...] = _PARTS
    ) -> None:  # fmt: skip
        self._kind = kind
        self._parts = parts
        self._left = n
        self._again = again
        self.hit = False
        self.where = ""

    def __enter__(self) -> Thrower:
        (sys.settrace if self._kind == "line" else sys.setprofile)(self._event)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:  # fmt: skip
        sys.settrace(None)
        sys.setprofile(None)
        return isinstance(value, Cut)

    def _event(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._parts):
            return None
        if self._kind == "line":
            if event != "line" or frame.f_lasti in _with_ends(frame.f_code):
                return self._event
        elif event not in ("call", "c_return"):
            return None
        self._left -= 1
        if self._left:
            return self._event
        self.hit = True
        self.where += f" {Path(frame.f_code.co_filename).name}:{frame.f_lineno}:{event}"
        # Whichever function raises is set no more.
        if self._again:
            self._kind = "call" if self._kind == "line" else "line"
            self._left, self._again = self._again, 0
            if self._kind == "call":
                sys.setprofile(self._event)
            else:
                sys.settrace(self._event)
                below: FrameType | None = frame
                while below is not None:
                    below.f_trace = self._event
                    below = below.f_back
        raise Cut


@functools.cache
def _cuts_may_be_lost() -> None:
    """Be silent, from now on, about cuts that nobody can get.

    One thrown while an object was let go of has nobody to go to. One thrown at a thread that has
    just started another may hit that one: until it runs, CPython has it under the number of the
    first (`tideline/shelter.py` lives with that). On a busy machine it may run only when the test
    is over.
    """
    hook = sys.unraisablehook

    def told(found: Any) -> None:
        if not isinstance(found.exc_value, Cut):
            hook(found)

    sys.unraisablehook = told


class Storm:
    """Signals whose handler raises `Cut` in the main thread, while it is `armed`."""

    def __init__(self) -> None:
        self.thrown = 0
        self.armed = False

    def __enter__(self) -> Storm:
        self._before = signal.signal(signal.SIGALRM, self._throw)
        _cuts_may_be_lost()
        return self

    def __exit__(self, *_: object) -> None:
        self.calm()
        signal.signal(signal.SIGALRM, self._before)

    def strike(self, call: Callable[[], Any], first_s: float, then_s: float = 0.0) -> bool:
        """Run a call and throw after a time, and again and again, if told so. Whether it did."""
        before = self.thrown
        try:
            try:
                self.armed = True
                signal.setitimer(signal.ITIMER_REAL, first_s, then_s)
                call()
            finally:
                self.armed = False
        except Cut:
            pass
        except RuntimeError as error:  # a generator that was cut while it ended, say
            if not isinstance(error.__context__, Cut):
                raise
        self.calm()
        return self.thrown > before

    def calm(self) -> None:
        """Throw no more."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _throw(self, number: int, frame: Any) -> None:
        if self.armed:
            self.thrown += 1
            raise Cut


def throw_into(thread: threading.Thread) -> None:
    """Throw `Cut` into another thread."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Cut))


# ---- operations ---------------------------------------------------------------------------------


def try_every_place(model: Any, operation: Operation, kind: str, step: int = 1) -> int:
    """Cut an operation at every place (by default at every third), or every so many with `step`;
    after each, the model agrees. About how many places it has."""
    n = 1
    while True:
        call, after = operation(model)
        thrower = Thrower(kind, n)
        with thrower:
            call()
        try:
            after(thrower.hit)
            model.agree()
        except BaseException as error:
            error.add_note(f"thrown at {kind} {n}:{thrower.where}")
            raise
        model.tidy()
        if not thrower.hit:
            return n
        n += step * STRIDE


def twice(call: Callable[[], Any], rng: random.Random) -> tuple[bool, str]:
    """Interrupt a call, and what mends it."""
    thrower = Thrower(rng.choice(["line", "call"]), rng.randrange(1, 150), rng.randrange(1, 40))
    with thrower:
        call()
    return thrower.hit, thrower.where


def _moment_s(rng: random.Random) -> float:
    return rng.choice([1e-5, 1e-4, 1e-3]) * rng.uniform(0.1, 3)


@contextmanager
def by_signals() -> Iterator[Interrupted]:
    """Gives what interrupts calls of the main thread by signals, some by many."""
    with Storm() as storm:

        def interrupted(call: Callable[[], Any], rng: random.Random) -> tuple[bool, str]:
            again_s = rng.choice([0.0, 0.0, 0.00003])
            return storm.strike(call, _moment_s(rng), again_s), "by a signal"

        yield interrupted


def thrown_from_another_thread(work: Callable[[Interrupted], None]) -> None:
    """Run work in a thread, with what lets another thread throw into its calls."""
    failed: list[BaseException] = []
    orders: queue.SimpleQueue[float | None] = queue.SimpleQueue()
    thrown = [0]

    def interrupted(call: Callable[[], Any], rng: random.Random) -> tuple[bool, str]:
        before, moment_s = thrown[0], _moment_s(rng)
        ordered = cut = done = False
        looks = 3  # after the throw: it comes at once, or it was swallowed, or hit a new thread
        while not (done and thrown[0] > before and (cut or not looks)):
            try:
                if not ordered:  # in here: on a busy machine it may come at once
                    ordered = True
                    orders.put(moment_s)
                if not done:
                    done = True
                    call()
                elif thrown[0] > before:
                    looks -= 1
                time.sleep(0.0001)
            except Cut:
                cut = True
        return cut, "by another thread"

    def run() -> None:
        try:
            work(interrupted)
        except BaseException as error:
            failed.append(error)
        orders.put(None)

    thread = threading.Thread(target=run)
    _cuts_may_be_lost()
    thread.start()
    while (delay := orders.get()) is not None:
        time.sleep(delay)
        throw_into(thread)
        thrown[0] += 1
    thread.join()
    if failed:
        raise failed[0]
