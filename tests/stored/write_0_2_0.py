"""Writes the folders in 0.2.0.tar.gz; run with the code of 0.2.0.

    python tests/stored/write_0_2_0.py tests/stored

`closed` is a database that was closed, `killed` the same as it stood on disk while it was open.
tests/test_stored_formats.py opens them with the code of today and looks for everything in them.
"""

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import tideline
from tideline import Circle, Polygon, QuadTree, Topics
from tideline.testing import ManualClock

START_S = 1_700_000_040  # a full minute
LONG_S = 1_000_000  # what is valid when the folder is opened again
BOUNDS = (-79.8, 40.4, -71.8, 45.1)
PARK = Polygon([(-73.98, 40.77), (-73.96, 40.80), (-73.95, 40.79), (-73.97, 40.76)])
WORDS = ["Suteishi Sushi", "Tokyo Sushi Bar", "Restaurant des Lilas", "Sea Line"]
INDEXES = {
    "shop": "lazy", "total": "composite", "state": "eager", "time": "embedded",
    "code": {"kind": "lazy", "unique": True},
    "at": "spatial", "note": "words", "name": {"kind": "ngrams", "n": 3},
    ("at", "name"): "fuzzy", ("shop", "total"): "composite",
}  # fmt: skip


def order(number: int) -> dict[str, object]:
    return {
        "id": number, "shop": number % 3, "total": 10 * number, "state": "open", "time": number,
        "code": f"c{number}",
        "at": [number / 10, 47.0], "name": WORDS[number % 4], "note": f"flat tire {number}",
    }  # fmt: skip


def channels(db: tideline.Database) -> None:
    roads = db.channel("roads", space=QuadTree(bounds=BOUNDS, depth=9), journal_s=3600)
    near = Circle((-73.97, 40.76), radius_m=2000)
    roads.subscribe(near, user="ann", id="circle", until_s=LONG_S)
    roads.subscribe(near, user="bob", id="unseen", until_s=LONG_S, unseen=True)
    roads.subscribe(PARK, user="cem", id="park", until_s=LONG_S, where={"lanes": {"$gte": 2}})
    roads.publish((-73.975, 40.758), {"lanes": 1}, id="e1", ttl_s=LONG_S)
    roads.publish(PARK, {"lanes": 3}, id="e2", ttl_s=LONG_S)
    roads.publish((-73.975, 40.758), {"lanes": 1}, id="retracted", ttl_s=LONG_S)
    roads.seal()
    roads.retract("retracted")
    roads.move("circle", Circle((-73.0, 42.0), radius_m=5000))
    roads.publish((-73.975, 40.758), {"lanes": 9}, id="e1", ttl_s=LONG_S, replace=True)
    roads.publish((-73.97, 40.78), {"lanes": 2}, id="e3", ttl_s=LONG_S)
    news = db.channel("news", space=Topics(), layout="two")
    news.subscribe("sports", user="ann", id="sports", until_s=LONG_S)
    news.publish("sports/soccer", {"score": [1, 0]}, id="goal", ttl_s=LONG_S)


def documents(db: tideline.Database) -> None:
    orders = db.collection(
        "orders", key="id", indexes=INDEXES, journal_s=LONG_S, journal_before=True
    )
    orders.put_many([order(number) for number in range(40)])
    orders._engine.seal()  # so that some of them are in components
    orders.update_many({"id": {"$lt": 5}}, {"$set": {"state": "sent"}})
    orders.delete(39)
    orders.put({**order(40), "state": "new"}, ttl_s=LONG_S)
    orders.put({**order(41), "state": "short"}, ttl_s=5)
    texts = db.collection("texts", key="name", policy="leveled")
    texts.put_many([{"name": name, "size": len(name)} for name in WORDS])


def windows(db: tideline.Database) -> None:
    cars = db.window(
        "cars", span_s=LONG_S * 2, slide_s=LONG_S, key=("road", "car"), values={"speed": "int32"}
    )
    cars.append([{"road": 87, "car": car, "speed": 50 + car} for car in range(5)])
    cars.seal()
    cars.append([{"road": 90, "car": 9, "speed": 70}])
    names = db.window(
        "names", span_s=LONG_S * 2, slide_s=LONG_S, keep="all", key={"name": "text"},
        values={"speed": "float64"},
    )  # fmt: skip
    names.append([{"name": "a", "speed": 1.5}, {"name": "a", "speed": 2.5}])


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        clock = ManualClock(START_S)
        with tideline.open(folder / "closed", clock=clock) as db:
            channels(db)
            documents(db)
            windows(db)
            clock.advance(10)
            shutil.copytree(folder / "closed", folder / "killed")
        with tarfile.open(Path(sys.argv[1]) / "0.2.0.tar.gz", "w:gz") as archive:
            for which in ("closed", "killed"):
                archive.add(folder / which, which)


if __name__ == "__main__":
    main()
