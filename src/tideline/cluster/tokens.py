"""The file of tokens in a database's folder, and how the nodes of a cluster come to have the same.

    TOKENS := a manifest (lsm/manifest.py) {"tokens": [{id, ...}], "agreed": [id], "revoked": [id]}

`tokens` are those that a server goes by (server/tokens.py). `agreed` are the ids of those that all
nodes have or will have, and `revoked` of those that count no more, on a node; elsewhere there is
neither. A command changes `tokens` of one folder. What then differs from `agreed` that node has
agreed on (`differences`), and every node does it (`take`). Doing so again does no harm: a token
that was revoked does not come back when older changes come again.

Safe from any thread and process: changes take a lock beside the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tideline.errors import Corruption, NotFound
from tideline.lsm.manifest import Manifest

__all__ = ["TokenFile"]

_MOST_REVOKED = 10_000  # more than come again in a log that is not compacted yet


class TokenFile:
    """The file of one folder.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = TokenFile(Path(folder.name))
    >>> with file.changing() as document:
    ...     document["tokens"].append({"id": "a"})
    >>> file.differences()
    [{'token': {'id': 'a'}}]
    >>> file.take({"token": {"id": "a"}}); file.differences()
    []
    >>> file.take({"revoke": "a"}); file.take({"token": {"id": "a"}}); file.load()["tokens"]
    []
    >>> folder.cleanup()
    """

    def __init__(self, folder: Path) -> None:
        self.path = Path(folder) / "TOKENS"

    def load(self) -> dict[str, Any]:
        """What stands in it."""
        document = Manifest(self.path).load() or {"tokens": []}
        if not isinstance(document.get("tokens"), list):
            raise Corruption("the tokens cannot be read", file=self.path)
        return document

    def stamp(self) -> object:
        """Changes when the file does."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    @contextlib.contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """The document, to be changed; it is saved at the end, durably, unless something fails."""
        if not self.path.parent.is_dir():
            raise NotFound("no such folder: check the path", folder=str(self.path.parent))
        lock = os.open(self.path.with_name("TOKENS.lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            document = self.load()
            before = dict(document, tokens=[*document["tokens"]])
            yield document
            if document != before:
                Manifest(self.path).save(document)
                os.chmod(self.path, 0o600)
        finally:
            os.close(lock)

    def remove(self, document: dict[str, Any], id: str) -> None:
        """Take a token off a document; on a node it is noted that it counts no more."""
        document["tokens"] = [token for token in document["tokens"] if token["id"] != id]
        if "agreed" in document:
            revoked = [each for each in document.get("revoked", []) if each != id]
            document["revoked"] = [*revoked, id][-_MOST_REVOKED:]

    # ---- on a node -----------------------------------------------------------------------------

    def differences(self) -> list[dict[str, Any]]:
        """What was changed here, and is to be agreed on."""
        if not self.path.exists():
            return []
        with self.changing() as document:
            agreed = set(document.setdefault("agreed", []))
            tokens = {token["id"]: token for token in document["tokens"]}
        made = [{"token": token} for id, token in tokens.items() if id not in agreed]
        return made + [{"revoke": id} for id in sorted(agreed - set(tokens))]

    def take(self, change: dict[str, Any]) -> None:
        """Do what was agreed on."""
        with self.changing() as document:
            agreed = document.get("agreed", [])
            if "token" in change:
                id = change["token"]["id"]
                known = [*document.get("revoked", []), *(each["id"] for each in document["tokens"])]
                if id not in known:
                    document["tokens"] = [*document["tokens"], change["token"]]
                document["agreed"] = [*(each for each in agreed if each != id), id]
            else:
                id = change["revoke"]
                document["agreed"] = [each for each in agreed if each != id]
                self.remove(document, id)
