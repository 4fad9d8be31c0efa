"""A Kafka broker to try things with, a Java process of its own: `with Broker(folder) as broker:`.

`make kafka` fetches its jars. The broker is one node that is its own controller. It listens on
loopback, on two ports that were free, and keeps everything below its folder. Topics are made,
filled and read with Kafka's own command line tools, so that what Spark wrote is read by a client
that is not Spark's.

Nothing here waits for a while and hopes: the broker has started when it says so in its log, a tool
has done its work when it ends, and a reader returns when it has seen what it was told to wait for.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from tideline.spark.session import find_java

__all__ = ["Broker", "connector_jars"]

LISTS = Path(__file__).resolve().parents[2] / "tests" / "spark" / "kafka"
STARTED = "Kafka Server started"
CLUSTER = "tideline-tests-0000000"  # the 22 letters of an identifier of Kafka's

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={logs}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""

LOG = """\
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %p %c{{1}}: %m%n
"""


def jars(name: str) -> Path:
    """The folder that `scripts/kafka.sh` put the jars of a list into."""
    digest = hashlib.sha256((LISTS / f"{name}.xml").read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "tideline-peers" / f"kafka-{name}-{digest}"
    if not folder.is_dir():
        raise RuntimeError(f"the Kafka {name} is not there: run `make kafka`. folder={folder}")
    return folder


def connector_jars() -> str:
    """What `spark.jars` must name so that Spark reads and writes Kafka."""
    return ",".join(str(path) for path in sorted(jars("connector").glob("*.jar")))


class Broker:
    """One broker: `address` is what a client is told. Start and stop it once."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self._java = find_java()
        self._classes = f"{jars('broker')}{os.sep}*"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        for name, level in (("broker", "info"), ("tools", "error")):
            (folder / f"{name}.properties").write_text(LOG.format(level=level), encoding="utf-8")

    def start(self, timeout_s: float = 300) -> None:
        """Start it and return when it serves."""
        port, controller = _free_ports(2)
        settings = self.folder / "server.properties"
        settings.write_text(
            SETTINGS.format(port=port, controller=controller, logs=self.folder / "logs"),
            encoding="utf-8",
        )
        self.tool("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings))
        log = self.folder / "broker.log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*self._command("broker", "-Xmx512m"), "kafka.Kafka", str(settings)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        deadline = time.monotonic() + timeout_s
        while STARTED not in (said := log.read_text(encoding="utf-8", errors="replace")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the Kafka broker did not start; it said:\n{said[-3000:]}")
            time.sleep(0.05)
        self.address = f"127.0.0.1:{port}"

    def stop(self) -> None:
        """End it: kindly, then by force."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def topic(self, name: str, partitions: int = 2) -> str:
        """Make a topic."""
        self.tool(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, "--create",
            "--topic", name, "--partitions", str(partitions), "--replication-factor", "1",
        )  # fmt: skip
        return name

    def send(self, topic: str, messages: Iterable[tuple[str, str]]) -> None:
        """Add (key, value) messages to a topic; returns when the broker has them all."""
        lines = "".join(f"{key}\t{value}\n" for key, value in messages)
        self.tool(
            "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", self.address,
            "--topic", topic, "--command-property", "acks=all",
            "--reader-property", "parse.key=true", text=lines,
        )  # fmt: skip

    def read(self, topic: str, last: Callable[[str], bool], timeout_s: float = 300) -> list[str]:
        """The values of a topic from its start on, up to one of which `last` says so."""
        command = [
            *self._command("tools", "-Xmx128m"), "org.apache.kafka.tools.consumer.ConsoleConsumer",
            "--bootstrap-server", self.address, "--topic", topic, "--from-beginning",
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, encoding="utf-8",
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        values: list[str] = []
        try:
            for line in process.stdout:
                values.append(line.rstrip("\n"))
                if last(values[-1]):
                    return values
            said = process.stderr.read()[-2000:]
            raise RuntimeError(
                f"topic {topic!r} did not have all that was waited for in {timeout_s} s: "
                f"{len(values)} messages, the last {values[-3:]}\n{said}"
            )
        finally:
            timer.cancel()
            process.kill()
            process.communicate()

    def count(self, topic: str) -> int:
        """How many messages a topic has."""
        said = self.tool(
            "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", self.address,
            "--topic", topic,
        )  # fmt: skip
        return sum(int(line.rsplit(":", 1)[1]) for line in said.split())

    def tool(self, *words: str, text: str = "") -> str:
        """Run one of Kafka's tools to its end: what it printed."""
        done = subprocess.run(
            [*self._command("tools", "-Xmx128m"), *words], input=text, capture_output=True,
            text=True, encoding="utf-8", timeout=120,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{words[0]} failed:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
        return done.stdout

    def _command(self, log: str, *options: str) -> list[str]:
        return [
            self._java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options,
            f"-Dlog4j2.configurationFile={self.folder / log}.properties", "-cp", self._classes,
        ]  # fmt: skip


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
