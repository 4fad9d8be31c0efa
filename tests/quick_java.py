"""A Java for the tests that starts Spark with a third of the work: `python tests/quick_java.py`.

    <cache>/tideline-peers/java-<what it was made of>/bin/java    the Java there is, with options
                                                     spark.jsa    an archive of the classes of Spark

Some thirty processes of Java are started by the tests, each for seconds. Most of what one does is
to read and check Spark's classes and to compile them well. So the classes come from an archive
(class data sharing), made once on a machine by a small application, and they are compiled once,
quickly. Without it the tests run as well, but slower: `java_home` is None, or the Java that was
made the archive with is another one, and then it is not looked at.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

_LEAN = "-XX:TieredStopAtLevel=1"
_JAVA = """\
#!/bin/sh
exec '{java}' {options} "$@"
"""


def java_home() -> Path | None:
    """What JAVA_HOME is to be for the tests; None before `make_it`."""
    folder = _folder()
    return folder if folder is not None and (folder / "bin" / "java").exists() else None


def make_it() -> None:
    """Run the application below with a Java that archives what it loads."""
    folder = _folder()
    if folder is None or java_home() is not None:
        return
    print("tideline: archiving Spark's classes, once on this machine", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="java-") as name:
        new = Path(name) / "home"
        _write(new, f"{_LEAN} -XX:ArchiveClassesAtExit='{new}/spark.jsa' -Xlog:disable")
        source = Path(__file__).resolve().parents[1] / "src"
        done = subprocess.run(
            [sys.executable, __file__, "application"], capture_output=True, text=True,
            env={**os.environ, "JAVA_HOME": str(new), "PYTHONPATH": str(source)},
        )  # fmt: skip
        if done.returncode or not (new / "spark.jsa").exists():
            print(f"tideline: no archive of Spark's classes: {done.stderr[-2_000:]}")
            return
        _write(new, f"{_LEAN} -XX:SharedArchiveFile='{folder}/spark.jsa' -Xlog:cds=off "
                    "-Xlog:cds+dynamic=off")  # fmt: skip
        new.rename(folder)


def _folder() -> Path | None:
    """By the Java that Spark would choose, and by Spark."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "/nowhere/java")
    jars = _spark_jars()
    if not java.exists() or jars is None or not sys.platform.startswith("linux"):
        return None
    java = java.resolve()
    facts = (str(java), java.stat().st_mtime_ns, str(jars), jars.stat().st_mtime_ns)
    name = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "tideline-peers" / f"java-{name}"


def _spark_jars() -> Path | None:
    from importlib.util import find_spec

    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    jars = Path(found.origin).parent / "jars"
    return jars if jars.is_dir() else None


def _write(home: Path, options: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("JAVA_HOME")
    real = Path(given, "bin", "java") if given else Path(shutil.which("java") or "")
    java.write_text(_JAVA.format(java=real.resolve(), options=options), encoding="utf-8")
    java.chmod(stat.S_IRWXU)


# ---- what is archived -----------------------------------------------------------------------


def application() -> None:
    """What the tests do with Spark, in small: rows to workers, files, a stream with state."""
    from spark_session import SETTINGS, end_java

    from tideline.spark import session

    with tempfile.TemporaryDirectory() as name:
        spark = session(master="local[2]", memory="1g", tmp=name, config=SETTINGS)
        rows = spark.range(100).selectExpr("id", "id % 7 k", "timestamp_seconds(id) at")
        rows.write.parquet(f"{name}/rows")
        rows.selectExpr("to_json(struct(*)) value").write.text(f"{name}/texts")
        spark.read.schema("id long, k long").json(f"{name}/texts").groupBy("k").count().collect()
        spark.read.parquet(f"{name}/rows").mapInArrow(lambda each: each, rows.schema).collect()
        stream = spark.readStream.schema(rows.schema).parquet(f"{name}/rows")
        query = (
            stream.withWatermark("at", "1 second").dropDuplicates(["k", "at"])
            .writeStream.foreachBatch(lambda batch, _: batch.collect())
            .option("checkpointLocation", f"{name}/checkpoint").trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        spark.stop()
        end_java()


if __name__ == "__main__":
    if sys.argv[1:] == ["application"]:
        application()
    else:
        make_it()
