"""Pairs of different words with one hash, made by going back through the hash.

`kernels/inverted/tokens.py` `hash_token` loses the highest bit at its end and nothing before it. So
a word of eight bytes has a partner: turn that bit and undo the rest. About one partner in seven
million is a word, too.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

_P1, _P2 = -7046029254386353131 % 2**64, -4417276706812531889 % 2**64
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", np.uint8)
_TRIED = 1 << 18


def _word(value: int) -> Any:
    return np.uint64(value % 2**64)


def _mixed(h: Any) -> Any:
    h = (h ^ (h >> _word(32))) * _word(_P2)
    return h ^ (h >> _word(29))


def _unmixed(h: Any) -> Any:
    h = h ^ (h >> _word(29)) ^ (h >> _word(58))
    h = h * _word(pow(_P2, -1, 2**64))
    return h ^ (h >> _word(32))


@cache
def colliding(seed: int) -> tuple[str, str]:
    """Two words of eight letters that have one hash under a seed."""
    begun = _word(seed ^ 8 * (_P1 - 2**64))
    first, second = _word(_P1), _word(_P2)
    is_letter = np.isin(np.arange(256), _LETTERS)
    draw = np.random.default_rng(1)
    while True:
        words = _LETTERS[draw.integers(0, len(_LETTERS), (_TRIED, 8))]
        h = _mixed(_mixed((begun ^ words.view("<u8").ravel()) * first) * second)
        h = _unmixed(h ^ _word(1 << 63)) * _word(pow(_P2, -1, 2**64))
        others = begun ^ (_unmixed(h) * _word(pow(_P1, -1, 2**64)))
        letters = others.astype("<u8").view(np.uint8).reshape(-1, 8)
        good = np.flatnonzero(is_letter[letters].all(axis=1))
        if len(good):
            one = int(good[0])
            return words[one].tobytes().decode(), letters[one].tobytes().decode()
