"""A Spark session set up for Tideline.

    session()                      local[*]: everything on this machine
    session(master="spark://...")  any other master; TIDELINE_SPARK_MASTER says it as well

What it sees to, so that nobody has to remember it:

    memory     explicit: a quarter of what this machine (or container) has, 1 to 16 GiB
    logs       errors only, on standard error, and none that is raised as well; no progress bar
    state      RocksDB with changelog checkpoints; shuffles of as many parts as there are cores
    data       Arrow between the JVM and Python, times in UTC, filters handed to the source
    workers    this Python; they import the `tideline` that runs here, and share its kernels;
               they import `pyspark` as it is installed, not out of Spark's zip (`_home`);
               with another master they get both as a zip (shipping.py)
    files      in one temporary folder, gone when the process ends; web page off; loopback only
    source     the format `tideline` is registered

A setting in `config` wins over all of these. A process has one session: asking again gives
the one that runs, and asking for another master or more memory is a `Conflict`.

The folder of a process that was killed is removed by the next session: its owner holds a
lock on it, and the operating system drops the lock when the owner is gone.

Importing this needs neither pyspark nor Java; calling `session` does. Safe from any thread.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib.util
import logging
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tideline.errors import Conflict, InvalidRequest, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_memory", "check_pyspark", "find_java", "query_loggers", "ready", "session"]

JAVA = 17
"""The oldest Java that Spark 4 runs on."""

_GIB = 1 << 30
_SOURCE = Path(__file__).resolve().parents[2]
_PREFIX = "tideline-spark-"
_LOG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
# This one says how to change the level, at a level that would not be shown.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# These say that a task or a write failed, which is raised as well.
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.write.name = org.apache.spark.sql.execution.datasources.v2
logger.write.level = off
logger.files.name = org.apache.spark.sql.execution.datasources.FileFormatWriter
logger.files.level = off
"""
# Spark asks Java for a module that Tideline does not use, and Java warns about it every time.
_JAVA = """\
#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""

# Spark starts a process for every stream with state of ours, to ask what state that is. It prints
# five lines about its progress. `print` means nothing in that one module; what fails is raised, and
# what others print there is shown. docs/decisions/0035
_PYTHON = """\
#!/bin/sh
if [ "$2" = pyspark.sql.streaming.transform_with_state_driver_worker ]; then
  exec {python} -c '
import runpy, sys
runpy.run_module(sys.argv[1], {{"print": lambda *_: None}}, "__main__", alter_sys=True)' "$2"
fi
exec {python} "$@"
"""
# These write down what is raised as well: a line of JSON with the whole stack.
_TWICE = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

_lock = threading.Lock()
_folders: list[tuple[Path, int]] = []  # this process's, with the descriptor that holds the lock
_java_memory: list[str] = []  # what Java was started with: it outlives a session that is stopped


def session(
    *, master: str | None = None, memory: str | None = None, app: str = "tideline",
    config: Mapping[str, str] | None = None, tmp: str | os.PathLike[str] | None = None,
) -> SparkSession:  # fmt: skip
    """The Spark session of this process, started when there is none.

    `memory` is what each Java process that runs tasks may use, as Spark writes it ("4g"):
    the driver with a local master, every executor with another. `config` adds or replaces
    settings; `tmp` is where the temporary folder is made.

    >>> spark = session(memory="2g")                                  # doctest: +SKIP
    >>> spark.read.format("tideline").option("channel", "roads")      # doctest: +SKIP
    """
    with _lock:
        return _running(master, memory, config) or _start(master, memory, app, config, tmp)


def check_memory(memory: str | None) -> None:
    """`InvalidRequest` for a text that says no memory.

    >>> check_memory("4g")
    """
    if memory is not None and not re.fullmatch(r"\d+[kmgtKMGT]", memory):
        raise InvalidRequest("memory must be a number with a unit, as in '4g'", memory=memory)


def check_pyspark() -> None:
    """`Unavailable`, naming the extra, when pyspark is not installed."""
    _pyspark()


def find_java() -> str:
    """The Java that Spark will use: JAVA_HOME's, else the PATH's. `Unavailable` if none fits."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    advice = (
        f"install one (Debian, Ubuntu: apt-get install openjdk-{JAVA}-jre-headless) "
        "or set JAVA_HOME to its folder"
    )
    if java is None or not os.access(java, os.X_OK):
        where = {"JAVA_HOME": home} if home else {}
        raise Unavailable(f"Spark needs Java {JAVA} or newer and there is none: {advice}", **where)
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(
            f"Spark needs Java {JAVA} or newer and this one does not run: {advice}",
            java=java, error=str(error),
        ) from None  # fmt: skip
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if found is None or int(found[1]) < JAVA:
        raise Unavailable(
            f"Spark needs Java {JAVA} or newer: {advice}",
            java=java, version=found[1] if found else said.stderr.strip()[:200],
        )  # fmt: skip
    return java


def ready() -> None:
    """`Unavailable` when a session could not be started: no pyspark, or no Java that fits."""
    if _pyspark().getActiveSession() is None:
        find_java()


def _running(
    master: str | None, memory: str | None, config: Mapping[str, str] | None
) -> SparkSession | None:
    """The session that runs already, if what is asked for is what it has."""
    spark: SparkSession | None = _pyspark().getActiveSession()
    if spark is None:
        return None
    given = spark.sparkContext.getConf()
    local = _is_local(str(spark.sparkContext.master))
    wanted = {
        "spark.master": master,
        "spark.driver.memory" if local else "spark.executor.memory": memory,
    }
    for name, value in wanted.items():
        if value is not None and given.get(name) != value:
            raise Conflict(
                "a Spark session with other settings runs in this process: stop it first",
                setting=name, running=given.get(name), asked=value,
            )  # fmt: skip
    for name, value in (config or {}).items():
        if spark.conf.get(name, None) != str(value):
            spark.conf.set(name, value)
    _register(spark)
    return spark


def _start(
    master: str | None, memory: str | None, app: str, config: Mapping[str, str] | None,
    tmp: str | os.PathLike[str] | None,
) -> SparkSession:  # fmt: skip
    builder: Any = _pyspark().builder
    master = master or os.environ.get("TIDELINE_SPARK_MASTER") or "local[*]"
    local = _is_local(master)
    check_memory(memory)
    if local and memory is not None and _java_memory and memory != _java_memory[0]:
        raise Conflict(
            "Java runs in this process with other memory, and stays until the process ends",
            running=_java_memory[0], asked=memory,
        )  # fmt: skip
    java = find_java()
    folder = _folder(tmp, java)
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # With a limit of bytes Spark adds up a batch's bytes again at every row. So the limit is of
        # rows: few enough that bodies as large as they may be still fit. docs/decisions/0029
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A deep plan, or a query stopped inside foreachBatch, needs more stack than Java's own.
        "spark.driver.extraJavaOptions": "-Xss8m",
    }
    if local:
        settings |= {
            # Java shares the cores with the Python workers: no collector that runs beside them.
            "spark.driver.extraJavaOptions": "-Xss8m -XX:+UseParallelGC",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": memory or (_java_memory or [_memory_text()])[0],
            "spark.local.dir": str(folder / "local"),
            "spark.sql.shuffle.partitions": str(_tasks(master)),
            # The other one starts processes (readlink, chmod) for every file of a checkpoint:
            # some thirty a micro-batch. docs/decisions/0025
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing"
                ".FileSystemBasedCheckpointFileManager"
            ),
        }
    elif memory is not None:
        settings["spark.executor.memory"] = memory
    settings |= {name: str(value) for name, value in (config or {}).items()}
    options = settings["spark.driver.extraJavaOptions"]
    settings["spark.driver.extraJavaOptions"] = f"{options} -Djava.io.tmpdir={folder / 'tmp'}"
    with _environment(folder, local=local):
        builder = builder.master(master).appName(app)
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            spark: SparkSession = builder.getOrCreate()
        except Exception as error:
            if type(error).__module__.split(".")[0] not in ("pyspark", "py4j"):
                raise
            raise Unavailable(
                "Spark did not start; what Java said stands above", master=master,
                error=str(error).splitlines()[0],
            ) from error  # fmt: skip
    if local:
        _java_memory[:] = [settings["spark.driver.memory"]]
    else:
        from tideline.spark.shipping import pack  # loads the kernels

        spark.sparkContext.addPyFile(str(pack(folder / "tideline.zip")))
    for logger in query_loggers():
        logger.disabled = True
    _register(spark)
    return spark


def query_loggers() -> list[logging.Logger]:
    """The loggers that write down what is raised as well.

    Made by pyspark: it hands them more than a plain logger takes.
    """
    from pyspark.logger import PySparkLogger

    return [PySparkLogger.getLogger(name) for name in _TWICE]


def _pyspark() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise Unavailable(
            "this needs pyspark: pip install 'tideline[spark]'", error=str(error)
        ) from None
    return SparkSession


def _register(spark: SparkSession) -> None:
    from tideline.spark.source import TidelineSource

    spark.dataSource.register(TidelineSource)


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _tasks(master: str) -> int:
    """How many tasks a local master runs at a time: local, local[4], local[*], local[4,2]."""
    found = re.match(r"local\[(\d+|\*)", master)
    if found is None:
        return 1
    return len(os.sched_getaffinity(0)) if found[1] == "*" else max(1, int(found[1]))


def _memory_text() -> str:
    """A quarter of the memory there is: the store and the Python workers need theirs too."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(limit).read_text(encoding="ascii")))
    return f"{max(_GIB, min(total // 4, 16 * _GIB)) >> 20}m"


@contextlib.contextmanager
def _environment(folder: Path, *, local: bool) -> Iterator[None]:
    """What the Java process and the workers it starts inherit; put back afterwards."""
    paths = [str(_SOURCE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    wanted = {
        "JAVA_HOME": str(folder / "java"),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path for path in paths if path)),
    }
    chosen = {"PYSPARK_PYTHON": str(folder / "python") if local else sys.executable}
    if local:
        chosen["SPARK_LOCAL_IP"] = "127.0.0.1"
        if not {"SPARK_HOME", "PYSPARK_PYTHON"} & os.environ.keys() and _home(folder / "spark"):
            chosen["SPARK_HOME"] = str(folder / "spark")
    if "SPARK_CONF_DIR" not in os.environ:  # a folder of somebody's own has their log settings
        chosen["SPARK_CONF_DIR"] = str(folder / "conf")
    wanted |= {name: value for name, value in chosen.items() if name not in os.environ}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _home(home: Path) -> bool:
    """Make a home of Spark without its zip of Python modules; False if workers need that.

    Workers look into the zip first, and modules in a zip are compiled at every start: 0.8 s
    instead of 0.3 s until `pyspark` is imported, in a process that each query waits for.
    docs/decisions/0029
    """
    spec = importlib.util.find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin else None
    paths = [*site.getsitepackages(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    if installed is None or not (installed / "jars").is_dir():
        return False
    if str(installed.parent) not in paths:  # a worker would not find it
        return False
    home.mkdir()
    for name in ("bin", "jars", "sbin"):
        (home / name).symlink_to(installed / name)
    return True


# ---- the temporary folder ---------------------------------------------------------------


def _folder(tmp: str | os.PathLike[str] | None, java: str) -> Path:
    """A new folder of this process; folders whose owner is gone are removed."""
    base = Path(tmp if tmp is not None else tempfile.gettempdir())
    try:
        base.mkdir(parents=True, exist_ok=True)
        for left in base.glob(f"{_PREFIX}*"):
            _sweep(left)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base)).resolve()
    except OSError as error:
        raise InvalidRequest(
            "tmp is not a folder that can be used", tmp=str(base), error=str(error)
        ) from None
    lock = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for name in ("conf", "local", "tmp", "java/bin"):
        (folder / name).mkdir(parents=True)
    (folder / "conf" / "log4j2.properties").write_text(_LOG, encoding="utf-8")
    (folder / "java" / "bin" / "java").write_text(_JAVA.format(java=java), encoding="utf-8")
    (folder / "java" / "bin" / "java").chmod(0o700)
    python = _PYTHON.format(python=shlex.quote(sys.executable))
    (folder / "python").write_text(python, encoding="utf-8")
    (folder / "python").chmod(0o700)
    if not _folders:
        atexit.register(_leave)
    _folders.append((folder, lock))
    return folder


def _sweep(folder: Path) -> None:
    """Remove a folder whose owner was killed."""
    with contextlib.suppress(OSError):
        lock = os.open(folder / "LOCK", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _leave() -> None:
    """At exit: stop Spark, wait for Java to go, remove the folders."""
    with contextlib.suppress(Exception):
        from pyspark import SparkContext

        context = SparkContext._active_spark_context
        if context is not None:
            context.stop()
        gateway = SparkContext._gateway
        process = getattr(gateway, "proc", None)
        if gateway is not None and process is not None:
            gateway.shutdown()
            process.stdin.close()  # Java ends when its standard input does
            process.wait(timeout=20)
    for folder, lock in _folders:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
    _folders.clear()
