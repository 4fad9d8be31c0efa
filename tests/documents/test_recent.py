"""Records read lately: always the newest, never more than the room there is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tideline
from tideline.documents.recent import Recent
from tideline.errors import Closed
from tideline.index.texts import Texts

_steps = st.lists(
    st.tuples(st.sampled_from(["put", "many", "delete", "seal"]), st.integers(0, 30)), max_size=30
)


@given(steps=_steps)
def test_a_record_that_was_read_is_read_as_it_is_now(steps: list[tuple[str, int]]) -> None:
    with tideline.open(":memory:") as db:
        papers = db.collection("papers", key="id")
        want: dict[int, dict[str, int]] = {}
        for number, (step, key) in enumerate(steps):
            if step == "put":
                want[key] = {"id": key, "n": number}
                papers.put(want[key])
            elif step == "many":
                some = {at: {"id": at, "n": number} for at in range(key)}
                want |= some
                papers.put_many(list(some.values()))
            elif step == "delete":
                want.pop(key, None)
                papers.delete(key)
            else:
                papers._engine.seal()
            for at in (0, key, 29):
                assert papers.get(at) == papers.get(at) == want.get(at)


def test_what_is_given_is_the_callers_own() -> None:
    with tideline.open(":memory:") as db:
        papers = db.collection("papers", key="id")
        papers.put({"id": 1, "tags": ["a"]})
        first = papers.get(1)
        assert first is not None
        first["tags"].append("b")
        assert papers.get(1) == {"id": 1, "tags": ["a"]}


def test_reading_it_again_reads_no_block(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as db:
        papers = db.collection("papers", key="id")
        papers.put_many([{"id": key, "text": "x" * 100} for key in range(1000)])
        papers._engine.seal()
        before = papers._engine.counters()["primary_blocks"]
        assert papers.get(17) == papers.get(17)
        assert papers._engine.counters()["primary_blocks"] - before == 1


def test_nothing_is_read_after_the_end() -> None:
    db = tideline.open(":memory:")
    papers = db.collection("papers", key="id")
    papers.put({"id": 1})
    assert papers.get(1) == {"id": 1}
    db.close()
    with pytest.raises(Closed):
        papers.get(1)


def test_the_room_is_kept_to() -> None:
    recent = Recent(10_000)
    recent.publish("now")
    sizes = random.Random(4)
    for number in range(500):
        key = b"%d" % number
        recent.keep(key, b"x" * sizes.randrange(6_000), "now")
        held = sum(len(key) + len(text) for key, text in recent.texts.items())
        assert held <= 10_000
    recent.keep(b"large", b"x" * 20_000, "now")
    assert not recent.texts
    recent.keep(b"small", b"x", "now")
    assert recent.texts == {b"small": b"x"}
    recent.publish("later", Texts.of([b"small", b"other"]))
    assert not recent.texts


def test_what_was_read_before_a_write_is_not_kept_after_it() -> None:
    recent = Recent(10_000)
    recent.publish("before")
    recent.publish("after", Texts.of([b"k"]))
    recent.keep(b"k", b"old", "before")
    assert not recent.texts
    recent.keep(b"k", b"new", "after")
    assert recent.texts == {b"k": b"new"}
    recent.end()
    recent.keep(b"k", b"new", "after")
    assert not recent.texts
