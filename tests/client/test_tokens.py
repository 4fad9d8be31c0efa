"""Tokens, as a client meets them: shown on every call, refused with the server's words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.errors import Conflict, NotFound, Unauthorized
from tideline.server import running
from tideline.server.tokens import Tokens

GUARD_S = 30.0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Any, str, Tokens]]:
    """A server that needs tokens, and notices quickly when one is revoked."""
    with tideline.open(tmp_path / "data") as db:
        tokens = Tokens(db.path)
        tokens.create(["admin"], name="the operator's")
        db.channel("roads")
        with running(db, beat_s=0.05) as url:
            yield db, url, tokens


@pytest.mark.parametrize("token", [None, "wrong", "tl_00000000_" + "x" * 43])
def test_without_a_good_token_there_is_no_connection(
    token: str | None, served: tuple[Any, str, Tokens]
) -> None:
    with pytest.raises(Unauthorized, match="token"):
        tideline.connect(served[1], token=token)


def test_a_token_goes_with_every_call(served: tuple[Any, str, Tokens]) -> None:
    _, url, tokens = served
    text, _ = tokens.create(["admin"])
    with tideline.connect(url, token=text) as remote:
        channel = remote.channel("roads")
        sub = channel.subscribe("a", user="u")
        assert [s.id for s in channel.publish("a", {}, id="e").subscriptions] == [sub.id]
        assert [event.id for event in sub.take()] == ["e"]


def test_a_narrow_token_can_do_what_it_is_for(served: tuple[Any, str, Tokens]) -> None:
    db, url, tokens = served
    writing, _ = tokens.create(["publish:roads"])
    reading, _ = tokens.create(["subscribe:roads"], user="ann")
    with tideline.connect(url, token=reading) as reader, tideline.connect(url, token=writing) as w:
        sub = reader.channel("roads").subscribe("a", user="ann", id="s")
        w.channel("roads").publish("a", {}, id="e")
        assert [event.id for event in sub.take()] == ["e"]
        db.channel("roads").subscribe("a", user="bob", id="other")
        assert [s.id for s in reader.channel("roads").subscriptions()] == ["s"]
        for call in (
            lambda: reader.channel("roads").publish("a", {}),
            lambda: reader.channel("roads").subscribe("a", user="bob"),
            lambda: w.channel("roads").subscribe("a", user="ann"),
            lambda: w.channel("others"),
            lambda: w.drop_channel("roads"),
        ):
            with pytest.raises((Unauthorized, NotFound)):
                call()
        with pytest.raises(NotFound, match="other"):
            reader.channel("roads").cancel("other")
        with pytest.raises(NotFound, match="other"):
            reader.channel("roads").resume("other")
    assert sorted(s.id for s in db.channel("roads").subscriptions()) == ["other", "s"]


def test_a_revoked_token_ends_iteration_with_the_reason(served: tuple[Any, str, Tokens]) -> None:
    _, url, tokens = served
    text, token = tokens.create(["admin"])
    with tideline.connect(url, token=text) as remote:
        channel = remote.channel("roads")
        sub = channel.subscribe("a", user="u", id="s")
        ends: list[BaseException | None] = []

        def read() -> None:
            try:
                for _ in sub:
                    pass
                ends.append(None)
            except BaseException as error:
                ends.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        tokens.revoke(token.id)
        reader.join(GUARD_S)
        assert isinstance(ends[0], Unauthorized)
        assert "token" in str(ends[0])
        for call in (sub.take, lambda: channel.publish("a", {}), lambda: channel.resume("s")):
            with pytest.raises(Unauthorized, match="token"):
                call()


def test_what_is_there_as_given_needs_no_right_to_make_it(served: tuple[Any, str, Tokens]) -> None:
    """In whatever form it is given: the server compares."""
    db, url, tokens = served
    db.collection("orders", key="id", indexes={"owner": "lazy"}, ttl_s=60)
    text, _ = tokens.create(["read"])
    with tideline.connect(url, token=text) as remote:
        for same in ({"indexes": ["owner"]}, {"ttl_s": timedelta(minutes=1)}, {"policy": "prefix"}):
            assert remote.collection("orders", key="id", **same).count() == 0
        with pytest.raises(Conflict, match="the collection has another key"):
            remote.collection("orders", key="number")
        with pytest.raises(Unauthorized, match="admin"):
            remote.collection("orders", ttl_s=61)
        with pytest.raises(Unauthorized, match="admin"):
            remote.collection("more", key="id")


def test_who_shows_a_good_token_goes_on_when_a_server_gets_its_first_ones(tmp_path: Path) -> None:
    """As a node that lost its disk and gets them from the others."""
    (tmp_path / "other").mkdir()
    text, _ = Tokens(tmp_path / "other").create(["admin"])
    with (
        tideline.open(tmp_path / "data") as db,
        running(db, beat_s=0.05) as url,
        tideline.connect(url, token=text) as remote,
        tideline.connect(url) as nobody,
    ):
        db.collection("cars", key="id")
        db.channel("roads")
        live, changes = remote.collection("cars").watch({}), remote.collection("cars").changes()
        sub = remote.channel("roads").subscribe("a", user="u")
        ended = nobody.collection("cars").watch({})
        (tmp_path / "other" / "TOKENS").rename(db.path / "TOKENS")
        with pytest.raises(Unauthorized):
            next(ended)
        db.collection("cars").put({"id": 1})
        db.channel("roads").publish("a", {}, id="e")
        for handle in (live, changes, sub):
            told: list[Any] = []
            while not told:
                told += handle.take(timeout_s=0.1)
            assert len(told) == 1
