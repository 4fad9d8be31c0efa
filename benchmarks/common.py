"""What benchmarks share: the machine's facts, the limit tool, results on disk, a page.

Results are kept in `results/NAME.json`, part by part, so that a part can be run again
alone; `results/NAME.md` is written from it.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pyarrow as pa

from tideline.workload import limitfile

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

# name: (operations, operations a simulated second, share of subscriptions)
WORKLOADS = {
    "slow_3to1": (1_500_000, 5_000, 0.75),
    "slow_1to3": (1_500_000, 5_000, 0.25),
    "fast_3to1": (2_500_000, 50_000, 0.75),
    "fast_1to3": (2_500_000, 50_000, 0.25),
}


def say(text: str) -> None:
    """A line of progress."""
    print(text, flush=True)


def cache_dir() -> Path:
    """Where workloads and the built limit tool are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "tideline-limit"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards. TMPDIR chooses the disk."""
    with TemporaryDirectory(prefix="tideline-bench-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def alone(function: Callable[..., Any], *args: Any) -> Any:
    """Run a function of a module in a fresh process, so that memory figures are clean."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


# --- the limit reference ---


@dataclass(frozen=True)
class LimitTool:
    """The C++ reference, built."""

    gen: Path
    limit: Path

    def run(self, workload: Path, operations: int) -> dict[str, Any]:
        """One run: its JSON line."""
        command = [str(self.limit), str(workload), f"n={operations}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        line: dict[str, Any] = json.loads(done.stdout)
        return line


def build_limit(folder: Path | None) -> LimitTool | str:
    """The limit tool built from `folder` or from beside the project, or why there is none."""
    beside = [ROOT.parent / "shared" / "limit", ROOT.parent / "limit"]
    places = [folder] if folder else beside
    source = next((place for place in places if (place / "limit.cpp").is_file()), None)
    if source is None:
        return "no folder with limit.cpp found (give one with --limit DIR)"
    if shutil.which("g++") is None:
        return "g++ is not installed"
    built = []
    for name in ("gen", "limit"):
        target = cache_dir() / name
        newest = max(file.stat().st_mtime for file in source.glob("*.[ch]*"))
        if not target.exists() or target.stat().st_mtime < newest:
            flags = ["-O2", "-std=c++17", "-msse4.2"]
            command = ["g++", *flags, str(source / f"{name}.cpp"), "-o", str(target)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"g++ failed: {done.stderr.strip().splitlines()[-1]}"
        built.append(target)
    return LimitTool(*built)


def workload_file(name: str, tool: LimitTool | str) -> Path:
    """The file of a workload, made when missing: by the limit tool, else by our own code."""
    path = cache_dir() / f"{name}.bin"
    if not path.exists():
        n, rate, share = WORKLOADS[name]
        say(f"making {path.name}")
        half = path.with_suffix(".part")
        if isinstance(tool, LimitTool):
            command = [str(tool.gen), str(half), str(n), str(rate), str(share), "1.0", "20"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        else:
            limitfile.write(half, n, rate=rate, subscriptions=share)
        half.rename(path)
    return path


# --- the machine ---


def facts() -> dict[str, str]:
    """What a reader needs to judge the figures."""
    versions = []
    for name in ("numpy", "numba", "pyarrow", "msgspec", "rocksdict"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{name} absent")
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "versions": ", ".join(versions),
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def commit() -> str:
    """The commit that is measured, with + when files differ from it."""
    git = ["git", "-C", str(ROOT)]
    done = subprocess.run(
        [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return "none"
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() + ("+" if changed.stdout.strip() else "")


@dataclass(frozen=True)
class Memory:
    """Memory of this process, in bytes; `uss` is what only this process holds."""

    rss: int
    uss: int

    def __sub__(self, other: Memory) -> Memory:
        return Memory(self.rss - other.rss, self.uss - other.uss)


def memory() -> Memory:
    """Measured after garbage and what allocators hold back were given up."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        # glibc keeps freed memory otherwise, which would count against the library.
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    info = psutil.Process().memory_full_info()
    return Memory(info.rss, info.uss)


# --- the command line, results and pages ---


def parser(
    doc: str | None, *, sizes: Iterable[str], parts: Iterable[str] = (), rounds: int = 0
) -> argparse.ArgumentParser:
    """The command line of a benchmark whose module says `doc`: what most of them take."""
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    if parts:
        made.add_argument("--only", nargs="+", choices=list(parts), help="run these parts only")
    made.add_argument("--size", choices=list(sizes), default="small")
    if rounds:
        made.add_argument("--rounds", type=int, default=rounds, help=f"default {rounds}")
    add_results(made)
    return made


def add_results(parser: argparse.ArgumentParser) -> None:
    """The option `--results`."""
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="DIR", help="where results go"
    )


def machine_of(part: dict[str, Any]) -> str:
    """The machine that a part ran on."""
    return ", ".join(f"{key} {value}" for key, value in part["facts"].items())


def pyplot() -> Any:
    """What draws pictures, without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


class Results:
    """The results of one benchmark, part by part."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._file = folder / f"{name}.json"
        self.parts: dict[str, Any] = (
            json.loads(self._file.read_text()) if self._file.exists() else {}
        )

    def put(self, part: str, data: Any) -> None:
        """Keep the outcome of a part, with when and on what it ran."""
        self.parts[part] = {
            "commit": commit(),
            "date": time.strftime("%Y-%m-%d"),
            "facts": facts(),
            "data": data,
        }
        self._file.write_text(json.dumps(self.parts, indent=1, sort_keys=True) + "\n")

    def get(self, part: str) -> Any:
        """The data of a part, or None."""
        return self.parts[part]["data"] if part in self.parts else None


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, the first column left, the others right.

    >>> print(markdown_table(["a", "b"], [["x", "1"]]), end="")
    | a | b |
    |---|--:|
    | x | 1 |
    """
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    text = ["| " + " | ".join(line) + " |" for line in lines]
    text[1] = text[1].replace(" ", "")
    return "\n".join(text) + "\n"


def draw_all(
    results: Results, name: str, wanted: Iterable[tuple[str, str, Callable[[Any, Any], Any]]]
) -> list[Path]:
    """A picture NAME-... for each (part, what, what draws it) that has results; the files."""
    plt, written = pyplot(), []
    for part, what, draw in wanted:
        data = results.get(part)
        if data:
            figure = draw(plt, data)
            written.append(results.folder / f"{name}-{what}.png")
            figure.savefig(written[-1], dpi=110)
            plt.close(figure)
    return written
