"""Tideline on Spark: data in, matching, history and workloads at scale.

    session()    a Spark session set up for Tideline, with the format `tideline` registered
    register(s)  the format `tideline` in a session of your own
    share(db)    let Spark's workers use a database that this process has open
    bulk_load    a frame into a collection, as finished files
    Pipeline     any source of Spark's, cleaned and placed, into a channel
    match        subscriptions and events that outgrow one machine
    panes        the panes of a stream window, computed by Spark itself; `latest`: its newest rows
    watch        live queries and writes that outgrow one machine
    aggregate    counts of events on a grid; `heatmap` draws them
    tweets       a workload of any size

Needs `pip install 'tideline[spark]'` and Java 17 or newer. Importing this package needs
neither: each name is loaded when it is first asked for.

>>> import tideline.spark
>>> "session" in dir(tideline.spark)
True
"""

from __future__ import annotations

import typing as _typing

# Loaded at once, for it bears the name of its module: whoever imports the module later must
# not put it in the function's place. It imports nothing that is slow to load.
from tideline.spark.session import register, session

if _typing.TYPE_CHECKING:
    from tideline.heatmap.picture import heatmap
    from tideline.spark.aggregation import aggregate
    from tideline.spark.bulk import bulk_load
    from tideline.spark.gate import Gate, share
    from tideline.spark.matching.match import match
    from tideline.spark.pipeline import Pipeline
    from tideline.spark.watching import watch
    from tideline.spark.windows import latest, panes
    from tideline.spark.workload import tweets

__all__ = [
    "Gate", "Pipeline", "aggregate", "bulk_load", "heatmap", "latest", "match", "panes", "register",
    "session", "share", "tweets", "watch",
]  # fmt: skip

_LATE = {
    "Gate": ".gate",
    "Pipeline": ".pipeline",
    "aggregate": ".aggregation",
    "bulk_load": ".bulk",
    "heatmap": "..heatmap.picture",
    "latest": ".windows",
    "match": ".matching.match",
    "panes": ".windows",
    "share": ".gate",
    "tweets": ".workload",
    "watch": ".watching",
}


def __getattr__(name: str) -> _typing.Any:
    if name in _LATE:
        import importlib

        try:
            module = importlib.import_module(_LATE[name], __name__)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyspark":
                raise
            from tideline.errors import Unavailable

            needed = f"{name} needs pyspark: pip install 'tideline[spark]'"
            raise Unavailable(needed, error=str(error)) from None
        value = getattr(module, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tideline.spark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
