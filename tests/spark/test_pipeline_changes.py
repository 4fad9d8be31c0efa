"""Changes of another database into a collection: Debezium's messages, versions, deletes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pipelines import config, dead, write_rows

import tideline
from tideline.errors import Conflict, InvalidRequest, Unavailable
from tideline.spark.pipeline import Pipeline
from tideline.spark.pipeline.counts import add_up

pytestmark = pytest.mark.spark

SCHEMA = {"id": "bigint", "name": "string", "rev": "bigint", "extra": "variant"}


def change(op: str, key: int, rev: int, *, wrapped: bool) -> dict[str, Any]:
    """A change as Debezium tells it."""
    row = {"id": key, "name": f"n{key}-{rev}", "rev": rev, "extra": {"tags": [rev]}}
    told: dict[str, Any] = {
        "op": op, "before": row if op == "d" else None, "after": None if op == "d" else row,
        "source": {"table": "cars"}, "ts_ms": 1_790_000_000_000 + rev,
    }  # fmt: skip
    return {"schema": {}, "payload": told} if wrapped else told


def told(folder: Path, **store: Any) -> Any:
    return config(
        folder, source={"format": "json", "path": "in", "options": {"maxFilesPerTrigger": 1}},
        parse={"format": "json", "envelope": "debezium"}, schema=SCHEMA, place=None,
        store={"folder": "data", "collection": "cars", "key": "id", **store}, operation=None,
    )  # fmt: skip


def documents(folder: Path) -> dict[int, int]:
    with tideline.open(folder / "data") as db:
        found = db.collection("cars").find()
    assert all(each["extra"] == {"tags": [each["rev"]]} for each in found)
    assert all(each["name"] == f"n{each['id']}-{each['rev']}" for each in found)
    return {each["id"]: each["rev"] for each in found}


def test_a_new_checkpoint_for_a_collection_that_had_batches_is_refused(
    spark: Any, tmp_path: Path
) -> None:
    write_rows(tmp_path / "in", "0", [change("c", n, 1, wrapped=False) for n in range(5)])
    given = told(tmp_path, version="rev")
    assert "dead letters" in Pipeline(given).explain()
    first = Pipeline(given).run(spark=spark)
    [checkpoint] = tmp_path.glob("checkpoint*")
    [done] = (checkpoint / "spark" / "commits").glob("0")
    done.unlink()  # as a kill leaves it: counted, and Spark runs the batch again
    for _ in range(2):
        assert Pipeline(given).run(spark=spark).totals == first.totals
    checkpoint.rename(tmp_path / "moved")
    write_rows(tmp_path / "in", "1", [change("c", n, 1, wrapped=False) for n in range(5, 9)])
    with pytest.raises(Conflict, match="the checkpoint is new"):
        Pipeline(given).run(spark=spark)
    assert len(documents(tmp_path)) == 5


def test_the_changes_of_a_table_give_its_rows_whatever_order_they_come_in(
    spark: Any, tmp_path: Path
) -> None:
    draw = random.Random(3)
    rows: dict[int, int] = {}
    changes = []
    for rev in range(1, 301):
        key = draw.randrange(40)
        op = "u" if key in rows else "c"
        if key in rows and draw.random() < 0.2:
            op = "d"
            del rows[key]
        else:
            rows[key] = rev
        changes.append(change(op, key, rev, wrapped=draw.random() < 0.5))
    deleted = {key for key in range(40) if key not in rows}
    assert deleted
    # By version only: an older change that comes in a later batch changes nothing, as long as the
    # newer one was no delete (a delete leaves nothing behind).
    late = [each for each in changes[:150] if json.dumps(each).count('"op": "u"')]
    late = [each for each in late if (each.get("payload") or each)["after"]["id"] not in deleted]
    write_rows(tmp_path / "in", "0", [*changes[:200], "{broken", json.dumps({"op": "x"})])
    write_rows(tmp_path / "in", "1", [*changes[200:], *draw.sample(changes[200:], 20)])
    write_rows(tmp_path / "in", "2", late)
    pipeline = Pipeline(told(tmp_path, version="rev"))
    summary = pipeline.run(spark=spark)
    assert documents(tmp_path) == rows
    assert [each["stage"] for each in dead(tmp_path)] == ["parse", "parse"]
    assert add_up(summary.counts)
    assert summary.counts["dead"] == 2
    again = Pipeline(told(tmp_path, version="rev")).run(spark=spark)
    assert (again.counts["read"], again.totals) == (0, summary.totals)


def test_what_goes_with_a_channel_is_refused_for_a_collection(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        config(
            tmp_path, store={"folder": "data", "collection": "c", "journal_s": 5},
            operation={"id": "id", "user": "who"},
        )  # fmt: skip
    text = str(caught.value)
    for said in ("a collection needs key", "[place] goes with a channel", "journal_s goes with",
                 "user goes with channel", "id goes with channel"):  # fmt: skip
        assert said in text
    with pytest.raises(InvalidRequest, match="needs channel or collection, one of the two"):
        config(tmp_path, store={"folder": "data"})


def test_a_parser_that_is_not_loaded_is_named(spark: Any, tmp_path: Path) -> None:
    write_rows(tmp_path / "in", "0", ["x"])
    wanted = config(
        tmp_path, source={"format": "text", "path": "in"},
        parse={"format": "avro", "options": {"schema": '"string"'}},
    )  # fmt: skip
    with pytest.raises(Unavailable, match=r"packages = \[\"org.apache.spark:spark-avro_2.13"):
        Pipeline(wanted).run(spark=spark)
