"""`tideline doctor`: what this machine has for Tideline, and what to do where something is missing.

    a check  -->  Found(check, state, said, do)     state: ok, note (works, but ...), bad (does not)

Each check looks at one thing and fails at nothing: what cannot be found out is a note. It opens no
database, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

import tideline
from tideline.cli.command import AsJson
from tideline.cli.output import show
from tideline.errors import TidelineError

__all__ = ["Found", "examine", "register"]

_BASE = {"numpy": "2.0", "numba": "0.61", "pyarrow": "18", "msgspec": "0.19", "google-re2": "1.1",
         "typer": "0.16", "rich": "13"}  # fmt: skip
_SERVER = {"starlette": "1.0", "uvicorn": "0.54", "websockets": "15"}
_SPARK = {"pyspark": "4.3"}
_SYNCS = 16
_SLOW_SYNC_MS = 20.0
_FREE_BYTES = 1 << 30
_FILES = 4096
_UNSYNCHRONIZED = 5  # TIME_ERROR of adjtimex


@dataclass(frozen=True)
class Found:
    """What a check found."""

    check: str
    state: str
    """`ok`; `note`: it works, but read what to do; `bad`: it does not work."""
    said: str
    do: str = ""


def register(app: typer.Typer) -> None:
    """Hang the command on the command line."""
    app.command("doctor")(doctor)


def doctor(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where a database is, or will be.")
    ] = Path(),
    port: Annotated[int, typer.Option(help="The port a server shall have.", min=0, max=65535)] = (
        8080
    ),
    as_json: AsJson = False,
) -> None:
    """Look at this machine: what Tideline needs, what is missing, and what to do.

    Python, packages, compiled kernels, disk, clock, memory, open files, the port, Java and Spark.
    Exit code 0 when it works (notes are no failure), 1 when something does not.
    """
    from tideline.database import check_no_address

    check_no_address(folder)
    found = list(examine(folder, port))
    show([asdict(each) for each in found], title=f"tideline {tideline.__version__}",
         as_json=as_json)  # fmt: skip
    if any(each.state == "bad" for each in found):
        raise typer.Exit(1)


def examine(folder: Path, port: int) -> Iterator[Found]:
    """All checks, one after the other.

    >>> {each.state for each in examine(Path(), 0)} <= {"ok", "note", "bad"}
    True
    """
    checks: list[tuple[str, Callable[[], Found | list[Found]]]] = [
        ("python", _python),
        ("packages", lambda: _packages("packages", _BASE, "tideline", needed=True)),
        ("server", lambda: _packages("server", _SERVER, "tideline[server]", needed=False)),
        ("kernels", _kernels),
        ("disk", lambda: _disk(folder)),
        ("clock", _clock),
        ("memory", _memory),
        ("open files", _files),
        ("port", lambda: _port(port)),
        ("spark", lambda: _packages("spark", _SPARK, "tideline[spark]", needed=False)),
        ("java", _java),
    ]
    for name, check in checks:
        try:
            found = check()
        except Exception as error:  # a check that fails says so, and the others go on
            found = Found(name, "note", f"could not be looked at: {type(error).__name__}: {error}")
        yield from found if isinstance(found, list) else [found]


def _python() -> Found:
    version = platform.python_version()
    said = f"{platform.python_implementation()} {version}, {platform.machine()}"
    if sys.maxsize < 1 << 32:
        return Found("python", "bad", said, "Tideline needs a Python of 64 bits")
    if platform.python_implementation() != "CPython":
        return Found("python", "bad", said, "numba needs CPython")
    return Found("python", "ok", said)


def _packages(check: str, wanted: dict[str, str], extra: str, *, needed: bool) -> Found:
    said, missing, old = [], [], []
    for name, least in wanted.items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
            continue
        said.append(f"{name} {version}")
        if _numbers(version) < _numbers(least):
            old.append(f"{name} {version} is older than {least}")
    do = f"pip install --upgrade '{extra}'"
    if missing or old:
        what = [*old, *(f"{name} is missing" for name in missing)]
        return Found(check, "bad" if needed or old else "note", ", ".join(what), do)
    return Found(check, "ok", ", ".join(said))


def _numbers(version: str) -> list[int]:
    """A version as numbers, so that 0.9 is older than 0.61.

    >>> _numbers("4.3.0.dev1") < _numbers("4.10")
    True
    """
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def _kernels() -> list[Found]:
    from tideline.kernels import cache
    from tideline.kernels.warm import GROUPS, ready

    base = cache.cache_base()
    found = []
    if base.name.startswith("tideline-kernels-") and not os.environ.get("NUMBA_CACHE_DIR"):
        found.append(Found(
            "kernel cache", "note", "the user's cache cannot be written: each process compiles",
            "set NUMBA_CACHE_DIR to a folder that can be written",
        ))  # fmt: skip
    missing = [group for group in GROUPS if not ready(group)]
    said = f"{cache.processor()}, in {base}"
    if missing:
        said = f"{', '.join(missing)} not compiled yet; {said}"
        return [*found, Found("kernels", "note", said, "tideline warm, once on this machine")]
    return [*found, Found("kernels", "ok", f"all compiled; {said}")]


def _disk(folder: Path) -> list[Found]:
    at = folder.absolute()
    while not at.exists():  # where it would be made
        at = at.parent
    if not at.is_dir():
        return [Found("disk", "bad", f"{at} is a file", "choose a folder")]
    if not os.access(at, os.W_OK | os.X_OK):
        return [Found("disk", "bad", f"{at} cannot be written", "choose a folder of your own")]
    free = shutil.disk_usage(at).free
    said = f"{free / 1e9:.1f} GB free for {folder.absolute()}"
    space = Found("disk", "ok", said)
    if free < _FREE_BYTES:
        space = Found("disk", "note", said, "make room: writes stop when the disk is full")
    took = []
    try:
        with tempfile.NamedTemporaryFile(dir=at, prefix=".tideline-doctor-") as file:
            for _ in range(_SYNCS):
                file.write(bytes(4096))
                file.flush()
                began = time.perf_counter()
                os.fsync(file.fileno())
                took.append((time.perf_counter() - began) * 1000)
    except OSError as error:
        return [space, Found("fsync", "bad", f"{at}: {error.strerror}", "choose another folder")]
    middle = statistics.median(took)
    said = f"{middle:.2f} ms, the slowest of {_SYNCS} {max(took):.1f} ms"
    if middle > _SLOW_SYNC_MS:
        return [space, Found("fsync", "note", said, "durability disk waits so long for each group"
                             " of writes: write in batches, or take a faster disk")]  # fmt: skip
    return [space, Found("fsync", "ok", said)]


def _clock() -> Found:
    year = time.gmtime().tm_year
    if not 2024 <= year < 2100:
        return Found("clock", "bad", f"it is set to the year {year}", "set the clock: what is valid"
                     " and what has expired goes by it")  # fmt: skip
    state = None
    with contextlib.suppress(OSError, AttributeError):
        # struct timex, all zero: only asks (adjtimex returns the clock's state).
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(256))
    if state == _UNSYNCHRONIZED:
        return Found("clock", "note", "set, and kept in step by nothing that the system knows",
                     "run chrony or systemd-timesyncd where several machines write")  # fmt: skip
    return Found("clock", "ok", "set" if state in (None, -1) else "set, and kept in step")


def _memory() -> Found:
    facts: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            name, _, rest = line.partition(":")
            facts[name] = int(rest.split()[0]) * 1024
    if "MemAvailable" not in facts:
        return Found("memory", "note", "how much there is could not be found out")
    free = facts["MemAvailable"]
    said = f"{free / 1e9:.1f} of {facts['MemTotal'] / 1e9:.1f} GB available"
    if free < 3 << 29:
        return Found(
            "memory", "note", said, "a database takes up to 1 GB: give less with --memory-mb"
        )
    return Found("memory", "ok", said)


def _files() -> Found:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = f"{soft} may be open, {hard} at most"
    if hard < _FILES:
        return Found("open files", "note", said, f"raise the limit: ulimit -Hn {1 << 16}; every"
                     " connection of a server is one")  # fmt: skip
    return Found("open files", "ok", f"{said}; a server takes what it needs of them")


def _port(port: int) -> Found:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EACCES:
                return Found("port", "bad", f"{port} needs more rights", "take one above 1023")
            return Found("port", "note", f"{port} is in use",
                         f"tideline serve --port {port + 1 if port < 65535 else 8080}")  # fmt: skip
    return Found("port", "ok", f"{port} is free")


def _java() -> Found:
    from tideline.spark.java import JAVA, find_java

    try:
        return Found("java", "ok", f"{find_java()}, {JAVA} or newer")
    except TidelineError as error:
        said = str(error)
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("pyspark")
        return Found("java", "bad", said, "needed by Spark alone; without it the rest works")
    return Found("java", "note", said, "needed by Spark alone, which is not installed either")
