"""A document of a result: its key, its JSON text, and the document once somebody asked for it."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Item"]

_decode = msgspec.json.Decoder().decode


class Item(msgspec.Struct, eq=False, gc=False):
    """A document of a result.

    >>> Item(1, b'{"id": 1}').document
    {'id': 1}
    """

    key: Any
    raw: bytes
    """The document as JSON text."""
    _document: Any = None

    @property
    def document(self) -> dict[str, Any]:
        """The document; the same object every time."""
        if self._document is None:
            self._document = _decode(self.raw)
        found: dict[str, Any] = self._document
        return found

    def __repr__(self) -> str:
        return f"Item({self.key!r}, {self.raw!r})"
