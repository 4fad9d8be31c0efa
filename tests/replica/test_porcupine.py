"""Our checker of histories, and histories of worlds and processes, judged by porcupine as well."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from histories import NEVER, Call, Undecided, is_linearizable
from processes import Clients, Cluster
from test_histories import random_history
from world import World

pytestmark = pytest.mark.long
SOURCE = Path(__file__).with_name("porcupine")


@pytest.fixture(scope="module")
def porcupine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not on this machine: it builds porcupine")
    program = tmp_path_factory.mktemp("porcupine") / "porcupine"
    built = subprocess.run(
        [go, "build", "-o", str(program), "."], cwd=SOURCE, capture_output=True, text=True
    )
    if built.returncode and "dial tcp" in built.stderr:
        pytest.skip(f"porcupine cannot be downloaded: {built.stderr[-300:]}")
    assert built.returncode == 0, built.stderr
    return program


def judge(program: Path, histories: list[list[Call]]) -> list[str]:
    lines = [
        json.dumps(
            [
                [c.begin, -1 if c.end == NEVER else c.end, c.key, c.kind, c.word, c.result]
                for c in history
            ]
        )
        for history in histories
    ]
    done = subprocess.run(
        [str(program)], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def ours(history: list[Call]) -> str:
    try:
        return "Ok" if is_linearizable(history) else "Illegal"
    except Undecided:
        return "Unknown"


def agree(program: Path, histories: list[list[Call]]) -> list[str]:
    """Both checkers say the same, where both say something; how it was judged."""
    theirs = judge(program, histories)
    assert len(theirs) == len(histories)
    for history, answer in zip(histories, theirs, strict=True):
        own = ours(history)
        assert own == answer or "Unknown" in (own, answer), history
    return theirs


def test_both_say_the_same_of_random_histories(porcupine: Path) -> None:
    r = Random(2)
    found = agree(porcupine, [random_history(r) for _ in range(5000)])
    assert min(found.count("Ok"), found.count("Illegal")) > 1000


def test_both_say_the_same_of_worlds(porcupine: Path) -> None:
    right, wrong = [], []
    r = Random(3)
    for seed in range(100):
        world = World(seed)
        world.run()
        right.append(list(world.calls.values()))
        wrong.append(tampered(r, right[-1]))
    found = agree(porcupine, right)
    assert "Illegal" not in found
    assert found.count("Ok") > 20  # for the others it took too long to say
    assert agree(porcupine, wrong).count("Illegal") > 20


def tampered(r: Random, history: list[Call]) -> list[Call]:
    """One read has seen what another one saw."""
    reads = [at for at, c in enumerate(history) if c.kind == "read" and c.end != NEVER]
    if len(reads) < 2:
        return history
    one, two = r.sample(reads, 2)
    found = list(history)
    found[one] = replace(found[one], result=history[two].result)
    return found


def test_both_say_the_same_of_processes(porcupine: Path, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    clients = Clients(cluster, 6)
    try:
        for _ in range(3):
            clients.until_more(200)
            gone = cluster.leader()
            cluster.kill(gone)
            clients.until_more(50)
            cluster.start(gone)
        clients.check()
        assert judge(porcupine, [clients.calls]) == ["Ok"]
    finally:
        cluster.close()
