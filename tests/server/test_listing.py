"""Listing stored subscriptions: a part at a time, whole in the end."""

from __future__ import annotations

from typing import Any

import pytest
from talk import Api

import tideline
from tideline.client import channel as client_channel
from tideline.errors import InvalidRequest
from tideline.server.tokens import Tokens


def listed(api: Api, path: str, **query: Any) -> Any:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    answer = api.get(f"{path}/subscriptions?{text}")
    assert answer.status == 200, answer
    return answer.json


def ids(part: Any) -> list[str]:
    return [one["id"] for one in part["subscriptions"]]


def test_parts_join_without_gap_or_repetition(api: Api, path: str, channel: Any) -> None:
    for n in range(25):
        channel.subscribe("a", user="ann" if n % 2 else "bob", id=f"s{n}", until_s=600)
    whole = listed(api, path)
    assert ids(whole) == [f"s{n}" for n in range(25)]
    assert whole["next"] is None
    found: list[str] = []
    query: dict[str, Any] = {"limit": 10}
    sizes = []
    while True:
        part = listed(api, path, **query)
        found += ids(part)
        sizes.append(len(ids(part)))
        assert part["next"] in (None, part["subscriptions"][-1]["cursor"])
        if part["next"] is None:
            break
        query["after"] = part["next"]
    assert (found, sizes) == (ids(whole), [10, 10, 5])
    assert ids(listed(api, path, limit=25)) == ids(whole)
    assert listed(api, path, limit=25)["next"] is None  # not one more request for nothing
    ann = listed(api, path, user="ann", limit=5)
    assert ids(ann) == ["s1", "s3", "s5", "s7", "s9"]
    assert ids(listed(api, path, user="ann", limit=100, after=ann["next"]))[0] == "s11"


def test_what_changes_meanwhile_is_not_left_out(api: Api, path: str, channel: Any) -> None:
    for n in range(6):
        channel.subscribe("a", user="u", id=f"s{n}", until_s=600)
    first = listed(api, path, limit=3)
    channel.cancel("s2")  # the cursor's own
    channel.cancel("s4")
    channel.prolong("s1", until_s=700)  # goes to the end
    channel.subscribe("a", user="u", id="new", until_s=600)
    rest = listed(api, path, limit=10, after=first["next"])
    assert ids(rest) == ["s3", "s5", "s1", "new"]


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=x", "limit=10001", "limit=1.5", "limit=", "after=x", "after=5",
     "after=" + "0" * 19, "after=00000000000000000%D9%A1", "offset=3", "limit=1&limit=2"],
)  # fmt: skip
def test_wrong_parts_are_refused(query: str, api: Api, path: str) -> None:
    assert api.get(f"{path}/subscriptions?{query}").error == (400, "InvalidRequest")


def test_a_user_lists_their_own_in_parts(serve: Any, tmp_path: Any) -> None:
    (tmp_path / "data").mkdir()
    token, _ = Tokens(tmp_path / "data").create(["subscribe"], user="ann")
    database, url = serve()
    channel = database.channel("c")
    for n in range(9):
        channel.subscribe("a", user="ann" if n % 3 else "bob", id=f"s{n}", until_s=600)
    ann = Api(url, token)
    part = listed(ann, "/v1/channels/c", limit=4)
    assert ids(part) == ["s1", "s2", "s4", "s5"]
    # A cursor is only a place: it leads to nothing of another user.
    assert ids(listed(ann, "/v1/channels/c", after="0" * 18)) == [
        "s1",
        "s2",
        "s4",
        "s5",
        "s7",
        "s8",
    ]
    assert ann.get("/v1/channels/c/subscriptions?user=bob&limit=1").error == (403, "Forbidden")


def test_the_client_lists_as_the_library_does(
    url: str, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(25):
        channel.subscribe("a", user="ann" if n % 2 else "bob", id=f"s{n}", until_s=600)
    monkeypatch.setattr(client_channel, "_PART", 4)
    with tideline.connect(url) as remote:
        twin = remote.channel(channel.name)
        for options in [
            {},
            {"limit": 3},
            {"limit": 9},
            {"user": "ann"},
            {"user": "bob", "limit": 6},
        ]:
            one, other = channel.subscriptions(**options), twin.subscriptions(**options)
            assert one == other
            assert [info.cursor for info in one] == [info.cursor for info in other]
        after = channel.subscriptions(limit=5)[-1].cursor
        assert [i.id for i in twin.subscriptions(limit=2, after=after)] == ["s5", "s6"]
        assert twin.subscriptions(after=after) == channel.subscriptions(after=after)
        for both in (channel, twin):
            for wrong in [
                {"limit": 0},
                {"limit": True},
                {"limit": "2"},
                {"after": "x"},
                {"after": 5},
            ]:
                with pytest.raises(InvalidRequest):
                    both.subscriptions(**wrong)
