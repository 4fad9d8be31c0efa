"""A channel's whole life, mixed at random, says what the contract says: publish, subscribe, unseen,
cancel, prolong, resume, journals, failing log writes, seals, merges, kills, little memory.

The parts: channel_model.py (the contract as plain lists), channel_writer.py (stories from seeds),
channel_store.py (real stores in processes that die), channel_judge.py (compares),
channel_stories.py (runs them; also a program).

A story that differs is cut short and written as a script; the failure names it and its seed.
`make test` runs a bounded number of fixed seeds and a fresh one, `make test-long` a million
operations: `TIDELINE_STORY_OPS` sets another number, `TIDELINE_STORY_SEED` the first seed,
`TIDELINE_STORY_WITHOUT` what to leave out (see `channel_stories.py --help`).
"""

from __future__ import annotations

import itertools
import os
import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from channel_model import WORLDS, Model, meets
from channel_store import Life, nursery
from channel_stories import (
    LAYOUTS,
    MEMORY,
    Difference,
    Found,
    Result,
    run_story,
    shrink,
    stories,
)
from channel_writer import START, Writer

import tideline
from tideline import space as spaces

SPACES = list(WORLDS)
WITHOUT = os.environ.get("TIDELINE_STORY_WITHOUT", "").split(",")
LONG_OPS = int(os.environ.get("TIDELINE_STORY_OPS", "1_000_000"))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with nursery() as found:
        yield found


def run(address: str, seeds: Iterator[int], total: int, each: int, **more: Any) -> Result:
    """Stories without a difference, or a failure that says how to see it again."""
    scripts = Path(tempfile.gettempdir()) / "tideline-stories"
    more.setdefault("spaces", SPACES)
    more.setdefault("without", WITHOUT)
    more.setdefault("layouts", list(LAYOUTS))
    more.setdefault("cut_batches", True)  # with little memory: docs/guide/batches.md
    whole, found = stories(
        address, seeds, total, each=each, memory=list(MEMORY), scripts=scripts, **more
    )
    assert not found, told(found)
    return whole


def told(found: list[Found]) -> str:
    (one,) = found
    return (
        f"seed {one.seed}: {one.difference}\n{len(one.ops)} operations show it: "
        f"PYTHONPATH=src:tests python {one.path}"
    )


# The parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPACES)
def test_the_models_places_meet_as_those_of_the_space(name: str) -> None:
    """The model has its own geometry: where both are right they say the same."""
    world = WORLDS[name]
    kind, given = world.space
    space = getattr(tideline, kind)(**given)

    def real(place: Any) -> Any:
        if place[0] == "circle":
            return tideline.Circle((place[1], place[2]), place[3])
        if place[0] == "polygon":
            return tideline.Polygon(place[1])
        return tideline.Box(*place[1:]) if place[0] == "box" else place

    for one, other in itertools.product(world.places, repeat=2):
        if name == "flat":
            continue  # the same key, or not
        assert meets(one, other) == bool(
            spaces.meets(space, space.encode(real(one)), space.encode(real(other)))
        ), (one, other)


def test_a_copy_of_the_model_goes_its_own_way() -> None:
    model = Model(WORLDS["flat"])
    model.clock = START
    model.subscribe(START, "s", "ann", 0, START, START + 100, 0, True)
    other = model.copy()
    other.publish(START, "e", 0, (1, "x", 0), START, START + 50)
    assert model.dump()["events"] == []
    assert other.dump()["events"] == [("e", START, START + 50)]
    assert not model.subs[0].got
    assert other.subs[0].got


def test_one_seed_is_one_story() -> None:
    one, other = (list(Writer(5, "quad", [1, 16]).story(500)) for _ in range(2))
    assert one == other
    assert list(Writer(6, "quad", [1, 16]).story(500)) != one


def test_a_wrong_answer_is_seen_and_cut_to_what_shows_it(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that forgets the third answer of a call stands for any fault."""
    real = Life.run

    def wrong(self: Life, ops: list[dict[str, Any]]) -> list[Any]:
        results = real(self, ops)
        for n, (op, result) in enumerate(zip(ops, results, strict=False)):
            if op["op"] == "publish" and result[0] == "ok" and len(result[1][1]) == 3:
                results[n] = ("ok", (result[1][0], result[1][1][:2], result[1][2]))
        return results

    monkeypatch.setattr(Life, "run", wrong)
    settings = {"space": "flat", "layout": "dual", "memory_mb": 64}
    ops = [op for op in Writer(3, "flat", [64]).story(400) if "fault" not in op]
    with pytest.raises(Difference) as caught:
        run_story(address, settings, ops)
    few, again = shrink(address, settings, ops, caught.value, budget_s=30)
    assert again.op["op"] == "publish"
    assert len(few) <= len(ops) // 2


# The stories ------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("space", SPACES)
def test_a_channel_says_what_the_contract_says(address: str, space: str, layout: str) -> None:
    run(address, itertools.count(1), 1500, 750, spaces=[space], layouts=[layout])


def test_a_fresh_story_says_what_the_contract_says(address: str) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    run(address, itertools.count(seed), 1500, 750)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_a_million_operations_say_what_the_contract_says(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("TIDELINE_STORY_SEED", random.SystemRandom().randrange(1 << 30)))

    def progress(text: str) -> None:
        with capsys.disabled():
            print(f"\n  stories from seed {seed}: {text}", end="", flush=True)

    def half(first: int) -> Result:  # a process of its own keeps each of two cores busy
        return run(address, itertools.count(first), LONG_OPS // 2, 3000, progress=progress)

    with ThreadPoolExecutor(2) as pool:
        halves = list(pool.map(half, (seed, seed + (1 << 31))))
    assert sum(one.ops for one in halves) >= LONG_OPS
    assert LONG_OPS < 100_000 or all(one.deaths for one in halves)
    progress(f"done: {halves}")
