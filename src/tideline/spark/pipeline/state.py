"""The checkpoint of a pipeline: how far it is, kept so that a kill loses and doubles nothing.

    checkpoint/
      LOCK             held while the pipeline runs
      pipeline.json    whose checkpoint this is: name, source, channel, when it began
      spark/           Spark's own checkpoint: which rows belong to which batch
      queue/12/        a batch on its way into the store
        operations.arrow   what the store is given, row by row
        dead.arrow         rows that are dead already
        keys.arrow         what deduplication learned from it
        batch.json         its counts so far, the watermark after it
      keys/12.arrow    the keys of batches that are done, as long as they matter
      batches.jsonl    a line for each batch that is done, with its counts and the totals
      dead/batch=12/   dead letters, unless told elsewhere

A batch goes through two steps. *Queued*: its folder gets its name by one rename, and from then
on it is decided which of its rows are stored, dead, late or duplicates. *Done*: the store has
taken it, dead letters and archive are written, and its line is in batches.jsonl. A batch that
was queued but is not done is done again from its folder, never again from the source: so it
does not matter whether Spark would cut the same rows in the same order a second time.

Invariants:
1. Numbers rise by one. Every batch up to `queued` has its folder or its line.
2. A line's totals are those of the line before it plus its own counts.
3. The store has taken every batch up to `done`, and none after `queued`.

One process at a time (LOCK). `queue` is called by the thread that reads, `finish` by the one
that stores; what they share is on disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tideline.errors import Conflict, Corruption, InvalidRequest, Unavailable
from tideline.spark.pipeline.seen import Keys, read_keys, write_keys

__all__ = ["State", "write_atomically"]

FORMAT = 1
_KEEP_LINES = 1000


class State:
    """An open checkpoint; close it."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], started_us: int) -> None:
        self.folder = folder
        self.spark = folder / "spark"
        try:
            for name in ("queue", "keys"):
                (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidRequest(
                "the checkpoint is not a folder that can be used", checkpoint=str(folder),
                error=str(error),
            ) from None  # fmt: skip
        self._lock = self._own()
        self._newest_key: dict[Path, int] = {}
        try:
            self.started_us = self._recognise(identity, started_us)
            self._lines = self._read_lines()
            self.done: int = self._lines[-1]["batch"] if self._lines else -1
            self.totals: dict[str, int] = dict(self._lines[-1]["totals"]) if self._lines else {}
            self._sweep()
            self.queued = max([self.done, *self.waiting()])
            self._check_spark()
        except BaseException:
            self.close()
            raise

    # ---- batches ---------------------------------------------------------------------------

    def waiting(self) -> list[int]:
        """Batches that are queued but not done, in order."""
        return sorted(int(path.name) for path in (self.folder / "queue").iterdir()
                      if path.name.isdigit())  # fmt: skip

    def queue(
        self, number: int, operations: pa.Table, dead: pa.Table | None, keys: Keys | None,
        facts: Mapping[str, Any], *, sync: bool,
    ) -> None:  # fmt: skip
        """Put a batch in the queue: whole, or not at all."""
        assert number == self.queued + 1, (number, self.queued)
        half = self.folder / "queue" / f".{number}"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        _write_table(half / "operations.arrow", operations)
        if dead is not None:
            _write_table(half / "dead.arrow", dead)
        if keys is not None:
            write_keys(half / "keys.arrow", keys)
        text = json.dumps({**facts, "offsets": self.offsets_mark(number)})
        (half / "batch.json").write_text(text, encoding="utf-8")
        if sync:
            for path in half.iterdir():
                _sync(path)
        half.rename(self.folder / "queue" / str(number))
        if sync:
            _sync(self.folder / "queue")
        self.queued = number

    def load(self, number: int) -> tuple[pa.Table, pa.Table | None, dict[str, Any]]:
        """A batch of the queue: operations, dead letters, facts."""
        folder = self.folder / "queue" / str(number)
        dead = folder / "dead.arrow"
        letters = _read_table(dead) if dead.exists() else None
        return _read_table(folder / "operations.arrow"), letters, self.facts(number)

    def facts(self, number: int) -> dict[str, Any]:
        """What is known of a batch of the queue."""
        path = self.folder / "queue" / str(number) / "batch.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def finish(
        self, number: int, counts: Mapping[str, int], facts: Mapping[str, Any], *, sync: bool
    ) -> None:
        """A batch is done: write its line, then let its folder go."""
        totals = {name: self.totals.get(name, 0) + count for name, count in counts.items()}
        line = {"batch": number, **facts, "counts": dict(counts), "totals": totals}
        self._append(line, sync=sync)
        self.done, self.totals = number, totals
        self._let_go(self.folder / "queue" / str(number))

    def known_keys(self) -> list[Keys]:
        """The keys of the batches up to `queued`, as far as they are kept."""
        kept = sorted((self.folder / "keys").glob("*.arrow"), key=lambda path: int(path.stem))
        queued = [self.folder / "queue" / str(number) / "keys.arrow" for number in self.waiting()]
        found = [read_keys(path) for path in [*kept, *queued] if path.exists()]
        for path, keys in zip(kept, found, strict=False):
            self._newest_key[path] = int(keys[2].max()) if len(keys[2]) else 0
        return found

    def drop_keys(self, horizon: int) -> None:
        """Remove the files of keys whose every key is at or before a time."""
        for path in [path for path, newest in self._newest_key.items() if newest <= horizon]:
            path.unlink(missing_ok=True)
            del self._newest_key[path]

    @property
    def last(self) -> dict[str, Any]:
        """The facts of the last batch that was queued; empty before the first."""
        waiting = self.waiting()
        return self.facts(waiting[-1]) if waiting else (self._lines or [{}])[-1]

    @property
    def read(self) -> int:
        """How many rows the batches up to `queued` had."""
        waiting: list[int] = [self.facts(number)["read"] for number in self.waiting()]
        return self.totals.get("read", 0) + sum(waiting)

    def offsets_mark(self, number: int) -> int | None:
        """A checksum of what Spark wrote down about a batch before it ran; None if nothing."""
        try:
            return zlib.crc32((self.spark / "offsets" / str(number)).read_bytes())
        except OSError:
            return None

    def close(self) -> None:
        """Let the folder go."""
        os.close(self._lock)

    # ---- opening ------------------------------------------------------------------------------

    def _own(self) -> int:
        lock = os.open(self.folder / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(lock, 100).decode(errors="replace").strip()
            os.close(lock)
            raise Unavailable(
                "the pipeline runs already: its checkpoint is in use",
                checkpoint=str(self.folder), owner=owner,
            ) from None  # fmt: skip
        with contextlib.suppress(OSError):
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"pid {os.getpid()}\n".encode(), 0)
        return lock

    def _recognise(self, identity: Mapping[str, Any], started_us: int) -> int:
        """Whose checkpoint this is; a new one becomes ours. Returns when it began."""
        path = self.folder / "pipeline.json"
        if not path.exists():
            if self.spark.exists() or (self.folder / "offsets").exists():
                raise Conflict(
                    "this folder holds a checkpoint of Spark's that no pipeline made: "
                    "give run.checkpoint a folder of its own", checkpoint=str(self.folder),
                )  # fmt: skip
            self.fresh = True
            text = json.dumps({"format": FORMAT, **identity, "started_us": started_us}, indent=2)
            write_atomically(path, text.encode() + b"\n")
            return started_us
        self.fresh = False
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise Corruption("the checkpoint's pipeline.json is damaged", file=path) from None
        for name, value in identity.items():
            if stored.get(name) != value:
                raise Conflict(
                    f"the checkpoint belongs to another pipeline: its {name} is another. Put the "
                    f"{name} back, or start over with a new run.checkpoint and a new name",
                    checkpoint=str(self.folder), checkpoint_has=stored.get(name), config_has=value,
                )  # fmt: skip
        return int(stored["started_us"])

    def forget(self) -> None:
        """Undo the making of a checkpoint that turned out not to fit the store."""
        (self.folder / "pipeline.json").unlink(missing_ok=True)

    def _read_lines(self) -> list[dict[str, Any]]:
        path = self.folder / "batches.jsonl"
        if not path.exists():
            return []
        found: list[dict[str, Any]] = []
        texts = path.read_bytes().split(b"\n")
        for n, text in enumerate(texts[:-1]):  # a last line without its end was cut by a kill
            try:
                found.append(json.loads(text))
            except ValueError:
                raise Corruption("batches.jsonl is damaged", file=path, line=n + 1) from None
        if texts[-1]:
            self._write_lines(found)
        return found

    def _write_lines(self, found: list[dict[str, Any]]) -> None:
        """Start the file anew; the totals of the last line are those of all before it."""
        data = b"".join(json.dumps(line).encode() + b"\n" for line in found)
        write_atomically(self.folder / "batches.jsonl", data)

    def _append(self, line: dict[str, Any], *, sync: bool) -> None:
        with (self.folder / "batches.jsonl").open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            if sync:
                os.fsync(file.fileno())
        self._lines.append(line)
        if len(self._lines) > 2 * _KEEP_LINES:
            self._lines = self._lines[-_KEEP_LINES:]
            self._write_lines(self._lines)

    def _sweep(self) -> None:
        """Remove what a kill left: half a batch, or one whose line is written."""
        for path in (self.folder / "queue").iterdir():
            if not path.name.isdigit():
                shutil.rmtree(path, ignore_errors=True)
            elif int(path.name) <= self.done:
                self._let_go(path)

    def _let_go(self, folder: Path) -> None:
        """Remove the folder of a batch that is done; its keys stay for a while."""
        if (folder / "keys.arrow").exists():
            path = self.folder / "keys" / f"{folder.name}.arrow"
            os.replace(folder / "keys.arrow", path)
            times = read_keys(path)[2]
            self._newest_key[path] = int(times.max()) if len(times) else 0
        # Renamed first: a batch that is half removed must not look like one that waits.
        gone = folder.with_name(f".gone-{folder.name}")
        os.rename(folder, gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _check_spark(self) -> None:
        """Spark's part and ours must tell of the same batches."""
        mark = self.last.get("offsets")
        if mark is None:
            return  # nothing queued yet, or a source that Spark does not follow
        if self.offsets_mark(self.queued) != mark:
            raise Conflict(
                "Spark's part of the checkpoint is not the one this pipeline stopped with: it was "
                "removed, replaced or put back from an older copy. Put the whole folder back, or "
                "start over with a new run.checkpoint and a new name",
                checkpoint=str(self.folder), batch=self.queued,
            )  # fmt: skip


def write_atomically(path: Path, data: bytes) -> None:
    """A small file, whole or not at all."""
    half = path.with_name(f".{path.name}.half")
    half.write_bytes(data)
    os.replace(half, path)


def _write_table(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _read_table(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
        return reader.read_all()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
