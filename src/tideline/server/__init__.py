"""The server: the library's verbs over HTTP and WebSocket, for other programs and for people.

    run.py        serve, running            settings.py   what it can be told
    app.py        all routes                ops.py        what a route is
    guard.py      origins, names            front.py      a request's way in and out
    access.py     who may do what           tokens.py     the tokens of a database folder
    channels.py   channels, events, subscriptions         shapes.py   their JSON
    tables.py     Arrow: apply, scan, journal             staged.py   rows for one commit
    collections.py, collection_verbs.py     what collections are; their verbs
    collection_shapes.py                    the JSON of those
    collection_pages.py                     pages of find, cursors
    collection_rules.py, collection_limited.py   rows that a token may see and write
    collection_streams.py                   Arrow streams made while they are sent
    windows.py, window_staged.py, window_watch.py   stream windows
    sockets.py    how a WebSocket begins    live.py       /v1/live
    watch.py      /v1/watch                 sse.py        event streams
    streams.py    a subscription delivered  outbox.py     what waits for a reader
    hub.py        what connections share    alarm.py      the database's clock
    limits.py metrics.py logs.py refusals.py openapi.py protocol.py

Needs the extra `server`; nothing of it is loaded before somebody asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tideline.server.app import create_app
    from tideline.server.run import running, serve
    from tideline.server.settings import Settings

__all__ = ["Settings", "create_app", "running", "serve"]

_WHERE = {"Settings": "settings", "create_app": "app", "running": "run", "serve": "run"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'tideline.server' has no attribute {name!r}")
    import importlib

    try:
        return getattr(importlib.import_module(f"tideline.server.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("starlette", "uvicorn", "websockets"):
            from tideline.errors import Unavailable

            raise Unavailable(
                "the server needs more packages: pip install 'tideline[server]'", missing=error.name
            ) from None
        raise
