"""Conditions beside three independent implementations, thousands of random questions.

mgqpy, whose authors check it with real servers, must agree on every question it supports.
mingo and mongomock have ways of their own: every disagreement, taken to its smallest part, must be
of a kind that `tideline.where.differences` lists, and each case listed there is asked. MongoDB's
documentation decided them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import Mingo, mgqpy, mongomock
from peers.generator import Generator
from peers.kinds import KINDS, leaf_of
from peers.reduce import Peer, smallest
from profiles import many

from tideline.where import parse
from tideline.where.differences import CASES

QUESTIONS = 1_500  # conditions, each asked of ten bodies
NAMES = ["mingo", "mongomock", "mgqpy"]


@pytest.fixture(scope="module")
def peers() -> Iterator[dict[str, Peer]]:
    mingo = Mingo()
    yield {"mingo": mingo, "mongomock": mongomock, "mgqpy": mgqpy}
    mingo.close()


def unexplained(name: str, peer: Peer, condition: dict[str, Any], bodies: list[Any]) -> list[Any]:
    """The disagreements of no listed kind, smallest parts."""
    answers = peer(condition, bodies)
    ours = [parse(condition).matches(body) for body in bodies]
    if answers is None or answers == ours:
        return []
    found = []
    for body, theirs, mine in zip(bodies, answers, ours, strict=True):
        if theirs != mine:
            part = smallest(peer, condition, body)
            leaf = leaf_of(*part)
            kinds = KINDS.get(name, {})
            if leaf is None or not any(rule(leaf) for rule in kinds.values()):
                found.append((name, *part, {"theirs": theirs, "ours": mine}))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_thousands_of_questions_get_the_same_answers(name, peers):
    generator = Generator(random.Random(20240501))
    supported = agreed = asked = met = 0
    for _ in range(QUESTIONS):
        condition = generator.condition()
        bodies = [generator.body() for _ in range(10)]
        assert unexplained(name, peers[name], condition, bodies) == []
        answers = peers[name](condition, bodies)
        if answers is not None:
            ours = [parse(condition).matches(body) for body in bodies]
            supported += 1
            asked += len(bodies)
            met += sum(ours)
            agreed += sum(map(bool.__eq__, answers, ours))
    # The questions are real ones: most are supported, a good part is met, few are excused.
    assert supported > 0.85 * QUESTIONS
    assert 0.1 < met / asked < 0.9
    assert agreed / asked > {"mingo": 0.98, "mongomock": 0.96, "mgqpy": 1 - 1e-9}[name]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=many(100))
@given(draw=st.randoms(use_true_random=False))
def test_any_question_gets_the_same_answer(peers, name, draw):
    generator = Generator(draw)
    condition = generator.condition()
    bodies = [generator.body() for _ in range(4)]
    assert unexplained(name, peers[name], condition, bodies) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.condition}")
def test_the_cases_on_the_page_are_true(case, peers):
    assert parse(case.condition).matches(case.body) is case.ours
    for name in NAMES:
        answers = peers[name](case.condition, [case.body])
        assert (answers[0] if answers else None) is getattr(case, name), name


def test_somebody_differs_in_every_case_and_every_kind_has_one():
    for case in CASES:
        assert {case.mingo, case.mongomock, case.mgqpy} & {not case.ours}, case
        for name, kinds in KINDS.items():
            if getattr(case, name) is (not case.ours):
                leaf = leaf_of(case.condition, case.body)
                assert leaf is not None
                assert case.kind in kinds, (name, case)
                assert kinds[case.kind](leaf), (name, case)
    listed = {case.kind for case in CASES}
    for kinds in KINDS.values():
        assert set(kinds) <= listed


TEXTS = [[], ["ice"], ["ice", "night"], "ice night", ["ICE", "nightly"], [1],
         ["night", None], [{"t": "ice"}], None, "ice", ["nice night"]]  # fmt: skip


@pytest.mark.parametrize("patterns", [["ice"], ["ice", "night"], ["^ice", "t$"], ["^n", "^n"]])
def test_patterns_in_all_mean_what_they_mean_elsewhere(patterns, peers):
    """MongoDB's `$all` is an `$and`. Its patterns are values of a type that JSON has not: the peers
    are asked the `$and` (mongomock compares a pattern in `$all` with the text itself)."""
    ours = {"t": {"$all": [{"$regex": pattern} for pattern in patterns]}}
    bodies = [{"t": text} for text in TEXTS] + [{}]
    answers = [parse(ours).matches(body) for body in bodies]
    assert True in answers
    assert False in answers
    each = {"$and": [{"t": {"$regex": pattern}} for pattern in patterns]}
    assert peers["mingo"](each, bodies) == answers
    assert mongomock(each, bodies) == answers
