"""Readers take no lock: a view stays as it is, and every answer is that of one moment.

The judge is a plain dict that replays the history of writes. Reads tell the seq of their view, so
each answer is compared with what the collection held after just that write.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judge import Judge

from tideline.documents import rows
from tideline.documents.collection import Collection
from tideline.documents.engine import Engine
from tideline.documents.types import DELETE, Rows
from tideline.documents.view import View
from tideline.errors import NotFound
from tideline.index.extract import extract
from tideline.index.memory import Budget
from tideline.index.texts import Texts
from tideline.where.keys import encode

KINDS = ("embedded", "composite", "lazy", "eager")
INDEXES = {"n": "embedded", "group": "embedded", "mod": "composite", "tag": "lazy", "pair": "eager"}
KEYS = 40
CONDITIONS: list[dict[str, Any]] = [
    {"tag": "t1", "mod": {"$gte": 2}},
    {"$or": [{"tag": "t2"}, {"mod": 3}, {"group": 5}]},
    {"mod": {"$in": [0, 4]}, "n": {"$gt": 10}},
    {"pair": 1, "tag": {"$ne": "t0"}},
    {"n": {"$gte": 40, "$lt": 90}},
    {"late": {"$lte": 1}},
    {"id": {"$in": [1, 2, 3]}, "mod": {"$lt": 3}},
    {},
]
SORTS = [None, None, [("n", 1)], [("tag", -1), ("id", 1)]]
Question = tuple[Any, ...]


def document(key: int, n: int) -> dict[str, Any]:
    pair = [n % 2, n % 3] if n % 4 else n % 3
    return {
        "id": key, "n": n % 200, "group": n % 7, "mod": n % 5, "tag": f"t{n % 4}", "pair": pair,
        "late": n % 3, "pad": "p" * (n % 50),
    }  # fmt: skip


class Watched:
    """An engine that remembers what was written, and the seq of the view each thread took last."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.history: list[tuple[int, list[tuple[int, bytes, bytes]]]] = []
        self.taken = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def write(self, rows: Rows, once: tuple[str, int] | None = None) -> int:
        first = self.engine.write(rows, once)
        ops = zip(rows.ops.tolist(), rows.keys.to_list(), rows.docs.to_list(), strict=True)
        self.history.append((first, list(ops)))
        return first

    def view(self) -> View:
        view = self.engine.view()
        self.taken.seq = view.seq
        return view

    def replay(self) -> Iterator[Judge]:
        """A judge after no write, after the first, after the second and so on."""
        judge = Judge("id")
        yield judge
        keys = {encode(key): key for key in range(-9, KEYS + 9)}
        for first, ops in sorted(self.history, key=lambda write: write[0]):
            assert first == judge.seq + 1
            for op, key, doc in ops:
                if op == DELETE:
                    judge.delete(keys[key])
                else:
                    judge.put(json.loads(doc))
                yield judge


def open_watched(folder: Path, **settings: Any) -> tuple[Watched, Collection]:
    """With memory so little that a few dozen writes are sealed, and soon merged."""
    facts = {
        "key": "id", "seed": 99, "indexes": INDEXES, "filter": "n",
        "policy": {"name": "leveled", "first_bytes": 30_000, "ratio": 3, "max_count": 2},
    }  # fmt: skip
    engine = Engine(
        folder, facts, budget=Budget(8 << 20), durability="os", logged=True, extract=extract,
        **{"generation_bytes": 30_000, "segment_bytes": 1 << 20, **settings},
    )  # fmt: skip
    watched = Watched(engine)
    return watched, Collection("docs", watched)


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00005)
    yield
    sys.setswitchinterval(before)


# ---- questions ---------------------------------------------------------------------------------


def ask_view(view: View, rng: random.Random) -> tuple[Question, Any]:
    """A random question to a view, and its answer."""
    k = rng.choice([None, 1, 3, 10])
    field = rng.choice([*INDEXES, "late"])
    if field not in view.kinds:
        field = "tag"
    value = document(0, rng.randrange(200))[field]
    if isinstance(value, list):
        value = value[0]
    verb = rng.choice(["get", "get_many", "lookup", "range", "scan", "count"])
    if verb == "get":
        key = rng.randrange(KEYS)
        text = view.get(encode(key))
        return ("get", key), None if text is None else json.loads(text)
    if verb == "get_many":
        keys = rng.sample(range(KEYS), 5)
        texts = view.get_many(Texts.of([encode(key) for key in keys]))
        return ("get_many", keys), [None if text is None else json.loads(text) for text in texts]
    if verb == "lookup":
        found = view.lookup(field, encode(value), encode(value), k)
        assert found.seqs.tolist() == sorted(found.seqs.tolist(), reverse=True)
        return ("lookup", field, value, k), [json.loads(doc) for doc in found.docs]
    if verb == "range":
        high = value + "z" if isinstance(value, str) else value + 2
        found = view.lookup(field, encode(value), encode(high), k)
        return ("range", field, value, high, k), [json.loads(doc) for doc in found.docs]
    if verb == "scan":
        docs = [json.loads(doc) for part in view.scan(batch=7) for doc in part.docs]
        return ("scan",), docs
    return ("count",), view.count()


def ask_collection(docs: Collection, rng: random.Random) -> tuple[Question, Any]:
    """A condition, by whatever plan it gets."""
    where = rng.choice(CONDITIONS)
    if where and rng.random() < 0.3:
        return ("count where", where), docs.count(where)
    sort, limit = rng.choice(SORTS), rng.choice([None, 2, 7])
    return ("find", where, sort, limit), docs.find(where, sort=sort, limit=limit)


def expected(judge: Judge, question: Question) -> Any:
    verb, *of = question
    if verb == "get":
        return judge.get(of[0])
    if verb == "get_many":
        return [judge.get(key) for key in of[0]]
    if verb == "lookup":
        return judge.lookup(*of)
    if verb == "range":
        return judge.range_lookup(*of)
    if verb == "scan":
        return sorted(judge.newest(), key=lambda one: one["id"])
    if verb == "count":
        return len(judge.documents)
    if verb == "count where":
        return len(judge.find(of[0]))
    return judge.find(*of)


# ---- threads ----------------------------------------------------------------------------------


class Race:
    """Writers, readers and changers at once; what they saw is judged when all is over."""

    def __init__(self, watched: Watched, docs: Collection) -> None:
        self.watched, self.docs = watched, docs
        self.answers: list[tuple[int, Question, Any]] = []  # the seq of the view first
        self.gets: list[tuple[int, int, int, Any]] = []  # of the engine: from, to, key, document
        self.failures: list[BaseException] = []
        self.done = threading.Event()

    def write(self, seed: int, batches: int) -> None:
        """Overwrites and deletes the keys of all; has one key that nobody else writes."""
        rng, docs, own = random.Random(seed), self.docs, KEYS + seed
        for batch in range(batches):
            for _ in range(rng.randrange(8)):
                key = rng.randrange(KEYS)
                if rng.random() < 0.2:
                    docs.delete(key)
                else:
                    docs.put(document(key, rng.randrange(1000)))
            many = [rng.randrange(KEYS) for _ in range(rng.randrange(1, 40))]
            docs.put_many([document(key, rng.randrange(1000)) for key in many])
            mine = {**document(own, batch), "tag": f"own {seed}"}
            docs.put(mine)
            assert docs.get(own) == mine  # whoever has written sees it
            assert docs.lookup("tag", f"own {seed}") == docs.find({"id": own}) == [mine]
            if rng.random() < 0.1:
                docs.delete_many(range(rng.randrange(KEYS)))

    def change(self) -> None:
        """Seals, and an index that comes as another kind each time."""
        engine = self.watched.engine
        for kind in 2 * KINDS:
            if self.done.is_set():
                return
            self.docs.create_index("late", kind).wait()
            engine.seal()
            self.docs.drop_index("late")

    def read(self, seed: int) -> None:
        rng, watched = random.Random(seed), self.watched
        last, held = 0, watched.engine.view()
        while not self.done.is_set():
            view = watched.engine.view()
            assert view.seq >= last  # never back in time
            last = view.seq
            if rng.random() < 0.05:
                held = view
            for one in (view, held):
                self.answers.append((one.seq, *ask_view(one, rng)))
            question, answer = ask_collection(self.docs, rng)
            self.answers.append((watched.taken.seq, question, answer))
            key, before = rng.randrange(KEYS), watched.engine.view().seq
            found = self.docs.get(key)
            last = watched.engine.view().seq
            self.gets.append((before, last, key, found))

    def run(self, writers: int, readers: int, batches: int) -> None:
        def guarded(work: Any, *of: Any) -> None:
            try:
                work(*of)
            except BaseException as error:
                self.failures.append(error)
                self.done.set()

        others = [threading.Thread(target=guarded, args=(self.change,))]
        others += [threading.Thread(target=guarded, args=(self.read, n)) for n in range(readers)]
        writing = [
            threading.Thread(target=guarded, args=(self.write, n + 1, batches))
            for n in range(writers)
        ]
        for thread in others + writing:
            thread.start()
        for thread in writing:
            thread.join()
        self.done.set()
        for thread in others:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def judge(self) -> None:
        """Every answer is that of its moment; a get is that of a moment while it ran."""
        waiting = sorted(self.answers, key=lambda one: one[0])
        versions: dict[int, list[tuple[int, Any]]] = {key: [(0, None)] for key in range(KEYS)}
        at = 0
        for seq, judge in enumerate(self.watched.replay()):
            while at < len(waiting) and waiting[at][0] == seq:
                _, question, answer = waiting[at]
                assert answer == expected(judge, question), (seq, question)
                at += 1
            for key, versions_of in versions.items():
                if judge.get(key) is not versions_of[-1][1]:
                    versions_of.append((seq, judge.get(key)))
        assert at == len(waiting)
        for before, after, key, found in self.gets:
            newest = max(seq for seq, _ in versions[key] if seq <= before)
            good = [doc for seq, doc in versions[key] if newest <= seq <= after]
            assert found in good, (before, after, key)


def test_every_answer_is_that_of_one_moment_whatever_goes_on(tmp_path: Path) -> None:
    watched, docs = open_watched(tmp_path / "c")
    race = Race(watched, docs)
    race.run(writers=2, readers=3, batches=25)
    race.judge()
    asked = Counter(question[0] for _, question, _ in race.answers)
    verbs = ("get", "get_many", "lookup", "range", "scan", "count", "count where", "find")
    assert all(asked[verb] for verb in verbs), asked
    written = watched.engine.stats()["written_bytes"]
    assert written["primary seal"], written
    assert written["primary merge"], written
    watched.engine.check()
    watched.engine.close()


def test_a_memory_that_grows_is_read_as_it_was(tmp_path: Path) -> None:
    """One generation: its tables, lists and values grow again and again under the readers."""
    watched, docs = open_watched(tmp_path / "c", generation_bytes=32 << 20)
    stop = threading.Event()
    failures: list[BaseException] = []
    size = 64

    def read(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not stop.is_set():
                view = watched.engine.view()
                rounds = view.seq // size  # each round writes all keys
                if rounds == 0:
                    continue
                part = view.seq % size
                key = rng.randrange(size)
                last = rounds - 1 + (key < part)
                text = view.get(encode(key))
                assert text is not None
                assert json.loads(text)["n"] == last
                for field in ("tag", "mod", "pair"):
                    found = view.lookup(field, encode(f"v{last} {key}"), encode(f"v{last} {key}"))
                    assert [json.loads(doc)["id"] for doc in found.docs] == [key]
                    old = encode(f"v{last - 1} {key}")
                    assert len(view.lookup(field, old, old).docs) == 0
                    ranged = view.lookup(field, encode(f"v{last} "), encode(f"v{last} z"), 200)
                    many = part or size if last == rounds else size - part
                    assert len(ranged.docs) == many
                group = view.lookup("group", encode(0), encode(0), None)
                assert len(group.docs) == size
                assert len(view.lookup("n", encode(rounds), encode(rounds)).docs) == part
        except BaseException as error:
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(150):
            texts = [f"v{turn} {key}" for key in range(size)]
            made = [
                {"id": key, "n": turn, "group": 0, "mod": text, "tag": text, "pair": text}
                for key, text in enumerate(texts)
            ]
            if turn % 2:
                docs.put_many(made)
            else:
                for one in made:
                    docs.put(one)
            if stop.is_set():
                break
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert watched.engine.stats()["components"]["primary"] == []
    watched.engine.close()


# ---- views that are kept ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_view_stays_as_it_is_whatever_is_written_after_it(seed: int, tmp_path: Path) -> None:
    """Overwritten, deleted, sealed, merged, its index dropped and its files deleted."""
    watched, docs = open_watched(tmp_path / "c", generation_bytes=[12_000, 4 << 20][seed % 2])
    rng = random.Random(seed)
    views: list[tuple[int, View]] = []
    n = 0
    for step in range(120):
        what = rng.randrange(10)
        if what < 4:
            docs.put(document(rng.randrange(KEYS), n := n + 1))
        elif what < 6:
            docs.put_many([document(rng.randrange(KEYS), n := n + 1) for _ in range(20)])
        elif what == 6:
            docs.delete(rng.randrange(KEYS))
        elif what == 7 and rng.random() < 0.5:
            watched.engine.seal()
        elif what == 8 and rng.random() < 0.5:
            if "late" in docs.indexes:
                docs.drop_index("late")
            else:
                docs.create_index("late", KINDS[step % 4]).wait()
        views.append((step, watched.engine.view()))
        if rng.random() < 0.3:  # readers have been at work before
            ask_view(views[-1][1], rng)
    docs.put_many([document(key, n := n + 1) for key in range(KEYS)])
    watched.engine.seal()
    answers = sorted(
        ((view.seq, *ask_view(view, rng)) for _, view in views for _ in range(8)),
        key=lambda one: one[0],
    )
    for seq, judge in enumerate(watched.replay()):
        for of, question, answer in answers:
            if of == seq:
                assert answer == expected(judge, question), (seq, question)
    watched.engine.close()


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_find_is_of_one_moment_though_its_searches_are_not(
    where: dict[str, Any], tmp_path: Path
) -> None:
    """After each of its searches everything is written anew, and once sealed."""
    watched, docs = open_watched(tmp_path / "c", generation_bytes=1 << 20)
    turns = [0]

    def meddle() -> None:
        turns[0] += 1
        n = 40 * turns[0]
        watched.write(rows.prepare([document(key, key + n) for key in range(KEYS)], "id",
                                   tuple(watched.indexes), "n").rows)  # fmt: skip
        if turns[0] == 2:
            watched.engine.seal()

    class Meddled(View):
        """A view beside which much is written."""

        def search(self, *of: Any, **options: Any) -> Any:
            found = super().search(*of, **options)
            meddle()
            return found

        def candidates(self, *of: Any, **options: Any) -> Any:
            found = super().candidates(*of, **options)
            meddle()
            return found

        def scan(self, *of: Any, **options: Any) -> Any:
            for part in super().scan(*of, batch=9, **options):
                meddle()
                yield part

        def fetch(self, keys: Texts) -> Any:
            meddle()
            return super().fetch(keys)

    docs.put_many([document(key, key + 3) for key in range(KEYS)])
    answers: list[tuple[int, Question, Any]] = []
    for sort in SORTS[1:]:
        for limit in (None, 5):
            view = watched.engine.view()
            meddled = Meddled(view.now, view._readers, view._recent, view.time)
            watched.view = lambda view=meddled: view
            before = turns[0]
            found = docs.find(where, sort=sort, limit=limit)
            assert turns[0] > before or not found  # what a filter leaves out is not read
            answers.append((view.seq, ("find", where, sort, limit), found))
    for seq, judge in enumerate(watched.replay()):
        for of, question, answer in answers:
            if of == seq:
                assert answer == expected(judge, question), question
    watched.engine.close()


def test_readers_answer_while_every_lock_is_taken(tmp_path: Path) -> None:
    watched, docs = open_watched(tmp_path / "c")
    rng = random.Random(1)
    docs.put_many([document(key, key) for key in range(KEYS)])
    watched.engine.seal()
    docs.put_many([document(key, key + 7) for key in range(0, KEYS, 2)])
    engine = watched.engine
    judge = list(watched.replay())[-1]
    with engine.writing, engine.lock:  # would wait for ever if one of them were taken again
        for _ in range(60):
            question, answer = ask_view(engine.view(), rng)
            assert answer == expected(judge, question)
            question, answer = ask_collection(docs, rng)
            assert answer == expected(judge, question)
            assert docs.get(3) == judge.get(3)
        assert engine.stats()["seq"] == engine.view().seq
    engine.close()


def test_questions_that_cannot_be_answered_cost_no_buffers(tmp_path: Path) -> None:
    watched, docs = open_watched(tmp_path / "c")
    docs.put(document(1, 1))
    for _ in range(50):
        with pytest.raises(NotFound):
            watched.engine.lookup("nothing", b"", b"")
        with pytest.raises(NotFound):
            watched.engine.estimate("nothing", b"", b"")
        assert len(docs.find({"tag": "t1"})) == docs.count() == 1
    assert len(watched.engine._readers._states) == len(watched.engine._readers.idle) == 1
    watched.engine.close()


def test_a_memory_is_used_again_only_when_no_view_has_it(tmp_path: Path) -> None:
    watched, docs = open_watched(tmp_path / "c", generation_bytes=200_000)
    engine = watched.engine

    def turn(n: int) -> Any:
        """One generation, from its first write to the seal; its memory."""
        docs.put_many([document(key, n) for key in range(KEYS)])
        views.append(engine.view())
        records = engine.active.records
        engine.seal()
        return records

    views: list[View] = []
    first = turn(1)
    second = turn(2)  # at its end a memory is needed, and that of the first is read
    assert engine.active.records not in (first, second)
    view = views[0]
    assert view.count() == KEYS
    assert json.loads(view.get(encode(5)) or b"{}") == document(5, 1)
    kept = weakref.ref(view.now[0])
    views.clear()
    del view
    gc.collect()
    assert kept() is None  # readers that are idle hold nothing
    turn(3)
    assert engine.active.records is second
    assert docs.count() == KEYS
    engine.close()
