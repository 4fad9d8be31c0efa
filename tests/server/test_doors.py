"""From where a server may be called, by what name, and what it tells."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from certificates import certificate
from talk import EVENT, ROADS, Api, Talk, as_, refused_socket

import tideline
from tideline.cli.backup import _ask
from tideline.errors import Corruption, InvalidRequest, NotFound, Unavailable
from tideline.server import Settings, refusals, running
from tideline.server.logs import JsonLines
from tideline.server.tokens import Tokens

Serve = Callable[..., Any]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_off_this_machine_a_server_needs_tokens(host: str, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as database:
        with (
            pytest.raises(InvalidRequest, match="tideline token create"),
            running(database, host=host),
        ):
            pass
        if host == "0.0.0.0":
            text, _ = Tokens(database.path).create(["read"])
            with running(database, host=host) as url:
                here = url.replace("0.0.0.0", "127.0.0.1")
                assert Api(here).get("/v1/channels").status == 401
                assert Api(here, text).get("/v1/channels").json == []


def test_an_address_that_is_taken_or_not_ours(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as database, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Unavailable, match="address"):
            running(database, port=taken.getsockname()[1]).__enter__()
        with pytest.raises(InvalidRequest):
            running(database, port=70_000).__enter__()
        with pytest.raises(InvalidRequest):
            running(database, rate_per_s=0).__enter__()


# Pages and names ----------------------------------------------------------------------------


def test_foreign_pages_are_refused(url: str, channel: Any) -> None:
    api = Api(url)
    path = f"/v1/channels/{channel.name}"
    port = urlsplit(url).port
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}", "http://127.0.0.1"):
        assert api.get(path, Origin=origin).error == (403, "Forbidden"), origin
        posted = api.post(f"{path}/events", EVENT, Origin=origin)
        assert posted.error == (403, "Forbidden")
        assert "access-control-allow-origin" not in posted.headers
        assert api.call("OPTIONS", path, Origin=origin).status == 403
        assert refused_socket(url, headers={"Origin": origin}) == (403, "Forbidden")
    assert channel.stats().events == 0
    # Its own page may.
    assert api.get(path, Origin=url).status == 200
    with Talk(url, headers={"Origin": url}) as talk:
        assert talk.sync() == []


def test_pages_that_the_operator_named_may_call(serve: Serve) -> None:
    database, url = serve(origins=("https://app.example",))
    database.channel("roads")
    api = Api(url)
    answer = api.get(ROADS, Origin="https://app.example")
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    asked = api.call("OPTIONS", ROADS, Origin="https://app.example",
                     Access_Control_Request_Method="PUT")  # fmt: skip
    assert asked.status == 204
    assert "PUT" in asked.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in asked.headers
    assert api.get(ROADS, Origin="https://other.example").status == 403
    with Talk(url, headers={"Origin": "https://app.example"}) as talk:
        assert talk.sync() == []


def test_a_foreign_name_for_this_machine_is_refused(serve: Serve) -> None:
    """So that a page of evil.example, whose name leads here, is not taken for the server's own."""
    _, url = serve(hosts=("maps.example",))
    api = Api(url)
    port = urlsplit(url).port
    for host in ("evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example"):
        assert api.get("/healthz", Host=host).status in (400, 403), host
    for host in ("localhost", f"LOCALHOST:{port}", "127.0.0.1", "[::1]:80", "maps.example:80"):
        assert api.get("/healthz", Host=host).status == 200, host


# What is told, what is logged, and how it travels ----------------------------------------------


def test_no_secret_and_no_path_is_told_or_logged(
    guarded: dict[str, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    url, folder = guarded["url"], str(guarded["database"].path)
    ann = as_(guarded, "ann")
    ann.post(f"{ROADS}/events", {**EVENT, "body": "a secret body"})
    Api(url).get(f"{ROADS}/subscriptions/x/stream?token={guarded['ann']}")
    with Talk(url, f"/v1/live?token={guarded['ann']}") as talk:
        talk.sync()
    with Talk(url) as talk:
        talk.say(do="hello", token=guarded["ann"])
        talk.sync()
    channel = guarded["database"].channel("roads")

    def full(*_: Any, **named: Any) -> None:
        raise Unavailable("disk is full", file=f"{folder}/log", reason="No space left")

    monkeypatch.setattr(channel.core.engine.calls, "write_one", full)
    answer = ann.post(f"{ROADS}/events", EVENT)
    assert answer.json == {"error": {"kind": "Unavailable", "message": "disk is full"}}

    def bug(*_: Any, **named: Any) -> None:
        raise RuntimeError(f"secret {folder}")

    monkeypatch.setattr(channel.core.engine.calls, "write_one", bug)
    answer = ann.post(f"{ROADS}/events", EVENT)
    assert answer.error == (500, "Bug")
    assert folder not in answer.body.decode()
    monkeypatch.undo()
    assert any(record.exc_info for record in caplog.records)  # the operator hears of it
    ours = [r for r in caplog.records if not r.name.startswith("websockets.client")]
    lines = [JsonLines().format(record) for record in ours]
    text = "".join(line for line in lines if "traceback" not in json.loads(line))
    assert guarded["ann"] not in text
    assert guarded["ann"].split("_", 2)[2] not in text
    assert "a secret body" not in text


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequest("x"), 400, "InvalidRequest"), (NotFound("x"), 404, "NotFound"),
        (tideline.Conflict("x"), 409, "Conflict"), (Unavailable("x"), 503, "Unavailable"),
        (tideline.Closed("x"), 503, "Closed"), (Corruption("x", file="/f"), 503, "Corruption"),
        (RecursionError(), 400, "InvalidRequest"),
    ],
)  # fmt: skip
def test_every_error_of_the_library_has_a_status(error: Exception, status: int, kind: str) -> None:
    told = refusals.refusal(error)
    assert told is not None
    assert (told.status, told.kind) == (status, kind)
    assert "/f" not in str(told)
    assert refusals.refusal(RuntimeError("x")) is None


def test_tls(serve: Serve, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    _, url = serve(tls_cert=cert, tls_key=key)
    address = urlsplit(url)
    assert address.scheme == "https"
    assert address.hostname is not None
    trusted = ssl.create_default_context(cafile=str(cert))
    connection = http.client.HTTPSConnection(
        address.hostname, address.port, context=trusted, timeout=30
    )
    connection.request("GET", "/healthz")
    assert json.loads(connection.getresponse().read()) == {"ok": True}
    connection.close()
    with Talk(url, ssl=trusted, headers={"Origin": url}) as talk:
        assert talk.sync() == []
    with pytest.raises((OSError, http.client.HTTPException)):
        Api(url.replace("https", "http")).get("/healthz")


def test_the_client_over_tls(serve: Serve, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    _, url = serve(tls_cert=cert, tls_key=key)
    with tideline.connect(url, ca=str(cert)) as there:
        roads = there.channel("roads")
        sub = roads.subscribe("a", user="ann", until_s=60)
        told = roads.publish("a", {"text": "x" * 100_000}, ttl_s=60)
        assert [one.user for one in told.subscriptions] == ["ann"]
        assert next(iter(sub)).id == told.event.id
    with pytest.raises(Unavailable, match="cannot be reached"):
        tideline.connect(url, timeout_s=1)  # nobody vouches for the certificate


def test_http_to_a_server_that_wants_https_says_so(serve: Serve, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    _, url = serve(tls_cert=cert, tls_key=key)
    with pytest.raises(Unavailable, match="the server may want https"):
        tideline.connect(url.replace("https", "http"), timeout_s=10)
    with pytest.raises(Unavailable, match="the server may want https"):
        _ask(url.replace("https", "http"), None, None)


def test_tls_needs_both_files(tmp_path: Path) -> None:
    cert, _ = certificate(tmp_path)
    with pytest.raises(InvalidRequest, match="key file"):
        Settings(tls_cert=cert)
    with tideline.open(":memory:") as database, pytest.raises(InvalidRequest, match="no such file"):
        running(database, tls_cert=cert, tls_key=tmp_path / "nothing").__enter__()


def test_files_that_tls_cannot_use_are_refused_before_it_starts(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    cert, key = certificate(tmp_path)
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("garbage")
    (tmp_path / "other").mkdir()
    _, other = certificate(tmp_path / "other")
    locked = tmp_path / "locked.pem"
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    locked.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    with tideline.open(":memory:") as database:
        for files in [(garbage, key), (cert, garbage), (cert, other), (cert, locked)]:
            with pytest.raises(InvalidRequest, match="a certificate and its key"):
                running(database, tls_cert=files[0], tls_key=files[1]).__enter__()


@pytest.mark.parametrize(
    "wrong",
    [{"origins": ("not an origin",)}, {"origins": ("*",)}, {"origins": ("app.example",)},
     {"origins": ("https://app.example/page",)}, {"origins": ("https://",)},
     {"hosts": ("http://maps.example",)}, {"hosts": ("maps.example/x",)}, {"hosts": ("",)},
     {"rate_per_s": float("inf")}, {"rate_per_s": float("nan")}, {"connections": "many"},
     {"stop_s": 0}, {"beat_s": True}],
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Settings(**wrong)


def test_origins_and_names_in_every_spelling() -> None:
    Settings(
        origins=("https://app.example", "http://localhost:3000/", "HTTPS://App.Example:8443",
                 "http://[::1]:80", "capacitor://localhost"),
        hosts=("maps.example", "10.0.0.7", "::1", "My-Host"),
    )  # fmt: skip


def test_who_is_turned_away_at_the_door_is_in_the_log(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    api = Api(url)
    api.get("/healthz", Origin="http://evil.example")
    api.get("/healthz", Host="evil.example")
    api.get("/nowhere?token=tl_secret")
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    away = [line for line in lines if line["event"] == "turned away"]
    assert [line["path"] for line in away] == ["/healthz", "/healthz", "/nowhere"]
    assert "Origin" in away[0]["why"]
    assert "Host" in away[1]["why"]
    assert "tl_secret" not in str(lines)


def test_a_websocket_asked_for_as_a_page_says_what_it_is(url: str) -> None:
    for path in ("/v1/live", "/v1/watch?channel=c"):
        answer = Api(url).get(path)
        assert answer.error == (426, "NotAllowed")
        assert answer.headers["upgrade"] == "websocket"
