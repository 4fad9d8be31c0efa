"""What an index of places promises of the nearest: all entries, to the last bit in their order.

A view is asked by itself here: of components, runs and tails at once, wherever they lie.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.addresses import address_of
from tideline.index.kind import make_kind
from tideline.index.places import decode_value, encode_value
from tideline.index.spatialmemory import SpatialMemory
from tideline.index.spatialview import SpatialView
from tideline.index.texts import Texts
from tideline.kernels.spatial import outline
from tideline.lsm.component import Component, write_component
from tideline.space.outline import Outline

ALL = 1 << 62


def a_point(draw: random.Random, how: str) -> list[float]:
    lon, lat = draw.uniform(-180, 180), draw.uniform(-90, 90)
    if how == "edges":  # the antimeridian and the poles, and a trifle beside them
        lon = draw.choice([-180.0, 180.0, 0.0, lon]) * (1 - draw.choice([0, 1e-15, 1e-9, 1e-5]))
        lat = draw.choice([-90.0, 90.0, 0.0, lat]) * (1 - draw.choice([0, 1e-15, 1e-9, 1e-5]))
    elif how == "same":
        lon, lat = draw.choice([1.5, 2.5, -180.0]), draw.choice([1.5, 90.0])
    elif how == "close":  # so close that the bounds say little
        lon, lat = 10 + draw.uniform(0, 1e-9), 50 + draw.uniform(0, 1e-12)
    return [lon, lat]


def a_value(draw: random.Random, how: str, boxes: float) -> bytes:
    lon, lat = a_point(draw, how)
    made: Any = [lon, lat]
    if draw.random() < boxes:
        size = draw.choice([1e-9, 0.01, 2.0, 60.0])
        east, north = min(lon + size, 180.0), min(lat + size, 90.0)
        made = {"type": "LineString", "coordinates": [[lon, lat], [east, north]]}
        if draw.random() < 0.5:
            ring = [[lon, lat], [east, lat], [east, north], [lon, lat]]
            made = {"type": "Polygon", "coordinates": [ring]}
    found = encode_value(made)
    return encode_value([lon, lat]) or b"" if found is None else found


def haversine(value: bytes, lon: float, lat: float) -> float:
    place = decode_value(value)
    if isinstance(place, Outline):
        return float(outline.nearest_h(address_of(place.numbers), lon, lat))
    return float(outline.haversine_of(lon, lat, *place))


def key_of(seq: int) -> bytes:
    """A key: short ones, and some much longer."""
    return b"%d " % seq * (1 + seq % 9)


class Places:
    """Entries in components and a memory, and the list of them."""

    def __init__(self, folder: Path) -> None:
        self.kind = make_kind("spatial", seed=1)
        self.folder = folder
        self.readers: list[Any] = []
        self.values: list[bytes] = []
        self.memory = SpatialMemory()

    def add(self, values: list[bytes], *, sealed: bool) -> None:
        first = len(self.values)
        self.values += values
        keys = Texts.of([key_of(first + n) for n in range(len(values))])
        seqs = np.arange(first, first + len(values))
        memory = SpatialMemory() if sealed else self.memory
        memory.put(Texts.of(values), keys, seqs)
        if sealed:
            for product in self.kind.seal(memory, {}):
                number = len(self.readers) + 1
                info = write_component(self.folder, number, product, kind="spatial", sync=False)
                self.readers.append(self.kind.open(Component.open(self.folder, info)))

    def check(self, lon: float, lat: float, count: int, below: int = ALL) -> None:
        """All of them come, nearest first, with their haversines."""
        view: SpatialView = self.kind.view([self.memory], self.readers)
        wanted = np.array([haversine(value, lon, lat) for value in self.values])
        seqs, far = [], []
        for some in view.nearest(lon, lat, 0.0, math.inf, count, below):
            seqs += some.seqs.tolist()
            far += some.haversines.tolist()
            assert some.keys.to_list() == [key_of(seq) for seq in some.seqs.tolist()]
        assert far == np.sort(wanted).tolist()
        assert sorted(seqs) == list(range(min(below, len(wanted))))
        if below >= len(wanted):
            assert wanted[seqs].tolist() == far


@given(
    seed=st.integers(0, 1 << 30), how=st.sampled_from(["globe", "edges", "same", "close"]),
    boxes=st.sampled_from([0.0, 0.0, 0.3]),
    sizes=st.lists(st.tuples(st.integers(1, 700), st.booleans()), min_size=1, max_size=4),
    count=st.sampled_from([1, 2, 10, 40, 300]),
)  # fmt: skip
def test_all_come_nearest_first(
    seed: int, how: str, boxes: float, sizes: list[tuple[int, bool]], count: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    draw = random.Random(seed)
    places = Places(tmp_path_factory.mktemp("places"))
    for size, sealed in sizes:
        places.add([a_value(draw, how, boxes) for _ in range(size)], sealed=sealed)
    for _ in range(3):
        places.check(*a_point(draw, draw.choice([how, "globe", "edges"])), count)
    places.check(*a_point(draw, how), count, below=draw.randrange(len(places.values)))


def test_many_at_one_place_come_from_a_heap_that_grows(tmp_path: Path) -> None:
    """Of a tail, of runs and of a component: as near as each other, so all are opened."""
    draw = random.Random(5)
    places = Places(tmp_path)
    same = [a_value(draw, "same", 0.0) for _ in range(3_000)]
    places.add(same, sealed=True)
    for _ in range(4):
        places.add(same, sealed=False)
    for count in (1, 10, 5_000):
        places.check(1.5, 1.5, count)
        places.check(70.0, 0.25, count)


def test_a_ring_leaves_out_what_is_nearer_and_what_is_farther(tmp_path: Path) -> None:
    draw = random.Random(6)
    places = Places(tmp_path)
    places.add([a_value(draw, "globe", 0.2) for _ in range(3_000)], sealed=True)
    places.add([a_value(draw, "globe", 0.2) for _ in range(500)], sealed=False)
    view: SpatialView = places.kind.view([places.memory], places.readers)
    for _ in range(20):
        lon, lat = a_point(draw, "globe")
        least, most = sorted(draw.uniform(0, 2e7) for _ in range(2))
        wanted = [
            number
            for number, value in enumerate(places.values)
            if least <= outline.metres_of(haversine(value, lon, lat)) <= most
        ]
        found = [seq for some in view.nearest(lon, lat, least, most, 7, ALL) for seq in some.seqs]
        assert sorted(map(int, found)) == wanted
