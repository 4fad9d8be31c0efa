"""The picture: in true proportions, the right cell dark, and never half written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from math import cos, radians
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tideline
from tideline.cli.main import main
from tideline.errors import InvalidRequest
from tideline.heatmap.picture import _page, heatmap
from tideline.space import Grid, QuadTree
from tideline.workload.newyork import BOUNDS
from tideline.workload.tweets import Tweets

pytest.importorskip("matplotlib")

SOURCE = Path(__file__).resolve().parents[2] / "src"
SQUARE: dict[str, Any] = {"bounds": (0.0, 0.0, 10.0, 10.0), "rows": 10, "cols": 10}


def cells(*rows: tuple[int, int, int]) -> pa.Table:
    row, col, count = zip(*rows, strict=True) if rows else ([], [], [])
    kinds = {"row": pa.int32(), "col": pa.int32(), "count": pa.int64()}
    return pa.table(
        {
            name: pa.array(list(values), kinds[name])
            for name, values in zip(kinds, (row, col, count), strict=True)
        }
    )


def pixels(file: Path) -> Any:
    from matplotlib.image import imread

    image = imread(file)
    return image[..., :3] if image.dtype != np.uint8 else image[..., :3] / 255


def dark(image: Any) -> Any:
    """Where the darkest colour of the scale is: rows and columns of pixels."""
    wanted = np.array([0x4A, 0x1A, 0x60]) / 255
    return np.nonzero((np.abs(image - wanted) < 0.02).all(axis=2))


# The drawing --------------------------------------------------------------------------


def test_the_busiest_cell_is_dark_and_where_it_belongs(tmp_path: Path) -> None:
    file = heatmap(cells((0, 0, 5), (9, 9, 9), (2, 7, 400)), tmp_path / "heat.png", **SQUARE)
    image = pixels(file)
    height, width, _ = image.shape
    y, x = dark(image)
    figure, axes = _page(Grid(SQUARE["bounds"], rows=10, cols=10))
    box = axes.get_position()
    on_map = x < box.x1 * width  # not the colours beside it
    # Row 2 from the south, column 7 from the west.
    assert x[on_map].mean() / width == pytest.approx(box.x0 + box.width * 0.75, abs=0.01)
    assert 1 - y[on_map].mean() / height == pytest.approx(box.y0 + box.height * 0.25, abs=0.01)
    side = np.ptp(x[on_map]) / np.ptp(y[on_map])
    assert side == pytest.approx(cos(radians(5)), abs=0.05)
    assert figure


@pytest.mark.parametrize(
    "bounds", [BOUNDS, (0, 0, 10, 60), (0, 0, 60, 10), (20, 60, 30, 70), (-180, -90, 180, 90)]
)
def test_a_map_has_its_true_proportions(bounds: tuple[float, float, float, float]) -> None:
    figure, axes = _page(Grid(bounds, rows=5, cols=5))
    inches = figure.get_size_inches() * axes.get_position().size
    west, south, east, north = bounds
    middle = cos(radians((south + north) / 2))
    assert inches[1] / inches[0] == pytest.approx((north - south) / ((east - west) * middle))
    assert max(inches) <= 9
    assert axes.get_position().x1 < 1
    assert axes.get_position().y1 < 1


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "jpg", "webp"])
def test_every_kind_of_file_is_one(tmp_path: Path, ending: str) -> None:
    file = heatmap(cells((1, 1, 3)), tmp_path / f"heat.{ending}", title="a $5 ride", **SQUARE)
    starts = {
        "png": b"\x89PNG",
        "svg": b"<?xml",
        "pdf": b"%PDF",
        "jpg": b"\xff\xd8",
        "webp": b"RIFF",
    }
    assert file.read_bytes().startswith(starts[ending])
    assert [path.name for path in tmp_path.iterdir()] == [file.name]  # no draft is left


def test_nothing_to_show_is_said(tmp_path: Path) -> None:
    empty = heatmap(cells(), tmp_path / "empty.svg", **SQUARE)
    assert len(empty.read_text()) > 5_000
    full = heatmap(cells((1, 1, 3)), tmp_path / "full.png", subtitle="x" * 500, **SQUARE)
    assert len(dark(pixels(full))[0]) > 100


def test_new_york_is_drawn_where_it_is(tmp_path: Path) -> None:
    one = cells((0, 0, 1))
    size = {"rows": 5, "cols": 5}
    with_land = heatmap(one, tmp_path / "ny.svg", bounds=BOUNDS, **size).read_text()
    without = heatmap(one, tmp_path / "none.svg", bounds=BOUNDS, land=False, **size).read_text()
    elsewhere = heatmap(one, tmp_path / "else.svg", bounds=(0, 0, 1, 1), **size).read_text()
    assert len(with_land) > len(without) + 5_000
    assert len(elsewhere) < len(with_land) - 5_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "heat.gif"}, "must end in"),
        ({"path": "nowhere/heat.png"}, "folder is not there"),
        ({"rows": 2}, "of another grid"),
        ({"rows": 60_000, "cols": 60_000}, "at most 4,000,000 cells"),
        ({"counts": pa.table({"row": [1]})}, "need the columns row, col and count"),
        ({"bounds": (0, 0, 0, 0)}, "west < east"),
    ],
)
def test_a_wrong_call_draws_nothing(
    tmp_path: Path, change: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"counts": cells((5, 5, 1)), "path": "heat.png", **SQUARE, **change}
    with pytest.raises(InvalidRequest, match=message):
        heatmap(given.pop("counts"), given.pop("path"), **given)
    assert list(tmp_path.iterdir()) == []


# The command --------------------------------------------------------------------------


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tideline", "heatmap", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(SOURCE), **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with tweets of now, most of them from few towns."""
    folder = tmp_path_factory.mktemp("heat")
    with tideline.open(folder / "data") as db:
        roads = db.channel("tweets", space=QuadTree(BOUNDS, depth=9))
        db.channel("news")
        batch = pa.Table.from_batches([Tweets(seed=1).batch(0, 3_000)])
        now = np.datetime64(db.clock.now(), "us")
        times = pa.array(np.full(3_000, now), pa.timestamp("us"))
        body = pa.array([json.dumps({"text": text}) for text in batch["text"].to_pylist()])
        columns = {name: batch[name] for name in ("id", "lon", "lat")}
        columns |= {"op": ["publish"] * 3_000, "at": times, "body": body}
        assert roads.apply(pa.table(columns)).rejected.num_rows == 0
    return folder


def test_the_command_draws_a_store_without_spark(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = store / "blocked"  # a pyspark that cannot be imported
    blocked.mkdir()
    (blocked / "pyspark.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(blocked), os.environ.get("PYTHONPATH") or str(SOURCE)])
    done = run(store, "data", "tweets", "--out", "all.png", "--since-s", "-3600", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["events"] == 3_000
    assert 100 < said["cells"] < 3_000
    assert (store / "all.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.chdir(store)
    with pytest.raises(SystemExit) as stopped:
        main([
            "heatmap", "data", "tweets", "--out", "some.svg", "--bounds", "-74.3,40.4,-73.2,41.1",
            "--where", '{"text":{"$words":"coffee"}}', "--rows", "20", "--cols", "20",
        ])  # fmt: skip
    assert not stopped.value.code
    assert 0 < json.loads(capsys.readouterr().out)["events"] < 500


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["data", "tweets", "--out", "heat.gif"], 2, "must end in"),
        (["data", "tweets", "--out", "no/heat.png"], 2, "folder is not there"),
        (["data", "news", "--out", "heat.png"], 2, "only events on a map"),
        (["data", "roads", "--out", "heat.png"], 3, "no such channel"),
        (["dat", "tweets", "--out", "heat.png"], 3, "no database in this folder"),
        (["data", "tweets", "--out", "heat.png", "--where", "{"], 2, "where must be JSON"),
        (["data", "tweets", "--out", "heat.png", "--bounds", "1,2"], 2, "4 numbers"),
        (["data", "tweets", "--out", "heat.png", "--since", "soon"], 2, "ISO 8601"),
        (["data", "tweets", "--out", "heat.png", "--archive", "none"], 3, "no such archive"),
        (["data", "tweets"], 2, "Missing option '--out'"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(
    store: Path, words: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(store)
    with pytest.raises(SystemExit) as stopped:
        main(["heatmap", *words])
    assert stopped.value.code == code
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""
    assert not (store / "heat.png").exists()


def test_a_store_that_is_open_elsewhere_says_so(store: Path) -> None:
    with tideline.open(store / "data"):
        done = run(store, "data", "tweets", "--out", "heat.png")
    assert done.returncode == 5
    assert "one process owns a folder" in done.stderr


def test_without_matplotlib_it_says_what_to_install(store: Path) -> None:
    blocked = store / "no-plot"
    blocked.mkdir()
    (blocked / "matplotlib.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(blocked), os.environ.get("PYTHONPATH") or str(SOURCE)])
    done = run(store, "data", "tweets", "--out", "heat.png", PYTHONPATH=path)
    assert done.returncode == 5
    assert "pip install 'tideline[plot]'" in done.stderr


@pytest.mark.spark
@pytest.mark.long
def test_the_command_counts_store_and_archive(spark: Any, store: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(store / "data", tmp_path / "data", ignore=shutil.ignore_patterns("LOCK"))
    with tideline.open(tmp_path / "data") as db:
        events = db.channel("tweets").scan("events").select(["id", "lon", "lat", "at", "body"])
    old = [("old", -74.0, 40.7, events["at"][0].as_py(), "{}")]
    frame = spark.createDataFrame(events.slice(0, 1_000)).unionByName(
        spark.createDataFrame(old, "id string, lon double, lat double, at timestamp, body string")
    )
    frame.withColumn("day", frame["at"].cast("date")).write.partitionBy("day").parquet(
        str(tmp_path / "archive")
    )
    done = run(tmp_path, "data", "tweets", "--archive", "archive", "--out", "heat.png")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == 3_001
