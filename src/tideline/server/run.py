"""Running a server: in this process until it is stopped, or beside a test.

    serve(db, settings)              until SIGINT or SIGTERM; `tideline serve`
    with running(db, port=0) as url  in a thread, until the block ends

A stop is graceful: no new connections, open ones get what waits for them and are closed with 1012,
running requests are answered, then the caller closes the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from tideline.errors import InvalidRequest, Unavailable
from tideline.lsm.owner import SERVING
from tideline.server.app import create_app
from tideline.server.arrivals import Arrivals
from tideline.server.http import QuickHttp
from tideline.server.logs import log
from tideline.server.protocol import LiveProtocol
from tideline.server.settings import Settings, is_loopback
from tideline.server.tokens import Tokens

__all__ = ["running", "serve"]

_BACKLOG = 2048
_STUCK_MS = 60_000
_MOST_FILES = 1 << 16
_MOST_WAITING = 1_000  # connections without a request, where descriptors allow


class _Server(uvicorn.Server):
    """uvicorn, which on a stop lets open connections end well before it closes them."""

    def __init__(self, config: uvicorn.Config, hub: Any, arrivals: Arrivals) -> None:
        super().__init__(config)
        self._hub = hub
        self._arrivals = arrivals
        self.ready = threading.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal, and let the caller close the database afterwards.

        uvicorn would raise the signal again at the end, which for SIGTERM ends the process there.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self.ready.set()

    async def main_loop(self) -> None:
        counter = 0
        while not await self.on_tick(counter):
            counter = (counter + 1) % 864_000
            self._arrivals.sweep(time.monotonic())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), 0.1)

    def stop(self) -> None:
        """Begin to stop (any thread)."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._stopped.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: what uvicorn does, but connections get what waits for them first."""
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        await self._hub.stop()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        limit = time.monotonic() + self._hub.settings.stop_s
        while (state.connections or state.tasks) and not self.force_exit:
            if time.monotonic() > limit:
                log("stopped late", level=logging.WARNING, connections=len(state.connections))
                for task in state.tasks:
                    task.cancel()
                break
            await asyncio.sleep(0.002)
        await self.lifespan.shutdown()


def _prepare(db: Any, settings: Settings) -> tuple[_Server, socket.socket, str]:
    """The server, its socket and its address."""
    # A node lets nobody in until the cluster has a token.
    alone = db._sharing is None
    if alone and not is_loopback(settings.host) and not Tokens(db.path).load():
        raise InvalidRequest(
            "off this machine a server needs tokens: make one with `tideline token create`",
            host=settings.host,
        )
    if settings.tls_cert is not None and settings.tls_key is not None:
        _check_tls(settings.tls_cert, settings.tls_key)
    sock = _bind(settings)
    app = create_app(db, settings)
    waiting = min(_MOST_WAITING, max(_files_limit() // 4, 16))
    arrivals = Arrivals(settings.head_timeout_s, waiting)
    config = uvicorn.Config(
        app,
        http=partial(QuickHttp, app, arrivals),  # type: ignore[arg-type]
        ws=partial(LiveProtocol, arrivals),  # type: ignore[arg-type]
        ws_max_size=settings.body_bytes,
        ws_per_message_deflate=False,
        ws_ping_interval=20.0,
        ws_ping_timeout=20.0,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_keep_alive=30,
        limit_concurrency=settings.connections + 2 * waiting,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    scheme = "https" if settings.tls_cert is not None else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return _Server(config, app.hub, arrivals), sock, f"{scheme}://{host}:{sock.getsockname()[1]}"


def _files_limit() -> int:
    """How many files this process may have open, sockets included, raised as far as it may be."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return _MOST_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return _MOST_FILES if soft == resource.RLIM_INFINITY else int(soft)


def _check_tls(cert: Path, key: Path) -> None:
    """Refuse files that no client could be served with, before anything begins."""
    for file in (cert, key):
        if not file.is_file():
            raise InvalidRequest("no such file", file=str(file))
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key, password=_locked)
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not PEM"
        if isinstance(error, ValueError) or not isinstance(error, ssl.SSLError):
            reason = str(error)
        raise InvalidRequest(
            "TLS needs a certificate and its key, both PEM, the key without a password",
            cert=str(cert), key=str(key), reason=reason,
        ) from None  # fmt: skip


def _locked() -> str:
    raise ValueError("the key has a password")


def _bind(settings: Settings) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, proto)
    except OSError as error:
        raise InvalidRequest(
            "host is not an address of this machine", host=settings.host, error=str(error)
        ) from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # who reads nothing for so long is gone
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_MS)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise Unavailable(
            "the address cannot be used", host=settings.host, port=settings.port,
            error=error.strerror,
        ) from None  # fmt: skip
    sock.set_inheritable(False)
    return sock


def serve(
    db: Any, settings: Settings, *, started: Any = None, until: threading.Event | None = None
) -> None:
    """Serve until SIGINT or SIGTERM, or `until` is set; `started(url)` is called when requests are
    answered."""
    server, sock, url = _prepare(db, settings)
    if until is not None:

        def stop() -> None:
            until.wait()
            server.ready.wait()
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                server.stop()

        threading.Thread(target=stop, name="tideline-until", daemon=True).start()
    log("start", url=url, folder=str(db.path), channels=len(db.channels()))
    if started is not None:
        watcher = threading.Thread(target=lambda: (server.ready.wait(), started(url)), daemon=True)
        watcher.start()
    # What is loaded stays: the collector need not look at it again. While it looks, nobody is
    # answered: it looks at little at a time, and seldom at everything, for open subscriptions are
    # many objects without cycles (docs/decisions/0088).
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 50)
    db._sign(f"{SERVING} {url}")
    server.run(sockets=[sock])
    db._sign()
    log("stop", url=url)


@contextlib.contextmanager
def running(db: Any, **settings: Any) -> Iterator[str]:
    """A server in a thread, on a free port unless told otherwise; gives its address.

    >>> import tideline, urllib.request
    >>> with tideline.open(":memory:") as db, running(db) as url:
    ...     urllib.request.urlopen(url + "/v1/channels").read()
    b'[]\\n'
    """
    settings.setdefault("port", 0)
    chosen = Settings(**settings)
    server, sock, url = _prepare(db, chosen)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            server.run(sockets=[sock])
        except BaseException as error:
            failed.append(error)
        finally:
            server.ready.set()

    def stop() -> None:
        server.stop()
        thread.join()
        db._sign()

    thread = threading.Thread(target=run, name="tideline-serve", daemon=True)
    thread.start()
    server.ready.wait()
    if failed:
        thread.join()
        raise failed[0]
    db._sign(f"{SERVING} {url}")
    _entered.append(stop)
    try:
        yield url
    finally:
        if stop in _entered:
            _entered.remove(stop)
            stop()


_entered: list[Callable[[], None]] = []  # what stops the servers of `running`


def _stop_all() -> None:
    """At the end of Python, for who entered `running` at a prompt and never left it."""
    while _entered:
        _entered.pop()()


# Before Python waits for the threads of executors, which servers use until their end: `atexit`
# comes too late.
threading._register_atexit(_stop_all)  # type: ignore[attr-defined]
