"""Bulk load: finished components of events, made elsewhere, become part of a channel in one step.

    elsewhere   events --build_piece--> a channel of its own, sealed: files
    here        files --adopt--> checked, numbered, named in the manifest: all of them or none

A piece is what a channel in memory seals when it is given the events: its components are those
that this channel would have made, hashed with its seeds. Its events are numbered from 1 where it is
made; the number that the first one gets is added here (lsm/loading.py).

What is loaded is as if it had been published, with three differences. It answers nobody: a channel
with valid subscriptions refuses it. Ids are not retries: an id that a valid event has is an error,
and nothing is loaded. It is in no log: whoever follows the journal is told that there is a gap, and
goes on after it (`loaded` of the channel's facts).

What has expired when it arrives is left out and counted.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.channel.ahead import Ahead
from tideline.channel.checks import BODY_LIMIT_BYTES, ID_LIMIT_BYTES
from tideline.channel.core import Core, Ids
from tideline.channel.engine import Engine
from tideline.channel.find import find_event
from tideline.channel.operations import read_operations
from tideline.channel.tables import read_columns
from tideline.clock import FOREVER
from tideline.errors import Conflict, InvalidRequest
from tideline.index.memory import Budget
from tideline.index.sealed import SealedReader
from tideline.kernels import layout as at
from tideline.kernels import warm
from tideline.lsm.component import Component, ComponentInfo
from tideline.lsm.loading import Arriving, each
from tideline.space import space_from_spec

if TYPE_CHECKING:
    from tideline.channel.channel import Channel

__all__ = ["Piece", "Recipe", "adopt", "build_piece", "recipe_of"]

Words = NDArray[np.int64]
_COLUMNS = {"id", "place", "lon", "lat", "radius_m", "at", "until", "body"}
_MEMORY = 4  # times the bytes of the rows: then nothing is sealed before its end
_LEAST_BYTES = 64 << 20


class Recipe(msgspec.Struct, frozen=True):
    """What components of a channel are made by."""

    space: dict[str, Any]
    seeds: list[int]
    newest: int
    """The channel's time, as writes have brought it."""
    now: int
    """The same, or the clock's if that is later: what ends before it has expired."""
    latest: int
    """How late an event may be, and why no later."""
    reason: str


class Piece(msgspec.Struct):
    """Components that were made of some events, in a folder of their own."""

    folder: str
    rows: int
    expired: int
    newest: int
    """The latest `at`, of the expired too."""
    components: list[dict[str, Any]]


def recipe_of(channel: Channel) -> Recipe:
    """What components of this channel are made by now."""
    core = channel.core
    with core.engine.lock:
        core.begin()
        _require_unasked(core)
        ahead = core.ahead() or Ahead(FOREVER, "")
        return Recipe(
            channel.space.spec(), list(core.engine.facts["seeds"]), core.engine.newest, core.now(),
            ahead.latest, ahead.reason,
        )  # fmt: skip


def _require_unasked(core: Core) -> None:
    """Refuse a channel in which somebody would have to be answered (the lock is held)."""
    subscriptions, _ = core.engine.records.count_live(core.now())
    if subscriptions:
        raise InvalidRequest(
            "a channel with valid subscriptions is not loaded in bulk, for they would have to be "
            "answered: publish the events", channel=core.name, subscriptions=subscriptions,
        )  # fmt: skip


# ---- elsewhere ------------------------------------------------------------------------------


def build_piece(recipe: Recipe, folder: Path, events: pa.Table) -> Piece:
    """Write the components of events, in any order, into a new folder.

    The table is as `Channel.apply` takes it, without the column `op`. A row that is no event is
    `InvalidRequest`.
    """
    own = folder / secrets.token_hex(8)
    other = sorted(set(events.column_names) - _COLUMNS)
    if other:
        raise InvalidRequest(
            f"a bulk load of a channel loads events, of {', '.join(sorted(_COLUMNS))}",
            columns=other,
        )
    table = events.append_column("op", pa.repeat(pa.scalar("publish"), len(events)))
    times = pc.sort_indices(table, [("at", "ascending")]) if "at" in table.column_names else None
    if times is not None:
        table = table.take(times)
    ahead = Ahead(recipe.latest, recipe.reason)
    given = read_operations(
        table, space_from_spec(recipe.space), Ids().many, id_limit=ID_LIMIT_BYTES,
        body_limit=BODY_LIMIT_BYTES, ahead=ahead,
    )  # fmt: skip
    for reason in given.rejected.values():
        raise InvalidRequest(f"a row cannot be loaded: {reason}")
    newest = max(recipe.newest, int(given.now.max()))
    expired = given.until <= max(recipe.now, newest)
    given.kinds[expired] = at.VOID
    rows, starts, used = given.encode()
    starts = starts[~expired]
    rows[starts + at.R_SEQ] = np.arange(1, len(starts) + 1)
    rows[starts + at.R_NOW] = np.maximum(recipe.newest, given.now[~expired])
    infos = _sealed(recipe, own, rows[:used], newest) if len(starts) else []
    assert sum(info.rows for info in infos) == len(starts), "a seal has all that is valid"
    _require_distinct([_Named(own, info) for info in infos])
    listed = [info.to_json() for info in infos]
    return Piece(str(own), len(starts), int(expired.sum()), newest, listed)


def _sealed(recipe: Recipe, folder: Path, rows: Any, newest: int) -> list[ComponentInfo]:
    """What a channel seals that is given these rows."""
    warm.ensure()
    facts = {"space": recipe.space, "layout": "dual", "poll_s": 1.0, "seeds": recipe.seeds}
    engine = Engine(
        folder, facts, mode=space_from_spec(recipe.space).mode, layout="dual",
        budget=Budget(max(_LEAST_BYTES, _MEMORY * rows.nbytes)), durability="os", logged=False,
        remember=False,
    )  # fmt: skip
    try:
        memory, tree = engine.sides[0].memory, engine.sides[0].tree
        with engine.lock:
            engine.replay(rows, newest, 1)
            made = list(tree.readers)  # mostly none: there is memory for all
            for window in memory.windows():
                memory.freeze(window.number)
                made += tree.write_all(tree.kind.seal(memory, window))
        return [reader.component.info for reader in made]
    finally:
        engine.close()


# ---- in the store ---------------------------------------------------------------------------


def adopt(channel: Channel, recipe: Recipe, pieces: Sequence[Piece]) -> tuple[int, int]:
    """Make pieces part of a channel; the first and the last seq of what was loaded.

    Nobody reads or writes the channel while the files are put beside its own.
    """
    core = channel.core
    engine, tree = core.engine, core.engine.sides[-1].tree
    if engine.store.share is not None:
        raise InvalidRequest(
            "a cluster takes no bulk loads: write batches, or load into a database of its own and "
            "begin a cluster with that (`tideline cluster create --from`)"
        )
    befores = accumulate([0, *(piece.rows for piece in pieces)])
    files: dict[Arriving, int] = {}  # with how many events there are in the pieces before its own
    for piece, before in zip(pieces, befores, strict=False):
        for info in map(ComponentInfo.from_json, piece.components):
            files[Arriving(piece.folder, info, tree.kind)] = before
    each(Arriving.check, list(files))
    named = [_Named(file.path.parent, file.info) for file in files]
    _require_distinct(named)

    def number(first: int) -> None:
        each(lambda file: file.number(first - 1 + files[file]), list(files))

    number(engine.next_seq)  # probably still the next when nobody else may write
    engine.upkeep.seal_all()
    before_lock = list(tree.readers)
    suspects = _suspects(before_lock, named, recipe.now)
    made: list[SealedReader] = []
    first = 0

    def take() -> None:
        nonlocal first
        first = engine.next_seq
        number(first)
        store = engine.store
        try:
            for file in files:
                reader = file.take(tree, store.next_component(), sync=store.sync)
                made.append(reader)
            store.log.rotate()
        except BaseException:
            for reader in made:
                reader.component.drop()
            raise
        engine.parts.log_into(store.log.mark)
        tree.apply(made)
        engine.sides[-1].refresh()
        engine.parts.view[at.C_NEXT_SEQ] = first + sum(piece.rows for piece in pieces)
        engine.facts["loaded"] = str(store.log.end)
        engine.advance(max(piece.newest for piece in pieces))

    with engine.lock:
        core.begin()
        if list(engine.facts["seeds"]) != recipe.seeds:
            raise Conflict("the channel was made anew meanwhile: load again", channel=core.name)
        _require_unasked(core)
        later = [reader for reader in tree.readers if reader not in before_lock]
        suspects += _suspects(later, named, recipe.now) + _in_memory(core, named)
        for text in suspects:
            if find_event(core, text.encode(), core.now()) is not None:
                raise InvalidRequest(
                    "an event of this id is there already: leave it out, or retract it first",
                    id=text, channel=core.name,
                )  # fmt: skip
        if files:
            engine.interrupts.sheltered(take)
    try:
        engine.upkeep.commit()
    except BaseException:
        with engine.lock:  # the numbers stay used: nobody may have seen another event with one
            tree.apply([], [reader for reader in made if reader in tree.readers])
            engine.sides[-1].refresh()
        raise
    return (first, engine.next_seq - 1) if files else (engine.next_seq, engine.next_seq - 1)


class _Named:
    """The ids of the events of a component, by their hashes."""

    def __init__(self, folder: Path, info: ComponentInfo) -> None:
        events = Component.open(folder, info, verify=False).table["events"].chunk(0).values
        self.hashes: Words = events.field("id_hash").to_numpy()
        self._by_hash: Words = events.field("by_id").to_numpy()
        self._ids = events.field("id")

    def ids(self, where: NDArray[Any]) -> list[str]:
        """The ids of some hashes."""
        found: list[str] = self._ids.take(pa.array(self._by_hash[where])).to_pylist()
        return found

    def among(self, ids: pa.LargeStringArray) -> list[str]:
        """The ids that are among others."""
        found: list[str] = self._ids.filter(pc.is_in(self._ids, value_set=ids)).to_pylist()
        return found


def _require_distinct(named: Sequence[_Named]) -> None:
    """Refuse events of which two have an id."""
    if not named:
        return
    hashes = np.sort(np.concatenate([one.hashes for one in named]))
    same = hashes[1:][hashes[1:] == hashes[:-1]]
    if not len(same):
        return
    counts = Counter(text for one in named for text in one.ids(np.isin(one.hashes, same)))
    for text, count in counts.items():
        if count > 1:  # else two ids have one hash
            raise InvalidRequest("two rows have one id: drop one", id=text)


def _suspects(readers: Sequence[SealedReader], named: Sequence[_Named], now: int) -> list[str]:
    """Ids that may be those of valid events of components."""
    found: list[str] = []
    for reader in readers:
        there, by_hash, until = (reader.event(name) for name in ("id_hash", "by_id", "until"))
        for one in named if len(there) else ():
            nearest = np.minimum(np.searchsorted(there, one.hashes), len(there) - 1)
            same = there[nearest] == one.hashes
            same[same] = until[by_hash[nearest[same]]] > now
            found += one.ids(same)
    return found


def _in_memory(core: Core, named: Sequence[_Named]) -> list[str]:
    """Ids that events in memory have: few, for all was sealed a moment ago (the lock is held)."""
    engine = core.engine
    if not any(window.events for window in engine.sides[-1].memory.windows()):
        return []
    refs = engine.records.listed(at.EVENTS, core.now(), -FOREVER, FOREVER)
    packed = engine.records.pack(at.EVENTS, refs[refs < at.IN_ROW])
    ids = read_columns(packed, at.PUBLISH).ids.cast(pa.large_string())
    return [text for one in named for text in one.among(ids)]
