"""Documents with a point in PostgreSQL, found by a box: a table with a GiST index of PostGIS.

A question is a prepared statement, and its rows come in binary form. The table is loaded by COPY,
sorted by the index (CLUSTER) and vacuumed before the first question, so that the rows of a box lie
beside each other. `&&` uses the index, whose numbers have 32 bits, and finds some too many; the
coordinates are compared behind it. Tried on 200,000 documents, boxes of 1,000 hits, the least of 12
times on a machine with other work, in microseconds:

    && alone 310, && and coordinates 398, ST_Intersects 694; 910 where the table is not sorted

With 10 hits all of them took 42 to 47.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.peers import postgres_cluster

__all__ = ["Postgis", "missing"]

missing = postgres_cluster.missing
_ASK = """
SELECT document FROM places WHERE at && ST_MakeEnvelope(%(w)s, %(s)s, %(e)s, %(n)s)
AND ST_X(at) BETWEEN %(w)s AND %(e)s AND ST_Y(at) BETWEEN %(s)s AND %(n)s"""


class Postgis:
    """The table in a server of its own, which is stopped by `close`."""

    name = "PostGIS"

    def __init__(self, folder: Path, rows: Iterable[tuple[int, float, float, str]]) -> None:
        self._cluster = postgres_cluster.Cluster(folder, None, fsync=False)
        try:
            self._db = self._cluster.connect()
            self._db.prepare_threshold = 0
            self._load(rows)
        except BaseException:
            self._cluster.close()
            raise

    def _load(self, rows: Iterable[tuple[int, float, float, str]]) -> None:
        run = self._db.execute
        run("CREATE EXTENSION postgis")
        run("CREATE UNLOGGED TABLE given (id bigint, lon float8, lat float8, document text)")
        with self._db.cursor() as cursor, cursor.copy("COPY given FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        run("CREATE TABLE places AS SELECT id, ST_MakePoint(lon, lat) AS at, document FROM given")
        run("CREATE INDEX by_place ON places USING gist (at)")
        run("CLUSTER places USING by_place")
        run("DROP TABLE given")
        run("ALTER TABLE places ADD PRIMARY KEY (id)")
        run("VACUUM ANALYZE places")

    def find(self, box: Any, read: Callable[[str], Any] = str) -> int:
        """How many documents are in a box; each is read."""
        sides = dict(zip("wsen", map(float, box), strict=True))
        cursor = self._db.execute(_ASK, sides, binary=True)
        return len([read(document) for (document,) in cursor.fetchall()])

    def close(self) -> None:
        self._db.close()
        self._cluster.close()
