"""Which application answers a path: found part by part, however many paths there are.

    /v1/channels/{channel}/events    "v1" -> "channels" -> any text -> "events" -> the application

A dict for each part; a part that is named goes before one that may be any text. The server has some
sixty paths: looking through them one by one took longer than many a call.

Everything here is on the event loop.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Paths"]

_ANY, _HERE = object(), object()  # keys beside the texts: what follows any text, and what is here


class Paths:
    """Applications by path; whatever has none goes to another application.

    >>> paths = Paths({"/a/{name}": "one", "/a/b": "two"}, "others")
    >>> paths.find("/a/x"), paths.find("/a/b"), paths.find("/a/"), paths.find("/a/x/y")
    (('one', {'name': 'x'}), ('two', {}), None, None)
    """

    def __init__(self, applications: dict[str, Any], others: Any) -> None:
        self._others = others
        self._tree: dict[Any, Any] = {}
        for path, application in applications.items():
            node, names = self._tree, []
            for part in path.split("/")[1:]:
                if part.startswith("{"):
                    names.append(part[1:-1])
                node = node.setdefault(_ANY if part.startswith("{") else part, {})
            node[_HERE] = application, names

    def find(self, path: str) -> tuple[Any, dict[str, str]] | None:
        """The application of a path, and the texts in it by their names."""
        node, given = self._tree, []
        for part in path.split("/")[1:]:
            following = node.get(part)
            if following is None:
                following = node.get(_ANY) if part else None
                if following is None:
                    return None
                given.append(part)
            node = following
        found = node.get(_HERE)
        if found is None:
            return None
        return found[0], dict(zip(found[1], given, strict=True))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        found = None
        if scope["type"] == "http":
            path, root = scope["path"], scope.get("root_path", "")
            found = self.find(path[len(root) :] if path.startswith(root) else path)
        if found is None:
            await self._others(scope, receive, send)
            return
        application, scope["path_params"] = found
        await application(scope, receive, send)
