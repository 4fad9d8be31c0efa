"""Words of short texts: `$words` beside SQLite's FTS5, to write and to ask.

    python benchmarks/words.py [--only PART ...] [--size tiny|small|full] [--rounds N] [--help]

    index      the index alone beside a table of FTS5 without content, both in files, not synced
    documents  a collection with documents and their log beside FTS5 with the texts

Texts have eight words, drawn from the 50,000 most frequent words in names of places
(fuzzy_data.py), a word of rank r about as often as 1 / (r + 3). Questions are one word, two words
and a phrase of two words, each taken from some text. Answers are compared by number. Figures of
`--size full`, five million texts, stand beside those of the other sizes on the page.
Writes benchmarks/results/words.json, .md and .png.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import numpy as np

from benchmarks import common, pages
from benchmarks.common import markdown_table, say
from benchmarks.fuzzy_data import objects, vocabulary
from benchmarks.pages import Plot, by_turns, check_same, percentiles
from tideline.index.kind import Asked
from tideline.index.texts import Texts
from tideline.index.words import WordsKind
from tideline.lsm.component import Component, write_component
from tideline.lsm.tree import MergeContext
from tideline.where.tree import Words

PARTS = ["index", "documents"]
SIZES = {  # texts, words of the vocabulary, questions
    "tiny": (3_000, 500, 20),
    "small": (500_000, 50_000, 300),
    "full": (5_000_000, 50_000, 300),
}
FULL = ", full"
ASKED = ("one word", "two words", "phrase")
_WORDS, _BATCH = 8, 10_000
_MEMORY = 32 << 20  # bytes of a memory of the index alone
_EVERYTHING = 1 << 62


class Corpus:
    """The texts, some at a time."""

    def __init__(self, count: int, words: int) -> None:
        self.count = count
        self.words = vocabulary(words)
        self._share = np.cumsum(1.0 / (np.arange(len(self.words)) + 3.0))
        self._share /= self._share[-1]

    def numbers(self, first: int, count: int) -> Any:
        """The words of some texts by their ranks."""
        draw = np.random.default_rng([4, first // _BATCH])
        return np.searchsorted(self._share, draw.random((_BATCH, _WORDS)))[:count]

    def texts(self, first: int) -> list[str]:
        """A batch of texts."""
        count = min(_BATCH, self.count - first)
        words = self.words
        return [" ".join([words[n] for n in row]) for row in self.numbers(first, count).tolist()]

    def questions(self, count: int) -> dict[str, list[tuple[str, ...]]]:
        """Words of texts that are there."""
        draw = np.random.default_rng(9)
        made: dict[str, list[tuple[str, ...]]] = {name: [] for name in ASKED}
        for _ in range(count):
            row = int(draw.integers(self.count))
            numbers = self.numbers(row // _BATCH * _BATCH, _BATCH)[row % _BATCH]
            text = [self.words[n] for n in numbers.tolist()]
            at = int(draw.integers(_WORDS - 1))
            one, other = draw.choice(_WORDS, 2, replace=False).tolist()
            made["one word"].append((text[at],))
            made["two words"].append((text[one], text[other]))
            made["phrase"].append((text[at], text[at + 1]))
        return made


class Alone:
    """The index alone: memories that become components, and one component in the end."""

    name = "tideline"

    def __init__(self, folder: Path) -> None:
        self._kind, self._folder = WordsKind(seed=1), folder
        self._memory: Any = self._kind.memory(_MEMORY)
        self._readers: list[Any] = []
        self._written = 0

    def add(self, texts: list[str]) -> None:
        documents = Texts.of([b'{"text":"%b"}' % text.encode() for text in texts])
        [found] = self._kind.extract(documents, ["text"])
        first = self._written
        numbers = np.arange(first, first + len(texts)).astype(">i8").tobytes()
        keys = Texts(np.arange(len(texts) + 1) * 8, np.frombuffer(numbers, np.uint8))
        self._memory.add(found.values, keys, first + 1, found.row)
        self._written += len(texts)
        if self._memory.size_bytes > _MEMORY:
            self._seal()

    def _seal(self) -> None:
        self._open(self._kind.seal(self._memory))
        self._memory = self._kind.memory(_MEMORY)

    def _open(self, products: Any) -> None:
        for product in products:
            number = len(self._readers) + 1
            while (self._folder / f"c-{number:06}.arrow").exists():
                number += 1
            info = write_component(self._folder, number, product, kind="words", sync=False)
            self._readers.append(self._kind.open(Component.open(self._folder, info)))

    def finish(self) -> None:
        """One component of all."""
        if self._memory.size_bytes:
            self._seal()
        before, self._readers = self._readers, []
        if len(before) > 1:
            self._open(self._kind.merge(before, MergeContext()))
        else:
            self._readers = before
        self._view = self._kind.view([], self._readers)

    def ask(self, words: tuple[str, ...], phrase: bool) -> int:
        test = Words(words, (words,) if phrase else ())
        [(ask,)] = self._kind.serves(Asked((), (test,), lambda: True))
        found = self._kind.search(self._view, ask, None, _EVERYTHING)
        return sum(len(chunk.seqs) for chunk in found)

    def close(self) -> None:
        self._view = None
        self._readers.clear()


class Fts5:
    """SQLite's full-text index; with the texts, or the index alone."""

    name = "SQLite FTS5"

    def __init__(self, folder: Path, content: bool = False) -> None:
        self._db = sqlite3.connect(folder / "fts.db")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._content, self._written = content, 0
        options = "" if content else ", content=''"
        self._db.execute(f"CREATE VIRTUAL TABLE texts USING fts5(text{options})")

    def add(self, texts: list[str]) -> None:
        rows = enumerate(texts, self._written + 1)
        with self._db:
            self._db.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", rows)
        self._written += len(texts)

    def finish(self) -> None:
        """One segment of all."""
        with self._db:
            self._db.execute("INSERT INTO texts (texts) VALUES ('optimize')")

    def ask(self, words: tuple[str, ...], phrase: bool) -> int:
        said = '"' + " ".join(words) + '"' if phrase else " ".join(f'"{word}"' for word in words)
        columns = "rowid, text" if self._content else "rowid"
        found = self._db.execute(f"SELECT {columns} FROM texts WHERE texts MATCH ?", (said,))
        return len(found.fetchall())

    def close(self) -> None:
        self._db.close()


class Collection:
    """Documents with an index on their texts; what is found is decoded."""

    name = "tideline"

    def __init__(self, folder: Path) -> None:
        import tideline

        self._db = tideline.open(folder / "data", memory_mb=256)
        self._docs = self._db.collection("texts", key="id", indexes={"text": "words"})
        self._written = 0

    def add(self, texts: list[str]) -> None:
        rows = enumerate(texts, self._written + 1)
        self._docs.put_many([{"id": number, "text": text} for number, text in rows])
        self._written += len(texts)

    def finish(self) -> None:
        """Everything that is due has been merged."""
        self._docs._engine.drain()

    def ask(self, words: tuple[str, ...], phrase: bool) -> int:
        said = f'"{" ".join(words)}"' if phrase else " ".join(words)
        return len(self._docs.find({"text": {"$words": said}}))

    def close(self) -> None:
        self._db.close()


def compared(made: dict[str, Any], size: str, rounds: int) -> dict[str, Any]:
    """Write by turns, then ask by turns."""
    count, many, number = SIZES[size]
    corpus = Corpus(count, many)
    written, finished = dict.fromkeys(made, 0.0), {}
    for first in range(0, count, _BATCH):
        texts = corpus.texts(first)
        for name, each in made.items():
            begun = time.perf_counter()
            each.add(texts)
            written[name] += time.perf_counter() - begun
    for name, each in made.items():
        begun = time.perf_counter()
        each.finish()
        finished[name] = time.perf_counter() - begun
        say(f"  {name}: written in {written[name]:.1f} s, merged in {finished[name]:.1f} s more")
    outcome: dict[str, Any] = {
        "texts": count, "vocabulary": len(corpus.words), "ask": {},
        "write_us": {name: took / count * 1e6 for name, took in written.items()},
        "merge_us": {name: took / count * 1e6 for name, took in finished.items()},
    }  # fmt: skip
    for asked, questions in corpus.questions(number).items():
        phrase = asked == "phrase"
        if asked == "one word":
            questions = questions[: max(number // 10, 5)]  # some have many answers
        for question in questions[:50]:
            counts = {name: each.ask(question, phrase) for name, each in made.items()}
            check_same(str(question), next(iter(counts.values())), counts)
        turns = {
            name: [partial(each.ask, question, phrase) for question in questions]
            for name, each in made.items()
        }
        us = {name: percentiles(its) for name, its in by_turns(turns, rounds).items()}
        hits = [made[Fts5.name].ask(question, phrase) for question in questions]
        outcome["ask"][asked] = {"hits": float(np.mean(hits)), "us": us}
    for each in made.values():
        each.close()
    return outcome


def index(size: str, rounds: int) -> dict[str, Any]:
    """The index alone."""
    with TemporaryDirectory(prefix="tideline-bench-") as name:
        warm = Alone(Path(name))  # what is loaded the first time takes longer than all the rest
        warm.add(["flat tire"])
        warm.finish()
        warm.ask(("flat", "tire"), True)
        warm.close()
    with common.scratch() as folder:
        (folder / "own").mkdir()
        made = {Alone.name: Alone(folder / "own"), Fts5.name: Fts5(folder)}
        return compared(made, size, rounds)


def documents(size: str, rounds: int) -> dict[str, Any]:
    """Documents."""
    with common.scratch() as folder:
        made = {Collection.name: Collection(folder), Fts5.name: Fts5(folder, content=True)}
        return compared(made, size, rounds)


# ---- the page ------------------------------------------------------------------------------------

_TITLES = {"index": "The index alone", "documents": "Documents"}


def table(part: str, data: dict[str, Any]) -> str:
    """What writing and asking took."""
    peer, ours = Fts5.name, "tideline"
    rows = []
    for said, key in (("written", "write_us"), ("then merged into one", "merge_us")):
        us = data[key]
        rows.append([
            f"{said}, us a text", f"{us[ours]:.2f}", f"{us[peer]:.2f}",
            f"{us[peer] / max(us[ours], 1e-9):.1f}x",
        ])  # fmt: skip
    both = {name: data["write_us"][name] + data["merge_us"][name] for name in (ours, peer)}
    rows.append(
        ["both", f"{both[ours]:.2f}", f"{both[peer]:.2f}", f"{both[peer] / both[ours]:.1f}x"]
    )
    for asked, found in data["ask"].items():
        for what in ("median", "mean"):
            mine, its = found["us"][ours][what], found["us"][peer][what]
            said = f"{asked}, {what} us"
            said += f" ({found['hits']:,.0f} hits)" if what == "mean" else ""
            rows.append([said, f"{mine:,.0f}", f"{its:,.0f}", f"{its / mine:.1f}x"])
    title = f"## {_TITLES[part]}: {data['texts']:,} texts, {data['vocabulary']:,} words\n\n"
    left = "" if part == "index" else (
        "\nA collection merges by its policy and not into one component; FTS5 does both, here.\n"
    )  # fmt: skip
    return title + markdown_table(["", ours, peer, "FTS5 takes"], rows) + left


def plots(parts: dict[str, Any]) -> list[Plot]:
    """Medians by kind of question."""
    made = []
    for part, data in parts.items():
        curves = {
            name: [
                (n, data["ask"][asked]["us"][name]["median"]) for n, asked in enumerate(ASKED, 1)
            ]
            for name in ("tideline", Fts5.name)
        }
        across = "1: one word, 2: two words, 3: a phrase"
        title = f"{_TITLES[part.removesuffix(FULL)]}: {data['texts']:,} texts"
        made.append(Plot(title, across, "median us", curves))
    return made


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = common.parser(__doc__, parts=PARTS, sizes=SIZES, rounds=3).parse_args(arguments)
    results = common.Results(options.results, "words")
    for part in options.only or PARTS:
        say(part)
        measured = {"index": index, "documents": documents}[part](options.size, options.rounds)
        results.put(
            part + FULL * (options.size == "full"),
            {**measured, "size": options.size, "source": objects(1).source},
        )
    about = "Written by `python benchmarks/words.py`, whose head says what the texts are."
    tables = {part + full: partial(table, part) for full in ("", FULL) for part in PARTS}
    for path in pages.write(results, "words", "Words of short texts", about, tables, plots):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
