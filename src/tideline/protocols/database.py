"""A database: it holds the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

from tideline.clock import Seconds
from tideline.model import ChannelStats, CollectionStats, WindowStats
from tideline.protocols.channels import Channel
from tideline.protocols.collections import Collection
from tideline.protocols.given import Indexes
from tideline.protocols.windows import Window
from tideline.space import Space

__all__ = ["Database"]


@runtime_checkable
class Database(Protocol):
    """Channels and collections: a folder in this process, or a server."""

    def channel(
        self, name: str, *, space: Space | None = None, layout: str | None = None,
        poll_s: Seconds = 1.0, journal_s: Seconds | None = None,
        max_ahead_s: Seconds | None = None,
    ) -> Channel:  # fmt: skip
        """Open a channel, or create it.

        space: how places relate, `Flat()` by default. layout: how it is stored. poll_s: how often
        the layout "poll" asks. journal_s: how long what is written stays readable by `journal`.
        max_ahead_s: how far ahead of the clock rows of a batch may be.
        """

    def channels(self) -> list[str]:
        """The names of the channels."""

    def drop_channel(self, name: str) -> None:
        """Delete a channel with everything in it."""

    def collection(
        self, name: str, *, key: str | None = None, indexes: Indexes | None = None,
        policy: str | Mapping[str, Any] | None = None, filter: str | None = None,
        bloom_bits: int | None = None, journal_s: float | None = None,
        journal_before: bool | None = None, ttl_s: Seconds | None = None,
    ) -> Collection:  # fmt: skip
        """Open a collection of documents, or create it; a new one needs `key`.

        indexes: fields with the kind of their index. policy: which components merge. filter: a
        field whose range every component keeps. bloom_bits: of embedded indexes. journal_s,
        journal_before: how long `changes` reaches back, and whether with old versions. ttl_s: how
        long documents stay, unless a verb says otherwise.
        """

    def collections(self) -> list[str]:
        """The names of the collections."""

    def drop_collection(self, name: str) -> None:
        """Delete a collection with everything in it."""

    def window(
        self, name: str, *, span_s: Seconds | None = None, slide_s: Seconds | None = None,
        key: str | Sequence[str] | Mapping[str, Any] | None = None,
        values: Mapping[str, str] | None = None, keep: str | None = None, time: str | None = None,
        durable: bool | None = None, max_ahead_s: Seconds | None = None,
        indexes: Mapping[str, Any] | None = None,
    ) -> Window:  # fmt: skip
        """Open a stream window, or create it; a new one needs `span_s` and `key`.

        span_s, slide_s: what it keeps, and in which steps it forgets. key: the fields rows are
        found by. values: what else a row has, with its types. keep: "last" of a key in a
        sub-window, or "all". time: "clock", or the field with the time of a row. durable: False
        for memory only. max_ahead_s: how far ahead of the clock rows may be. indexes: the kind of
        index on each value that is a point or a text, for `find`.
        """

    def windows(self) -> list[str]:
        """The names of the stream windows."""

    def drop_window(self, name: str) -> None:
        """Delete a stream window with everything in it."""

    def stats(self) -> dict[str, ChannelStats | CollectionStats | WindowStats]:
        """The numbers of every channel, every collection and every window."""

    def close(self) -> None:
        """Let go of everything. Closing twice is allowed."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None: ...
