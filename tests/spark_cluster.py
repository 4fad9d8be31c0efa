"""A real standalone cluster of Spark: a master and two workers of one core, on loopback.

    def test_it(spark_cluster):
        said = spark_cluster.submit("app.py", "an argument")

It is started once in a run of tests, and only if a test asks for it. Its executors do not find
the package: they run `Cluster.python`, which looks at neither PYTHONPATH of this process nor at
an editable install. What they get, Spark ships to them.

The daemons are killed when the run of tests ends, however it ends: Linux kills them with their
parent. Executors end with their worker, and the executors' Python with them.

"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
WAIT_S = 300
"""How long a daemon may take to start: far more than it takes on a busy machine."""

_PYTHON = """\
#!/bin/sh
# Without `site` no editable install is seen; packages are found, but for this one.
PYTHONPATH="$PYTHONPATH:{packages}" exec {python} -S "$@"
"""
_SPARK = ("SPARK_", "PYSPARK_", "TIDELINE_SPARK_", "PYTHONPATH", "MASTER")


class Cluster:
    """The master, its workers, and what a driver needs to use them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "python"
        packages, python = sysconfig.get_path("purelib"), sys.executable
        self.python.write_text(_PYTHON.format(packages=packages, python=python), encoding="utf-8")
        self.python.chmod(stat.S_IRWXU)
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.url = ""
        """Such as spark://127.0.0.1:40123."""

    def start(self, workers: int = 2) -> None:
        """Start the master, then workers that know it."""
        self._daemon("master", "org.apache.spark.deploy.master.Master", "--port", "0")
        self.url = self._said("master", r"Starting Spark master at (spark://\S+)")[1]
        for number in range(workers):
            self.start_worker(f"worker-{number}")
        for number in range(workers):
            self.await_worker(f"worker-{number}")

    def start_worker(self, name: str) -> None:
        """Start a worker of one core."""
        self._daemon(
            name, "org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g",
            "--work-dir", str(self.folder / name), self.url,
        )  # fmt: skip

    def await_worker(self, name: str) -> None:
        """Wait until the master has taken a worker in."""
        self._said(name, r"Successfully registered with master")

    def kill(self, name: str) -> None:
        """Kill a daemon and what it has started, as a power cut would."""
        daemon = self.daemons.pop(name)
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()

    def stop(self) -> None:
        """Kill what runs."""
        for name in list(self.daemons):
            self.kill(name)

    def start_connect(self) -> str:
        """Start a server of Spark Connect that runs tasks itself and finds the package: its URL."""
        self._run(
            "connect", [_spark("spark-submit"), "--master", "local[2]", "--driver-memory", "1g",
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
            "--conf", "spark.connect.grpc.binding.port=0", "spark-internal"],
            self.environment(PYSPARK_PYTHON=sys.executable),
        )  # fmt: skip
        said = self._said("connect", r"Spark Connect server started at: \S*?:(\d+)")
        return f"sc://127.0.0.1:{said[1]}"

    def executors(self) -> list[int]:
        """The processes of all executors there are now."""
        groups = {daemon.pid for daemon in self.daemons.values()}
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    command = (process / "cmdline").read_bytes()
                    group = os.getpgid(int(process.name))
                except OSError:
                    continue
                if group in groups and b"CoarseGrainedExecutorBackend" in command:
                    found.append(int(process.name))
        return found

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a driver: it finds the package, its executors do not."""
        return {
            **_plain(), "PYTHONPATH": str(SOURCE), "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **more,
        }  # fmt: skip

    def submit(
        self, script: str | Path, *arguments: str, options: Sequence[str] = (), **more: str
    ) -> subprocess.CompletedProcess[str]:
        """`spark-submit --master <this> [options] script [arguments]`, to its end."""
        return subprocess.run(
            self._submit(script, arguments, options), capture_output=True, text=True, check=False,
            env=self.environment(**more), cwd=self.folder,
        )  # fmt: skip

    def start_driver(
        self, script: str | Path, *arguments: str, options: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """The same, in a group of processes that can be killed; it logs to driver.log."""
        with open(self.folder / "driver.log", "ab") as log:
            return subprocess.Popen(
                self._submit(script, arguments, options), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=self.environment(), cwd=self.folder, start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip

    def _submit(
        self, script: str | Path, arguments: Sequence[str], options: Sequence[str]
    ) -> list[str]:
        memory = ["--driver-memory", "1g", "--executor-memory", "900m"]
        command = [_spark("spark-submit"), "--master", self.url, *memory, *options]
        return [*command, str(script), *arguments]

    def _daemon(self, name: str, of_class: str, *arguments: str) -> None:
        environment = {
            **_plain(), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_CONF_DIR": str(self.folder / "conf"),
        }  # fmt: skip
        command = [_spark("spark-class"), of_class, "--host", "127.0.0.1", "--webui-port", "0"]
        self._run(name, [*command, *arguments], environment)

    def _run(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            self.daemons[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                cwd=self.folder, start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip

    def _said(self, name: str, pattern: str) -> re.Match[str]:
        """Wait for a line in the log of a daemon."""
        limit = time.monotonic() + WAIT_S
        log = self.folder / f"{name}.log"
        while time.monotonic() < limit and self.daemons[name].poll() is None:
            found = re.search(pattern, log.read_text(encoding="utf-8", errors="replace"))
            if found:
                return found
            time.sleep(0.05)
        raise RuntimeError(f"{name} of the cluster did not start:\n{log.read_text()}")


def _plain() -> dict[str, str]:
    """This process's environment without what says something about Spark or Python's path."""
    return {name: text for name, text in os.environ.items() if not name.startswith(_SPARK)}


def _spark(script: str) -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / script)


def die_with_parent() -> None:
    """In a new process: be killed when the parent ends, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster; killed when the last test has run."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
