"""The example with FastAPI runs, on a server and on a folder: examples/orders_web."""

from __future__ import annotations

import contextlib
import json
import runpy
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.server import running

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "orders_web" / "app.py"
GUARD_S = 60.0


@contextlib.contextmanager
def application() -> Iterator[str]:
    """The example, served; its address."""
    import uvicorn

    app = runpy.run_path(str(EXAMPLE))["app"]
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    started = threading.Event()

    class Told(type(server)):  # type: ignore[misc]
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set()

    server.__class__ = Told
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert started.wait(GUARD_S)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def ask(method: str, url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=GUARD_S) as answer:
        return json.load(answer)


@pytest.mark.parametrize("over", ["http", "folder"])
def test_orders_are_stored_found_and_followed(
    over: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi")
    with contextlib.ExitStack() as stack:
        if over == "http":
            db = stack.enter_context(tideline.open(tmp_path / "data"))
            monkeypatch.setenv("TIDELINE_URL", stack.enter_context(running(db)))
        else:
            monkeypatch.delenv("TIDELINE_URL", raising=False)
            monkeypatch.setenv("TIDELINE_FOLDER", str(tmp_path / "data"))
        url = stack.enter_context(application())
        assert ask("PUT", f"{url}/orders/7", {"state": "new"}) == {"id": 7, "state": "new"}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask("GET", f"{url}/orders/8")
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask("GET", f"{url}/orders?limit=0")
        with urllib.request.urlopen(f"{url}/orders/7/events", timeout=GUARD_S) as events:
            assert events.readline() == b": following\n"
            ask("PUT", f"{url}/orders/7", {"state": "paid", "by": "ann"})
            ask("PUT", f"{url}/orders/8", {"state": "new"})
            ask("PUT", f"{url}/orders/7", {"state": "sent"})
            told = [json.loads(line[6:]) for line in lines(events, 2)]
        assert told == [
            {"id": 7, "state": "paid", "by": "ann"},
            {"id": 7, "state": "sent", "by": "ann"},
        ]
        assert ask("GET", f"{url}/orders/7") == told[-1]
        assert ask("GET", f"{url}/orders?state=new") == [{"id": 8, "state": "new"}]


def lines(events: Any, count: int) -> Iterator[bytes]:
    """The next lines with data."""
    while count:
        line = events.readline()
        assert line
        if line.startswith(b"data: "):
            count -= 1
            yield line
