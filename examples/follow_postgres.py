"""A table of PostgreSQL as a collection of documents that is never out of date.

    python examples/follow_postgres.py "dbname=shop" orders id ./data

A trigger notes each change of the table in the transaction that makes it. A reader puts the rows
into the collection, by their primary key, and deletes the notes. Every change that is committed
arrives; one that is rolled back does not. A reader that was killed goes on where it was.

How no change is missed: a transaction that began earlier may commit later. The reader takes the
notes of transactions that are older than every one still running (`pg_snapshot_xmin`), in the
order in which they were written: below that line nothing can be added any more, and changes of
one row were written one after the other.
"""

from __future__ import annotations

import sys
from typing import Any

import psycopg
from psycopg import sql

import tideline

SETUP = """
CREATE TABLE IF NOT EXISTS tideline_notes (
    seq bigserial PRIMARY KEY, tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
    source text NOT NULL, key jsonb NOT NULL, document jsonb);

CREATE OR REPLACE FUNCTION tideline_note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE before jsonb := to_jsonb(OLD) -> TG_ARGV[0]; after jsonb := to_jsonb(NEW) -> TG_ARGV[0];
BEGIN
    IF before IS DISTINCT FROM after AND before IS NOT NULL THEN
        INSERT INTO tideline_notes (source, key) VALUES (TG_TABLE_NAME, before);
    END IF;
    IF after IS NOT NULL THEN
        INSERT INTO tideline_notes (source, key, document)
        VALUES (TG_TABLE_NAME, after, to_jsonb(NEW));
    END IF;
    NOTIFY tideline;
    RETURN NULL;
END $$;
"""
FOLLOW = """
CREATE TRIGGER tideline_follow AFTER INSERT OR UPDATE OR DELETE ON {table}
FOR EACH ROW EXECUTE FUNCTION tideline_note({key})
"""
FIRST = """
INSERT INTO tideline_notes (source, key, document)
SELECT {source}, to_jsonb(t) -> {key}, to_jsonb(t) FROM {table} t
"""
READ = """
SELECT seq, key, document FROM tideline_notes
WHERE source = %s AND tx < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY seq LIMIT 1000
"""


def prepare(postgres: psycopg.Connection[Any], table: str, key: str) -> None:
    """Note the rows of a table and every change from now on. A second call does nothing."""
    names = {"table": sql.Identifier(table), "source": sql.Literal(table), "key": sql.Literal(key)}
    with postgres.transaction():
        postgres.execute(SETUP)
        postgres.execute(sql.SQL("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE").format(**names))
        found = postgres.execute(
            "SELECT 1 FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
            " WHERE tgname = 'tideline_follow' AND relname = %s",
            (table,),
        ).fetchone()
        if found is None:
            postgres.execute(sql.SQL(FOLLOW).format(**names))
            postgres.execute(sql.SQL(FIRST).format(**names))


def follow_once(postgres: psycopg.Connection[Any], table: str, rows: Any) -> int:
    """Bring over what was committed since; returns how many changes that were."""
    found = postgres.execute(READ, (table,)).fetchall()
    puts: list[dict[str, Any]] = []
    for _, key, document in found:
        if document is not None:
            puts.append(document)
        else:  # in order: a row may be deleted and inserted again
            rows.put_many(puts)
            rows.delete(key)
            puts = []
    rows.put_many(puts)
    # Only now: a reader that is killed before this brings the same rows over again.
    postgres.execute(
        "DELETE FROM tideline_notes WHERE seq = ANY(%s)", ([seq for seq, _, _ in found],)
    )
    return len(found)


def follow(postgres: psycopg.Connection[Any], table: str, rows: Any) -> None:
    """Bring over what is committed, until interrupted; wakes when something was noted."""
    postgres.execute("LISTEN tideline")
    while True:
        if follow_once(postgres, table, rows) == 0:
            for _ in postgres.notifies(timeout=1.0, stop_after=1):
                pass


def main() -> None:
    """The table on the command line, into a folder or a server."""
    where, table, key, target = sys.argv[1:5]
    opened = tideline.connect if "://" in target else tideline.open
    with psycopg.connect(where, autocommit=True) as postgres, opened(target) as db:
        prepare(postgres, table, key)
        follow(postgres, table, db.collection(table, key=key))


if __name__ == "__main__":
    main()
