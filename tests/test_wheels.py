"""`make wheels`: the wheel of this platform brings its kernels along; the pure one compiles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

FIRST_USE = """
import json, sys
import tideline
from tideline.kernels import cache, compiler
with tideline.open(sys.argv[1]) as db:
    news = db.channel("news")
    told = news.publish("a", {"n": 1}, ttl_s=60)
    past = news.subscribe("a", user="ann", since_s=-60, until_s=60).past
    cars = db.collection("cars", key="id", indexes={"n": "lazy"})
    cars.put({"id": 1, "n": 3})
    found = list(cars.find({"n": 3}))
print(json.dumps({
    "file": tideline.__file__, "past": len(list(past)), "found": found,
    "compiled": compiler.compiled,
    "kept": [path.name for path in cache.cache_base().rglob("*") if path.is_file()],
}))
"""


pytestmark = pytest.mark.long  # tests/spark/test_shipping.py: the same kernels, out of a zip


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("dist")
    script = str(ROOT / "scripts" / "wheels.py")
    subprocess.run([sys.executable, script, "--out", str(out)], check=True)
    built = {"pure" if "-none-any" in path.name else "platform": path for path in out.iterdir()}
    assert set(built) == {"pure", "platform"}
    return built


def install(wheel: Path, folder: Path) -> Path:
    """A fresh virtual environment with the wheel; its dependencies are those of the tests."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet",
         "--disable-pip-version-check", "--no-deps", "--no-index", str(wheel)],
        check=True,
    )  # fmt: skip
    return python


def use(python: Path, data: Path, **environment: str) -> tuple[dict[str, Any], str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", FIRST_USE, str(data)], capture_output=True, text=True, check=False,
        env={**kept, **environment}, cwd=data.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_platform_wheel_compiles_nothing(wheels: dict[str, Path], tmp_path: Path) -> None:
    python = install(wheels["platform"], tmp_path / "venv")
    cache = tmp_path / "cache"
    said, printed = use(python, tmp_path / "data", NUMBA_CACHE_DIR=str(cache))
    assert Path(said["file"]).is_relative_to(tmp_path)
    assert (said["past"], said["found"]) == (1, [{"id": 1, "n": 3}])
    assert said["compiled"] == []
    assert said["kept"] == []
    assert printed == ""


def test_the_pure_wheel_works_with_the_cache_of_equal_sources(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheels["pure"]) as wheel:
        assert not any("/compiled/" in name for name in wheel.namelist())
    python = install(wheels["pure"], tmp_path / "venv")
    said, _ = use(python, tmp_path / "data")
    assert Path(said["file"]).is_relative_to(tmp_path)
    assert (said["past"], said["found"]) == (1, [{"id": 1, "n": 3}])
    assert said["compiled"] == []


def test_kernels_for_a_processor_that_can_more_are_not_used(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    python = install(wheels["platform"], tmp_path / "venv")
    program = (
        "import llvmlite.binding as ll\n"
        "can = dict.fromkeys(ll.get_host_cpu_features(), False)\n"
        "ll.get_host_cpu_features = lambda: ll.FeatureMap(can)\n"
        "from tideline.kernels import cache\n"
        "print(cache.shipped_folders(''))"
    )
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=True,
                          env=kept, cwd=tmp_path)  # fmt: skip
    assert done.stdout.strip() == "()"
