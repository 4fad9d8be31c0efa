"""Rows that are about to land: where each goes, and the frame of the log that says so.

    payload := length of the header u32 | 0 u32 | header, filled with spaces to whole words
               | keys | values ...            each filled with zeros to whole words
    texts   := offsets int64, one more than rows | all texts, one after the other
    header  := {"seq", "rows", "late", "codec", "width", "steps", "once"}          as JSON
    steps   := [[pane, time, [[pane, rows], ...]], ...]

A *step* is what happens while one sub-window is open: `pane` is its number, then come the rows, by
the sub-windows they go to. Rows stand in that order, those of one sub-window as they came. So one
frame has rows of any number of slides, and lands whole or not at all.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.errors import Corruption
from tideline.index.packed import Codec, Column, Spelled, codec_from_json, fitting
from tideline.index.texts import Texts
from tideline.index.values import TEXT, TextColumn
from tideline.stream.incoming import Incoming
from tideline.stream.settings import Settings

__all__ = ["Batch", "Once", "Step", "codec_for", "planned", "read_payload", "written"]

Array = NDArray[Any]
Once = tuple[str, int, int] | None
"""A writer, the number of its batch, and the number of its first row that has not landed."""


class Step(NamedTuple):
    """What lands while one sub-window is open."""

    pane: int
    time: int
    parts: list[tuple[int, int]]
    """Sub-windows with how many rows each gets."""


class Batch(NamedTuple):
    """Rows in the order of their steps."""

    codec: Codec
    keys: Array
    values: list[Any]
    steps: list[Step]
    seq: int
    late: int
    """Rows that came too late, of all that the window was ever given."""
    once: Once = None
    log: int = 0
    """The log segment that it is in, or an earlier one."""


def codec_for(
    settings: Settings, types: Sequence[str], columns: Sequence[Column], codec: Codec | None
) -> Codec:
    """A codec that these keys fit: the one there is, if they do, else a wider one."""
    if isinstance(codec, Spelled) or "text" in types:
        return codec if isinstance(codec, Spelled) else Spelled(types)
    found: list[tuple[int, int]] = []
    for column, declared in zip(columns, settings.ranges, strict=True):
        if declared is not None:
            found.append(declared)
        else:
            column = np.asarray(column)
            found.append((int(column.min()), int(column.max())) if len(column) else (0, 0))
    if codec is not None and codec.fits(found):
        return codec
    wider = []
    before: list[Any] = [None] * len(found) if codec is None else codec.ranges
    for (low, high), declared, old in zip(found, settings.ranges, before, strict=True):
        if declared is None:
            low, high = _rounded(low, high)
            if old is not None:
                low, high = min(low, old[0]), max(high, old[1])
        wider.append((low, high))
    return fitting(types, wider)


def _rounded(low: int, high: int) -> tuple[int, int]:
    """A range with room to grow: whole powers of two, from 0 where nothing is below."""
    least = 0 if low >= 0 else -(1 << (-low - 1).bit_length())
    return least, (1 << max(high, 0).bit_length()) - 1


def planned(
    rows: Incoming, settings: Settings, codec: Codec, pane: int, time: int, now: int
) -> tuple[Array, list[Any], list[Step], int]:
    """Keys, values, steps, and how many rows are too late, for a window that stands at `pane`."""
    if rows.times is None:
        time = max(time, now)
        step = Step(max(pane, settings.pane_of(time)), time, [])
        step.parts.append((step.pane, rows.total))
        return codec.pack(rows.keys), rows.values, [step], 0
    panes = rows.times // settings.slide_us
    keys, values = codec.pack(rows.keys), rows.values
    least, most = int(panes.min()), int(panes.max())
    if least == most and most >= pane:
        step = Step(most, max(time, int(rows.times.max())), [(most, rows.total)])
        return keys, values, [step], 0
    opened = np.maximum.accumulate(np.maximum(panes, pane))
    good = panes > opened - settings.panes
    late = int(len(good) - np.count_nonzero(good))
    reached = np.maximum.accumulate(np.maximum(rows.times, time))
    if late:
        keys, values = keys[good], [value[good] for value in values]
        panes, opened, reached = panes[good], opened[good], reached[good]
    if not len(panes):
        return keys, values, [], late
    if (np.diff(opened) == 0).all() and (np.diff(panes) >= 0).all():
        order = None
    else:
        order = np.lexsort((panes, opened))  # stable: rows of one sub-window stay as they came
        keys, values = keys[order], [value[order] for value in values]
        panes, opened = panes[order], opened[order]
    edges = np.flatnonzero((np.diff(panes) != 0) | (np.diff(opened) != 0)) + 1
    starts = [0, *edges.tolist()]
    limits = [*edges.tolist(), len(panes)]
    steps: list[Step] = []
    for start, limit in zip(starts, limits, strict=True):
        number = int(opened[start])
        if not steps or steps[-1].pane != number:
            # `opened` ascends in both orders: the last row of a step says how far time had come.
            end = int(np.searchsorted(opened, number, "right")) - 1
            steps.append(Step(number, int(reached[end]), []))
        steps[-1].parts.append((int(panes[start]), limit - start))
    return keys, values, steps, late


def written(batch: Batch) -> list[bytes | memoryview]:
    """The payload of a batch, in parts."""
    width = batch.keys.dtype.itemsize if batch.keys.dtype.kind == "S" else 0
    header = msgspec.json.encode({
        "seq": batch.seq, "rows": len(batch.keys), "late": batch.late,
        "codec": batch.codec.to_json(), "width": width,
        "steps": [[step.pane, step.time, step.parts] for step in batch.steps],
        "once": batch.once,
    })  # fmt: skip
    header += b" " * (-len(header) % 8)
    parts: list[bytes | memoryview] = [len(header).to_bytes(8, "little"), header]
    columns: list[Array] = [batch.keys]
    for value in batch.values:
        if isinstance(value, TextColumn):
            texts = value.copy().texts
            columns += [texts.offsets, texts.data]
        else:
            columns.append(value)
    for column in columns:
        whole = np.ascontiguousarray(column)
        if len(whole):
            parts.append(memoryview(whole.view(np.uint8).data).cast("B"))
        if pad := -whole.nbytes % 8:
            parts.append(bytes(pad))
    return parts


def read_payload(payload: memoryview, settings: Settings, log: int) -> Batch:
    """The batch of a payload; its arrays are copies, as the log may go."""
    try:
        size = int.from_bytes(payload[:8], "little")
        header = msgspec.json.decode(bytes(payload[8 : 8 + size]))
        codec = codec_from_json(header["codec"])
        rows, at = int(header["rows"]), 8 + size
        dtype = np.dtype(f"S{header['width']}") if header["width"] else codec.dtype
        columns: list[Any] = []
        for kind in (dtype, *settings.dtypes):
            if kind == TEXT:
                limit = at + 8 * (rows + 1)
                offsets = np.frombuffer(payload[at:limit], np.int64).copy()
                at, limit = limit, limit + int(offsets[-1])
                data = np.frombuffer(payload[at:limit], np.uint8).copy()
                if len(data) != offsets[-1]:
                    raise ValueError("texts end early")
                columns.append(TextColumn(Texts(offsets, data)))
            else:
                limit = at + rows * kind.itemsize
                columns.append(np.frombuffer(payload[at:limit], kind).copy())
            at = limit + -limit % 8
        steps = [
            Step(pane, time, [(each, count) for each, count in parts])
            for pane, time, parts in header["steps"]
        ]
        once = header["once"] and tuple(header["once"])
        return Batch(
            codec, columns[0], columns[1:], steps, header["seq"], header["late"], once, log
        )
    except (KeyError, TypeError, ValueError, msgspec.DecodeError) as error:
        raise Corruption("a frame of the log has no rows of a window", file="log") from error
