"""Others that find objects by a window and words nearly right, and words alone.

    Fuzzy        ours: an index of the kind `fuzzy` in one component
    WindowFirst  an R-tree of points (shapely), then every word in the window (rapidfuzz)
    WordsFirst   every word of the vocabulary (rapidfuzz), then lists of objects, then the window
    Tantivy      a search engine in Rust: fuzzy terms by an automaton, ranges of numbers
    FuzzyWords   Lucene, the one in Java (lucene.py)
    Scan, Symspell, Trigrams      words alone: rapidfuzz, symspellpy, FTS5 of SQLite by trigrams

All answer by the definition of benchmarks/fuzzy_data.py `limit`: candidates of those that know
another one are held against it afterwards, and what they cannot find they miss. Each is made of
`Objects`; one whose package is not installed raises `ImportError`.
"""

from __future__ import annotations

import sqlite3
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.fuzzy_data import Objects, Question, limit
from benchmarks.peers.lucene import FuzzyWords
from tideline.index.fuzzy import FuzzyKind
from tideline.index.fuzzyview import FuzzyAsk
from tideline.index.texts import Texts
from tideline.lsm.component import Component, write_component
from tideline.where.tree import Near

__all__ = ["ANSWERING", "LOOKING_UP", "Fuzzy", "values_of"]

_SIMILARITY = Fraction("0.8")


def values_of(of: Objects) -> tuple[Texts, Texts, Any]:
    """Objects as the index takes them: a box and words, keys, seqs."""
    heads = np.stack([of.lon, of.lat, of.lon, of.lat], 1)
    names = of.vocabulary
    texts = [
        heads[row].tobytes() + f"{names[a]} {names[b]} {names[c]}".encode()
        for row, (a, b, c) in enumerate(of.keywords.tolist())
    ]
    count = len(of.lon)
    numbers = np.arange(count).astype(">i8").tobytes()
    keys = Texts(np.arange(count + 1) * 8, np.frombuffer(numbers, np.uint8))
    return Texts.of(texts), keys, np.arange(count)


class Fuzzy:
    """One component of the kind `fuzzy`, with its dictionaries where `settings` say."""

    name = "tideline"

    def __init__(self, of: Objects, entries: Any = None, **settings: Any) -> None:
        self._kind = FuzzyKind(seed=1, **settings)
        self._folder = TemporaryDirectory(prefix="tideline-bench-")
        [product] = self._kind.build(*(entries or values_of(of)))
        info = write_component(Path(self._folder.name), 1, product, kind="fuzzy", sync=False)
        self.size_bytes = info.size_bytes
        self.placement: dict[str, Any] = info.extra["placement"]
        reader = self._kind.open(Component.open(Path(self._folder.name), info))
        self._view: Any = self._kind.view([], [reader])

    def answer(self, asked: Question, ceiling: bool = False) -> set[int]:
        """The numbers of the objects."""
        return set(self.found(asked, ceiling).tolist())

    def found(self, asked: Question, ceiling: bool = False) -> Any:
        """The same as an array."""
        near = [Near(word, similarity=_SIMILARITY) for word in asked.words]
        ask = FuzzyAsk(near, [asked.box], "")
        if ceiling:
            _raise_limits(ask, asked.words)
        return self._numbers(ask)

    def within(self, asked: Question, edits: int) -> Any:
        """The objects that have words within so many edits, as an array."""
        return self._numbers(FuzzyAsk([Near(word, edits) for word in asked.words], [asked.box], ""))

    def _numbers(self, ask: FuzzyAsk) -> Any:
        seqs = [chunk.seqs for chunk in self._view.search(ask, 1 << 62)]
        return np.concatenate(seqs) if seqs else np.empty(0, np.int64)

    def near(self, word: str) -> int:
        """How many entries have a word near this one, wherever they are."""
        ask = FuzzyAsk([Near(word, similarity=_SIMILARITY)], None, "")
        return sum(len(entries) for _, entries in self._view.found(ask))

    def close(self) -> None:
        self._view = None
        self._folder.cleanup()


def _raise_limits(ask: FuzzyAsk, words: tuple[str, ...]) -> None:
    """Allow as many edits as the ceiling gives: in place, where kernels read them."""
    limits = ask._held[2].reshape(len(words), -1)
    lengths = np.arange(limits.shape[1])
    for row, word in zip(limits, words, strict=True):
        edits = -(-np.maximum(lengths, len(word)) // 5)
        row[:] = np.where(np.abs(lengths - len(word)) <= edits, edits, -1)
        row[0] = -1


def _is_near(of: Objects, word: str, numbers: Any, scorer: Any) -> Any:
    """Those of some words that are near, by their numbers."""
    names = of.vocabulary
    return [n for n in numbers if scorer(names[n], word) <= limit(names[n], word)]


class WindowFirst:
    """What is in the window, then its words."""

    name = "window first: shapely STRtree, rapidfuzz"

    def __init__(self, of: Objects) -> None:
        import shapely
        from rapidfuzz.distance import Levenshtein

        self._of, self._distance, self._box = of, Levenshtein.distance, shapely.box
        self._tree = shapely.STRtree(shapely.points(of.lon, of.lat))

    def answer(self, asked: Question) -> set[int]:
        rows = self._tree.query(self._box(*asked.box))
        for word in asked.words:
            there = np.unique(self._of.keywords[rows])
            near = _is_near(self._of, word, there.tolist(), self._distance)
            rows = rows[np.isin(self._of.keywords[rows], near).any(axis=1)]
        return set(rows.tolist())


class WordsFirst:
    """All words of the vocabulary, then who has them, then where these are."""

    name = "words first: rapidfuzz over all words, lists"

    def __init__(self, of: Objects) -> None:
        self._of, self._scan = of, Scan(of)
        flat = of.keywords.ravel()
        self._order = np.argsort(flat, kind="stable") // 3
        self._first = np.searchsorted(np.sort(flat), np.arange(len(of.vocabulary) + 1))

    def answer(self, asked: Question) -> set[int]:
        found: Any = None
        for word in asked.words:
            lists = [
                self._order[self._first[n] : self._first[n + 1]] for n in self._scan.look_up(word)
            ]
            rows = np.unique(np.concatenate(lists)) if lists else np.empty(0, np.int64)
            found = rows if found is None else np.intersect1d(found, rows, assume_unique=True)
        west, south, east, north = asked.box
        lon, lat = self._of.lon[found], self._of.lat[found]
        inside = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
        return set(found[inside].tolist())


class Tantivy:
    """A search engine: at most two edits, the same for words of all lengths."""

    name = "tantivy: fuzzy terms, ranges"

    def __init__(self, of: Objects) -> None:
        import tantivy
        from rapidfuzz.distance import Levenshtein

        self._of, self._its, self._distance = of, tantivy, Levenshtein.distance
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("words", tokenizer_name="whitespace", index_option="basic")
        for axis in ("lon", "lat"):
            builder.add_float_field(axis, indexed=True, fast=True)
        builder.add_integer_field("id", fast=True)
        self._schema = builder.build()
        self._index = tantivy.Index(self._schema)
        writer = self._index.writer(heap_size=256_000_000, num_threads=1)
        names = of.vocabulary
        both = zip(of.lon.tolist(), of.lat.tolist(), of.keywords.tolist(), strict=True)
        for number, (lon, lat, (a, b, c)) in enumerate(both):
            text = f"{names[a]} {names[b]} {names[c]}"
            writer.add_document(tantivy.Document(words=text, lon=lon, lat=lat, id=number))
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()

    def answer(self, asked: Question) -> set[int]:
        its, schema, must = self._its, self._schema, self._its.Occur.Must
        west, south, east, north = asked.box
        parts = [
            its.Query.range_query(schema, axis, its.FieldType.Float, low, high)
            for axis, low, high in (("lon", west, east), ("lat", south, north))
        ]
        for word in asked.words:
            edits = min(limit(word + "." * (len(word) // 4), word), 2)
            parts.append(its.Query.fuzzy_term_query(schema, "words", word, edits, False))
        query = its.Query.boolean_query([(must, part) for part in parts])
        hits = self._searcher.search(query, limit=100_000, count=False).hits
        rows = np.array(self._searcher.fast_field_values("id", [at for _, at in hits]), np.int64)
        for word in asked.words:
            there = np.unique(self._of.keywords[rows])
            near = _is_near(self._of, word, there.tolist(), self._distance)
            rows = rows[np.isin(self._of.keywords[rows], near).any(axis=1)]
        return set(rows.tolist())


class Scan:
    """Every word."""

    name = "rapidfuzz over all words"

    def __init__(self, of: Objects) -> None:
        from rapidfuzz import process
        from rapidfuzz.distance import Levenshtein

        self._of, self._distance, self._cdist = of, Levenshtein.distance, process.cdist
        self._lengths = np.array([len(word) for word in of.vocabulary])

    def look_up(self, word: str) -> list[int]:
        longest = np.maximum(self._lengths, len(word))
        most = int(limit(word + "." * (len(word) // 4), word))
        found = self._cdist(
            [word], self._of.vocabulary, scorer=self._distance, score_cutoff=most, dtype=np.int32
        )[0]
        # Beyond the cutoff it says cutoff + 1.
        near: list[int] = np.flatnonzero(found <= np.minimum(longest // 5, most)).tolist()
        return near


class Symspell:
    """Deletions of words, made in advance: at most two edits."""

    name = "symspellpy (2 edits)"

    def __init__(self, of: Objects) -> None:
        from rapidfuzz.distance import Levenshtein
        from symspellpy import SymSpell, Verbosity

        self._of, self._distance, self._all = of, Levenshtein.distance, Verbosity.ALL
        self._its = SymSpell(max_dictionary_edit_distance=2, prefix_length=7)
        self._numbers = {word: number for number, word in enumerate(of.vocabulary)}
        for word in of.vocabulary:
            self._its.create_dictionary_entry(word, 1)

    def look_up(self, word: str) -> list[int]:
        edits = min(limit(word + "." * (len(word) // 4), word), 2)
        found = self._its.lookup(word, self._all, max_edit_distance=edits)
        numbers = [self._numbers[each.term] for each in found]
        return sorted(_is_near(self._of, word, numbers, self._distance))


class Trigrams:
    """SQLite's FTS5 by trigrams: words that share one, then the distance."""

    name = "SQLite FTS5 trigrams, rapidfuzz"

    def __init__(self, of: Objects) -> None:
        from rapidfuzz.distance import Levenshtein

        self._of, self._distance = of, Levenshtein.distance
        self._db = sqlite3.connect(":memory:")
        self._db.execute("CREATE VIRTUAL TABLE words USING fts5(word, tokenize='trigram')")
        rows = enumerate(of.vocabulary)
        self._db.executemany("INSERT INTO words (rowid, word) VALUES (?, ?)", rows)

    def look_up(self, word: str) -> list[int]:
        grams = {word[at : at + 3] for at in range(len(word) - 2)}
        if not grams:
            return self._exact(word)
        said = " OR ".join(f'"{gram}"' for gram in sorted(grams))
        found = self._db.execute("SELECT rowid FROM words WHERE words MATCH ?", (said,))
        numbers = [number for (number,) in found]
        return sorted(_is_near(self._of, word, numbers, self._distance))

    def _exact(self, word: str) -> list[int]:
        found = self._db.execute("SELECT rowid FROM words WHERE word = ?", (word,))
        return [number for (number,) in found]


ANSWERING: tuple[Any, ...] = (WindowFirst, WordsFirst, Tantivy, FuzzyWords)
LOOKING_UP: tuple[Any, ...] = (Scan, Symspell, Trigrams)
