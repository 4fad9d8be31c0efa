"""How fast places are found and stored: beside static trees, and an LSM index beside in-place ones.

    python benchmarks/spatial.py [--only PART ...] [--size tiny|small|full] [--rounds N] [--help]

    static   boxes and nearest neighbours: one packed tree here, static trees of others, by turns
    pieces   the same boxes over 1, 12 and 48 components, in the order of arrival
    ingest   points one after the other: the index alone beside R-trees that are changed in place
    store    documents with places: what an index costs a collection, and boxes through `find`

The points are made up (workload/clusters.py). Peers that are not installed are left out: `pip
install '.[bench-places]'` has them, and scripts/peers.sh PostGIS, which `store` asks. Every answer
is compared with a scan.
Writes benchmarks/results/spatial.json, .md and .png.
"""

from __future__ import annotations

import argparse
import itertools
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks import common, spatial_report
from benchmarks.common import say
from benchmarks.peers import postgis
from tideline.index.spatial import SpatialKind
from tideline.index.spatialview import SpatialAsk
from tideline.index.texts import Texts
from tideline.lsm.component import Component, write_component
from tideline.where.tree import Inside
from tideline.workload.clusters import Clusters

Floats = NDArray[np.float64]
Points = tuple[Floats, Floats]
PARTS = ["static", "pieces", "ingest", "store"]
SIZES = {  # points of a static tree, points to store one by one, boxes of a round
    "tiny": (5_000, 2_000, 20),
    "small": (1_000_000, 200_000, 300),
    "full": (3_000_000, 5_000_000, 1_000),
}
HITS = (10, 1_000)
NEAREST = (10, 100)


# ---- what is compared: boxes are answered with how many points ----------------------------------


class Ours:
    """The index alone: components of the kind `spatial` in files, each a packed tree."""

    name = "tideline"

    def __init__(self, points: Points, pieces: int = 1) -> None:
        self._kind = SpatialKind(seed=1)
        self._folder = tempfile.TemporaryDirectory(prefix="tideline-bench-")
        self._readers: list[Any] = []
        self._count = len(points[0])
        if self._count:
            for rows in np.array_split(np.arange(self._count), pieces):
                memory = self._kind.memory(0, None)
                memory.put(*entries(points, rows), rows)
                self._seal(memory)
        self._view = self._kind.view([], self._readers)

    def _seal(self, memory: Any) -> None:
        """Write what is in a memory as a component."""
        folder, number = Path(self._folder.name), len(self._readers) + 1
        for product in self._kind.seal(memory, {}):
            info = write_component(folder, number, product, kind="spatial", sync=False)
            self._readers.append(self._kind.open(Component.open(folder, info)))

    def box(self, box: Floats) -> int:
        return int(self._view.hits(SpatialAsk(Inside("box", tuple(map(float, box)))))[3])

    def nearest(self, x: float, y: float, count: int) -> int:
        found = 0
        ring = (float(x), float(y), 0.0, float("inf"))
        for some in self._view.nearest(*ring, count, self._count):
            found += len(some.seqs)
            if found >= count:
                break
        return found

    def close(self) -> None:
        self._view = None
        self._readers.clear()
        self._folder.cleanup()


def entries(points: Points, rows: Any) -> tuple[Any, Any]:
    """Points and keys as the index takes them."""
    pairs = np.stack([points[0][rows], points[1][rows]], 1).astype(np.float64)
    values = Texts(np.arange(len(rows) + 1) * 16, np.frombuffer(pairs.tobytes(), np.uint8))
    numbers = rows.astype(">i8").tobytes()
    return values, Texts(np.arange(len(rows) + 1) * 8, np.frombuffer(numbers, np.uint8))


class Geoindex:
    """geoindex-rs: a packed Hilbert R-tree in Rust, never changed."""

    name = "geoindex-rs"

    def __init__(self, points: Points) -> None:
        from geoindex_rs import rtree

        self._made = rtree
        builder = rtree.RTreeBuilder(len(points[0]))
        builder.add(*points, *points)
        self._tree = builder.finish()

    def box(self, box: Floats) -> int:
        return len(self._made.search(self._tree, *map(float, box)))

    def nearest(self, x: float, y: float, count: int) -> int:
        return len(self._made.neighbors(self._tree, float(x), float(y), max_results=count))


class Shapely:
    """STRtree of GEOS, by shapely."""

    name = "shapely STRtree"

    def __init__(self, points: Points) -> None:
        import shapely

        self._box = shapely.box
        self._tree = shapely.STRtree(shapely.points(*points))

    def box(self, box: Floats) -> int:
        return len(self._tree.query(self._box(*box)))


class Kdtree:
    """cKDTree of scipy: nearest in the plane of degrees, where ours is on the sphere."""

    name = "scipy cKDTree"

    def __init__(self, points: Points) -> None:
        from scipy.spatial import cKDTree

        self._tree = cKDTree(np.stack(points, 1))

    def nearest(self, x: float, y: float, count: int) -> int:
        return len(self._tree.query((x, y), count)[1])


class Sqlite:
    """SQLite's R*Tree, in a file: changed in place."""

    name = "SQLite R*Tree"

    def __init__(self, points: Points | None = None, folder: Path | None = None) -> None:
        self._db = sqlite3.connect(":memory:" if folder is None else folder / "rtree.db")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("CREATE VIRTUAL TABLE places USING rtree(id, west, east, south, north)")
        if points is not None:
            self.add(points, np.arange(len(points[0])))

    def add(self, points: Points, rows: Any) -> None:
        lon, lat = points[0][rows].tolist(), points[1][rows].tolist()
        with self._db:
            self._db.executemany(
                "INSERT INTO places VALUES (?, ?, ?, ?, ?)",
                zip(rows.tolist(), lon, lon, lat, lat, strict=True),
            )

    def box(self, box: Floats) -> int:
        west, south, east, north = map(float, box)
        # Its numbers have 32 bits and are rounded outward: a few hits too many at the edges.
        said = "SELECT id FROM places WHERE west <= ? AND east >= ? AND south <= ? AND north >= ?"
        return len(self._db.execute(said, (east, west, north, south)).fetchall())

    def close(self) -> None:
        self._db.close()


class Libspatialindex:
    """The R*-tree of libspatialindex by `rtree`: in memory, changed in place."""

    name = "libspatialindex"

    def __init__(self, points: Points | None = None, folder: Path | None = None) -> None:
        from rtree import index

        self._tree = index.Index() if folder is None else index.Index(str(folder / "lib"))
        if points is not None:
            self.add(points, np.arange(len(points[0])))

    def add(self, points: Points, rows: Any) -> None:
        insert = self._tree.insert
        lon, lat = points[0][rows].tolist(), points[1][rows].tolist()
        for row, x, y in zip(rows.tolist(), lon, lat, strict=True):
            insert(row, (x, y, x, y))

    def box(self, box: Floats) -> int:
        return int(self._tree.count(tuple(box)))

    def close(self) -> None:
        self._tree.close()


def available(kinds: list[Any], *arguments: Any) -> tuple[dict[str, Any], dict[str, str], Any]:
    """Those that are installed, why others are not, and how long each took to build."""
    made, missing, took = {}, {}, {}
    for kind in kinds:
        begun = time.perf_counter()
        try:
            made[kind.name] = kind(*arguments)
        except ImportError as error:
            missing[kind.name] = str(error)
            continue
        took[kind.name] = time.perf_counter() - begun
        say(f"  {kind.name}: built in {took[kind.name]:.1f} s")
    return made, missing, took


# ---- the parts -----------------------------------------------------------------------------------


def by_turns(asked: dict[str, list[Callable[[], int]]], rounds: int) -> dict[str, float]:
    """Microseconds a question of each, the median of rounds that take turns."""
    spent: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(rounds + 1):
        for name, questions in asked.items():
            begun = time.perf_counter()
            for question in questions:
                question()
            spent[name].append((time.perf_counter() - begun) / len(questions) * 1e6)
    return {name: float(np.median(each[1:])) for name, each in spent.items()}


def check(points: Points, boxes: Floats, found: dict[str, list[int]]) -> None:
    """Refuse figures of wrong answers."""
    lon, lat = points
    for number, (w, s, e, n) in enumerate(boxes[:20]):
        wanted = int(((lon >= w) & (lon <= e) & (lat >= s) & (lat <= n)).sum())
        for name, counts in found.items():
            # 32 bits hold a longitude to about a metre: a rim of that width may be in as well.
            most = wanted if name != Sqlite.name else wanted + 5 + wanted // 20
            if not wanted <= counts[number] <= most:
                raise SystemExit(f"{name} found {counts[number]}, a scan {wanted}")


def static(size: str, rounds: int) -> dict[str, Any]:
    """Trees that are built once."""
    count, _, boxes_count = SIZES[size]
    clusters = Clusters(seed=1)
    points = clusters.points(0, count)
    trees, missing, build_s = available([Ours, Geoindex, Shapely, Kdtree, Sqlite], points)
    outcome: dict[str, Any] = {"points": count, "build_s": build_s, "missing": missing}
    for hits in HITS:
        boxes = clusters.boxes(boxes_count, hits=hits, of=count)
        asking = {name: tree for name, tree in trees.items() if hasattr(tree, "box")}
        found = {name: [tree.box(box) for box in boxes] for name, tree in asking.items()}
        check(points, boxes, found)
        asked = {name: [partial(tree.box, box) for box in boxes] for name, tree in asking.items()}
        outcome[f"{hits} hits"] = {
            "hits": float(np.mean(found[Ours.name])), "us": by_turns(asked, rounds)
        }  # fmt: skip
    where = np.stack(clusters.points(count, boxes_count), 1)
    for nearest in NEAREST:
        asked = {
            name: [partial(tree.nearest, x, y, nearest) for x, y in where]
            for name, tree in trees.items() if hasattr(tree, "nearest")
        }  # fmt: skip
        outcome[f"nearest {nearest}"] = {"us": by_turns(asked, rounds)}
    for tree in trees.values():
        if hasattr(tree, "close"):
            tree.close()
    return outcome


def pieces(size: str, rounds: int) -> dict[str, Any]:
    """One index in more and more components, each with points from everywhere."""
    count, _, boxes_count = SIZES[size]
    clusters = Clusters(seed=1)
    points = clusters.points(0, count)
    views = {f"{number}": Ours(points, number) for number in (1, 12, 48)}
    outcome: dict[str, Any] = {"points": count}
    for hits in HITS:
        boxes = clusters.boxes(boxes_count, hits=hits, of=count)
        check(points, boxes, {name: [v.box(b) for b in boxes[:20]] for name, v in views.items()})
        asked = {name: [partial(view.box, box) for box in boxes] for name, view in views.items()}
        outcome[f"{hits} hits"] = {
            "hits": float(np.mean([views["1"].box(box) for box in boxes])),
            "us": by_turns(asked, rounds),
        }
    for view in views.values():
        view.close()
    return outcome


class OursGrowing(Ours):
    """The index alone, filled call by call; full memories become components."""

    most = 50_000  # entries of a memory

    def __init__(self, folder: Path) -> None:
        super().__init__((np.empty(0), np.empty(0)))
        self._memory = self._kind.memory(0, None)

    def add(self, points: Points, rows: Any) -> None:
        self._memory.put(*entries(points, rows), rows)
        if self._memory.count >= self.most:
            self._seal(self._memory)
            self._memory = self._kind.memory(0, None)
        self._view = self._kind.view([self._memory], self._readers)


def ingest(size: str, rounds: int) -> dict[str, Any]:
    """Figure 4.4 (a) and (c) in small: inserts with questions between them, by turns."""
    _, count, _ = SIZES[size]
    clusters, batch, steps = Clusters(seed=2), 1_000, 10
    points = clusters.points(0, count)
    loads = OursGrowing(Path())  # what is loaded the first time takes longer than all the rest
    loads.add(points, np.arange(min(count, OursGrowing.most)))
    loads.close()
    with common.scratch() as folder:
        made: dict[str, Any] = {}
        missing: dict[str, str] = {}
        for kind in (OursGrowing, Sqlite, Libspatialindex):
            (folder / kind.name.split()[0]).mkdir()
            try:
                own = folder / kind.name.split()[0]
                made[kind.name] = kind(own) if kind is OursGrowing else kind(None, own)
            except ImportError as error:
                missing[kind.name] = str(error)
        curve: dict[str, list[Any]] = {name: [] for name in made}
        for step in range(steps):
            limits = (count * step // steps, count * (step + 1) // steps)
            boxes = clusters.boxes(50, hits=100, of=limits[1], seed=step)
            found = {}
            for name, index in made.items():
                begun = time.perf_counter()
                for first in range(*limits, batch):
                    index.add(points, np.arange(first, min(first + batch, limits[1])))
                index.box(boxes[0])  # ours sorts for the first question: that is part of inserting
                insert_us = (time.perf_counter() - begun) / (limits[1] - limits[0]) * 1e6
                begun = time.perf_counter()
                found[name] = [index.box(box) for box in boxes]
                query_us = (time.perf_counter() - begun) / len(boxes) * 1e6
                curve[name].append([limits[1], insert_us, query_us])
            check((points[0][: limits[1]], points[1][: limits[1]]), boxes, found)
        for index in made.values():
            index.close()
    return {"points": count, "batch": batch, "curve": curve, "missing": missing}


def store(size: str, rounds: int) -> dict[str, Any]:
    """Documents in a collection, without and with the index, and boxes through `find`."""
    import tideline

    _, count, boxes_count = SIZES[size]
    clusters, batch = Clusters(seed=3), 10_000
    lon, lat = clusters.points(0, count)
    outcome: dict[str, Any] = {"documents": count, "put_us": {}, "find_us": {}}
    with common.scratch() as folder, tideline.open(folder / "data", memory_mb=64) as db:
        made = {
            "no index": db.collection("plain", key="id"),
            "spatial": db.collection("places", key="id", indexes={"at": "spatial"}),
        }
        warm = db.collection("warm", key="id", indexes={"at": "spatial"})
        nowhere = {"at": {"$geoWithin": {"$box": [[0, 0], [0, 0]]}}}
        warm.put_many([{"id": 1, "at": [1.0, 0.0]}])
        warm.find(nowhere)  # now all kernels are loaded
        spent = dict.fromkeys(made, 0.0)
        for first in range(0, count, batch):
            rows = range(first, min(first + batch, count))
            docs = [{"id": n, "at": [float(lon[n]), float(lat[n])], "n": n % 7} for n in rows]
            for name, collection in made.items():
                begun = time.perf_counter()
                collection.put_many(docs)
                spent[name] += time.perf_counter() - begun
        begun = time.perf_counter()
        made["spatial"].find(nowhere)
        spent["spatial"] += time.perf_counter() - begun  # the first question sorts what memory has
        outcome["put_us"] = {name: each / count * 1e6 for name, each in spent.items()}
        places: Any = made["spatial"]
        sqlite = Sqlite((lon, lat), None)
        texts = [f'{{"id":{n},"at":[{lon[n]},{lat[n]}],"n":{n % 7}}}' for n in range(count)]
        sqlite._db.execute("CREATE TABLE docs (id INTEGER PRIMARY KEY, document TEXT)")
        sqlite._db.executemany("INSERT INTO docs VALUES (?, ?)", enumerate(texts))
        server = None
        outcome["missing"] = {postgis.Postgis.name: reason} if (reason := postgis.missing()) else {}
        if reason is None:
            rows = zip(range(count), lon.tolist(), lat.tolist(), texts, strict=True)
            server = postgis.Postgis(folder / "postgis", rows)
        asked_before = itertools.count(1)
        for hits in HITS:
            boxes = clusters.boxes(max(boxes_count // 10, 5), hits=hits, of=count)

            def within(box: Floats) -> dict[str, Any]:
                """A box that was never asked: a condition that comes again is planned once."""
                w, s, e, n = map(float, box)
                w -= next(asked_before) * 1e-12
                return {"at": {"$geoWithin": {"$box": [[w, s], [e, n]]}}}

            def ours(box: Floats) -> int:
                return len(places.find(within(box), limit=1_000_000))

            def text(box: Floats) -> int:
                """Documents that are decoded when they are looked at."""
                return len(places.find_lazily(within(box)))

            def lazily(box: Floats) -> int:
                """Arrow batches, of which whoever reads them decodes what is wanted."""
                return sum(batch.num_rows for batch in places.find_batches(within(box)))

            def one_by_one(box: Floats) -> int:
                """Ids first, then a question for each."""
                w, s, e, n = map(float, box)
                said = ("SELECT id FROM places WHERE west <= ? AND east >= ?"
                        " AND south <= ? AND north >= ?")  # fmt: skip
                found = sqlite._db.execute(said, (e, w, n, s)).fetchall()
                one = "SELECT document FROM docs WHERE id = ?"
                return len([sqlite._db.execute(one, row).fetchone()[0] for row in found])

            def peer(box: Floats, read: Callable[[str], Any] = str) -> int:
                """All texts by one question, as who knows SQLite would."""
                w, s, e, n = map(float, box)
                said = ("SELECT document FROM places JOIN docs ON docs.id = places.id"
                        " WHERE west <= ? AND east >= ? AND south <= ? AND north >= ?")  # fmt: skip
                return len([read(row[0]) for row in sqlite._db.execute(said, (e, w, n, s))])

            asking: dict[str, Callable[[Floats], int]] = {
                "tideline": ours, Sqlite.name: partial(peer, read=msgspec.json.decode),
                "tideline, as text": text, "tideline, by find_batches": lazily,
                f"{Sqlite.name}, as text": peer,
                f"{Sqlite.name}, as text, one by one": one_by_one,
            }  # fmt: skip
            if server is not None:
                asking[server.name] = partial(server.find, read=msgspec.json.decode)
                asking[f"{server.name}, as text"] = server.find
            for name, ask in asking.items():
                counts = [ask(box) for box in boxes]
                check((lon, lat), boxes, {name.split(", ")[0]: counts})
            asked = {name: [partial(ask, box) for box in boxes] for name, ask in asking.items()}
            outcome["find_us"][f"{hits} hits"] = by_turns(asked, rounds)
        sqlite.close()
        if server is not None:
            server.close()
    return outcome


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, help="run these parts only")
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--rounds", type=int, default=5, help="of questions; default 5")
    parser.add_argument(
        "--results", type=Path, default=common.RESULTS, metavar="DIR", help="where results go"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = parse_options(arguments)
    results = common.Results(options.results, "spatial")
    for part in options.only or PARTS:
        say(part)
        measure = {"static": static, "pieces": pieces, "ingest": ingest, "store": store}[part]
        results.put(part, {**measure(options.size, options.rounds), "size": options.size})
    for path in spatial_report.write(results):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
