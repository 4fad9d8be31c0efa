"""What a user of the JavaScript client gets: the npm package, its types, the guide, the example."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from javascript import NODE, Node

import tideline
from tideline.server import running

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "src" / "tideline" / "web"
GUIDE = (ROOT / "docs" / "guide" / "javascript.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "live.html"
ADDRESS = "http://127.0.0.1:8080"


def test_the_package_is_the_source_that_servers_have(package: Path) -> None:
    facts = json.loads((package / "package.json").read_text(encoding="utf-8"))
    assert facts["version"] == tideline.__version__
    sources = [WEB / "tideline.js", *sorted((WEB / "tideline").glob("*.js"))]
    names = {str(source.relative_to(WEB)) for source in sources}
    shipped = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    assert shipped == names | {"package.json", "README.md", "LICENSE", "tideline.d.ts"}
    for source in sources:
        assert (package / source.relative_to(WEB)).read_bytes() == source.read_bytes()
    with tideline.open(":memory:") as db, running(db) as url:
        for name in names:
            done = subprocess.run(
                ["curl", "--silent", "--include", f"{url}/{name}"],
                capture_output=True, check=True,
            )  # fmt: skip
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            assert body == (WEB / name).read_bytes()
            assert b"content-type: text/javascript" in head
            assert b"cache-control: no-cache" in head


def _guide(url: str) -> str:
    """The code of the guide as one module."""
    blocks = re.findall(r"^```js\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    return "\n".join(blocks).replace(ADDRESS, url)


@pytest.fixture
def project(package: Path, tmp_path: Path) -> Path:
    """A program's folder with the package installed."""
    (tmp_path / "node_modules").mkdir()
    shutil.copytree(package, tmp_path / "node_modules" / "tideline")
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    return tmp_path


def test_the_code_of_the_guide_runs_and_prints_what_it_says(project: Path) -> None:
    with tideline.open(":memory:") as db, running(db) as url:
        source = _guide(url)
        (project / "guide.js").write_text(source, encoding="utf-8")
        done = subprocess.run(
            [*NODE, "guide.js"], cwd=project, capture_output=True, text=True, check=False
        )
    said = re.findall(r"console\.log\(.*\); // (.*)", source)
    assert (done.stdout.splitlines(), done.stderr) == (said, "")


def test_the_types_are_those_of_the_code(project: Path) -> None:
    """The guide's code is TypeScript too, and what is wrong in types.ts is found."""
    version = (ROOT / "tests" / "web" / "typescript.version").read_text(encoding="utf-8").strip()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    compiler = cache / "tideline-peers" / f"typescript-{version}" / "node_modules" / "typescript"
    assert compiler.is_dir(), "no TypeScript: run make typescript"
    (project / "guide.ts").write_text(_guide(ADDRESS), encoding="utf-8")
    shutil.copy(ROOT / "tests" / "web" / "types.ts", project)
    done = subprocess.run(
        [*NODE, str(compiler / "bin" / "tsc"), "--noEmit", "--strict", "--module", "nodenext",
         "--target", "es2022", "--lib", "es2023,dom", "guide.ts", "types.ts"],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_types_name_every_method(package: Path) -> None:
    node = Node(package)
    found = node(
        """(m) => Object.fromEntries(Object.entries(m).map(([name, made]) => {
          const names = [];
          let at = made.prototype;
          for (; at && at !== Object.prototype; at = Object.getPrototypeOf(at)) {
            names.push(...Object.getOwnPropertyNames(at));
          }
          return [name, names];
        }))"""
    )
    node.close()
    text = (package / "tideline.d.ts").read_text(encoding="utf-8")
    assert set(re.findall(r"^export (?:class|function) (\w+)", text, re.MULTILINE)) == set(found)
    inside = {"constructor", "make", "call", "begin", "deliver", "end", "refuse", "listen",
              "listener", "arrival", "taken", "request", "hear", "settings", "keyField",
              "closed", "caughtUp", "reached"}  # fmt: skip
    shared = re.search(r"^interface Followed.*?^interface Stream<T>.*?^}", text, re.M | re.S)
    assert shared
    for name in ("Database", "Channel", "Collection", "Subscription", "Changes", "LiveQuery"):
        declared = re.search(rf"^export class {name}\b.*?^}}", text, re.MULTILINE | re.DOTALL)
        assert declared
        words = set(
            re.findall(r"^  (?:readonly )?(\w+)[(<?:]", declared[0] + shared[0], re.MULTILINE)
        )
        assert set(found[name]) - inside <= words, name


# ---- the example ----------------------------------------------------------------------------


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *values: Any) -> None:
        pass


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address at which a web server of its own shows it."""
    folder = tmp_path / "pages"
    folder.mkdir()
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def errors_of(page: Any) -> list[str]:
    """What goes wrong on a page from now on, as it comes."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    return errors


def test_the_example_page_shows_what_happened_and_what_happens(
    browser: Any, pages: tuple[Path, str], tmp_path: Path
) -> None:
    """It comes from another web server than Tideline's, as a page of somebody's own does."""
    folder, origin = pages
    source = EXAMPLE.read_text(encoding="utf-8")
    assert f"```html\n{source}```" in GUIDE
    assert len(source.splitlines()) <= 30
    with tideline.open(":memory:") as db, running(db, origins=(origin,)) as url:
        roads = db.channel("roads")
        roads.publish("I-87", {"kind": "jam"}, ttl_s=600)
        (folder / "favicon.ico").touch()  # a browser asks for it
        (folder / "live.html").write_text(source.replace(ADDRESS, url), encoding="utf-8")
        with browser.new_context(viewport={"width": 720, "height": 480}) as context:
            page = context.new_page()
            errors = errors_of(page)
            page.goto(f"{origin}/live.html")
            page.wait_for_selector("li")
            assert page.inner_text("li").endswith("jam (past)")
            page.fill("input", "accident")
            page.click("button")
            page.wait_for_selector("li >> text=accident (live)")
            roads.publish("I-87", {"kind": "fire"}, ttl_s=600)
            page.wait_for_selector("li >> text=fire (live)")
            assert page.inner_text("#state") == "open"
            assert page.locator("li").count() == 3
            assert page.input_value("input") == ""
            page.screenshot(path=tmp_path / "example.png")
        assert errors == []


# ---- the pages in the documentation ---------------------------------------------------------


def html_of(page: str) -> str:
    found = re.search(
        r"^```html\n(.*?)^```", (ROOT / "docs" / page).read_text("utf-8"), re.M | re.S
    )
    assert found is not None
    return found[1]


def test_the_pages_of_the_documentation_show_what_they_should(
    browser: Any, pages: tuple[Path, str]
) -> None:
    folder, origin = pages
    (folder / "favicon.ico").touch()
    with tideline.open(":memory:") as db, running(db, origins=(origin,)) as url:
        for name in ("start/javascript.md", "guide/dashboard.md"):
            file = folder / Path(name).with_suffix(".html").name
            file.write_text(html_of(name).replace(ADDRESS, url), encoding="utf-8")
        db.channel("roads").publish("I-87", {"kind": "jam"}, ttl_s=600)
        orders = db.collection("orders", key="id")
        orders.put_many([{"id": n, "shop": "a", "state": "open", "total": n} for n in (1, 2)])
        with browser.new_context() as context:
            page = context.new_page()
            errors = errors_of(page)
            page.goto(f"{origin}/javascript.html")
            page.wait_for_function("document.querySelector('ul').innerText.includes('jam')")
            db.channel("roads").publish("I-87", {"kind": "fire"}, ttl_s=600)
            page.wait_for_function("document.querySelector('ul').innerText.includes('fire')")
            page.goto(f"{origin}/dashboard.html")
            page.wait_for_function("document.querySelectorAll('tr').length === 2")
            orders.put({"id": 3, "shop": "b", "state": "open", "total": 9})
            page.wait_for_function("document.querySelectorAll('tr').length === 3")
            assert page.inner_text("tr >> nth=0").split() == ["3", "b", "9"]
        assert errors == []
