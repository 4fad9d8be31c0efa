"""Find places by what they are called, roughly, and where they are.

    python examples/fuzzy_places                            # three searches, what each took
    python examples/fuzzy_places "sutishi resturant"        # nearest first, with typing errors
    python examples/fuzzy_places "tokio sushy" --at 2.35,48.86 --within 3000

The places are made up: 50,000 names around Paris from a list of words. What there is, is counted by
one index that has place and words together; what is nearest is read from an index of places,
outwards.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import tideline

EARTH_M = 6_378_100  # $centerSphere takes radians
CENTRE = (2.3488, 48.8534)
FIRST = (
    "Suteishi Tokyo Kyoto Osaka Hanoi Saigon Napoli Firenze Palermo Lisboa Porto Madrid Sevilla "
    "Marrakesh Tunis Beirut Istanbul Athena Corfu Bombay Lahore Chennai Lima Cusco Oaxaca"
)
SECOND = "Sushi Ramen Pizza Pasta Falafel Kebab Curry Tapas Noodle Grill Seafood Vegan"
THIRD = "Restaurant Bar Kitchen Corner House Garden Express Palace Bistro Counter"
SAMPLES = ("sutishi resturant", "maraksh falafl", "istambul kebap gardn")


def made_up(count: int, seed: int = 1) -> list[dict[str, object]]:
    """Places: half of them near the centre, the others further out."""
    chance = random.Random(seed)
    places: list[dict[str, object]] = []
    for id in range(count):
        spread = 0.02 if id % 2 else 0.15
        at = [round(chance.gauss(middle, spread), 5) for middle in CENTRE]
        name = " ".join(chance.choice(words.split()) for words in (FIRST, SECOND, THIRD))
        places.append({"id": id, "name": name, "at": at})
    return places


def search(
    places: tideline.Collection, text: str, *, at: tuple[float, float], within_m: float, limit: int
) -> tuple[int, list[tuple[float, str]]]:
    """How many there are, and (metres, name) of the nearest: each word is near one of the name."""
    named = {"name": {"$fuzzy": {"words": text, "similarity": 0.7}}}
    circle = {"$geoWithin": {"$centerSphere": [list(at), within_m / EARTH_M]}}
    count = places.count({"at": circle, **named})
    found = places.nearest(at, limit, named, field="at", max_distance_m=within_m)
    return count, [(each.metres, each.document["name"]) for each in found]


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(
        prog="python examples/fuzzy_places", description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    options.add_argument("text", nargs="?", help="words to search; without any: three samples")
    options.add_argument("--at", default=f"{CENTRE[0]},{CENTRE[1]}", help="longitude,latitude")
    options.add_argument("--within", type=float, default=5_000, help="metres")
    options.add_argument("--limit", type=int, default=5)
    options.add_argument("--places", type=int, default=50_000)
    chosen = options.parse_args(arguments)
    try:
        lon, lat = (float(part) for part in chosen.at.split(","))
    except ValueError:
        options.error(f"--at is two numbers, 2.35,48.85: {chosen.at!r}")
    with tempfile.TemporaryDirectory() as folder, tideline.open(Path(folder)) as db:
        places = db.collection(
            "places", key="id",
            indexes={"at": "spatial", ("at", "name"): {"kind": "fuzzy", "placement": "auto"}},
        )  # fmt: skip
        places.put_many(made_up(chosen.places))
        for text in [chosen.text] if chosen.text else SAMPLES:
            began = time.perf_counter()
            try:
                count, found = search(
                    places, text, at=(lon, lat), within_m=chosen.within, limit=chosen.limit
                )
            except tideline.InvalidRequest as error:
                options.error(str(error))
            took = 1e3 * (time.perf_counter() - began)
            print(f"{text!r}: {count} within {chosen.within:g} m, {took:.0f} ms; the nearest:")
            for metres, name in found:
                print(f"  {metres:6.0f} m  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
