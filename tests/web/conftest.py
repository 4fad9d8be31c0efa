"""The page in a real Chromium, against a real server over a real store.

    server  --running()-->  url  --page-->  one Chromium for all tests, a fresh context a test

Chromium is Debian's (scripts/chromium.sh sees to it, CHROMIUM names another); Playwright drives it
and downloads none. After every test: no error on the console, no request to anywhere but the
server, a screenshot kept as screen.png in the test's temporary folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client.proxy import Proxy
from javascript import JavaScript, Node, Tab
from playwright.sync_api import Browser, Page, sync_playwright
from ports import free_port

import tideline
from tideline.server import running
from tideline.server.tokens import Tokens
from tideline.space import QuadTree
from tideline.workload.newyork import BOUNDS

ROOT = Path(__file__).resolve().parents[2]
SERVING = ROOT / "tests" / "client" / "serving.py"
TIMEOUT_MS = 120_000  # for a busy machine; what is waited for comes as soon as it is there


def chromium() -> str:
    """The browser to use."""
    names = [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else []
    for name in names or ["chromium", "chromium-browser", "google-chrome"]:
        found = shutil.which(name)
        if found:
            return found
    raise RuntimeError("no Chromium: run scripts/chromium.sh, or name one in CHROMIUM")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the client's npm package, as `npm pack` makes it."""
    npm = shutil.which("npm")
    assert npm, "no npm: run scripts/mingo.sh, which sees to it"
    folder = tmp_path_factory.mktemp("npm")
    copy = folder / "copy"  # two runs at once would be in each other's way
    shutil.copytree(ROOT / "clients" / "js", copy / "clients" / "js")
    shutil.copytree(ROOT / "src" / "tideline" / "web", copy / "src" / "tideline" / "web")
    shutil.copy(ROOT / "LICENSE", copy)
    subprocess.run(
        [npm, "pack", "--silent", "--offline", "--pack-destination", str(folder)],
        cwd=copy / "clients" / "js", check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    [packed] = folder.glob("tideline-*.tgz")
    with tarfile.open(packed) as files:
        files.extractall(folder, filter="data")
    return folder / "package"


@pytest.fixture(scope="module")  # while it runs, no other test here can run a loop of asyncio
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of a file."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield started
        started.close()


class Served:
    """An open database behind a server that can be stopped and started again at its address."""

    def __init__(self, folder: Path) -> None:
        self.db = tideline.open(folder)
        self.roads = self.db.channel("roads", space=QuadTree(bounds=BOUNDS, depth=9), journal_s=60)
        self._stack = contextlib.ExitStack()
        self.url = self._stack.enter_context(running(self.db))

    def stop(self) -> None:
        self._stack.close()

    def start(self, **settings: Any) -> None:
        port = int(self.url.rpartition(":")[2])
        self._stack.enter_context(running(self.db, port=port, **settings))

    def close(self) -> None:
        self.stop()
        self.db.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server with one channel, `roads`, over New York State."""
    made = Served(tmp_path / "data")
    yield made
    made.close()


class Screen:
    """A page of the server as somebody sees and uses it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        self.expected: list[str] = []  # patterns of console errors a test causes on purpose
        self.requests: list[str] = []
        page.set_default_timeout(TIMEOUT_MS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def open(self, path: str = "/") -> None:
        """Load the page and wait until its feed runs."""
        self.page.goto(self.url + path)
        self.page.wait_for_selector("#status[data-state=open]")

    def tool(self, name: str) -> None:
        self.page.check(f"input[name=tool][value={name}]")

    def spot(self, across: float, down: float) -> tuple[float, float]:
        """A point of the map, in shares of its width and height, as pixels of the page."""
        box = self.page.locator("#map").bounding_box()
        assert box is not None
        return box["x"] + box["width"] * across, box["y"] + box["height"] * down

    def place(self, across: float, down: float) -> tuple[float, float]:
        """Longitude and latitude the page says are there."""
        self.page.mouse.move(*self.spot(across, down))
        text = self.page.inner_text("#readout")
        found = re.match(r"([\d.]+) N ([\d.]+) W", text)
        assert found, text
        return -float(found[2]), float(found[1])

    def click(self, across: float, down: float) -> None:
        self.page.mouse.click(*self.spot(across, down))

    def draw(self, across: float, down: float, pixels: float) -> None:
        """Drag a circle from its middle."""
        x, y = self.spot(across, down)
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x + pixels / 2, y, steps=3)
        self.page.mouse.move(x + pixels, y, steps=3)
        self.page.mouse.up()

    def answers(self) -> list[tuple[str, str]]:
        """The answers shown, oldest first: how each came, and which event it is."""
        shown: list[tuple[str, str]] = self.page.evaluate(
            "[...document.querySelectorAll('#answers li[data-event]')].reverse()"
            ".map((row) => [row.dataset.how, row.dataset.event])"
        )
        return [(how, event) for how, event in shown]

    def wait_for_answers(self, count: int) -> list[tuple[str, str]]:
        """Wait until so many are shown."""
        self.page.wait_for_function(
            "(n) => document.querySelectorAll('#answers li[data-event]').length >= n", arg=count
        )
        return self.answers()

    def wait_for_text(self, selector: str, text: str) -> None:
        self.page.wait_for_function(
            "([s, t]) => document.querySelector(s)?.textContent.includes(t)", arg=[selector, text]
        )


@pytest.fixture
def open_screen(
    browser: Browser, served: Served, tmp_path: Path
) -> Iterator[Callable[..., Screen]]:
    """`open_screen(**options of a browser context)`: a page, open on the server."""
    screens: list[Screen] = []
    contexts: list[Any] = []

    def factory(path: str | None = "/", **options: Any) -> Screen:
        options.setdefault("viewport", {"width": 1280, "height": 800})
        contexts.append(browser.new_context(**options))
        screens.append(Screen(contexts[-1].new_page(), served.url))
        if path is not None:
            screens[-1].open(path)
        return screens[-1]

    yield factory
    for number, screen in enumerate(screens):
        name = "screen.png" if number == 0 else f"screen-{number}.png"
        screen.page.screenshot(path=tmp_path / name)
    for context in contexts:
        context.close()
    for screen in screens:
        unexpected = [
            error
            for error in screen.errors
            if not any(re.search(pattern, error) for pattern in screen.expected)
        ]
        assert unexpected == []
        own = (served.url, served.url.replace("http", "ws"))
        assert [url for url in screen.requests if not url.startswith(own)] == []


@pytest.fixture
def screen(open_screen: Callable[..., Screen]) -> Screen:
    """The page at desktop size."""
    return open_screen()


# ---- the JavaScript client ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Tab]:
    """One page for the JavaScript of a file: each test loads it anew."""
    with browser.new_context() as context:
        yield Tab(context.new_page())


@pytest.fixture(params=["node", "chromium"])
def js(request: pytest.FixtureRequest) -> Iterator[JavaScript]:
    """JavaScript in Node, and in Chromium."""
    if request.param == "node":
        node = Node(request.getfixturevalue("package"))
        yield node
        node.close()
        return
    yield request.getfixturevalue("tab")


@pytest.fixture
def db() -> Iterator[Any]:
    with tideline.open(":memory:") as made:
        yield made


@pytest.fixture
def url(db: Any, js: JavaScript) -> Iterator[str]:
    with running(db) as served:
        js.visit(served)
        js("(m, url) => { globalThis.db = m.connect(url); }", served)
        yield served
        js("() => globalThis.db.close()")


class Killed:
    """A server in a process of its own, behind a proxy that cuts connections."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self.start()
        self.proxy = Proxy(self.port)

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVING), str(self._folder), str(self.port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith(b"ready")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        self._process.communicate()  # its input ends, and so does it


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    made = Killed(tmp_path / "data")
    yield made
    made.proxy.close()
    made.stop()


@pytest.fixture
def locked(tmp_path: Path, js: JavaScript) -> Iterator[tuple[Any, str, Tokens]]:
    """A server that needs tokens, and notices quickly when one is revoked."""
    with tideline.open(tmp_path / "locked") as db:
        tokens = Tokens(db.path)
        tokens.create(["admin"])
        db.channel("roads")
        with running(db, beat_s=0.05) as url:
            js.visit(url)
            yield db, url, tokens
