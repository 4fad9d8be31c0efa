"""Every token that was given works, whatever happens to the store; one from beyond is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.errors import InvalidRequest, NotFound
from tideline.server import running
from tideline.testing import ManualClock

BEYOND = ["9" * 18, "9" * 18 + "." + "0" * 17 + "1"]


def beyond(channel: Any) -> list[str]:
    """Tokens that the channel has not given yet."""
    newest = int(channel.publish("a", {}, ttl_s=60).event.token)
    return [*BEYOND, f"{newest + 1:018d}", f"{newest + 1:018d}.{newest:018d}"]


def refuses_what_is_beyond(channel: Any) -> None:
    for token in beyond(channel):
        with pytest.raises(InvalidRequest, match="the token is not of this channel"):
            channel.resume("s", after=token)
        with pytest.raises(NotFound):
            channel.resume("nobody", after=token)


@pytest.mark.parametrize("layout", ["dual", "two"])
def test_a_token_from_beyond_the_newest_is_refused(layout: str, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        sub = db.channel("c", layout=layout).subscribe("a", user="u", id="s", until_s=600)
        refuses_what_is_beyond(db.channel("c"))
        # A handle that is open goes on, and what it is given can be resumed from.
        (last,) = sub.take()[-1:]
        assert db.channel("c").resume("s", after=last.token).past == []
    with tideline.open(tmp_path / "data") as db:
        assert list(db.channel("c").resume("s", after=last.token).past) == []
        refuses_what_is_beyond(db.channel("c"))


def test_a_token_from_beyond_the_newest_is_refused_by_a_server() -> None:
    with tideline.open(":memory:") as db, running(db) as url, tideline.connect(url) as remote:
        channel = remote.channel("c")
        sub = channel.subscribe("a", user="u", id="s", until_s=600)
        refuses_what_is_beyond(channel)
        (last,) = sub.take()[-1:]
        assert list(channel.resume("s", after=last.token).past) == []


def from_here(clock: ManualClock, seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock.now(), seconds=seconds)


@pytest.mark.parametrize("between", ["nothing", "seal", "reopen", "seal, reopen", "expire, reopen"])
def test_every_token_that_was_given_works(between: str, tmp_path: Path) -> None:
    """Those of a subscribe, of events, of what a prolonged window let in; the newest above all."""
    clock = ManualClock(1_000)

    def opened() -> Any:
        return tideline.open(tmp_path / "data", clock=clock)

    def given(story: Callable[[Any], str]) -> None:
        nonlocal db
        token = story(db.channel("c"))
        if "seal" in between:
            db.channel("c").seal()
        if "expire" in between:
            clock.advance(20_000)
            db.channel("c").seal()
        if "reopen" in between:
            db.close()
            db = opened()
        assert list(db.channel("c").resume("s", after=token).past) == []

    def by_subscribe(channel: Any) -> str:
        sub = channel.subscribe("a", user="u", id="s", since_s=-60, until_s=90_000)
        return f"{sub.first_seq:018d}"

    def by_event(channel: Any) -> str:
        sub = channel.resume("s")
        channel.publish("a", {}, ttl_s=60)
        return str(sub.take()[-1].token)

    def by_prolong(channel: Any) -> str:
        sub = channel.resume("s")
        channel.publish("a", {}, at=from_here(clock, 95_000), ttl_s=100_000)
        channel.prolong("s", until_s=200_000)
        token = sub.take()[-1].token
        assert "." in token
        return str(token)

    def by_cut(channel: Any) -> str:
        sub = channel.resume("s")
        channel.publish("a", {}, ttl_s=60)
        channel.prolong("s", until_s=90_000)
        return str(sub.take()[-1].token)

    db = opened()
    try:
        for story in (by_subscribe, by_event, by_prolong, by_cut, by_event):
            given(story)
    finally:
        db.close()
