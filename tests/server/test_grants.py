"""Tokens over HTTP: made, listed and revoked by admins of everything, and by nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from talk import ROADS, Api, Talk, as_

TOKENS = "/v1/tokens"


def test_an_admin_makes_a_token_that_works_until_it_is_revoked(guarded: dict[str, Any]) -> None:
    admin = as_(guarded, "admin")
    rows = {"orders": {"owner": "$user"}}
    asked = {"scopes": ["read", "subscribe:roads"], "user": "eve", "name": "page", "rows": rows}
    answer = admin.post(TOKENS, asked)
    assert answer.status == 201
    assert answer.headers["cache-control"] == "no-store"
    text, made = answer.json["token"], answer.json["made"]
    assert {name: made[name] for name in asked} == asked
    assert Api(guarded["url"], text).get(ROADS).status == 200  # at once
    with Talk(guarded["url"], token=text) as talk:
        talk.sync()
        listed = {each["id"]: each for each in admin.get(TOKENS).json["tokens"]}
        assert listed[made["id"]] == {**made, "connections": 1}
        assert admin.call("DELETE", f"{TOKENS}/{made['id']}").json == {"revoked": made["id"]}
        assert talk.hear_close()[1] == 4401
    assert Api(guarded["url"], text).get(ROADS).error == (401, "Unauthorized")
    assert admin.call("DELETE", f"{TOKENS}/{made['id']}").error == (404, "NotFound")


def test_the_list_has_no_secret_and_says_which_token_asks(guarded: dict[str, Any]) -> None:
    answer = as_(guarded, "admin").get(TOKENS)
    assert answer.json["required"] is True
    assert answer.json["limits"]["rate_per_s"] == 20_000.0
    stored = {token.id: token for token in guarded["tokens"].load()}
    assert {each["id"] for each in answer.json["tokens"]} == set(stored)
    for token in stored.values():
        assert token.hash.encode() not in answer.body
    for who in ("admin", "reader", "ann"):
        assert guarded[who].split("_", 2)[2].encode() not in answer.body
    mine = [each["id"] for each in answer.json["tokens"] if each["yours"]]
    assert mine == [guarded["admin"].split("_")[1]]


def test_only_admins_of_everything_manage_tokens(guarded: dict[str, Any]) -> None:
    bound, _ = guarded["tokens"].create(["admin"], user="mallory")
    before = guarded["tokens"].load()
    victim = guarded["reader"].split("_")[1]
    for who in ("service", "reader", "publisher", "ann", "owner", None):
        api = Api(guarded["url"], bound) if who is None else as_(guarded, who)
        for method, path, body in [
            ("GET", TOKENS, None), ("POST", TOKENS, {"scopes": ["admin"]}),
            ("DELETE", f"{TOKENS}/{victim}", None),
        ]:  # fmt: skip
            assert api.call(method, path, body).error == (403, "Forbidden"), (who, method)
    assert Api(guarded["url"]).get(TOKENS).error == (401, "Unauthorized")
    foreign = as_(guarded, "admin").post(TOKENS, {"scopes": ["admin"]}, Origin="https://evil.test")
    assert foreign.error == (403, "Forbidden")
    assert guarded["tokens"].load() == before


def test_the_last_admin_is_not_revoked_here(guarded: dict[str, Any]) -> None:
    admin = as_(guarded, "admin")
    own = guarded["admin"].split("_")[1]
    guarded["tokens"].create(["admin"], user="mallory")  # which could not make another one
    assert admin.call("DELETE", f"{TOKENS}/{own}").error == (409, "Conflict")
    other = admin.post(TOKENS, {"scopes": ["admin"]}).json
    assert Api(guarded["url"], other["token"]).call("DELETE", f"{TOKENS}/{own}").status == 200
    assert admin.get(TOKENS).error == (401, "Unauthorized")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"scopes": []}, "a token needs a scope"), ({"scopes": ["rule"]}, "a scope is"),
        ({"scopes": ["read,write"]}, "one by one"), ({"scopes": ["read:*"]}, "no patterns"),
        ({"scopes": ["read"], "user": ""}, "user"), ({"scopes": ["read"], "nme": "x"}, "name?"),
        ({"scopes": ["read"], "name": "x" * 300}, "name"), ({"scope": "read"}, "scopes?"),
        ({"scopes": ["read"], "name": "\x1b[2J"}, "name"),
        ({"scopes": ["read"], "rows": {"orders": {"a": {"$no": 1}}}}, "rows.orders"),
        ({"scopes": ["admin"], "rows": {"orders": {}}}, "cannot have the scope admin"),
    ],
)  # fmt: skip
def test_a_token_that_cannot_be_is_refused_in_words(
    guarded: dict[str, Any], body: Any, said: str
) -> None:
    before = guarded["tokens"].load()
    answer = as_(guarded, "admin").post(TOKENS, body)
    assert answer.error == (400, "InvalidRequest")
    assert said in answer.json["error"]["message"]
    assert guarded["tokens"].load() == before


def test_an_open_server_says_so_and_makes_no_token(api: Api, database: Any) -> None:
    assert api.get(TOKENS).json["required"] is False
    assert api.get(TOKENS).json["tokens"] == []
    answer = api.post(TOKENS, {"scopes": ["admin"]})
    assert answer.error == (409, "Conflict")
    assert "tideline token create" in answer.json["error"]["message"]
    assert api.get("/v1/channels").status == 200  # nobody was locked out
