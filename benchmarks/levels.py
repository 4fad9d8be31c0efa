"""Components of places kept apart by space, beside components stacked by age.

    python benchmarks/levels.py [--size tiny|small|full] [--rounds N] [--help]

Thesis 001, 5.4: how often a byte of the index is written while it grows (figure 5.3), how many
components a box touches, and how long it takes by selectivity (figure 5.4). Leveled components
are cut by sort-tile-recursive (`str`) or along the z-curve (`z`), and a level that is too large
gives the component with the fewest in its way to the next (`best`) or the next one round the curve
(`round-robin`); `prefix` and `none` stack them. A box is asked of the index alone, which gives
positions, as in the thesis; and counted by the collection, which looks up every candidate among its
documents. Their policy is the same: leveled documents are apart by key. Points are made up
(workload/clusters.py). Answers are compared. Writes benchmarks/results/levels.json, .md and .png.
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

import tideline
from benchmarks import common, pages
from benchmarks.common import markdown_table, say
from benchmarks.pages import Plot, by_turns, check_same
from tideline.index.spatialview import SpatialAsk
from tideline.where.tree import Inside
from tideline.workload.clusters import Clusters

SIZES = {"tiny": (4_000, 16, 3), "small": (400_000, 64, 40), "full": (4_000_000, 256, 200)}
SHARES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # of the points that a box holds
_ENTRY_BYTES = 45  # of a point in a component, about


def policies(count: int, seals: int) -> dict[str, Any]:
    """Levels and stacks, by the size of what is sealed at once."""
    sealed = count * _ENTRY_BYTES // seals
    leveled = {
        "name": "leveled", "first_bytes": 4 * sealed, "ratio": 4, "max_count": 2,
        "piece_bytes": sealed,
    }  # fmt: skip
    made: dict[str, Any] = {
        "none": "none",
        "prefix": {"name": "prefix", "max_bytes": 16 * sealed, "max_count": 5},
    }
    for partition in ("str", "z"):
        for pick in ("best", "round-robin"):
            made[f"leveled {partition} {pick}"] = {**leveled, "partition": partition, "pick": pick}
    return made


def measure(size: str, rounds: int) -> dict[str, Any]:
    """Fill a collection for each policy, then ask all of them."""
    count, seals, number = SIZES[size]
    clusters = Clusters(seed=9)
    lon, lat = clusters.points(0, count)
    outcome: dict[str, Any] = {"points": count, "seals": seals, "rows": {}}
    with common.scratch() as folder, tideline.open(folder / "data", memory_mb=256) as db:
        made = {}
        for name, policy in policies(count, seals).items():
            begun = time.perf_counter()
            docs = db.collection(
                f"c{len(made)}", key="id", indexes={"at": "spatial"}, policy=policy
            )
            grown = []
            for rows in np.array_split(np.arange(count), seals):
                docs.put_many([f'{{"id":{n},"at":[{lon[n]},{lat[n]}]}}' for n in rows.tolist()])
                docs._engine.seal()
                [index] = docs.stats().indexes
                grown.append([int(rows[-1]) + 1, index.write_amplification])
            made[name] = docs
            took = time.perf_counter() - begun
            outcome["rows"][name] = {
                "amplification": grown[:: max(seals // 16, 1)] + grown[-1:], "boxes": {},
                "documents": docs.stats().write_amplification, "components": index.components,
                "of_documents": docs.stats().components - index.components, "fill_s": took,
            }  # fmt: skip
            say(f"  {name}: {took:.1f} s, written {grown[-1][1]:.1f} times")
        for share in SHARES:
            boxes = _boxes(clusters, lon, lat, share, number)
            wheres = [
                {"at": {"$geoWithin": {"$box": [[w, s], [e, n]]}}} for w, s, e, n in boxes.tolist()
            ]
            counts = []
            for where in wheres:
                found = {name: docs.count(where) for name, docs in made.items()}
                check_same(str(where), found["none"], found)
                counts.append(found["none"])
            turns = {name: [partial(d.count, w) for w in wheres] for name, d in made.items()}
            spent = by_turns(turns, rounds)
            views = {name: docs._engine.view().now[0].alone["at"] for name, docs in made.items()}
            asks = [SpatialAsk(Inside("box", tuple(box))) for box in boxes.tolist()]
            alone = by_turns(
                {name: [partial(view.hits, ask) for ask in asks] for name, view in views.items()},
                rounds,
            )
            del views
            for name, docs in made.items():
                touched = [docs.explain(w, limit=1).components[0].searched for w in wheres[:20]]
                outcome["rows"][name]["boxes"][f"{share:g}"] = {
                    "us": float(np.median(spent[name])),
                    "alone_us": float(np.median(alone[name])), "touched": float(np.mean(touched)),
                    "hits": float(np.mean(counts)),
                }  # fmt: skip
    return outcome


def _boxes(clusters: Clusters, lon: Any, lat: Any, share: float, number: int) -> Any:
    """Boxes around points, as wide as it takes to hold about that share of all."""
    draw = np.random.default_rng([9, round(1 / share)])
    made = []
    for row in draw.integers(len(lon), size=number).tolist():
        # The share of the points within some distance in the larger of the two directions.
        far = np.maximum(np.abs(lon - lon[row]), np.abs(lat - lat[row]))
        wide = float(np.partition(far, int(share * len(far)))[int(share * len(far))])
        x, y = lon[row], lat[row]
        made.append([x - wide, y - wide, x + wide, y + wide])
    return np.array(made)


# ---- the page ------------------------------------------------------------------------------------


def table(data: dict[str, Any]) -> str:
    """What writing cost, and what boxes do."""
    rows = [
        [
            name, f"{row['amplification'][-1][1]:.1f}", f"{row['documents']:.1f}",
            str(row["components"]), str(row["of_documents"]), f"{row['fill_s']:.1f}",
        ]
        for name, row in data["rows"].items()
    ]  # fmt: skip
    head = ["", "a byte of the index is written", "of documents", "components", "of documents"]
    head.append("fill, s")
    text = f"## Writing (figure 5.3): {data['points']:,} points, {data['seals']} seals\n\n"
    text += markdown_table(head, rows)
    base = data["rows"]["prefix"]["boxes"]
    for title, key in (("the index alone", "alone_us"), ("counted by the collection", "us")):
        rows = []
        for name, row in data["rows"].items():
            cells = []
            for share, cell in row["boxes"].items():
                ratio = cell[key] / base[share][key]
                cells.append(f"{cell[key]:,.0f} ({ratio:.2f}x, {cell['touched']:.1f})")
            rows.append([name, *cells])
        head = ["median us (to prefix, components touched)"]
        head += [f"{cell['hits']:,.0f} hits" for cell in base.values()]
        text += f"\n## Boxes (figure 5.4), {title}\n\n" + markdown_table(head, rows)
    return text


def plots(parts: dict[str, Any]) -> list[Plot]:
    """Figures 5.3 and 5.4."""
    rows = parts["levels"]["rows"]
    grown = {name: row["amplification"] for name, row in rows.items()}
    asked = {
        name: [(cell["hits"], cell["alone_us"]) for cell in row["boxes"].values()]
        for name, row in rows.items()
    }
    return [
        Plot("written (5.3)", "points", "times a byte is written", grown, log_up=False),
        Plot("boxes, index alone (5.4)", "points in a box", "median us", asked, log_across=True),
    ]


def main(arguments: list[str] | None = None) -> None:
    """Run it and write the results."""
    options = common.parser(__doc__, sizes=SIZES, rounds=2).parse_args(arguments)
    results = common.Results(options.results, "levels")
    measured = measure(options.size, options.rounds)
    results.put("levels", {**measured, "size": options.size})
    about = (
        "Written by `python benchmarks/levels.py`, whose head says what is compared. The points "
        "are made up; a box is around one of them."
    )
    title = "Components apart by space"
    for path in pages.write(results, "levels", title, about, {"levels": table}, plots):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
