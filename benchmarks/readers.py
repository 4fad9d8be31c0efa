"""What two reader threads of a collection give together, with a writer beside them and without.

    python benchmarks/readers.py [--before DIR] [--seconds S] [--rounds N] [--help]

A collection of tweets, half of them sealed; threads that get, look up (k 10), find or scan for S
seconds: one, two, and two beside a thread that puts single documents and batches of 1000. Each
round is a process of its own; with `--before`, which names another tree of this project, rounds of
the two trees take turns, because the speed of a machine drifts. The best round counts. Writes
readers.json, readers.md and readers.png to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import markdown_table, pyplot, say

TWEETS = 60_000
VERBS = ("get", "lookup", "embedded", "find", "scan")
SETTINGS = {"one": (1, False), "two": (2, False), "two, writer": (2, True)}
UNITS = {
    "get": "gets", "lookup": "lookups, lazy", "embedded": "lookups, embedded", "find": "finds",
    "scan": "rows scanned",
}  # fmt: skip


def tweet(n: int) -> dict[str, Any]:
    """The n-th tweet; its text is 100 bytes."""
    return {"id": n, "user": n * 7919 % 5000, "time": n, "place": f"p{n % 300}",
            "client": n * 104_729 % 9973, "text": "x" * 100}  # fmt: skip


def ask(tweets: Any, verb: str, rng: random.Random) -> int:
    """One question; what it counts for."""
    if verb == "get":
        tweets.get(rng.randrange(TWEETS))
    elif verb == "lookup":
        tweets.lookup("user", rng.randrange(5000), k=10)
    elif verb == "embedded":
        tweets.lookup("client", rng.randrange(9973), k=10)
    elif verb == "find":
        where = {"place": f"p{rng.randrange(300)}", "time": {"$gte": rng.randrange(TWEETS)}}
        tweets.find(where, limit=10)
    else:
        low = rng.randrange(TWEETS // 2)
        return sum(batch.num_rows for batch in tweets.scan(low=low, high=low + TWEETS // 4))
    return 1


def run(tweets: Any, verb: str, readers: int, writes: bool, seconds: float) -> dict[str, float]:
    """Questions and rows written a second, by all threads together."""
    stop, counts = threading.Event(), [0] * (readers + 1)

    def thread(number: int, step: Callable[[random.Random], int]) -> None:
        rng = random.Random(number)
        while not stop.is_set():
            counts[number] += step(rng)

    def write(rng: random.Random) -> int:
        for _ in range(20):
            tweets.put(tweet(rng.randrange(TWEETS)))
        tweets.put_many([tweet(rng.randrange(TWEETS)) for _ in range(1000)])
        return 1020

    threads = [
        threading.Thread(target=thread, args=(n + 1, lambda rng: ask(tweets, verb, rng)))
        for n in range(readers)
    ]
    if writes:
        threads.append(threading.Thread(target=thread, args=(0, write)))
    begun = time.perf_counter()
    for one in threads:
        one.start()
    time.sleep(seconds)
    read, written = sum(counts[1:]), counts[0]
    spent = time.perf_counter() - begun
    stop.set()
    for one in threads:
        one.join()
    return {"read": read / spent, "written": written / spent}


def measure(seconds: float) -> dict[str, Any]:
    """All verbs in all settings, once."""
    import tideline

    found: dict[str, Any] = {}
    with common.scratch() as folder, tideline.open(folder / "db", memory_mb=256) as db:
        indexes = {"user": "lazy", "place": "composite", "time": "embedded",
                   "client": "embedded"}  # fmt: skip
        tweets = db.collection("tweets", key="id", indexes=indexes)
        tweets.put_many([tweet(n) for n in range(TWEETS // 2)])
        tweets._engine.seal()
        tweets.put_many([tweet(n) for n in range(TWEETS // 2, TWEETS)])
        for verb in VERBS:
            run(tweets, verb, 1, False, 0.1)  # whatever has to be made ready is
            for name, (readers, writes) in SETTINGS.items():
                found[f"{verb}, {name}"] = run(tweets, verb, readers, writes, seconds)
    return found


def rounds(trees: dict[str, Path], count: int, seconds: float) -> dict[str, Any]:
    """The best of some rounds of each tree, which take turns."""
    best: dict[str, Any] = {name: {} for name in trees}
    for number in range(count):
        for name in list(trees) if number % 2 else list(reversed(trees)):
            command = [sys.executable, __file__, "--once", "--seconds", str(seconds)]
            done = subprocess.run(
                command, env={**os.environ, "PYTHONPATH": str(trees[name] / "src")},
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            for cell, figures in json.loads(done.stdout).items():
                had = best[name].get(cell)
                if had is None or figures["read"] > had["read"]:
                    best[name][cell] = figures
            say(f"round {number + 1} of {count}: {name}")
    return best


def write(results: common.Results) -> Path:
    """The page of results."""
    part = results.parts["readers"]
    data, facts = part["data"], part["facts"]
    lines = []
    for verb in VERBS:
        for name in SETTINGS:
            row = [f"{UNITS[verb]}, {name}"]
            cells = [data["trees"][tree][f"{verb}, {name}"] for tree in data["trees"]]
            row += [f"{cell['read']:,.0f}" for cell in cells]
            if len(cells) == 2:
                row.append(f"{cells[1]['read'] / cells[0]['read']:.2f}")
            row += [f"{cell['written']:,.0f}" if cell["written"] else "" for cell in cells]
            lines.append(row)
    names = list(data["trees"])
    head = ["a second, all readers", *names, *(["times"] if len(names) == 2 else []),
            *(f"rows written, {name}" for name in names)]  # fmt: skip
    text = (
        "# Readers beside a writer\n\nWritten by `python benchmarks/readers.py`.\n\n"
        f"{TWEETS:,} tweets, half of them sealed; indexes: lazy, composite, embedded. Threads of"
        f" one process ask for {data['seconds']} s: one, two, and two beside a thread that writes."
        f" The best of {data['rounds']} rounds"
        + (", the trees by turns" if len(names) == 2 else "")
        + ". Python runs one thread at a time; only kernels, Arrow and the system run beside each"
        " other, so two threads that mostly run Python give together what one does.\n\n"
        + markdown_table(head, lines)
        + "\n![Questions a second](readers.png)\n"
        + f"\n{facts['cpu']}, {facts['cores']} cores; {part['date']}, commit {part['commit']}.\n"
    )
    path = results.folder / "readers.md"
    path.write_text(text, encoding="utf-8")
    _plot(data["trees"], results.folder / "readers.png")
    return path


def _plot(trees: dict[str, Any], path: Path) -> None:
    plt = pyplot()
    figure, axes = plt.subplots(1, len(VERBS), figsize=(12, 3), layout="constrained")
    width = 0.8 / len(trees)
    for each, verb in zip(axes, VERBS, strict=True):
        for number, (tree, cells) in enumerate(trees.items()):
            places = [n + number * width for n in range(len(SETTINGS))]
            each.bar(places, [cells[f"{verb}, {name}"]["read"] for name in SETTINGS], width,
                     label=tree)  # fmt: skip
        each.set_xticks([n + 0.4 - width / 2 for n in range(len(SETTINGS))],
                        ["one", "two", "two,\nwriter"])  # fmt: skip
        each.set_title(f"{UNITS[verb]} a second", fontsize=9)
    axes[0].legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="a tree of this project to compare with")
    parser.add_argument("--seconds", type=float, default=0.7, help="of a setting (default 0.7)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", action="store_true", help="one round, as JSON")
    parser.add_argument("--out", type=Path, default=common.RESULTS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measure(options.seconds)))
        return
    trees = {"before": options.before.resolve()} if options.before else {}
    trees["after" if trees else "now"] = common.ROOT
    found = rounds(trees, options.rounds, options.seconds)
    results = common.Results(options.out, "readers")
    results.put("readers", {"trees": found, "seconds": options.seconds, "rounds": options.rounds})
    say(f"wrote {write(results)}")


if __name__ == "__main__":
    main()
