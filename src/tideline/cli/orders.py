"""The demo's orders: a thread that keeps a few hundred of them in motion, for the live tables.

    collection `orders`:  {"id": 17, "shop": "Albany", "item": "tea", "total": 41.5,
                           "state": "open", "at": 1790000000000}     at: when written, in ms

An order is opened, grows, is packed and sent, and is deleted: `WRITES_S` writes a second, fewer
where the machine does not keep up, and never fewer than `_LEAST` or more than `_MOST` documents.
Old versions stay in the journal for a while, so a page that was cut off goes on without a gap.

What is sent is sold: a row of the stream window `sales`, {"shop": "Albany", "total": 41.5}.

What visitors store in the collection expires.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterable
from typing import Any

from tideline.cli.demo_feed import Feed
from tideline.errors import TidelineError

__all__ = ["WRITES_S", "Orders"]

WRITES_S = 16.0
_LEAST, _MOST = 200, 400
_TTL_S = 900.0  # each order is written about every 20 s
_JOURNAL_S = 120.0
_SHOPS = ("Albany", "Binghamton", "Buffalo", "Ithaca", "New York", "Rochester", "Syracuse", "Utica")
_ITEMS = ("tea", "coffee", "bread", "apples", "maps", "lamps", "boots", "books")
_DEAREST = 999.99
_SALES = {"span_s": 300, "slide_s": 10, "key": {"shop": "text"}, "keep": "all",
          "values": {"total": "float64"}}  # fmt: skip
_NEXT = {"open": "packed", "packed": "sent"}


class Orders(Feed):
    """Orders, as a feed (demo_feed.py)."""

    name = "orders"

    def __init__(self, database: Any, seed: int, writes_s: float = WRITES_S) -> None:
        super().__init__(database, 1 / writes_s)
        self._random = random.Random(seed)
        self._orders: dict[int, dict[str, Any]] = {}
        self._free = list(range(_MOST, 0, -1))
        while len(self._orders) < (_LEAST + _MOST) // 2:
            self._open()

    def settings(self) -> dict[str, Any]:
        return {"key": "id", "journal_s": _JOURNAL_S, "journal_before": True, "ttl_s": _TTL_S}

    def documents(self) -> Iterable[Any]:
        return self._orders.values()

    def write(self, orders: Any) -> None:
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
            if order["state"] == "sent":
                self._sell(order)
        else:
            total = order["total"] * self._random.lognormvariate(-0.02, 0.3)
            order["total"] = round(min(max(total, 1.0), _DEAREST), 2)
        order["at"] = time.time_ns() // 1_000_000
        orders.put(order)

    def _sell(self, order: dict[str, Any]) -> None:
        with contextlib.suppress(TidelineError):  # a visitor has put something in its place
            sales = self._database.window("sales", **_SALES)
            sales.append({"shop": order["shop"], "total": order["total"]})

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


def _total(order: dict[str, Any]) -> float:
    """Large orders change more often: something happens at the top of a table."""
    total: float = order["total"]
    return total
