"""Writes the folders in 0.1.0.tar.gz; run with the code of 0.1.0, never with today's.

    python tests/stored/write_0_1_0.py FOLDER

FOLDER gets `closed`, a database that was closed, and `killed`, the same as it stood on disk while
it was open. tests/test_stored_formats.py opens them with the code of today.
"""

import shutil
import sys
from pathlib import Path

import tideline
from tideline import Box, Circle, Flat, Grid, QuadTree, Topics
from tideline.testing import ManualClock

BOUNDS = (-79.8, 40.4, -71.8, 45.1)
LONG_S = 1_000_000  # what is valid when the folder is opened again


def fill(db: tideline.Database) -> None:
    roads = db.channel("roads", space=QuadTree(bounds=BOUNDS, depth=9))
    roads.subscribe(Circle((-73.97, 40.76), radius_m=2000), user="ann", id="circle", until_s=LONG_S)
    roads.subscribe(
        Box(-74.1, 40.6, -73.8, 40.9), user="bob", id="unseen", until_s=LONG_S, unseen=True
    )
    roads.subscribe(
        Box(-74.1, 40.6, -73.8, 40.9), user="cem", id="lanes", until_s=LONG_S,
        where={"lanes": {"$gte": 2}},
    )  # fmt: skip
    roads.subscribe("1.4", user="dan", id="cell", until_s=LONG_S)
    for number in range(6):
        body = {"kind": "accident", "lanes": number % 3}
        roads.publish((-73.98 + number / 500, 40.75), body, id=f"e{number}", ttl_s=LONG_S)
    roads.subscribe((-73.98, 40.75), user="eve", id="cancelled", until_s=LONG_S)
    roads.cancel("cancelled")
    roads.publish((-73.98, 40.75), {"kind": "short"}, id="gone", ttl_s=5)
    roads.seal()  # what is above is in components, what is below in the log
    roads.publish((-73.975, 40.758), {"kind": "fire", "lanes": 9}, id="late", ttl_s=LONG_S)
    roads.subscribe(Circle((-73.97, 40.76), radius_m=9000), user="fay", id="wide", until_s=LONG_S)

    news = db.channel("news", space=Topics(), layout="two")
    news.subscribe("sports", user="ann", id="sports", since_s=-60, until_s=LONG_S)
    news.publish("sports/soccer", {"score": [1, 0]}, id="goal", ttl_s=LONG_S)
    news.seal()
    news.publish("weather/rain", {"mm": 4}, id="rain", ttl_s=LONG_S)

    sensors = db.channel("sensors", space=Flat())
    sensors.publish("sensor-7", {"c": 21.5}, id="t1", ttl_s=LONG_S)

    fleet = db.channel("fleet", space=Grid(bounds=BOUNDS, rows=64, cols=64))
    fleet.publish((-78.88, 42.89), {"truck": 4}, id="p1", ttl_s=LONG_S)
    fleet.seal()

    polls = db.channel("polls", space=Flat(), layout="poll", poll_s=2.0)
    polls.publish("a", {"n": 1}, id="n1", ttl_s=LONG_S)


def main() -> None:
    folder = Path(sys.argv[1])
    clock = ManualClock(1_700_000_000)
    with tideline.open(folder / "closed", clock=clock) as db:
        fill(db)
        clock.advance(10)
        shutil.copytree(folder / "closed", folder / "killed")


if __name__ == "__main__":
    main()
