"""Filters: questions about recent data, by kind of index, by policy, and out of order.

    python benchmarks/filters.py [--only PART ...] [--size tiny|small|full] [--rounds N] [--help]

    recency   a user's tweets of late: a filter, an index, both, an index on time (5.15, 5.17)
    kinds     the same with every kind of index, with and without a filter (5.18)
    policies  none, constant, prefix, correlated-prefix with a filter (5.20, 5.22, 5.23)
    disorder  tweets that come late (5.24)

Figures are those of the study (003, 5.5). A question asks for the last part of all tweets, from
a two-thousandth to all of them, and for something else beside it; it is answered with a number, or
a grid of numbers. Tweets are made up (tweets_data.py). A collection is sealed 24 times while it is
written. Answers of all in a table are compared. Writes benchmarks/results/filters.json, .md, .png.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import numpy as np

import tideline
from benchmarks import common, pages
from benchmarks.common import markdown_table, say
from benchmarks.pages import Plot, by_turns, check_same
from benchmarks.tweets_data import CLUSTERS, USERS, tweets

PARTS = ["recency", "kinds", "policies", "disorder"]
SIZES = {"tiny": (2_400, 3), "small": (240_000, 20), "full": (2_400_000, 100)}  # tweets, questions
SHARES = (1 / 2000, 1 / 300, 1 / 50, 1 / 12, 1 / 4, 1.0)
_SEALS = 24
_PREFIX = {"max_bytes": 12 << 20, "max_count": 5}
"""A component of so many bytes is merged no more: a fifth of the documents of the small size."""
Where = dict[str, Any]
Ask = Callable[[Any, Where], Any]


def filled(db: Any, count: int, made: dict[str, dict[str, Any]], late: int = 0) -> dict[str, Any]:
    """Collections with these settings, with the same tweets."""
    found = {}
    for name, settings in made.items():
        options = {"policy": {"name": "prefix", **_PREFIX}, **settings}
        begun = time.perf_counter()
        docs = db.collection(f"c{len(db.collections())}", key="id", **options)
        for rows in np.array_split(np.arange(count), min(_SEALS, count // 300)):
            docs.put_many(tweets(int(rows[0]), len(rows), late=late))
            docs._engine.seal()
        found[name] = docs
        say(f"  {name}: {time.perf_counter() - begun:.1f} s")
    return found


def asked(
    made: dict[str, Any], count: int, questions: list[Where], ask: Ask, rounds: int
) -> dict[str, Any]:
    """By collection and share: microseconds, and components of each index that were searched."""
    table: dict[str, Any] = {name: {} for name in made}
    for share in SHARES:
        least = count - int(count * share)
        wheres = [{**where, "time": {"$gte": least}} for where in questions]
        for where in wheres[:5]:
            answers = {name: ask(docs, where) for name, docs in made.items()}
            check_same(str(where), next(iter(answers.values())), answers)
        turns = {name: [partial(ask, d, where) for where in wheres] for name, d in made.items()}
        spent = by_turns(turns, rounds)
        for name, docs in made.items():
            told = [docs.explain(where, limit=1).components for where in wheres[:3]]
            reads = [(one.searched, one.searched + one.skipped) for each in told for one in each]
            searched, there = (float(np.mean(column)) for column in zip(*reads, strict=True))
            table[name][f"{share:g}"] = {
                "us": float(np.median(spent[name])), "searched": searched, "there": there
            }  # fmt: skip
    return table


def _number(docs: Any, where: Where) -> Any:
    return docs.count(where)


def _of_users(number: int) -> list[Where]:
    draw = np.random.default_rng(3)
    return [{"user": user} for user in draw.integers(USERS, size=number).tolist()]


def _of_boxes(number: int, count: int) -> list[Where]:
    boxes = CLUSTERS.boxes(number, hits=max(count // 500, 5), of=count)
    return [
        {"at": {"$geoWithin": {"$box": [[w, s], [e, n]]}}} for w, s, e, n in boxes.tolist()
    ]  # fmt: skip


def _grid(docs: Any, where: Where) -> Any:
    [[west, south], [east, north]] = where["at"]["$geoWithin"]["$box"]
    counts = docs.aggregate_grid((west, south, east, north), rows=5, cols=5, where=where)
    return counts.to_pylist()


def recency(size: str, rounds: int) -> dict[str, Any]:
    """A user's tweets of late."""
    count, number = SIZES[size]
    settings: dict[str, dict[str, Any]] = {
        "filter": {"filter": "time"},
        "index on user": {"indexes": {"user": "composite"}},
        "index on user, filter": {"indexes": {"user": "composite"}, "filter": "time"},
        "index on time": {"indexes": {"time": "composite"}},
    }
    with common.scratch() as folder, tideline.open(folder / "data") as db:
        made = filled(db, count, settings)
        return {"tweets": count, "rows": asked(made, count, _of_users(number), _number, rounds)}


def kinds(size: str, rounds: int) -> dict[str, Any]:
    """Every kind of index."""
    count, number = SIZES[size]
    indexes = {"user": "composite", "at": "spatial", "text": "words"}
    others: dict[Any, Any] = {"text": {"kind": "ngrams", "n": 3}, ("at", "text"): "fuzzy"}
    settings: dict[str, dict[str, Any]] = {
        "no filter": {"indexes": indexes}, "filter": {"indexes": indexes, "filter": "time"},
        "no filter 2": {"indexes": others}, "filter 2": {"indexes": others, "filter": "time"},
    }  # fmt: skip
    boxes = _of_boxes(number, count)
    texts = ["traffic", "subway delay", "pizza", "snow storm", "lake", "parking", "marathon"]
    words = [{"text": {"$words": texts[n % len(texts)]}} for n in range(number)]
    pieces = [{"text": {"$contains": texts[n % len(texts)]}} for n in range(number)]
    near = [
        {**box, "text": {"$fuzzy": {"words": ["trafic", "delays"][n % 2], "similarity": 0.8}}}
        for n, box in enumerate(boxes)
    ]
    asks: dict[str, tuple[str, list[Where], Ask]] = {
        "composite": ("", _of_users(number), _number), "spatial (grid)": ("", boxes, _grid),
        "words": ("", words, _number), "ngrams": (" 2", pieces, _number),
        "fuzzy": (" 2", near, _number),
    }  # fmt: skip
    rows = {}
    with common.scratch() as folder, tideline.open(folder / "data") as db:
        made = filled(db, count, settings)
        for kind, (which, questions, ask) in asks.items():
            both = {f"{kind}, {name}": made[name + which] for name in ("no filter", "filter")}
            rows |= asked(both, count, questions, ask, rounds)
    return {"tweets": count, "rows": rows}


def policies(size: str, rounds: int) -> dict[str, Any]:
    """Policies with a filter."""
    count, number = SIZES[size]
    given: dict[str, Any] = {
        "none": "none", "constant": {"name": "constant", "k": 3},
        "prefix": {"name": "prefix", **_PREFIX},
        "correlated-prefix": {"name": "correlated-prefix", **_PREFIX},
    }  # fmt: skip
    settings = {
        name: {
            "indexes": {"user": "composite", "at": "spatial"}, "filter": "time", "policy": policy,
        }
        for name, policy in given.items()
    }  # fmt: skip
    with common.scratch() as folder, tideline.open(folder / "data") as db:
        made = filled(db, count, settings)
        components = {}
        for name, docs in made.items():
            each = [one.components for one in docs.stats().indexes]
            components[name] = [docs.stats().components - sum(each), *each]
        user = asked(made, count, _of_users(number), _number, rounds)
        place = asked(made, count, _of_boxes(number, count), _grid, rounds)
    rows = {f"user, {name}": row for name, row in user.items()}
    rows |= {f"grid, {name}": row for name, row in place.items()}
    return {"tweets": count, "rows": rows, "components": components}


def disorder(size: str, rounds: int) -> dict[str, Any]:
    """Tweets that are up to a tenth of all late, as ten minutes of 110 are."""
    count, number = SIZES[size]
    settings = {"indexes": {"user": "composite"}, "filter": "time"}
    rows = {}
    with common.scratch() as folder, tideline.open(folder / "data") as db:
        for name, late in (("in order", 0), ("out of order", count // 10)):
            made = filled(db, count, {name: settings}, late)
            rows |= asked(made, count, _of_users(number), _number, rounds)
    return {"tweets": count, "rows": rows}


# ---- the page ------------------------------------------------------------------------------------

_TITLES = {
    "recency": "A user's tweets of late (figures 5.15 and 5.17)",
    "kinds": "With every kind of index (figure 5.18)",
    "policies": "Policies (figures 5.20, 5.22 and 5.23)",
    "disorder": "Out of order (figure 5.24)",
}


def _share(name: str) -> str:
    part = float(name)
    return "all" if part == 1 else f"1/{1 / part:.0f}"


def table(part: str, data: dict[str, Any]) -> str:
    """Microseconds, and the components that were searched, by the share that is asked for."""
    rows = [
        [name, *(f"{cell['us']:,.0f} ({cell['searched']:.0f}/{cell['there']:.0f})"
                 for cell in row.values())]
        for name, row in data["rows"].items()
    ]  # fmt: skip
    head = ["median us (components searched / there)", *(_share(f"{share:g}") for share in SHARES)]
    text = f"## {_TITLES[part]}: {data['tweets']:,} tweets\n\n" + markdown_table(head, rows)
    if "components" in data:
        counts = [[name, *map(str, each)] for name, each in data["components"].items()]
        text += "\n" + markdown_table(["components of", "documents", "user", "at"], counts)
    return text


def plots(parts: dict[str, Any]) -> list[Plot]:
    """Time by share."""
    return [
        Plot(
            _TITLES[part], "share of the tweets that is asked for", "median us",
            {
                name: [(float(share), cell["us"]) for share, cell in row.items()]
                for name, row in data["rows"].items()
            },
            log_across=True,
        )
        for part, data in parts.items()
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = common.parser(__doc__, parts=PARTS, sizes=SIZES, rounds=2).parse_args(arguments)
    results = common.Results(options.results, "filters")
    measures = {
        "recency": recency, "kinds": kinds, "policies": policies, "disorder": disorder
    }  # fmt: skip
    for part in options.only or PARTS:
        say(part)
        measured = measures[part](options.size, options.rounds)
        results.put(part, {**measured, "size": options.size})
    about = (
        "Written by `python benchmarks/filters.py`, whose head says what is asked. The tweets are "
        "made up. Columns are the last part of all tweets that is asked for; components are those "
        "of the documents and indexes that were read to find candidates, on average."
    )
    tables = {part: partial(table, part) for part in PARTS}
    for path in pages.write(results, "filters", "Filters", about, tables, plots):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
