"""The demo's places: some hundred shops and sights with names, for the search box of the map.

    collection `places`:  {"id": 17, "name": "Harbor Coffee House", "kind": "café",
                           "town": "Albany", "at": [-73.77, 42.65]}

They lie around the towns of New York State, more of them around larger ones. About one a second
opens, closes or gets another name, so a search that stays answered has something to tell. All are
made up.

The collection belongs to the demo: what a visitor put in its place goes.
"""

from __future__ import annotations

import random
import sys
import threading
from typing import Any

from tideline.errors import Conflict, TidelineError
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


class Places:
    """Opens and closes places from `start` to `stop`."""

    def __init__(self, database: Any, seed: int, pause_s: float = _PAUSE_S) -> None:
        self._database = database
        self._pause_s = pause_s
        self._random = random.Random(seed)
        self._places = {key: self._open(key) for key in range(1, _COUNT + 1)}
        self._stop = threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._run, name="tideline-places", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the current write."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        places: Any = None
        while not self._stop.is_set():
            try:
                places = self._made() if places is None else places
                self._change(places)
            except Exception as error:  # the demo goes on, whatever became of the collection
                places = None
                self._say(error)
            self._stop.wait(self._pause_s)

    def _made(self) -> Any:
        """The collection, with all places."""
        known = kind_names()
        indexes = {field: kind for field, kind in _WANTED.items() if kind in known}
        try:
            found = self._database.collection("places", key="id", indexes=indexes)
        except Conflict:
            drop = "drop_channel" if "places" in self._database.channels() else "drop_collection"
            getattr(self._database, drop)("places")
            found = self._database.collection("places", key="id", indexes=indexes)
        found.put_many([place for place in self._places.values() if place])
        return found

    def _change(self, places: Any) -> None:
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

    def _say(self, error: Exception) -> None:
        """What is no error of ours is a bug: said once, in full."""
        if isinstance(error, TidelineError) or self._told:
            return
        self._told = True
        text = f"tideline: the demo's places failed, and go on: {type(error).__name__}: {error}"
        print(text, file=sys.stderr, flush=True)
