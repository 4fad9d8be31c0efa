"""What an index of places promises: the answers of a scan, and the nearest first."""

from __future__ import annotations

import itertools
import math
import random
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tideline
from tideline.addresses import address_of
from tideline.documents.collection import Collection
from tideline.errors import Corruption, InvalidRequest
from tideline.index.kind import make_kind
from tideline.index.places import decode_value, encode_value, extract_places
from tideline.index.spatialmemory import SpatialMemory, pack
from tideline.index.spatialview import SpatialAsk, SpatialView
from tideline.index.texts import Texts
from tideline.index.windows import ring_boxes
from tideline.kernels.geo import haversine_m
from tideline.kernels.spatial import build, search
from tideline.kernels.spatial import layout as at
from tideline.space.outline import Outline
from tideline.where import parse
from tideline.where.tree import Inside

BIG = {"name": "leveled", "first_bytes": 8_000, "ratio": 2, "max_count": 2, "piece_bytes": 4_000}


def random_point(draw: random.Random) -> list[float]:
    if draw.random() < 0.1:  # edges of the map
        return [draw.choice([-180.0, 180.0, 0.0]), draw.choice([-90.0, 90.0, 0.0])]
    if draw.random() < 0.3:
        return [float(draw.randrange(-180, 181)), float(draw.randrange(-90, 91))]
    return [draw.uniform(-180, 180), draw.uniform(-90, 90)]


def random_place(draw: random.Random) -> Any:
    lon, lat = random_point(draw)
    size = draw.choice([1e-9, 0.01, 2.0, 60.0])
    east, north = min(lon + size, 180.0), min(lat + size, 90.0)
    line = [[lon, lat], [east, north]]
    ring = [[lon, lat], [east, lat], [east, north], [lon, lat]]
    return draw.choice(
        [
            [lon, lat], [lon, lat], [lon, lat], [lon, lat], [int(lon), int(lat)],
            {"type": "Point", "coordinates": [lon, lat]},
            {"type": "Point", "coordinates": [lon, lat, 120.5]},
            {"type": "LineString", "coordinates": line},
            {"type": "Polygon", "coordinates": [ring]},
            {"type": "MultiPoint", "coordinates": line},
            {"type": "GeometryCollection",
             "geometries": [{"type": "Point", "coordinates": [-lon, lat]},
                            {"type": "LineString", "coordinates": line}]},
            {"type": "Polygon", "coordinates": [line]}, "\u00e9 here", None, [lon], [lon, 91],
            {"type": "P\u006fint", "coordinates": ["1", 2]}, 12345678901234567890.5,
        ]
    )  # fmt: skip


def random_where(draw: random.Random) -> dict[str, Any]:
    lon, lat = random_point(draw)
    size = draw.choice([0.0, 0.01, 5.0, 40.0, 360.0])
    east, north = min(lon + size, 180.0), min(lat + size, 90.0)
    box = {"$box": [[lon, lat], [east, north]]}
    ring = [
        [lon, lat],
        [min(lon + 20, 180), lat],
        [min(lon + 20, 180), min(lat + 20, 90)],
        [lon, lat],
    ]
    metres = draw.choice([0.0, 1.0, 50_000.0, 3e6, 2.1e7])
    point = {"$geometry": {"type": "Point", "coordinates": [lon, lat]}}
    asked: dict[str, Any] = draw.choice(
        [
            {"$geoWithin": box}, {"$geoIntersects": box},
            {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [ring]}}},
            {"$geoIntersects": {"$geometry": {"type": "Polygon", "coordinates": [ring]}}},
            {"$geoIntersects": {"$geometry": {"type": "LineString", "coordinates": ring[:3]}}},
            {"$geoWithin": {"$centerSphere": [[lon, lat], metres / 6.4e6]}},
            {"$geoIntersects": {"$centerSphere": [[lon, lat], metres / 6.4e6]}},
            {"$near": {**point, "$maxDistance": metres}},
            {"$near": {**point, "$minDistance": metres / 2, "$maxDistance": 2 * metres}},
            {"$near": point},
        ]
    )  # fmt: skip
    where: dict[str, Any] = {"at": asked}
    if draw.random() < 0.3:
        where["n"] = draw.choice([3, {"$gte": 5}])
    return where


def batched(found: Collection, where: dict[str, Any], **asked: Any) -> list[Any]:
    """What `find_batches` gives, decoded."""
    rows = [row for batch in found.find_batches(where, **asked) for row in batch.to_pylist()]
    seqs = [row["seq"] for row in rows]
    assert seqs == sorted(set(seqs), reverse=True)
    documents = [msgspec.json.decode(row["document"]) for row in rows]
    assert [msgspec.json.decode(row["key"]) for row in rows] == [one["id"] for one in documents]
    return documents


class Story:
    """A collection with the index, and a dict."""

    def __init__(self, folder: Path, seed: int, policy: Any = "prefix", **settings: Any) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.model: dict[int, dict[str, Any]] = {}
        self.database = tideline.open(folder)
        self.found: Collection = self.database.collection(
            "places", key="id", policy=policy, indexes={"at": {"kind": "spatial", **settings}}
        )

    def write(self, calls: int, most: int = 300) -> None:
        draw = self.draw
        for _ in range(calls):
            keys = [draw.randrange(400) for _ in range(draw.choice([1, 5, most]))]
            if draw.random() < 0.15:
                self.found.delete_many(keys[: most // 4])
                for key in keys[: most // 4]:
                    self.model.pop(key, None)
                continue
            docs = [{"id": k, "at": random_place(draw), "n": draw.randrange(9)} for k in keys]
            self.found.put_many(docs)
            self.model.update((each["id"], each) for each in docs)

    def agree(self, questions: int) -> None:
        for _ in range(questions):
            where = random_where(self.draw)
            condition = parse(where)
            wanted = [one for one in self.model.values() if condition.matches(one)]
            if condition.near is not None:
                near = condition.near
                wanted.sort(key=lambda one: (near.metres(one), one["id"]))
                assert self.found.find(where) == wanted, where
                for limit in (1, 7):
                    assert self.found.find(where, limit=limit) == wanted[:limit], where
                assert self.found.find(where, skip=2, limit=3) == wanted[2:5], where
                by_n = sorted(wanted, key=lambda one: (one["n"], one["id"]))
                assert self.found.find(where, sort=[("n", 1)]) == by_n
            else:
                found = self.found.find(where)
                assert len(found) == len(wanted), where
                assert {one["id"] for one in found} == {one["id"] for one in wanted}, where
                assert found[:4] == self.found.find(where, limit=4)
                assert batched(self.found, where) == found
            assert self.found.count(where) == len(wanted)

    def reopen(self) -> None:
        self.database.close()
        self.database = tideline.open(self.folder)
        self.found = self.database.collection("places")

    def end(self) -> None:
        assert self.database.check().collections == 1
        self.database.close()


@pytest.mark.parametrize("policy", ["none", {"name": "constant", "k": 2}, "prefix", BIG], ids=str)
def test_places_are_found_as_by_a_scan(policy: Any, tmp_path: Path) -> None:
    story = Story(tmp_path, 7, policy)
    for step in range(4):
        story.write(5, 150)
        if step % 2:
            story.found._engine.seal()
        story.agree(7)
        if step == 3:
            story.reopen()
            story.agree(4)
    story.end()


@pytest.mark.long
def test_places_are_found_for_long(tmp_path: Path) -> None:
    for seed in range(4):
        story = Story(tmp_path / str(seed), seed, BIG if seed % 2 else "prefix")
        for step in range(9):
            story.write(8)
            if step % 3 == 2:
                story.found._engine.seal()
            story.agree(40)
        story.end()


def test_memory_keeps_runs_and_a_tail(tmp_path: Path) -> None:
    """More than a tail, and more runs than stay apart, in one memory."""
    draw = random.Random(3)
    with tideline.open(tmp_path) as database:
        made = database.collection("places", key="id", indexes={"at": "spatial"})
        points = {}
        for part in range(13):
            docs = [{"id": part * 4000 + n, "at": random_point(draw)} for n in range(4000)]
            made.put_many(docs)
            points.update((one["id"], one["at"]) for one in docs)
        memory = made._engine.active.indexes["at"]
        assert not memory.now[0].runs  # who writes does not sort
        side = memory.shown().sides[0]
        assert side.runs
        assert side.count - side.sorted < 4096
        assert len(side.runs) < 13
        for _ in range(20):
            where = {"at": {"$geoWithin": {"$box": [[-20, -20], [draw.uniform(-20, 50), 30]]}}}
            condition = parse(where)
            wanted = {key for key, at_ in points.items() if condition.matches({"at": at_})}
            assert {one["id"] for one in made.find(where)} == wanted
        lon, lat = 12.5, 41.9
        order = sorted(
            points, key=lambda key: (haversine_m(lon, lat, *map(float, points[key])), key)
        )
        assert [found.document["id"] for found in made.nearest((lon, lat), 40)] == order[:40]


def test_the_nearest_are_live_even_when_most_near_entries_are_stale(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as database:
        made = database.collection("cars", key="id", indexes={"at": "spatial"}, policy="none")
        for n in range(6):
            made.put_many([{"id": k, "at": [k * 1e-6, n * 1e-6], "n": k} for k in range(2000)])
            made._engine.seal()
        made.put_many([{"id": k, "at": [90.0, k * 0.001], "n": k} for k in range(5, 2000)])
        assert [one.document["id"] for one in made.nearest((0, 0), 7)] == [0, 1, 2, 3, 4, 5, 6]
        made.delete_many(range(5))
        near = {"at": {"$near": [0, 0]}, "n": {"$gt": 1_990}}
        assert [one["id"] for one in made.find(near, limit=3)] == [1991, 1992, 1993]
        told = made.explain(near, limit=3)
        assert told.chosen[0].field == "at"
        assert made.find({"at": {"$near": [0, 0], "$maxDistance": 1000}}) == []


def test_a_distance_holds_to_the_last_bit_with_a_limit_too(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as database:
        made = database.collection("cars", key="id", indexes={"at": "spatial"})
        made.put_many([{"id": 1, "at": [180.0, 0]}, {"id": 2, "at": [-180.0, 0]}])
        where = {"at": {"$near": [-180, 0], "$maxDistance": 0}}
        assert [one["id"] for one in made.find(where)] == [2]
        assert [one["id"] for one in made.find(where, limit=5)] == [2]


def test_a_box_and_a_ring_need_no_second_look(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as database:
        made = database.collection("cars", key="id", indexes={"at": "spatial", "n": "lazy"})
        made.put_many([{"id": k, "at": [k / 100, 0], "n": k % 3} for k in range(2000)])
        view = made._engine.view()
        for asked in (
            {"$geoWithin": {"$box": [[1, -1], [2, 1]]}}, {"$near": [1, 0], "$maxDistance": 5_000},
            {"$geoIntersects": {"$polygon": [[0, 0], [1, 1], [1, -1]]}},
        ):  # fmt: skip
            chosen = made._finder._plan(view, parse({"at": asked}), None)
            assert chosen.exact, asked
            both = made._finder._plan(view, parse({"at": asked, "n": 1}), None)
            assert not both.exact


def test_all_that_an_index_leads_to_comes_once_and_newest_first(tmp_path: Path) -> None:
    draw = random.Random(11)
    with tideline.open(tmp_path) as database:
        made = database.collection("indexed", key="id", indexes={"at": "spatial"})
        plain = database.collection("plain", key="id")
        for part in range(4):
            # Several places each, one behind the other: a box meets some documents twice.
            docs = [
                {"id": draw.randrange(400), "at": [random_point(draw), random_point(draw)]}
                for _ in range(300)
            ] + [{"id": draw.randrange(400), "at": random_point(draw)} for _ in range(100)]
            gone = [draw.randrange(400) for _ in range(30)]
            for each in (made, plain):
                each.put_many(docs)
                each.delete_many(gone)
                each.put({"id": "soon", "at": [0.0, 0.0]}, ttl_s=0.000001)
            if part % 2 == 0:
                made._engine.seal()
            for shape in (
                {"$geoIntersects": {"$box": [[-180, -90], [180, 90]]}},
                {"$geoIntersects": {"$box": [[-60, -40], [60, 40]]}},
                {"$geoWithin": {"$box": [[-90, -60], [90, 60]]}},
            ):  # fmt: skip
                where = {"at": shape}
                wanted = plain.find(where)
                assert made.find(where) == wanted
                assert made.count(where) == len(wanted)
                for limit in (1, 7, len(wanted), len(wanted) + 5):
                    assert made.find(where, limit=limit) == wanted[:limit]
                assert made.find(where, limit=5, skip=3) == wanted[3:8]
                assert batched(made, where) == wanted
                assert batched(made, where, limit=5, skip=3) == wanted[3:8]
                assert made.explain(where).found == len(wanted)
        assert made.find({"at": {"$geoWithin": {"$box": [[0, 0], [0, 0]]}}, "id": -1}) == []


def test_points_that_count_as_0_are_found_by_geometries_at_0() -> None:
    """In outlines, coordinates nearer to 0 than 1e-130 are 0; the index has them as they are."""
    points: list[Any] = [[0, 0], [5e-324, 0], [-1e-310, 1e-200], [0, -2e-131], [1e-129, 0]]
    with tideline.open(":memory:") as database:
        places = database.collection("places", key="id", indexes={"at": "spatial"})
        documents = [{"id": number, "at": at} for number, at in enumerate(points)]
        far = [{"id": 100 + n, "at": [90 + n / 10, 45]} for n in range(100)]
        places.put_many(documents + far)
        for shape in (
            {"type": "Point", "coordinates": [5e-324, 0]},
            {"type": "MultiPoint", "coordinates": [[0, 0], [9, 9]]},
            {"type": "LineString", "coordinates": [[-1e-300, 0], [0, 1]]},
        ):
            where = {"at": {"$geoIntersects": {"$geometry": shape}}}
            condition = parse(where)
            wanted = [each["id"] for each in documents if condition.matches(each)]
            assert wanted == [0, 1, 2, 3]
            assert places.explain(where).chosen[0].kind == "spatial"
            assert sorted(each["id"] for each in places.find(where)) == wanted


def test_distances_come_with_the_documents(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as database:
        made = database.collection("cars", key="id", indexes={"at": "spatial"})
        made.put_many([{"id": 1, "at": [0, 1]}, {"id": 2, "at": [0, 0.5]}, {"id": 3}])
        near = {"at": {"$near": [0, 0]}}
        metres = {"m": {"$meta": "geoNearDistance"}}
        found = made.find(near, fields=metres)
        assert [(one["id"], round(one["m"])) for one in found] == [(2, 55598), (1, 111195)]
        assert set(made.find_one(near, fields={"id": 1, **metres}) or {}) == {"id", "m"}
        assert [round(one["m"]) for one in made.find_iter(near, fields=metres)] == [55598, 111195]
        assert [(n.document["id"], round(n.metres)) for n in made.nearest([0, 0], 1)] == [
            (2, 55598)
        ]
        assert made.nearest((0, 0), where={"id": 1})[0].document == {"id": 1, "at": [0, 1]}
        assert made.nearest((0, 0), max_distance_m=60_000, fields=["id"])[0].document == {"id": 2}
        assert made.nearest((0, 0), min_distance_m=60_000)[0].document["id"] == 1
        with pytest.raises(InvalidRequest, match=r"fields.m: there is a distance where"):
            made.find({}, fields=metres)
        with pytest.raises(InvalidRequest, match=r"fields.m must be 1, 0 or"):
            made.find(near, fields={"m": {"$meta": "textScore"}})
        with pytest.raises(InvalidRequest, match="a \\$near of its own"):
            made.nearest((0, 0), where=near)
        with pytest.raises(InvalidRequest, match=r"where\.\$and\[0\]\.at\.\$near must be"):
            made.nearest((0, 100), where={"id": 1})
        made.drop_index("at")
        with pytest.raises(InvalidRequest, match="name the field"):
            made.nearest((0, 0))
        assert made.nearest((0, 0), 1, field="at")[0].document["id"] == 2


def test_a_live_query_keeps_the_nearest_first(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as database:
        made = database.collection("cars", key="id", indexes={"at": "spatial"})
        made.put_many([{"id": n, "at": [n, 0]} for n in range(5)])
        where = {"at": {"$near": [0, 0]}}
        with made.watch(where, limit=3) as live:
            assert [one["id"] for one in live.result] == [0, 1, 2]
            made.put({"id": 4, "at": [0.5, 0]})
            made.delete(0)
            live.take()
            assert [one["id"] for one in live.result] == [4, 1, 2]
            assert live.result == made.find(where, limit=3)


def test_places_through_arrays_are_all_found(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as database:
        made = database.collection("lines", key="id", indexes={"stops.at": "spatial"})
        made.put_many(
            [{"id": n, "stops": [{"at": [n, 0]}, {"at": [n + 50, 0]}, {"x": 1}]} for n in range(40)]
        )
        made.put({"id": 99, "stops": {"at": [7, 0]}})
        box = {"stops.at": {"$geoWithin": {"$box": [[55, -1], [57, 1]]}}}
        assert sorted(one["id"] for one in made.find(box)) == [5, 6, 7]
        both = {"stops.at": {"$geoWithin": {"$box": [[5, -1], [6, 1]]},
                             "$geoIntersects": {"$box": [[56, -1], [56, 1]]}}}  # fmt: skip
        assert [one["id"] for one in made.find(both)] == [6]
        assert [one["id"] for one in made.find({"stops.at": {"$near": [58, 0]}}, limit=2)] == [8, 7]


def test_searching_while_one_writes(tmp_path: Path) -> None:
    """Readers see whole calls, of a moment that only moves on."""
    with tideline.open(tmp_path) as database:
        made = database.collection("cars", key="id", indexes={"at": "spatial"})
        box = {"at": {"$geoWithin": {"$box": [[0, 0], [1, 1]]}}}
        wrong: list[Any] = []
        done = threading.Event()

        def read() -> None:
            most = 0
            while not done.is_set():
                count = made.count(box)
                if count % 500 or count < most:
                    wrong.append((count, most))
                most = count
                near = made.nearest((0.5, 0.5), 5)
                if most and len(near) != 5:
                    wrong.append(near)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        draw = random.Random(1)
        for part in range(40):
            made.put_many(
                [{"id": 500 * part + n, "at": [draw.random(), draw.random()]} for n in range(500)]
            )
            if part % 15 == 14:
                made._engine.seal()
        done.set()
        for thread in threads:
            thread.join()
        assert not wrong
        assert made.count(box) == 20_000


def test_a_call_that_was_cut_is_made_again() -> None:
    memory = SpatialMemory()
    values = Texts.of([encode_value([n, n]) or b"" for n in range(3)])
    keys, rows = Texts.of([b"a", b"b", b"c"]), np.arange(3)
    memory.add(values, keys, 5, rows)
    memory.add(values, keys, 5, rows)
    assert memory.count == 3
    memory.add(values, keys, 8, rows)
    view = SpatialView([memory], [])
    everything = SpatialAsk(Inside("box", (-180.0, -90.0, 180.0, 90.0)))
    [found] = list(view.search(everything, 9))
    assert sorted(found.seqs.tolist()) == [5, 6, 7, 8]


def test_values_come_back() -> None:
    point = encode_value({"type": "Point", "coordinates": [1, 2, 3]})
    assert point is not None
    assert decode_value(point) == (1.0, 2.0)
    line = {"type": "LineString", "coordinates": [[0, 0], [1, 2]]}
    found = decode_value(encode_value(line) or b"")
    assert isinstance(found, Outline)
    assert found.box == (0, 0, 1, 2)


def test_extraction_by_the_kernel_is_that_by_decoding() -> None:
    draw = random.Random(5)
    docs = []
    for n in range(400):
        one: dict[str, Any] = {"id": n, "at": random_place(draw)}
        if n % 7 == 0:
            one = {"a": 1, "at": {"b": random_place(draw), "type": "x"}}
        docs.append(msgspec.json.encode(one))
    docs += [
        b"", b'{"at": [1e2, -4.5e-1]}', b'{ "at" : [ 1 , 2 ] }', b'{"at": [-0.0, 0]}',
        b'{"at": [1.0000000000000000001,2]}', b'{"at": [0.1, 0.30000000000000004]}',
        b'{"at":{"coordinates":[1,2],"type":"Point"}}',
        b'{"at":{"type":"Po\\u0069nt","coordinates":[1,2]}}',
    ]  # fmt: skip
    texts = Texts.of(docs)
    for field in ("at", "at.b", "x"):
        [fast] = extract_places(texts, [field])
        slow = [
            (row, value)
            for row in range(texts.count)
            for value in extract_places(texts.slice(row, row + 1), [field])[0].values.to_list()
        ]
        assert list(zip(fast.row.tolist(), fast.values.to_list(), strict=True)) == slow


# ---- kernels ---------------------------------------------------------------------------------


def test_neighbours_on_the_curve_are_neighbours_on_the_map() -> None:
    cells = sorted((int(build.hilbert_key(x, y)), x, y) for x in range(32) for y in range(32))
    assert [key for key, _, _ in cells] == list(range(1024))
    for (_, x, y), (_, x2, y2) in itertools.pairwise(cells):
        assert abs(x - x2) + abs(y - y2) == 1


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 512, 513, 9000])
def test_a_tree_finds_what_a_box_holds(count: int) -> None:
    draw = np.random.default_rng(count)
    west, south = draw.uniform(-180, 179, count), draw.uniform(-90, 89, count)
    east, north = west + draw.uniform(0, 1, count), south + draw.uniform(0, 1, count)
    for axes in ((west, south), (west, south, east, north)):
        made = pack(axes)
        assert sorted(made.order.tolist()) == list(range(count))
        assert search.check_place(address_of(made.row)) == 0
        high = axes[-2:]
        for _ in range(30):
            w, s = draw.uniform(-180, 180), draw.uniform(-90, 90)
            e, n = w + draw.choice([0.5, 20, 400]), s + draw.choice([0.5, 20, 400])
            for whole in (False, True):
                out = np.empty(count + at.QUEUE, np.int64)
                got = search.search_box(
                    address_of(made.row), 1, w, s, e, n, whole, address_of(out), count
                )
                met = (west <= e) & (w <= high[0]) & (south <= n) & (s <= high[1])
                inside = (w <= west) & (high[0] <= e) & (s <= south) & (high[1] <= n)
                wanted = np.flatnonzero(inside if whole else met)
                found = made.order[out[:got] & at.POSITION]
                assert sorted(found.tolist()) == wanted.tolist()
                few = search.search_box(
                    address_of(made.row), 1, w, s, e, n, whole, address_of(out), min(3, count)
                )
                assert few == got
            about, _ = search.count_box(address_of(made.row), 1, w, s, e, n)
            assert about >= 0


def test_a_tree_of_six_levels_finds_what_a_box_holds() -> None:
    draw = np.random.default_rng(6)
    count = 32 * 16**4 + 1
    west, south = draw.uniform(-180, 180, count), draw.uniform(-90, 90, count)
    made = pack((west, south))
    assert made.row[at.P_TOP] == 5
    out = np.empty(count + at.QUEUE, np.int64)
    for size in (0.3, 0.3, 5.0, 5.0, 100.0, 400.0):
        w, s = draw.uniform(-180, 150), draw.uniform(-90, 60)
        got = search.search_box(
            address_of(made.row), 1, w, s, w + size, s + size, False, address_of(out), count
        )
        wide, high = (west >= w) & (west <= w + size), (south >= s) & (south <= s + size)
        wanted = np.flatnonzero(wide & high)
        assert np.array_equal(np.sort(made.order[out[:got] & at.POSITION]), wanted)


def test_many_trees_are_searched_as_each_by_itself() -> None:
    """More than begin at once, some of them empty, one a tail, one with boxes."""
    draw = np.random.default_rng(3)
    rows, wanted = [], []
    keep = []
    boxes = [(-180.0, -90.0, 180.0, 90.0), (-1.0, -1.0, 1.0, 1.0), (20.0, 30.0, 90.0, 31.0)]
    for number, count in enumerate([0, 1, 40, 3_000, 100_000, *([700] * 60)]):
        west, south = draw.uniform(-180, 179, count), draw.uniform(-90, 89, count)
        axes: tuple[Any, ...] = (west, south)
        if number == 40:
            axes = (west, south, west + 1.0, south + 1.0)
        made = pack(axes)
        if number == 41:
            made.row[at.P_NODES] = 0
        keep.append(made)
        rows.append(made.row)
        high_x, high_y = axes[-2:]
        for place, (w, s, e, n) in enumerate(boxes):
            met = (west <= e) & (w <= high_x) & (south <= n) & (s <= high_y)
            wanted += [(place, number, int(row)) for row in np.flatnonzero(met)]
    table = np.concatenate(rows)
    found = []
    for place, box in enumerate(boxes):
        out = np.empty(200_000 + at.QUEUE, np.int64)
        got = search.search_box(
            address_of(table), len(rows), *box, False, address_of(out), 200_000
        )  # fmt: skip
        for hit in out[:got].tolist():
            number = (hit >> at.PLACE_SHIFT) & at.PLACES
            found.append((place, number, int(keep[number].order[hit & at.POSITION])))
    assert sorted(found) == sorted(wanted)


def test_a_ring_across_the_antimeridian_is_two_boxes() -> None:
    for lon, lat, metres in ((179.5, 10.0, 200_000.0), (-180.0, 0.0, 1.0), (0.0, 89.9, 50_000.0)):
        boxes = ring_boxes(lon, lat, metres)
        assert all(-180.0 - 1e-9 <= w <= e <= 180.0 + 1e-9 or e > 180 for w, _, e, _ in boxes)
        draw = random.Random(2)
        for _ in range(2000):
            x, y = draw.uniform(-180, 180), min(90.0, lat + draw.uniform(-3, 3))
            if haversine_m(lon, lat, x, y) <= metres:
                assert any(w <= x <= e and s <= y <= n for w, s, e, n in boxes)
    assert ring_boxes(3.0, 4.0, math.inf) == [(-180.0, -90.0, 180.0, 90.0)]


# ---- damage ----------------------------------------------------------------------------------


def test_damaged_bytes_are_reported(tmp_path: Path) -> None:
    draw = random.Random(9)
    with tideline.open(tmp_path) as database:
        made = database.collection("places", key="id", indexes={"at": "spatial"})
        made.put_many([{"id": n, "at": random_place(draw)} for n in range(3000)])
        made._engine.seal()
        [reader] = made._engine.alone["at"].tree.readers
        path = made._engine.alone["at"].tree.folder / reader.component.info.name
    good = path.read_bytes()
    for place in range(200, len(good), len(good) // 12):
        damaged = bytearray(good)
        damaged[place] ^= 0x41
        path.write_bytes(bytes(damaged))
        with pytest.raises(Corruption, match=path.name):
            tideline.open(tmp_path).close()
    path.write_bytes(good)
    with tideline.open(tmp_path) as database:
        assert database.check().collections == 1


def test_what_a_check_relies_on_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(9)
    with tideline.open(tmp_path) as database:
        made = database.collection("places", key="id", indexes={"at": "spatial"})
        made.put_many([{"id": n, "at": random_place(draw)} for n in range(500)])
        made._engine.seal()
        [reader] = made._engine.alone["at"].tree.readers
        reader.check()
        rows = reader.rows.reshape(-1, at.P_WORDS)
        kept = rows.copy()
        wrong = np.full(len(reader.west), 181.0)
        rows[:, at.P_WEST] = address_of(wrong)
        with pytest.raises(Corruption, match="a coordinate is out of range"):
            reader.check()
        far = np.full(len(reader.west), 77.0)
        rows[:] = kept
        rows[0, at.P_WEST] = address_of(far)
        with pytest.raises(Corruption, match="a node does not hold what is below it"):
            reader.check()
        rows[:] = kept
        shapes = reader.shapes
        monkeypatch.setattr(reader, "shapes", Texts(shapes.offsets, np.zeros_like(shapes.data)))
        with pytest.raises(Corruption, match="an outline is not whole"):
            reader.check()


def test_the_kind_has_no_lookups_of_values(tmp_path: Path) -> None:
    kind = make_kind("spatial", seed=1)
    with pytest.raises(InvalidRequest, match="does not serve lookups of values"):
        kind.range_ask(b"", b"")
    with pytest.raises(InvalidRequest, match="no such setting"):
        make_kind({"kind": "spatial", "leaf": 3}, seed=1)
