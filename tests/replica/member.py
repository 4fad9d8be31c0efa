"""One node as a process of its own: `python member.py SETTINGS`, with JSON lines in and out.

    in    {"id": 7, "do": "call", "kind": "append", "key": 0, "word": 12}
    out   {"id": 7, "ok": ...} or {"id": 7, "error": "NotLeader", "text": ..., "leader": 2}

Its machine keeps lists of words by key (histories.py), and the order of all words. Each request has
a thread of its own, so that many wait at once. The first line out is {"ready": address}.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tideline.errors import TidelineError
from tideline.replica import TLS, Entry, Mark, Node, NotLeader, Options

State = dict[int, tuple[int, ...]]


class Lists:
    """The machine."""

    def __init__(self) -> None:
        self.state: State = {}
        self.order: list[int] = []
        self.index = 0

    def apply(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.index <= self.index:
                os._exit(70)  # applied twice: the test sees a node that died by itself
            key, kind, word, _ = json.loads(entry.value)
            old = self.state.get(key, ())
            self.state[key] = (word,) if kind == "put" else (*old, word)
            self.order.append(word)
            self.index = entry.index

    def snapshot(self) -> bytes:
        return json.dumps([self.index, self.order, list(self.state.items())]).encode()

    def install(self, mark: Mark, state: bytes) -> None:
        index, self.order, found = json.loads(state)
        if index > mark.index:
            os._exit(71)
        self.index = mark.index
        self.state = {key: tuple(words) for key, words in found}

    def role(self, leads: bool, leader: int | None) -> None:
        pass


def answer(node: Node, machine: Lists, what: dict[str, Any]) -> Any:
    """Do what is asked."""
    wait_s = what.get("wait_s", 5.0)
    match what["do"]:
        case "call" if what["kind"] == "read":
            node.read_index(wait_s)
            return machine.state.get(what["key"], ())
        case "call":
            parts = (what["key"], what["kind"], what["word"], "x" * what.get("pad", 0))
            proposal = node.propose([json.dumps(parts).encode()])
            proposal.wait(wait_s)
            return proposal.index
        case "look":  # a local read, with how stale it may be: that is asked for first
            stale_s = node.stale_s()
            return stale_s, list(machine.order)
        case "order":
            return machine.order
        case "status":
            return node.status()
        case "add":
            return node.add(what["node"]).wait(wait_s)
        case "remove":
            return node.remove(what["node"]).wait(wait_s)
        case "close":
            node.close()
            return None
    raise ValueError(what)


def main(settings: dict[str, Any]) -> None:
    machine = Lists()
    tls = settings.get("tls")
    node = Node(
        Path(settings["folder"]), cluster="storm", node=settings["node"],
        listen=tuple(settings["listen"]),
        peers={int(n): tuple(at) for n, at in settings["peers"].items()},
        secret=settings["secret"].encode(), machines=[machine], tls=TLS(**tls) if tls else None,
        options=Options(), tick_s=settings["tick_s"], compact_bytes=settings["compact_bytes"],
        durability=settings["durability"],
    )  # fmt: skip
    node.start()
    lock = threading.Lock()

    def say(what: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(what) + "\n")
            sys.stdout.flush()

    def serve(what: dict[str, Any]) -> None:
        try:
            say({"id": what["id"], "ok": answer(node, machine, what)})
        except TidelineError as error:
            leader = error.leader if isinstance(error, NotLeader) else None
            say({"id": what["id"], "error": type(error).__name__, "text": str(error),
                 "leader": leader})  # fmt: skip

    say({"ready": list(node.address)})
    with ThreadPoolExecutor(16) as pool:
        for line in sys.stdin:
            pool.submit(serve, json.loads(line))
    node.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
