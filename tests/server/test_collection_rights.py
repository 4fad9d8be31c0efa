"""Who may do what with a collection: every scope crossed with every verb, two users crossed with
one another, against a model of a few lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many
from talk import Api

import tideline
from tideline.errors import Conflict, InvalidRequest, NotFound, Unauthorized
from tideline.server import running
from tideline.server.app import all_ops
from tideline.server.tokens import SCOPES, Tokens

ORDERS = "/v1/collections/orders"
OWN = {"orders": {"owner": "$user"}}

BODIES: dict[str, Any] = {
    "put": {"document": {"id": 1, "owner": "ann"}},
    "put_many": {"documents": [{"id": 1, "owner": "ann"}]},
    "insert": {"document": {"id": 9, "owner": "ann"}},
    "insert_many": {"documents": []},
    "check_many": {"documents": []},
    "update": {"key": 1, "change": {"$inc": {"n": 1}}},
    "update_many": {"where": {}, "change": {"$inc": {"n": 1}}},
    "replace": {"key": 1, "document": {"owner": "ann"}},
    "delete": {"key": 9},
    "delete_many": {"keys": [9]},
    "delete_where": {"where": {"id": 9}},
    "get": {"key": 1},
    "get_many": {"keys": [1]},
    "versioned": {"key": 1},
    "find": {},
    "find_one": {},
    "count": {},
    "distinct": {"field": "n"},
    "aggregate": {"pipeline": []},
    "nearest": {"point": [0, 0], "field": "at"},
    "aggregate_grid": {"box": [0, 0, 1, 1], "field": "at"},
    "lookup": {"field": "owner", "value": "ann"},
    "range_lookup": {"field": "owner", "low": "a"},
    "explain": {},
    "explain_watch": {},
    "advise": {},
    "landed": {"writer": "w", "number": 1},
    "forget_workload": {},
    "create_index": {"field": "n"},
    "drop_index": {"field": "n"},
}
WHOLE = {
    "components",
    "explain",
    "explain_watch",
    "advise",
    "landed",
    "forget_workload",
    "create_index",
    "drop_index",
    "cuts",
}


def verb_of(path: str) -> str:
    return path.removeprefix(ORDERS).strip("/").partition("?")[0]


def requests() -> Iterator[tuple[str, str, Any, str]]:
    """Every route of a collection: method, path, body, the scope it needs."""
    paths = {
        "GET /v1/collections/{collection}/cuts": "?parts=0",
        "GET /v1/collections/{collection}/changes": "?after=0&upto=0",
    }
    for op in all_ops():
        if "{collection}" not in op.path or "staged" in op.path or op.method + op.path in (
            "DELETE/v1/collections/{collection}", "PUT/v1/collections/{collection}",
        ) or op.path.endswith(("/stream", "/watch")):  # fmt: skip
            continue
        path = op.path.replace("{collection}", "orders").replace("{key}", "1")
        path += paths.get(f"{op.method} {op.path}", "")
        body = BODIES[verb_of(path)] if op.method == "POST" else None
        if op.method == "PUT":
            body = {"owner": "ann"}
        assert op.scope is not None
        yield op.method, path, body, op.scope


GRANTS: list[tuple[str | None, dict[str, Any] | None]] = [
    (None, None), ("ann", None), ("ann", OWN), (None, {"orders": {"owner": "ann"}}),
    ("ann", {"others": {}}), ("ann", {"*": {"owner": "$user"}}), ("ann", {"*": {}}),
]  # fmt: skip


def is_granted(scope: str, user: Any, rows: Any, needed: str, verb: str) -> bool:
    """The model: whether a token may use a verb on orders that needs a scope."""
    kind, _, name = scope.partition(":")
    if name == "others" or not (kind == "admin" or needed == "any" or kind in needed.split("|")):
        return False
    if user is None and rows is None:
        return True
    named = (rows or {}).get("orders", (rows or {}).get("*"))
    return named is not None and not (named and verb in WHOLE)


def test_every_verb_has_its_scope(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        tokens = Tokens(db.path)
        orders = db.collection(
            "orders", key="id", indexes={"owner": "lazy"}, journal_s=600, journal_before=True
        )
        made = []
        for kind, name, (user, rows) in itertools.product(
            SCOPES, ("", ":orders", ":others"), GRANTS
        ):
            if name == ":others" and (user, rows) != (None, None):
                continue  # the scope decides
            if kind == "admin" and rows is not None:
                with pytest.raises(InvalidRequest, match="cannot have the scope admin"):
                    tokens.create([kind + name], user=user, rows=rows)
            else:
                text, _ = tokens.create([kind + name], user=user, rows=rows)
                made.append((kind + name, user, rows, text))
        with running(db) as url:
            for (scope, user, rows, text), request in itertools.product(made, requests()):
                method, path, body, needed = request
                orders.put({"id": 1, "owner": "ann", "n": 1})
                orders.delete(9)
                if verb_of(path) == "drop_index" and "n" not in orders.indexes:
                    orders.create_index("n").wait()
                if verb_of(path) == "create_index" and "n" in orders.indexes:
                    orders.drop_index("n")
                answer = Api(url, text).call(method, path, body)
                granted = is_granted(scope, user, rows, needed, verb_of(path))
                wanted = 200 if granted else 403
                assert answer.status == wanted, (scope, user, rows, method, path, answer)


def test_whoever_may_use_a_collection_may_ask_whether_it_is_as_given(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        tokens = Tokens(db.path)
        text, _ = tokens.create(["read:orders"], user="ann", rows=OWN)
        everywhere, _ = tokens.create(["read"])
        orders = db.collection("orders", key="id", indexes={"owner": "lazy"}, journal_s=600)
        with running(db) as url:
            api = Api(url, text)
            for given, status in [
                ({}, 200), ({"key": "id"}, 200), ({"indexes": ["owner"]}, 200),
                ({"indexes": {"owner": None}}, 200), ({"journal_s": 600}, 200),
                ({"journal_before": False, "ttl_s": "never", "policy": "prefix"}, 200),
                ({"key": "no"}, 409), ({"indexes": {"owner": "eager"}}, 409),
                ({"indexes": []}, 409), ({"policy": "none"}, 409), ({"key": 7}, 400),
                ({"journal_s": 60}, 403), ({"journal_before": True}, 403), ({"ttl_s": 60}, 403),
                ({"journal_s": -1}, 403),
            ]:  # fmt: skip
                answer = api.put(ORDERS, given)
                assert answer.status == status, (given, answer)
                assert status != 200 or answer.json["stats"] is None  # it may not see all rows
            for other in ("others", "new"):
                assert api.put(f"/v1/collections/{other}", {"key": "id"}).status == 403
            assert Api(url, everywhere).put("/v1/collections/new", {"key": "id"}).status == 403
            assert Api(url, everywhere).put("/v1/channels/new", {}).status == 403
        assert db.collections() == ["orders"]
        assert db.channels() == []
        assert (orders.ttl_s, orders.journal_s, orders.journal_before) == (None, 600, False)


def test_what_puts_rows_aside_needs_all_of_them(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"document": pa.string()})):
        pass
    with tideline.open(tmp_path / "data") as db:
        tokens = Tokens(db.path)
        db.collection("orders", key="id")
        wanted = {
            tokens.create(["write:orders"])[0]: 200, tokens.create(["publish"])[0]: 200,
            tokens.create(["read"])[0]: 403,
            tokens.create(["write"], rows={"orders": {"owner": "ann"}})[0]: 403,
        }  # fmt: skip
        with running(db) as url:
            for text, status in wanted.items():
                data = sink.getvalue().to_pybytes()
                assert Api(url, text).post(f"{ORDERS}/staged?job=j", data=data).status == status


def test_a_token_that_only_writes_is_not_told_what_is_there(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        text, _ = Tokens(db.path).create(["write:orders"])
        db.collection("orders", key="id").put({"id": 1, "secret": 7})
        with running(db) as url:
            body = {"key": 1, "change": {"$inc": {"n": 1}}}
            assert Api(url, text).post(f"{ORDERS}/update", body).json == {"result": None}
        assert db.collection("orders").get(1) == {"id": 1, "secret": 7, "n": 1}


def test_lists_and_numbers_are_of_what_a_token_may_use(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        tokens = Tokens(db.path)
        for name in ("orders", "others"):
            db.collection(name, key="id")
        one, _ = tokens.create(["read:orders"])
        own, _ = tokens.create(["read"], user="ann", rows=OWN)
        with running(db) as url:
            with tideline.connect(url, token=one) as remote:
                assert remote.collections() == ["orders"]
                assert list(remote.stats()) == ["orders"]
            with tideline.connect(url, token=own) as remote:
                assert remote.collections() == ["orders"]
                assert remote.stats() == {}
                with pytest.raises(Unauthorized):
                    remote.collection("others")


# ---- two users --------------------------------------------------------------------------------

USERS = ("ann", "bob")
KEYS = st.integers(1, 5)
OWNERS = st.sampled_from([*USERS, None])
DOCUMENTS = st.builds(
    lambda key, owner, n: {"id": key, "n": n} | ({"owner": owner} if owner else {}),
    KEYS, OWNERS, st.integers(0, 3),
)  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.sampled_from(["put", "insert", "replace"]), DOCUMENTS),
    st.tuples(st.sampled_from(["put_many", "insert_many"]), st.lists(DOCUMENTS, max_size=4)),
    st.tuples(st.sampled_from(["update", "upsert"]), st.tuples(KEYS, OWNERS)),
    st.tuples(st.just("update_many"), OWNERS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("delete_many"), st.lists(KEYS, max_size=3)),
    st.tuples(st.just("delete_where"), st.integers(0, 3)),
)


class Model:
    """What the documents are, and what a user's call does to them: an outcome, or an error."""

    def __init__(self) -> None:
        self.documents: dict[int, dict[str, Any]] = {}

    def own(self, user: str) -> dict[int, dict[str, Any]]:
        return {k: d for k, d in self.documents.items() if d.get("owner") == user}

    def store(self, user: str, document: dict[str, Any]) -> Any:
        there = self.documents.get(document["id"])
        if document.get("owner") != user or (there is not None and there.get("owner") != user):
            return Unauthorized
        self.documents[document["id"]] = document
        return None

    def insert(self, user: str, document: dict[str, Any]) -> Any:
        hidden = document.get("owner") == user and document["id"] in self.documents
        if hidden or document["id"] in self.own(user):
            return Conflict
        return self.store(user, document)

    def replace(self, user: str, document: dict[str, Any]) -> Any:
        return self.store(user, document) if document["id"] in self.own(user) else NotFound

    def update(self, user: str, key: int, owner: Any, upsert: bool) -> Any:
        old = self.own(user).get(key)
        if old is None and not upsert:
            return NotFound
        return self.store(user, {**(old or {"id": key}), "owner": owner, "n": 9})

    def many(self, verb: str, user: str, documents: list[dict[str, Any]]) -> Any:
        call = self.insert if verb == "insert_many" else self.store
        bad, seen = [], set()
        for row, document in enumerate(documents):
            again = verb == "insert_many" and document["id"] in seen
            seen.add(document["id"])
            if again or call(user, document) is not None:
                bad.append(row)
        return len(documents) - len(bad), bad

    def step(self, user: str, verb: str, given: Any) -> Any:
        own = self.own(user)
        if verb == "put":
            return self.store(user, given)
        if verb == "insert":
            return self.insert(user, given)
        if verb == "replace":
            return self.replace(user, given)
        if verb in ("update", "upsert"):
            return self.update(user, *given, upsert=verb == "upsert")
        if verb in ("put_many", "insert_many"):
            return self.many(verb, user, given)
        if verb == "update_many":
            if own and given != user:
                return Unauthorized
            for key in own:
                self.documents[key] = {**self.documents[key], "seen": True}
            return len(own)
        gone = [given] if verb == "delete" else given
        if verb == "delete_where":
            gone = [key for key, document in own.items() if document["n"] == given]
        for key in gone:
            if key in own:
                self.documents.pop(key, None)
        return len(gone) if verb == "delete_where" else None


def done(orders: Any, verb: str, given: Any) -> Any:
    """The same on the server."""
    if verb in ("put_many", "insert_many"):
        told = getattr(orders, verb)(given)
        return told.stored, told.rejected["row"].to_pylist()
    if verb in ("update", "upsert"):
        key, owner = given
        orders.update(key, {"$set": {"owner": owner, "n": 9}}, upsert=verb == "upsert")
        return None
    if verb == "update_many":
        return orders.update_many({}, {"$set": {"owner": given, "seen": True}}).matched
    if verb == "delete_where":
        return orders.delete_where({"n": given})
    if verb == "replace":
        orders.replace(given["id"], given)
        return None
    found = getattr(orders, verb)(given)
    return None if verb == "insert" else found


def outcome(orders: Any, verb: str, given: Any) -> Any:
    try:
        return done(orders, verb, given)
    except (Unauthorized, Conflict, NotFound) as error:
        return type(error)


READS: dict[str, Callable[[Any], list[Any]]] = {
    "find": lambda c: c.find(),
    "find_iter": lambda c: list(c.find_iter()),
    "find_lazily": lambda c: list(c.find_lazily()),
    "sorted": lambda c: c.find({"n": {"$gte": 0}}, sort={"n": 1}),
    "pages": lambda c: c.find({"$or": [{"owner": "ann"}, {"owner": "bob"}, {"n": 9}, {}]}),
    "get_many": lambda c: [one for one in c.get_many(range(1, 6)) if one],
    "get": lambda c: [one for one in map(c.get, range(1, 6)) if one],
    "versioned": lambda c: [one.document for one in map(c.versioned, range(1, 6)) if one],
    "find_one": lambda c: [d for d in (c.find_one({"id": key}) for key in range(1, 6)) if d],
    "aggregate": lambda c: c.aggregate([{"$match": {}}, {"$limit": 100}]),
    "lookup": lambda c: c.lookup("owner", "ann", 3) + c.lookup("owner", "bob")
    + [d for d in c.lookup("owner", None) if d],
    "batches": lambda c: [r for b in c.find_batches() for r in map(decoded, b.to_pylist())],
    "scan": lambda c: [r for b in c.scan() for r in map(decoded, b.to_pylist())],
}  # fmt: skip


def decoded(row: dict[str, Any]) -> Any:
    import json

    return json.loads(row["document"])


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, Any]]]:
    with tideline.open(tmp_path_factory.mktemp("shop") / "data") as db:
        tokens = Tokens(db.path)
        made = db.collection("orders", key="id", indexes={"owner": "lazy"})
        scopes = ["read:orders", "write:orders"]
        texts = {user: tokens.create(scopes, user=user, rows=OWN)[0] for user in USERS}
        with running(db) as url:
            remotes = {user: tideline.connect(url, token=text) for user, text in texts.items()}
            yield made, {user: one.collection("orders") for user, one in remotes.items()}
            for one in remotes.values():
                one.close()


@given(steps=st.lists(st.tuples(st.sampled_from(USERS), STEPS), min_size=1, max_size=15))
@settings(max_examples=many(60))
def test_a_user_sees_and_writes_own_documents_alone(shop: Any, steps: list[Any]) -> None:
    whole, orders = shop
    whole.delete_where({})
    whole.put({"id": 5, "owner": "bob", "n": 1})
    model = Model()
    model.documents[5] = {"id": 5, "owner": "bob", "n": 1}
    for user, (verb, given_) in steps:
        wanted = model.step(user, verb, given_)
        assert outcome(orders[user], verb, given_) == wanted, (user, verb, given_)
    assert sorted(whole.find(), key=lambda d: d["id"]) == [
        document for _, document in sorted(model.documents.items())
    ]
    for user in USERS:
        own = sorted(model.own(user).values(), key=lambda d: d["id"])
        for name, read in READS.items():
            assert sorted(read(orders[user]), key=lambda d: d["id"]) == own, (user, name)
        assert orders[user].count() == len(own)
        assert orders[user].distinct("owner") == ([user] if own else [])
        assert orders[user].range_lookup("owner", "a", "z", 2) == orders[user].find(limit=2)


def test_a_unique_value_of_another_user_is_refused_without_a_name(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        tokens = Tokens(db.path)
        made = db.collection("orders", key="id", indexes={"mail": {"kind": "lazy", "unique": True}})
        made.put({"id": "secret", "owner": "bob", "mail": "b@x"})
        text, _ = tokens.create(["read", "write"], user="ann", rows=OWN)
        with running(db) as url, tideline.connect(url, token=text) as remote:
            orders = remote.collection("orders")
            for call in (orders.put, orders.insert):
                with pytest.raises(Conflict) as told:
                    call({"id": 1, "owner": "ann", "mail": "b@x"})
                assert "secret" not in str(told.value)
            done = orders.put_many([{"id": 1, "owner": "ann", "mail": "b@x"}])
            assert "secret" not in str(done.rejected.to_pylist())
            assert done.stored == 0


def test_changes_show_what_meets_the_rule(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        tokens = Tokens(db.path)
        made = db.collection("orders", key="id", journal_s=600, journal_before=True)
        made.put({"id": 1, "owner": "ann"})
        made.put({"id": 2, "owner": "bob"})
        made.put({"id": 1, "owner": "ann", "n": 2})
        made.put({"id": 1, "owner": "bob", "n": 3})
        made.put({"id": 2, "owner": "ann"})
        made.delete(1)
        made.delete(2)
        text, _ = tokens.create(["read"], user="ann", rows=OWN)
        with running(db) as url:
            answer = Api(url, text).get(f"{ORDERS}/changes?after=0&upto=7&before=true")
            table = pa.ipc.open_stream(answer.body).read_all()
            found = [(row["seq"], row["op"], row["before"], row["document"])
                     for row in table.to_pylist()]  # fmt: skip
            first, second = '{"id":1,"owner":"ann"}', '{"id":1,"owner":"ann","n":2}'
            assert found == [
                (1, "c", None, first), (3, "u", first, second), (4, "d", second, None),
                (5, "c", None, '{"id":2,"owner":"ann"}'), (7, "d", '{"id":2,"owner":"ann"}', None),
            ]  # fmt: skip
            answer = Api(url, text).get(f"{ORDERS}/changes?after=0&upto=7")
            assert set(pa.ipc.open_stream(answer.body).read_all()["before"].to_pylist()) == {None}
