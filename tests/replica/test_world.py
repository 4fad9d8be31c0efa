"""The simulation: right replicas keep every promise under faults, wrong ones are caught."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from mutants import MUTANTS, UNFOUND, mutated
from world import (
    CHANGES,
    ELECTIONS,
    LEASES,
    PATIENT,
    RESTARTS,
    SHORT_LEASES,
    SMALL,
    SNAPSHOTS,
    World,
    Wrong,
)

SEEDS = range(60)
MOST_SEEDS = 2000  # in which a wrong replica must be caught
FIRST = {
    "accepts_any_ballot": 99, "answers_before_the_disk": 52, "damaged_is_absent": 16,
    "election_by_one_less": 1, "grants_not_kept": 122, "lease_ignored": 7,
    "longest_log_is_best": 498, "lost_disk_votes_at_once": 79, "own_entries_count_at_once": 44,
    "promise_not_persisted": 15, "heartbeats_answered_before_the_disk": 45,
    "grant_forgotten_at_start": 10, "changes_at_once": 51, "quorum_of_one_less": 3,
    "lease_too_long": 0, "read_not_confirmed": 26, "hint_ends_a_lease": 101,
}  # fmt: skip
"""Where to begin for each fault: a seed that caught it once, so that the test is quick. When the
world changes these are only as good as any others, and the search goes on from there."""


WORLDS: dict[str, dict[str, Any]] = {
    "leases": {"faults": LEASES},
    "restarts": {"faults": RESTARTS, "options": PATIENT, "count": 3},
    "elections": {"faults": ELECTIONS, "options": SMALL, "count": 5},
    "promises": {"faults": ELECTIONS, "options": SHORT_LEASES, "count": 3},
    "snapshots": {"faults": SNAPSHOTS, "count": 3},
    "changes": {"faults": CHANGES, "count": 5},
}
"""Worlds in which one thing goes wrong all the time, and little else."""
LOOKED_FOR_IN = {
    "grants_not_kept": "leases", "lease_ignored": "leases", "lease_too_long": "leases",
    "read_not_confirmed": "leases", "hint_ends_a_lease": "leases",
    "grant_forgotten_at_start": "restarts", "changes_at_once": "changes",
}  # fmt: skip
"""Faults that are looked for in one of these."""


@pytest.mark.parametrize("first", range(0, len(SEEDS), 20))
def test_replicas_keep_their_promises(first: int) -> None:
    for seed in SEEDS[first : first + 20]:
        World(seed).run()
        if seed % 4 == 0:
            World(seed, faults=LEASES).run()


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_replicas_keep_their_promises_where_one_thing_goes_wrong(name: str) -> None:
    for seed in range(2):
        World(seed, **WORLDS[name]).run()


def test_a_candidate_whose_log_is_another_one_takes_over_more_than_one_batch() -> None:
    """Seed 5014: it fetched the first batch, which it had, again and again."""
    World(5014).run()


def test_a_candidate_that_has_all_and_lacks_promises_does_not_ask_on_and_on() -> None:
    """Seed 5267: the log it took over named other members, and it fetched what is after the end,
    as fast as the answers came."""
    World(5267).run()


def test_a_leader_may_find_that_it_has_not_joined_yet() -> None:
    """Seed 258533694549: the log it took over did not have the entry that made it a voter."""
    World(258533694549).run()


def test_a_seed_is_the_same_run_again() -> None:
    one, two = World(7, trace=True), World(7, trace=True)
    one.run()
    two.run()
    assert one.trace == two.trace
    assert one.serial == two.serial
    assert len(one.trace or []) > 100


def test_the_world_does_what_it_says() -> None:
    """Elections, snapshots, crashes, recoveries and changes do happen in these seeds."""
    found: set[str] = set()
    for seed in SEEDS[:40]:
        world = World(seed, trace=True)
        world.run()
        found |= {line.split()[1] for line in world.trace or []}
        found |= {"snapshot"} if any(n.view.snapshot.index for n in world.nodes.values()) else set()
        found |= {"ballots"} if max(e.ballot.round for e in world.truth.values()) > 3 else set()
    assert found >= {
        "start", "crash", "hint", "split", "propose", "answer", "damage", "wipe", "add", "remove",
        "snapshot", "ballots",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(MUTANTS) - UNFOUND))
def test_a_wrong_replica_is_caught(name: str) -> None:
    start = FIRST.get(name, 0)
    where = WORLDS.get(LOOKED_FOR_IN.get(name, ""), {})
    with mutated(name):
        for seed in range(start, start + MOST_SEEDS):
            try:
                World(seed, **where).run()
            except Wrong:
                return
    pytest.fail(f"not caught: {MUTANTS[name][0]}")


@pytest.mark.long
def test_many_seeds() -> None:
    """New seeds in each run, or those after TIDELINE_SEED; a failure names its seed."""
    first = int(os.environ.get("TIDELINE_SEED", Random().randrange(1 << 40)))
    for seed in range(first, first + int(os.environ.get("TIDELINE_SEEDS", "20000"))):
        World(seed).run()
        World(seed, **WORLDS[sorted(WORLDS)[seed % len(WORLDS)]]).run()
