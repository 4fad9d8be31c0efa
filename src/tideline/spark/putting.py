"""Documents that Spark's tasks have staged, into a collection; in the store's process.

    spool (channel/spool.py) -> tables of `SLICE` rows, as they come -> `Collection.put_many`

What `channel/landing.py` is for a channel. Needs no pyspark. Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tideline.channel.landing import Counts, Landed, Once, keep_bad
from tideline.channel.spool import SLICE, Spool, merged
from tideline.documents.rows import key_bytes
from tideline.errors import InvalidRequest

__all__ = ["DocumentLanding"]


class DocumentLanding:
    """Staged rows into a collection; what `Landing` is for a channel."""

    def __init__(
        self, collection: Any, spool: Spool, go_on: Callable[[], None] = lambda: None
    ) -> None:
        self._collection = collection
        self._spool = spool
        self._go_on = go_on

    def check(self, tokens: Sequence[str], keep: str | None = None) -> Landed:
        """What is wrong with staged documents, without putting them."""
        counts = Counts()

        def bad() -> Iterator[pa.RecordBatch]:
            for run in self._spool.runs(tokens):
                self._go_on()
                table = pa.Table.from_batches([run])
                counts.rows += table.num_rows
                wrong = self._collection.check_many(table)
                rows = sorted(wrong)
                yield from counts.reject(table, rows, [wrong[row] for row in rows])

        return keep_bad(bad(), counts, self._spool, keep)

    def commit(
        self, tokens: Sequence[str], *, once: Once | None = None, order: str = "put",
        keep: str | None = None,
    ) -> Landed:  # fmt: skip
        """Put staged documents, or delete them, in the order of the tokens."""
        counts = Counts()

        def bad() -> Iterator[pa.RecordBatch]:
            for table in merged(self._spool.runs(tokens), "arrival", SLICE):
                self._go_on()
                counts.rows += table.num_rows
                if order == "delete":
                    yield from self._delete(table, counts)
                    continue
                rejected = self._collection.put_many(table).rejected
                yield from counts.reject(
                    table, rejected["row"].to_pylist(), rejected["reason"].to_pylist()
                )

        return keep_bad(bad(), counts, self._spool, keep)

    def _delete(self, table: pa.Table, counts: Counts) -> Iterator[pa.RecordBatch]:
        good, bad, reasons = [], [], []
        for row, key in enumerate(table.column(0).to_pylist()):
            try:
                key_bytes(key)
                good.append(key)
            except InvalidRequest as error:
                bad.append(row)
                reasons.append(str(error))
        self._collection.delete_many(good)
        yield from counts.reject(table, bad, reasons)
