"""The demo's places: some hundred shops and sights with names, for the search box of the map.

    collection `places`:  {"id": 17, "name": "Harbor Coffee House", "kind": "café",
                           "town": "Albany", "at": [-73.77, 42.65]}

They lie around the towns of New York State, more of them around larger ones. About one a second
opens, closes or gets another name, so a search that stays answered has something to tell. All are
made up.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from tideline.cli.demo_feed import Feed
from tideline.index.kind import kind_names
from tideline.workload.newyork import CITIES, inside

__all__ = ["Places"]

_COUNT, _PAUSE_S = 900, 1.0
_SPREAD = 0.09  # degrees around a town
_FIRST = (
    "Harbor", "Sunrise", "Old Mill", "Maple", "Empire", "Golden", "Corner", "Riverside",
    "Hudson", "Liberty", "Blue Heron", "Copper", "Juniper", "Lakeview", "Northern", "Velvet",
)  # fmt: skip
_KINDS = {
    "café": ("Coffee House", "Espresso Bar", "Tea Room"),
    "restaurant": ("Restaurant", "Diner", "Sushi Restaurant", "Pizzeria", "Noodle Kitchen"),
    "bakery": ("Bakery", "Pastry Shop"), "garage": ("Garage", "Auto Repair"),
    "pharmacy": ("Pharmacy",), "hotel": ("Hotel", "Inn"), "museum": ("Museum", "Gallery"),
    "library": ("Library",), "market": ("Farmers Market", "Grocery"),
}  # fmt: skip
_WANTED = {"at": "spatial", "name": "ngrams"}


class Places(Feed):
    """Places that open and close, as a feed (demo_feed.py)."""

    name = "places"

    def __init__(self, database: Any, seed: int, pause_s: float = _PAUSE_S) -> None:
        super().__init__(database, pause_s)
        self._random = random.Random(seed)
        self._places = {key: self._open(key) for key in range(1, _COUNT + 1)}

    def settings(self) -> dict[str, Any]:
        known = kind_names()
        indexes = {field: kind for field, kind in _WANTED.items() if kind in known}
        return {"key": "id", "indexes": indexes}

    def documents(self) -> Iterable[Any]:
        return (place for place in self._places.values() if place)

    def write(self, places: Any) -> None:
        """A place that is there closes or gets another name; one that is not opens."""
        key = self._random.randrange(1, _COUNT + 1)
        place = self._places[key]
        if place is None:
            self._places[key] = self._open(key)
        elif self._random.random() < 0.5:
            self._places[key] = None
            places.delete(key)
            return
        else:
            place["name"] = self._name(place["kind"])
        places.put(self._places[key])

    def _open(self, key: int) -> dict[str, Any] | None:
        names, weights = list(CITIES), [city[2] for city in CITIES.values()]
        town = self._random.choices(names, [weight**0.6 for weight in weights])[0]
        lon, lat, _ = CITIES[town]
        at = (lon, lat)
        for _ in range(9):
            near = (lon + self._random.gauss(0, _SPREAD), lat + self._random.gauss(0, _SPREAD))
            if inside(near):
                at = near
                break
        kind = self._random.choice(list(_KINDS))
        return {
            "id": key, "name": self._name(kind), "kind": kind, "town": town,
            "at": [round(at[0], 5), round(at[1], 5)],
        }  # fmt: skip

    def _name(self, kind: str) -> str:
        return f"{self._random.choice(_FIRST)} {self._random.choice(_KINDS[kind])}"
