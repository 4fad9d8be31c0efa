"""The same experiments with windows larger than the memory they are given.

Simple and self-joining subscriptions run with `memory_mb=32` and bodies of 800 bytes, as large as
the paper's tweets, 10,000 operations a second: what is valid at one time takes two to five times
the memory, so windows are sealed to disk while they are written to and read from. The hierarchy
has few and small records, so there everything is sealed by hand every 50 operations; its windows
reach back over several hundred.

"Larger than memory" means the memory of the database. The files are in the page cache of the
machine unless that is smaller still: what is measured is the work of reading sealed components, not
a disk.
"""

from __future__ import annotations

from typing import Any

from benchmarks import experiments_hierarchy, experiments_selfjoin, experiments_simple
from benchmarks.experiments_common import Size
from benchmarks.experiments_simple import Run

__all__ = ["SEAL_EVERY", "beyond", "measure"]

RATE = 10_000
SEAL_EVERY = 50


def beyond(size: Size, sections: int, operations: int) -> Run:
    """A run whose windows do not fit the memory."""
    return Run(sections, operations, RATE, size.memory_mb, size.body_bytes)


def measure(size: Size) -> dict[str, Any]:
    """Simple, self-join and hierarchy again."""
    run = beyond(size, size.sections, size.beyond_operations)
    return {
        "simple": experiments_simple.measure(run),
        "selfjoin": experiments_selfjoin.measure(run),
        "hierarchy": experiments_hierarchy.measure(
            size.sections, size.sealed_operations, seal_every=SEAL_EVERY
        ),
    }
