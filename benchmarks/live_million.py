"""A million live queries on a hundred connections, while much is written: how late is a change?

    python benchmarks/live.py --only million

Queries are mixed as in live_matching.py, and so spread that a write concerns about one of them.
100,000 documents are updated at a rate. A server, a writer, and a reader that holds all the
queries are processes of their own. Then the same with a process beside that registers queries and
cancels them, and then that one alone. Latency is from when an update was due until the reader has
it; the memory is the server's, all that a query takes there. Where late changes were late is in
docs/decisions/0088.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import numpy as np
import psutil

from benchmarks import common, live_load
from benchmarks.common import say
from benchmarks.live_matching import METRES, mixed, rows
from benchmarks.server_processes import Usage, ask, child
from tideline.live.notes import REMOVE

__all__ = ["SIZES", "documents", "measure", "queries", "told"]

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"queries": 2_000, "connections": 4, "rate": 500, "seconds": 1.0, "documents": 1_000,
             "churn": 200},
    "small": {"queries": 100_000, "connections": 100, "rate": 10_000, "seconds": 20.0,
              "documents": 100_000, "churn": 10_000},
    "full": {"queries": 1_000_000, "connections": 100, "rate": 10_000, "seconds": 60.0,
             "documents": 100_000, "churn": 10_000},
}  # fmt: skip
_PIECE = 50_000
_WARM = 1_000  # queries before memory is measured
_FEW = 10_000  # queries, for which what is told is found out in another way, too


def spread_of(count: int) -> float:
    """So that a document concerns about one of so many queries."""
    return 26e-6 * count


def queries(count: int, spread: float, seed: int) -> Iterator[bytes]:
    """Conditions as JSON, a piece at a time."""
    random = np.random.default_rng(seed)
    for first in range(0, count, _PIECE):
        for where in mixed(min(_PIECE, count - first), random, spread):
            yield msgspec.json.encode(where)


def documents(count: int, spread: float) -> Callable[[int, int], bytes]:
    """What makes the first `count` documents, and their updates: a price or a place moves."""
    base = rows(count, np.random.default_rng(3), spread).tolist()

    def make(number: int, due_ns: int) -> bytes:
        key = number if number < count else number * 7_919 % count
        _, user, product, category, price, rating, x, y, f8, f9 = base[key]
        step = (number * 2_654_435_761 >> 7) & 0xFFF
        if key % 5 < 3:
            price = min(max(price + step - 2_000, 0), 99_999)
        else:
            x, y = x + step % 100 - 50, y + (step >> 4) % 100 - 50
        return (
            b'{"t":%d,"n":%d,"id":%d,"user":%d,"product":%d,"category":%d,"price":%d,'
            b'"rating":%d,"at":[%.7f,%.7f],"f8":%d,"f9":%d}'
            % (due_ns, number, key, user, product, category, price, rating, x * METRES,
               y * METRES, f8, f9)
        )  # fmt: skip

    return make


def told(count: int, spread: float, stored: int, first: int, writes: int) -> int:
    """How many adds and changes the writes [first, first + writes) are, without a server."""
    from tideline.index.texts import Texts
    from tideline.standing import Standing
    from tideline.where import parse

    standing = Standing()
    for where in (*queries(_WARM, spread, 4), *queries(count - _WARM, spread, 5)):
        standing.add(parse(msgspec.json.decode(where)))
    make = documents(stored, spread)
    now: dict[int, bytes] = {}
    old, new = [], []
    for number in range(first + writes):
        document = make(number, 0)
        key = msgspec.json.decode(document)["id"]
        if number >= first:
            old.append(now[key])
            new.append(document)
        now[key] = document
    kinds = standing.changes(Texts.of(old), Texts.of(new))[2]
    return int((kinds != REMOVE).sum())


def _memory(pid: int) -> int:
    return int(psutil.Process(pid).memory_full_info().uss)


def measure(size: str) -> dict[str, Any]:
    """Everything, one after the other."""
    given = SIZES[size]
    count, stored, rate = given["queries"], given["documents"], given["rate"]
    seconds, spread = given["seconds"], spread_of(given["queries"])
    writes = int(rate * seconds)
    with ExitStack() as stack:
        folder = stack.enter_context(common.scratch())
        system = stack.enter_context(child(live_load.serve, str(folder / "db"))).recv()
        reader = stack.enter_context(
            child(live_load.read, system.port, given["connections"], queries)
        )
        writer = stack.enter_context(child(live_load.write, system.port, documents))
        churner = stack.enter_context(child(live_load.churn, system.port, queries))
        ask(reader, "watch", True, _WARM, spread, 4)  # warm: first calls load code
        before = _memory(system.pid)
        # There are no documents yet: changes are told as fields, not whole, and little is found.
        spent = ask(reader, "watch", True, count - _WARM, spread, 5, timeout_s=3_600)
        each = (_memory(system.pid) - before) / (count - _WARM)
        say(f"million: {count:,} queries registered, {spent / count * 1e6:.0f} us and "
            f"{each:,.0f} bytes each")  # fmt: skip
        ask(writer, "rate", 0, stored, rate, stored, spread, timeout_s=600)
        outcome: dict[str, Any] = {
            **given, "register_us": spent / count * 1e6, "bytes": each, "spread": spread,
        }  # fmt: skip
        first = stored
        for name, beside in (("quiet", 0), ("churned", given["churn"])):
            ask(reader, "begin", timeout_s=600)
            usage = Usage(system.pid)
            if beside:
                churner.send(("rate", seconds, beside, 10_000, spread, 6))
            written = ask(writer, "rate", first, writes, rate, stored, spread,
                          timeout_s=seconds * 20 + 60)  # fmt: skip
            churned = churner.recv() if beside else None
            cores = usage.cores()[0]
            numbers, ms, resets = ask(reader, "all", timeout_s=600)
            outcome[name] = {
                "written_per_s": written["per_s"], "late_ms": written["late_ms"],
                "changes_per_s": len(numbers) / writes * written["per_s"], "resets": resets,
                "server_cores": cores, "churn": churned, "first": first, "writes": writes,
                **live_load.summary(ms),
            }  # fmt: skip
            if count <= _FEW:
                outcome[name]["right"] = len(numbers) == told(count, spread, stored, first, writes)
            first += writes
            say(f"million, {name}: {_short(outcome[name])}")
        outcome["churn_alone"] = ask(churner, "rate", min(seconds, 5.0), 1e9, 10_000, spread, 6)
        say(f"million: registered and cancelled alone {outcome['churn_alone']['per_s']:,.0f} a s")
    return outcome


def _short(found: dict[str, Any]) -> str:
    churned = found["churn"]
    return (
        f"{found['written_per_s']:,.0f} updates/s, {found['changes_per_s']:,.0f} changes/s, "
        f"p50 {found.get('p50_ms', 0):.1f} ms, p99 {found.get('p99_ms', 0):.1f} ms, max "
        f"{found.get('max_ms', 0):.1f} ms, {found['resets']} resets, "
        f"{found['server_cores']:.2f} cores"
        + (f"; {churned['per_s']:,.0f} registered and cancelled a second" if churned else "")
    )
