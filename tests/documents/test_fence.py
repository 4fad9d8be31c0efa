"""A fence leads to every key of a component, whatever the keys are, and to no other."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tideline
from tideline.addresses import address_of
from tideline.errors import Corruption
from tideline.index.sorted import SortedKind, _fence
from tideline.index.texts import Texts
from tideline.kernels.documents import fence
from tideline.kernels.documents import layout as at
from tideline.where.keys import encode

_RANDOM = random.Random(7)
_FAMILIES: dict[str, list[bytes]] = {
    "numbers in order": [encode(n) for n in range(5000)],
    "numbers anywhere": [encode(_RANDOM.randrange(-(10**15), 10**15)) for _ in range(5000)],
    "few far apart": [encode(3**n) for n in range(300)],
    "numbers beyond doubles": [encode(2**60 + n) for n in range(3000)],
    "texts that begin alike": [encode(f"a long common beginning {n}") for n in range(3000)],
    "texts that differ late": [b"\x02" + b"x" * (n % 40) + b"%d" % n for n in range(3000)],
    "one the beginning of the next": [b"\x02" + b"a" * n for n in range(900)],
    "zeros": [b"\x02" + b"\0" * n for n in range(900)],
    "the highest": [b"\xff" * n for n in range(1, 900)],
    "one": [b"\x02only"],
    "the empty one and others": [b"", b"\0", b"a"],
}


def _component(keys: list[bytes]) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """What kernels have to know of a component with these sorted keys, and what must live."""
    texts = Texts.of(keys)
    words = _fence(texts)
    facts = np.zeros(at.X_WORDS, np.int64)
    facts[at.X_ROWS] = len(keys)
    facts[at.X_KEY_OFFSETS], facts[at.X_KEYS] = texts.addresses[:2]
    facts[at.X_FENCE] = address_of(words)
    facts[at.X_COMMON] = fence.common_bytes(*texts.addresses)
    return facts, [texts, words]


def _row(facts: np.ndarray[Any, Any], key: bytes) -> int:
    wanted = Texts.of([key])
    return int(fence.row_of(address_of(facts), wanted.addresses[1], len(key)))


@pytest.mark.parametrize("family", _FAMILIES)
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 128, 1025, 5000])
def test_every_key_and_no_other_is_found(family: str, count: int) -> None:
    """Also in components that are full stretches, one more and one less."""
    keys = sorted(set(_FAMILIES[family][:count]))
    facts, _held = _component(keys)
    there = {key: row for row, key in enumerate(keys)}
    asked = [*keys[:: max(1, len(keys) // 400)], keys[-1]]
    others = [f(key) for key in asked for f in (_longer, _shorter, _above, _below)]
    for key in [*asked, *others, b"", b"\xff" * 20, b"\0"]:
        assert _row(facts, key) == there.get(key, -1), key


@given(
    st.lists(st.binary(max_size=12), min_size=1, max_size=300, unique=True),
    st.lists(st.binary(max_size=12), max_size=20),
    st.binary(max_size=10),
)
def test_any_bytes(some: list[bytes], others: list[bytes], common: bytes) -> None:
    """Against a dictionary, with a beginning that all share."""
    keys = sorted(common + key for key in some)
    facts, _held = _component(keys)
    there = {key: row for row, key in enumerate(keys)}
    for key in [*keys, *others, *(common + other for other in others)]:
        assert _row(facts, key) == there.get(key, -1)


def test_numbers_in_order_are_found_at_the_first_look() -> None:
    """The row that a fence says to look at first is theirs."""
    keys = [encode(n) for n in range(1_000_000, 1_100_000)]
    facts, _held = _component(keys)
    source = address_of(facts)
    held = Texts.of(keys[::997])
    for number, row in enumerate(range(0, len(keys), 997)):
        begin = held.addresses[1] + int(held.offsets[number])
        first, limit, look = fence.narrow(source, fence.word_of(source, begin, 9))
        assert first <= row < limit
        assert look == row


def test_words_that_are_wrong_lead_nowhere_else() -> None:
    """Any words: a search ends, inside the component; it may miss a key, never find another."""
    keys = [encode(n) for n in range(2000)]
    facts, held = _component(keys)
    words = held[1]
    for seed in range(30):
        chance = np.random.default_rng(seed)
        words[:] = chance.integers(-(1 << 63), (1 << 63) - 1, len(words))
        for number in range(0, 2000, 37):
            assert _row(facts, encode(number)) in (number, -1)


def test_check_sees_a_wrong_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was written wrong: its checksum is right, its words are not."""
    right = _fence

    def wrong(keys: Texts) -> Any:
        return right(keys) + 1

    with tideline.open(tmp_path / "db") as db:
        cars = db.collection("cars", key="id")
        cars.put_many([{"id": n} for n in range(300)])
        monkeypatch.setattr("tideline.index.sorted._fence", wrong)
        cars._engine.seal()
        monkeypatch.setattr("tideline.index.sorted._fence", right)
        with pytest.raises(Corruption, match="fence"):
            cars._engine.check()


def test_a_component_without_a_fence_is_given_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they were written before there were fences."""
    build = SortedKind.build

    def without(self: SortedKind, *arguments: Any) -> Any:
        made = build(self, *arguments)
        del made.extra["side"]["fence"]
        return made

    monkeypatch.setattr(SortedKind, "build", without)
    with tideline.open(tmp_path / "db") as db:
        cars = db.collection("cars", key="id", indexes={"road": "lazy"})
        cars.put_many([{"id": n, "road": n % 7} for n in range(1000)])
        cars._engine.seal()
    with tideline.open(tmp_path / "db") as db:
        cars = db.collection("cars")
        assert [cars.get(n)["id"] for n in range(1000)] == list(range(1000))
        assert [car["id"] for car in cars.lookup("road", 3, k=2)] == [997, 990]
        cars._engine.check()


def _longer(key: bytes) -> bytes:
    return key + b"\0"


def _shorter(key: bytes) -> bytes:
    return key[:-1]


def _above(key: bytes) -> bytes:
    return key[:-1] + bytes([min(key[-1] + 1, 255)]) if key else b"\x01"


def _below(key: bytes) -> bytes:
    return key[:-1] + bytes([max(key[-1] - 1, 0)]) if key else b""
