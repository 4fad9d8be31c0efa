"""A hierarchy: variable against fixed granularity, for cells of all levels and for circles.

The paper's figures 14 to 17. The tree is a quad tree of depth 5 over New York State: 1,024 leaves.
As many subscriptions as events.

    levels    an operation is on a cell of level 1 to 5; a level is half as frequent as that below
    circles   an operation is on a circle of radius 4R to R/4, R the side of a leaf

    variable  one operation on one cell; circles on the smallest cell that holds them whole
    fixed     one operation on each leaf the cell or circle covers, in a space of flat keys
    exact     circles only: Tideline's own circles in a `QuadTree`, which tell true from near

With levels, fixed and variable must find the same pairs once each pair counts once. With circles
they must not: of two circles whose cells meet not all share a leaf, and of two that share a leaf
not all meet. So exact is within fixed and fixed within variable, and that is what is checked.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import common
from benchmarks.common import say
from benchmarks.experiments_common import (
    Called,
    Numbers,
    Rows,
    Store,
    median_ratio,
    pairs_of,
    turns,
)
from tideline.space import QuadTree, Topics
from tideline.space.shapes import Circle
from tideline.workload.hierarchy import RADII, Circles, Levels
from tideline.workload.shape import new_york

__all__ = ["RATE", "WAYS", "measure"]

RATE = 20
WAYS = {"levels": ("variable", "fixed"), "circles": ("variable", "fixed", "exact")}
VERBS = ("all", "subscribe", "publish")


def measure(sections: int, operations: int, *, seal_every: int | None = None) -> dict[str, Any]:
    """Levels and circles; microseconds an operation in every section, and by level or radius.

    With `seal_every`, everything is sealed after so many operations, and only single calls run.
    """
    shape = new_york().with_rate(RATE)
    works: dict[str, Any] = {
        "levels": Levels(seed=7, shape=shape),
        "circles": Circles(seed=7, shape=shape),
    }
    found: dict[str, Any] = {"run": {"rate": RATE, "sections": sections, "operations": operations}}
    for what, work in works.items():
        found[what] = {"verbs": _verbs(what, work, sections, operations, seal_every)}
        if seal_every is None:
            found[what]["overall"] = _overall(what, work, sections, operations)
    return found


def _stores(
    what: str, work: Any, folder: Any, stack: ExitStack, seal_every: int | None = None
) -> dict[str, Store]:
    tree = QuadTree(bounds=work.shape.grid.bounds, depth=work.depth)
    spaces = {"variable": Topics(), "fixed": None, "exact": tree}
    stores = {}
    for way in WAYS[what]:
        stores[way] = Store(
            folder / way, "dual", work.start_us, space=spaces[way], seal_every=seal_every
        )
        stack.callback(stores[way].close)
    return stores


def _table(work: Any, way: str, first: int, count: int) -> pa.RecordBatch:
    """The operations of a section as a way does them."""
    if way == "fixed":
        return work.fixed(first, count)
    table = work.batch(first, count)
    if way == "variable":
        return table
    lon, lat, radius_m = work.circles(np.arange(first, first + count))
    columns = {name: table[name] for name in table.schema.names if name != "place"}
    return pa.RecordBatch.from_pydict(columns | {"lon": lon, "lat": lat, "radius_m": radius_m})


def _overall(what: str, work: Any, sections: int, operations: int) -> dict[str, Any]:
    """Through `Channel.apply`; fixed gives it all copies as rows."""
    ways = WAYS[what]
    spent_us: dict[str, list[float]] = {way: [] for way in ways}
    checks = _Checks(what)
    copies = 0
    with common.scratch() as folder, ExitStack() as stack:
        stores = _stores(what, work, folder, stack)
        for section in range(sections):
            found = {}
            for way in turns(ways, section):
                table = _table(work, way, section * operations, operations)
                copies += table.num_rows if way == "fixed" else 0
                spent_s, answers = stores[way].apply(table)
                spent_us[way].append(spent_s * 1e6 / operations)
                found[way] = pairs_of(answers)
            checks.see(found)
            each = "  ".join(f"{way} {values[-1]:.1f}" for way, values in spent_us.items())
            say(f"{what} apply {section + 1}: us an operation: {each}")
    every = sections * operations
    return {
        "us": spent_us,
        "fixed_to_variable": median_ratio(spent_us["fixed"], spent_us["variable"]),
        "copies_per_operation": copies / every,
        "answers_per_operation": {way: count / every for way, count in checks.given.items()},
        "pairs_per_operation": {way: count / every for way, count in checks.pairs.items()},
        "as_they_must": checks.right,
    }


def _verbs(
    what: str, work: Any, sections: int, operations: int, seal_every: int | None
) -> dict[str, Any]:
    """Through single calls; an operation of fixed is all its copies."""
    ways = WAYS[what]
    called: dict[str, list[Called]] = {way: [] for way in ways}
    checks = _Checks(what)
    groups = []
    with common.scratch() as folder, ExitStack() as stack:
        stores = _stores(what, work, folder, stack, seal_every)
        for section in range(sections):
            numbers = np.arange(section * operations, (section + 1) * operations)
            groups.append(work.levels(numbers) if what == "levels" else work.sizes(numbers))
            found = {}
            for way in turns(ways, section):
                one = _call(stores[way], work, way, numbers)
                called[way].append(one)
                found[way] = (one.subscriptions, one.events)
            checks.see(found)
            each = "  ".join(f"{way} {runs[-1].mean_us('all'):.1f}" for way, runs in called.items())
            say(f"{what} calls {section + 1}: us an operation: {each}")
        components = {way: store.channel.stats().components for way, store in stores.items()}
    us = {
        verb: {way: [one.mean_us(verb) for one in runs] for way, runs in called.items()}
        for verb in VERBS
    }
    return {
        "us": us,
        "fixed_to_variable": {
            verb: median_ratio(us[verb]["fixed"], us[verb]["variable"]) for verb in VERBS
        },
        "by": _by(what, called, np.concatenate(groups)),
        "components": components,
        "as_they_must": checks.right,
    }


def _call(store: Store, work: Any, way: str, numbers: Numbers) -> Called:
    first, count = int(numbers[0]), len(numbers)
    if way == "exact":
        lon, lat, radius_m = (side.tolist() for side in work.circles(numbers))
        places = [
            Circle(point, r) for point, r in zip(zip(lon, lat, strict=True), radius_m, strict=True)
        ]
        return store.call(Rows.of(work.batch(first, count), places))
    done = store.call(Rows.of(_table(work, way, first, count)))
    if way == "fixed":
        owner = work.leaves(numbers)[0]
        spent = np.zeros(count, np.int64)
        np.add.at(spent, owner, done.spent_ns)
        publish = np.zeros(count, bool)
        publish[owner] = done.publish
        done.spent_ns, done.publish = spent, publish
    return done


def _by(what: str, called: dict[str, list[Called]], group: Numbers) -> list[dict[str, Any]]:
    """Microseconds an operation, by level or by radius."""
    found = []
    for one in np.unique(group).tolist():
        us = {}
        for way, runs in called.items():
            spent = np.concatenate([run.spent_ns for run in runs]) / 1000
            publish = np.concatenate([run.publish for run in runs])
            us[way] = {
                "all": _mean(spent[group == one]),
                "subscribe": _mean(spent[(group == one) & ~publish]),
                "publish": _mean(spent[(group == one) & publish]),
            }
        name = {"level": one} if what == "levels" else {"radius": RADII[one]}
        found.append(name | {"operations": int((group == one).sum()), "us": us})
    return found


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0


class _Checks:
    """Whether the ways' answers are to each other as they must be."""

    def __init__(self, what: str) -> None:
        self.right = True
        self.given = dict.fromkeys(WAYS[what], 0)
        self.pairs = dict.fromkeys(WAYS[what], 0)

    def see(self, found: dict[str, tuple[Numbers, Numbers]]) -> None:
        """Compare the answers of a section."""
        packed = {}
        for way, (subscriptions, events) in found.items():
            packed[way] = np.unique(subscriptions << 32 | events)
            self.given[way] += len(subscriptions)
            self.pairs[way] += len(packed[way])
        if "exact" not in found:
            self.right &= np.array_equal(packed["fixed"], packed["variable"])
        else:
            self.right &= bool(np.isin(packed["exact"], packed["fixed"]).all())
            self.right &= bool(np.isin(packed["fixed"], packed["variable"]).all())
        # One operation answers each pair once; only copies may answer it again.
        self.right &= all(len(packed[way]) == len(found[way][0]) for way in found if way != "fixed")
