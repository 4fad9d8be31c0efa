"""Compiled kernels: what is compiled when, where it is kept, and what a damaged cache does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tideline.kernels import warm
from tideline.spark import shipping

SOURCE = Path(__file__).resolve().parents[2] / "src"

# A kernel with a few functions under it, which compiles in about a second.
SHAPES = """
import json
from tideline.kernels import cache, compiler
from tideline.kernels.geo import shapes_meet
near, far = ([3, 1.0, 2.0, metres, 0.0, 2, 1.001, 2.0, 0.0, 0.0] for metres in (500.0, 50.0))
found = [bool(shapes_meet(*near)), bool(shapes_meet(*far))]
print(json.dumps({"found": found, "compiled": len(compiler.compiled), "file": cache.__file__,
                  "fingerprint": cache.fingerprint("")}))
"""

FIRST_USE = """
import json, sys
import tideline
from tideline.kernels import cache, compiler
with tideline.open(sys.argv[1]) as db:
    news = db.channel("news")
    news.publish("a", {"n": 1}, ttl_s=60)
    past = list(news.subscribe("a", user="ann", since_s=-60, until_s=60).past)
    told = [each.user for each in news.publish("a", {"n": 2}, ttl_s=60).subscriptions]
print(json.dumps({"past": len(past), "told": told, "compiled": compiler.compiled,
                  "file": tideline.__file__}))
"""


def start(program: str, *args: str, path: Path = SOURCE, **environment: str) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": str(path), **environment},
    )  # fmt: skip


def end(process: Any) -> tuple[dict[str, Any], str]:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads(out), err


def run(program: str, *args: str, path: Path = SOURCE, **environment: str) -> dict[str, Any]:
    return end(start(program, *args, path=path, **environment))[0]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that one process has filled."""
    cache = tmp_path_factory.mktemp("compiled")
    first = run(SHAPES, NUMBA_CACHE_DIR=str(cache))
    assert first["found"] == [True, False]
    assert first["compiled"] > 1
    return cache


def test_what_was_compiled_is_found_by_the_next_process(compiled: Path) -> None:
    again = run(SHAPES, NUMBA_CACHE_DIR=str(compiled))
    assert (again["found"], again["compiled"]) == ([True, False], 0)


@pytest.mark.parametrize("damage", ["gone", "cut"])
@pytest.mark.parametrize("kind", ["body", "wrapper"])
def test_a_damaged_cache_is_compiled_again(
    compiled: Path, tmp_path: Path, kind: str, damage: str
) -> None:
    cache = shutil.copytree(compiled, tmp_path / "cache")
    paths = list(cache.rglob(f"*.{kind}"))
    assert paths
    for path in paths:
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:100])
    again = run(SHAPES, NUMBA_CACHE_DIR=str(cache))
    assert again["found"] == [True, False]


def test_two_processes_may_compile_the_same_at_once(tmp_path: Path) -> None:
    both = [start(SHAPES, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    for process in both:
        assert end(process)[0]["found"] == [True, False]
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_cache_that_cannot_be_written_is_only_slow(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    said = run(SHAPES, NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert said["found"] == [True, False]


def test_the_first_publish_and_subscribe_compile_a_few_kernels_elsewhere(tmp_path: Path) -> None:
    said, printed = end(start(FIRST_USE, str(tmp_path / "data"), NUMBA_CACHE_DIR=str(tmp_path)))
    assert (said["past"], said["told"]) == (1, ["ann"])
    assert said["compiled"] == []  # by other processes, of which there are as many as cores
    assert printed.count("tideline: compiling kernels, once on this machine\n") == 1
    wrappers = {path.name.split("-")[0] for path in tmp_path.rglob("*.wrapper")}
    first = {"rows.run_one", "listing.list_events", "listing.list_subscribers"}
    assert first <= wrappers
    again, printed = end(start(FIRST_USE, str(tmp_path / "more"), NUMBA_CACHE_DIR=str(tmp_path)))
    assert (again["compiled"], printed) == ([], "")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What goes to executors."""
    return shipping.pack(tmp_path_factory.mktemp("shipped") / "tideline.zip")


def test_an_executor_compiles_nothing(shipped: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    said, printed = end(
        start(FIRST_USE, str(tmp_path / "data"), path=shipped, NUMBA_CACHE_DIR=str(cache))
    )
    assert said["file"].startswith(str(shipped))
    assert (said["past"], said["told"]) == (1, ["ann"])
    assert (said["compiled"], printed) == ([], "")
    assert not list(cache.rglob("*.wrapper"))


def test_two_versions_in_zips_share_no_machine_code(shipped: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(shipped) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "tideline/kernels/geo.py":
                data = data.replace(b"6_371_008.8", b"637_100.88")
            target.writestr(name, data)
    here = run(SHAPES, path=shipped, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    there = run(SHAPES, path=other, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert (here["found"], here["compiled"]) == ([True, False], 0)
    assert there["found"] == [True, True]  # on a tenth of the earth, both are near
    assert there["fingerprint"] != here["fingerprint"]
    assert there["compiled"] > 0


def test_every_folder_of_kernels_is_shipped() -> None:
    """Wheels and Spark's zip take what is compiled from these."""
    names = [kernel.entry_name(types) for kernel, types in warm.kernels()]
    assert {name.rpartition("/")[0] for name in names} == set(warm.FOLDERS)
