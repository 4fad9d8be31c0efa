"""Pipelines on `s3a:` with Spark's packages for S3 and Avro, as they are.

`scripts/packages.sh` has fetched what is needed; moto stands for S3. Spark's package for Protobuf
is not in every registry: what is said without it is tested in test_pipeline_changes.py.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tideline-peers"
APP = Path(__file__).with_name("object_store_app.py")
WAIT_S = 120


def _one(pattern: str) -> Path:
    found = sorted(CACHE.glob(pattern))
    if not found:
        pytest.fail(f"{CACHE / pattern} is not there: run `make packages`")
    return found[-1]


@pytest.fixture
def object_store(tmp_path: Path) -> Iterator[str]:
    """The address of an S3 on loopback, with a bucket `tideline`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    with (tmp_path / "moto.log").open("wb") as log:
        server = subprocess.Popen(
            [_one("moto-*/bin/moto_server"), "-H", "127.0.0.1", "-p", str(port)],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            until = time.monotonic() + WAIT_S
            while True:
                assert server.poll() is None, (tmp_path / "moto.log").read_text()
                with contextlib.suppress(urllib.error.URLError):
                    made = urllib.request.Request(f"{endpoint}/tideline", b"", method="PUT")
                    urllib.request.urlopen(made).close()
                    break
                assert time.monotonic() < until, "moto did not start"
                time.sleep(0.1)
            yield endpoint
        finally:
            server.terminate()
            server.wait()


def test_a_pipeline_in_an_object_store(object_store: str, tmp_path: Path) -> None:
    folders = [_one("s3-*"), _one("avro-*")]
    jars = ",".join(str(jar) for folder in folders for jar in sorted(folder.glob("*.jar")))
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    done = subprocess.run(
        [sys.executable, APP, tmp_path / "work", jars, object_store], capture_output=True,
        text=True, env={**os.environ, **keys, "AWS_DEFAULT_REGION": "us-east-1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all of it\n")
