"""A server for the tests of one file, and one of its own for a test that needs settings."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.server import running
from tideline.server.tokens import Tokens
from tideline.testing import ManualClock

sys.path.insert(0, str(Path(__file__).parent))

from talk import Api


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """(database, address) of a server that the tests of a file share."""
    folder = tmp_path_factory.mktemp("shared") / "data"
    with tideline.open(folder, memory_mb=64) as database, running(database) as url:
        yield database, url


@pytest.fixture
def api(shared: tuple[Any, str]) -> Api:
    return Api(shared[1])


@pytest.fixture
def url(shared: tuple[Any, str]) -> str:
    return shared[1]


@pytest.fixture
def database(shared: tuple[Any, str]) -> Any:
    return shared[0]


_numbers = itertools.count()


@pytest.fixture
def channel(database: Any) -> Any:
    """A channel of the test's own on the shared server: topics, with a journal."""
    name = f"c{next(_numbers)}"
    return database.channel(name, space=tideline.Topics(), journal_s=600)


@pytest.fixture
def path(channel: Any) -> str:
    """The address of that channel."""
    return f"/v1/channels/{channel.name}"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., tuple[Any, str]]]:
    """`serve(clock=..., **settings)`: a server of the test's own on its own folder."""
    with contextlib.ExitStack() as stack:

        def factory(
            clock: ManualClock | None = None, durability: str = "os", **settings: Any
        ) -> tuple[Any, str]:
            database = stack.enter_context(
                tideline.open(tmp_path / "data", clock=clock, memory_mb=64, durability=durability)
            )
            return database, stack.enter_context(running(database, **settings))

        yield factory


@pytest.fixture
def guarded(serve: Callable[..., Any], tmp_path: Path) -> dict[str, Any]:
    """A server with tokens: two channels, a token for each role."""
    (tmp_path / "data").mkdir()
    tokens = Tokens(tmp_path / "data")
    made = {
        name: tokens.create(scopes, user=user)[0]
        for name, scopes, user in [
            ("admin", ["admin"], None),
            ("service", ["read", "publish", "subscribe"], None),
            ("reader", ["read:roads"], None),
            ("publisher", ["publish:roads"], None),
            ("ann", ["read", "publish", "subscribe:roads"], "ann"),
            ("bob", ["read", "publish", "subscribe:roads"], "bob"),
            ("owner", ["admin:roads"], None),
        ]
    }
    database, url = serve(beat_s=0.1)
    for name in ("roads", "news"):
        database.channel(name, journal_s=600)
    return {"database": database, "url": url, "tokens": tokens, **made}
