"""What readers read now, and the records that were read lately: reading one again needs no search.

    get       -> texts -> older -> memory, components
    write     -> publish: forget the keys it writes, then put a new `Now` in the place of the old

A search for a key asks the bloom filter and the keys of every component; a few records are often
read again and again. Only `get` fills `texts`, and only with records that are there. When `texts`
has taken half of the room, it becomes `older`, and what was `older` goes: nothing is kept in order.

All stand together because what is kept must always be the newest. `lock` is held while a
record is kept and while a write is published, for a few dict operations, never over a search, a
memory copy or a log write. A record is kept only if what it was read from is still what there is
to read: so no old text is kept after a write has forgotten it. Looking for a text takes no
lock: a text that is there has not been replaced by anything that was published.

Safe from any thread.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from tideline.index.texts import Texts

__all__ = ["Recent"]

_EACH_BYTES = 160  # what Python takes for two texts and an entry, about
_FEW = 16  # keys forgotten one by one: more, and all are


class Recent:
    """Records as JSON text by key, up to a limit of bytes; and `now`, what they were read from.

    >>> recent = Recent(1000)
    >>> recent.publish("first")
    >>> recent.keep(b"17", b"{}", "first")
    >>> recent.texts.get(b"17")
    b'{}'
    >>> recent.publish("second", Texts.of([b"17"]))
    >>> recent.keep(b"17", b"{}", "first")
    >>> len(recent.texts)
    0
    """

    def __init__(self, limit_bytes: int) -> None:
        self.now: Any = None
        self.texts: dict[bytes, bytes] = {}
        self.older: dict[bytes, bytes] = {}
        self._lock = Lock()
        self._half_bytes = limit_bytes // 2
        self._bytes = 0  # of `texts`

    def publish(self, now: Any, keys: Texts | None = None, *, every: bool = False) -> None:
        """Let readers read something else, in which these keys were written, or `every` key."""
        with self._lock:
            if every:
                self._clear()
            if keys is not None and (self.texts or self.older):
                self._forget(keys)
            self.now = now

    def keep(self, key: bytes, text: bytes, now: Any) -> None:
        """A record that was just read, and is not here, and what it was read from."""
        with self._lock:
            if self.now is now:
                self.texts[key] = text
                self._bytes += len(key) + len(text) + _EACH_BYTES
                if self._bytes > self._half_bytes:
                    self.older, self.texts, self._bytes = self.texts, {}, 0

    def end(self) -> None:
        """Forget everything; what is being read now is not kept."""
        with self._lock:
            self.now = None
            self._clear()

    def _clear(self) -> None:
        self.texts, self.older, self._bytes = {}, {}, 0

    def _forget(self, keys: Texts) -> None:
        if keys.count > _FEW:
            self._clear()
            return
        for key in keys.to_list():
            self.older.pop(key, None)
            text = self.texts.pop(key, None)
            if text is not None:
                self._bytes -= len(key) + len(text) + _EACH_BYTES
