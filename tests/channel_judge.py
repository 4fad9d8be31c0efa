"""Holds what a real store said in a story (channel_stories.py) against what the model says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from channel_model import FOREVER, WORLDS, Event, Handle, Journal, Model, Refused, Sub
from channel_writer import START

Op = dict[str, Any]


class Difference(Exception):
    """The store and the model do not say the same."""

    def __init__(self, where: int, op: Op, what: str) -> None:
        super().__init__(f"operation {where}: {what}\n  {short(op)}")
        self.where, self.op, self.what = where, op, what


class Differs(Exception):
    pass


class Undecided(Exception):
    """Whether an operation has happened cannot be asked without changing what is asked about."""


@dataclass
class Handed:
    """Answers of a subscription that are handed out now: they come with their tokens."""

    sub: Sub
    answers: list[tuple[int, Event]]


class Judge:
    """The model beside the results: every method says what an operation must give."""

    def __init__(self, space: str) -> None:
        self.model = Model(WORLDS[space])
        self.model.clock = START
        self.count_answers = False

    def concrete(self, op: Op) -> Op:
        """An operation as the store gets it: with the token or position that is known by now."""
        if op["op"] == "journal":
            journal = self.model.journal
            return {**op, "position": None if journal is None else journal.position}
        if op["op"] != "resume":
            return op
        after = op["after"]
        if after is None or after == "ahead":
            return {**op, "token": "9" * 18 if after else None}
        s = self.model.sub(op["id"], self.model.now())
        if s is None or not s.tokens:
            return {**op, "token": None}
        ranks = sorted(s.tokens)
        rank = ranks[min(int(after * len(ranks)), len(ranks) - 1)]
        return {**op, "token": s.tokens[rank], "rank": rank, "of": s}

    def step(self, op: Op, result: Any) -> None:
        """Compare one result."""
        if result[-1] == "fault":
            if result[:2] != ("error", "Unavailable"):
                raise Differs(f"a log write failed, and the call gave {result!r}")
            return
        try:
            wanted = self.expect(op)
        except Refused as refused:
            if result[:2] != ("error", str(refused)):
                raise Differs(f"expected {refused}, got {result!r}") from None
            return
        if result[0] != "ok":
            raise Differs(f"refused: {result!r}")
        check: Callable[[Op, Any, Any], None] = getattr(self, "check_" + op["op"], self._check)
        check(op, wanted, result[1])

    def expect(self, op: Op) -> Any:
        """What the model says; it has happened then."""
        return getattr(self, "do_" + op["op"])(op)

    # What must be given

    def do_clock(self, op: Op) -> None:
        self.model.clock = max(self.model.clock, op["to"])

    def do_publish(self, op: Op) -> Any:
        m = self.model
        at = m.clock if op["at"] is None else op["at"]
        replace = op.get("replace", False)
        related = [
            e.id for e in (m.related(op["place"]) if op["related"] else [])
            if not (replace and e.id == op["id"])
        ]  # fmt: skip
        how = "" if not replace else "always" if op["at"] is None else "once"
        repeated, told = m.publish(
            m.clock, op["id"], op["place"], tuple(op["body"]), at, _limit(op["until"]), how
        )
        return repeated, [(s.id, s.user) for s in told], [] if repeated else related

    def do_subscribe(self, op: Op) -> Any:
        m = self.model
        since = m.clock if op["since"] is None else op["since"]
        repeated, s, past = m.subscribe(
            m.clock, op["id"], op["user"], op["place"], since, _limit(op["until"]), op["where"],
            op["unseen"],
        )  # fmt: skip
        left = self._hold(op["id"], s if op["hold"] else None)
        return repeated, Handed(s, past), left

    def do_cancel(self, op: Op) -> Any:
        self.model.cancel(self.model.clock, op["id"])
        return self._hold(op["id"], None)

    def do_retract(self, op: Op) -> None:
        self.model.retract(op["id"])

    def do_move(self, op: Op) -> Any:
        return self.model.move(op["id"], op["place"]).facts()

    def do_get(self, op: Op) -> Any:
        m = self.model
        e = m.event(op["id"], m.now())
        return None if e is None else (e.id, e.place, e.at, e.until, e.body)

    def do_prolong(self, op: Op) -> Any:
        return self.model.prolong(op["id"], op["until"]).facts()

    def do_resume(self, op: Op) -> Any:
        m = self.model
        s = m.sub(op["id"], m.now())
        if s is None:
            raise Refused("NotFound")
        if op["after"] == "ahead":
            raise Refused("InvalidRequest")
        past = m.resume(s, op.get("rank", 0))
        left = self._hold(op["id"], s if op["hold"] else None)
        another = op["token"] is not None and op["of"] is not s  # the id was used again meanwhile
        return None if another else Handed(s, past), left

    def do_let_go(self, op: Op) -> Any:
        return self._hold(op["id"], None)

    def do_take(self, op: Op) -> Any:
        m, taken = self.model, {}
        for id, handle in list(m.handles.items()):
            if handle.queue:
                taken[id] = Handed(handle.sub, handle.queue)
                handle.queue = []
            if handle.sub.cancelled or m.now() >= handle.sub.until:
                del m.handles[id]
        return taken

    def do_find(self, op: Op) -> Any:
        found = self.model.find(op["place"], op["since"], op["until"], op["where"], op["limit"])
        return [(e.id, e.place, e.at, e.until, e.body) for e in found]

    def do_list(self, op: Op) -> Any:
        return self.model.listed(op["user"])

    def do_look(self, op: Op) -> Any:
        s = self.model.sub(op["id"], self.model.now())
        if s is None:
            raise Refused("NotFound")
        return s.facts()

    def do_stats(self, op: Op) -> Any:
        m = self.model
        return {
            "events": len(m.live_events(m.now())),
            "subscriptions": len(m.live_subs(m.now())),
            "answers": m.given,
        }

    def check_stats(self, op: Op, wanted: Any, got: Any) -> None:
        if not self.count_answers:
            wanted["answers"] = got["answers"]
        self._check(op, wanted, got)

    def do_apply(self, op: Op) -> Any:
        return self.model.apply(op["rows"], op.get("once"))

    def check_apply(self, op: Op, wanted: Any, got: Any) -> None:
        if [row[0] for row in got[1]] != sorted(row[0] for row in got[1]):
            raise Differs("the answers of a batch are not in the order of its rows")
        self._check(op, (wanted[0], sorted(wanted[1]), wanted[2]), (got[0], sorted(got[1]), got[2]))

    def do_seal(self, op: Op) -> None: ...

    def do_maintain(self, op: Op) -> None: ...

    def do_check(self, op: Op) -> None: ...

    def do_reopen(self, op: Op) -> None:
        self.model.handles.clear()

    def do_journal_on(self, op: Op) -> Any:
        self.model.journal = Journal(op["keep_us"], None, self.model.newest)

    def check_journal_on(self, op: Op, wanted: Any, got: Any) -> None:
        assert self.model.journal is not None
        self.model.journal.position = got

    def do_journal_off(self, op: Op) -> None:
        self.model.journal = None

    def do_journal(self, op: Op) -> None: ...

    def check_journal(self, op: Op, wanted: Any, got: Any) -> None:
        upto, rows = got
        j = self.model.journal
        if j is None:
            return
        if rows is not None:
            self._check_rows(j, rows)
        self.model.journal = Journal(j.keep_us, upto, self.model.newest)

    def _check_rows(self, j: Journal, rows: Any) -> None:
        if rows == "gone":
            if self.model.newest - j.read_at <= j.keep_us:
                raise Differs("the journal has let go of what it should still keep")
            return
        wanted = (j.events, j.subscriptions, sorted(j.answers))
        for kind, want, got in zip(
            ("events", "subscriptions", "answers"), wanted, rows, strict=True
        ):
            if want != got:
                raise Differs(f"journal of {kind}: {_unlike(want, got)}")

    def _hold(self, id: str, s: Sub | None) -> Handed:
        """A new handle is held, or none; what the one before has left."""
        old = self.model.handles.pop(id, None)
        if s is not None:
            self.model.handles[id] = Handle(s)
        return (
            Handed(s or Sub(id, "", 0, 0, 0, 0, False), [])
            if old is None
            else Handed(old.sub, old.queue)
        )

    # Comparing

    def _check(self, op: Op, wanted: Any, got: Any) -> None:
        _same(wanted, got, "")

    def agrees(self, dump: Any) -> str:
        """Why a reopened store is not this model; "" when it is."""
        mine = self.model.dump()
        j = self.model.journal
        if mine["journal"] is not None and dump["journal"] == "gone":
            assert j is not None
            if self.model.newest - j.read_at > j.keep_us:
                mine["journal"] = "gone"
        if mine["journal"] is None and dump["journal"] is not None:
            mine["journal"] = dump["journal"]
        for name, want in mine.items():
            if dump[name] != want:
                what = (
                    _unlike(want, dump[name])
                    if isinstance(want, list)
                    else (f"expected {short(want)}, got {short(dump[name])}")
                )
                return f"{name} after opening: {what}"
        return ""

    def copy(self) -> Judge:
        other = object.__new__(Judge)
        other.__dict__.update(self.__dict__)
        other.model = self.model.copy()
        return other


def _same(wanted: Any, got: Any, where: str) -> None:
    if isinstance(wanted, Handed):
        _same_answers(wanted, got, where)
    elif isinstance(wanted, tuple) and isinstance(got, tuple) and len(wanted) == len(got):
        for n, (want, have) in enumerate(zip(wanted, got, strict=True)):
            if want is not None:
                _same(want, have, f"{where}[{n}]")
    elif isinstance(wanted, dict) and wanted.keys() == got.keys():
        for name, want in wanted.items():
            _same(want, got[name], f"{where}.{name}")
    elif wanted != got:
        what = (
            _unlike(wanted, got)
            if isinstance(wanted, list)
            else (f"expected {short(wanted)}, got {short(got)}")
        )
        raise Differs(f"{where} {what}")


def _same_answers(wanted: Handed, got: list[tuple[str, str]], where: str) -> None:
    """The events, and that each answer has one token for ever, and tokens rise."""
    ids = [e.id for _, e in wanted.answers]
    if ids != [id for id, _ in got]:
        raise Differs(f"{where} answers of {wanted.sub.id}: {_unlike(ids, [id for id, _ in got])}")
    before = ""
    tokens = wanted.sub.tokens
    for (rank, e), (_, token) in zip(wanted.answers, got, strict=True):
        if tokens.setdefault(rank, token) != token:
            raise Differs(f"{where} {e.id} had token {tokens[rank]}, now {token}")
        if token <= before:
            raise Differs(f"{where} token {token} of {e.id} comes after {before}")
        before = token


def _unlike(wanted: list[Any], got: Any) -> str:
    if not isinstance(got, list):
        return f"expected a list, got {short(got)}"
    missing = [x for x in wanted if x not in got]
    more = [x for x in got if x not in wanted]
    if not missing and not more:
        return f"order: expected {short(wanted)}, got {short(got)}"
    return f"missing {short(missing)}, too many {short(more)}"


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 600 else text[:600] + " ..."


def _limit(until: int | None) -> int:
    return FOREVER if until is None else until


# Running ----------------------------------------------------------------------------------------
