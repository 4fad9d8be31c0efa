"""Stream windows beside Judy, SQLite and sorted containers: insert, get, range, memory, deletion.

    python benchmarks/windows.py [--size small|full] [--help]

Two questions. *The index*: 32-bit keys with 32-bit values, random and as Linear Road packs them
(the expressway, direction, segment and car), go into one sub-window in batches of 65,536 and are
sealed; Judy (`libjudy-dev`, through windows_judy.c) takes them one by one in C, as the study has
it. *The verbs*: rows through `append` with the log on,
and what an append costs that slides over a full sub-window. All in one run, by turns; the figures
that count are ratios. Writes windows.json and windows.md to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import markdown_table, say

SIZES = {"small": (1_000_000, 4_000_000), "full": (1_000_000, 4_000_000, 15_000_000)}
BATCH = 65_536
ASKED, RANGES = 50_000, 100
HERE = Path(__file__).resolve().parent
KEY = {"x": (0, 15), "d": (0, 1), "s": (0, 99), "vid": (0, (1 << 20) - 1)}


def random_keys(count: int, rng: Any) -> Any:
    """Different keys from all of 32 bits."""
    keys = np.unique(rng.integers(0, 1 << 32, int(count * 1.02), dtype=np.uint32))
    return rng.permutation(keys)[:count]


def road_keys(count: int, rng: Any) -> Any:
    """Different keys of position reports: cars that drive on, on four expressways, by time."""
    cars = count // 8
    base = rng.integers(0, 4, cars) << 28 | rng.integers(0, 2, cars) << 27
    segment = rng.integers(0, 92, cars)
    vid = np.arange(cars) & ((1 << 20) - 1)
    parts = [base | (segment + step) << 20 | vid for step in range(8)]
    return np.concatenate(parts).astype(np.uint32)[:count]


def ranges_of(keys: Any, kind: str, rng: Any) -> Any:
    """First and last key of each range: a tenth of all, or one segment of one direction."""
    if kind == "random":
        first = rng.integers(0, 9 << 32 - 4, RANGES // 20, dtype=np.uint64)
        return np.stack([first, first + ((1 << 32) // 10)], axis=1).astype(np.uint32)
    places = rng.choice(keys, RANGES) >> 20
    return np.stack([places << 20, (places << 20) + ((1 << 20) - 1)], axis=1).astype(np.uint32)


def judy(folder: Path) -> Path | None:
    """The program beside us, built; None without a compiler or Judy."""
    program = folder / "windows_judy"
    try:
        subprocess.run(
            ["cc", "-O3", "-o", str(program), str(HERE / "windows_judy.c"), "-lJudy"],
            check=True, capture_output=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        say("no Judy: apt-get install libjudy-dev")
        return None
    return program


def of_judy(program: Path, folder: Path, keys: Any, asked: Any, ranges: Any) -> dict[str, float]:
    path = folder / "keys.bin"
    np.concatenate([keys, asked, ranges.ravel()]).astype(np.uint32).tofile(path)
    args = [str(program), str(path), *map(str, (len(keys), len(asked), len(ranges)))]
    done = subprocess.run(args, check=True, capture_output=True, text=True)
    insert, get, range_ns, delete, size, total = done.stdout.split()
    return {"insert": float(insert), "get": float(get), "range": float(range_ns),
            "delete": float(delete), "bytes": float(size), "sum": int(total)}  # fmt: skip


def of_window(keys: Any, asked: Any, ranges: Any) -> dict[str, float]:
    """Our index: one sub-window, in batches, sealed."""
    from tideline.index.keyruns import join_runs
    from tideline.index.packed import Packed
    from tideline.stream.mappers import mapper_of
    from tideline.stream.memory import Sub, grown
    from tideline.stream.reading import Where
    from tideline.stream.settings import given
    from tideline.stream.sliding import folded

    settings = given("b", [], {"span_s": 60, "key": {"k": (0, (1 << 32) - 1)},
                               "values": {"v": "int32"}})  # fmt: skip
    codec = Packed([(0, (1 << 32) - 1)])
    values = (np.arange(len(keys)) & 127).astype(np.int32)
    sub = Sub(0)
    begun = time.perf_counter()
    for at in range(0, len(keys), BATCH):
        some = keys[at : at + BATCH]
        sub = grown(sub, codec, some, [values[at : at + BATCH]], at, 1, last=True)
    sub = sub.flushed(codec, last=True)
    run = join_runs(sub.runs, codec, last=True)
    insert = time.perf_counter() - begun
    run.find(asked[:1])  # the directory is made at the first search
    begun = time.perf_counter()
    total = int(run.values[0][run.find(asked)].sum())
    get = time.perf_counter() - begun
    sealed, mapper = Sub(0, (run,)), mapper_of(["sum(v)", "count()"], settings)
    found, begun = 0, time.perf_counter()
    for first, last in ranges.tolist():
        told = mapper.result(
            folded(mapper, [sealed], Where(None, (first,), (last + 1,)), last=True)
        )
        total, found = total + told["sum(v)"], found + told["count()"]
    range_s = time.perf_counter() - begun
    return {"insert": insert / len(keys) * 1e9, "get": get / len(asked) * 1e9,
            "range": range_s / max(found, 1) * 1e9, "bytes": run.size_bytes / len(keys),
            "sum": total}  # fmt: skip


def of_sqlite(keys: Any, asked: Any, ranges: Any) -> dict[str, float]:
    import sqlite3

    rows = [(key, n & 127) for n, key in enumerate(keys.tolist())]
    with sqlite3.connect(":memory:") as db:
        db.execute("create table t (k integer primary key, v integer)")
        begun = time.perf_counter()
        db.executemany("insert into t values (?, ?)", rows)
        insert = time.perf_counter() - begun
        begun = time.perf_counter()
        for key in asked.tolist():
            db.execute("select v from t where k = ?", (key,)).fetchone()
        get = time.perf_counter() - begun
        found, begun = 0, time.perf_counter()
        for pair in ranges.tolist():
            found += db.execute(
                "select sum(v), count(*) from t where k between ? and ?", pair
            ).fetchone()[1]
        range_s = time.perf_counter() - begun
        begun = time.perf_counter()
        db.execute("delete from t where k >= 0 and v >= 0")
        delete = time.perf_counter() - begun
    db.close()
    count = len(keys)
    return {"insert": insert / count * 1e9, "get": get / len(asked) * 1e9,
            "range": range_s / max(found, 1) * 1e9, "delete": delete / count * 1e9}  # fmt: skip


def of_sorted(keys: Any, asked: Any, ranges: Any) -> dict[str, float]:
    from sortedcontainers import SortedDict

    made: Any = SortedDict()
    listed = keys.tolist()
    begun = time.perf_counter()
    for n, key in enumerate(listed):
        made[key] = n & 127
    insert = time.perf_counter() - begun
    begun = time.perf_counter()
    for key in asked.tolist():
        made[key]
    get = time.perf_counter() - begun
    found, begun = 0, time.perf_counter()
    for first, last in ranges.tolist():
        found += len([made[key] for key in made.irange(first, last)])
    range_s = time.perf_counter() - begun
    begun = time.perf_counter()
    for key in listed:
        del made[key]
    delete = time.perf_counter() - begun
    count = len(keys)
    return {"insert": insert / count * 1e9, "get": get / len(asked) * 1e9,
            "range": range_s / max(found, 1) * 1e9, "delete": delete / count * 1e9}  # fmt: skip


def verbs(rows: int) -> dict[str, float]:
    """Rows a second through `append`, log on; milliseconds of the append that slides over them."""
    import tideline
    from tideline.testing import ManualClock

    rng = np.random.default_rng(3)
    clock = ManualClock(6_000)
    with common.scratch() as folder, tideline.open(folder / "db", clock=clock) as db:
        cars = db.window("cars", span_s=120, slide_s=60, key=KEY, values={"vel": "int32"})
        keys = road_keys(rows, rng)
        columns = {"x": keys >> 28, "d": keys >> 27 & 1, "s": keys >> 20 & 127,
                   "vid": keys & ((1 << 20) - 1),
                   "vel": rng.integers(0, 100, rows, dtype=np.int32)}  # fmt: skip
        columns = {name: column.astype(np.int32) for name, column in columns.items()}
        one = {name: column[:1] for name, column in columns.items()}
        cars.append(one)
        spans, slides = [], []
        for _ in range(4):
            begun, logged, stored = time.perf_counter(), cars._engine.store.log.end, 0
            for at in range(0, rows, BATCH):
                part = {name: each[at : at + BATCH] for name, each in columns.items()}
                stored += cars.append(part).stored
            spans.append(time.perf_counter() - begun)
            # What is measured has happened: every row landed, is found, and is in the log.
            distinct = len(np.unique(keys))
            assert stored == rows, (stored, rows)
            assert cars.range(map="count()", last_s=60) == distinct
            end = cars._engine.store.log.end
            assert end.segment > logged.segment or end.offset - logged.offset >= 8 * rows
            clock.advance(60)
            cars._engine.dataset.wait_for_seals()
            begun = time.perf_counter()
            cars._engine.advance()
            slides.append(time.perf_counter() - begun)
            cars._engine.drain()
        return {"rows": rows, "rows_s": rows / float(np.median(spans)),
                "best_rows_s": rows / min(spans), "slide_ms": max(slides[1:]) * 1e3}  # fmt: skip


def measure(sizes: tuple[int, ...]) -> dict[str, Any]:
    """Everything, by turns."""
    rows: list[dict[str, Any]] = []
    with common.scratch() as folder:
        program = judy(folder)
        of_window(np.arange(BATCH, dtype=np.uint32), np.arange(9, dtype=np.uint32),
                  np.array([[0, 9]], np.uint32))  # fmt: skip
        for count in sizes:
            for kind, make in (("random", random_keys), ("road", road_keys)):
                rng = np.random.default_rng(count)
                keys = make(count, rng)
                asked, ranges = rng.choice(keys, ASKED), ranges_of(keys, kind, rng)
                ours = of_window(keys, asked, ranges)
                row = {"kind": kind, "count": count, "tideline": ours}
                if program is not None:
                    row["judy"] = of_judy(program, folder, keys, asked, ranges)
                    assert row["judy"]["sum"] == ours["sum"], (row, "they found other values")
                if count == sizes[0]:
                    part = min(count, 300_000)
                    less = keys[:part]
                    fewer, some = rng.choice(less, 5_000), ranges[:5]
                    row["sqlite"] = of_sqlite(less, fewer, some)
                    row["sortedcontainers"] = of_sorted(less, fewer, some)
                say(str(row))
                rows.append(row)
    return {"rows": rows, "verbs": [verbs(count) for count in sizes[:2]]}


def write(results: Any) -> Path:
    kept = results.parts["index"]
    part, facts = kept["data"], kept["facts"]
    lines = []
    for row in part["rows"]:
        ours = row["tideline"]
        for name in ("tideline", "judy", "sqlite", "sortedcontainers"):
            found = row.get(name)
            if found is None:
                continue
            cells = []
            for what in ("insert", "get", "range", "delete", "bytes"):
                if what not in found:
                    cells.append("with the slide" if what == "delete" and found is ours else "")
                elif found is ours or what not in ours:
                    cells.append(f"{found[what]:.1f}")
                else:
                    cells.append(f"{found[what]:.1f} ({found[what] / ours[what]:.1f}x)")
            lines.append([f"{row['kind']}, {row['count']:,}", name, *cells])
    head = ["keys", "", "insert, ns", "get, ns", "range, ns a key", "delete, ns", "bytes a key"]
    told = [[f"{v['rows']:,}", f"{v['rows_s'] / 1e6:.1f}", f"{v['best_rows_s'] / 1e6:.1f}",
             f"{v['slide_ms']:.3f}"]
            for v in part["verbs"]]  # fmt: skip
    text = (
        "# Stream windows\n\nOne sub-window as an index: 32-bit keys and values; in brackets, times"
        " of ours. SQLite and sortedcontainers have 300,000 keys.\n\n"
        + markdown_table(head, lines)
        + "\nThrough the verbs, the log on, batches of 65,536 rows of five columns; and a slide"
        " that lets go of as many. The seal that follows a slide runs beside it and is not in the"
        " rows a second; the insert above has it. Keys are the same in each minute.\n\n"
        + markdown_table(["rows", "million rows/s, median of 4", "best", "longest slide, ms"], told)
        + f"\n{facts['cpu']}, {facts['cores']} cores; {kept['date']}, commit {kept['commit']}.\n"
    )
    path: Path = results.folder / "windows.md"
    path.write_text(text, encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--out", type=Path, default=common.RESULTS)
    options = parser.parse_args()
    results = common.Results(options.out, "windows")
    results.put("index", measure(SIZES[options.size]))
    say(f"wrote {write(results)}")


if __name__ == "__main__":
    main()
