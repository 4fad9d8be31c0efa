"""The demo's orders: a thread that keeps a few hundred of them in motion, for the live tables.

    collection `orders`:  {"id": 17, "shop": "Albany", "item": "tea", "total": 41.5,
                           "state": "open", "at": 1790000000000}     at: when written, in ms

An order is opened, grows, is packed and sent, and is deleted: `WRITES_S` writes a second, fewer
where the machine does not keep up, and never fewer than `_LEAST` or more than `_MOST` documents.
Old versions stay in the journal for a while, so a page that was cut off goes on without a gap.

The collection belongs to the demo. If a visitor drops it, or puts another one in its place, it is
made again with all its orders. What visitors store in it expires.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from typing import Any

from tideline.errors import Conflict, TidelineError

__all__ = ["WRITES_S", "Orders"]

WRITES_S = 16.0
_LEAST, _MOST = 200, 400
_TTL_S = 900.0  # each order is written about every 20 s
_JOURNAL_S = 120.0
_SHOPS = ("Albany", "Binghamton", "Buffalo", "Ithaca", "New York", "Rochester", "Syracuse", "Utica")
_ITEMS = ("tea", "coffee", "bread", "apples", "maps", "lamps", "boots", "books")
_DEAREST = 999.99
_NEXT = {"open": "packed", "packed": "sent"}


class Orders:
    """Writes orders from `start` to `stop`."""

    def __init__(self, database: Any, seed: int, writes_s: float = WRITES_S) -> None:
        self._database = database
        self._pause_s = 1 / writes_s
        self._random = random.Random(seed)
        self._orders: dict[int, dict[str, Any]] = {}
        self._free = list(range(_MOST, 0, -1))
        self._stop = threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._run, name="tideline-orders", daemon=True)
        while len(self._orders) < (_LEAST + _MOST) // 2:
            self._open()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the current write."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        orders: Any = None
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                orders = self._made() if orders is None else orders
                self._write(orders)
            except Exception as error:  # the demo goes on, whatever became of the collection
                orders = None
                self._say(error)
            took = time.monotonic() - began
            self._stop.wait(max(self._pause_s - took, took))

    def _made(self) -> Any:
        """The collection, with all orders. What a visitor put in its place goes."""
        made: dict[str, Any] = {
            "key": "id", "journal_s": _JOURNAL_S, "journal_before": True, "ttl_s": _TTL_S
        }  # fmt: skip
        try:
            found = self._database.collection("orders", **made)
        except Conflict:
            drop = "drop_channel" if "orders" in self._database.channels() else "drop_collection"
            getattr(self._database, drop)("orders")
            found = self._database.collection("orders", **made)
        found.put_many(list(self._orders.values()))
        return found

    def _write(self, orders: Any) -> None:
        """One order more, one less, or one that goes on."""
        chance = self._random.random()
        if len(self._orders) < _LEAST or (chance < 0.15 and self._free):
            orders.put(self._open())
            return
        order = max(self._random.sample(list(self._orders.values()), 3), key=_total)
        if order["state"] == "sent" and len(self._orders) > _LEAST:
            del self._orders[order["id"]]
            self._free.insert(0, order["id"])
            orders.delete(order["id"])
            return
        if chance < 0.35:
            order["state"] = _NEXT.get(order["state"], "open")
        else:
            total = order["total"] * self._random.lognormvariate(-0.02, 0.3)
            order["total"] = round(min(max(total, 1.0), _DEAREST), 2)
        order["at"] = time.time_ns() // 1_000_000
        orders.put(order)

    def _open(self) -> dict[str, Any]:
        """A new order."""
        key = self._free.pop()
        self._orders[key] = order = {
            "id": key,
            "shop": self._random.choice(_SHOPS),
            "item": self._random.choice(_ITEMS),
            "total": round(min(self._random.lognormvariate(4, 0.8), _DEAREST), 2),
            "state": "open",
            "at": time.time_ns() // 1_000_000,
        }
        return order

    def _say(self, error: Exception) -> None:
        """What is no error of ours is a bug: said once, in full."""
        if isinstance(error, TidelineError) or self._told:
            return
        self._told = True
        text = f"tideline: the demo's orders failed, and go on: {type(error).__name__}: {error}"
        print(text, file=sys.stderr, flush=True)


def _total(order: dict[str, Any]) -> float:
    """Large orders change more often: something happens at the top of a table."""
    total: float = order["total"]
    return total
