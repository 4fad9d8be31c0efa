"""Tokens of a cluster: made or revoked at one node, they are so on all of them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import Nodes
from cluster_servers import GUARD_S, Three, three, wait_for
from typer.testing import CliRunner

from tideline.cli.main import app
from tideline.server.tokens import Tokens


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Three]:
    with three(tmp_path) as found:
        yield found


def command(*words: str) -> dict[str, Any]:
    """What a command of `tideline token` prints."""
    done = CliRunner().invoke(app, ["token", *words])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def asked(servers: Three, method: str, path: str, body: Any = None) -> Any:
    """Ask the leader something over HTTP, whoever that is."""
    while True:
        request = urllib.request.Request(
            servers.urls[servers.leader()] + path, method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {servers.token}",
                     "Content-Type": "application/json"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=GUARD_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            refused.close()
            if refused.code not in (307, 503):  # those say that it leads no more
                raise


def test_a_token_counts_on_all_nodes_until_it_is_revoked_at_any(servers: Three) -> None:
    servers.guard()
    made = asked(servers, "POST", "/v1/tokens", {"scopes": ["read"], "name": "page"})
    token, id = made["token"], made["made"]["id"]
    wait_for(lambda: servers.knows(id) == set(servers.peers))
    wait_for(lambda: set(servers.answers(token).values()) == {200})
    # Who was away hears of it when it comes back.
    away = next(name for name in servers.peers if name != servers.leader())
    servers.kill(away)
    command("revoke", str(servers.root / servers.leader()), id)
    wait_for(lambda: set(servers.answers(token).values()) == {401})
    assert servers.knows(id) == {away}
    servers.start(away)
    wait_for(lambda: away not in servers.knows(id))
    # It stays so when nodes read their logs again, and for one that lost its disk.
    for name in servers.peers:
        servers.kill(name)
    servers.start()
    lost = next(name for name in servers.peers if name != servers.leader())
    servers.kill(lost)
    servers.wipe(lost)
    servers.start(lost)
    servers.caught_up(lost)
    wait_for(lambda: set(servers.answers(token).values()) == {401})
    assert servers.knows(id) == set()
    wait_for(lambda: set(servers.answers(servers.token).values()) == {200})


def test_it_is_revoked_over_http_at_the_leader(servers: Three) -> None:
    servers.guard()
    made = asked(servers, "POST", "/v1/tokens", {"scopes": ["read"]})
    asked(servers, "DELETE", f"/v1/tokens/{made['made']['id']}")
    wait_for(lambda: servers.knows(made["made"]["id"]) == set())
    wait_for(lambda: set(servers.answers(made["token"]).values()) == {401})


def test_only_nodes_may_say_what_has_changed(servers: Three) -> None:
    token = servers.guard()
    request = urllib.request.Request(
        servers.urls[servers.leader()] + "/v1/cluster/tokens", method="POST",
        data=b'{"changes": []}', headers={"Authorization": f"Bearer {token}",
                                          "Content-Type": "application/json"},
    )  # fmt: skip
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=GUARD_S)
    refused.value.close()
    assert refused.value.code == 401


def test_what_was_revoked_before_the_others_heard_of_it_counts_nowhere(tmp_path: Path) -> None:
    """A node proposes a token, and while that is under way somebody revokes it in the folder."""
    nodes = Nodes(tmp_path, 1)
    try:
        nodes.start()
        machine = nodes.open[nodes.leader()].machine
        tokens = Tokens(nodes.folder(1))
        _, token = tokens.create(["read"])
        under_way = machine.tokens.differences()
        tokens.revoke(token.id)
        machine.agree(under_way)
        assert tokens.load() == []
        assert machine.tokens.differences() == [{"revoke": token.id}]
        nodes.open[1].agree_tokens()
        assert machine.tokens.differences() == []
        machine.agree(under_way)  # late, and once more
        assert tokens.load() == []
    finally:
        nodes.close()
