"""What one `match` is told, as a small value that travels to the workers and into the state.

    buckets   by place [0, n), and when wide events are possible by user [n, 2n)
    labels    the number that stands for each bucket in Spark's key column

Spark puts a key into one of P partitions by its hash. The labels are chosen so that bucket i
lands in partition i modulo P for every P that divides the next power of two: no partition
gets three buckets while another gets thirteen. They depend on nothing but the number of
buckets, so a restart finds its state.

Pure values; safe from any thread.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tideline.errors import InvalidRequest
from tideline.space import CELLS, TOPICS, QuadTree, Space, space_from_spec

__all__ = ["BUCKETS_LIMIT", "REJECTED", "Settings", "levels_of", "settings_of"]

BUCKETS_LIMIT = 4096
REJECTED = ("fail", "keep", "drop")
BAD = -1
"""The label under which rejected rows travel."""

_TREE_LEVELS = 6  # of a map that routing looks at: 4,096 tiles


@dataclass(frozen=True)
class Settings:
    """How rows are routed and what state must remember."""

    space_json: str
    buckets: int
    levels: int
    wide: bool
    """Whether an event may be in several buckets."""
    unseen: bool
    """Whether a subscription may be `unseen`: then expired ones must be remembered."""
    rejected: str = "fail"
    memory_mb: int = 512
    cached: bool = True
    """Whether workers keep buckets in memory between micro-batches."""

    @cached_property
    def space(self) -> Space:
        return space_from_spec(json.loads(self.space_json))

    @property
    def tree(self) -> tuple[float, float, float, float, int, int, int]:
        """Bounds, columns, rows and depth of the tree of cells, for kernels."""
        found: tuple[float, float, float, float, int, int, int] | None
        found = getattr(self.space, "_tree", None)
        return (0.0, 0.0, 1.0, 1.0, 1, 1, 0) if found is None else found

    @property
    def fixed(self) -> str:
        """What a checkpoint was made with and must stay: where rows are, and which are kept."""
        names = ("space_json", "buckets", "levels", "wide", "unseen")
        return json.dumps({name: getattr(self, name) for name in names}, sort_keys=True)

    @cached_property
    def labels(self) -> list[int]:
        """The number that stands for each bucket."""
        count = self.buckets * (2 if self.wide else 1)
        return labels(count)


def settings_of(
    space: Space, *, buckets: int, levels: int | None, wide: bool, unseen: bool, rejected: str,
    memory_mb: int, cached: bool = True,
) -> Settings:  # fmt: skip
    """Checked settings."""
    if not (hasattr(space, "spec") and hasattr(space, "encode_many")):
        raise InvalidRequest("space must be Flat, Topics, Grid or QuadTree", space=space)
    if isinstance(buckets, bool) or not isinstance(buckets, int):
        raise InvalidRequest("buckets must be a whole number", buckets=buckets)
    if not 1 <= buckets <= BUCKETS_LIMIT:
        raise InvalidRequest(f"buckets must be 1 to {BUCKETS_LIMIT}", buckets=buckets)
    if rejected not in REJECTED:
        raise InvalidRequest(f"rejected must be one of {', '.join(REJECTED)}", rejected=rejected)
    if isinstance(memory_mb, bool) or not isinstance(memory_mb, int) or memory_mb < 16:
        raise InvalidRequest("memory_mb must be a whole number from 16 on", memory_mb=memory_mb)
    return Settings(
        json.dumps(space.spec(), sort_keys=True), buckets, levels_of(space, levels), wide, unseen,
        rejected, memory_mb, cached,
    )  # fmt: skip


def levels_of(space: Space, levels: int | None) -> int:
    """How many levels of the space's tree say which bucket a place is in.

    >>> from tideline import Topics
    >>> levels_of(Topics(), None), levels_of(QuadTree((0, 0, 8, 8), depth=3), None)
    (1, 3)
    """
    tree: tuple[Any, ...] | None = getattr(space, "_tree", None)
    deepest = tree[-1] if tree is not None else 32 if space.mode == TOPICS else 0
    if levels is None:
        return min(_TREE_LEVELS, deepest) if space.mode == CELLS else min(1, deepest)
    if isinstance(levels, bool) or not isinstance(levels, int):
        raise InvalidRequest("levels must be a whole number", levels=levels)
    if space.mode not in (CELLS, TOPICS):
        raise InvalidRequest("levels is for spaces with a tree: a flat one has none", levels=levels)
    if not 1 <= levels <= max(deepest, 1):
        raise InvalidRequest(f"levels must be 1 to {deepest} in this space", levels=levels)
    return min(levels, deepest)


def may_be_wide(space: Space, columns: list[str], levels: int) -> bool:
    """Whether an event with these columns can be in several buckets at once.

    >>> from tideline import Flat
    >>> may_be_wide(Flat(), ["id", "place", "at"], 0)
    False
    >>> may_be_wide(QuadTree((0, 0, 8, 8), depth=3), ["id", "lon", "lat", "at"], 3)
    False
    """
    if space.mode == TOPICS:
        return levels > 1
    if space.mode != CELLS:
        return False
    # A cell of a grid is a leaf; a quad path may stop anywhere.
    return "radius_m" in columns or ("place" in columns and isinstance(space, QuadTree))


# ---- labels ---------------------------------------------------------------------------------


def labels(count: int) -> list[int]:
    """A label for each of `count` buckets; see the module's docstring.

    >>> labels(4)
    [12, 6, 2, 0]
    """
    parts = 1 << (count - 1).bit_length()
    found: dict[int, int] = {}
    label = 0
    while len(found) < parts:
        found.setdefault(spark_hash(label) % parts, label)
        label += 1
    return [found[bucket] for bucket in range(count)]


def spark_hash(value: int) -> int:
    """What Spark's `hash` gives for an int: Murmur 3 of four bytes with the seed 42.

    >>> spark_hash(0), spark_hash(7)
    (933211791, 1079293707)
    """
    word = value & 0xFFFFFFFF
    word = word * 0xCC9E2D51 & 0xFFFFFFFF
    word = (word << 15 | word >> 17) & 0xFFFFFFFF
    word = word * 0x1B873593 & 0xFFFFFFFF
    h = 42 ^ word
    h = (h << 13 | h >> 19) & 0xFFFFFFFF
    h = (h * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    h ^= h >> 16
    h = h * 0x85EBCA6B & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h
