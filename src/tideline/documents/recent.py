"""The records that were read lately: reading one again needs no search.

    get       -> here -> memory, components
    any write -> forgets the keys it writes

A search for a key asks the bloom filter and the keys of every component; a few records are often
read again and again. Only `get` fills this, and only with records that are there. What was read
first goes first when room is short.

For one thread at a time: the lock of the engine, under which a record is read and kept, and
under which a write becomes visible. So what is kept here is always the newest.
"""

from __future__ import annotations

from tideline.index.texts import Texts

__all__ = ["Recent"]

_EACH_BYTES = 160  # what Python takes for two texts and an entry, about
_FEW = 16  # keys forgotten one by one: more, and all are


class Recent:
    """Records as JSON text by key, up to a limit of bytes.

    >>> recent = Recent(1000)
    >>> recent.keep(b"17", b"{}")
    >>> recent.texts.get(b"17")
    b'{}'
    >>> recent.forget(Texts.of([b"17"]))
    >>> recent.texts
    {}
    """

    def __init__(self, limit_bytes: int) -> None:
        self.texts: dict[bytes, bytes] = {}
        self._limit_bytes = limit_bytes
        self._bytes = 0

    def keep(self, key: bytes, text: bytes) -> None:
        """A record that was just read, and is not here."""
        size = len(key) + len(text) + _EACH_BYTES
        self.texts[key], self._bytes = text, self._bytes + size
        while self._bytes > self._limit_bytes:
            if not self.texts:  # a call was interrupted between a text and the sum
                self._bytes = 0
                return
            self._drop(next(iter(self.texts)))

    def forget(self, keys: Texts) -> None:
        """Records that are written."""
        if not self.texts:
            return
        if keys.count > _FEW:
            self.clear()
            return
        for key in keys.to_list():
            if key in self.texts:
                self._drop(key)

    def clear(self) -> None:
        """Forget everything."""
        self.texts.clear()
        self._bytes = 0

    def _drop(self, key: bytes) -> None:
        self._bytes -= len(key) + len(self.texts.pop(key)) + _EACH_BYTES
