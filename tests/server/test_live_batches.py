"""Live queries that are asked for and cancelled many in one read of a connection.

What comes in one read is registered together: on the loop while nobody holds the hub's lock, else
in a thread. Each request is answered by itself all the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many
from talk import Api, Talk, eventually

import tideline
from tideline.server import running
from tideline.server.outbox import Outbox, Turn

GOOD: list[Any] = [
    {"n": 1}, {"n": 1.0}, {"n": {"$gte": 1, "$lt": 3}}, {"n": {"$in": [1, 2]}}, {}, None,
    {"$or": [{"n": 2}, {"s": "b"}]}, {"s": {"$regex": "^b"}}, {"n": {"$gt": 0}, "s": "b"},
    {"at": {"$geoWithin": {"$centerSphere": [[0.5, 0.5], 0.01]}}},
]  # fmt: skip
BAD: list[tuple[Any, str]] = [
    ({"n": {"$gte": 1, "$lt": {"$x": 1}, "$above": 2}}, "where.n.$above is not an operator"),
    ({"": 1}, "where. is not a path"),
    ({"n": {"gte": 2}}, "did you mean $gte?"),
    (7, "where must be a document"),
]
NOBODY = "no subscription with this tag"
DOCUMENTS = [
    {"id": 1, "n": 1, "s": "a", "at": [0.5, 0.5]}, {"id": 2, "n": 2, "s": "b"},
    {"id": 3, "n": 9, "s": "b"},
]  # fmt: skip


class Step(NamedTuple):
    """A request of a burst: watch (good, bad, with a result), or cancel an earlier one."""

    kind: str
    which: int


STEPS = st.builds(
    Step, st.sampled_from(["good", "good", "good", "first", "bad", "cancel", "cancel", "sorted"]),
    st.integers(0, 99),
)  # fmt: skip
BURSTS = st.lists(st.lists(STEPS, max_size=12), min_size=1, max_size=4)


def burst(talk: Talk, requests: list[dict[str, Any]]) -> None:
    """Send requests at once, so that most likely one read has them all."""
    frames = b""
    for request in requests:
        text = json.dumps(request).encode()
        size = len(text)
        assert size < 1 << 16
        head = bytes([0x81, 0x80 | size]) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
        frames += head + bytes(4) + text
    talk.socket.socket.sendall(frames)


class Model:
    """What the tags of a connection ask, and what may be said of each."""

    def __init__(self) -> None:
        self.tag = 0
        self.wheres: dict[int, Any] = {}  # of those that stand
        self.allowed: dict[int, list[list[str]]] = {}

    def requests(self, steps: list[Step]) -> list[dict[str, Any]]:
        made = []
        begun = self.tag
        for kind, which in steps:
            if kind == "cancel":
                made.append({"do": "cancel", "tag": self._cancel(which, begun)})
                continue
            tag = self.tag = self.tag + 1
            request = {"do": "watch", "tag": tag, "collection": "orders", "first": kind == "first"}
            if kind == "bad":
                where, why = BAD[which % len(BAD)]
                self.allowed[tag] = [[why]]
            else:
                where = self.wheres[tag] = GOOD[which % len(GOOD)]
                self.allowed[tag] = [["watching", "result"] if kind == "first" else ["watching"]]
                request |= {"sort": [["n", 1]], "limit": 5} if kind == "sorted" else {}
            made.append(request | {"where": where})
        return made

    def _cancel(self, which: int, begun: int) -> int:
        tag = 1 + which % self.tag if self.tag else 1_000
        said = self.allowed.setdefault(tag, [[]])
        if tag in self.wheres:
            del self.wheres[tag]
            # What was asked for a moment ago may be cancelled before it stands.
            self.allowed[tag] = [[*each, "ended"] for each in said]
            self.allowed[tag] += [["ended"]] if tag > begun else []
        elif tag > begun and said[0] in [[why] for _, why in BAD]:  # nobody may have looked yet
            self.allowed[tag] = [[*said[0], NOBODY], ["ended"]]
        else:
            self.allowed[tag] = [[*each, NOBODY] for each in said]
        return tag

    def told(self, tag: int, messages: list[dict[str, Any]]) -> None:
        """Check what was said of a tag."""
        assert any(
            len(said) == len(messages) and all(map(_says, messages, said))
            for said in self.allowed[tag]
        ), (tag, messages, self.allowed[tag])


def _says(message: dict[str, Any], what: str) -> bool:
    return what in message or what in message.get("error", {}).get("message", "")


@pytest.mark.parametrize("held", [False, True], ids=["here", "in a thread"])
@settings(max_examples=many(60), deadline=None)
@given(bursts=BURSTS)
def test_each_request_of_a_burst_is_answered_by_itself(
    held: bool, bursts: list[list[Step]]
) -> None:
    with tideline.open(":memory:") as db:
        orders = db.collection("orders", key="id")
        with running(db) as url, Talk(url) as talk:
            model = Model()
            for steps in bursts:
                if held:  # nobody can join on the loop
                    orders.hub.lock.acquire()
                try:
                    burst(talk, model.requests(steps))
                    if held:
                        Api(url).get("/v1/collections")  # the loop waits for nobody
                finally:
                    if held:
                        orders.hub.lock.release()
                heard: dict[int, list[Any]] = {}
                for message in talk.sync():
                    heard.setdefault(message["tag"], []).append(message)
                begun = [tag for tag, said in heard.items() if "watching" in said[0]]
                assert begun == sorted(begun)  # in the order in which they were asked for
                for tag in model.allowed.keys() | heard.keys():
                    model.told(tag, heard.get(tag, []))
                model.allowed = {tag: [[]] for tag in model.allowed}
            _everybody_is_told(orders, talk, model)
        eventually(lambda: orders.hub.count == 0)


def _everybody_is_told(orders: Any, talk: Talk, model: Model) -> None:
    """Those that stand are told of documents, and nobody else."""
    orders.put_many(DOCUMENTS)
    told = {
        message["tag"]: {change[-1]["id"] for change in message["changes"] if change[0] == "add"}
        for message in talk.sync()
    }
    expected = {
        tag: {document["id"] for document in orders.find(where)}
        for tag, where in model.wheres.items()
    }
    assert told == {tag: ids for tag, ids in expected.items() if ids}


def test_a_connection_that_goes_in_the_middle_leaves_nothing_behind(
    serve: Callable[..., Any],
) -> None:
    database, url = serve()
    orders = database.collection("orders", key="id")
    watched = [
        {"do": "watch", "tag": n, "collection": "orders", "where": {"n": n}, "first": False}
        for n in range(300)
    ]
    cancelled = [{"do": "cancel", "tag": n} for n in range(0, 300, 3)]
    with Talk(url) as stays:
        burst(stays, [*watched, *cancelled])
        stays.sync()
        assert orders.hub.count == 200
        orders.hub.lock.acquire()
        try:
            with Talk(url) as goes:
                burst(goes, watched)
                Api(url).get("/v1/collections")
        finally:
            orders.hub.lock.release()
        eventually(lambda: Api(url).get("/v1/store").json["process"]["connections"] == 1)
        eventually(lambda: orders.hub.count == 200)
        orders.put_many([{"id": n, "n": n} for n in range(300)])
        assert {message["tag"] for message in stays.sync()} == set(range(300)) - set(
            range(0, 300, 3)
        )
    eventually(lambda: orders.hub.count == 0)


def test_what_is_asked_in_one_read_is_done_before_anything_is_sent() -> None:
    loop = asyncio.new_event_loop()
    try:
        turn = Turn(loop)
        done: list[str] = []
        outbox = Outbox(loop, 1_000, turn)

        def send() -> bool:
            texts = [wire.data for _, wire, _ in outbox.take_now(1_000) or ()]
            done.append(b" ".join(texts).decode())
            return True

        def ask() -> None:
            done.append("asked")
            outbox.reply_all([b"a", b"b"])

        outbox.drain = send
        taking = loop.create_task(outbox.take())  # the writer comes to rest
        loop.run_until_complete(asyncio.sleep(0))
        assert not turn.at_end(ask)  # nothing is being read
        turn.begin()
        outbox.reply(b"first")
        assert turn.at_end(ask)
        assert done == []
        turn.end()
        assert done == ["asked", "first a b"]
        taking.cancel()
        loop.run_until_complete(asyncio.gather(taking, return_exceptions=True))
    finally:
        loop.close()


def test_queries_of_a_burst_that_are_equal_are_one(serve: Callable[..., Any]) -> None:
    database, url = serve()
    orders = database.collection("orders", key="id")
    wheres: list[Any] = [{"n": 1}, {"n": 1.0}, {"n": 1, "s": "b"}, {"s": "b", "n": 1}]
    with Talk(url) as talk:
        for first in (0, 10):  # the second time they stand already
            burst(talk, [
                {"do": "watch", "tag": first + n, "collection": "orders", "where": where,
                 "first": False}
                for n, where in enumerate(wheres)
            ])  # fmt: skip
            assert len(talk.sync()) == 4
            assert orders.hub.count == 2
        burst(talk, [{"do": "cancel", "tag": n} for n in range(4)])
        talk.sync()
        assert orders.hub.count == 2
        orders.put({"id": 1, "n": 1, "s": "b"})
        assert sorted(message["tag"] for message in talk.sync()) == [10, 11, 12, 13]
