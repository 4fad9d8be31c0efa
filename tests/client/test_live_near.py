"""Live queries with a `$near` come nearest first, and stay so, over the wire and by token, too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tideline
from tideline.errors import InvalidRequest
from tideline.live.query import Query, Token
from tideline.server import running

NEAR: dict[str, Any] = {"at": {"$near": {"$geometry": {"type": "Point", "coordinates": [0.02, 0]}}}}
MET: dict[str, Any] = {"$and": [NEAR, {"open": {"$ne": False}}]}


def write(places: Any) -> None:
    """The nearest goes, one comes between, one moves away and one is closed."""
    places.put({"id": 9, "at": [0.0201, 0]})
    places.put({"id": 2, "at": [0.05, 0]})
    places.delete(3)
    places.update(1, {"$set": {"open": False}})
    places.put({"id": 8, "at": [0.005, 0]})


@pytest.mark.parametrize("options", [{}, {"limit": 2, "slack": 0}, {"limit": 2, "offset": 1}])
@pytest.mark.parametrize("where", [NEAR, MET])
def test_nearest_first_and_kept_so(tmp_path: Path, where: Any, options: Any) -> None:
    with tideline.open(tmp_path / "data") as db:
        made: Any = {"journal_s": 1e6, "journal_before": True, "indexes": {"at": "spatial"}}
        places = db.collection("places", key="id", **made)
        places.put_many([{"id": n, "at": [n / 100, 0]} for n in range(5)])
        found = dict(options)
        found.pop("slack", None)
        found["skip"] = found.pop("offset", 0)
        with running(db) as url, tideline.connect(url) as remote:
            lives = [each.watch(where, **options) for each in (places, remote.collection("places"))]
            tokens = [live.token for live in lives]
            for live in lives:
                assert live.result == places.find(where, **found)
            write(places)
            for live in lives:
                changes = live.take()
                assert all((one.index, one.old_index) != (None, None) for one in changes)
                assert live.result == places.find(where, **found)
            for each, token in zip((places, remote.collection("places")), tokens, strict=True):
                again = each.watch_again(token)
                again.take()
                assert again.result == places.find(where, **found)
                assert not again.was_reset

            async def watched() -> Any:
                async with await tideline.aconnect(url) as client:
                    collection = await client.collection("places")
                    async with await collection.watch(where, **options) as live:
                        places.put({"id": 7, "at": [0.0199, 0]})
                        await live.take()
                        return live.result

            assert asyncio.run(watched()) == places.find(where, **found)


def test_another_order_makes_it_a_condition_alone(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        places = db.collection("places", key="id")
        places.put_many([{"id": n, "at": [n / 100, 0]} for n in range(5)])
        live = places.watch(NEAR, sort=[("id", -1)])
        assert [one["id"] for one in live.result] == [4, 3, 2, 1, 0]


def test_nobody_makes_up_an_order_by_distance() -> None:
    query = Query.of("id", NEAR)
    assert Token.parse(str(Token("0123456789abcdef", query.text, 3))).text == query.text
    other = msgspec.structs.replace(Query.of("id", {"n": 1}), order=query.order)
    with pytest.raises(InvalidRequest, match="token must be"):
        Token.parse(str(Token("0123456789abcdef", other.text, 3)))
