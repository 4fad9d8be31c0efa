"""Changes of collections over the server: in order, without a gap, at the pace of each reader."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from talk import Api, Talk, as_, eventually
from test_slow import stuck_socket
from test_sse import Stream

from tideline.documents import feed
from tideline.server import running
from tideline.testing import ManualClock

TEXT = "x" * 8_000


def follow(talk: Talk, tag: int = 1, **fields: Any) -> Any:
    """Follow the collection `cars`; what is answered."""
    talk.say(do="changes", tag=tag, **{"collection": "cars", **fields})
    return talk.hear()


def hear(talk: Talk, count: int, tag: int = 1) -> list[Any]:
    """So many changes of a tag."""
    found: list[Any] = []
    while len(found) < count:
        message = talk.hear()
        assert message["tag"] == tag, message
        found += message["changes"]
    assert len(found) == count
    return found


def seqs(changes: list[Any]) -> list[int]:
    return [change["seq"] for change in changes]


def test_a_websocket_tells_of_every_write(serve: Callable[..., Any]) -> None:
    database, url = serve()
    cars = database.collection("cars", key="id")
    cars.put({"id": 1})
    with Talk(url) as talk:
        told = follow(talk, before=True)["following"]
        assert told == {"seq": 1, "identity": cars.identity}
        cars.put({"id": "a", "speed": 50})
        cars.put({"id": "a", "speed": 70})
        cars.delete("a")
        assert hear(talk, 3) == [
            {"seq": 2, "key": "a", "before": None, "after": {"id": "a", "speed": 50}},
            {"seq": 3, "key": "a", "before": {"id": "a", "speed": 50},
             "after": {"id": "a", "speed": 70}},
            {"seq": 4, "key": "a", "before": {"id": "a", "speed": 70}, "after": None},
        ]  # fmt: skip
        assert follow(talk, tag=2, after=0)["following"]["seq"] == 0
        assert hear(talk, 4, tag=2)[0] == {"seq": 1, "key": 1, "after": {"id": 1}}
        talk.say(do="cancel", tag=1)
        assert talk.hear() == {"tag": 1, "ended": "cancelled"}
        cars.put({"id": 5})
        assert seqs(hear(talk, 1, tag=2)) == [5]
        talk.say(do="prolong", tag=2, until_s=5)
        assert talk.hear()["error"]["kind"] == "InvalidRequest"


def test_sync_is_answered_after_what_was_written_before(serve: Callable[..., Any]) -> None:
    database, url = serve()
    cars = database.collection("cars", key="id")
    with Talk(url) as talk:
        follow(talk)
        for last in range(50):
            cars.put({"id": last})
            changes = [change for message in talk.sync() for change in message["changes"]]
            assert seqs(changes) == [last + 1]


def test_where_it_cannot_begin(serve: Callable[..., Any]) -> None:
    database, url = serve()
    cars = database.collection("cars", key="id")
    cars.put({"id": 1})
    with Talk(url) as talk:
        assert follow(talk, after=2)["error"]["kind"] == "InvalidRequest"
        assert follow(talk, collection="card")["error"]["kind"] == "NotFound"
        assert follow(talk, identity="other")["error"]["kind"] == "Conflict"
        assert follow(talk, after=-1)["error"]["kind"] == "InvalidRequest"
        assert follow(talk, after=1, identity=cars.identity)["following"]["seq"] == 1
        for tag in range(2, 101):
            assert "following" in follow(talk, tag=tag)
        assert follow(talk, tag=101)["error"]["kind"] == "TooMany"


def test_changes_that_are_gone_are_refused_with_the_earliest(serve: Callable[..., Any]) -> None:
    clock = ManualClock(1_000)
    database, url = serve(clock=clock)
    cars = database.collection("cars", key="id", journal_s=60)
    for n in (1, 2):
        cars.put({"id": n})
        cars._engine.seal()
        clock.advance(40)
    cars.put({"id": 3})
    cars._engine.seal()
    assert cars.earliest() == 1
    with Talk(url) as talk:
        error = follow(talk, after=0)["error"]
        assert error["kind"] == "Unavailable"
        assert error["values"] == {"earliest": 1}
        assert "earliest=1" in error["message"]
        answer = Api(url).get("/v1/collections/cars/changes/stream?after=0")
        assert answer.error == (503, "Unavailable")
        assert answer.json["error"]["values"] == {"earliest": 1}
        assert follow(talk, after=1)["following"]["seq"] == 1
        assert seqs(hear(talk, 2)) == [2, 3]


def test_a_reader_that_is_too_far_behind_is_told_the_earliest(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "FOLLOWED_BYTES", 500_000)
    database, url = serve(outbox_bytes=50_000)
    cars = database.collection("cars", key="id")
    with Talk(url, sock=stuck_socket(url), max_queue=1) as slow:
        follow(slow)
        for n in range(1_500):
            cars.put({"id": n, "text": TEXT})
            if n % 50 == 49:
                cars._engine.seal()
        changes, error = [], None
        while error is None:
            message = slow.hear()
            changes += message.get("changes", [])
            error = message.get("error")
        assert error["kind"] == "Unavailable"
        assert 0 < len(changes) < error["values"]["earliest"] <= 1_500
        assert seqs(changes) == list(range(1, len(changes) + 1))
        answer = follow(slow, after=error["values"]["earliest"])
        while "error" in answer:  # what was begun to be sealed has come to its end meanwhile
            assert answer["error"]["values"]["earliest"] <= 1_500
            answer = follow(slow, after=answer["error"]["values"]["earliest"])
        assert "following" in answer


def test_a_dropped_collection_says_so(serve: Callable[..., Any]) -> None:
    database, url = serve()
    cars = database.collection("cars", key="id")
    cars.put({"id": 1})
    identity = cars.identity
    with Talk(url) as talk:
        follow(talk)
        stream = Stream(url, "/v1/collections/cars/changes/stream?after=0")
        events = iter(stream)
        assert [next(events)[0] for _ in range(2)] == ["following", "change"]
        database.drop_collection("cars")
        assert talk.hear() == {"tag": 1, "ended": "dropped"}
        assert list(events) == [("ended", {"reason": "dropped"})]
        stream.close()
        database.collection("cars", key="id").put({"id": 2})
        assert follow(talk, after=1, identity=identity)["error"]["kind"] == "Conflict"


def test_an_event_stream_goes_on_after_its_last_id(serve: Callable[..., Any]) -> None:
    database, url = serve()
    cars = database.collection("cars", key="id")
    path, headers = "/v1/collections/cars/changes/stream?before=true", {}
    heard: list[Any] = []
    for turn in range(4):
        stream = Stream(url, path, **headers)
        events = iter(stream)
        assert next(events) == ("following", {"seq": turn * 5, "identity": cars.identity})
        for n in range(3):
            cars.put({"id": n, "turn": turn, "text": "two\nlines"})
        for _ in range(3):
            kind, data = next(events)
            assert kind == "change"
            heard.append(data)
        stream.close()
        for n in range(2):  # nobody listens, and the next begins with the last id
            cars.put({"id": n, "turn": turn, "lost": True})
        headers = {"Last_Event_ID": stream.last_id}
        if turn < 3:
            path = "/v1/collections/cars/changes/stream"
            stream = Stream(url, path, **headers)
            found = [data for _, (_, data) in zip(range(3), stream, strict=False)]
            assert seqs(found) == [turn * 5 + 3, turn * 5 + 4, turn * 5 + 5]
            heard += found[1:]
            headers = {"Last_Event_ID": stream.last_id}
            stream.close()
    assert seqs(heard) == list(range(1, len(heard) + 1))
    for bad in ("x", "1" * 30, "-1", "٣"):
        answer = Api(url).call("GET", path, Last_Event_ID=bad.encode().decode("latin-1"))
        assert answer.error == (400, "InvalidRequest")
    assert Api(url).get("/v1/collections/x/changes/stream").error == (404, "NotFound")


def test_many_followers_share_one_read_and_all_get_all(serve: Callable[..., Any]) -> None:
    database, url = serve()
    cars = database.collection("cars", key="id")
    threads = {thread.name for thread in threading.enumerate()}
    talks = [Talk(url, "/v1/live" + "?lines=1" * (n % 2)) for n in range(40)]
    try:
        for n, talk in enumerate(talks):
            follow(talk, tag=1)
            follow(talk, tag=2, before=bool(n % 4))
        for n in range(100):
            cars.put({"id": n % 7, "n": n})
        cars.put_many([{"id": n} for n in range(2_000)])
        for talk in talks:
            told: dict[int, list[int]] = {1: [], 2: []}
            while any(len(found) < 2_100 for found in told.values()):
                text = talk.socket.recv(timeout=30)
                for line in text.split("\n"):
                    message = json.loads(line)
                    if "changes" in message:
                        told[message["tag"]] += seqs(message["changes"])
            assert told == {1: list(range(1, 2_101)), 2: list(range(1, 2_101))}
        made = {thread.name for thread in threading.enumerate()} - threads
        assert not [name for name in made if not name.startswith(("tideline-", "Thread-"))]
    finally:
        for talk in talks:
            talk.__exit__(None, None, None)


@pytest.mark.parametrize("before", [False, True])
def test_a_slow_reader_is_not_cut_off_and_makes_nobody_wait(
    serve: Callable[..., Any], before: bool
) -> None:
    database, url = serve(outbox_bytes=100_000)
    cars = database.collection("cars", key="id")
    with Talk(url) as fast, Talk(url, sock=stuck_socket(url), max_queue=1) as slow:
        for talk in (fast, slow):
            follow(talk, before=before)
        for n in range(1_000):  # 8 MB and more: no socket takes that by itself
            cars.put({"id": n % 10, "n": n, "text": TEXT})
            if n % 50 == 49:
                assert seqs(hear(fast, 50)) == list(range(n - 48, n + 2))
        cars.put_many([{"id": n, "text": TEXT} for n in range(500)])
        hear(fast, 500)
        assert seqs(hear(slow, 1_500)) == list(range(1, 1_501))
        cars.put({"id": 1})
        assert seqs(hear(slow, 1)) == seqs(hear(fast, 1)) == [1_501]


def test_a_connection_that_is_too_slow_for_its_subscription_is_told_the_seq(
    serve: Callable[..., Any],
) -> None:
    database, url = serve(outbox_bytes=100_000)
    cars, news = database.collection("cars", key="id"), database.channel("news")
    with Talk(url, sock=stuck_socket(url), max_queue=1) as slow:
        follow(slow)
        slow.say(do="subscribe", tag=2, channel="news", place="a", user="u")
        slow.hear_until("past_done")
        cars.put({"id": 1})
        hear(slow, 1)
        for _ in range(2_000):
            news.publish("a", {"text": TEXT}, ttl_s=600)
        heard, code = slow.hear_close()
        assert code == 4008
        assert heard[-1]["slow"]["1"] == 1


def test_a_document_larger_than_what_may_wait_comes_whole(serve: Callable[..., Any]) -> None:
    database, url = serve(outbox_bytes=10_000)
    cars = database.collection("cars", key="id")
    with Talk(url) as talk:
        follow(talk)
        for n in range(5):
            cars.put({"id": n, "text": "y" * 1_000_000})
        changes = hear(talk, 5)
        assert [len(change["after"]["text"]) for change in changes] == [1_000_000] * 5


def test_tokens(guarded: dict[str, Any]) -> None:
    for name in ("cars", "carts"):
        guarded["database"].collection(name, key="id").put({"id": 1})
    path = "/v1/collections/cars/changes/stream"
    reader, reader_id = guarded["tokens"].create(["read:cars"])
    for who in ("publisher", "ann"):
        assert as_(guarded, who).get(path).error == (403, "Forbidden")
        with Talk(guarded["url"], token=guarded[who]) as talk:
            assert follow(talk)["error"]["kind"] == "Forbidden"
    eventually(lambda: Api(guarded["url"], reader).get("/v1/collections/cars").status == 200)
    with Talk(guarded["url"], token=reader) as talk:
        assert follow(talk, collection="carts")["error"]["kind"] == "Forbidden"
        assert follow(talk, after=0)["following"]["seq"] == 0
        assert seqs(hear(talk, 1)) == [1]
        stream = Stream(guarded["url"], f"{path}?token={reader}")
        guarded["tokens"].revoke(reader_id.id)
        assert [kind for kind, _ in stream] == ["following"]  # then it is closed
        stream.close()
        assert talk.hear_close()[1] == 4401


def test_a_stopping_server_closes_and_a_restarted_one_goes_on(serve: Callable[..., Any]) -> None:
    database, _ = serve()
    cars = database.collection("cars", key="id")
    with running(database) as url:
        talk = Talk(url)
        follow(talk)
        stream = Stream(url, "/v1/collections/cars/changes/stream")
        assert next(iter(stream))[0] == "following"
        cars.put({"id": 1})
        hear(talk, 1)
    assert talk.hear_close()[1] == 1012
    stream.close()
    cars.put({"id": 2})
    with running(database) as url, Talk(url) as talk:
        follow(talk, after=1)
        assert seqs(hear(talk, 1)) == [2]
