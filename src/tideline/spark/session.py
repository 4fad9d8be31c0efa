"""A Spark session for Tideline, or what a session of yours lacks.

    session()          the session of this process; started if there is none
    register(spark)    the format `tideline` in any session, also one of Spark Connect

Who said something first keeps it. `session` sets only what nobody has set: not an argument, not
`spark-submit`, not `spark-defaults.conf`, not the environment. In this order:

    a session that runs      is taken as it is; asking it to be another is a `Conflict`
    SPARK_REMOTE             Spark Connect: no Java here, settings are the server's
    spark-submit             its Java runs already; its master, memory and logs stay
    a Java that we start     reads spark-defaults.conf and PYSPARK_SUBMIT_ARGS as always

`_ALWAYS`, `_LOCAL` and `_LOOPBACK` below are what it fills in. With a local master, Spark's page
and the chatter of its logs are off; everywhere else they are as Spark has them, and executors get
this package (shipping.py).

Importing this needs neither pyspark nor Java; calling `session` does. Safe from any thread.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tideline.errors import Conflict, InvalidRequest, Unavailable
from tideline.spark.failures import is_spark
from tideline.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_memory", "check_pyspark", "find_java", "ready", "register", "session"]

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    # With a limit of bytes Spark adds up a batch's bytes again at every row. So the limit is of
    # rows: few enough that bodies as large as they may be still fit. docs/decisions/0029
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # `match` of streams keeps its state there.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_LOCAL = {
    "spark.ui.enabled": "false",
    # The other one starts processes (readlink, chmod) for every file of a checkpoint: some thirty
    # a micro-batch. docs/decisions/0025
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}
_SET_UP = ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "MASTER")
"""If one of these is set, somebody has set Spark up and says what its Java is started with."""
_LOGS = Path(__file__).with_name("log4j2.properties")
_GIB = 1 << 30
_SOURCE = Path(__file__).resolve().parents[2]

_lock = threading.Lock()
_sent: list[tempfile.TemporaryDirectory[str]] = []  # what executors fetch, until this process ends


def session(
    *, master: str | None = None, memory: str | None = None, app: str | None = None,
    config: Mapping[str, str] | None = None, tmp: str | os.PathLike[str] | None = None,
) -> SparkSession:  # fmt: skip
    """The Spark session of this process, started when there is none; `tideline` is registered.

    `master` is Spark's (`local[*]` if nobody says another), `memory` what each Java process that
    runs tasks may use, as Spark writes it ("4g"): the driver with a local master, every executor
    with another. `app` is the name of the application, `tmp` the folder for Spark's temporary
    files. `config` are settings of Spark's: they win over all others.

    >>> spark = session(memory="2g")                                  # doctest: +SKIP
    >>> spark.read.format("tideline").option("channel", "roads")      # doctest: +SKIP
    """
    check_memory(memory)
    given = {name: str(value) for name, value in (config or {}).items()}
    named = {"spark.master": master, "spark.app.name": app, "spark.local.dir": tmp}
    given |= {name: str(value) for name, value in named.items() if value is not None}
    with _lock:
        running = _running()
        if running is not None:
            _agree(running, given, memory)
            spark = running
        elif "SPARK_REMOTE" in os.environ or "spark.remote" in given:
            spark = _pyspark().builder.config(map=given).getOrCreate()
        else:
            spark = _start(given, memory)
        register(spark)
        return spark


def register(spark: SparkSession) -> SparkSession:
    """Make the format `tideline` known to a session, also to one of Spark Connect.

    A plain session after `pip install 'tideline[spark]'` finds it by itself (`pyspark_tideline`).

    >>> register(spark).read.format("tideline")                       # doctest: +SKIP
    """
    from tideline.spark.source import TidelineSource

    spark.dataSource.register(TidelineSource)
    return spark


def check_memory(memory: str | None) -> None:
    """`InvalidRequest` for a text that says no memory.

    >>> check_memory("4g")
    """
    if memory is not None and not re.fullmatch(r"\d+[kmgtKMGT]", memory):
        raise InvalidRequest("memory must be a number with a unit, as in '4g'", memory=memory)


def check_pyspark() -> None:
    """`Unavailable`, naming the extra, when pyspark is not installed."""
    _pyspark()


def ready() -> None:
    """`Unavailable` when a session could not be started: no pyspark, or no Java that fits."""
    if _running() is None and "SPARK_REMOTE" not in os.environ:
        find_java()


def _pyspark() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise Unavailable(
            "this needs pyspark: pip install 'tideline[spark]'", error=str(error)
        ) from None
    return SparkSession


def _running() -> SparkSession | None:
    """The session of this thread, or else of this process."""
    found = _pyspark()
    from pyspark.errors import PySparkRuntimeError

    try:
        spark: SparkSession = found.active()
    except PySparkRuntimeError:
        return None
    return spark


def _agree(spark: SparkSession, given: Mapping[str, str], memory: str | None) -> None:
    """Set in a session that runs what can be set; `Conflict` if something else was asked for."""
    wanted = {name: text for name, text in given.items() if name != "spark.app.name"}
    if memory is not None:
        wanted[_memory_of(spark.conf.get("spark.master", "") or "")] = memory
    for name, text in wanted.items():
        now = spark.conf.get(name, None)
        if now == text:
            continue
        if not spark.conf.isModifiable(name):
            raise Conflict(
                "a Spark session with other settings runs in this process: stop it first",
                setting=name, running=now, asked=text,
            )  # fmt: skip
        spark.conf.set(name, text)


# ---- a session of our own -----------------------------------------------------------------------


def _start(given: dict[str, str], memory: str | None) -> SparkSession:
    """Start Java if none runs, see what was decided, and fill in the rest."""
    from pyspark import SparkConf, SparkContext

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    try:
        with _environment(submitted):
            if not submitted and SparkContext._gateway is None:
                _start_java(given, memory)
            SparkContext._ensure_initialized()
            decided = {"spark.master": "local[*]", **dict(SparkConf().getAll()), **given}
            settings = _settings(decided, memory) | given
            spark: SparkSession = _pyspark().builder.config(map=settings).getOrCreate()
    except Exception as error:
        if not is_spark(error):
            raise
        raise Unavailable(
            "Spark did not start; what Java said stands above",
            master=given.get("spark.master"), error=str(error).splitlines()[0],
        ) from error  # fmt: skip
    if not _is_local(decided["spark.master"]):
        _ship(spark, decided)
    return spark


def _start_java(given: Mapping[str, str], memory: str | None) -> None:
    """Start Spark's Java with what was asked for; it reads what else was decided."""
    from pyspark import SparkConf, SparkContext

    find_java()
    conf = SparkConf(loadDefaults=False).setAll(list(given.items()))
    if _is_local(given.get("spark.master", "local[*]")):
        if memory is not None:
            conf.set("spark.driver.memory", memory)
        if not any(name in os.environ for name in _SET_UP):
            # Spark asks these two last: whatever else says the same wins.
            os.environ.setdefault("SPARK_DRIVER_MEMORY", _memory_text())
            os.environ["SPARK_SUBMIT_OPTS"] = _java_options(given)
            conf.setIfMissing("spark.ui.showConsoleProgress", "false")  # spark-submit says true
    SparkContext._ensure_initialized(conf=conf)


def _java_options(given: Mapping[str, str]) -> str:
    # A deep plan, or a query stopped inside foreachBatch, needs more stack than Java's own.
    options = ["-Xss8m"]
    if "GC" not in given.get("spark.driver.extraJavaOptions", ""):
        options.append("-XX:+UseParallelGC")  # Java shares its cores with Python's workers
    if _LOGS.is_file():  # not in a zip
        options.append(f"-Dlog4j2.configurationFile={_LOGS.as_uri()}")
    return " ".join(options)


def _settings(decided: Mapping[str, str], memory: str | None) -> dict[str, str]:
    """What nobody has decided, and the memory that was asked for."""
    master = decided["spark.master"]
    wanted = {"spark.master": master} | _ALWAYS
    if _is_local(master):
        wanted |= _LOCAL | {"spark.sql.shuffle.partitions": str(_tasks(master))}
        if "SPARK_LOCAL_IP" not in os.environ:
            wanted |= _LOOPBACK
    wanted = {name: text for name, text in wanted.items() if name not in decided}
    if decided.get("spark.app.name", "pyspark-shell") == "pyspark-shell":  # that is nobody's name
        wanted["spark.app.name"] = "tideline"
    if memory is not None:
        name = _memory_of(master)
        if _is_local(master) and decided.get(name) != memory:
            raise Conflict(
                "Java runs in this process with other memory, and stays until the process ends",
                running=decided.get(name), asked=memory,
            )  # fmt: skip
        wanted[name] = memory
    return wanted


def _ship(spark: SparkSession, decided: Mapping[str, str]) -> None:
    """Hand this package to the executors, unless whoever set the session up has seen to it."""
    if "spark.archives" in decided or "tideline" in decided.get("spark.submit.pyFiles", ""):
        return
    from tideline.spark.shipping import pack  # loads the kernels

    _sent.append(tempfile.TemporaryDirectory(prefix="tideline-spark-"))
    spark.sparkContext.addPyFile(str(pack(Path(_sent[-1].name) / "tideline.zip")))


@contextlib.contextmanager
def _environment(submitted: bool) -> Iterator[None]:
    """What Java and the workers it starts inherit; all is put back afterwards."""
    before = dict(os.environ)
    if not submitted:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        paths = [str(_SOURCE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _memory_of(master: str) -> str:
    """The setting of the memory of what runs tasks."""
    return "spark.driver.memory" if _is_local(master) else "spark.executor.memory"


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
