"""The kinds of index that are there from the beginning; each registers itself when imported."""

from __future__ import annotations

from tideline.index import embedded, entries, fuzzy, ngrams, spatial, words

__all__ = ["embedded", "entries", "fuzzy", "ngrams", "spatial", "words"]
