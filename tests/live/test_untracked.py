"""A million standing queries are nothing to the garbage collector, and keep nothing alive."""

from __future__ import annotations

import gc
import weakref

import tideline
from tideline.server.live_watch import Watch


def test_the_garbage_collector_does_not_look_at_plain_queries() -> None:
    with tideline.open(":memory:") as db:
        cars = db.collection("cars", key="id")
        live = cars.watch({"road": "A1"})
        entry = next(filter(None, cars.hub._numbers))
        assert not gc.is_tracked(entry)
        assert not gc.is_tracked(Watch(object(), 1, entry))  # type: ignore[arg-type]
        live.cancel()


def test_a_database_that_was_closed_with_a_query_standing_is_let_go() -> None:
    def closed() -> weakref.ref[object]:
        db = tideline.open(":memory:")
        cars = db.collection("cars", key="id")
        cars.watch({"road": "A1"})
        db.close()
        return weakref.ref(cars.hub)

    hub = closed()
    gc.collect()
    assert hub() is None
