"""The zip that executors get: compiled kernels in it, and never those of another version."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tideline.spark.shipping import pack

CODE = """
from tideline.kernels import cache, compiler, geo
import tideline
print(tideline.__file__.split("/")[-3], cache.fingerprint(""),
      round(geo.haversine_m(0.0, 0.0, 1.0, 0.0)), len(compiler.compiled))
"""


def run(zipped: Path, kernels: Path) -> list[str]:
    """What a worker sees that has the zip on its path, and a cache of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False, cwd="/",
        env={**os.environ, "PYTHONPATH": str(zipped), "NUMBA_CACHE_DIR": str(kernels)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("packed") / "one.zip")


def test_a_changed_constant_is_seen_in_a_zip(packed: Path, tmp_path: Path) -> None:
    """Both versions use one cache, as two jobs on one worker do."""
    other, kernel = packed.with_name("two.zip"), "tideline/kernels/geo.py"
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == kernel:
                assert b"EARTH_RADIUS_M = 6_371_008.8" in data
                data = data.replace(b"6_371_008.8", b"7_371_008.8")
            new.writestr(name, data)
    first, second = run(packed, tmp_path), run(other, tmp_path)
    assert (first[0], second[0]) == ("one.zip", "two.zip")
    assert first[1] != second[1]
    assert (first[2], second[2]) == ("111195", "128648")
    assert int(first[3]) == 0  # it came compiled
    assert int(second[3]) > 0
    assert run(packed, tmp_path) == first
