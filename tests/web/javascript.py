"""JavaScript run from Python, in Node and in Chromium: one way to say it, two places to run it.

    js("async (m, given) => (await m.connect(given.url).channels())", {"url": url})

`m` is the client, /tideline.js; what comes back is JSON. `globalThis` stays between calls. An error
that is thrown comes back as `Thrown`, with its name and message.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

__all__ = ["NODE", "JavaScript", "Node", "Tab", "Thrown", "wait_for"]

GUARD_S = 120.0  # only turns a hang into a failure

_WRAPPED = """async (m, given) => {
  try {
    return { value: (await (%s)(m, given)) ?? null };
  } catch (error) {
    return { thrown: [error.name, error.message, error.kind ?? null] };
  }
}"""

_LOOP = """
import { createInterface } from "node:readline";
const m = await import(process.argv[1]);
for await (const line of createInterface({ input: process.stdin })) {
  const { source, given } = JSON.parse(line);
  process.stdout.write(JSON.stringify(await (0, eval)(`(${source})`)(m, given)) + "\\n");
}
process.exit(0);
"""


def _node() -> list[str]:
    """The command of Node, with a WebSocket: before version 22 it is there for those who ask."""
    node = shutil.which("node")
    if node is None:
        raise RuntimeError("no Node: run scripts/mingo.sh, which sees to it")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
    found = re.match(r"v(\d+)", version.stdout)
    old = found is not None and int(found[1]) < 22
    return [node, "--experimental-websocket", "--no-warnings"] if old else [node]


NODE = _node()


class Thrown(Exception):
    """What was thrown in JavaScript: `name`, the message, and the `kind` of the server."""

    def __init__(self, name: str, message: str, kind: str | None) -> None:
        super().__init__(f"{name}: {message}")
        self.name, self.kind = name, kind


class JavaScript(Protocol):
    """A place where JavaScript runs."""

    def __call__(self, source: str, given: Any = None) -> Any:
        """Call a function with the client's module and a value."""

    def visit(self, url: str) -> None:
        """Get ready to use a server."""


def _value(answer: Any) -> Any:
    if "thrown" in answer:
        raise Thrown(*answer["thrown"])
    return answer["value"]


class Node:
    """A process of Node with the client imported from a package's folder."""

    def __init__(self, package: Path) -> None:
        self._process = subprocess.Popen(
            [*NODE, "--input-type=module", "--eval", _LOOP,
             (package / "tideline.js").as_uri()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def visit(self, url: str) -> None:
        """There is no page to load."""

    def __call__(self, source: str, given: Any = None) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        line = json.dumps({"source": _WRAPPED % source, "given": given})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "Node has ended"
        return _value(json.loads(answer))

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(GUARD_S)
        self._process.stdout.close()


class Tab:
    """A page of Chromium, which imports the client from the server that it is on."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.set_default_timeout(GUARD_S * 1000)

    def visit(self, url: str) -> None:
        self.page.goto(f"{url}/healthz")
        self("() => null")

    def __call__(self, source: str, given: Any = None) -> Any:
        wrapped = _WRAPPED % source
        script = f"async (given) => ({wrapped})(await import('/tideline.js'), given)"
        return _value(self.page.evaluate(script, given))


def wait_for(done: Callable[[], bool]) -> None:
    """Wait for a condition; the deadline only turns a hang into a failure."""
    limit = time.monotonic() + GUARD_S
    while not done():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.01)
