"""Runs every test with long random runs, a piece after the other: `make test-long`.

    python scripts/test_long.py                               all pieces
    python scripts/test_long.py tests/stream spark-cluster    some of them
    python scripts/test_long.py tests/lsm/test_tree.py        any file of tests
    python scripts/test_long.py -- -m long                    what follows `--` is for pytest

A piece is a folder of tests, `top` (the files in tests/ itself), `doctests` (of src/tideline), or
one of two jobs with settings of their own: `spark-cluster`, `checked`. Each runs in a process of
its own, so that one that fails, or dies, keeps no other from running. The name of a test is printed
when it begins; the same is in build/test-long/, a log for each piece. At the end: how long each
took, on the clock and of a processor, what failed. The exit status is 1 if anything did.

A folder that is new is a piece by itself: nothing here lists it.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from dataclasses import field as field_of
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "test-long"
LIMIT_S = 3_600  # of one test

# What is also run on a real cluster of Spark, with executors that lack the package.
CLUSTER = (
    "test_match_spark.py", "test_source_http.py", "test_watch_spark.py", "test_source_probes.py",
    "test_bulk_load.py",
)  # fmt: skip

# The checked job (docs/decisions/0045) beyond the files that `make test` picks for it. The two that
# are left out compile in processes of their own, time and again.
CHECKED = (
    "tests/kernels", "tests/documents", "--ignore=tests/kernels/test_compiler.py",
    "--ignore=tests/kernels/test_warm.py",
)  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Some tests that run together: what pytest is given, and what the environment is."""

    name: str
    arguments: list[str]
    environment: dict[str, str] = field_of(default_factory=lambda: {"HYPOTHESIS_PROFILE": "long"})


@dataclass(frozen=True)
class Result:
    piece: Piece
    took_s: float
    processor_s: float  # of it and of what it started and waited for
    said: str  # the last line of pytest
    failed: list[str]
    good: bool


def pieces() -> list[Piece]:
    """All of them."""
    tests = ROOT / "tests"
    folders = sorted({path.parent for path in tests.rglob("test_*.py")} - {tests})
    return [
        Piece("doctests", ["src/tideline"]),
        *(Piece(str(folder.relative_to(ROOT)), [str(folder.relative_to(ROOT))])
          for folder in folders),
        Piece("top", sorted(str(path.relative_to(ROOT)) for path in tests.glob("test_*.py"))),
        Piece("spark-cluster", ["-m", "spark and not long",
                                *(f"tests/spark/{name}" for name in CLUSTER)],
              {"TIDELINE_TEST_SPARK": "cluster"}),
        Piece("checked", ["-m", "not long and not spark", *CHECKED],
              {"HYPOTHESIS_PROFILE": "bounds", "NUMBA_BOUNDSCHECK": "1"}),
    ]  # fmt: skip


def chosen(names: list[str]) -> list[Piece]:
    """The pieces of these names, or of these files."""
    known = {piece.name: piece for piece in pieces()}
    found = []
    for name in names:
        path = name.rstrip("/")
        if path in known:
            found.append(known[path])
        elif (ROOT / path.partition("::")[0]).exists():
            found.append(Piece(path, [path]))
        else:
            raise SystemExit(
                f"test-long: no such piece or path: {name}. Pieces: {', '.join(known)}"
            )
    return found or list(known.values())


def run(piece: Piece, options: list[str]) -> Result:
    """Run it, with its output on the screen and in its log."""
    log = LOGS / (re.sub(r"\W+", "-", piece.name).strip("-") + ".log")
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [
        sys.executable, "-m", "pytest", "-v", "-o", "console_output_style=count",
        "--durations", "5", "--timeout", str(LIMIT_S), *options, *piece.arguments,
    ]  # fmt: skip
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **piece.environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        while part := os.read(process.stdout.fileno(), 65_536):  # as it comes: a name has no end
            out.write(part)
            sys.stdout.buffer.write(part)
            sys.stdout.flush()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    failed = [line for line in lines if re.match(r"(FAILED|ERROR) \S", line)]
    said = lines[-1].strip("= ") if lines else "nothing was said"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    good = process.returncode in (0, 5)  # 5: `-m` or `-k` left none
    return Result(piece, time.monotonic() - begun, used_s, said, failed, good)


def main(words: list[str]) -> int:
    at = words.index("--") if "--" in words else len(words)
    todo, options = chosen(words[:at]), words[at + 1 :]
    LOGS.mkdir(parents=True, exist_ok=True)
    done: list[Result] = []
    for number, piece in enumerate(todo, 1):
        print(f"\ntest-long: {number} of {len(todo)}: {piece.name}", flush=True)
        done.append(run(piece, options))
        print(f"test-long: {piece.name}: {_line(done[-1])}", flush=True)
    print(f"\ntest-long: {len(done)} pieces in {sum(one.took_s for one in done) / 60:.0f} minutes")
    for one in done:
        print(f"  {one.piece.name:18} {_line(one)}")
    for failure in [failure for one in done for failure in one.failed]:
        print(failure)
    return 0 if all(one.good for one in done) else 1


def _line(one: Result) -> str:
    result = "passed" if one.good else "FAILED"
    return f"{result} in {one.took_s:.0f} s ({one.processor_s:.0f} s of a processor): {one.said}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
