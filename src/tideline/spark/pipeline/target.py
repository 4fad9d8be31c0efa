"""The store that a pipeline writes to: a folder opened here, an open database, or a server.

`open_target` makes the channel if it is not there and gives what the query needs of it: its space,
the options of the format `tideline`, and which batches it has had.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from tideline.errors import Conflict, InvalidRequest
from tideline.protocols import Durability
from tideline.space import Flat, Space
from tideline.spark.pipeline.check import check_space, space_of
from tideline.spark.pipeline.config import Config, Problems

if TYPE_CHECKING:
    from tideline.database import Database
    from tideline.spark.pipeline.ledger import Ledger

__all__ = ["Target", "check_landed", "open_target"]

_TABLES_BITS = 20  # a batch is many tables to the store: see channel/landing.py


@dataclass(frozen=True)
class Target:
    """A channel or a collection to write to."""

    name: str
    options: dict[str, str] = field(repr=False)
    """Of the format `tideline`."""
    space: Space = field(default_factory=Flat)
    max_ahead_s: float = math.inf
    landed: Callable[[str, int], int | None] | None = None
    """Rows of a batch of this pipeline's that have landed; None when it is done with."""


def open_target(config: Config, db: Database | None, stack: ExitStack) -> Target:
    """The channel of a config, open until the stack is closed."""
    store = config.store
    if db is None and store.url is not None:
        return _served(config, stack)
    from tideline.database import open as open_database
    from tideline.spark.gate import share

    if db is None:
        folder = config.store_folder
        if folder is None:
            message = "[store] needs a folder or a url, or run an open database"
            raise config.wrong(("store",), message)
        db = stack.enter_context(
            open_database(
                folder,
                memory_mb=store.memory_mb,
                durability=cast(Durability, store.durability),  # which it checks
            )
        )
    stack.enter_context(share(db))
    if store.collection is not None:
        return _collection(
            config, {"path": str(db.path)}, partial(_has_landed, db, store.collection)
        )
    assert store.channel is not None
    space = space_of(config)
    if store.channel not in db.channels():  # look before a channel of the wrong kind is made
        _check(config, space or Flat())
    channel = db.channel(
        store.channel, space=space, journal_s=store.journal_s, max_ahead_s=store.max_ahead_s
    )
    return _target(config, channel, {"path": str(db.path)})


def _served(config: Config, stack: ExitStack) -> Target:
    """The channel of a server."""
    from tideline.client import connect

    store = config.store
    assert store.url is not None
    token = store.token or os.environ.get("TIDELINE_TOKEN")
    options = {"url": store.url, **({"token": token} if token else {})}
    if store.collection is not None:
        return _collection(config, options)
    assert store.channel is not None
    remote = stack.enter_context(connect(store.url, token=token))
    channel = remote.channel(
        store.channel, space=space_of(config), journal_s=store.journal_s,
        max_ahead_s=store.max_ahead_s,
    )  # fmt: skip
    return _target(config, channel, options)


def _has_landed(db: Database, name: str, writer: str, number: int) -> int | None:
    """What a collection has had, which may not be there yet."""
    return db.collection(name).landed(writer, number) if name in db.collections() else 0


def _collection(
    config: Config, options: dict[str, str], landed: Callable[[str, int], int | None] | None = None
) -> Target:
    """A collection, which the first batch makes."""
    store = config.store
    assert store.collection is not None
    assert store.key_ is not None
    options = {**options, "collection": store.collection, "key": store.key_}
    if store.version is not None:
        options["version"] = store.version
    return Target(store.collection, options, landed=landed)


def _target(config: Config, channel: Any, options: dict[str, str]) -> Target:
    if channel.layout == "poll":
        raise InvalidRequest(
            "a channel with layout 'poll' takes no batches once", channel=channel.name
        )
    _check(config, channel.space)
    return Target(
        channel.name, {**options, "channel": channel.name}, channel.space, channel.max_ahead_s,
        lambda writer, number: channel.landed(writer, number << _TABLES_BITS),
    )  # fmt: skip


def _check(config: Config, space: Space) -> None:
    problems = Problems(config.file, config.lines)
    check_space(config, space, problems)
    problems.check()


def check_landed(target: Target, config: Config, ledger: Ledger, last: int, stored: int) -> None:
    """Whether the store has had just the batches that the checkpoint says it has.

    `last` is the last batch that is counted, `stored` how many rows it gave to the store.
    """
    if target.landed is None:
        return
    if target.landed(config.name, max(ledger.begun(), last) + 1) != 0:
        if ledger.fresh:
            ledger.forget()
            message = (
                "this store has had batches of a pipeline of this name, but the checkpoint is "
                "new: it was moved or removed. Point run.checkpoint to the old one, or give the "
                "pipeline another name to read the source from its beginning"
            )
        else:
            message = (
                "the store has had later batches of this pipeline than the checkpoint knows of: "
                "the checkpoint was put back from an older copy"
            )
        raise Conflict(message, name=config.name, target=target.name, checkpoint=ledger.folder.path)
    if stored and target.landed(config.name, last) is not None:
        raise Conflict(
            "the store does not know the batches that this checkpoint says it had: it is another "
            "store, or was emptied or put back from an older copy. To read the source from its "
            "beginning, give run.checkpoint a new folder",
            name=config.name, target=target.name, batch=last, checkpoint=ledger.folder.path,
        )  # fmt: skip
