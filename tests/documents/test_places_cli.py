"""`tideline heatmap`, `nearest` and `find` of a collection: on a folder, on a server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from test_cli import Run, run

import tideline
from tideline.server import running

__all__ = ["run"]  # a fixture


def stored(folder: Path) -> None:
    with tideline.open(folder) as db:
        places = db.collection("places", key="id")
        places.put_many([{"id": n, "at": [10 + n % 4, 50 + n % 3]} for n in range(60)])
        places.put({"id": 99, "at": None})
        db.channel("roads")


def test_a_heat_map_of_a_collection(run: Run, tmp_path: Path) -> None:
    stored(tmp_path / "data")
    done = run("heatmap", "data", "places", "--field", "at", "--out", "all.png")
    assert done.lines == [{"documents": 60, "cells": 12, "most": 5, "out": "all.png"}]
    assert (tmp_path / "all.png").read_bytes()[:4] == b"\x89PNG"
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        grid = ["--rows", "3", "--cols", "2", "--bounds", "10,50,12,53"]
        where = ["--where", '{"id": {"$lt": 12}}']
        done = run("heatmap", url, "places", "--field", "at", "--out", "few.svg", *grid, *where)
        assert done.lines[0]["documents"] == 9
        refused = run("heatmap", url, "roads", "--out", "x.png")
        assert (refused.code, "counted where its folder is" in refused.error) == (2, True)


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        (["places"], 2, "name the field of the places"),
        (["places", "--field", "at", "--since-s", "-60"], 2, "chosen by --where"),
        (["places", "--field", "nope"], 3, "meets the condition. where=None, field='nope'"),
        (["plaices", "--field", "at"], 3, "no such channel or collection"),
        (["roads", "--field", "at"], 2, "--field is for a collection"),
    ],
)
def test_wrong_input_is_named(
    run: Run, tmp_path: Path, more: list[str], code: int, says: str
) -> None:
    stored(tmp_path / "data")
    done = run("heatmap", "data", *more, "--out", "x.png")
    assert (done.code, says in done.error) == (code, True), done.error
    assert not (tmp_path / "x.png").exists()


NEAR = '{"at": {"$near": {"$geometry": {"type": "Point", "coordinates": [-10, 50]}}}}'


def test_the_nearest_and_how_far(run: Run, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        places = db.collection("places", key="id", indexes={"at": "spatial"})
        places.put_many([{"id": n, "at": [-10 - n / 1000, 50], "n": n % 2} for n in range(9)])
        db.channel("roads")
    done = run("nearest", "data", "places", "-10.0019", "50", "--limit", "2", "--where", '{"n": 1}')
    assert [(one["id"], round(one["metres"])) for one in done.lines] == [(1, 64), (3, 79)]
    comma = run("nearest", "data", "places", "-10.0019,50", "--limit", "2", "--where", '{"n": 1}')
    assert comma.lines == done.lines
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        same = run(
            "nearest", url, "places", "-10.0019", "50", "--limit", "2", "--where", '{"n": 1}'
        )
        assert same.lines == done.lines
        few = run("nearest", url, "places", "-10", "50", "--max-distance-m", "100", "--fields", "n")
        assert [one["n"] for one in few.lines] == [0, 1]
        found = run("find", url, "places", NEAR, "--limit", "2")
        assert [list(one) for one in found.lines] == [["metres", "id", "at", "n"]] * 2
        assert found.lines[0]["metres"] == 0
    assert run("find", "data", "places", '{"n": 1}').lines[0] == {
        "id": 7,
        "at": [-10.007, 50],
        "n": 1,
    }
    for command, says in (
        (["nearest", "data", "places", "200", "50"], "200"),
        (["nearest", "data", "places", "1", "50", "--field", "a,b"], "field"),
        (["nearest", "data", "places", "-10"], "expected LON LAT, or LON,LAT"),
        (["nearest", "data", "places", "10;50"], "given='10;50'"),
        (["nearest", "data", "places", "1", "north"], "'LAT'"),
        (["nearest", "data", "places", "1", "north"], "given='north'"),
        (["nearest", "data", "places", "1", "50", "--limit", "few"], "given='few'"),
        (["find", "data", "places", "{}", "--since-s", "-5"], "for a channel"),
        (["find", "data", "places", "x"], "where"),
    ):
        done = run(*command)
        assert (done.code, says in done.error) == (2, True), done.error
    assert len(run("find", "data", "places").lines) == 9
    asked = run("find", "data", "roads")
    assert (asked.code, "give PLACE" in asked.error) == (2, True)
    slip = run("find", "data", "plaecs", "{}")
    assert (slip.code, "did you mean 'places'?" in slip.error) == (3, True)
    with tideline.open(tmp_path / "data") as db:
        db.window("cars", span_s=60, key="id")
    for command in ("find", "stats", "drop"):
        done = run(command, "data", "cars", *["{}"] * (command == "find"))
        assert (done.code, "cars is a stream window" in done.error) == (3, True)
