"""Couriers in Paris: orders are offered to whoever is near, also to those who come near later.

    python examples/couriers                 # an hour of simulated time
    python examples/couriers --minutes 10 --couriers 5 --folder data

An order is an event at a place that matters for ten minutes. A courier is a subscription that
moves: it asks for the orders within a kilometre and a half, those of the last ten minutes
included, and takes those that nobody has. The store is a folder, in this process.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tideline
from tideline import Circle, QuadTree
from tideline.testing import ManualClock

PARIS = (2.25, 48.81, 2.42, 48.90)  # west, south, east, north
NEAR_M = 1_500
WAITS_S = 600  # an order is worth nothing after that
STEP_S = 20  # couriers move so often
SPEED = 0.0009  # degrees in a step, about 15 km/h
DISHES = ("pizza", "ramen", "falafel", "curry", "tarte", "couscous")


class Courier:
    """One who rides from place to place, and takes what is offered near it."""

    def __init__(self, name: str, orders: tideline.Channel, random: random.Random) -> None:
        self.name = name
        self.random = random
        self.at = self.somewhere()
        self.goal = self.somewhere()
        self.taken = 0
        self.offers = orders.subscribe(
            Circle(self.at, NEAR_M), user=name, since_s=-WAITS_S, until_s=24 * 3600, unseen=True
        )

    def somewhere(self) -> tuple[float, float]:
        west, south, east, north = PARIS
        return self.random.uniform(west, east), self.random.uniform(south, north)

    def ride(self) -> None:
        """A step towards the goal. What is near the new place, and was not told yet, is offered."""
        (lon, lat), (to_lon, to_lat) = self.at, self.goal
        far = ((to_lon - lon) ** 2 + (to_lat - lat) ** 2) ** 0.5
        if far <= SPEED:
            self.at, self.goal = self.goal, self.somewhere()
        else:
            self.at = (lon + (to_lon - lon) * SPEED / far, lat + (to_lat - lat) * SPEED / far)
        self.offers.move(Circle(self.at, NEAR_M))


def run(folder: Path, *, couriers: int, minutes: float, seed: int) -> tuple[int, int, int]:
    """Orders placed, taken, and forgotten because nobody came near in time."""
    chance = random.Random(seed)
    clock = ManualClock(1_700_000_000)  # simulated time: the same run for everybody
    with tideline.open(folder, clock=clock) as db:
        orders = db.channel("orders", space=QuadTree(bounds=PARIS, depth=10))
        riders = [Courier(f"courier {n}", orders, chance) for n in range(1, couriers + 1)]
        place = riders[0].somewhere
        placed = taken = 0
        open_orders: dict[str, int] = {}  # and when they were placed
        for step in range(round(minutes * 60 / STEP_S)):
            now = step * STEP_S
            clock.advance(STEP_S)
            if chance.random() < couriers * STEP_S / 300:  # one for each courier in five minutes
                placed += 1
                id, dish = f"o{placed}", chance.choice(DISHES)
                told = orders.publish(place(), {"dish": dish}, id=id, ttl_s=WAITS_S)
                open_orders[id] = now
                say(now, f"{id} {dish}: {len(told.subscriptions)} near are told at once")
            for rider in riders:
                rider.ride()
                for event in rider.offers.take():
                    since = open_orders.pop(event.id, None)
                    if since is None:  # it was offered to two, and the other was quicker
                        continue
                    taken += 1
                    rider.taken += 1
                    say(now, f"{event.id} taken by {rider.name} after {now - since} s")
                    orders.retract(event.id)  # nobody else is offered it
        best = max(riders, key=lambda rider: rider.taken)
        forgotten = sum(since + WAITS_S <= minutes * 60 for since in open_orders.values())
        waiting = placed - taken - forgotten
        print(f"{placed} orders: {taken} taken, {forgotten} forgotten, {waiting} open")
        print(f"most by {best.name}: {best.taken}")
    return placed, taken, forgotten


def say(now: int, text: str) -> None:
    print(f"{now // 60:02}:{now % 60:02}  {text}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(
        prog="python examples/couriers", description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    options.add_argument("--couriers", type=int, default=12)
    options.add_argument("--minutes", type=float, default=60, help="simulated")
    options.add_argument("--seed", type=int, default=1, help="another one, another hour")
    options.add_argument("--folder", type=Path, help="keep the store there; else it is forgotten")
    chosen = options.parse_args(arguments)
    if chosen.couriers < 1 or not chosen.minutes > 0:
        options.error("at least one courier and more than no minutes")
    rest = {"couriers": chosen.couriers, "minutes": chosen.minutes, "seed": chosen.seed}
    try:
        if chosen.folder is not None:
            run(chosen.folder, **rest)
        else:
            with tempfile.TemporaryDirectory() as folder:
                run(Path(folder), **rest)
    except tideline.TidelineError as error:  # a folder that cannot be used
        options.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
