"""A single server's database becomes that of a cluster, and nothing of it is lost or changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cluster_nodes import Nodes
from cluster_servers import GUARD_S, Three, landed
from test_nodes import fill, shown
from typer.testing import CliRunner

import tideline
from tideline.cli.main import app
from tideline.cluster.node import create
from tideline.errors import InvalidRequest, NotFound, Unavailable


def single(folder: Path) -> Path:
    """A database with something of everything, some of it sealed."""
    with tideline.open(folder) as db:
        fill(db)
    with tideline.open(folder) as db:
        db.collection("cars").put({"id": "newest", "road": "A1"})
    return folder


def begun(root: Path, source: Path) -> Nodes:
    """One node that began with a copy."""
    nodes = Nodes(root, 1)
    shutil.rmtree(nodes.folder(1))
    assert create(nodes.folder(1), nodes.settings[1], source) == ["n1"]
    return nodes


def test_a_node_that_begins_with_a_database_has_all_of_it_and_goes_on(tmp_path: Path) -> None:
    source = single(tmp_path / "single")
    with tideline.open(source) as db:
        wanted = shown(db)
    nodes = begun(tmp_path, source)
    try:
        for start in range(3):  # what it adds survives restarts, too
            nodes.start()
            db = nodes.open[nodes.leader()].db
            if not start:
                assert shown(db) == wanted
            db.collection(f"new-{start}", key="id").put({"id": start})
            db.collection("cars").put({"id": f"after-{start}"})
            db.channel("roads").publish("I-5", {"n": start}, ttl_s=600)
            assert {f"after-{n}" for n in range(start + 1)} <= {
                car["id"] for car in db.collection("cars").find({})
            }
            assert [db.collection(f"new-{n}").get(n) for n in range(start + 1)] == [
                {"id": n} for n in range(start + 1)
            ]
            db.check()
            nodes.stop(1)
    finally:
        nodes.close()
    with tideline.open(source) as db:  # the source is as it was
        assert shown(db) == wanted
        db.check()


def test_what_cannot_become_a_node_is_refused_with_words_that_say_what_to_do(
    tmp_path: Path,
) -> None:
    source = single(tmp_path / "single")
    nodes = Nodes(tmp_path, 1)
    told, folder = nodes.settings[1], tmp_path / "node"
    with pytest.raises(InvalidRequest, match="--from"):  # in its place: no
        create(source, told)
    with pytest.raises(NotFound, match="no database"):
        create(folder, told, tmp_path / "nothing")
    with tideline.open(source) as db:
        with pytest.raises(Unavailable):  # somebody has it
            create(folder, told, source)
        db.backup(tmp_path / "backup")
        db.window("loose", span_s=9, key="k", values={"v": "int32"}, durable=False)
    with pytest.raises(InvalidRequest, match="restore"):
        create(folder, told, tmp_path / "backup")
    with pytest.raises(InvalidRequest, match="loose"):
        create(folder, told, source)
    with pytest.raises(InvalidRequest, match="node of a cluster"):
        create(folder, told, nodes.folder(1))
    with tideline.open(source) as db:
        db.drop_window("loose")
    assert create(folder, told, source) == ["n1"]  # and what was refused before is in no way
    with pytest.raises(InvalidRequest, match="serve it with"):
        tideline.open(folder)


def test_the_others_get_everything_and_go_on_without_the_first(tmp_path: Path) -> None:
    source = single(tmp_path / "single")
    with tideline.open(source) as db:
        wanted = sorted(map(str, db.collection("cars").find({})))
    servers = Three(tmp_path, source=source)
    try:
        servers.start()
        servers.take_in("n2")
        servers.take_in("n3")
        with servers.connect() as db:
            landed(lambda: db.collection("cars").put({"id": "one more"}))
            leader = servers.leader()
            servers.kill(leader)
            landed(lambda: db.collection("cars").delete("one more"))
            assert sorted(map(str, db.collection("cars").find({}))) == wanted
            sub = db.channel("roads").resume("s1")
            db.channel("roads").publish("I-87", {"n": 50}, ttl_s=600, id="e50")
            assert [event.id for event in sub.take(timeout_s=GUARD_S)] == ["e50"]
            servers.wipe(leader)  # it comes back without its disk
            servers.start(leader)
            servers.caught_up(leader)
        with servers.connect(leader) as db:
            assert sorted(map(str, db.collection("cars").find({}))) == wanted
    finally:
        servers.close()


def test_the_command_says_what_is_next(tmp_path: Path) -> None:
    source = single(tmp_path / "single")
    peers = "n1=127.0.0.1:1,n2=127.0.0.1:2,n3=127.0.0.1:3"
    command = ["cluster", "create", str(tmp_path / "n1"), "--node", "n1", "--peers", peers]
    done = CliRunner().invoke(app, [*command, "--from", str(source)])
    assert done.exit_code == 0
    assert '"members":["n1"]' in done.stdout
    assert "n2, n3" in done.stderr
    assert "tideline cluster add" in done.stderr
