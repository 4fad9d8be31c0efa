"""Who calls, and what they may do.

    scope      allows
    read       channels, find, scan, journal, watch, metrics; all that reads of collections
    publish    publish (with read: and be told of related events), apply
    subscribe  subscribe, cancel, prolong, streams
    write      all that writes to collections
    admin      all of these; making and dropping channels and collections, backup

A token's scopes are `scope` (everything) or `scope:name` of a channel or a collection. A token may
be bound to a user: its subscriptions are that user's, and it sees, follows and cancels no others.
It may have rows: conditions that documents must meet to be seen and written. A token of a user, or
with rows, may use no collection that its rows do not name.

Without any token in the database folder everybody may do everything: a server then listens on this
machine only (run.py). Where tokens were asked for once, they are until the server ends: revoking
the last opens nothing.

Everything here is on the event loop.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tideline.errors import NotFound
from tideline.server.collection_rules import EVERY, Rule, rule_of
from tideline.server.refusals import Refused
from tideline.server.tokens import SCOPES, Token, Tokens

__all__ = ["Access", "Caller"]

_LOOK_EVERY_S = 1.0
_MOST_CALLERS = 4_096  # that are kept


@dataclass(frozen=True)
class Caller:
    """Whoever sent a request."""

    name: str
    """For the log: the token's id, or the address."""
    key: str
    """Whose limits it counts against."""
    token: Token | None = None
    """None: there are no tokens, everything is allowed."""

    @property
    def user(self) -> str | None:
        """The only user it may act for; None: any."""
        return None if self.token is None else self.token.user

    @property
    def sees_all(self) -> bool:
        """Whether it is bound to no user and no rows."""
        return self.token is None or (self.token.user is None and self.token.rows is None)

    def may(self, scope: str, name: str | None) -> bool:
        """Whether a scope is granted, for one channel or collection, or (None) for all.

        "any" is any scope, "publish|write" one of these.
        """
        if self.token is None:
            return True
        scopes = SCOPES if scope == "any" else scope.split("|")
        return any(self.token.allows(each, name) for each in scopes)

    def need(self, scope: str, name: str | None) -> None:
        """Refuse unless it is."""
        if not self.may(scope, name):
            if scope == "any":
                raise Refused(403, "Forbidden", "the token has no scope here")
            named = " or ".join(map(repr, scope.split("|")))
            raise Refused(403, "Forbidden", f"the token lacks the scope {named} here")

    def rule(self, collection: str) -> Rule | None:
        """What documents must meet to be seen and written; None: all may be."""
        token = self.token
        if token is None or self.sees_all:
            return None
        rows = token.rows or {}
        condition = rows.get(collection, rows.get(EVERY))
        if condition is None:
            raise Refused(403, "Forbidden", "the token has no rows of this collection")
        return rule_of(condition, token.user)

    def need_whole(self, collection: str) -> None:
        """Refuse whoever may not see all documents of a collection."""
        if self.rule(collection) is not None:
            raise Refused(403, "Forbidden", "this needs a token that may see all documents")

    def need_everything(self) -> None:
        """Refuse whoever may not see what others have."""
        if not self.sees_all:
            raise Refused(403, "Forbidden", "a token of a user, or with rows, sees no such figures")

    def need_related(self, asked: bool, channel: str) -> None:
        """Refuse to tell of earlier events whoever may not read."""
        if asked:
            self.need("read", channel)

    def need_all_events(self, asked: bool = True) -> None:
        """Refuse to end events to a token of a user: an event belongs to nobody."""
        if asked and self.user is not None:
            raise Refused(
                403, "Forbidden", "a token that is bound to a user neither retracts nor replaces"
            )

    def acting_for(self, user: str | None) -> str:
        """The user a new subscription is for."""
        own = self.user
        if own is None:
            if user is None:
                raise Refused(400, "InvalidRequest", "user is missing")
            return user
        if user is not None and user != own:
            raise Refused(403, "Forbidden", "the token is bound to another user")
        return own

    def check_own(self, user: str, id: str) -> None:
        """Refuse what belongs to somebody else, as if it were not there."""
        if self.user is not None and self.user != user:
            raise NotFound("no such subscription", id=id)


class Access:
    """The tokens of a database folder, looked at again when they change."""

    def __init__(self, folder: Path, *, always: bool) -> None:
        self._required = always
        self._store = Tokens(folder)
        self._tokens: dict[str, Token] = {}
        self._callers: dict[tuple[str | None, str], Caller] = {}  # as the tokens are now
        self._stamp: object = None
        self._looked = -_LOOK_EVERY_S

    @property
    def required(self) -> bool:
        """Whether a token is needed."""
        self._look()
        return self._required

    def caller(self, text: str | None, address: str) -> Caller:
        """Who shows this token (or none) from this address."""
        self._look()
        found = self._callers.get((text, address))
        if found is None:
            found = self._caller(text, address)
            if len(self._callers) >= _MOST_CALLERS:
                self._callers.clear()
            self._callers[text, address] = found
        return found

    def _caller(self, text: str | None, address: str) -> Caller:
        if not self._required:
            return Caller(address, address)
        if text is None:
            raise Refused(
                401, "Unauthorized", "a token is needed: Authorization: Bearer ...",
                www_authenticate="Bearer",
            )  # fmt: skip
        token = self._store.match(text, self._tokens)
        if token is None:  # it may be newer than the last look
            self.look_again()
            self._look()
            token = self._store.match(text, self._tokens)
        if token is None:
            raise Refused(
                401, "Unauthorized", "the token is not known here, or was revoked",
                www_authenticate="Bearer",
            )  # fmt: skip
        return Caller(token.id, token.id, token)

    def still_valid(self, caller: Caller) -> bool:
        """Whether a caller's token is still there."""
        self._look()
        if caller.token is None:
            return not self._required
        return self._tokens.get(caller.token.id) == caller.token

    @property
    def tokens(self) -> Tokens:
        """The file of tokens, to be changed in a thread; `look_again` then."""
        return self._store

    def look_again(self) -> None:
        """Go by what the file says now."""
        self._looked = -_LOOK_EVERY_S

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        stamp = self._store.stamp()
        if stamp != self._stamp:
            self._tokens = {token.id: token for token in self._store.load()}
            self._stamp = stamp
            self._callers.clear()
            self._required = self._required or bool(self._tokens)
