"""How fast conditions are: on one body beside other packages, on a batch beside a loop.

    python benchmarks/conditions.py [--only predicate|batch] [--rounds N] [--help]

Parts: predicate (here), batch (benchmarks/conditions_batch.py). Writes
benchmarks/results/conditions.json and .md.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import machine_of, markdown_table, pyplot, say
from tideline.where import parse

PARTS = ["predicate", "batch"]
PEERS = ["mongomock", "mongoquery", "montydb", "mgqpy"]
BODIES = 1_000

Matches = Callable[[dict[str, Any]], bool]

# What people ask of events on roads. About half of the bodies meet each.
CONDITIONS: dict[str, dict[str, Any]] = {
    "equality with text": {"kind": "jam"},
    "equality with a number": {"lanes": 2},
    "a comparison": {"speed": {"$gt": 50}},
    "a range": {"speed": {"$gte": 20, "$lt": 90}},
    "text and a range": {"kind": "jam", "speed": {"$gte": 10, "$lt": 90}},
    "one of five": {"kind": {"$in": ["jam", "fog", "ice", "fire", "flood"]}},
    "not equal": {"kind": {"$ne": "jam"}},
    "or": {"$or": [{"kind": "jam"}, {"speed": {"$lt": 20}}]},
    "a field is there": {"note": {"$exists": True}},
    "two names deep": {"road.name": "A8"},
    "three names deep": {"road.from.exit": {"$gte": 20}},
    "an array holds": {"tags": "night"},
    "elemMatch": {"cars": {"$elemMatch": {"speed": {"$gt": 60}, "kind": "truck"}}},
    "a start of text": {"road.name": {"$regex": "^A"}},
    "a simple pattern": {"note": {"$regex": "(?i)acc?ident|crash"}},
    "a simple pattern, deep": {"road.name": {"$regex": "^A[0-9]+$"}},
    "a pattern for RE2": {"note": {"$regex": "(Accident|crash).*(two|[0-9]{2})"}},
    "ten clauses": {
        "kind": {"$ne": "fog"}, "speed": {"$gte": 5, "$lte": 115}, "lanes": {"$in": [1, 2, 3]},
        "road.name": {"$ne": "A1"}, "road.from.exit": {"$lt": 38}, "tags": {"$ne": "closed"},
        "valid": True, "$nor": [{"speed": 7}, {"kind": "flood"}],
    },
}  # fmt: skip


def bodies(count: int = BODIES, seed: int = 7) -> list[dict[str, Any]]:
    """Events on roads, as decoding their JSON gives them.

    >>> sorted(bodies(1)[0])
    ['cars', 'kind', 'lanes', 'note', 'road', 'speed', 'tags', 'valid']
    """
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        body: dict[str, Any] = {
            "kind": draw.choice(["jam", "jam", "fog", "ice", "works"]),
            "speed": draw.choice([draw.randrange(120), round(draw.random() * 120, 1)]),
            "lanes": draw.choice([1, 2, 2, 3]),
            "valid": draw.random() < 0.9,
            "road": {
                "name": draw.choice(["A8", "A8", "A96", "B2", "A1"]),
                "from": {"exit": draw.randrange(40), "name": "east"},
            },
            "tags": draw.sample(["night", "rain", "school", "closed", "toll"], 2),
            "cars": [
                {"kind": draw.choice(["car", "truck"]), "speed": draw.randrange(120)}
                for _ in range(3)
            ],
        }
        if draw.random() < 0.5 or not made:
            body["note"] = draw.choice(["Accident at exit 12", "crash, two cars", "slow traffic"])
        made.append(body)
    return made


def matcher(package: str, condition: dict[str, Any]) -> Matches:
    """The package's fastest documented way to ask one condition of many bodies."""
    if package == "ours":
        return parse(condition).matches
    if package == "mongomock":
        from mongomock.filtering import filter_applies

        return lambda body: filter_applies(condition, body)
    if package == "mongoquery":
        from mongoquery import Query as Mongoquery

        return Mongoquery(condition).match
    if package == "montydb":
        from montydb.engine.queries import QueryFilter

        return QueryFilter(condition)
    from mgqpy import Query

    return Query(condition).test


def predicate_section(rounds: int = 5, count: int = BODIES) -> dict[str, Any]:
    """Nanoseconds a body for every condition and package: the best of interleaved rounds."""
    made = bodies(count)
    outcome: dict[str, Any] = {"bodies": count, "packages": {}, "conditions": {}}
    for package in PEERS:
        outcome["packages"][package] = metadata.version(package)
    for name, condition in CONDITIONS.items():
        wanted = [parse(condition).matches(body) for body in made]
        asked = {package: matcher(package, condition) for package in ["ours", *PEERS]}
        best = dict.fromkeys(asked, float("inf"))
        for _ in range(rounds):
            for package, matches in asked.items():
                best[package] = min(best[package], _time_ns(matches, made))
        right = [p for p, matches in asked.items() if [bool(matches(b)) for b in made] == wanted]
        outcome["conditions"][name] = {
            "condition": condition, "ns": best, "right": right, "share": sum(wanted) / count,
        }  # fmt: skip
        say(
            f"{name:24}" + "".join(f"  {p} {ns:,.0f}" for p, ns in best.items())
            + ("" if len(right) == len(asked) else f"  differ: {sorted(set(asked) - set(right))}")
        )  # fmt: skip
    return outcome


def _time_ns(matches: Matches, made: list[dict[str, Any]]) -> float:
    """Nanoseconds a body of one pass, the loop's own cost included for everybody."""
    begin = time.perf_counter_ns()
    for body in made:
        matches(body)
    return (time.perf_counter_ns() - begin) / len(made)


def ratios(data: dict[str, Any], package: str) -> list[float]:
    """How many times ours is as fast as a package, a condition each."""
    return [line["ns"][package] / line["ns"]["ours"] for line in data["conditions"].values()]


def predicate_page(data: dict[str, Any]) -> str:
    """The results of the predicate as Markdown."""
    rows = []
    for name, line in data["conditions"].items():
        ns = line["ns"]
        best = min(ns[package] for package in PEERS)
        rows.append(
            [name, *(f"{ns[p]:,.0f}" for p in ["ours", *PEERS]),
             f"{ns['mongomock'] / ns['ours']:.1f}x", f"{best / ns['ours']:.1f}x"]
        )  # fmt: skip
    versions = ", ".join(f"{name} {version}" for name, version in data["packages"].items())
    mock = ratios(data, "mongomock")
    every = [ratio for package in PEERS for ratio in ratios(data, package)]
    wrong = [
        f"{name} ({', '.join(sorted({'ours', *PEERS} - set(line['right'])))})"
        for name, line in data["conditions"].items()
        if len(line["right"]) <= len(PEERS)
    ]
    text = (
        f"Nanoseconds a body, the best of interleaved rounds over {data['bodies']:,} bodies, each "
        "package in its own fastest way (a condition compiled once, where it can be). "
        f"{versions}. Ours is {min(mock):.1f} to {max(mock):.1f} times as fast as mongomock "
        f"(geometric mean {statistics.geometric_mean(mock):.1f}) and at least {min(every):.1f} "
        "times as fast as every other.\n\n"
    )
    head = ["condition", "ours", *PEERS, "to mongomock", "to the best"]
    notes = f"\nOther answers than ours: {'; '.join(wrong)}.\n" if wrong else ""
    return text + markdown_table(head, rows) + notes


def write(results: common.Results) -> Path:
    """Write conditions.md from what is there."""
    text = ["# Condition benchmarks\n\nWritten by `python benchmarks/conditions.py`.\n"]
    for part in PARTS:
        if part in results.parts:
            kept = results.parts[part]
            if part == "predicate":
                title, shown = "One body", predicate_page(kept["data"])
            else:
                from benchmarks.conditions_batch import batch_page

                title, shown = "A batch of bodies", batch_page(kept["data"])
            machine = machine_of(kept)
            text.append(
                f"## {title}\n\n{shown}\nCommit {kept['commit']}, {kept['date']}; {machine}.\n"
            )
    path = results.folder / "conditions.md"
    path.write_text("\n".join(text))
    return path


def plot(data: dict[str, Any], path: Path) -> None:
    """How many times ours is as fast as each package, a condition a row."""
    plt = pyplot()
    names = list(data["conditions"])[::-1]
    figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
    for package in PEERS:
        times = [
            data["conditions"][name]["ns"][package] / data["conditions"][name]["ns"]["ours"]
            for name in names
        ]
        axes.plot(times, range(len(names)), "o", label=package)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("time of the package / time of Tideline (log)")
    axes.set_title("A condition on one body")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=len(PEERS))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    """Run the parts and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--results", type=Path, default=common.RESULTS)
    options = parser.parse_args(arguments)
    results = common.Results(options.results, "conditions")
    if "predicate" in options.only:
        results.put("predicate", predicate_section(options.rounds))
    if "batch" in options.only:
        from benchmarks.conditions_batch import batch_section

        results.put("batch", batch_section())
    say(f"wrote {write(results)}")
    if results.get("predicate"):
        plot(results.get("predicate"), options.results / "conditions.png")
        say(f"wrote {options.results / 'conditions.png'}")


if __name__ == "__main__":
    main()
