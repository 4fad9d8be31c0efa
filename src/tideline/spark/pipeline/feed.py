"""The store's part of a batch: apply it once, and write down what came of it.

    operations -> Channel.apply(once=(name, number)) -> answers, rejected
                  rejected + dead -> dead letters
                  stored          -> archive
                  counts          -> the batch's line

`feed` is the one function that takes a batch from the queue into the store. It may be called
again for the same batch after a kill at any point: the store takes a batch once, and every file
is named after its batch and written whole, so that it is only written over with itself.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tideline.channel.checks import BODY_LIMIT_BYTES, ID_LIMIT_BYTES
from tideline.channel.operations import read_operations
from tideline.errors import Conflict
from tideline.spark.pipeline.config import Config
from tideline.spark.pipeline.counts import Batch
from tideline.spark.pipeline.sift import refused_rows
from tideline.spark.pipeline.state import State

if TYPE_CHECKING:
    from tideline.channel import Channel
    from tideline.model import Applied

__all__ = ["feed"]

_TEXTS = ("id", "place", "user", "body", "where")
_SAMPLE = 20_000  # rows whose latency is looked at


def feed(
    channel: Channel, state: State, config: Config, number: int, operations: pa.Table,
    dead: pa.Table | None, facts: dict[str, Any], *, again: bool = False,
) -> tuple[Batch, Applied]:  # fmt: skip
    """Store a batch of the queue and finish it. Raises what the store raises; may be retried."""
    clock = channel.clock
    started = time.perf_counter()
    applied, rejected = _apply(channel, config, number, operations)
    if applied.repeated and not again:
        raise Conflict(
            "the store had this batch already: another pipeline of this name writes to the channel",
            name=config.name, batch=number, channel=channel.name,
        )  # fmt: skip
    store_s = time.perf_counter() - started
    stored_us = clock.now()
    stored = np.ones(operations.num_rows, np.bool_)
    stored[list(rejected)] = False
    if rejected:
        rows = sorted(rejected)
        taken = operations.take(pa.array(rows, pa.int64()))
        letters = refused_rows(taken, [rejected[row] for row in rows], facts["read_us"])
        dead = letters if dead is None else pa.concat_tables([dead, letters])
    write_dead(config.dead_folder, number, dead)
    if config.archive is not None:
        archive(Path(config.resolve(config.archive.folder)), number, operations, stored)
    counts = {
        "read": facts["read"], "stored": int(stored.sum()), "duplicate": facts["duplicate"],
        "late": facts["late"], "filtered": facts["filtered"],
        "dead": facts["dead"] + len(rejected),
    }  # fmt: skip
    sync = config.store.durability == "disk"
    kept: dict[str, Any] = {
        name: facts[name] for name in ("newest", "offsets", "read_us") if name in facts
    }
    state.finish(number, counts, kept, sync=sync)
    if config.deduplicate and facts.get("newest") is not None:
        state.drop_keys(facts["newest"] - 2 * round(config.deduplicate.within_s * 1e6))
    latency, newest_us = _latency(operations, stored, stored_us)
    batch = Batch(
        number=number, **counts, answers=applied.answers.num_rows, spark_s=facts["spark_s"],
        sift_s=facts["sift_s"], store_s=store_s,
        write_s=time.perf_counter() - started - store_s,
        latency_s=latency, newest_us=newest_us, again=again,
    )  # fmt: skip
    return batch, applied


def _apply(
    channel: Channel, config: Config, number: int, operations: pa.Table
) -> tuple[Applied, dict[int, str]]:
    """Apply a batch; returns what the store said, and the rejected rows."""
    given = operations.select([name for name in operations.column_names if name[0] != "_"])
    broken = _not_utf8(given)
    wanted = np.flatnonzero(~broken) if broken is not None else None
    table = given if wanted is None else given.take(pa.array(wanted))
    applied = channel.apply(table, once=(config.name, number))
    found = {int(row["row"]): str(row["reason"]) for row in applied.rejected.to_pylist()}
    if applied.repeated:
        # It had landed before a kill. What is wrong with a row by itself is found again.
        found = dict(
            read_operations(
                table, channel.space, lambda count: ["x"] * count, id_limit=ID_LIMIT_BYTES,
                body_limit=BODY_LIMIT_BYTES,
            ).rejected
        )  # fmt: skip
    if wanted is None:
        return applied, found
    rejected = {int(wanted[row]): reason for row, reason in found.items()}
    assert broken is not None
    rejected.update(dict.fromkeys(np.flatnonzero(broken).tolist(), "a text is not UTF-8"))
    return applied, rejected


def _not_utf8(table: pa.Table) -> NDArray[np.bool_] | None:
    """Which rows hold text that is not UTF-8; None when all is well.

    The store takes a table of texts or none of it. Spark's own parsers make valid text; only
    columns that a source hands over as text can be broken.
    """
    broken = np.zeros(table.num_rows, np.bool_)
    for name in _TEXTS:
        if name not in table.column_names:
            continue
        column = table[name]
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            for row, value in enumerate(column.cast(pa.binary())):
                try:
                    (value.as_py() or b"").decode()
                except UnicodeDecodeError:
                    broken[row] = True
    return broken if broken.any() else None


def _latency(
    operations: pa.Table, stored: NDArray[np.bool_], stored_us: int
) -> tuple[tuple[float, float, float] | None, int | None]:
    """Median, p99 and most seconds from `at` to stored, and the newest `at`."""
    if not stored.any():
        return None, None
    at = operations["at"].combine_chunks().view(pa.int64())
    times = at.fill_null(0).to_numpy(zero_copy_only=False)[stored]
    ages = (stored_us - times) / 1e6
    newest = int(times.max())
    most = float(ages.max())
    if len(ages) > _SAMPLE:
        ages = ages[:: len(ages) // _SAMPLE]
    median, late = np.percentile(ages, [50, 99]).tolist()
    return (float(median), float(late), most), newest


# ---- files ---------------------------------------------------------------------------------------


def write_dead(folder: Path, number: int, dead: pa.Table | None) -> None:
    """The dead letters of a batch; a batch without any has no folder."""
    place = folder / f"batch={number}"
    if dead is None or not dead.num_rows:
        shutil.rmtree(place, ignore_errors=True)
        return
    place.mkdir(parents=True, exist_ok=True)
    _write_parquet(place / "rows.parquet", dead)


def archive(folder: Path, number: int, operations: pa.Table, stored: NDArray[np.bool_]) -> None:
    """What was stored, as files of one day and one area, each named after the batch."""
    table = operations.filter(pa.array(stored)) if not stored.all() else operations
    if not table.num_rows:
        return
    at = table["at"].combine_chunks()
    days = pc.strftime(at.cast(pa.timestamp("s", at.type.tz), safe=False), format="%Y-%m-%d")
    areas = (
        table["_area"].combine_chunks().fill_null("")
        if "_area" in table.column_names else pa.repeat(pa.scalar(""), len(days))
    )  # fmt: skip
    kept = table.select([name for name in table.column_names if name[0] != "_"])
    groups = pa.table({"day": days, "area": areas, "row": np.arange(len(days))})
    for group in groups.group_by(["day", "area"]).aggregate([("row", "list")]).to_pylist():
        place = folder / f"day={group['day']}"
        if "_area" in table.column_names:
            place = place / f"area={quote(group['area'], safe='') or '__HIVE_DEFAULT_PARTITION__'}"
        place.mkdir(parents=True, exist_ok=True)
        rows = kept.take(pa.array(group["row_list"]))
        _write_parquet(place / f"batch-{number:012d}.parquet", rows)


def _write_parquet(path: Path, table: pa.Table) -> None:
    half = path.with_name(f".{path.name}.half")
    pq.write_table(table, half)
    os.replace(half, path)
