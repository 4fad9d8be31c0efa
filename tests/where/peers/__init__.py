"""Independent implementations of MongoDB's query language, asked the same questions.

    mongomock   Python, a fake of a MongoDB server
    mgqpy       Python, written against real servers (MongoDB 7 and 8)
    mingo       JavaScript, in one process of node fed with JSON lines; `make mingo` installs it

Each answers `None` for what it does not support.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

VERSION = (Path(__file__).parent / "mingo.version").read_text().strip()

Answers = list[bool] | None


def mongomock(condition: dict[str, Any], bodies: list[Any]) -> Answers:
    """What mongomock says of each body."""
    from mongomock import OperationFailure
    from mongomock.filtering import filter_applies

    try:
        return [bool(filter_applies(condition, body)) for body in bodies]
    except (OperationFailure, NotImplementedError, TypeError):
        return None


def mgqpy(condition: dict[str, Any], bodies: list[Any]) -> Answers:
    """What mgqpy says of each body."""
    from mgqpy import InvalidQuery, Query

    try:
        query = Query(condition)
    except InvalidQuery:
        return None
    return [query.test(body) for body in bodies]


class Mingo:
    """A process of node that asks mingo."""

    def __init__(self) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "tideline-peers" / f"mingo-{VERSION}" / "node_modules" / "mingo"
        if not (folder / "package.json").exists():
            raise RuntimeError(f"mingo {VERSION} is not installed: run make mingo")
        self._node = subprocess.Popen(
            ["node", str(Path(__file__).parent / "mingo.js"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __call__(self, condition: dict[str, Any], bodies: list[Any]) -> Answers:
        """What mingo says of each body."""
        return self.ask(condition=condition, bodies=bodies)

    def ask(self, **question: Any) -> Any:
        """An answer to any question of mingo.js; None for what mingo refuses."""
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps(question) + "\n")
        self._node.stdin.flush()
        answer = json.loads(self._node.stdout.readline())
        return answer.get("answers")

    def close(self) -> None:
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.close()
        self._node.wait(300)
        self._node.stdout.close()
