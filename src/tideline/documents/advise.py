"""Which kind of index fits which field: the decision picture of the paper, on measured facts.

    nobody asks by the field                                        no index
    space is scarce, or its values rise with time                   embedded
    under 5 % of the reads are lookups and over half of all         embedded
    operations are writes
    lookups want the newest few                                     lazy
    lookups want all there are                                      composite
    mostly asked for what is no value: places, words, pieces of     a kind that says that it is
    text, by one field or by two together                           made for that (index/kind.py)

(Publications on secondary indexes in LSM stores call this the selection strategy; an eager
index wins nowhere, because every put rewrites a list.)

What was done is counted while a collection is open and added up over openings: the sums stand in
its facts (engine.py), saved whenever the manifest is, and at the latest by `close`. A process that
is killed loses what it counted since. How far values rise with time is measured on a sample of
documents: the rank correlation of value and write. Safe from any thread; counts are of statistics,
not of money.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tideline.index.compound import SEPARATOR
from tideline.index.extract import ARRAYS, of_document
from tideline.index.kind import kinds_made_for
from tideline.model import Advice

__all__ = ["UNKNOWN", "Asked", "Seen", "Workload", "advise", "correlation", "kind_for"]

UNKNOWN = "lazy"
"""The kind for a field of which nothing is known yet: lookups will want the newest few."""
SMALL_K = 100
_FEW_LOOKUPS, _MANY_WRITES, _WITH_TIME = 0.05, 0.5, 0.9
_READ, _SAMPLE = 20_000, 2_000
_FIELDS_LIMIT = 256  # fields that are counted: what names they have is up to the callers
_SUMS = ("puts", "deletes", "gets", "lookups", "finds")


@dataclass
class Asked:
    """How often a field was asked for."""

    lookups: int = 0
    ranges: int = 0
    limited: int = 0
    """How many of both wanted at most `SMALL_K`."""

    def plus(self, other: Asked, times: int = 1) -> Asked:
        """Both together."""
        return Asked(
            self.lookups + times * other.lookups,
            self.ranges + times * other.ranges,
            self.limited + times * other.limited,
        )


class Seen(NamedTuple):
    """How often a field was asked for what is no value."""

    times: int = 0
    unserved: int = 0
    """How many of them no index could serve."""

    def plus(self, other: Seen, sign: int = 1) -> Seen:
        """Both together."""
        return Seen(self.times + sign * other.times, self.unserved + sign * other.unserved)


_UNSEEN = Seen()


@dataclass
class Workload:
    """What was done to a collection.

    >>> work = Workload(puts=2)
    >>> work.asked("road", 10, ranged=False)
    >>> work.facts()
    {'puts': 2, 'deletes': 0, 'gets': 0, 'lookups': 0, 'finds': 0, 'fields': {'road': [1, 0, 1]}}
    >>> Workload.of(work.facts()).plus(work).fields["road"].lookups
    2
    """

    puts: int = 0
    deletes: int = 0
    gets: int = 0
    lookups: int = 0
    finds: int = 0
    fields: dict[str, Asked] = field(default_factory=dict)
    tests: dict[str, dict[str, Seen]] = field(default_factory=dict)
    """By field, or two fields, what was asked that is no value, by the names of the tests."""

    def looked(self, name: str, k: int | None, *, ranged: bool) -> None:
        """A lookup by `lookup` or `range_lookup`."""
        self.lookups += 1
        self.asked(name, k, ranged=ranged)

    def asked(self, name: str, k: int | None, *, ranged: bool) -> None:
        """A field was asked for."""
        found = self.fields.get(name)
        if found is None:
            if len(self.fields) >= _FIELDS_LIMIT:
                return
            found = self.fields[name] = Asked()
        if ranged:
            found.ranges += 1
        else:
            found.lookups += 1
        if k is not None and k <= SMALL_K:
            found.limited += 1

    def tested(self, tests: Iterable[tuple[str, tuple[str, ...], bool]]) -> None:
        """Fields were asked for what is no value; those that a kind is made for count.

        Fields that were asked together count for each two of them, too.
        """
        found: list[tuple[str, str, bool]] = []
        for name, names, served in tests:
            for test in names:
                if kinds_made_for(test):
                    self._test(name, test, served)
                found.append((name, test, served))
        for name, test, served in found if len(found) > 1 else ():
            for first, before, both in found:
                if first != name and kinds_made_for(test, before):
                    self._test(f"{first}{SEPARATOR}{name}", f"{before} {test}", served and both)

    def _test(self, name: str, test: str, served: bool) -> None:
        if name not in self.tests and len(self.tests) >= _FIELDS_LIMIT:
            return
        counts = self.tests.setdefault(name, {})
        times, unserved = counts.get(test, _UNSEEN)
        counts[test] = Seen(times + 1, unserved + (not served))

    def plus(self, other: Workload, times: int = 1) -> Workload:
        """Both together; with `times=-1`, what is left without the other."""
        mine, theirs = dict(self.fields), dict(other.fields)  # others may count meanwhile
        fields = {
            name: mine.get(name, _NEVER).plus(theirs.get(name, _NEVER), times)
            for name in list({**mine, **theirs})[:_FIELDS_LIMIT]
        }
        fields = {name: each for name, each in fields.items() if each != _NEVER}
        sums: dict[str, Any] = {
            name: getattr(self, name) + times * getattr(other, name) for name in _SUMS
        }
        return Workload(**sums, fields=fields, tests=_both(self.tests, other.tests, times))

    def facts(self) -> dict[str, Any]:
        """As it is stored."""
        sums = {name: getattr(self, name) for name in _SUMS}
        fields = {
            name: [each.lookups, each.ranges, each.limited] for name, each in self.fields.items()
        }
        found = {**sums, "fields": fields}
        if self.tests:
            found["tests"] = {name: dict(tests) for name, tests in list(self.tests.items())}
        return found

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Workload:
        """As it was stored; nothing when it never was."""
        fields = {name: Asked(*each) for name, each in facts.get("fields", {}).items()}
        sums: dict[str, Any] = {name: facts.get(name, 0) for name in _SUMS}
        tests = {
            name: {test: Seen(*each) for test, each in found.items()}
            for name, found in facts.get("tests", {}).items()
        }
        return cls(**sums, fields=fields, tests=tests)


_NEVER = Asked()


def _both(
    mine: dict[str, dict[str, Seen]], theirs: dict[str, dict[str, Seen]], times: int
) -> dict[str, dict[str, Seen]]:
    """Counts of tests together; those that never were are left out."""
    found: dict[str, dict[str, Seen]] = {}
    for name in list({**mine, **theirs})[:_FIELDS_LIMIT]:
        one, other = dict(mine.get(name, {})), dict(theirs.get(name, {}))
        counts = {
            test: one.get(test, _UNSEEN).plus(other.get(test, _UNSEEN), times)
            for test in {**one, **other}
        }
        if counts := {test: each for test, each in counts.items() if each != _UNSEEN}:
            found[name] = counts
    return found


def advise(
    engine: Any, work: Workload, indexes: dict[str, str], *, scarce: bool = False
) -> list[Advice]:
    """Advice for every field that has an index or was asked for."""
    names = sorted({*indexes, *work.fields, *work.tests})
    rising = correlation(engine, names)
    stats = engine.stats()
    sizes = {
        name: sum(component["bytes"] for component in components)
        for name, components in stats["components"].items()
    }
    writes = work.puts + work.deletes
    found = []
    for name in names:
        asked = work.fields.get(name, Asked())
        count = asked.lookups + asked.ranges
        share = count / max(count + work.gets, 1)
        written = writes / max(writes + work.gets + count, 1)
        few = asked.limited / count if count else None
        size, rises = sizes.get(name), rising[name]
        facts: dict[str, float | int | None] = {
            "lookups": asked.lookups,
            "ranges": asked.ranges,
            "lookup_share_of_reads": round(share, 4),
            "write_share": round(written, 4),
            "small_k_share": None if few is None else round(few, 4),
            "rises_with_time": None if rises is None else round(rises, 3),
            "bytes_beside_primary": None
            if size is None
            else round(size / max(sizes["primary"], 1), 4),
        }
        kind, why = _choose(asked, count, share, written, rises, scarce)
        tests = work.tests.get(name, {})
        if tests:
            facts["tests"] = sum(each.times for each in tests.values())
            facts["tests_unserved"] = sum(each.unserved for each in tests.values())
            kind, why = _for_tests(tests, count) or (kind, why)
        found.append(Advice(name, indexes.get(name), kind, why, facts))
    return found


def kind_for(engine: Any, work: Workload, name: str, *, unique: bool = False) -> str:
    """The kind of an index that is made without naming one: by the same rules.

    A `unique` one is of values. A field that nobody has asked by is taken to be looked up for the
    newest few.
    """
    asked = work.fields.get(name)
    tests = {} if unique else work.tests.get(name, {})
    served = _for_tests(tests, asked.lookups + asked.ranges if asked else 0)
    if served is not None:
        return served[0]
    rises = correlation(engine, [name])[name]
    if asked is None or not asked.lookups + asked.ranges:
        return _choose(Asked(1, 0, 1), 1, 1.0, 0.0, rises, False)[0] or UNKNOWN
    writes, count = work.puts + work.deletes, asked.lookups + asked.ranges
    share = count / max(count + work.gets, 1)
    written = writes / max(writes + work.gets + count, 1)
    return _choose(asked, count, share, written, rises, False)[0] or UNKNOWN


def _for_tests(tests: Mapping[str, Seen], count: int) -> tuple[str, str] | None:
    """The kind that is made for most of the tests; None when values were asked for more often."""
    votes: dict[str, Seen] = {}
    for test, each in tests.items():
        *before, last = test.split()
        for kind in kinds_made_for(last, *before):
            votes[kind] = votes.get(kind, _UNSEEN).plus(each)
    if not votes:
        return None
    kind, most = max(votes.items(), key=lambda vote: vote[1].times)
    if most.times < count:
        return None
    asked = count + sum(each.times for each in tests.values())
    why = f"{most.times} of {asked} questions ask for what {kind} is made for"
    return kind, why + (f", and no index served {most.unserved} of them" if most.unserved else "")


def _choose(
    asked: Asked, count: int, share: float, written: float, rising: float | None, scarce: bool
) -> tuple[str | None, str]:
    if not count:
        return None, "nobody has asked by this field"
    if scarce:
        return "embedded", "space is scarce, and an embedded index takes next to none"
    if rising is not None and abs(rising) >= _WITH_TIME:
        return "embedded", (
            f"its values follow the order of writes (correlation {rising:.2f}), "
            "so zone maps leave out most blocks"
        )
    if share < _FEW_LOOKUPS and written > _MANY_WRITES:
        return "embedded", (
            f"{share:.1%} of the reads are lookups and {written:.0%} of all operations are "
            "writes: an index of its own would cost more than it saves"
        )
    if asked.limited * 2 >= count:
        return "lazy", (
            f"{asked.limited} of {count} lookups want at most {SMALL_K}: lists come newest first "
            "and the search stops early"
        )
    return "composite", (
        f"{count - asked.limited} of {count} lookups want all there are: sorted pairs are read "
        "in one go"
    )


def correlation(engine: Any, names: list[str]) -> dict[str, float | None]:
    """How far the values of fields rise with the order of writes: 1 always, 0 not at all.

    None for a field with too few values to tell.
    """
    seqs: list[int] = []
    texts: list[bytes] = []
    for part in engine.scan():
        seqs += part.seqs.tolist()
        texts += part.docs
        if len(seqs) >= _READ:
            break
    step = max(1, len(seqs) // _SAMPLE)
    documents = [msgspec.json.decode(text) for text in texts[::step]]
    numbers = seqs[::step]
    found: dict[str, float | None] = {}
    for name in names:
        pairs = []
        for seq, document in zip(numbers, documents, strict=True):
            values = [value for value in of_document(document, name) if value != ARRAYS]
            if values and values[0] != b"\0":
                pairs.append((seq, values[0]))
        found[name] = _rank_correlation(pairs) if len(pairs) >= 20 else None
    return found


def _rank_correlation(pairs: list[tuple[int, bytes]]) -> float | None:
    first = np.argsort(np.argsort(np.array([seq for seq, _ in pairs])))
    places: dict[bytes, list[int]] = {}
    for place, value in enumerate(sorted(value for _, value in pairs)):
        places.setdefault(value, []).append(place)
    if len(places) == 1:
        return None
    ranks = {value: sum(at) / len(at) for value, at in places.items()}  # equal values share
    second = np.array([ranks[value] for _, value in pairs])
    return float(np.corrcoef(first, second)[0, 1])
