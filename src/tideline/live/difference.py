"""How one result becomes another: the changes between them, in an order to apply them in.

    ordered    a list with positions: what left goes, then from the front what is new comes, and
               what is elsewhere moves
    newest     a dict by key, oldest first, without positions

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tideline.live.item import Item
from tideline.live.remaining import Remaining
from tideline.model import LiveChange

__all__ = ["Identity", "newest", "ordered"]

Identity = Callable[[Item], Any]


def _key_of(item: Item) -> Any:
    return item.key


def ordered(
    had: Sequence[Item], now: Sequence[Item], version: int, identity: Identity = _key_of
) -> list[LiveChange]:
    """The changes from one list to another; `identity` tells which items are the same one.

    >>> a, b, c = (Item(key, b'{"n":%d}' % key) for key in (1, 2, 3))
    >>> [(each.kind, each.key, each.old_index, each.index) for each in ordered([a, b], [c, a], 9)]
    [('remove', 2, 1, None), ('add', 3, None, 0)]
    """
    made: list[LiveChange] = []
    wanted = {identity(item) for item in now}
    left = list(had)
    for place in range(len(left) - 1, -1, -1):
        item = left[place]
        if identity(item) not in wanted:
            del left[place]
            made.append(removed(item, version, place))
    there = {identity(item): at for at, item in enumerate(left)}
    remaining = Remaining(len(left))
    for place, item in enumerate(now):
        origin = there.get(identity(item))
        if origin is None:
            made.append(added(item, version, place))
            continue
        at, before = place + remaining.take(origin), left[origin]
        if at != place or before.raw != item.raw:
            made.append(changed(before, item, version, at, place))
    return made


def newest(had: Mapping[Any, Item], now: Mapping[Any, Item], version: int) -> list[LiveChange]:
    """The changes from one result without positions to another, both oldest first.

    What was written again with the same content is newer than before: it is told, too.
    """
    made = [removed(item, version, None) for key, item in had.items() if key not in now]
    places = {key: place for place, key in enumerate(had)}
    last, told = -1, False
    for key, item in now.items():
        before, place = had.get(key), places.get(key, -1)
        if before is None:
            made.append(added(item, version, None))
        elif told or place < last or before.raw != item.raw:
            made.append(changed(before, item, version, None, None))
        else:
            last = place
            continue
        told = True  # what comes later in `now` is newer than this
    return made


def added(item: Item, version: int, index: int | None) -> LiveChange:
    """An item came."""
    return LiveChange("add", item.key, version, None, index, item.raw)


def removed(item: Item, version: int, old_index: int | None) -> LiveChange:
    """An item left."""
    return LiveChange("remove", item.key, version, old_index, None, None, item.raw)


def changed(
    before: Item, item: Item, version: int, old_index: int | None, index: int | None
) -> LiveChange:
    """An item is another, elsewhere or both."""
    kind = "change" if old_index == index else "changeIndex"
    return LiveChange(kind, item.key, version, old_index, index, item.raw, before.raw)  # type: ignore[arg-type]
