"""One node of pysyncobj with a dictionary of texts: a process that replicated.py starts and asks.

    python syncobj_node.py ME OTHERS JOURNAL as-it-comes|synced     (addresses as HOST:PORT, commas)

Reads a line of JSON and answers with one:

    ["leads"]                       whether this node leads, and all others are connected to it
    ["single", count]               so many puts, one after the other: seconds of each
    ["many", threads, each]         puts by threads, each waiting for its own: seconds of all
    ["batches", count, size]        so many calls that put so many texts each: seconds of all
    ["held"]                        how many texts this node has, and whether each is right

pysyncobj 0.3 writes its journal to a mapped file and never syncs it: what a power cut leaves of an
acknowledged put is not said. `synced` gives it what the others have: a node's journal is on disk
before the node sends any message. Batching in its messages is off (`appendEntriesUseBatch`), which
its documentation advises for single requests; with it a put waits for the next tick, of 50 ms.
`many` switches it on, with ticks of 1 ms: that was the faster way where the journal is synced.
Elections have longer times than its own, so that a busy disk does not cause one.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pysyncobj
from pysyncobj import syncobj, transport
from pysyncobj.journal import FileJournal

TEXT = "x" * 200
_TIMEOUT_S = 60


class SyncedJournal(FileJournal):
    """A journal that knows whether something in it is not on disk."""

    opened: SyncedJournal
    _dirty = False

    def __init__(self, file: str) -> None:
        super().__init__(file)
        SyncedJournal.opened = self

    def add(self, command: Any, idx: int, term: int) -> None:
        super().add(command, idx, term)
        self._dirty = True

    def sync(self) -> None:
        if self._dirty:
            self._dirty = False
            self.flush()


class SyncedTransport(transport.TCPTransport):
    """Sends nothing that the journal does not have on disk."""

    def send(self, node: Any, message: Any) -> Any:
        SyncedJournal.opened.sync()
        return super().send(node, message)


class Texts(pysyncobj.SyncObj):
    """The dictionary."""

    def __init__(self, me: str, others: list[str], journal: str, synced: bool) -> None:
        self.values: dict[int, str] = {}
        self._next = 0
        self._lock = threading.Lock()
        if synced:
            syncobj.createJournal = SyncedJournal
        self._settings = pysyncobj.SyncObjConf(
            journalFile=journal, appendEntriesUseBatch=False, connectionRetryTime=0.2,
            raftMinTimeout=2.0, raftMaxTimeout=4.0, connectionTimeout=10.0,
            logCompactionMinEntries=10**9, logCompactionMinTime=10**9,
        )  # fmt: skip
        kind = SyncedTransport if synced else transport.TCPTransport
        super().__init__(me, others, self._settings, transportClass=kind)

    @pysyncobj.replicated
    def put_many(self, rows: list[tuple[int, str]]) -> None:
        self.values.update(rows)

    def write(self, count: int) -> None:
        """Put new texts, and wait until they are replicated."""
        with self._lock:
            first = self._next
            self._next += count
        rows = [(number, TEXT) for number in range(first, first + count)]
        self.put_many(rows, sync=True, timeout=_TIMEOUT_S)

    def single(self, count: int) -> list[float]:
        took = []
        for _ in range(count):
            begun = time.perf_counter()
            self.write(1)
            took.append(time.perf_counter() - begun)
        return took

    def many(self, threads: int, each: int) -> float:
        def run() -> None:
            for _ in range(each):
                self.write(1)

        self._batch(True)
        begun = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            for each_of in [pool.submit(run) for _ in range(threads)]:
                each_of.result()
        took = time.perf_counter() - begun
        self._batch(False)
        return took

    def _batch(self, on: bool) -> None:
        settings = self._settings
        settings.autoTickPeriod = settings.appendEntriesPeriod = 0.001 if on else 0.05
        settings.appendEntriesUseBatch = on

    def batches(self, count: int, size: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            self.write(size)
        return time.perf_counter() - begun

    def held(self) -> tuple[int, bool]:
        values = dict(self.values)
        right = sorted(values) == list(range(len(values)))
        return len(values), right and all(text == TEXT for text in values.values())

    def leads(self) -> bool:
        others = [self.isNodeConnected(node) for node in self.otherNodes]
        return bool(self.isReady()) and self._isLeader() and all(others)


def main() -> None:
    """Answer lines until there are no more."""
    me, others, journal, how = sys.argv[1:]
    logging.disable(
        logging.CRITICAL
    )  # it says so when a repeated message holds what is there already
    node = Texts(me, others.split(","), journal, how == "synced")
    verbs = {verb: getattr(node, verb) for verb in ("leads", "single", "many", "batches", "held")}
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        print(json.dumps(verbs[verb](*arguments)), flush=True)


if __name__ == "__main__":
    main()
