"""How fast conditions are on a batch: `where.batch.matching` beside decoding in a loop.

    python benchmarks/conditions_batch.py

A part of benchmarks/conditions.py, which writes the results. The loop is the fastest there
is without the batch target: `msgspec.json.decode` and the predicate, over a list of bytes
that exists already.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import msgspec
import pyarrow as pa

from benchmarks.common import markdown_table, say
from tideline.where import parse
from tideline.where.batch import matching

DOCUMENTS = 100_000

# The first group is what the goal is about; the second is the rest of the language.
COMPARISONS: dict[str, dict[str, Any]] = {
    "a number is greater": {"speed": {"$gt": 50}},
    "a number equals": {"speed": 50},
    "a decimal in a range": {"temp": {"$gte": -5, "$lt": 12.5}},
    "text equals": {"kind": "jam"},
    "text is greater": {"note": {"$gt": "on the left lane"}},
    "a boolean equals": {"open": True},
    "two names deep, a number": {"road.lanes": {"$lte": 2}},
    "two names deep, text": {"road.name": "A8"},
    "three fields": {"kind": "jam", "open": True, "speed": {"$gt": 30, "$lt": 90}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "one of three": {"kind": {"$in": ["jam", "fog", "ice"]}},
    "one of forty": {"road.name": {"$in": [f"A{n}" for n in range(40)]}},
    "or": {"$or": [{"speed": {"$gt": 100}}, {"kind": {"$ne": "jam"}}]},
    "a field is there": {"note": {"$exists": True}},
    "a remainder": {"speed": {"$mod": [10, 0]}},
    "a pattern": {"note": {"$regex": "lane$|cars?"}},
    "words": {"note": {"$words": "left lane"}},
    "an array holds (decoded)": {"tags": "night"},
}
SHAPES = {
    "as written by one program": "same",
    "with spaces after , and :": "spaced",
    "a fifth of the fields missing": "missing",
    "fields in random order": "shuffled",
    "text that is not ASCII": "unicode",
}


def bodies(shape: str = "same", count: int = DOCUMENTS, seed: int = 7) -> list[bytes]:
    """JSON texts of events on roads, 100 to 150 bytes each.

    >>> bodies(count=1)[0]
    b'{"kind":"jam","speed":51,"temp":3.2,"open":true,"road":{"name":"A8",...
    """
    draw = random.Random(seed)
    texts = []
    for _ in range(count):
        body: dict[str, Any] = {
            "kind": draw.choice(["jam", "jam", "fog", "works"]),
            "speed": draw.randrange(120),
            "temp": round(draw.uniform(-20, 40), 1),
            "open": draw.random() < 0.5,
            "road": {"name": f"A{draw.randrange(99)}", "lanes": draw.randrange(1, 5)},
            "note": draw.choice(["on the left lane", "two cars", "slow", "at exit 12, both lanes"]),
            "id": draw.randrange(1_000_000),
        }
        if shape == "unicode":
            body["kind"] = draw.choice(["jam", "Nebel", "Straßenglätte", "дождь"])
        if shape == "missing":
            body = {name: value for name, value in body.items() if draw.random() < 0.8}
        if shape == "shuffled":
            body = dict(draw.sample(list(body.items()), len(body)))
        if draw.random() < 0.02:
            body["tags"] = ["night", "rain"]
        separators = (", ", ": ") if shape == "spaced" else (",", ":")
        texts.append(json.dumps(body, ensure_ascii=False, separators=separators).encode())
    return texts


def batch_section(rounds: int = 9, count: int = DOCUMENTS) -> dict[str, Any]:
    """Milliseconds for all bodies, the best of interleaved rounds: the loop and the batch."""
    outcome: dict[str, Any] = {"documents": count, "comparisons": {}, "others": {}, "shapes": {}}
    texts = bodies("same", count)
    outcome["bytes"] = sum(map(len, texts)) / count
    for group, conditions in (("comparisons", COMPARISONS), ("others", OTHERS)):
        for name, condition in conditions.items():
            outcome[group][name] = _measured(name, condition, texts, rounds)
    for name, shape in SHAPES.items():
        texts = bodies(shape, count)
        outcome["shapes"][name] = _measured(name, COMPARISONS["three fields"], texts, rounds)
    return outcome


def _measured(
    name: str, document: dict[str, Any], texts: list[bytes], rounds: int
) -> dict[str, Any]:
    condition = parse(document)
    matches, decode = condition.matches, msgspec.json.decode
    array = pa.array(texts, pa.binary())

    def loop() -> list[bool]:
        return [matches(decode(text)) for text in texts]

    def batch() -> Any:
        return matching(condition, array)

    right = loop() == batch().tolist()
    best = {"loop": float("inf"), "batch": float("inf")}
    for _ in range(rounds):
        best["loop"] = min(best["loop"], _time_ms(loop))
        for _ in range(3):
            best["batch"] = min(best["batch"], _time_ms(batch))
    times = best["loop"] / best["batch"]
    say(
        f"{name:32}  loop {best['loop']:7.1f} ms  batch {best['batch']:6.2f} ms  {times:5.1f}x"
        + ("" if right else "  DIFFERENT ANSWERS")
    )
    share = sum(batch().tolist()) / max(len(texts), 1)
    return {"condition": document, "ms": best, "times": times, "right": right, "share": share}


def _time_ms(call: Callable[[], Any]) -> float:
    begin = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin) / 1e6


def batch_page(data: dict[str, Any]) -> str:
    """The results as Markdown."""

    def table(group: str, head: str) -> str:
        rows = [
            [name, f"{line['ms']['loop']:.1f}", f"{line['ms']['batch']:.2f}",
             f"{line['times']:.1f}x" + ("" if line["right"] else " (other answers)")]
            for name, line in data[group].items()
        ]  # fmt: skip
        return markdown_table([head, "loop, ms", "batch, ms", "times as fast"], rows)

    times = [line["times"] for line in data["comparisons"].values()]
    return (
        f"Milliseconds for {data['documents']:,} JSON texts of {data['bytes']:.0f} bytes on "
        "average, one thread, the best of interleaved rounds. The loop is "
        "`condition.matches(msgspec.json.decode(text))` over a list of bytes; the batch is "
        "`matching(condition, array)`. Comparisons and equality: "
        f"{min(times):.1f} to {max(times):.1f} times as fast.\n\n"
        + table("comparisons", "comparisons and equality")
        + "\n"
        + table("others", "the rest")
        + "\nThe condition on three fields, on texts of other shapes:\n\n"
        + table("shapes", "texts")
    )


if __name__ == "__main__":
    print(batch_page(batch_section()))
