"""A server that is a node of a cluster: which requests it answers, and those about the cluster.

    a write            on the leader; elsewhere 307 with its address, 503 while there is none
    a read             anywhere, with the header tideline-stale-s: how old it may be
      of what is not   as a write: a follower never says that a collection is not there
      ?max_stale_s=2   503 where it may be older
      ?linearizable=1  on the leader, with all that was acknowledged before, and nothing that may go

    GET /v1/cluster              who takes part, who leads, how far each is
    POST /v1/cluster/nodes       take in a node        DELETE /v1/cluster/nodes/{node}    let one go
    GET /v1/cluster/state        a copy of the database for another node, which shows the secret
    POST /v1/cluster/here        a node says where it is served; it shows the secret
    POST /v1/cluster/tokens      a node has tokens made and revoked; it shows the secret

Live queries and changes of collections are served anywhere, too; subscriptions on the leader.
"""

from __future__ import annotations

import hmac
import math
from typing import Any

import msgspec

from tideline.cluster.settings import number_of
from tideline.cluster.state import packed
from tideline.errors import InvalidRequest, NotFound
from tideline.lsm.sharedlog import NotLeading
from tideline.server.manage import Tar
from tideline.server.ops import ANY, Call, Op
from tideline.server.refusals import Refused
from tideline.server.tokens import Token

__all__ = ["OPS", "Placed", "elsewhere", "place", "require_leader"]

_READS = ("GET", "HEAD")
_OF_THE_LEADER = (
    "/v1/channels/{channel}/subscriptions/{id}/stream",
    "/v1/windows/{window}/watch",
)
_FETCH_S = 60.0


class Placed(msgspec.Struct):
    """How a request is answered on a node."""

    linearizable: bool = False
    stale: str | None = None
    """What the header says."""


def place(machine: Any, op: Op, scope: Any, query: dict[str, str]) -> Placed:
    """Check that this node answers a request; takes what a cluster understands off its query."""
    most = _number(query.pop("max_stale_s", None))
    linearizable = _flag(query.pop("linearizable", None))
    writes = op.method not in _READS and op.scope not in (None, "read", ANY)
    if linearizable and op.scope != "read":
        raise InvalidRequest("linearizable is for reads of data", path=op.path)
    if (writes or linearizable or op.path in _OF_THE_LEADER) and not machine.leads:
        raise elsewhere(machine, scope)
    if op.scope != "read":
        return Placed()
    age = machine.stale_s()
    if most is not None and (age is None or age > most):
        shown = "unknown" if age is None else f"{age:.3f}"
        raise Refused(
            503, "Stale",
            f"this node may be further behind than asked for. stale_s={shown}, max_stale_s={most}",
            retry_after="1",
        )  # fmt: skip
    return Placed(linearizable, "unknown" if age is None else f"{age:.3f}")


def require_leader(machine: Any) -> None:
    """`NotLeading` where another node has to be asked."""
    if machine is not None and not machine.leads:
        raise NotLeading("another node of the cluster leads", leader=machine.leader_url())


def elsewhere(machine: Any, scope: Any) -> Refused:
    """Where a request has to be made instead."""
    url = machine.leader_url()
    if url is None or machine.why_ended:
        return Refused(
            503, "NotLeading", "the cluster has no leader now, or it is not known here: try again"
        )
    target = scope["path"] + (f"?{scope['query_string'].decode()}" if scope["query_string"] else "")
    told = Refused(
        307, "NotLeading", f"another node of the cluster leads: ask {url}", location=url + target
    )
    told.values = {"leader": url}
    return told


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise InvalidRequest("max_stale_s must be a number of seconds", max_stale_s=text)
    return found


def _flag(text: str | None) -> bool:
    if text not in (None, "0", "1", "true", "false"):
        raise InvalidRequest("linearizable must be 1 or 0", linearizable=text)
    return text in ("1", "true")


# ---- requests about the cluster -----------------------------------------------------------------


class NodeIn(msgspec.Struct, forbid_unknown_fields=True):
    """A node by its name."""

    node: str


class Changed(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A token that was made, or the id of one that was revoked."""

    token: Token | None = None
    revoke: str | None = None


class HereIn(msgspec.Struct, forbid_unknown_fields=True):
    """Where a node is served."""

    node: int
    url: str


class TokensIn(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of tokens: {"token": ...} or {"revoke": id}."""

    changes: list[Changed]


class StateQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What a state has to have: everything up to an index."""

    least: int = 0


def _node_of(call: Call) -> Any:
    machine = call.hub.cluster
    if machine is None:
        raise NotFound("this server is no node of a cluster: it was started without --node")
    return machine.node


async def status(call: Call) -> Any:
    return _node_of(call).status()


async def add_node(call: Call) -> Any:
    node = _node_of(call)
    require_leader(call.hub.cluster)
    await call.hub.in_thread(node.add, number_of(call.body.node))
    return node.status()


async def remove_node(call: Call) -> Any:
    node = _node_of(call)
    require_leader(call.hub.cluster)
    await call.hub.in_thread(node.remove, number_of(call.names["node"]))
    return node.status()


def _check_secret(call: Call) -> Any:
    node = _node_of(call)
    shown = (call.header("authorization") or "").removeprefix("Bearer ")
    if not hmac.compare_digest(shown.encode(), node.settings.password.encode()):
        raise Refused(401, "Unauthorized", "this is for nodes of the cluster")
    return node


async def state(call: Call) -> Any:
    _check_secret(call)
    folder = await call.hub.in_thread(packed, call.hub.cluster, call.query.least, _FETCH_S)
    return Tar(call.hub, folder)


async def here(call: Call) -> Any:
    _check_secret(call)
    require_leader(call.hub.cluster)
    call.hub.cluster.tell(call.body.node, call.body.url)
    return {"node": call.body.node}


async def tokens(call: Call) -> Any:
    _check_secret(call)
    require_leader(call.hub.cluster)
    changes = [msgspec.to_builtins(change) for change in call.body.changes]
    if not all(len(change) == 1 for change in changes):
        raise InvalidRequest("a change is of a token, or of the id of one that is revoked")
    await call.hub.in_thread(call.hub.cluster.agree, changes)
    call.hub.access.look_again()
    call.hub.close_revoked()
    return {"changes": len(changes)}


OPS = [
    Op("GET", "/v1/cluster", "Who takes part in the cluster, and how far each node is.", status,
       scope=ANY, gives=dict[str, Any], refuses=(404,)),
    Op("POST", "/v1/cluster/nodes", "Take in a node that asks for it.", add_node, scope="admin",
       takes=(NodeIn,), gives=dict[str, Any], refuses=(404,)),
    Op("DELETE", "/v1/cluster/nodes/{node}", "Let a node go.", remove_node, scope="admin",
       gives=dict[str, Any]),
    Op("GET", "/v1/cluster/state", "A copy of the database, for another node.", state,
       query=StateQuery, gives="application/x-tar", refuses=(401, 404, 503)),
    Op("POST", "/v1/cluster/here", "Where another node is served.", here, takes=(HereIn,),
       gives=dict[str, int], refuses=(401, 404, 503)),
    Op("POST", "/v1/cluster/tokens", "What another node has changed of the tokens.", tokens,
       takes=(TokensIn,), gives=dict[str, int], refuses=(401, 404, 503)),
]  # fmt: skip
