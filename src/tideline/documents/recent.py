"""What readers read now, and the records that were read lately: reading one again needs no search.

    get       -> texts -> memory, components
    write     -> publish: forget the keys it writes, then put a new `Now` in the place of the old

A search for a key asks the bloom filter and the keys of every component; a few records are often
read again and again. Only `get` fills `texts`, and only with records that are there. What was read
first goes first when room is short.

Both stand together because what is in `texts` must always be the newest. `lock` is held while a
record is kept and while a write is published, for a few dict operations, never over a search, a
memory copy or a log write. A record is kept only if what it was read from is still what there is
to read: so no old text is kept after a write has forgotten it. Looking into `texts` takes no
lock: a text that is there has not been replaced by anything that was published.

Safe from any thread.
"""

from __future__ import annotations

from collections import OrderedDict
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
        # Ordered: taking the first out of a plain dict walks over all that were taken before.
        self.texts: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = Lock()
        self._limit_bytes = limit_bytes
        self._bytes = 0

    def publish(self, now: Any, keys: Texts | None = None) -> None:
        """Let readers read something else, in which these keys were written."""
        with self._lock:
            if keys is not None and self.texts:
                self._forget(keys)
            self.now = now

    def keep(self, key: bytes, text: bytes, now: Any) -> None:
        """A record that was just read, and is not here, and what it was read from."""
        with self._lock:
            texts = self.texts
            if self.now is not now or key in texts:
                return
            size = self._bytes + len(key) + len(text) + _EACH_BYTES
            texts[key], self._bytes = text, size
            while self._bytes > self._limit_bytes:
                if not texts:  # a call was interrupted between a text and the sum
                    self._bytes = 0
                    return
                first, old = texts.popitem(last=False)
                self._bytes -= len(first) + len(old) + _EACH_BYTES

    def end(self) -> None:
        """Forget everything; what is being read now is not kept."""
        with self._lock:
            self.now = None
            self._clear()

    def forget_all(self) -> None:
        """Forget every record; what is being read now is not kept, once `now` changes."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self.texts, self._bytes = OrderedDict(), 0

    def _forget(self, keys: Texts) -> None:
        if keys.count > _FEW:
            self._clear()
            return
        for key in keys.to_list():
            if key in self.texts:
                self._drop(key)

    def _drop(self, key: bytes) -> None:
        self._bytes -= len(key) + len(self.texts.pop(key)) + _EACH_BYTES
