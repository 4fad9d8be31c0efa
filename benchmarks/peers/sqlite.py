"""SQLite in this process: two tables, matched by triggers as the rows come in.

    subscription (place, until, id) -> since, user      event (place, at, id) -> until, body

Both are WITHOUT ROWID, so a place's rows lie together and in the order that a match wants: the
subscriptions that have not ended, the events since a time. Operations are inserted into a view
whose INSTEAD OF triggers write the answers into a table in memory and then store the row; so a
batch is one `executemany` and one `SELECT`, and no row passes through Python in between.

Circles use the R*Tree module: boxes of circles, points of events, and the exact distance in SQL.

- Journal: WAL with synchronous=NORMAL, which survives a killed process and never tears; a batch is
  one transaction.
- Expiry: `DELETE ... WHERE until <= now` on an index of `until`, every 10 s of channel time. What
  has expired and is still there is left out by the match.
- Unseen: a table of (user, event) that every answer adds to, kept only when it is asked for.
"""

from __future__ import annotations

import sqlite3
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from benchmarks.peers.base import Given
from benchmarks.peers.columns import (
    InProcess,
    answer_array,
    flags,
    microseconds,
    numbers,
)

__all__ = ["SqlitePeer"]

SWEEP_US = 10_000_000
_EARTH_M = 6_371_008.8

_SETUP = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA temp_store = MEMORY;
"""

_FLAT = """
CREATE TABLE IF NOT EXISTS subscription (
    place TEXT, until INTEGER, id INTEGER, since INTEGER, user INTEGER, unseen INTEGER,
    PRIMARY KEY (place, until, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event (
    place TEXT, at INTEGER, id INTEGER, until INTEGER, body TEXT,
    PRIMARY KEY (place, at, id)) WITHOUT ROWID;
"""

_SHAPES = """
CREATE TABLE IF NOT EXISTS subscription (
    id INTEGER PRIMARY KEY, until INTEGER, since INTEGER, user INTEGER, unseen INTEGER,
    lon REAL, lat REAL, radius REAL);
CREATE TABLE IF NOT EXISTS event (
    id INTEGER PRIMARY KEY, at INTEGER, until INTEGER, body TEXT, lon REAL, lat REAL);
CREATE VIRTUAL TABLE IF NOT EXISTS subscription_box USING rtree (id, west, east, south, north);
CREATE VIRTUAL TABLE IF NOT EXISTS event_box USING rtree (id, west, east, south, north);
CREATE TRIGGER IF NOT EXISTS subscription_gone AFTER DELETE ON subscription BEGIN
    DELETE FROM subscription_box WHERE id = OLD.id; END;
CREATE TRIGGER IF NOT EXISTS event_gone AFTER DELETE ON event BEGIN
    DELETE FROM event_box WHERE id = OLD.id; END;
"""

_INDEXES = """
CREATE INDEX IF NOT EXISTS subscription_until ON subscription (until);
CREATE INDEX IF NOT EXISTS event_until ON event (until);
"""

_TOLD = """
CREATE TABLE IF NOT EXISTS told (
    user INTEGER, event INTEGER, until INTEGER, PRIMARY KEY (user, event)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS told_until ON told (until);
"""

# Metres between NEW and the other side, as tideline.kernels.geo.haversine_m has it.
_METRES = (
    f"2.0 * {_EARTH_M} * asin(sqrt(min(1.0, pow(sin(radians({{o}}.lat - NEW.lat) * 0.5), 2)"
    " + cos(radians(NEW.lat)) * cos(radians({o}.lat))"
    " * pow(sin(radians({o}.lon - NEW.lon) * 0.5), 2))))"
)

_COLUMNS = {
    False: "row, op, id, place, user, at, now, since, until, body, unseen",
    True: "row, op, id, lon, lat, radius, high, wide, user, at, now, since, until, body, unseen",
}

_FIND_SUBSCRIPTIONS = {
    False: "FROM subscription s WHERE s.place = NEW.place AND s.until > NEW.now"
    " AND s.since <= NEW.at AND s.until > NEW.at",
    True: "FROM subscription_box b CROSS JOIN subscription s ON s.id = b.id"
    " WHERE b.west <= NEW.lon AND b.east >= NEW.lon AND b.south <= NEW.lat AND b.north >= NEW.lat"
    " AND s.until > NEW.now AND s.since <= NEW.at AND s.until > NEW.at"
    f" AND {_METRES.format(o='s')} <= s.radius",
}

_FIND_EVENTS = {
    False: "FROM event e WHERE e.place = NEW.place AND e.at >= NEW.since AND e.at < NEW.until"
    " AND e.until > NEW.now",
    True: "FROM event_box b CROSS JOIN event e ON e.id = b.id"
    " WHERE b.west <= NEW.lon + NEW.wide AND b.east >= NEW.lon - NEW.wide"
    " AND b.south <= NEW.lat + NEW.high AND b.north >= NEW.lat - NEW.high"
    " AND e.at >= NEW.since AND e.at < NEW.until AND e.until > NEW.now"
    f" AND {_METRES.format(o='e')} <= NEW.radius",
}

_STORE = {
    False: (
        "INSERT INTO event VALUES (NEW.place, NEW.at, NEW.id, NEW.until, NEW.body);",
        "INSERT INTO subscription VALUES"
        " (NEW.place, NEW.until, NEW.id, NEW.since, NEW.user, NEW.unseen);",
    ),
    True: (
        "INSERT INTO event VALUES (NEW.id, NEW.at, NEW.until, NEW.body, NEW.lon, NEW.lat);"
        "INSERT INTO event_box VALUES (NEW.id, NEW.lon, NEW.lon, NEW.lat, NEW.lat);",
        "INSERT INTO subscription VALUES (NEW.id, NEW.until, NEW.since, NEW.user, NEW.unseen,"
        " NEW.lon, NEW.lat, NEW.radius);"
        "INSERT INTO subscription_box VALUES (NEW.id, NEW.lon - NEW.wide, NEW.lon + NEW.wide,"
        " NEW.lat - NEW.high, NEW.lat + NEW.high);",
    ),
}


def _triggers(shapes: bool, unseen: bool) -> str:
    """The view of operations, and what happens to one that comes in."""
    subscriptions = f"SELECT NEW.row, s.id, NEW.id {_FIND_SUBSCRIPTIONS[shapes]}"
    events = f"SELECT NEW.row, NEW.id, e.id {_FIND_EVENTS[shapes]}"
    columns, keep = "row INTEGER, subscription INTEGER, event INTEGER", ""
    if unseen:
        # Of a user's subscriptions that one event meets, one that wants unseen events yields to
        # every other that came before it: ids are given in order.
        met = (
            "SELECT s.id AS id, s.user AS user, s.unseen AS unseen,"
            f" min(s.id) OVER (PARTITION BY s.user) AS first {_FIND_SUBSCRIPTIONS[shapes]}"
        )
        subscriptions = (
            f"SELECT NEW.row, id, NEW.id, user, NEW.until FROM ({met})"
            " WHERE NOT unseen OR id = first"
        )
        events = (
            f"SELECT NEW.row, NEW.id, e.id, NEW.user, e.until {_FIND_EVENTS[shapes]}"
            " AND (NOT NEW.unseen OR NOT EXISTS"
            " (SELECT 1 FROM told t WHERE t.user = NEW.user AND t.event = e.id))"
        )
        columns += ", user INTEGER, until INTEGER"
        keep = (
            "INSERT OR IGNORE INTO told SELECT user, event, until FROM answer WHERE row = NEW.row;"
        )
    publish, subscribe = _STORE[shapes]
    empty = ", ".join(f"0 AS {name}" for name in _COLUMNS[shapes].split(", "))
    return f"""
CREATE TEMP TABLE answer ({columns});
{"CREATE INDEX temp.answer_row ON answer (row);" if unseen else ""}
CREATE TEMP VIEW operation AS SELECT {empty};
CREATE TEMP TRIGGER publish INSTEAD OF INSERT ON operation WHEN NEW.op = 1 BEGIN
    INSERT INTO answer {subscriptions}; {keep} {publish} END;
CREATE TEMP TRIGGER subscribe INSTEAD OF INSERT ON operation WHEN NEW.op = 0 BEGIN
    INSERT INTO answer {events}; {keep} {subscribe} END;
"""


class SqlitePeer(InProcess):
    """Two tables and their triggers."""

    name: ClassVar[str] = "SQLite"

    @classmethod
    def version(cls) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def __init__(self, given: Given) -> None:
        self._folder = given.folder
        self._shapes, self._unseen = given.shapes, given.unseen
        self._newest = self._swept = 0
        given.folder.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(given.folder / "side.db", isolation_level=None)
        self._db.executescript(_SETUP)
        self._db.execute(f"PRAGMA cache_size = {-1024 * (given.memory_mb or 256)}")
        self._db.executescript((_SHAPES if given.shapes else _FLAT) + _INDEXES)
        if given.unseen:
            self._db.executescript(_TOLD)
        self._db.executescript(_triggers(given.shapes, given.unseen))
        names = _COLUMNS[given.shapes]
        marks = ", ".join("?" for _ in names.split(","))
        self._insert = f"INSERT INTO operation ({names}) VALUES ({marks})"

    def prepare(self, operations: pa.RecordBatch) -> Any:
        at = microseconds(operations, "at")
        now = np.maximum.accumulate(np.maximum(at, self._newest))
        self._newest = int(now[-1])
        since = np.where(microseconds(operations, "since"), microseconds(operations, "since"), at)
        publish = operations.column("op").to_numpy(zero_copy_only=False) == "publish"
        rows = np.arange(operations.num_rows)
        common = [rows, publish.astype(int), numbers(operations, "id")]
        if self._shapes:
            lon, lat, radius = (
                operations.column(name).fill_null(0.0).to_numpy()
                for name in ("lon", "lat", "radius_m")
            )
            # The box of a circle, a little too large: the exact distance decides.
            high = np.degrees(radius / _EARTH_M) * 1.0001 + 1e-6
            wide = high / np.cos(np.radians(np.minimum(np.abs(lat) + high, 89.0)))
            common += [lon, lat, radius, high, wide]
        else:
            common.append(operations.column("place"))
        columns = [
            *common, numbers(operations, "user"), at, now, since, microseconds(operations, "until"),
            operations.column("body"), flags(operations).astype(int),
        ]  # fmt: skip
        return self._newest, list(zip(*(column.tolist() for column in columns), strict=True))

    def apply(self, prepared: Any) -> Any:
        newest, rows = prepared
        db = self._db
        db.execute("BEGIN")
        if len(rows) == 1:
            db.execute(self._insert, rows[0])
        else:
            db.executemany(self._insert, rows)
        found = db.execute("SELECT row, subscription, event FROM answer").fetchall()
        db.execute("DELETE FROM answer")
        if newest - self._swept >= SWEEP_US:
            for table in ("subscription", "event", *(["told"] if self._unseen else [])):
                db.execute(f"DELETE FROM {table} WHERE until <= ?", (newest,))
            self._swept = newest
        db.execute("COMMIT")
        return found

    def answers(self, outcome: Any) -> np.ndarray:
        return answer_array(*(zip(*outcome, strict=True) if outcome else ((), (), ())))

    def close(self) -> None:
        self._db.close()
