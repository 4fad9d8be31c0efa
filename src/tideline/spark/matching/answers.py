"""What comes out of matching, as columns.

    subscription, event, user   text
    kind                        "past" or "live"; "rejected" for a bad row
    at                          microseconds: the time of the row that caused the answer
    reason                      why a row was rejected; null for answers

Imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tideline.channel.codec import read_rows
from tideline.errors import InvalidRequest
from tideline.spark.matching.bucket import Ran
from tideline.spark.matching.pack import read_rejects
from tideline.spark.matching.settings import Settings

__all__ = ["ANSWERS", "answers_of", "conflicts_of", "rejected_of"]

ANSWERS = pa.schema(
    [("subscription", pa.string()), ("event", pa.string()), ("user", pa.string()),
     ("kind", pa.string()), ("at", pa.int64()), ("reason", pa.string())]
)  # fmt: skip


def answers_of(table: pa.Table, ran: Ran) -> pa.Table:
    """The answers of a run."""
    texts = [table[name].cast(pa.string()) for name in ANSWERS.names[:4]]
    times = pa.array(ran.at[table["row"].to_numpy()])
    return pa.table([*texts, times, pa.nulls(table.num_rows, pa.string())], schema=ANSWERS)


def conflicts_of(ran: Ran, settings: Settings) -> Iterator[pa.Table]:
    """Rows that did not land because their id is taken: as `settings.rejected` says."""
    if settings.rejected == "drop":
        return
    rows = []
    for number, reason in ran.rejected:
        start = int(ran.starts[number])
        row = read_rows(ran.rows[start : start + (int(ran.rows[start]) >> 32)])[0]
        subscription = bool(row.user)
        rows.append(
            {
                "subscription": row.id if subscription else None,
                "event": None if subscription else row.id,
                "user": row.user or None,
                "kind": "rejected",
                "at": int(ran.at[number]),
                "reason": reason,
            }
        )
    if settings.rejected == "fail":
        raise InvalidRequest(
            f"{len(rows)} rows are bad; the first: {rows[0]['reason']} (rejected='keep' hands "
            "bad rows over with the reason, 'drop' leaves them out)"
        )
    yield pa.Table.from_pylist(rows, schema=ANSWERS)


def rejected_of(packet: bytes) -> pa.Table:
    """Rows that were bad by themselves."""
    table = read_rejects(packet)
    kind = pa.array(np.full(table.num_rows, "rejected"), pa.string())
    return table.append_column("kind", kind).select(ANSWERS.names)
