"""Quantiles from a sketch whose buckets grow by a factor, after DDSketch (Masson and others).

    v > 0     is in bucket i when  gamma**(i - 1) < v <= gamma**i
              gamma = (1 + error) / (1 - error)
    v < 0     the same below zero; 0 has a bucket of its own
    state     {code of a bucket: how many}; codes are in the order of values
              (kernels/stream/fold.py)

The value it gives is within `error`, relatively, of the value that has the rank floor(q (n - 1)),
the first rank being 0. Joining adds counts: exact, whatever the order, so a window that slides has
what a rescan gives. Sketches by rank (KLL, t-digest) depend on the order and would not
(docs/decisions/0076). It takes one bucket for each power of gamma that occurs: for values from 1
to 10**9 and 1 %, at most 1,037.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import InvalidRequest
from tideline.kernels.stream import fold
from tideline.kernels.stream.layout import ZERO

__all__ = ["DEFAULT_ERROR", "LOG_MOST", "Scale", "check_error", "code_counts", "quantile"]

DEFAULT_ERROR = 0.01
LOG_MOST = math.log(sys.float_info.max)


def check_error(error: Any) -> float:
    """The relative error of a sketch, or `InvalidRequest`."""
    if not 0.0001 <= error <= 0.5:
        raise InvalidRequest("the error of a quantile is 0.0001 to 0.5", error=error)
    return float(error)


class Scale(NamedTuple):
    """How an error makes codes of values, and values of codes."""

    factor: float
    """1 / ln(gamma): a value has the power ceil(ln(value) * factor)."""
    gamma: float
    shift: float
    """What is added to a power's logarithm for the middle of its bucket, relatively."""

    @classmethod
    def of(cls, error: float) -> Scale:
        """Of a relative error."""
        gamma = (1 + error) / (1 - error)
        return cls(1 / math.log(gamma), gamma, math.log(2 / (gamma + 1)))


def code_counts(values: NDArray[np.float64], error: float) -> dict[int, int]:
    """The buckets of some values.

    >>> code_counts(np.array([1.0, 1.0, 0.0]), 0.01)
    {0: 1, 16777216: 2}
    """
    codes = np.empty(len(values), np.int32)
    fold.buckets(address_of(values), len(values), Scale.of(error).factor, address_of(codes))
    found, counts = np.unique(codes, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def quantile(counts: dict[int, int], q: float, error: float) -> float | None:
    """The value at a fraction of the ranks; None when there is no value.

    >>> counts = code_counts(np.arange(1.0, 101.0), 0.01)
    >>> 49.5 <= quantile(counts, 0.5, 0.01) <= 50.5
    True
    """
    total = sum(counts.values())
    if not total:
        return None
    rank, seen = math.floor(q * (total - 1)), 0
    code = 0
    for code in sorted(counts):
        seen += counts[code]
        if seen > rank:
            break
    if code == 0:
        return 0.0
    scale = Scale.of(error)
    # The last bucket may reach beyond what a double holds.
    middle = (abs(code) - ZERO) * math.log(scale.gamma) + scale.shift
    value = math.exp(min(middle, LOG_MOST))
    return value if code > 0 else -value
