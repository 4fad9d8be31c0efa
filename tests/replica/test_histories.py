"""The checker of histories agrees with brute force, and with histories one can judge by eye."""

from __future__ import annotations

from random import Random

import pytest
from histories import NEVER, Call, is_linearizable, is_linearizable_by_brute_force


def random_history(r: Random) -> list[Call]:
    words = r.sample(range(1, 8), r.randint(1, 6))
    calls = []
    for word in words:
        begin = r.randint(0, 10)
        end = begin + r.randint(1, 6) if r.random() < 0.8 else NEVER
        kind = r.choice(["put", "append", "read", "read"])
        result = tuple(r.sample(range(1, 8), r.choice([0, 1, 1, 2]))) if kind == "read" else None
        calls.append(Call(begin, end, r.choice([0, 0, 0, 1]), kind, word, result))
    return calls


def test_the_checker_agrees_with_brute_force() -> None:
    r = Random(1)
    answers = [0, 0]
    for _ in range(800):
        history = random_history(r)
        answer = is_linearizable(history)
        assert answer == is_linearizable_by_brute_force(history), history
        answers[answer] += 1
    assert min(answers) > 200


@pytest.mark.parametrize(
    ("good", "history"),
    [
        (True, [Call(1, 2, 0, "put", 1), Call(3, 4, 0, "read", 2, (1,))]),
        (False, [Call(1, 2, 0, "put", 1), Call(3, 4, 0, "read", 2, ())]),  # stale
        (True, [Call(1, 4, 0, "put", 1), Call(2, 3, 0, "read", 2, ())]),  # at the same time
        (True, [Call(1, NEVER, 0, "put", 1), Call(5, 6, 0, "read", 2, (1,))]),  # unanswered, seen
        (True, [Call(1, NEVER, 0, "put", 1), Call(5, 6, 0, "read", 2, ())]),  # unanswered, not seen
        (False, [Call(1, NEVER, 0, "put", 1), Call(5, 6, 0, "read", 2, (1,)),
                 Call(7, 8, 0, "read", 3, ())]),
        (False, [Call(1, 2, 0, "append", 1), Call(3, 4, 0, "append", 2),
                 Call(5, 6, 0, "read", 3, (2, 1))]),
    ],
)  # fmt: skip
def test_histories_one_can_judge(good: bool, history: list[Call]) -> None:
    assert is_linearizable(history) == good == is_linearizable_by_brute_force(history)
