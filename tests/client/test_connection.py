"""HTTP by hand: whole answers are understood however they come, all others are no answers.

A real server in a thread says what each test tells it to (scripted.py). How much is read at once
is set to a few bytes where answers should come in pieces.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate
from hypothesis import given
from hypothesis import strategies as st
from ports import free_port
from scripted import CLOSE, ECHO, GUARD_S, Scripted, call, scripted

import tideline
from tideline.client import connection
from tideline.client.connection import Answer, Broken, Endpoint, NoConnection, Pool
from tideline.client.http import Http
from tideline.errors import InvalidRequest, Unavailable

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
    b'3\r\nabc\r\n0A;name="a;b" ; more\r\n0123456789\r\n000\r\nTrailer: x\r\nAnother: y\r\n\r\n'
)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK


@contextlib.contextmanager
def pool_of(server: Scripted, **options: Any) -> Iterator[Pool]:
    pool = Pool(Endpoint("127.0.0.1", server.port, {"Authorization": "Bearer t"}, **options))
    try:
        yield pool
    finally:
        pool.close()


def ask(
    pool: Pool, body: bytes | None = None, method: str = "GET", within_s: float = GUARD_S
) -> Answer:
    return pool.request(method, "/x?y=1", "text/plain", body, time.monotonic() + within_s)


@contextlib.contextmanager
def pieces_of(count: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "_PIECE_BYTES", count)
        yield


# Requests -------------------------------------------------------------------------------


def test_a_request_is_what_was_meant() -> None:
    big = bytes(range(256)) * 8192  # longer than what is sent in one go
    with scripted([OK], [OK], [OK], [OK], [OK]) as server, pool_of(server) as pool:
        for body in (None, b"", b"hello", big, memoryview(big)):
            assert ask(pool, body, "GET" if body is None else "POST").data == b"ok"
    head = (
        f"Host: 127.0.0.1:{server.port}\r\nUser-Agent: tideline\r\nAccept: */*\r\n"
        "Accept-Encoding: identity\r\nAuthorization: Bearer t\r\n"
    ).encode()
    typed = b"POST /x?y=1 HTTP/1.1\r\n" + head + b"Content-Type: text/plain\r\nContent-Length: "
    assert server.asked == [
        (0, b"GET /x?y=1 HTTP/1.1\r\n" + head + b"\r\n"),
        (0, typed + b"0\r\n\r\n"),
        (0, typed + b"5\r\n\r\nhello"),
        (0, typed + b"2097152\r\n\r\n" + big),
        (0, typed + b"2097152\r\n\r\n" + big),
    ]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://Example.ORG", "example.org"),
        ("http://example.org:80/", "example.org"),
        ("http://example.org:443", "example.org:443"),
        ("https://example.org:443", "example.org"),
        ("https://example.org:8443", "example.org:8443"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("https://[::1]", "[::1]"),
        ("http://[fe80::1%25eth0]", "[fe80::1]"),
        ("http://Bücher.example", "xn--bcher-kva.example"),
    ],
)
def test_the_host_is_named_as_it_should_be(url: str, host: str) -> None:
    made = Http(url, None, 1.0, None)
    assert f"\r\nHost: {host}\r\n" in made.endpoint.head


@pytest.mark.parametrize(
    "url",
    ["http://a b", "http://[::1", "http://a:99999", "http://a:x", "http://" + "a" * 64, "http://."],
)
def test_a_host_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="address"):
        Http(url, None, 1.0, None)


def test_a_path_before_ours_is_quoted_and_a_token_cannot_end_its_line() -> None:
    with scripted([OK]) as server:
        http = Http(f"http://127.0.0.1:{server.port}/a b/ü%20/", None, GUARD_S, None)
        http.request("GET", "v1", "x/y")
        http.close()
    assert server.asked[0][1].startswith(b"GET /a%20b/%C3%BC%20/v1/x%2Fy HTTP/1.1\r\n")
    with pytest.raises(InvalidRequest, match="token"):
        Http("http://127.0.0.1:1", "a\r\nX: y", 1.0, None)


# Whole answers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "data"), [(OK, b"ok"), (CHUNKED, b"abc0123456789"), (CONTINUED, b"ok")]
)
def test_an_answer_may_come_in_any_pieces(said: bytes, data: bytes) -> None:
    sizes = range(1, len(said) + 1)
    with scripted(*[[said]] * len(sizes)) as server, pool_of(server) as pool:
        for size in sizes:
            with pieces_of(size):
                answer = ask(pool)
            assert (answer.status, answer.data) == (200, data)
    assert server.connections == 1  # each was read to its very end


def test_headers_are_found_by_names_in_lower_case() -> None:
    said = (
        b"HTTP/1.1 418\r\nCONTENT-length:0\r\nX-One: \t a b \r\nx-two:\r\nX-One: c\r\n"
        b"X-Long: a\r\n  b\r\n\tc\r\nX-Late: caf\xe9\r\n\r\n"
    )
    with scripted([said]) as server, pool_of(server) as pool:
        answer = ask(pool)
    assert (answer.status, answer.data) == (418, b"")
    assert answer.headers == {
        "content-length": "0", "x-one": "a b, c", "x-two": "", "x-long": "a b c",
        "x-late": "café",
    }  # fmt: skip


def test_answers_without_a_body_have_none() -> None:
    scripts = [
        [b"HTTP/1.1 204 No Content\r\n\r\n"],
        [b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"],
        [OK],
    ]
    with scripted(*scripts) as server, pool_of(server) as pool:
        assert [ask(pool, method=m).data for m in ("GET", "GET", "HEAD", "GET")] == [b""] * 3 + [
            b"ok"
        ]
    assert server.connections == 1


def test_a_server_that_hangs_up_on_a_request_may_say_why() -> None:
    said = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            end, _ = listening.accept()
            with end:
                end.recv(100)
                end.sendall(said)  # and the rest of the request is not read: a reset

        thread = threading.Thread(target=refuse)
        thread.start()
        pool = Pool(Endpoint("127.0.0.1", listening.getsockname()[1], {}))
        answer = ask(pool, bytes(8 << 20), "POST")
        thread.join(GUARD_S)
        assert (answer.status, answer.data) == (413, b"no")
        assert pool._idle == []


NAMES = st.text("abcXYZ019-_!~", min_size=1, max_size=12).filter(
    lambda name: name.lower() not in ("content-length", "transfer-encoding", "connection")
)
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=30).filter(
    lambda value: not {"\x7f", "\x85", "\xa0"} & set(value)
)


@given(
    status=st.integers(200, 599).filter(lambda status: status not in (204, 304)),
    fields=st.dictionaries(NAMES, VALUES, max_size=6),
    parts=st.lists(st.binary(min_size=1, max_size=300), max_size=5),
    chunked=st.booleans(),
    extension=st.sampled_from(["", ";a", ' ; a="b"']),
    trailers=st.dictionaries(NAMES, VALUES, max_size=2),
    size=st.integers(1, 400),
)
def test_what_was_meant_is_what_is_read(
    status: int, fields: dict[str, str], parts: list[bytes], chunked: bool, extension: str,
    trailers: dict[str, str], size: int,
) -> None:  # fmt: skip
    body = b"".join(parts)
    head = f"HTTP/1.1 {status} Said\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    if chunked:
        said = b"".join(f"{len(part):x}{extension}\r\n".encode() + part + b"\r\n" for part in parts)
        said += f"0{extension}\r\n".encode()
        said += "".join(f"{n}: {v}\r\n" for n, v in trailers.items()).encode("latin-1") + b"\r\n"
        head += "Transfer-Encoding: chunked\r\n\r\n"
    else:
        said = body
        head += f"Content-Length: {len(body)}\r\n\r\n"
    whole = head.encode("latin-1") + said
    meant: dict[str, str] = {}
    for name, value in fields.items():
        name = name.lower()
        meant[name] = f"{meant[name]}, {value}" if name in meant else value
    with scripted([whole], [whole[:-1], CLOSE]) as server, pool_of(server) as pool:
        with pieces_of(size):
            answer = ask(pool)
            assert (answer.status, answer.data) == (status, body)
            said_of = "transfer-encoding" if chunked else "content-length"
            assert {n: v for n, v in answer.headers.items() if n != said_of} == meant
            with pytest.raises(Broken, match="cut"):
                ask(pool)
        assert server.connections == 1


# What is no answer ----------------------------------------------------------------------


def test_a_server_that_wants_tls_is_recognised() -> None:
    alert = b"\x15\x03\x03\x00\x02\x02\x46"
    with scripted([alert, CLOSE], [CLOSE], [alert]) as server, pool_of(server) as pool:
        for said in ("the answer is TLS", "the answer was cut off", "the answer is TLS"):
            with pytest.raises(Broken, match=f"{said}: the server may want https") as broken:
                ask(pool)
            assert broken.value.final == (said == "the answer is TLS")


def test_an_answer_that_is_cut_anywhere_is_none() -> None:
    for said in (OK, CHUNKED, CONTINUED):
        scripts = [[said[:end], CLOSE] for end in range(len(said))]
        with scripted(*scripts) as server, pool_of(server) as pool:
            for _ in scripts:
                with pytest.raises(Broken, match="cut"):
                    ask(pool)
        assert server.connections == len(scripts)


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody",
        b"HTTP/1.0 200 OK\r\n\r\nbody",
    ],
)
def test_a_body_that_only_the_connection_ends_may_be_cut(said: bytes) -> None:
    with (
        scripted([said, CLOSE]) as server,
        pool_of(server) as pool,
        pytest.raises(Broken, match="cut"),
    ):
        ask(pool)


@pytest.mark.parametrize(
    "head",
    [
        b"hello\r\n",
        b"\r\n",
        b"HTTP/2 200 OK\r\n",
        b"HTTP/1.1 20 OK\r\n",
        b"HTTP/1.1 2000 OK\r\n",
        b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"0" * 5_000 + b"2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nno header\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n: no name\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n",
        b"HTTP/1.1 200 OK\r\n Content-Length: 2\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\nContent-Length: 2\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 40_000,
    ],
)
def test_a_head_that_makes_no_sense_is_no_answer(head: bytes) -> None:
    with scripted([head + b"\r\nok"], [OK]) as server, pool_of(server) as pool:
        with pytest.raises(Broken):
            ask(pool)
        assert ask(pool).data == b"ok"
    assert server.connections == 2  # the first was not used again


@pytest.mark.parametrize(
    "body",
    [
        b"\r\nok\r\n0\r\n\r\n",
        b"-2\r\nok\r\n0\r\n\r\n",
        b"0x2\r\nok\r\n0\r\n\r\n",
        b"1_0\r\n0123456789abcdef\r\n0\r\n\r\n",
        b"g\r\nok\r\n0\r\n\r\n",
        b"1\r\nok\r\n0\r\n\r\n",
        b"2\r\nok0\r\n\r\n",
        b"f" * 5_000 + b"\r\nok\r\n0\r\n\r\n",
        b"2;" + b"x" * 200_000 + b"\r\nok\r\n0\r\n\r\n",
        b"0\r\n" + b"X: x\r\n" * 40_000 + b"\r\n",
    ],
)
def test_chunks_that_make_no_sense_are_no_answer(body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with scripted([head + body], [OK]) as server, pool_of(server) as pool:
        with pytest.raises(Broken):
            ask(pool)
        assert ask(pool).data == b"ok"


def test_a_head_that_drips_is_not_waited_for_longer_than_the_limit() -> None:
    stop = threading.Event()

    def drip(end: socket.socket) -> None:
        while not stop.wait(0.02):  # always long before a wait for one piece would end
            end.sendall(b"x")

    with scripted([drip]) as server, pool_of(server) as pool:
        started = time.monotonic()
        with pytest.raises(Broken, match="timed out"):
            ask(pool, within_s=0.3)
        assert time.monotonic() - started >= 0.3
        stop.set()


def test_a_body_that_goes_on_coming_is_waited_for_beyond_the_limit() -> None:
    def drip(end: socket.socket) -> None:
        for _ in range(12):  # of each piece it is known that it may take 2 s
            time.sleep(0.2)
            end.sendall(b"x")

    head = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"
    with scripted([head, drip]) as server, pool_of(server) as pool:
        assert ask(pool, within_s=2.0).data == b"x" * 12


def test_a_body_that_stops_coming_is_not_waited_for() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nxxx"
    ended = threading.Event()
    with scripted([head, lambda end: ended.wait(30)]) as server, pool_of(server) as pool:
        with pytest.raises(Broken, match="timed out"):
            ask(pool, within_s=0.3)
        ended.set()


def test_a_request_that_nobody_reads_is_not_sent_for_longer_than_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pool = Pool(Endpoint("127.0.0.1", silent.getsockname()[1], {}))
        with pytest.raises(Broken, match="timed out"):
            ask(pool, bytes(64 << 20), "POST", within_s=0.3)


# Connections that are kept --------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        OK + OK,  # two answers to one question
        OK + b"\r\n",
        OK.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n"),
        OK.replace(b"1.1", b"1.0"),
        CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\n\r\n", 1),
    ],
)
def test_a_connection_that_should_not_be_kept_is_not(said: bytes) -> None:
    with scripted([said], [OK]) as server, pool_of(server) as pool:
        assert ask(pool).status == 200
        assert pool._idle == []
        assert ask(pool).data == b"ok"
    assert [number for number, _ in server.asked] == [0, 1]


@pytest.mark.parametrize("late", [CLOSE, b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
def test_what_happens_to_an_idle_connection_is_noticed_before_it_is_used(late: Any) -> None:
    go = threading.Event()
    waiting = [OK, call(lambda: go.wait(GUARD_S)), late]
    with scripted(waiting, [OK]) as server, pool_of(server) as pool:
        ask(pool)
        go.set()
        [idle] = pool._idle
        assert select.select([idle._socket], [], [], GUARD_S)[0]
        assert ask(pool, b"once", "POST").data == b"ok"
    assert [number for number, _ in server.asked] == [0, 1]


def test_the_connection_used_last_is_used_next_and_eight_are_kept() -> None:
    together = threading.Barrier(10)
    meet = [call(lambda: together.wait(GUARD_S)), OK]
    with scripted(*[meet] * 10, *[[OK]] * 3) as server, pool_of(server) as pool:
        threads = [threading.Thread(target=ask, args=(pool,)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD_S)
        assert (server.connections, len(pool._idle)) == (10, 8)
        last = pool._idle[-1]
        for _ in range(3):
            ask(pool)
        assert pool._idle[-1] is last
        assert server.connections == 10


def test_closing_closes_idle_connections_now_and_busy_ones_when_they_come_back() -> None:
    asked, go = threading.Event(), threading.Event()
    busy = [call(asked.set), call(lambda: go.wait(GUARD_S)), OK]
    both = threading.Barrier(2)
    meet = [call(lambda: both.wait(GUARD_S)), OK]
    with scripted(meet, meet, busy) as server, pool_of(server) as pool:
        first = [threading.Thread(target=ask, args=(pool,)) for _ in range(2)]
        for thread in first:
            thread.start()
        for thread in first:
            thread.join(GUARD_S)
        idle, used = pool._idle
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(ask(pool).data))
        thread.start()
        assert asked.wait(GUARD_S)
        pool.close()
        assert idle._socket.fileno() == -1
        assert used._socket.fileno() != -1
        go.set()
        thread.join(GUARD_S)
        assert got == [b"ok"]
        assert used._socket.fileno() == -1
        assert pool._idle == []


def test_a_pool_is_safe_from_any_thread() -> None:
    with scripted(*[[ECHO]] * 400) as server, pool_of(server) as pool:
        failures: list[BaseException] = []

        def work(name: int) -> None:
            try:
                for n in range(50):
                    body = b"%d " % name * n
                    assert ask(pool, body, "POST").data == body
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD_S)
        assert failures == []
        assert len(server.asked) == 400
        assert server.connections <= 8


# Connections that are not made ----------------------------------------------------------


def test_where_nobody_listens_nothing_was_sent() -> None:
    port = free_port()
    for host in ("127.0.0.1", "localhost", "no-such-host.invalid"):
        with pytest.raises(NoConnection) as caught:
            ask(Pool(Endpoint(host, port, {})))
        assert not caught.value.final


def test_without_time_nothing_is_sent() -> None:
    with scripted([OK]) as server, pool_of(server) as pool:
        ask(pool)
        with pytest.raises(NoConnection, match="timed out"):
            ask(pool, within_s=0.0)
    assert len(server.asked) == 1


def test_the_addresses_of_a_name_are_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted([OK]) as server, socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()
        free.close()

        def found(*_: Any, **__: Any) -> list[Any]:
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, closed), (*kind, ("127.0.0.1", server.port))]

        monkeypatch.setattr(socket, "getaddrinfo", found)
        with pool_of(server) as pool:
            assert ask(pool).data == b"ok"


# TLS ------------------------------------------------------------------------------------


def test_tls_is_spoken_and_a_connection_kept(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(cert, key)
    trusted = ssl.create_default_context(cafile=str(cert))
    big = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000
    scripts = [[big], [CHUNKED], [OK + OK], [big[:-1], CLOSE]]
    with scripted(*scripts, tls=serving) as server, pool_of(server, tls=trusted) as pool:
        assert ask(pool, bytes(3 << 20), "POST").data == b"x" * 300_000
        assert ask(pool).data == b"abc0123456789"
        assert ask(pool).data == b"ok"
        with pytest.raises(Broken, match="cut"):
            ask(pool)
    assert [number for number, _ in server.asked] == [0, 0, 0, 1]


def test_a_certificate_that_is_not_trusted_is_not_tried_again(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(cert, key)
    with scripted(tls=serving) as server:
        for host, ca in (("127.0.0.1", None), ("localhost", str(cert))):  # unknown; another name
            trusted = ssl.create_default_context(cafile=ca)
            with pytest.raises(NoConnection, match="certificate verify failed") as caught:
                ask(Pool(Endpoint(host, server.port, {}, trusted)))
            assert caught.value.final
            before = server.connections
            http = Http(f"https://{host}:{server.port}", None, GUARD_S, trusted)
            with pytest.raises(Unavailable, match="certificate verify failed"):
                http.request("GET", "v1")
            assert server.connections == before + 1


def test_a_handshake_that_is_cut_can_be_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            end, _ = listening.accept()
            end.recv(65_536)
            end.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        trusted = ssl.create_default_context()
        with pytest.raises(NoConnection) as caught:
            ask(Pool(Endpoint("127.0.0.1", listening.getsockname()[1], {}, trusted)))
        assert not caught.value.final
        thread.join(GUARD_S)


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (ssl.SSLEOFError(8, "EOF occurred"), False),
        (ssl.SSLZeroReturnError(6, "closed"), False),
        (ssl.SSLCertVerificationError(1, "unknown"), True),
        (ssl.SSLError(1, "wrong version number"), True),
        (ConnectionResetError(104, "reset"), False),
    ],
)
def test_what_breaks_while_sending_is_final_only_if_tls_itself_failed(
    error: OSError, final: bool
) -> None:
    class Failing:  # what TLS says depends on the moment of a cut, which no test can choose
        def settimeout(self, left_s: float) -> None: ...
        def fileno(self) -> int:
            return 0

        def sendall(self, data: bytes) -> None:
            raise error

        def recv(self, count: int) -> bytes:
            raise error

        def close(self) -> None: ...

    pool = Pool(Endpoint("127.0.0.1", 1, {}))
    pool.connect = lambda limit, endpoint: Failing()  # type: ignore[assignment, return-value]
    with pytest.raises(Broken) as caught:
        ask(pool)
    assert caught.value.final is final


# The client on top ----------------------------------------------------------------------


def test_a_call_that_may_not_be_made_twice_is_made_again_only_if_nothing_was_sent() -> None:
    empty = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with scripted([OK, CLOSE], [empty], [OK[:-1], CLOSE], [empty]) as server:
        http = Http(f"http://127.0.0.1:{server.port}", None, GUARD_S, None)
        http.request("GET", "x")
        [idle] = http._pool._idle
        assert select.select([idle._socket], [], [], GUARD_S)[0]
        assert http.request("POST", "x", body={}, again=False).data == b"{}"
        with pytest.raises(Unavailable, match="may have landed"):
            http.request("POST", "x", body={}, again=False)
        assert http.request("POST", "x", body={}).data == b"{}"
        http.close()
    assert len(server.asked) == 4


def test_a_call_may_have_any_time() -> None:
    with scripted([OK]) as server:
        http = Http(f"http://127.0.0.1:{server.port}", None, 1e11, None)
        assert http.request("GET", "x").data == b"ok"
        http.close()


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    said = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
    with (
        scripted([said], [said]) as server,
        tideline.connect(f"http://127.0.0.1:{server.port}", timeout_s=GUARD_S) as remote,
    ):
        assert remote.channels() == []
