"""The routes that show a store from inside: what it is doing, how big it is, what it is made of.

    GET  store                        every channel, collection and window in a line; the process
    GET  channels/C/components        indexes with their components, memory, log, seals and merges
    GET  collections/C/components, windows/W/components     the same

Scope `read`. A token sees what it may read in full: collections and windows not when it is bound to
a user or has rows; the figures of the process only when it may read everything, too.

No file of data is read, and no lock taken but a channel's for a moment, to count the rows of its
memory. The list is made at most four times a second, however many ask, and not when nobody does.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import tideline
from tideline.clock import SECOND
from tideline.errors import Closed
from tideline.lsm.dataset import Dataset
from tideline.lsm.history import Deed
from tideline.server.access import Caller
from tideline.server.collection_verbs import collection_of
from tideline.server.hub import Hub
from tideline.server.ops import ANY, Call, Op
from tideline.server.refusals import Refused
from tideline.server.shapes import time_text
from tideline.server.windows import window_of

__all__ = ["OPS"]

_KEEP_S = 0.25
_LAST = 40  # seals and merges of all datasets, in the list


class DeedOut(msgspec.Struct, kw_only=True):
    """A seal, merge or move: what went in, what came out. One that is not done has number 0."""

    dataset: str
    kind: str
    number: int
    what: str
    trees: list[str]
    inputs: int
    bytes_in: int
    components: int
    rows: int
    size_bytes: int
    level: int
    took_s: float
    ago_s: float


class DatasetOut(msgspec.Struct, kw_only=True):
    """A channel, collection or window in a line."""

    kind: str
    name: str
    indexes: int
    components: int
    bytes_memory: int
    bytes_disk: int
    bytes_log: int
    bytes_recovery: int
    """Of the log, what a start would read."""
    written_bytes: int
    """Of components, since it was opened."""
    waiting: int
    """Frozen memories that wait to be sealed, or are being."""
    seals: int
    merges: int
    doing: list[DeedOut]


class ProcessOut(msgspec.Struct, kw_only=True):
    """The process that serves, and the disk it writes to."""

    uptime_s: float
    cpu_s: float
    threads: int
    bytes_resident: int | None
    open_files: int | None
    most_files: int
    memory_limit_bytes: int
    """What memories of all channels, collections and windows may have together."""
    disk_free_bytes: int
    connections: int
    messages_waiting: int
    requests: int
    refused: int
    delivered: int
    slow_readers: int


class StoreOut(msgspec.Struct, kw_only=True):
    """A whole store; `process` is null for who may not read everything."""

    at: str | None
    version: str
    durability: str
    in_memory: bool
    datasets: list[DatasetOut]
    done: list[DeedOut]
    process: ProcessOut | None


class ComponentOut(msgspec.Struct, kw_only=True):
    """A component: `made` is when its file was written."""

    name: str
    level: int
    rows: int
    size_bytes: int
    made: str | None


class TreeOut(msgspec.Struct, kw_only=True):
    """An index on disk: its components, oldest first, and the policy over them."""

    name: str
    kind: str
    policy: str
    components: list[ComponentOut]


class MemoryOut(msgspec.Struct, kw_only=True):
    """A memory that takes writes, or is frozen and waits to be sealed."""

    name: str
    rows: int
    size_bytes: int
    frozen: bool


class InsideOut(msgspec.Struct, kw_only=True):
    """A dataset from inside."""

    dataset: DatasetOut
    trees: list[TreeOut]
    memory: list[MemoryOut]
    done: list[DeedOut]


# ---- a channel, a collection, a window ----------------------------------------------------------


class _Source:
    """One open channel, collection or window, as it is read here."""

    def __init__(self, kind: str, name: str, thing: Any) -> None:
        self.kind = kind
        self.name = name
        self.engine = thing.core.engine if kind == "channel" else thing._engine

    @property
    def dataset(self) -> Dataset:
        """Its files."""
        holder = self.engine.parts if self.kind == "channel" else self.engine
        found: Dataset = holder.dataset
        return found

    def memories(self) -> list[MemoryOut]:
        """Its memories, one by one."""
        engine, found = self.engine, []
        if self.kind == "channel":
            with engine.lock:
                for side in engine.sides:
                    rows = sum(each.subs + each.events for each in side.memory.windows())
                    found.append((f"windows of {side.tree.name}", rows, side.memory, False))
        elif self.kind == "collection":
            found = [
                ("generation", each.records.rows, each, each is not engine.active)
                for each in [engine.active, *engine.frozen]
            ]
        else:
            state = engine.state
            for pane, sub in sorted(state.subs.items()):
                closed = pane < state.pane
                name = "closed sub-window" if closed else "open sub-window"
                if sub.memory_bytes:
                    found.append((name, sub.rows, sub, closed))
        return [
            MemoryOut(name=name, rows=int(rows), size_bytes=_size(memory), frozen=frozen)
            for name, rows, memory, frozen in found
        ]

    def facts(self) -> DatasetOut:
        """It in a line."""
        engine, dataset, store = self.engine, self.dataset, self.dataset.store
        trees = list(store.trees)
        if self.kind == "channel":
            memory = sum(_size(side.memory) for side in engine.sides)
        elif self.kind == "collection":
            memory = sum(_size(each) for each in [engine.active, *engine.frozen])
        else:
            memory = int(engine.memory_bytes)
        return DatasetOut(
            kind=self.kind, name=self.name, indexes=len(trees),
            components=sum(len(tree.readers) for tree in trees),
            bytes_memory=memory, bytes_disk=store.size_bytes,
            bytes_log=store.log.size_bytes, bytes_recovery=store.log.size_from(store.first_log),
            written_bytes=sum(dict(dataset.written_bytes).values()), waiting=len(dataset.frozen),
            seals=dataset.history.seals, merges=dataset.history.merges,
            doing=self.deeds(dataset.history.now),
        )  # fmt: skip

    def deeds(self, found: list[Deed]) -> list[DeedOut]:
        """Seals and merges as they are told."""
        now = time.monotonic()
        told = []
        for deed in found:
            took_s = deed.took_s if deed.number else now - deed.began_s
            told.append(DeedOut(
                dataset=self.name, kind=self.kind, number=deed.number, what=deed.what,
                trees=list(deed.trees), inputs=deed.inputs, bytes_in=deed.bytes_in,
                components=deed.components, rows=deed.rows, size_bytes=deed.size_bytes,
                level=deed.level, took_s=round(took_s, 6),
                ago_s=round(max(0.0, now - deed.began_s - took_s), 3),
            ))  # fmt: skip
        return told

    def inside(self) -> InsideOut:
        """Everything about it."""
        trees = [
            TreeOut(
                name=tree.name, kind=str(tree.kind.name),
                policy=type(tree.policy).__name__.lower(),
                components=[_component(tree.folder, info) for info in tree.infos],
            )
            for tree in list(self.dataset.store.trees)
        ]  # fmt: skip
        done = self.deeds(self.dataset.history.done)[::-1]
        return InsideOut(dataset=self.facts(), trees=trees, memory=self.memories(), done=done)


def _size(memory: Any) -> int:
    return int(memory.memory_bytes if hasattr(memory, "memory_bytes") else memory.size_bytes)


def _component(folder: Path, info: Any) -> ComponentOut:
    made = None
    with contextlib.suppress(OSError):  # merged away meanwhile
        made = time_text(int((folder / info.name).stat().st_mtime * SECOND))
    return ComponentOut(
        name=info.name, level=info.level, rows=info.rows, size_bytes=info.size_bytes, made=made
    )


async def channel_components(call: Call) -> InsideOut:
    return await _inside(call, "channel", call.channel)


async def collection_components(call: Call) -> InsideOut:
    call.caller.need_whole(call.names["collection"])
    return await _inside(call, "collection", collection_of(call))


async def window_components(call: Call) -> InsideOut:
    return await _inside(call, "window", window_of(call.hub, call.caller, call.names["window"]))


async def _inside(call: Call, kind: str, thing: Any) -> InsideOut:
    return await call.hub.in_thread(_Source(kind, call.names[kind], thing).inside)


# ---- the list -----------------------------------------------------------------------------------

_LOOKING = threading.Lock()


async def store_inside(call: Call) -> StoreOut:
    seen = await call.hub.in_thread(_look, call.hub)
    caller = call.caller
    readable = {
        (each.kind, each.name) for each in seen.datasets if _may_read(caller, each.kind, each.name)
    }
    whole = caller.may("read", None) and caller.sees_all
    return StoreOut(
        at=seen.at, version=seen.version, durability=seen.durability, in_memory=seen.in_memory,
        datasets=[each for each in seen.datasets if (each.kind, each.name) in readable],
        done=[each for each in seen.done if (each.kind, each.dataset) in readable][:_LAST],
        process=seen.process if whole else None,
    )  # fmt: skip


def _may_read(caller: Caller, kind: str, name: str) -> bool:
    if not caller.may("read", name):
        return False
    with contextlib.suppress(Refused):
        if kind != "channel":
            caller.need_whole(name)
        return True
    return False


def _look(hub: Hub) -> StoreOut:
    """The whole store, as it is or was a moment ago."""
    with _LOOKING:
        if hub.seen_inside is not None and time.monotonic() - hub.seen_inside[0] < _KEEP_S:
            before: StoreOut = hub.seen_inside[1]
            return before
        datasets: list[DatasetOut] = []
        done: list[DeedOut] = []
        for source in _sources(hub.db):
            with contextlib.suppress(Closed):  # dropped meanwhile
                datasets.append(source.facts())
                done += source.deeds(source.dataset.history.done)
        found = StoreOut(
            at=time_text(hub.db.clock.now()), version=tideline.__version__,
            durability=hub.db._durability, in_memory=hub.db._temporary is not None,
            datasets=datasets, done=sorted(done, key=lambda deed: deed.ago_s),
            process=_process(hub),
        )  # fmt: skip
        hub.seen_inside = time.monotonic(), found
        return found


def _sources(db: Any) -> Iterator[_Source]:
    every = (("channel", db._open), ("collection", db._collections), ("window", db._windows))
    for kind, things in every:
        for name, thing in sorted(things.items()):
            yield _Source(kind, name, thing)


def _process(hub: Hub) -> ProcessOut:
    metrics = hub.metrics
    requests = dict(metrics.requests)
    used = resource.getrusage(resource.RUSAGE_SELF)
    waiting = [connection.waiting for connection in list(hub.connections)]
    return ProcessOut(
        uptime_s=round(time.monotonic() - hub.started_s, 3),
        cpu_s=round(used.ru_utime + used.ru_stime, 3), threads=threading.active_count(),
        bytes_resident=_resident(), open_files=_open_files(),
        most_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        memory_limit_bytes=hub.db._budget.size_bytes,
        disk_free_bytes=shutil.disk_usage(hub.db.path).free,
        connections=len(waiting), messages_waiting=sum(waiting),
        requests=sum(requests.values()),
        refused=sum(count for (_, _, status), count in requests.items() if status >= 400),
        delivered=metrics.delivered, slow_readers=metrics.slow,
    )  # fmt: skip


def _resident() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):  # where there is no /proc
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return None


def _open_files() -> int | None:
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return None


OPS = [
    Op("GET", "/v1/store", "What the store does and holds, as far as the token may read it.",
       store_inside, scope=ANY, gives=StoreOut),
    Op("GET", "/v1/channels/{channel}/components", "A channel from inside.", channel_components,
       scope="read", gives=InsideOut),
    Op("GET", "/v1/collections/{collection}/components", "A collection from inside.",
       collection_components, scope="read", gives=InsideOut),
    Op("GET", "/v1/windows/{window}/components", "A stream window from inside.",
       window_components, scope="read", gives=InsideOut),
]  # fmt: skip
