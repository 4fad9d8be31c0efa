"""The routes of tokens, for the scope admin of everything: who may use this server.

    GET     tokens        what there is, never a secret; the limits of every caller
    POST    tokens        make one; its text is told in this answer and never again
    DELETE  tokens/{id}   forget one, and close its connections

A server that runs without tokens makes none here: whoever reaches it could lock all others out. The
first one is made where the folder is, by `tideline token create`. The last one that is admin of
everything is not revoked here, for the same reason.

A token that is bound to a user is refused: it could make one that is not.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import msgspec

from tideline.errors import Conflict
from tideline.server.collection_shapes import described
from tideline.server.ops import Call, Op, Reply
from tideline.server.refusals import Refused
from tideline.server.tokens import Token, Tokens, check_grant

__all__ = ["OPS"]

_MOST = 1_000  # tokens that are made here: the file is read whole

_LIMITS = (
    "rate_per_s", "connections", "connections_per_caller", "subscriptions_per_user",
    "subscriptions_per_connection", "conditions_per_user", "watches_per_connection",
    "watches_per_caller", "match_steps", "body_bytes", "batch_bytes", "outbox_bytes",
)  # fmt: skip


class TokenOut(msgspec.Struct, kw_only=True):
    """What a token allows. `rows` are conditions that documents must meet, by collection."""

    id: str
    name: str
    scopes: list[str]
    user: str | None
    rows: dict[str, Any] | None
    made: str
    connections: int
    """Open WebSockets and event streams."""
    yours: bool
    """Whether it is the one that asks."""


class TokensOut(msgspec.Struct, kw_only=True):
    """All tokens; `required` is false on a server that runs without."""

    required: bool
    tokens: list[TokenOut]
    limits: dict[str, float]
    """What each caller, or the server, may have at most: the names of its settings."""


class TokenIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A token to make."""

    scopes: list[str]
    name: str = ""
    user: str | None = None
    rows: Annotated[
        Any,
        described(
            "Conditions that documents must meet, by collection; * is any other.",
            type=["object", "null"],
        ),
    ] = None


class MadeOut(msgspec.Struct, kw_only=True):
    """A new token: `token` is its text, which nobody can tell again."""

    token: str
    made: TokenOut


def _tokens(call: Call) -> Tokens:
    if not call.caller.sees_all:
        raise Refused(403, "Forbidden", "a token that is bound to a user manages no tokens")
    return call.hub.access.tokens


def _agree(call: Call) -> None:
    """On a node of a cluster: return when all nodes have it, or will."""
    if call.hub.cluster is not None:
        call.hub.cluster.node.agree_tokens()


def _told(call: Call, token: Token, connections: Counter[str]) -> TokenOut:
    own = call.caller.token
    return TokenOut(
        id=token.id, name=token.name, scopes=list(token.scopes), user=token.user, rows=token.rows,
        made=token.made, connections=connections[token.id],
        yours=own is not None and own.id == token.id,
    )  # fmt: skip


async def list_tokens(call: Call) -> TokensOut:
    found = await call.hub.in_thread(_tokens(call).load)
    connections = Counter(each.caller.key for each in list(call.hub.connections))
    settings = call.hub.settings
    return TokensOut(
        required=call.hub.access.required,
        tokens=[_told(call, token, connections) for token in found],
        limits={name: float(getattr(settings, name)) for name in _LIMITS},
    )


async def create_token(call: Call) -> Reply:
    tokens, body = _tokens(call), call.body
    check_grant(body.scopes, body.user, body.rows)
    if not call.hub.access.required:
        raise Conflict(
            "this server runs without tokens, so whoever reaches it may do everything: make the"
            " first one where the folder is, with `tideline token create FOLDER --scope admin`"
        )

    def make() -> tuple[str, Token]:
        if len(tokens.load()) >= _MOST:
            raise Conflict("there are as many tokens as may be: revoke some", most=_MOST)
        made = tokens.create(body.scopes, user=body.user, name=body.name, rows=body.rows)
        _agree(call)
        return made

    text, token = await call.hub.in_thread(make)
    call.hub.access.look_again()
    return Reply(MadeOut(token=text, made=_told(call, token, Counter())), status=201)


async def revoke_token(call: Call) -> dict[str, str]:
    tokens, id = _tokens(call), call.names["id"]

    def revoke() -> None:
        tokens.revoke(id, keep_admin=True)
        _agree(call)

    await call.hub.in_thread(revoke)
    call.hub.access.look_again()
    call.hub.close_revoked()
    return {"revoked": id}


OPS = [
    Op("GET", "/v1/tokens", "Who may use this server.", list_tokens, scope="admin",
       gives=TokensOut),
    Op("POST", "/v1/tokens", "Make a token; its text is told here and never again.", create_token,
       scope="admin", takes=(TokenIn,), gives=MadeOut, statuses=(201,), refuses=(409,)),
    Op("DELETE", "/v1/tokens/{id}", "Make a token worthless, and close its connections.",
       revoke_token, scope="admin", gives=dict[str, str], refuses=(409,)),
]  # fmt: skip
