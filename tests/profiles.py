"""How much of something a test tries, by the profile of Hypothesis (conftest.py).

    many(300)     examples: 100 by default, 50 in the checked job, 1,500 in `long`
    few(12)       examples where one takes long: 12 by default, 12 in the checked job, 180 in `long`
    STRIDE        of what is tried place by place: every third by default, every one in `long`

What is small by default is tried on every change; `make test-long` looks everywhere.
"""

from __future__ import annotations

import os

__all__ = ["STRIDE", "few", "many"]

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
STRIDE = 1 if _PROFILE == "long" else 3
_LEAST = 20


def many(count: int) -> int:
    """How many examples where `count` are plenty."""
    if _PROFILE == "long":
        return 5 * count
    return max(count // (6 if _PROFILE == "bounds" else 3), _LEAST)


def few(count: int) -> int:
    """How many examples where `count` are as many as there is time for on every change."""
    return 15 * count if _PROFILE == "long" else count
