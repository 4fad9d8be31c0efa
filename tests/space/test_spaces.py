"""Flat and topics, and what all spaces promise."""

import os
import subprocess
import sys
import timeit
from pathlib import Path

import pytest

import tideline.space
from tideline.errors import InvalidRequest
from tideline.space import (
    CELLS,
    FLAT,
    TOPICS,
    Flat,
    Grid,
    Place,
    QuadTree,
    Topics,
    meets,
    space_from_spec,
)


def test_a_flat_place_is_its_text():
    assert Flat().encode("é") == Place("é".encode())
    assert Flat().decode(*Flat().encode("é")) == "é"
    assert type(Flat().encode("é")) is Place


@pytest.mark.parametrize("value", ["", "a" * 513, "é" * 257, "\ud800", None, 7, b"a", ("a",)])
def test_what_is_no_flat_place_is_refused(value):
    with pytest.raises(InvalidRequest, match="text of 1 to 512 bytes"):
        Flat().encode(value)


@pytest.mark.parametrize("value", ["", "a//b", None, 7, b"a"])
def test_what_is_no_topic_is_refused(value):
    with pytest.raises(InvalidRequest):
        Topics().encode(value)


def test_flat_places_meet_only_themselves():
    flat = Flat()
    assert meets(flat, flat.encode("a"), flat.encode("a"))
    assert not meets(flat, flat.encode("a"), flat.encode("ab"))


def test_topics_meet_in_both_directions_but_not_across():
    topics = Topics()
    sports, soccer, news = (topics.encode(p) for p in ("sports", "sports/soccer", "sports/news"))
    assert meets(topics, sports, soccer)
    assert meets(topics, soccer, sports)
    assert meets(topics, soccer, soccer)
    assert not meets(topics, soccer, news)
    assert not meets(topics, topics.encode("sports/1"), topics.encode("sports/10"))


def test_modes_and_specs():
    bounds = (0.0, 0.0, 1.0, 1.0)
    spaces = {Flat(): FLAT, Topics(): TOPICS, Grid(bounds, 2, 3): CELLS, QuadTree(bounds, 2): CELLS}
    for space, mode in spaces.items():
        assert space.mode == mode
        assert space_from_spec(space.spec()) == space
    assert Grid(bounds, 2, 3) != Grid(bounds, 3, 2)
    assert Flat() != Topics()


def test_importing_spaces_loads_no_heavy_library():
    # tideline/__init__.py may load more for itself: only numba is promised not to be.
    code = "import sys, tideline.space as s; s.Flat().encode('a'); print('numba' in sys.modules)"
    source = str(Path(tideline.space.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.stdout.strip() == "False"


def test_a_flat_place_costs_little():
    flat = Flat()
    best_s = min(timeit.repeat(lambda: flat.encode("sensor-17"), number=10_000, repeat=5)) / 10_000
    assert best_s < 5e-6  # ten times what it takes, so that a busy machine does not fail
