"""Small files on any path that Spark can reach: `file:`, `hdfs:`, `s3a:`, a plain folder.

    folder = Folder(spark, "s3a://bucket/checkpoint")
    folder.write("batches/12.json", "{}")
    folder.names("batches")          ["12.json"]

Through Hadoop's file systems, with the settings and keys that Spark has. Under Spark Connect there
is no way to these but frames: a file is then a folder of Spark's with one line, and nothing can be
removed (`remove` says so).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Folder", "is_connect"]


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect: there is no Java in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class Folder:
    """A folder, made by its first file."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._spark = spark
        self._files: Any = None if is_connect(spark) else _Hadoop(spark)

    def read(self, name: str) -> str | None:
        """The text of a file; None when there is none."""
        if self._files is not None:
            text: str | None = self._files.read(self._at(name))
            return text
        from pyspark.errors import AnalysisException

        try:
            rows = self._spark.read.text(self._at(name), wholetext=True).collect()
        except AnalysisException:
            return None
        return "".join(row[0] for row in rows)

    def write(self, name: str, text: str) -> None:
        """Put a file there, in the place of an older one."""
        if self._files is not None:
            self._files.write(self._at(name), text)
            return
        frame = self._spark.createDataFrame([(text,)], "value string").coalesce(1)
        frame.write.mode("overwrite").text(self._at(name))

    def names(self, folder: str) -> list[str]:
        """The names in a folder below; none when it is not there."""
        if self._files is not None:
            found: list[str] = self._files.names(self._at(folder))
            return found
        from pyspark.errors import AnalysisException

        files = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            paths = files.load(self._at(folder)).select("path").collect()
        except AnalysisException:
            return []
        inner = f"/{folder}/"
        return sorted({row[0].rpartition(inner)[2].split("/")[0] for row in paths})

    def has(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        if self._files is not None:
            return bool(self._files.has(self._at(name)))
        return bool(self.names(name)) or self.read(name) is not None

    def remove(self, name: str) -> bool:
        """Remove a file or folder; False where that cannot be done."""
        if self._files is None:
            return False
        self._files.remove(self._at(name))
        return True

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"


class _Hadoop:
    """Hadoop's file systems, as the session has them."""

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm
        self._settings = spark._jsparkSession.sessionState().newHadoopConf()

    def _open(self, path: str) -> tuple[Any, Any]:
        where = self._java.org.apache.hadoop.fs.Path(path)
        return where.getFileSystem(self._settings), where

    def has(self, path: str) -> bool:
        system, where = self._open(path)
        return bool(system.exists(where))

    def read(self, path: str) -> str | None:
        system, where = self._open(path)
        if not system.exists(where):
            return None
        stream = system.open(where)
        try:
            data = bytes(self._java.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
        return data.decode()

    def write(self, path: str, text: str) -> None:
        system, where = self._open(path)
        half = where.suffix(".half")
        stream = system.create(half, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        system.delete(where, True)
        system.rename(half, where)

    def names(self, path: str) -> list[str]:
        system, where = self._open(path)
        if not system.exists(where):
            return []
        return sorted(found.getPath().getName() for found in system.listStatus(where))

    def remove(self, path: str) -> None:
        system, where = self._open(path)
        system.delete(where, True)
