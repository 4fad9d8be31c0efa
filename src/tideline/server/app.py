"""The server as an ASGI application: every route it has, made from the declarations.

    Guard       whose pages may call, and by what name the server is called
      Paths     paths -> front.Path (HTTP)
      Router    all others: sockets.py (WebSocket), the page (static files)

`create_app(db, settings)` borrows an open database; closing it stays its owner's task.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.routing import Mount, Route, Router, WebSocketRoute
from starlette.staticfiles import StaticFiles

from tideline.server import (
    channels,
    cluster,
    collections,
    grants,
    inside,
    manage,
    sse,
    staged,
    tables,
    window_staged,
    windows,
)
from tideline.server.front import Path as PathApp
from tideline.server.guard import Guard, Page, nowhere
from tideline.server.hub import Hub
from tideline.server.openapi import describe
from tideline.server.ops import Call, Op
from tideline.server.paths import Paths
from tideline.server.settings import Settings
from tideline.server.sockets import live_socket, watch_socket

__all__ = ["all_ops", "create_app"]

_WEB = Path(__file__).resolve().parents[1] / "web"


def all_ops() -> list[Op]:
    """Every method of every path, but the page and the WebSockets."""
    return [
        *channels.OPS,
        *tables.OPS,
        *staged.OPS,
        *collections.OPS,
        *windows.OPS,
        *window_staged.OPS,
        *sse.OPS,
        *grants.OPS,
        *inside.OPS,
        *manage.OPS,
        *cluster.OPS,
        _DESCRIPTION,
    ]


async def _description(call: Call) -> Any:
    return describe(all_ops())


_DESCRIPTION = Op("GET", "/openapi.json", "This description.", _description, gives=dict[str, Any])


def create_app(db: Any, settings: Settings | None = None) -> Any:
    """An ASGI application over an open database.

    >>> import tideline
    >>> with tideline.open(":memory:") as db:
    ...     app = create_app(db)
    """
    hub = Hub(db, settings or Settings())

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        await hub.start()
        await hub.in_thread(staged.forget_staged, hub)
        try:
            yield
        finally:
            await hub.stop()
            await hub.in_thread(staged.forget_staged, hub)
            await hub.close()

    paths: dict[str, list[Op]] = {}
    for op in all_ops():
        paths.setdefault(op.path, []).append(op)
    applications = {path: PathApp(hub, path, ops) for path, ops in paths.items()}
    routes: list[Any] = [WebSocketRoute("/v1/live", live_socket(hub))]
    routes.append(WebSocketRoute("/v1/watch", watch_socket(hub)))
    web = hub.settings.web or _WEB
    client = web if (web / "tideline.js").is_file() else _WEB  # the JavaScript client
    routes.append(Route("/tideline.js", Page(StaticFiles(directory=client))))
    routes.append(Mount("/tideline", Page(StaticFiles(directory=client / "tideline"))))
    if (web / "index.html").is_file():
        routes.append(Mount("/assets", Page(StaticFiles(directory=web))))
        routes.append(Route("/", Page(StaticFiles(directory=web, html=True))))
    router = Router(routes, redirect_slashes=False, default=nowhere, lifespan=lifespan)
    return Guard(Paths(applications, router), hub)
