"""A PostgreSQL cluster of our own: made, started, killed and stopped by the benchmark.

Everything lies in the folder that is given; only the unix socket is elsewhere, because a socket's
path may have 107 bytes at most. PostgreSQL refuses to run as root. Root runs it as the user
`postgres` that Debian's package makes, which keeps the one right of root to pass through folders
of others: the folders of a test are closed to all but their owner.

Settings that differ from PostgreSQL's own, and why:

    fsync off, synchronous_commit on   a commit is acknowledged when its log is with the operating
                                       system: survives kill -9 of every process, as Tideline's
                                       default does, and not a power cut. `synchronous_commit=off`
                                       would lose up to 0.6 s of commits at kill -9
    full_page_writes on                kill -9 may cut the write of a page in two
    shared_buffers                     what the benchmark allows, else a quarter of the memory
    max_wal_size 8 GB, 30 minutes      checkpoints are far apart, as the manual advises for loads
    wal_level minimal                  nobody replicates
    wal_buffers 64 MB, autovacuum 10 s, jit off, work_mem 256 MB, huge_pages try
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Cluster", "missing", "server_version"]

BIN = Path("/usr/lib/postgresql/15/bin")
"""Where Debian puts the server's programs."""
_PACKAGE = "PostgreSQL 15 is not installed: apt-get install postgresql-15 postgresql-15-postgis-3"
_START_S = 60.0


def missing() -> str | None:
    """What must be installed first, as one line; None when all is there."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed: pip install 'psycopg[binary]'"
    if not (BIN / "postgres").exists():
        return _PACKAGE
    if not Path("/usr/share/postgresql/15/extension/postgis.control").exists():
        return "PostGIS is not installed: apt-get install postgresql-15-postgis-3"
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            return "setpriv is not installed: apt-get install util-linux"
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "there is no user postgres to run as"
    return None


def server_version() -> str:
    """The server's own words."""
    told = subprocess.run([BIN / "postgres", "--version"], capture_output=True, text=True)
    return told.stdout.strip()


class Cluster:
    """A running server on the folder; `connect` as often as wanted."""

    def __init__(self, folder: Path, memory_mb: int | None, *, fsync: bool) -> None:
        self._data = folder.resolve() / "data"
        self._sockets = Path(tempfile.mkdtemp(prefix="tlpg-"))
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self._sockets, user.pw_uid, user.pw_gid)
        try:
            if not (self._data / "PG_VERSION").exists():
                self._make()
            self._server = self._start(memory_mb, fsync)
        except BaseException:
            shutil.rmtree(self._sockets, ignore_errors=True)
            raise

    def _make(self) -> None:
        shutil.rmtree(self._data, ignore_errors=True)
        self._data.mkdir(parents=True, mode=0o700)
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self._data, user.pw_uid, user.pw_gid)
        command = [
            str(BIN / "initdb"), "-D", str(self._data), "-U", "tideline", "--auth=trust",
            "--encoding=UTF8", "--no-locale", "--no-sync",
        ]  # fmt: skip
        done = subprocess.run(
            [*_other_user(), *command], capture_output=True, text=True, cwd="/", check=False
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr.strip()}")

    def _start(self, memory_mb: int | None, fsync: bool) -> subprocess.Popen[bytes]:
        memory_mb = memory_mb or psutil.virtual_memory().total // 4 >> 20
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._sockets),
            "fsync": "on" if fsync else "off",
            "synchronous_commit": "on",
            "shared_buffers": f"{max(memory_mb, 16)}MB",
            "huge_pages": "try",
            "max_wal_size": "8GB",
            "min_wal_size": "1GB",
            "checkpoint_timeout": "30min",
            "checkpoint_completion_target": "0.9",
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "wal_buffers": "64MB",
            "autovacuum_naptime": "10s",
            "jit": "off",
            "work_mem": "256MB",
            "maintenance_work_mem": "512MB",
            "max_connections": "20",
            "max_locks_per_transaction": "1024",
        }
        flags = [f"--{name}={value}" for name, value in settings.items()]
        with open(self._data.parent / "server.log", "ab") as log:
            server = subprocess.Popen(
                [*_other_user(), str(BIN / "postgres"), "-D", str(self._data), *flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
            )  # fmt: skip
        try:
            self._wait(server)
        except BaseException:
            server.kill()
            server.wait()
            raise
        return server

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        import psycopg

        deadline = time.monotonic() + _START_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError as error:
                if server.poll() is not None:
                    log = (self._data.parent / "server.log").read_text()
                    raise RuntimeError(f"PostgreSQL ended: {log[-2000:]}") from error
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def connect(self) -> Any:
        """A connection; every statement is a transaction unless one is opened."""
        import psycopg

        return psycopg.connect(
            host=str(self._sockets), user="tideline", dbname="postgres", autocommit=True
        )

    def processes(self) -> list[int]:
        """The server and what it started."""
        server = psutil.Process(self._server.pid)
        return [server.pid, *(child.pid for child in server.children(recursive=True))]

    def disk_bytes(self) -> int:
        """All files: tables, indexes, and the log."""
        total = 0
        for folder, _, files in os.walk(self._data):
            for name in files:
                try:
                    total += os.lstat(os.path.join(folder, name)).st_size
                except FileNotFoundError:  # removed while we looked
                    continue
        return total

    def crash(self) -> None:
        """kill -9 of every process; returns when the last is gone."""
        # The server first: it would take the death of a child for a crash, and start again.
        found = [psutil.Process(pid) for pid in self.processes()]
        for process in found:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        self._server.wait()
        psutil.wait_procs(found[1:], timeout=30)
        shutil.rmtree(self._sockets, ignore_errors=True)

    def close(self) -> None:
        """Stop; open connections are cut."""
        if self._server.poll() is None:
            self._server.send_signal(signal.SIGINT)
            try:
                self._server.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.crash()
        shutil.rmtree(self._sockets, ignore_errors=True)


def _other_user() -> list[str]:
    """What to put before a command so that it does not run as root."""
    if os.geteuid() != 0:
        return []
    rights = "+dac_read_search"
    return [
        "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups",
        f"--inh-caps={rights}", f"--ambient-caps={rights}", "--",
    ]  # fmt: skip
