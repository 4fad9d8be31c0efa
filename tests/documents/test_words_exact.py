"""What an index of words finds is what was asked: no document is held against the condition again.

Words that have one hash are made for it (collisions.py), two of them, in every place where words
are kept: the tail of a memory, its runs, components, what was merged. Components of versions that
took such words for one are made as these made them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collisions import colliding
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import few

import tideline
from tideline.documents.collection import Collection
from tideline.index.kind import Asked
from tideline.index.texts import Texts
from tideline.index.words import WordsKind
from tideline.lsm.component import Component, Product, write_component
from tideline.lsm.tree import MergeContext
from tideline.where import parse
from tideline.where.tree import Fuzzy, Near, Words

# Of seed 1, as `colliding` finds them.
PAIRS = [("j0df1nay", "cxe2iwll"), ("0xapywkd", "9kfkg9n6"), ("7ysipgzl", "ku1oogrb")]
VOCABULARY = [word for pair in PAIRS for word in pair] + ["a", "tide"]
TEXT = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=6)
TESTS = [
    *(Words((word,)) for word in VOCABULARY),
    *(Words(tuple(sorted(pair))) for pair in PAIRS),
    *(Words(tuple(sorted({*pair, "a"})), (pair,)) for pair in PAIRS),
    *(Words(tuple(sorted(pair)), (pair[::-1],)) for pair in PAIRS),
    Words(("a",), (("a", "a"),)),
    Fuzzy((Near(PAIRS[0][0], 0), Near(PAIRS[1][1], None, Fraction(1)))),
]


def test_the_words_have_one_hash() -> None:
    kind = WordsKind(seed=1)
    for pair in PAIRS:
        [product] = kind.build(
            Texts.of([word.encode() for word in pair]), Texts.of([b"k", b"l"]), np.array([1, 2])
        )
        one, other = product.table["hash"].to_pylist()
        assert one == other
        assert sorted(product.table["token"].to_pylist()) == sorted(w.encode() for w in pair)


def asked(test: Any) -> Asked:
    return Asked((), (test,), lambda: True)


def meets(test: Any, words: Sequence[str]) -> bool:
    """What a test means, in plain Python."""
    if isinstance(test, Fuzzy):
        return all(one.word in words for one in test.words)
    joined = f" {' '.join(words)} "
    return set(test.words) <= set(words) and all(
        f" {' '.join(phrase)} " in joined for phrase in test.phrases
    )


def agree(kind: WordsKind, view: Any, texts: dict[int, list[str]], decided: bool = True) -> None:
    """What is found is what meets the test; or that and more, where the index does not decide."""
    for test in TESTS:
        [(ask,)] = kind.serves(asked(test))
        assert kind.decides(view, ask) is decided
        wanted = {seq for seq, words in texts.items() if meets(test, words)}
        assert kind.estimate(view, ask).entries >= len(wanted)
        for _ in range(2):  # with what planning has found out, and without
            chunks = list(kind.search(view, ask, None, 1 << 62))
            found = [seq for chunk in chunks for seq in chunk.seqs.tolist()]
            keys = [int(key) for chunk in chunks for key in chunk.keys.to_list()]
            assert found == keys
            assert len(set(found)) == len(found)
            assert set(found) == wanted if decided else set(found) >= wanted


def filled(kind: WordsKind, texts: dict[int, list[str]], cuts: Sequence[int]) -> Any:
    """A memory that was given the texts in some calls."""
    memory, seqs = kind.memory(), list(texts)
    for start, limit in zip([0, *cuts], [*cuts, len(seqs)], strict=True):
        some = seqs[start:limit]
        if some:
            memory.append(
                Texts.of([" ".join(texts[seq]).encode() for seq in some]),
                Texts.of([str(seq).encode() for seq in some]),
                np.array(some), some[0],
            )  # fmt: skip
    return memory


def opened(kind: WordsKind, folder: Path, product: Product) -> Any:
    number = len(list(folder.iterdir())) + 1
    reader = kind.open(
        Component.open(folder, write_component(folder, number, product, kind="words", sync=False))
    )
    reader.check()
    return reader


@settings(max_examples=few(60))
@given(st.lists(TEXT, min_size=1, max_size=40), st.lists(st.integers(0, 40)), st.booleans())
def test_a_memory_tells_words_of_one_hash_apart(
    texts: list[list[str]], cuts: list[int], long: bool
) -> None:
    kind = WordsKind(seed=1)
    if long:  # more than a tail takes
        texts = [*texts, VOCABULARY * 200, *texts]
    numbered = dict(enumerate(texts, 1))
    memory = filled(kind, numbered, sorted(min(cut, len(texts)) for cut in cuts))
    agree(kind, kind.view([memory], []), numbered)


@settings(max_examples=few(30))
@given(
    parts=st.lists(st.lists(TEXT, min_size=1, max_size=12), min_size=1, max_size=4),
    data=st.data(),
)
def test_components_tell_them_apart_and_so_do_those_made_of_them(
    parts: list[list[list[str]]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind, folder, first = WordsKind(seed=1), tmp_path_factory.mktemp("c"), 1
    readers, texts = [], {}
    for part in parts:
        numbered = dict(enumerate(part, first))
        first += len(part)
        [product] = kind.seal(filled(kind, numbered, []))
        readers.append(opened(kind, folder, product))
        texts.update(numbered)
    agree(kind, kind.view([], readers), texts)
    kept = data.draw(st.sets(st.sampled_from(sorted(texts))))
    made = kind.merge(
        readers, MergeContext(owner=lambda keys, seqs: np.isin(seqs, list(kept)))
    )  # fmt: skip
    left = {seq: words for seq, words in texts.items() if seq in kept}
    assert len(made) == bool(left)
    agree(kind, kind.view([], [opened(kind, folder, product) for product in made]), left)


def unmarked(product: Product) -> Product:
    """As it was written before words of one hash were told apart; it has no two of them."""
    extra = {name: value for name, value in product.extra.items() if name != "apart"}
    return replace(product, extra=extra)


@settings(max_examples=few(30))
@given(old=st.lists(TEXT, min_size=1, max_size=8), new=st.lists(TEXT, min_size=1, max_size=8))
def test_old_components_are_right_but_do_not_decide(
    old: list[list[str]], new: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind, folder = WordsKind(seed=1), tmp_path_factory.mktemp("c")
    # No two words of one hash in one component: then the old form is the new one, but for the mark.
    apart, texts = [], {}
    for side in (0, 1):
        others = {pair[1 - side] for pair in PAIRS}
        own = dict(enumerate(([w for w in t if w not in others] for t in old), 1 + 100 * side))
        numbered = {seq: words for seq, words in own.items() if words}
        texts.update(numbered)
        made = kind.seal(filled(kind, numbered, [])) if numbered else []
        apart += [opened(kind, folder, unmarked(product)) for product in made]
    mixed = [opened(kind, folder, product) for product in kind.merge(apart)]
    for readers in (apart, mixed):
        agree(kind, kind.view([], readers), texts, decided=not readers)
    for reader in mixed:  # words of one hash have become one
        assert len(set(reader.hashes.tolist())) == len(reader.hashes)
    numbered = dict(enumerate(new, 1000))
    [product] = kind.seal(filled(kind, numbered, []))
    texts.update(numbered)
    both = [*mixed, opened(kind, folder, product)]
    agree(kind, kind.view([filled(kind, {}, [])], both), texts, decided=not mixed)
    for made in (both, both[::-1]):
        [product] = kind.merge(made)
        reader = opened(kind, folder, product)
        agree(kind, kind.view([], [reader]), texts, decided=not mixed)


def is_exact(docs: Collection, where: dict[str, Any]) -> bool:
    """Whether what is found is given without a second look."""
    finder = docs._finder
    return finder._plan(docs._engine.view(), parse(where), None).exact


WHERES: list[dict[str, Any]] = [
    {"t": {"$words": "one"}}, {"t": {"$words": "other"}}, {"t": {"$words": "one other"}},
    {"t": {"$words": '"other one"'}}, {"t": {"$words": 'one "ß é"'}}, {"t": {"$words": "SS"}},
    {"t": {"$fuzzy": {"words": ["one", "other"], "distance": 0}}},
    {"t": {"$fuzzy": {"words": ["one", {"word": "a", "distance": 1}], "distance": 0}}},
    {"$and": [{"t": {"$words": "one"}}, {"t": {"$words": "other"}}]},
    {"t": {"$words": "one", "$gt": "b"}}, {"t": {"$not": {"$words": "one"}}},
    {"t": {"$elemMatch": {"$words": "one"}}}, {"t": {"$words": "one"}, "id": {"$gt": 20}},
    {"$or": [{"t": {"$words": "one"}}, {"t": {"$words": "other a"}}]}, {"t.1": {"$words": "one"}},
]  # fmt: skip


def test_what_the_index_decides_is_not_looked_at_again() -> None:
    with tideline.open(":memory:") as database:
        docs = database.collection("docs", key="id", indexes={"t": "words", "t.1": "words"})
        docs.put_many([{"id": n, "t": f"w{n}"} for n in range(1000)])
        docs.put({"id": 1001, "t": "one other"})
        assert [is_exact(docs, where) for where in WHERES] == [
            *[True] * 7, *[False] * 7, True,
        ]  # fmt: skip


def test_find_and_count_are_those_of_a_scan(tmp_path: Path) -> None:
    draw, model = random.Random(3), {}
    database = tideline.open(tmp_path)
    docs = database.collection("docs", key="id", indexes={"t": "words", "t.1": "words"})
    names = dict(zip(("one", "other"), colliding(docs._engine.seed), strict=True))
    more = [{"id": 100 + n, "t": f"w{n}"} for n in range(300)]  # so that no scan is cheaper
    docs.put_many(more)
    model.update((each["id"], each) for each in more)

    def named(text: str) -> str:
        return " ".join(names.get(word, word) for word in text.split(" "))

    def asked(where: Any) -> Any:
        """A condition with the two words in it."""
        if isinstance(where, dict):
            return {name: asked(each) for name, each in where.items()}
        if isinstance(where, list):
            return [asked(each) for each in where]
        if isinstance(where, str) and where.startswith('"'):
            return f'"{named(where[1:-1])}"'
        return named(where) if isinstance(where, str) else where

    def text() -> str:
        return named(" ".join(draw.choices(["one", "other", "a", "b", "ß", "é", "Ss"], k=3)))

    def agree() -> None:
        for where in map(asked, WHERES):
            matches = parse(where).matches
            wanted = sorted(key for key, each in model.items() if matches(each))
            assert sorted(each["id"] for each in docs.find(where)) == wanted, where
            assert docs.count(where) == len(wanted), where
            found = docs.find(where)
            assert docs.find(where, limit=3) == found[:3], where
            assert list(docs.find_iter(where)) == found, where
            for skip, most in ((0, None), (2, 4), (len(found), 1)):
                batches = docs.find_batches(where, skip=skip, limit=most)
                rows = [row for batch in batches for row in batch.to_pylist()]
                assert [json.loads(row["document"]) for row in rows] == found[skip:][:most], where
                assert [json.loads(row["key"]) for row in rows] == [
                    each["id"] for each in found[skip:][:most]
                ]

    for turn in range(12):
        some = []
        for key in {draw.randrange(60) for _ in range(25)}:
            value: Any = draw.choice([text(), text(), [text(), text()], {"t": text()}, 7, None])
            some.append({"id": key, "t": value})
        docs.put_many(some)
        model.update((each["id"], each) for each in some)
        gone = [draw.randrange(60) for _ in range(5)]
        docs.delete_many(gone)
        for key in gone:
            model.pop(key, None)
        agree()
        if turn % 3 == 1:
            docs._engine.seal()
            agree()
        if turn == 7:
            docs._engine.drain()
            agree()
        if turn == 9:
            database.close()
            database = tideline.open(tmp_path)
            docs = database.collection("docs")
            agree()
    database.close()
