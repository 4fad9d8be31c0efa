"""`Channel.stats` and `Channel.maintain`: what a channel holds, and what of it has expired."""

from __future__ import annotations

from functools import partial

from tideline.channel.core import Core
from tideline.model import ChannelStats

__all__ = ["maintain", "stats"]

_SPARED_US = 60_000_000


def stats(core: Core) -> ChannelStats:
    """See `Channel.stats`."""
    engine = core.engine
    with engine.lock:
        core.begin()
        now = core.now()
        engine.interrupts.sheltered(partial(_give_back, core, now))
        subscriptions, events = engine.records.count_live(now)
        return ChannelStats(
            events=events,
            subscriptions=subscriptions,
            windows=sum(len(side.memory.windows()) for side in engine.sides),
            components=sum(len(side.tree.readers) for side in engine.sides),
            bytes_memory=sum(side.memory.size_bytes for side in engine.sides),
            bytes_disk=engine.store.size_bytes,
            bytes_log=engine.store.log.size_bytes,
            answers=engine.answers,
            dropped=sum(side.tree.dropped for side in engine.sides),
            late=engine.late,
        )


def maintain(core: Core) -> None:
    """See `Channel.maintain`."""
    engine = core.engine
    with engine.lock:
        core.begin()
        engine.interrupts.sheltered(partial(_give_back, core, core.now()))
    engine.upkeep.maintain()


def _give_back(core: Core, now: int) -> None:
    """Drop what has expired by the clock, in a channel that lives by the clock.

    Reads do not move a channel's time: a batch may still bring rows from before. A
    minute is left for those; a channel that replays history (its newest write far
    from the clock) is left alone.
    """
    engine = core.engine
    if core.clocked and engine.newest < now - _SPARED_US:
        engine.advance(now - _SPARED_US)
        engine.expiry.drop_all()
    engine.facts["clocked"] = core.clocked
    engine.upkeep.give_back_disk()
    for side in engine.sides:
        side.memory.trim()
