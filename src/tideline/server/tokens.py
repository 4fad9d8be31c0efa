"""Tokens, in a file of the database folder: what they allow, and a hash of their secret.

    token   := "tl_" id (8 hex digits) "_" secret (43 letters: 256 random bits)
    TOKENS  := {"tokens": [{id, hash, scopes, user, name, made, rows}], ...}   (cluster/tokens.py)

The secret is shown once, when the token is made. 256 random bits cannot be guessed, so one SHA-256
is as good as a slow hash. The file may change while a server runs: it looks again (access.py). On a
node of a cluster, what is changed here is changed on all nodes soon after.

Safe from any thread and process.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from tideline.channel.checks import check_text
from tideline.cluster.tokens import TokenFile
from tideline.database import check_name
from tideline.errors import Conflict, Corruption, InvalidRequest, NotFound
from tideline.server.collection_rules import check_rows

__all__ = ["SCOPES", "Token", "Tokens", "check_grant"]

SCOPES = ("read", "publish", "subscribe", "write", "admin")
_SCOPES = f"one of {', '.join(SCOPES)}, or one with a channel or a collection: read:roads"
_TEXT = re.compile(r"tl_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")


class Token(msgspec.Struct, frozen=True):
    """What a token allows."""

    id: str
    hash: str
    scopes: tuple[str, ...]
    user: str | None
    name: str
    made: str
    rows: dict[str, dict[str, Any]] | None = None
    """What documents must meet, by collection: collection_rules.py."""

    @property
    def may_all(self) -> bool:
        """Whether it may do everything: admin, of nothing alone and for nobody alone."""
        return "admin" in self.scopes and self.user is None

    def allows(self, scope: str, name: str | None) -> bool:
        """Whether a scope is granted, for one channel or collection, or (None) for all.

        >>> token = Token("1", "", ("read:roads", "publish"), None, "", "")
        >>> token.allows("read", "roads"), token.allows("read", None), token.allows("publish", "x")
        (True, False, True)
        """
        for granted in self.scopes:
            kind, _, only = granted.partition(":")
            if kind in (scope, "admin") and (not only or only == name):
                return True
        return False


class Tokens:
    """The tokens of a database folder.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> tokens = Tokens(Path(folder.name))
    >>> text, token = tokens.create(["read"], name="page")
    >>> tokens.match(text).name, tokens.match(text[:-1] + "~")
    ('page', None)
    >>> tokens.revoke(token.id); tokens.load()
    []
    >>> folder.cleanup()
    """

    def __init__(self, folder: Path) -> None:
        self._file = TokenFile(folder)
        self.stamp = self._file.stamp
        """Changes when the file does."""

    def load(self) -> list[Token]:
        """All of them."""
        return self._read(self._file.load())

    def is_revoked(self, text: str) -> bool:
        """Whether the token of a text is known to count no more: only a node of a cluster knows."""
        found = _TEXT.fullmatch(text)
        return found is not None and found[1] in self._file.load().get("revoked", [])

    def _read(self, document: dict[str, Any]) -> list[Token]:
        try:
            return msgspec.convert(document["tokens"], list[Token])
        except msgspec.ValidationError as error:
            raise Corruption("the tokens cannot be read", file=self._file.path) from error

    def create(
        self, scopes: list[str], *, user: str | None = None, name: str = "",
        rows: dict[str, dict[str, Any]] | None = None,
    ) -> tuple[str, Token]:  # fmt: skip
        """Make a token; returns its text, which nobody can tell again, and what is kept of it.

        `rows` are the documents it may see and write, as conditions by collection.
        """
        check_grant(scopes, user, rows)
        if name:
            check_text(name, "name")
        if not name.isprintable():  # it is shown in terminals
            raise InvalidRequest("name must be printable text", name=name)
        id, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        made = datetime.now(UTC).isoformat(timespec="seconds")
        token = Token(id, _hash(secret), tuple(scopes), user, name, made, rows)
        with self._file.changing() as document:
            document["tokens"] = [*document["tokens"], msgspec.to_builtins(token)]
        return f"tl_{id}_{secret}", token

    def revoke(self, id: str, *, keep_admin: bool = False) -> None:
        """Forget a token; a running server closes its connections.

        `keep_admin`: the last one that may do everything is a `Conflict`.
        """
        with self._file.changing() as document:
            known = self._read(document)
            left = [token for token in known if token.id != id]
            if len(left) == len(known):
                raise NotFound("no such token; `tideline token list` shows the ids", id=id)
            if keep_admin and not any(token.may_all for token in left):
                raise Conflict(
                    "it is the last token that may do everything: make another one first, or"
                    " revoke it where the folder is, with `tideline token revoke`", id=id,
                )  # fmt: skip
            self._file.remove(document, id)

    def match(self, text: str, known: Mapping[str, Token] | None = None) -> Token | None:
        """The token of a text; None when there is none."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        if known is None:
            known = {token.id: token for token in self.load()}
        token = known.get(found[1])
        if token is None or not hmac.compare_digest(token.hash, _hash(found[2])):
            return None
        return token


def check_grant(scopes: list[str], user: str | None, rows: Any = None) -> None:
    """`InvalidRequest` for scopes, a user or rows that no token can have."""
    if user is not None:
        check_text(user, "user")
    if not scopes:
        raise InvalidRequest(f"a token needs a scope: {_SCOPES}", scopes=scopes)
    for scope in scopes:
        kind, colon, name = scope.partition(":")
        if kind not in SCOPES or bool(colon) != bool(name):
            each = "; give several one by one" if "," in scope else ""
            raise InvalidRequest(f"a scope is {_SCOPES}{each}", scope=scope)
        if name:
            if "*" in name:
                raise InvalidRequest(
                    f"a scope names one channel and takes no patterns: for all channels write"
                    f" {kind}, for some give a scope for each", scope=scope,
                )  # fmt: skip
            check_name(name, "channel")
    check_rows(rows, user, scopes)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
