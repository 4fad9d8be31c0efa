"""The demo's orders: bounded, in motion, and there again whatever visitors do."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.cli.demo import _serve
from tideline.cli.orders import Orders
from tideline.errors import NotFound, TidelineError

GUARD_S = 120.0  # only turns a hang into a failure


def wait_for(done: Callable[[], bool]) -> None:
    limit = time.monotonic() + GUARD_S
    while True:
        try:
            if done():
                return
        except TidelineError:
            pass  # the collection is being made again
        assert time.monotonic() < limit
        time.sleep(0.01)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with tideline.open(tmp_path / "data") as opened:
        orders = Orders(opened, seed=1, writes_s=5000)
        orders.start()
        wait_for(lambda: opened.collections() == ["orders"])
        yield opened
        orders.stop()


def test_orders_change_come_and_go_and_stay_a_few_hundred(db: Any) -> None:
    orders = db.collection("orders")
    wait_for(lambda: orders.count() >= 200)
    with orders.watch(sort=[("total", -1)], limit=10) as live:
        kinds: set[str] = set()
        wait_for(lambda: bool(kinds.update(one.kind for one in live.take())) or len(kinds) == 4)
    wait_for(lambda: orders.position() >= 3000)
    assert 199 <= orders.count() <= 400
    order = orders.find_one()
    assert set(order) == {"id", "shop", "item", "total", "state", "at"}
    assert set(orders.distinct("state")) <= {"open", "packed", "sent"}


def test_what_is_sent_is_in_the_window_of_sales(db: Any) -> None:
    wait_for(lambda: db.windows() == ["sales"])
    sales = db.window("sales")
    wait_for(lambda: sales.range(map="count()") >= 10)
    assert 1 <= sales.range(map="mean(total)") <= 1000

    def taken() -> bool:
        with contextlib.suppress(NotFound):
            db.drop_window("sales")
        return db.channel("sales") is not None

    wait_for(taken)  # by a visitor: it is left alone, and the orders go on
    written = db.collection("orders").position()
    wait_for(lambda: db.collection("orders").position() >= written + 1000)
    assert db.windows() == []


def test_the_log_of_the_server_stays_off_the_terminal(db: Any) -> None:
    """A request that ends in 503 printed the bare word "request" into the table."""
    log = logging.getLogger("tideline.server")
    with contextlib.ExitStack() as stack:
        _serve(stack, db, 0, lambda: "")
        assert not log.isEnabledFor(logging.WARNING)
        assert log.isEnabledFor(logging.ERROR)
    assert log.isEnabledFor(logging.WARNING)


def test_what_a_visitor_does_does_not_end_them(db: Any) -> None:
    def wait_for_writes() -> None:
        found = db.collection("orders")
        before = found.position()
        wait_for(lambda: db.collection("orders").position() != before)

    wait_for(lambda: db.collection("orders").count() >= 199)
    db.collection("orders").put({"id": "mine", "total": "no number", "state": ["odd"]})
    db.collection("orders").delete_where({"state": "open"})
    wait_for_writes()
    db.drop_collection("orders")
    wait_for(lambda: db.collections() == ["orders"] and db.collection("orders").count() >= 199)
    db.collection("orders").put({"id": "mine"}, ttl_s=1000)
    for make in (db.channel, lambda name: db.collection(name, key="other")):
        db.drop_collection("orders")
        try:
            make("orders")
        except TidelineError:
            continue  # the demo was quicker
        wait_for(lambda: "orders" in db.collections() and db.collection("orders").key == "id")
    wait_for(lambda: db.collection("orders").count() >= 199)
    assert db.channels() == []
    assert db.collections() == ["orders"]
