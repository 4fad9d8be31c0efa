"""Sealed components of an index of places: one row per place, both lists side by side.

    place: large_binary            sorted by its bytes: a subtree is one range of rows
    subs: large_list<struct<       subscriptions and tombs (flags tell)
        id, user, where: large_string
        since, until, seq, made, root, ended, flags, user_hash: int64
        [shape: fixed_size_list<double>[5]]       kind, a, b, c, d; only in spaces with shapes
        [corners: large_list<double>]             of polygons; only where there are some
        id_hash, by_id: int64>>                   the hashes in order, and whose they are
    events: large_list<struct<
        id, body: large_string
        at, until, seq, made: int64  [shape]  [corners]  id_hash, by_id>>

`id_hash`/`by_id` are an index of their own over the whole component that happens to
have as many entries as there are records: entry i says that record by_id[i] has the
i-th smallest hash. Readers use the columns in place (kernels/disk.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.clock import FOREVER
from tideline.errors import Corruption
from tideline.index.memory import Memory, WindowFacts
from tideline.index.oldhashes import rehashed
from tideline.kernels import layout as at
from tideline.kernels import sealing
from tideline.lsm.component import Component, Product
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import MergeContext

__all__ = ["PostingsKind", "SealedReader"]

Words = NDArray[np.int64]
_SUB_NUMBERS = ("since", "until", "seq", "made", "root", "ended", "flags", "user_hash", "id_hash")
_EVENT_NUMBERS = ("at", "until", "seq", "made", "id_hash")
_CORNERS = pa.large_list(pa.field("item", pa.float64(), nullable=False))
_SHAPE = pa.list_(pa.field("item", pa.float64(), nullable=False), 5)


@dataclass
class _Side:
    """The records of one side as flat columns."""

    lists: Words  # offsets per place
    numbers: dict[str, Words]
    shapes: NDArray[np.float64] | None
    texts: dict[str, pa.LargeStringArray]
    corners: pa.LargeListArray | None


class SealedReader:
    """An open component: where its columns are, for kernels."""

    def __init__(self, component: Component, *, shaped: bool, seed: int) -> None:
        self.component = component
        batch = component.table
        self.places = batch["place"].chunk(0)
        self.subs: pa.LargeListArray = batch["subs"].chunk(0)
        self.events: pa.LargeListArray = batch["events"].chunk(0)
        self.row = np.zeros(at.D_WORDS, np.int64)
        row, subs, events = self.row, self.subs.values, self.events.values
        # Before format 5 there were no roots, but ghosts, which are no subscriptions.
        has_roots = subs.type.get_field_index("root") >= 0
        if not has_roots:
            self.subs = rehashed(self.subs, at.SUBS, seed)
            self.events = rehashed(self.events, at.EVENTS, seed)
            subs, events = self.subs.values, self.events.values
        filters = component.info.filters
        row[at.D_PLACES] = len(self.places)
        row[at.D_KEY_OFFSETS] = _address(self, self.places, 1)
        row[at.D_KEYS] = _address(self, self.places, 2)
        row[at.D_KEY_BYTES] = self.offsets(self.places)[-1]
        row[at.D_SINCE_LOW] = _bound(filters, "since", True)
        row[at.D_UNTIL_HIGH] = _bound(filters, "sub_until", False)
        row[at.D_AT_LOW] = _bound(filters, "at", True)
        row[at.D_AT_HIGH] = _bound(filters, "at", False)
        row[at.D_EVENT_UNTIL_HIGH] = _bound(filters, "event_until", False)
        row[at.D_SEQ_HIGH] = _bound(filters, "seq", False)
        row[at.D_SUB_LISTS] = _address(self, self.subs, 1)
        row[at.D_SUBS] = len(subs)
        row[at.D_EVENT_LISTS] = _address(self, self.events, 1)
        row[at.D_EVENTS] = len(events)
        for place, name in (
            (at.D_SUB_SINCE, "since"), (at.D_SUB_UNTIL, "until"), (at.D_SUB_SEQ, "seq"),
            (at.D_SUB_MADE, "made"), (at.D_SUB_USER_HASH, "user_hash"),
            (at.D_SUB_ROOT, "root" if has_roots else "seq"),
            (at.D_SUB_FLAGS, "flags"), (at.D_SUB_ENDED, "ended"),
            (at.D_SUB_ID_HASH, "id_hash"), (at.D_SUB_BY_ID, "by_id"),
            (at.D_SUB_ID_OFFSETS, "id"), (at.D_SUB_USER_OFFSETS, "user"),
            (at.D_SUB_WHERE_OFFSETS, "where"),
        ):  # fmt: skip
            row[place] = _address(self, subs.field(name), 1)
        for place, name in (
            (at.D_EVENT_AT, "at"), (at.D_EVENT_UNTIL, "until"), (at.D_EVENT_SEQ, "seq"),
            (at.D_EVENT_MADE, "made"), (at.D_EVENT_ID_HASH, "id_hash"),
            (at.D_EVENT_BY_ID, "by_id"), (at.D_EVENT_ID_OFFSETS, "id"),
            (at.D_EVENT_BODY_OFFSETS, "body"),
        ):  # fmt: skip
            row[place] = _address(self, events.field(name), 1)
        row[at.D_SUB_IDS] = _address(self, subs.field("id"), 2)
        row[at.D_SUB_USERS] = _address(self, subs.field("user"), 2)
        row[at.D_SUB_WHERES] = _address(self, subs.field("where"), 2)
        row[at.D_EVENT_IDS] = _address(self, events.field("id"), 2)
        row[at.D_EVENT_BODIES] = _address(self, events.field("body"), 2)
        if shaped:
            row[at.D_SUB_SHAPE] = _address(self, subs.field("shape").values, 1)
            row[at.D_EVENT_SHAPE] = _address(self, events.field("shape").values, 1)
        for side, begins, numbers in (
            (subs, at.D_SUB_CORNERS_AT, at.D_SUB_CORNERS),
            (events, at.D_EVENT_CORNERS_AT, at.D_EVENT_CORNERS),
        ):
            if side.type.get_field_index("corners") >= 0:
                row[begins] = _address(self, side.field("corners"), 1)
                row[numbers] = _address(self, side.field("corners").values, 1)

    def sub(self, name: str) -> Words:
        """A number column of the subscriptions, in place."""
        if name == "root" and self.subs.values.type.get_field_index(name) < 0:
            name = "seq"
        return np.asarray(self.subs.values.field(name).to_numpy(zero_copy_only=True))

    def event(self, name: str) -> Words:
        """A number column of the events, in place."""
        return np.asarray(self.events.values.field(name).to_numpy(zero_copy_only=True))

    @staticmethod
    def offsets(array: Any) -> Words:
        """The offsets of a list or text column, in place."""
        buffer = array.buffers()[1]
        return np.frombuffer(buffer, np.int64)[array.offset : array.offset + len(array) + 1]

    def tombs(self) -> tuple[Words, Words, Words]:
        """(seq, ended, until) of the tombs in here."""
        marked = (self.sub("flags") & at.F_TOMB) != 0
        return self.sub("seq")[marked], self.sub("ended")[marked], self.sub("until")[marked]

    def check(self) -> None:
        """Verify the checksum and the order that searches rely on."""
        self.component.verify()
        file = self.component.info.name
        if (
            len(self.places) > 1
            and not pc.all(
                pc.less(self.places.slice(0, len(self.places) - 1), self.places.slice(1))
            ).as_py()
        ):
            raise Corruption("places are out of order", file=file)
        for lists, values in ((self.subs, self.subs.values), (self.events, self.events.values)):
            starts = self.offsets(lists)
            if starts[0] != 0 or starts[-1] != len(values) or np.any(np.diff(starts) < 0):
                raise Corruption("list offsets are wrong", file=file)
            hashes = np.asarray(values.field("id_hash"))
            if np.any(np.diff(hashes) < 0):
                raise Corruption("id hashes are out of order", file=file)


class PostingsKind:
    """How the LSM framework opens and merges components of places."""

    name = "postings"

    def __init__(self, *, shaped: bool, seed: int) -> None:
        self.shaped = shaped
        self.seed = seed

    def open(self, component: Component) -> SealedReader:
        """A reader over an open component."""
        try:
            return SealedReader(component, shaped=self.shaped, seed=self.seed)
        except (KeyError, IndexError, pa.ArrowException) as error:
            raise Corruption(
                "component has other columns than it should", file=component.info.name
            ) from error

    def seal(self, memory: Memory, context: WindowFacts) -> list[Product]:
        """A frozen window as a component."""
        address, window = memory.address, context
        slots = np.empty(window.slots, np.int64)
        lengths = np.empty(window.slots, np.int64)
        count = int(sealing.list_slots(address, window.number, slots, lengths))
        slots, lengths = slots[:count], lengths[:count]
        key_at = _running(lengths)
        keys = np.empty(max(int(key_at[-1]), 1), np.uint8)
        sealing.copy_keys(address, slots, key_at, keys)
        places = _binary(key_at, keys)
        order = pc.array_sort_indices(places).to_numpy().astype(np.int64)
        slots = np.ascontiguousarray(slots[order])
        sub_lists = np.zeros(count + 1, np.int64)
        event_lists = np.zeros(count + 1, np.int64)
        sizes = sealing.measure(address, slots, sub_lists, event_lists)
        n, m = int(sub_lists[-1]), int(event_lists[-1])
        buffers = [np.empty(max(int(size), 1), np.uint8) for size in sizes[:5]]
        corners = [np.empty(int(size), np.float64) for size in sizes[5:]]
        starts = [np.zeros(k + 1, np.int64) for k in (n, n, n, m, m, n, m)]
        numbers = np.empty((len(_SUB_NUMBERS), n), np.int64)
        shapes = np.zeros((n if self.shaped else 0, 5))
        sealing.fill_subs(
            address, slots, numbers, shapes, buffers[0], starts[0], buffers[1], starts[1],
            buffers[2], starts[2], corners[0], starts[5],
        )  # fmt: skip
        event_numbers = np.empty((len(_EVENT_NUMBERS), m), np.int64)
        event_shapes = np.zeros((m if self.shaped else 0, 5))
        sealing.fill_events(
            address, slots, event_numbers, event_shapes, buffers[3], starts[3], buffers[4],
            starts[4], corners[1], starts[6],
        )  # fmt: skip
        texts = [_text(s, b) for s, b in zip(starts[:5], buffers, strict=True)]
        subs = _Side(
            sub_lists,
            dict(zip(_SUB_NUMBERS, numbers, strict=True)),
            shapes if self.shaped else None,
            {"id": texts[0], "user": texts[1], "where": texts[2]},
            _corners(starts[5], corners[0]),
        )
        events = _Side(
            event_lists,
            dict(zip(_EVENT_NUMBERS, event_numbers, strict=True)),
            event_shapes if self.shaped else None,
            {"id": texts[3], "body": texts[4]},
            _corners(starts[6], corners[1]),
        )
        bucket = [window.width, window.limit]
        made = self._build(places.take(pa.array(order)), subs, events, bucket)
        return [made] if made.rows else []

    def merge(self, readers: Sequence[SealedReader], context: MergeContext) -> list[Product]:
        """One component of several: lists joined, what has expired left out.

        The context's owner gives the tombs: seqs of cancelled subscriptions, and when they ended.
        """
        now, tombs = context.now, context.owner
        all_places = pa.concat_arrays([reader.places for reader in readers])
        order = pc.array_sort_indices(all_places).to_numpy().astype(np.int64)
        ordered = all_places.take(pa.array(order))
        fresh = np.ones(len(order), bool)
        if len(order) > 1:
            fresh[1:] = np.asarray(pc.not_equal(ordered.slice(1), ordered.slice(0, len(order) - 1)))
        place_number = np.empty(len(order), np.int64)
        place_number[order] = np.cumsum(fresh) - 1
        places = ordered.filter(pa.array(fresh))
        subs = self._join(
            readers, place_number, len(places), "subs", _SUB_NUMBERS, ("id", "user", "where"),
            lambda r: self._keep_subs(r, now, tombs),
        )  # fmt: skip
        events = self._join(readers, place_number, len(places), "events", _EVENT_NUMBERS,
                            ("id", "body"), lambda r: (r.event("until") > now, None))  # fmt: skip
        used = (np.diff(subs.lists) > 0) | (np.diff(events.lists) > 0)
        if not used.any():
            return []
        for side in (subs, events):
            side.lists = np.concatenate(([0], side.lists[1:][used]))
        bucket = readers[0].component.info.extra["bucket"]
        return [self._build(places.filter(pa.array(used)), subs, events, bucket)]

    def _keep_subs(
        self, reader: SealedReader, now: int, tombs: dict[int, int]
    ) -> tuple[NDArray[np.bool_], dict[str, Words] | None]:
        """Which subscriptions of a component stay, and columns that change on the way."""
        flags, seq = reader.sub("flags"), reader.sub("seq")
        mask = (reader.sub("until") > now) & ((flags & at.F_GHOST) == 0)
        if not tombs:
            return mask, None
        buried = np.isin(seq, np.fromiter(tombs, np.int64, len(tombs)))
        buried &= (flags & (at.F_TOMB | at.F_CANCELLED)) == 0
        if not buried.any():
            return mask, None
        flags, ended = flags.copy(), reader.sub("ended").copy()
        flags[buried] |= at.F_CANCELLED
        ended[buried] = [tombs[s] for s in seq[buried].tolist()]
        return mask, {"flags": flags, "ended": ended}

    def _join(
        self, readers: Sequence[SealedReader], place_number: Words, places: int, side: str,
        names: tuple[str, ...], texts: tuple[str, ...], choose: Any,
    ) -> _Side:  # fmt: skip
        """The records of one side of several components, ordered by place then arrival."""
        start = 0
        corners: list[pa.LargeListArray] = []
        owner, columns, shapes = [], {name: [] for name in (*names, *texts)}, []  # type: ignore[var-annotated]
        for reader in readers:
            lists = getattr(reader, side)
            values = lists.values
            mine = place_number[start : start + len(lists)]
            start += len(lists)
            mask, changed = choose(reader)
            owner.append(np.repeat(mine, np.diff(reader.offsets(lists)))[mask])
            for name in names:
                if name == "id_hash":  # kept in hash order in the file: back to record order
                    column = np.empty(len(values), np.int64)
                    column[np.asarray(values.field("by_id"))] = np.asarray(values.field(name))
                elif changed and name in changed:
                    column = changed[name]
                elif side == "subs":
                    column = reader.sub(name)
                else:
                    column = reader.event(name)
                columns[name].append(column[mask])
            chosen = pa.array(mask)
            for name in texts:
                columns[name].append(values.field(name).filter(chosen))
            if self.shaped:
                flat = np.asarray(values.field("shape").values).reshape(-1, 5)
                shapes.append(flat[mask])
                corners.append(_corners_of(values).filter(chosen))
        owners = np.concatenate(owner)
        order = np.lexsort((np.concatenate(columns["seq"]), owners))
        take = pa.array(order)
        lists = np.zeros(places + 1, np.int64)
        np.cumsum(np.bincount(owners, minlength=places), out=lists[1:])
        return _Side(
            lists,
            {name: np.concatenate(columns[name])[order] for name in names},
            np.concatenate(shapes)[order] if self.shaped else None,
            {name: pa.concat_arrays(columns[name]).take(take) for name in texts},
            _some(pa.concat_arrays(corners).take(take)) if self.shaped else None,
        )

    def _build(self, places: pa.Array, subs: _Side, events: _Side, bucket: list[int]) -> Product:
        numbers = subs.numbers
        ends = numbers["until"]
        asked = (numbers["flags"] & at.F_TOMB) == 0
        filters = {
            "since": _range(numbers["since"][asked]),
            "sub_until": _range(numbers["until"][asked]),
            "at": _range(events.numbers["at"]),
            "event_until": _range(events.numbers["until"]),
            "until": _range(np.concatenate((ends, events.numbers["until"]))),
            "seq": _range(np.concatenate((numbers["seq"], events.numbers["seq"]))),
        }
        rows = len(ends) + len(events.numbers["at"])
        table = pa.table({"place": places, "subs": _list(subs), "events": _list(events)})
        return Product(table, rows, filters, {"bucket": bucket})


# ---- Arrow from numpy, without copies ---------------------------------------------------------


def _list(side: _Side) -> pa.LargeListArray:
    numbers = dict(side.numbers)
    by_id = np.argsort(numbers["id_hash"], kind="stable")
    numbers["id_hash"] = numbers["id_hash"][by_id]
    numbers["by_id"] = by_id.astype(np.int64)
    columns: dict[str, pa.Array] = dict(side.texts)
    columns.update({name: pa.array(np.ascontiguousarray(v)) for name, v in numbers.items()})
    if side.shapes is not None:
        flat = pa.array(np.ascontiguousarray(side.shapes).reshape(-1))
        columns["shape"] = pa.FixedSizeListArray.from_arrays(flat, type=_SHAPE)
    if side.corners is not None:
        columns["corners"] = side.corners
    struct = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    return pa.LargeListArray.from_arrays(pa.array(side.lists), struct)


def _corners(offsets: Words, numbers: NDArray[np.float64]) -> pa.LargeListArray | None:
    return _some(pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(numbers), type=_CORNERS))


def _corners_of(records: pa.StructArray) -> pa.LargeListArray:
    """The corners of the records of a component, which may have none."""
    if records.type.get_field_index("corners") >= 0:
        return records.field("corners")
    offsets = pa.array(np.zeros(len(records) + 1, np.int64))
    return pa.LargeListArray.from_arrays(offsets, pa.array([], pa.float64()), type=_CORNERS)


def _some(corners: pa.LargeListArray) -> pa.LargeListArray | None:
    """Corners, if there are any."""
    return corners if len(corners.values) else None


def _running(lengths: Words) -> Words:
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def _binary(offsets: Words, data: NDArray[np.uint8]) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _text(offsets: Words, data: NDArray[np.uint8]) -> pa.LargeStringArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def _range(values: Words) -> MinMax:
    return MinMax(int(values.min()), int(values.max())) if len(values) else MinMax.empty()


def _bound(filters: dict[str, MinMax], name: str, low: bool) -> int:
    found = filters.get(name)
    if found is None:  # made before there was this filter: anything may be in there
        return -FOREVER if low else FOREVER
    if found.is_empty:
        return FOREVER if low else -FOREVER
    return int(found.low if low else found.high)


def _address(owner: Any, array: Any, number: int) -> int:
    """Where a buffer of a column is; it is there as long as the reader that owns it."""
    buffer = array.buffers()[number]
    return 0 if buffer is None else address_of(buffer, owner)
