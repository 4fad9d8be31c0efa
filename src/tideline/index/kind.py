"""A kind of index of a collection: the one interface that every kind implements.

    write    documents --extract--> entries (row, value) --Memory.add--> memory
    seal     memory --seal--> component          merge    components --merge--> components
    read     a test of a condition --serves--> asks --estimate--> what they would cost
             an ask --search--> candidates (seq, key), in any order

A kind is one module in this folder, with its kernels, and one call of `register`. Everything else
is done by others: freezing, sealing, committing, recovery, a full disk and closing by
lsm/dataset.py, building on what is stored and dropping by documents/building.py, planning by
documents/plan.py. The planner never looks into an ask, and nobody asks for the name of a kind.

The rule that makes this possible: a candidate counts exactly when the newest version of its key has
its seq. So no kind has deletes, a stale entry does no harm, candidates may come in any order and
more than once, and a kind may give candidates that do not meet the test: each document is held
against the condition again, unless the ask says that it is `exact`.

How to add one: docs/internals/kinds.md.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.index.texts import Texts
from tideline.lsm.component import Component, Product
from tideline.lsm.filter import Filter, MinMax
from tideline.lsm.tree import MergeContext
from tideline.where.bounds import Need
from tideline.where.tree import Test

__all__ = [
    "Ask", "Asked", "Chunk", "Entries", "Estimate", "IndexKind", "Memory", "Spec", "kind_names",
    "kinds_made_for", "make_kind", "name_of", "register", "settings_of", "spec_of",
]  # fmt: skip

Words = NDArray[np.int64]

Spec = str | dict[str, Any]
"""A kind as users name it and the manifest keeps it: its name, or {"kind": name, "n": 3} with the
settings that were given."""


class Entries(NamedTuple):
    """What an index has of some documents: entry i is of row `row[i]` and has value i.

    Rows never fall. A value is bytes; what they mean is the business of the kind.
    """

    row: Words
    values: Texts


class Chunk(NamedTuple):
    """Some candidates: the seq of a write, and the key of its document."""

    seqs: Words
    keys: Texts


class Estimate(NamedTuple):
    """What a search is expected to take, without k."""

    entries: float
    """Candidates whose documents are followed."""
    blocks: float
    """Blocks of about 4 KiB that are read."""
    looked: float = 0.0
    """Documents whose values are looked at, where the index has no entries of its own."""


class Asked(NamedTuple):
    """What one part of a condition asks of a field."""

    needs: tuple[Need, ...]
    """Ranges of values: of each need, some entry lies in one of its ranges."""
    tests: tuple[Test, ...]
    """What is no range of values: each is met by some candidate at the path of the field."""
    arrays: Callable[[], bool]
    """Whether a document may have an array there: else all needs are about one value."""
    parts: tuple[tuple[Need, ...], ...] = ()
    """Of an index on several fields: the needs of each, in their order; `needs` are none then."""
    tests_of: tuple[tuple[Test, ...], ...] = ()
    """Likewise: the tests of each; `tests` are those of all."""


class Ask(Protocol):
    """What a kind has made of a test; only the kind that made it looks inside."""

    @property
    def exact(self) -> bool:
        """Whether a document that it leads to meets all that was asked of the field."""
        ...

    @property
    def point(self) -> bool:
        """Whether it asks for one value."""
        ...

    def __str__(self) -> str:
        """For people who want to know how a search was done."""
        ...


class Memory(Protocol):
    """Entries of one index since the last seal. The owner's lock is held during `add`."""

    @property
    def size_bytes(self) -> int:
        """Bytes in use."""
        ...

    def add(self, values: Texts, keys: Texts, seqs: int, rows: Words) -> None:
        """Add entries: value i with the key and the seq of row `rows[i]`; row 0 has seq `seqs`.

        Seqs rise from call to call. A call that was cut by an exception is made again with the
        same arguments, and then ends what it began.
        """
        ...


class IndexKind:
    """How one index of a collection keeps and finds its entries: what a kind derives from."""

    name: str
    settings: Mapping[str, Any] = MappingProxyType({})
    """What was given to this one: `make_kind` sets it. Stored with the index, as JSON."""
    several = False
    """Whether it may be on several fields although it has an `extract` of its own, which then gets
    the names of indexes, like "at,name", for fields (compound.py `parts_of` has the parts)."""
    made_for: tuple[type, ...] = ()
    """Tests (where/tree.py) that an index of this kind is made for: `advise` names it for them."""
    made_with: tuple[type, ...] = ()
    """Of a kind on two fields: the tests of the first; `made_for` are then those of the second."""
    within = False
    """Whether its values are kept with the records, in columns of the primary's components.

    Such a kind has no memory and no components of its own."""
    newest_first = False
    """Whether candidates come newest first, so that a search for the newest few stops early."""
    box: str | None = None
    """The filter of its components that is the box of their places (an `Extent`), if there is one.

    A leveled policy then keeps components of a level apart by space: `merge` cuts what it makes
    into products of about `context.cut_bytes`, by `context.partition` (lsm/tiles.py `parts`)."""
    decides_tests = False
    """Whether an ask that is `exact` says that tests (`Asked.tests`) hold as well as needs."""
    orders_arrays = False
    """Whether `ordered` holds for documents with arrays, too."""
    needs_older = False
    """Whether its components repeat what older ones have: they must be known to make one."""
    extract: Callable[[Texts, Sequence[str]], list[Entries]] | None = None
    """The entries of several fields of documents, which are good JSON; an empty text is none.

    The same documents give the same entries, because recovery extracts again. None: the plain
    values (extract.py), which are extracted in one pass for all indexes that want them."""

    def check_fields(self, fields: Sequence[str]) -> None:
        """`InvalidRequest` when there can be no index of this kind on these fields."""
        if len(fields) > 1 and self.extract is not None and not self.several:
            raise InvalidRequest(
                "an index of this kind is on one field", field=",".join(fields), kind=self.name
            )

    # ---- keeping -----------------------------------------------------------------------------

    def memory(self, capacity: int, older: Any) -> Any:
        """An empty `Memory` for about so many bytes; `older` is a view of all there is."""
        raise NotImplementedError

    def open(self, component: Component) -> Any:
        """A reader over an open component."""
        raise NotImplementedError

    def seal(self, memory: Any, context: Mapping[str, MinMax]) -> Sequence[Product]:
        """A frozen memory as components, which get the filters that the context gives.

        They have a filter `seq`, too: the range of their seqs.
        """
        raise NotImplementedError

    def merge(self, readers: Sequence[Any], context: MergeContext) -> Sequence[Product]:
        """Components made of others, oldest first, with the filters of all of them.

        The context's owner, if there is one, is asked which entries (keys, seqs) may stay.
        """
        raise NotImplementedError

    def build(
        self, values: Texts, keys: Texts, seqs: Words, older: Sequence[Any],
        filters: Mapping[str, MinMax],
    ) -> Sequence[Product]:  # fmt: skip
        """Components of entries in any order, for documents that were there before the index.

        `older` are the readers of what was built before, newest first.
        """
        raise NotImplementedError

    def view(self, memories: Sequence[Any], readers: Sequence[Any]) -> Any:
        """What searches are given: memories, then components, each newest first."""
        return [*memories, *readers]

    def refreshed(self, memory: Any, older: Any) -> None:
        """Components or frozen memories have changed: `older` is a view of all but `memory`."""

    # ---- finding -----------------------------------------------------------------------------

    def serves(self, asked: Asked) -> Sequence[tuple[Any, ...]]:
        """Ways to find every document that meets what is asked; none if it cannot.

        Each is some asks whose candidates together are all there are. No ask at all means that
        nothing can meet it. The planner takes the cheapest.
        """
        return ()

    def range_ask(
        self, low: bytes, high: bytes, low_open: bool = False, high_open: bool = False
    ) -> Any:
        """An ask for a range of plain values, for `lookup` and `range_lookup`."""
        raise InvalidRequest(
            "this kind of index does not serve lookups of values: use find", kind=self.name
        )

    def ordered(self, field: str, ask: Any, order: Sequence[tuple[str, int]]) -> bool:
        """Whether `first_part` can be asked for an order of documents without arrays."""
        return False

    def first_part(
        self, view: Any, field: str, ask: Any, order: Sequence[tuple[str, int]], count: int
    ) -> tuple[Any, bool]:
        """A part of an ask: what its about `count` first entries in an order are in.

        With it, whether that is all of the ask.
        """
        raise NotImplementedError

    def up_to(self, field: str, ask: Any, order: Sequence[tuple[str, int]], document: Any) -> Any:
        """A part of an ask: what comes up to a document in an order, or is equal to it."""
        raise NotImplementedError

    def passing(self, view: Any, filters: Mapping[str, tuple[bytes, bytes]]) -> Any:
        """A view without components whose filters miss one of the closed ranges, if that helps."""
        return view

    def filters_of(self, ask: Any) -> Mapping[str, Sequence[Filter]]:
        """What a component's filters must meet, one of each name, to be searched for an ask.

        All others it skips. For people who want to know what was skipped, and why: by its box,
        for example.
        """
        return {}

    def decides(self, view: Any, ask: Any) -> bool:
        """Whether what a view has for an ask meets all that was asked of the field.

        It stays so until a component comes or goes: a plan relies on it until then.
        """
        return bool(ask.exact)

    def estimate(self, view: Any, ask: Any) -> Estimate:
        """What a search for an ask without k would take."""
        raise NotImplementedError

    def search(self, view: Any, ask: Any, k: int | None, below: int) -> Iterable[Chunk]:
        """Candidates of writes with a seq below `below`.

        With `k`, whoever asks wants the k newest that count, and stops when it has them; a kind
        that is not `newest_first` gives all.
        """
        raise NotImplementedError

    def nearest(self, view: Any, ask: Any, count: int, below: int) -> Iterator[Any]:
        """Candidates in rising order of distance, for a kind that `serves` `$near`.

        Some at a time, about `count` first: seqs, keys, and the haversine of each distance.
        Whoever asks stops when enough of them count: so many may be stale.
        """
        raise NotImplementedError

    def find(self, reader: Any, now: Any, field: str, view: Any, ask: Any, k: int | None) -> int:
        """Have a reader find the `k` newest documents that count; how many there are.

        A kind whose kernels search and look up at once does so here (documents/reader.py).
        """
        if not self.newest_first:
            return self.find_all(reader, now, view, (ask,), k)
        found = self.search(view, ask, k, now[2])
        count: int = reader.follow(now, found, k, True)
        return count

    def find_all(
        self, reader: Any, now: Any, view: Any, asks: Sequence[Any], k: int | None,
        texts: bool = True,
    ) -> int:  # fmt: skip
        """Have a reader find all that some asks lead to and that counts, each once.

        Of that it has the `k` newest; without `texts`, only how many there are. For a kind that
        stands alone.
        """
        found = (chunk for ask in asks for chunk in self.search(view, ask, None, now[2]))
        count: int = reader.follow(now, found, k, False, texts)
        return count


Factory = Callable[..., Any]
_KINDS: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Make a kind known. `factory(seed=..., **settings)` makes one.

    Hashes of a collection use the seed. The settings are those that a user gave; it checks them,
    and raises `InvalidRequest` naming a bad one.
    """
    _KINDS[name] = factory


def kind_names() -> tuple[str, ...]:
    """The kinds there are, in the order in which they were registered."""
    return tuple(_KINDS)


def kinds_made_for(test: str, other: str | None = None) -> list[str]:
    """The kinds for a test, given by the name of its class; `other` is one of a field before.

    >>> kinds_made_for("Words") == [name for name in kind_names() if name == "words"]
    True
    """
    return list(_made_for(test, other, tuple(_KINDS.items())))


@lru_cache(256)
def _made_for(
    test: str, other: str | None, kinds: tuple[tuple[str, Factory], ...]
) -> tuple[str, ...]:
    found = []
    for name, factory in kinds:
        first = _names(getattr(factory, "made_with", ()))
        if test in _names(getattr(factory, "made_for", ())) and (
            other in first if other is not None else not first
        ):
            found.append(name)
    return tuple(found)


def _names(tests: Iterable[type]) -> set[str]:
    return {test.__name__ for test in tests}


def name_of(spec: Spec) -> str:
    """The name of a kind.

    >>> name_of("lazy"), name_of({"kind": "ngrams", "n": 3})
    ('lazy', 'ngrams')
    """
    return spec if isinstance(spec, str) else str(spec["kind"])


def settings_of(spec: Spec) -> dict[str, Any]:
    """The settings of a kind.

    >>> settings_of("lazy"), settings_of({"kind": "ngrams", "n": 3})
    ({}, {'n': 3})
    """
    if isinstance(spec, str):
        return {}
    return {name: value for name, value in spec.items() if name != "kind"}


def spec_of(name: str, settings: Mapping[str, Any]) -> Spec:
    """Both together, as they are stored: with settings that are JSON.

    >>> spec_of("lazy", {}), spec_of("ngrams", {"n": 3})
    ('lazy', {'kind': 'ngrams', 'n': 3})
    """
    if not settings:
        return name
    found: dict[str, Any] = {"kind": name}
    for setting, value in settings.items():
        try:
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(value)  # it would become null
            found[setting] = msgspec.json.decode(msgspec.json.encode(value))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            raise InvalidRequest(
                "a setting of an index must be JSON", kind=name, setting=setting, given=value
            ) from None
    return found


def make_kind(spec: Spec, *, seed: int) -> Any:
    """A kind by its name, or with settings; `InvalidRequest` when there is none.

    >>> make_kind("btree", seed=7)
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: no such kind of index. kind='btree', kinds=...
    >>> make_kind({"kind": "lazy", "n": 3}, seed=7)
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: this kind of index has no such setting. kind='lazy', ...
    """
    name, settings = name_of(spec), settings_of(spec)
    factory = _KINDS.get(name)
    if factory is None:
        raise InvalidRequest("no such kind of index", kind=name, kinds=kind_names())
    if settings:
        _check_names(name, factory, settings)
    made = factory(seed=seed, **settings)
    made.settings = settings
    return made


def _check_names(name: str, factory: Factory, settings: Mapping[str, Any]) -> None:
    """Refuse settings that a factory does not take at all."""
    taken = inspect.signature(factory).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in taken):
        if "seed" in settings:  # it is the collection's
            raise InvalidRequest(
                "this kind of index has no such setting", kind=name, setting="seed"
            )
        return
    allowed = [
        each.name for each in taken if each.kind is each.KEYWORD_ONLY and each.name != "seed"
    ]
    for setting in settings:
        if setting not in allowed:
            raise InvalidRequest(
                "this kind of index has no such setting",
                kind=name, setting=setting, allowed=allowed,
            )  # fmt: skip
