"""The model of live queries: the change log replayed, and `find` run again at every version.

A `Reader` is a user: it begins with `result`, applies the changes in order, and after all changes
of a version has what `find` gives at that version, computed here from the documents alone.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from tideline.documents.grouping import group
from tideline.live import Collection, Live
from tideline.live.query import GroupQuery, Query
from tideline.model import LiveChange
from tideline.where import parse
from tideline.where.order import sort_keys

Document = dict[str, Any]


class History:
    """Every state that a collection ever had, from its change log."""

    def __init__(self) -> None:
        self.states: list[dict[Any, tuple[int, Document]]] = [{}]

    def read(self, collection: Collection) -> int:
        """Bring it up to now; the newest version."""
        with collection.changes(after=len(self.states) - 1) as changes:
            for change in changes.take():
                assert change.seq == len(self.states)
                state = dict(self.states[-1])
                state.pop(change.key, None)
                if change.after is not None:
                    state[change.key] = change.seq, change.after
                self.states.append(state)
        return len(self.states) - 1


class Asked:
    """A query as the model answers it."""

    def __init__(self, where: Document, **options: Any) -> None:
        self.where = where
        self.options = options
        self.met = parse(where).matches

    @property
    def has_positions(self) -> bool:
        return bool(self.options) or parse(self.where).near is not None

    def watch(self, collection: Collection, **more: Any) -> Live:
        return collection.watch(self.where, **self.options, **more)

    def query(self, collection: Collection, slack: int | None) -> Any:
        more = {} if self.options.get("limit") is None else {"slack": slack}
        return Query.of(collection.key, self.where, **self.options, **more)

    def at(self, state: dict[Any, tuple[int, Document]]) -> list[Document]:
        found = [(seq, document) for seq, document in state.values() if self.met(document)]
        sort = self.options.get("sort")
        near = parse(self.where).near
        if sort is None and near is not None:
            found.sort(key=lambda one: (near.metres(one[1]), sort_keys([("id", 1)], "id")(one[1])))
        elif sort is None:
            found.sort(key=lambda one: -one[0])
        else:
            make = sort_keys(sort, "id")
            found.sort(key=lambda one: make(one[1]))
        offset, limit = self.options.get("offset", 0), self.options.get("limit")
        return [document for _, document in found][
            offset : None if limit is None else offset + limit
        ]


class AskedGroups(Asked):
    """Groups, as `aggregate` has them."""

    has_positions = True

    def watch(self, collection: Collection, **more: Any) -> Live:
        return collection.watch_groups(self.where, **self.options)

    def query(self, collection: Collection, slack: int | None) -> Any:
        return GroupQuery.of(self.where, **self.options)

    def at(self, state: dict[Any, tuple[int, Document]]) -> list[Document]:
        by = self.options["by"]
        names = [by] if isinstance(by, str) else by
        spec: Document = {"_id": [f"${name}" for name in names]}
        columns = []
        if self.options.get("count"):
            columns.append("count")
            spec["count"] = {"$sum": 1}
        for kind in ("sum", "avg", "min", "max"):
            given = self.options.get(kind) or []
            for field in [given] if isinstance(given, str) else given:
                columns.append(f"{kind}_{field}")
                spec[f"c{len(columns) - 1}"] = {f"${kind}": f"${field}"}
        stage, _ = group(spec, "pipeline")
        documents = [document for _, document in state.values() if self.met(document)]
        made = []
        for one in stage(documents):
            values = [one.get("count" if name == "count" else f"c{place}")
                      for place, name in enumerate(columns)]  # fmt: skip
            made.append({**dict(zip(names, one["_id"], strict=True)),
                         **dict(zip(columns, values, strict=True))})  # fmt: skip
        return made


class Reader:
    """A user with a handle, who keeps the result without its help."""

    def __init__(self, live: Live, asked: Asked, history: History, *, first: bool = True) -> None:
        self.live = live
        self.asked = asked
        self.history = history
        self.first = first
        self.version = live.version
        self.rows: list[Document] = live.result if first else self.expected(live.version)
        self.open: int | None = None  # a version of which not all changes were seen

    def expected(self, version: int) -> list[Document]:
        return self.asked.at(self.history.states[version])

    def compare(self, version: int) -> None:
        assert same(self.rows, self.expected(version), ordered=True), (
            version, self.rows, self.expected(version),
        )  # fmt: skip

    def take(self, limit: int | None = None) -> list[LiveChange]:
        found = self.live.take(limit)
        for change in found:
            self.see(change)
        return found

    def take_all(self, newest: int) -> None:
        """Take what there is, which is everything."""
        self.take()
        assert self.live.version == newest
        self.close_version()
        self.compare(newest)
        if self.first:
            assert same(self.live.result, self.rows, ordered=True)
        self.version = newest

    def see(self, change: LiveChange) -> None:
        if self.open is not None and change.version != self.open:
            self.close_version()
        assert change.version > self.version
        self.open = change.version
        apply(self.rows, change, self.asked.has_positions)

    def close_version(self) -> None:
        """All changes of a version were seen."""
        if self.open is not None:
            self.compare(self.open)
            self.version, self.open = self.open, None


class Pushed:
    """A subscriber, as a server has them."""

    def __init__(self, asked: Asked, history: History) -> None:
        self.asked = asked
        self.history = history
        self.heard: list[tuple[list[LiveChange], int]] = []
        self.why = ""

    def begin(self, joined: Any, after: int | None) -> None:
        self.entry = joined.entry
        early, self.heard = self.heard, []  # while it joined
        self.rows = [item.document for item in joined.items]
        self.version = joined.version
        if joined.missed is not None:
            assert after is not None
            expected = self.asked.at(self.history.states[after])
            assert same(self.rows, expected, ordered=self.asked.has_positions)
            self.version = after
            self.heard.append((joined.missed, joined.version))
        self.settled = joined.version  # before, a result without positions may be in another order
        self.heard += early
        self.check()
        self.compare(joined.version)

    def changed(self, entry: Any, changes: Any, version: int) -> None:
        self.heard.append((list(changes), version))

    def lost(self, entry: Any) -> None:
        raise AssertionError("nothing is lost here")

    def ended(self, entry: Any, why: str) -> None:
        self.why = why

    def check(self) -> None:
        """What was heard is right at every version."""
        heard, self.heard = self.heard, []
        for changes, version in heard:
            for place, change in enumerate(changes):
                assert self.version <= change.version <= version
                apply(self.rows, change, self.asked.has_positions)
                if place + 1 == len(changes) or changes[place + 1].version != change.version:
                    assert change.version > self.version
                    self.version = change.version
                    self.compare(self.version)

    def compare(self, version: int) -> None:
        expected = self.asked.at(self.history.states[version])
        ordered = self.asked.has_positions or version >= self.settled
        assert same(self.rows, expected, ordered=ordered), (version, self.rows, expected)


def apply(rows: list[Document], change: LiveChange, positions: bool) -> None:
    """What the guide tells a user to do."""
    assert change.kind in ("add", "change", "changeIndex", "remove")
    assert (change.document is None) == (change.kind == "remove")
    assert (change.before is None) == (change.kind == "add")
    if change.kind == "change" and change.document is not None and change.before is not None:
        merged = {**change.before, **change.fields}
        for name in change.gone:
            del merged[name]
        assert same([merged], [change.document], ordered=True)
    if not positions:
        assert change.old_index is None
        assert change.index is None
        there = [place for place, row in enumerate(rows) if row["id"] == change.key]
        assert len(there) == (change.kind != "add")
        if there:
            assert same([rows.pop(there[0])], [change.before], ordered=True)
        if change.document is not None:
            rows.insert(0, change.document)
        return
    if change.old_index is not None:
        assert change.kind != "add"
        assert (change.kind == "change") == (change.index == change.old_index)
        assert same([rows.pop(change.old_index)], [change.before], ordered=True)
    if change.index is not None:
        assert change.kind != "remove"
        assert 0 <= change.index <= len(rows)
        assert change.document is not None
        rows.insert(change.index, change.document)


def same(one: list[Any], other: list[Any], *, ordered: bool) -> bool:
    """Whether documents are the same; of 1 and 1.0 either will do."""
    first, second = [list(map(_text, rows)) for rows in (one, other)]
    return first == second if ordered else sorted(first) == sorted(second)


def _text(value: Any) -> bytes:
    return msgspec.json.encode(_plain(value), order="deterministic")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value
