"""What indexes on text promise beside the contract of every kind (test_kinds.py).

Kernels against plain Python: folding, tokens, runs, searching memory and components, merging.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many

import tideline
from tideline.errors import Corruption, InvalidRequest
from tideline.index.inverted import InvertedKind, TextAsk
from tideline.index.kind import Asked
from tideline.index.ngrams import NgramsKind, pieces
from tideline.index.texts import Texts
from tideline.index.textual import extract, folded_texts
from tideline.index.words import WordsKind
from tideline.lsm.component import Component, Product, write_component
from tideline.lsm.tree import MergeContext
from tideline.where import parse
from tideline.where.bounds import bounds
from tideline.where.order import entries
from tideline.where.tree import Regex

TEXTS = st.one_of(
    st.text(st.characters(max_codepoint=127), max_size=20),
    st.text("aB é-ß東İſKß\u0301", max_size=12),
    st.sampled_from(["", " ", "--", "a" * 300, "Flat TIRE, exit 12b", "line\nbreak", "\x00a"]),
)
VALUES = st.one_of(TEXTS, TEXTS, st.lists(st.one_of(TEXTS, st.integers()), max_size=3), st.none())


@given(st.lists(st.one_of(VALUES, st.just({"x": 1})), max_size=8), st.booleans(), st.booleans())
def test_texts_are_folded_as_plain_python_folds_them(
    values: list[Any], words: bool, raw: bool
) -> None:
    documents = [{"a": {"b": value}} for value in values]
    encoded = [msgspec.json.encode(each) for each in documents] + [b"", b'{"a": 1}']
    [found] = extract(Texts.of(encoded), ["a.b"], words=words, raw=raw)
    wanted = [
        (row, text)
        for row, each in enumerate(documents)
        for one in entries(each, "a.b")
        if isinstance(one, str)
        for text in folded_texts(one, words, raw)
    ]
    assert list(zip(found.row.tolist(), found.values.to_list(), strict=True)) == wanted


def tokens_of(kind: InvertedKind, text: bytes) -> list[str]:
    decoded = text.decode()
    if not kind.grams:
        return decoded.split(" ")
    n = kind.grams
    return [decoded[at : at + n] for at in range(max(len(decoded) - n, 0) + 1)]


def lists_of(kind: InvertedKind, product: Product) -> dict[str, list[tuple[int, int]]]:
    """The lists of a component: (seq, position) of each token."""
    rows = product.table.to_pylist()
    known = rows[0]["entries"]
    return {
        row["token"].decode(): [
            (known[each["entry"]]["seq"], each["position"]) for each in row["postings"]
        ]
        for row in rows
    }


def filled(kind: InvertedKind, batches: list[list[bytes]], first: int = 1) -> Any:
    memory = kind.memory()
    for batch in batches:
        keys = Texts.of([f"k{first + n}".encode() for n in range(len(batch))])
        memory.add(Texts.of(batch), keys, first, np.arange(len(batch)))
        first += len(batch)
    return memory


@settings(max_examples=many(60))
@given(st.data(), st.sampled_from([0, 2, 3]))
def test_a_component_has_the_lists_of_its_texts(data: st.DataObject, grams: int) -> None:
    kind: InvertedKind = NgramsKind(seed=3, n=grams) if grams else WordsKind(seed=3)
    word = st.sampled_from(["a", "b", "ab", "é東", "tide" * 9])
    text = st.lists(word, min_size=1, max_size=6).map(lambda words: " ".join(words).encode())
    batches = data.draw(st.lists(st.lists(text, min_size=1, max_size=80), min_size=1, max_size=5))
    if data.draw(st.booleans()):
        batches.append([b" ".join(b"w%d" % n for n in range(2000))])  # more than a tail takes
    [product] = kind.seal(filled(kind, batches))
    wanted = defaultdict(list)
    for seq, each in enumerate((each for batch in batches for each in batch), 1):
        for position, token in enumerate(tokens_of(kind, each)):
            wanted[token].append((seq, position))
    assert lists_of(kind, product) == wanted
    counts = [each["tokens"] for each in product.table["entries"][0].as_py()]
    assert counts == [len(set(tokens_of(kind, each))) for batch in batches for each in batch]


def opened(kind: InvertedKind, folder: Path, number: int, product: Product) -> Any:
    info = write_component(folder, number, product, kind=kind.name, sync=False)
    reader = kind.open(Component.open(folder, info))
    reader.check()
    return reader


def test_merging_keeps_what_the_owner_keeps(tmp_path: Path) -> None:
    kind, draw = WordsKind(seed=5), random.Random(8)
    readers, wanted = [], defaultdict(list)
    for part in range(4):  # seqs of the parts lie among each other
        texts = [" ".join(draw.choices("abcdefgh", k=draw.randrange(1, 9))) for _ in range(300)]
        seqs = np.array([1 + 4 * n + part for n in range(300)])
        keys = Texts.of([f"k{seq}".encode() for seq in seqs])
        order = np.array(draw.sample(range(300), 300))
        [product] = kind.build(
            Texts.of([texts[n].encode() for n in order]), keys.take(order), seqs[order]
        )
        readers.append(opened(kind, tmp_path, part + 1, product))
        for seq, text in zip(seqs.tolist(), texts, strict=True):
            if seq % 3:
                for position, word in enumerate(text.split()):
                    wanted[word].append((seq, position))

    def owner(keys: Texts, seqs: Any) -> Any:
        assert [key.decode() for key in keys.to_list()] == [f"k{seq}" for seq in seqs.tolist()]
        return seqs % 3 != 0

    [product] = kind.merge(readers, MergeContext(owner=owner))
    assert lists_of(kind, product) == {word: sorted(each) for word, each in wanted.items()}
    opened(kind, tmp_path, 9, product)
    assert kind.merge(readers, MergeContext(owner=lambda keys, seqs: seqs < 0)) == []


@pytest.mark.parametrize("column", ["hash", "postings", "entries"])
def test_a_component_in_disorder_is_told(column: str, tmp_path: Path) -> None:
    kind = WordsKind(seed=1)
    [product] = kind.seal(filled(kind, [[b"a b c", b"b c d a", b"d d"]]))
    names = product.table.column_names
    rows = product.table[column].to_pylist()
    if column == "hash":
        rows.reverse()
    elif column == "postings":
        rows[1] = rows[1][::-1] if len(rows[1]) > 1 else [{"entry": 99, "position": 0}]
    else:
        rows[0].reverse()
    changed = product.table.set_column(
        names.index(column), column, __import__("pyarrow").array(rows, product.table[column].type)
    )
    info = write_component(
        tmp_path, 1, Product(changed, product.rows, product.filters), kind="words", sync=False
    )
    with pytest.raises(Corruption, match=r"order|fall|list"):
        kind.open(Component.open(tmp_path, info)).check()


def test_other_columns_are_told(tmp_path: Path) -> None:
    import pyarrow as pa

    product = Product(pa.table({"token": ["a"]}), 1, {})
    info = write_component(tmp_path, 1, product, kind="words", sync=False)
    with pytest.raises(Corruption, match="other columns than it should"):
        WordsKind(seed=1).open(Component.open(tmp_path, info))


def test_a_call_that_was_cut_ends_what_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    from tideline.index import invertedmemory

    kind = WordsKind(seed=1)
    memory = filled(kind, [[b"a b"] * 400] * 2)
    texts, keys = Texts.of([b"a c"] * 400), Texts.of([b"k"] * 400)

    def cut(*args: Any) -> None:
        raise KeyboardInterrupt

    for name in ("make", "merged"):
        with monkeypatch.context() as patched:
            patched.setattr(invertedmemory.runs, name, cut)
            with pytest.raises(KeyboardInterrupt):
                memory.add(texts, keys, 801, np.arange(400))
    for _ in range(2):
        memory.add(texts, keys, 801, np.arange(400))
    assert memory.count == 1200
    [product] = kind.seal(memory)
    assert {word: len(each) for word, each in lists_of(kind, product).items()} == {
        "a": 1200, "b": 800, "c": 400,
    }  # fmt: skip
    assert {each["tokens"] for each in product.table["entries"][0].as_py()} == {2}


def test_it_is_searched_while_it_is_written() -> None:
    kind = WordsKind(seed=1)
    memory = kind.memory(1 << 14)
    view, [(ask,)] = kind.view([memory], []), kind.serves(asked_of({"$words": 'x "a b"'}))
    wrong: list[Any] = []
    done = threading.Event()

    def search() -> None:
        least = 0
        while not done.is_set() or least < 3000:
            shown = memory.count
            found = list(kind.search(view, ask, None, 1 << 62))
            seqs = sorted(found[0].seqs.tolist()) if found else []
            if len(seqs) < shown or seqs != list(range(1, len(seqs) + 1)) or len(seqs) < least:
                wrong.append((shown, seqs))
                return
            least = len(seqs)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for each in threads:
        each.start()
    for first in range(1, 3001, 5):
        keys = Texts.of([b"k"] * 5)
        memory.add(
            Texts.of([b"x a b %d" % (first + n) for n in range(5)]), keys, first, np.arange(5)
        )
    done.set()
    for each in threads:
        each.join()
    assert not wrong


def asked_of(operators: dict[str, Any]) -> Asked:
    [box] = bounds(parse({"a": operators})).boxes
    return Asked((), box.tests.get("a", ()), lambda: True)


OPERATORS = st.one_of(
    st.builds(lambda text: {"$contains": text}, st.text("aBé- ", min_size=1, max_size=6)),
    st.builds(
        lambda text, n, t: {"$jaccard": {"text": text, "grams": n, "similarity": t}},
        st.text("ab é", max_size=9), st.sampled_from([2, 3]),
        st.sampled_from([0, 0.2, 0.5, 0.8, 1]),
    ),
    st.builds(
        lambda words, t: {"$fuzzy": {"words": words, "similarity": t}},
        st.lists(st.text("abé", min_size=1, max_size=12), min_size=1, max_size=2),
        st.sampled_from([0, 0.5, 0.6, 0.75, 0.8, 0.9, 1]),
    ),
    st.builds(
        lambda words, d: {"$fuzzy": {"words": words, "distance": d}},
        st.lists(st.text("ab", min_size=1, max_size=14), min_size=1, max_size=2),
        st.integers(0, 3),
    ),
    st.builds(
        lambda text, options: {"$regex": text, "$options": options},
        st.sampled_from(
            ["ab", "a.ba", "ba+b", "é-a", "^ab", "b?ab", "k", "Ka", "s b", "[ab]ab", "ab{2}a"]
        ),
        st.sampled_from(["", "i"]),
    ),
    st.builds(
        lambda words, quote: {"$words": quote + " ".join(words) + quote},
        st.lists(st.sampled_from(["a", "b", "ab", "é"]), min_size=1, max_size=3),
        st.sampled_from(["", '"']),
    ),
)  # fmt: skip
STORED = st.lists(
    st.one_of(st.text("abAB é-", max_size=14), st.text("aKſskb\u0301\u212a", max_size=8)),
    max_size=20,
)


@settings(max_examples=many(300))
@given(STORED, st.lists(OPERATORS, min_size=1, max_size=4), st.sampled_from(["words", 2, 3]))
def test_nothing_that_meets_a_condition_is_missed(
    texts: list[str], asked: list[dict[str, Any]], which: Any
) -> None:
    kind: InvertedKind = WordsKind(seed=2) if which == "words" else NgramsKind(seed=2, n=which)
    documents = [{"a": text} for text in texts]
    [found] = kind.extract(Texts.of([msgspec.json.encode(each) for each in documents]), ["a"])
    memory = kind.memory()
    keys = Texts.of([str(n).encode() for n in range(len(texts))])
    memory.add(found.values, keys, 1, found.row)
    view = kind.view([memory], [])
    for operators in asked:
        matches = parse({"a": operators}).matches
        wanted = {number for number, each in enumerate(documents) if matches(each)}
        for (ask,) in kind.serves(asked_of(operators)):
            assert isinstance(ask, TextAsk)
            led = {
                int(key)
                for chunk in kind.search(view, ask, None, 1 << 62)
                for key in chunk.keys.to_list()
            }
            assert wanted <= led, operators
            assert kind.estimate(view, ask).entries >= len(led)
            if which == "words":
                assert led == wanted or "$fuzzy" in operators


@pytest.mark.parametrize(
    ("pattern", "options", "found"),
    [
        ("tire", "", ["tire"]), ("t\\.re", "", ["t.re"]), ("a|b", "", []), ("(ab)c", "", []),
        ("ab*c", "", ["a", "c"]), ("ab{2,3}cd", "", ["a", "cd"]), ("ab+cd", "", ["ab", "cd"]),
        ("[ab]cde", "", ["cde"]), ("[]a]cde", "", ["cde"]), ("\\dabc\\w", "", ["abc"]),
        ("\\x41bc", "", []), ("\\pLbc", "", []), ("\\Qa*\\E", "", []), ("Ask", "i", ["a"]),
        ("É3Abc", "", ["É3abc"]), ("É3Abc", "i", ["3abc"]), ("a b", "x", []),
        ("[[:alpha:]]b", "", []),
    ],
)  # fmt: skip
def test_plain_pieces_of_a_pattern(pattern: str, options: str, found: list[str]) -> None:
    assert pieces(Regex(pattern, options)) == found


@pytest.mark.parametrize("n", [1, 9, 2.0, True, "3"])
def test_a_wrong_size_of_grams_is_told(n: Any) -> None:
    with pytest.raises(InvalidRequest, match="n must be a whole number, 2 to 8"):
        NgramsKind(seed=1, n=n)


def test_components_outside_a_filter_are_not_searched(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as database:
        notes = database.collection("notes", key="id", filter="time", indexes={"note": "words"})
        for part in range(3):
            notes.put_many(
                [{"id": 100 * part + n, "time": part, "note": "flat tire"} for n in range(50)]
            )
            notes._engine.seal()
        view = notes._engine.view()
        kind, sources = view.kind_of("note"), view.now[0]
        whole = sources.alone["note"]
        from tideline.where.keys import encode

        assert len(whole.readers) == 3
        assert len(kind.passing(whole, {"wanted": (encode(1), encode(1))}).readers) == 1
        assert notes.count({"note": {"$words": "tire"}, "time": 1}) == 50
