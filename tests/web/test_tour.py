"""A server that has a place to begin: the page goes there, has asked, and says what is seen."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from test_windows_page import OUTSIDE

from tideline.workload.manhattan import CENTRE

ROOT = Path(__file__).resolve().parents[2]
BOXES = (
    "(css) => [...document.querySelectorAll(css)].map((e) => e.getBoundingClientRect().toJSON())"
)
START = {"channel": "roads", "at": list(CENTRE), "radius_m": 1000, "across_m": 3600,
         "name": "Midtown"}  # fmt: skip


def test_the_page_begins_in_the_city_with_a_question(
    open_screen: Callable[..., Any], served: Any
) -> None:
    served.roads.publish(CENTRE, {"kind": "film crew", "road": "7 Av"}, ttl_s=600)
    served.stop()
    served.start(start=START, status=lambda: "Spark: off")
    screen = open_screen(reduced_motion="reduce")
    page = screen.page
    screen.wait_for_text("#tour-title", "Live in Midtown")
    assert screen.wait_for_answers(1)[0][0] == "past"
    lon, lat = screen.place(0.5, 0.5)
    assert (lon, lat) == pytest.approx(CENTRE, abs=0.01)
    [asked] = served.roads.subscriptions()
    event = served.roads.publish(CENTRE, {"kind": "crash", "severity": 2}, ttl_s=600)
    assert screen.wait_for_answers(2)[1] == ("live", event.event.id)
    screen.wait_for_text("#tour-event", "Happened: crash, severity 2.")
    screen.wait_for_text("#tour-told", "1 who asked around there was told at once.")
    # What happened, opened: all of it, who was told, and a way there.
    screen.click(0.5, 0.5)
    found = f"#found li[data-event='{event.event.id}']"
    page.click(f"{found} summary")
    screen.wait_for_text(found, "1 told: you")
    assert '"severity": 2' in page.inner_text(f"{found} pre")
    page.click(f"{found} button")
    assert screen.place(0.5, 0.5) == pytest.approx(CENTRE, abs=0.005)
    screen.wait_for_text("#said", "Spark: off")
    for width in (320, 768):
        page.set_viewport_size({"width": width, "height": 740})
        assert page.evaluate(OUTSIDE, width) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Nothing lies on what the server says; the three lines of the card begin in one column.
        [said] = page.evaluate(BOXES, "#said")
        [card] = page.evaluate(BOXES, "#tour")
        assert said["bottom"] <= card["top"]
    assert len({box["left"] for box in page.evaluate(BOXES, "#tour li span")}) == 1
    # Loaded again and again, it takes up the question that it has.
    for _ in range(3):
        page.reload()
    page.wait_for_selector(f".card[data-id='{asked.id}']")
    assert [info.id for info in served.roads.subscriptions()] == [asked.id]
    page.click("#tour-whole")
    assert page.is_hidden("#tour")
    page.reload()
    page.wait_for_selector("#status[data-state=open]")
    assert page.is_hidden("#tour")
    assert [info.id for info in served.roads.subscriptions()] == [asked.id]


def test_another_server_has_no_tour(screen: Any, served: Any) -> None:
    served.roads.publish(CENTRE, {"kind": "crash"}, ttl_s=600)
    assert screen.page.is_hidden("#tour")
    assert served.roads.subscriptions() == []


def test_the_city_on_the_map_is_that_of_the_workload() -> None:
    script = ROOT / "scripts" / "web_city.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def prefixed(served: Any) -> Iterator[str]:
    """The server behind a proxy that gives it a folder: `/pre/...` is its `/...`."""
    port = urlsplit(served.url).port
    listening = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, sink: socket.socket, change: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data.replace(b" /pre/", b" /") if change else data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                each.close()

    def accept() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", port))
            for pair in ((client, server, True), (server, client, False)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def test_every_view_works_below_a_folder(browser: Any, served: Any, prefixed: str) -> None:
    served.db.collection("orders", key="id").put({"id": 1})
    errors: list[str] = []
    with browser.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(prefixed + "/pre/")
        page.wait_for_selector("#status[data-state=open]")
        for view, ready in [("store", "#store-rows tr"), ("access", "#access-limits div"),
                            ("tables", "#query-1[data-state=open]")]:  # fmt: skip
            page.click(f"#tab-{view}")
            page.wait_for_selector(ready)
            assert page.url.startswith(f"{prefixed}/pre/")
    assert errors == []
