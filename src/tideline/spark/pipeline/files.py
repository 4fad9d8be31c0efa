"""Small files on any path that Spark can reach: `file:`, `hdfs:`, `s3a:`, a plain folder.

    folder = folder_of(spark, "s3a://bucket/checkpoint")
    folder.write("batches/12.json", "{}")
    folder.names("batches")          ["12.json"]

Through Hadoop's file systems, with the settings and keys that Spark has. Under Spark Connect there
is no way to these but frames: a file is then a folder of Spark's with one line, and nothing can be
removed (`remove` says so).
"""

from __future__ import annotations

from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

__all__ = ["Folder", "folder_of", "is_connect"]


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect: there is no Java in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def folder_of(spark: SparkSession, path: str) -> Folder:
    """A folder, made by its first file."""
    return FolderOfFrames(spark, path) if is_connect(spark) else Folder(spark, path)


class Folder:
    """A folder of Hadoop's file systems, as the session has them."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._java: Any = spark._jvm
        self._settings = spark._jsparkSession.sessionState().newHadoopConf()

    def read(self, name: str) -> str | None:
        """The text of a file; None when there is none."""
        system, where = self._open(name)
        if not system.exists(where):
            return None
        stream = system.open(where)
        try:
            data = bytes(self._java.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
        return data.decode()

    def write(self, name: str, text: str) -> None:
        """Put a file there, in the place of an older one."""
        system, where = self._open(name)
        half = where.suffix(".half")
        stream = system.create(half, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        system.delete(where, True)
        system.rename(half, where)

    def names(self, folder: str) -> list[str]:
        """The names in a folder below; none when it is not there."""
        system, where = self._open(folder)
        if not system.exists(where):
            return []
        return sorted(found.getPath().getName() for found in system.listStatus(where))

    def has(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        system, where = self._open(name)
        return bool(system.exists(where))

    def remove(self, name: str) -> bool:
        """Remove a file or folder; False where that cannot be done."""
        system, where = self._open(name)
        system.delete(where, True)
        return True

    def _open(self, name: str) -> tuple[Any, Any]:
        where = self._java.org.apache.hadoop.fs.Path(f"{self.path}/{name}")
        return where.getFileSystem(self._settings), where


class FolderOfFrames(Folder):
    """A folder that is reached by frames alone."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._spark = spark

    def read(self, name: str) -> str | None:
        try:
            rows = self._spark.read.text(f"{self.path}/{name}", wholetext=True).collect()
        except AnalysisException:
            return None
        return "".join(row[0] for row in rows)

    def write(self, name: str, text: str) -> None:
        frame = self._spark.createDataFrame([(text,)], "value string").coalesce(1)
        frame.write.mode("overwrite").text(f"{self.path}/{name}")

    def names(self, folder: str) -> list[str]:
        files = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            paths = files.load(f"{self.path}/{folder}").select("path").collect()
        except AnalysisException:
            return []
        inner = f"/{folder}/"
        return sorted({row[0].rpartition(inner)[2].split("/")[0] for row in paths})

    def has(self, name: str) -> bool:
        return bool(self.names(name)) or self.read(name) is not None

    def remove(self, name: str) -> bool:
        return False
