"""Which candidates of an index count: those whose seq the newest version of their key has.

Candidates are all versions that were ever written, newest first: live, replaced, deleted and
expired ones, over memories and components, under keys of which a fence knows much or little.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tideline
from tideline.documents.export import json_keys
from tideline.documents.rows import key_bytes
from tideline.index.kind import Chunk
from tideline.index.texts import Texts

KEYS: dict[str, Callable[[random.Random], int | str]] = {
    "numbers in a row": lambda draw: draw.randrange(1500),
    "numbers far apart": lambda draw: draw.choice([-1, 1]) * draw.randrange(700) ** 6,
    "words": lambda draw: f"{draw.randrange(1500):x}",
    "long words that begin alike": lambda draw: f"{'same' * 9}{draw.randrange(900)}{'x' * 40}",
    "both": lambda draw: draw.choice([draw.randrange(300), f"road/{draw.randrange(300)}"]),
}
LEVELED = {
    "name": "leveled", "first_bytes": 8_000, "ratio": 2, "max_count": 2, "piece_bytes": 4_000,
}  # fmt: skip


@pytest.mark.parametrize("policy", ["none", "prefix", LEVELED], ids=str)
@pytest.mark.parametrize("family", list(KEYS))
def test_a_candidate_counts_when_it_is_the_newest(family: str, policy: Any, tmp_path: Path) -> None:
    draw = random.Random(f"{family} {policy}")
    database = tideline.open(tmp_path)
    made = database.collection("rows", key="id", policy=policy)
    live: dict[int | str, tuple[int, bytes]] = {}
    written: list[tuple[int, bytes]] = []  # seq, key
    for part in range(9):
        keys = [KEYS[family](draw) for _ in range(draw.choice([1, 40, 700]))]
        first = made._engine.view().seq + 1
        ttl_s = 1e-6 if part == 8 else None  # the last: expiry writes by itself
        docs = [{"id": key, "n": first + n, "pad": "x" * (n % 90)} for n, key in enumerate(keys)]
        made.put_many(docs, ttl_s=ttl_s)
        for document in docs:
            key, seq = document["id"], document["n"]
            written.append((seq, key_bytes(key)))
            live[key] = seq, msgspec.json.encode(document)
            if ttl_s is not None:
                del live[key]
        gone = [KEYS[family](draw) for _ in range(draw.choice([0, 3, 60]))]
        made.delete_many(gone)
        for key in gone:
            live.pop(key, None)
        if part % 3 == 1:
            made._engine.seal()
        if part == 6:
            database.close()
            database = tideline.open(tmp_path)
            made = database.collection("rows")
        agree(made, written, dict(live.values()))
    assert database.check().collections == 1
    database.close()


def agree(made: Any, written: list[tuple[int, bytes]], live: dict[int, bytes]) -> None:
    view = made._engine.view()
    for some in (written[::-1], written[-5:][::-1], written[::-3]):
        chunk = Chunk(np.array([seq for seq, _ in some]), Texts.of([key for _, key in some]))
        wanted = [seq for seq, _ in some if seq in live]
        found = view.follow(chunk)
        assert found.seqs.tolist() == wanted
        assert [text.rstrip() for text in found.docs] == [live[seq] for seq in wanted]
        assert view.follow(chunk, 7).seqs.tolist() == wanted[:7]
        columns = view.follow_columns(chunk)
        assert columns.seqs.tolist() == wanted
        assert columns.docs.to_list() == found.docs
        keys = dict(some)
        assert columns.keys.to_list() == [keys[seq] for seq in wanted]


NUMBERS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([0, -1, 1 << 53, (1 << 53) + 1, -(1 << 53) - 1, -(1 << 63), (1 << 63) - 1]),
)


@given(st.lists(st.one_of(NUMBERS, st.text(min_size=1, max_size=40))))
def test_keys_are_json(keys: list[int | str]) -> None:
    found: pa.StringArray = json_keys(Texts.of([key_bytes(key) for key in keys]))
    found.validate(full=True)
    assert found.to_pylist() == [msgspec.json.encode(key).decode() for key in keys]
