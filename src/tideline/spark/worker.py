"""What Spark's Python workers need to stay quick.

A worker is a process that runs task after task, and Spark collects its garbage after each.
That looks at every object there is: 130,000 of loaded modules, 35 to 48 ms each time were
seen. Once the modules of a kind of work are loaded they never go, so they are
taken out of the collector's sight.
"""

from __future__ import annotations

import gc

__all__ = ["settle"]

_settled: set[str] = set()


def settle(work: str) -> None:
    """Call it when a kind of work has been done; the first time, what it loaded is settled.

    >>> settle("examples")
    >>> gc.get_freeze_count() > 0
    True
    >>> gc.unfreeze()
    """
    if work not in _settled:
        _settled.add(work)
        gc.collect()
        gc.freeze()
