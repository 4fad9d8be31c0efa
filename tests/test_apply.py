"""`apply`: a table of operations, in order, as good as one call per row.

Each row's `at` is its now; a row older than what the channel has seen is late. Bad rows come
back with their number and the reason, and the good rows land.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import BODY, PLACE, SINCE, SPAN, USER, WHERE
from model import WORLDS, Model
from tables import answers_of, rejected_of, table_of

import tideline
from tideline import Box, Circle, QuadTree
from tideline.clock import FOREVER, SECOND, from_us
from tideline.testing import ManualClock

LAYOUTS = ["dual", "two"]
AT = 1_000 * SECOND
QUAD = QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=3)

Opener = Callable[..., Any]


def tell(id: str, place: Any = "a", at: int = 0, **change: Any) -> dict[str, Any]:
    row = {"op": "publish", "id": id, "place": place, "at": AT + at * SECOND}
    return row | {"until": FOREVER, "body": {"n": 1}} | change


def ask(id: str, place: Any = "a", at: int = 0, **change: Any) -> dict[str, Any]:
    time = AT + at * SECOND
    row = {"op": "subscribe", "id": id, "place": place, "user": "u", "at": time, "since": time}
    return row | {"until": FOREVER, "where": None, "unseen": False} | change


def stop(id: str, at: int = 0, **change: Any) -> dict[str, Any]:
    return {"op": "cancel", "id": id, "at": AT + at * SECOND} | change


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_answered_in_order_past_and_live(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    rows = [tell("e1"), ask("s1"), tell("e2", at=1), stop("s1", at=2), tell("e3", at=3)]
    applied = channel.apply(table_of([*rows, ask("s2", at=3, since=AT + SECOND)]))
    assert answers_of(applied) == [
        (1, "s1", "e1", "u", "past"),
        (2, "s1", "e2", "u", "live"),
        (5, "s2", "e2", "u", "past"),
        (5, "s2", "e3", "u", "past"),
    ]
    assert applied.rejected.num_rows == 0
    assert [s.id for s in channel.subscriptions()] == ["s2"]


def test_answers_and_rejected_are_tables_of_these_columns(open_channel: Opener) -> None:
    text = pa.string()
    for applied in (
        open_channel().apply(table_of([])),
        open_channel().apply(table_of([tell("e"), ask("s"), stop("nobody")])),
    ):
        answers, rejected = applied.answers, applied.rejected
        assert answers.column_names == ["row", "subscription", "event", "user", "kind"]
        assert answers.schema.field("row").type == pa.int64()
        for name in answers.column_names[1:]:
            kind = answers.schema.field(name).type
            assert pa.types.is_dictionary(kind)
            assert kind.value_type == text
        assert rejected.schema.names == ["row", "reason"]
        assert rejected.schema.types == [pa.int64(), text]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_live_subscriber_receives_what_a_table_publishes(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    sub = channel.subscribe("a", user="v", id="mine")
    applied = channel.apply(table_of([tell("e1"), tell("e2", "b"), tell("e3")]))
    assert answers_of(applied) == [(0, "mine", "e1", "v", "live"), (2, "mine", "e3", "v", "live")]
    got = sub.take()
    assert [(e.id, e.body) for e in got] == [("e1", {"n": 1}), ("e3", {"n": 1})]
    assert channel.resume("mine", after=got[0].token).past[0].id == "e3"


def test_columns_that_no_row_needs_may_be_left_out(open_channel: Opener) -> None:
    channel = open_channel()
    at = pa.array([AT], pa.timestamp("us"))
    table = pa.table({"op": ["publish"], "id": ["e"], "place": ["a"], "at": at, "body": ["null"]})
    assert channel.apply(table).rejected.num_rows == 0
    [event] = channel.find("a")
    assert (event.body, event.at, event.until) == (None, from_us(AT), None)
    table = pa.table({"op": ["subscribe"], "id": ["s"], "place": ["a"], "at": at, "user": ["u"]})
    assert answers_of(channel.apply(table)) == [(0, "s", "e", "u", "past")]
    [info] = channel.subscriptions()
    assert (info.since, info.until, info.where, info.unseen) == (from_us(AT), None, None, False)
    assert channel.apply(pa.table({"op": ["cancel"], "id": ["s"], "at": at})).rejected.num_rows == 0
    assert channel.subscriptions() == []


@pytest.mark.parametrize(
    "text",
    [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
)
@pytest.mark.parametrize("time", [pa.timestamp("us"), pa.timestamp("us", tz="UTC")])
@pytest.mark.parametrize("chunks", [1, 3])
def test_the_same_answers_from_every_type_of_column(
    text: pa.DataType, time: pa.DataType, chunks: int, open_channel: Opener
) -> None:
    channel = open_channel()
    rows = [tell("e1", until=AT + 9 * SECOND), ask("s1", where={"n": 1}), tell("e2"), stop("s1")]
    table = table_of([*rows, tell("e3")])
    fields = [
        pa.field(f.name, text if f.type == pa.string() else time)
        if f.type == pa.string() or pa.types.is_timestamp(f.type)
        else f
        for f in table.schema
    ]
    size = len(table) // chunks + 1
    pieces = [table.slice(start, size) for start in range(0, len(table), size)]
    table = pa.concat_tables(pieces).cast(pa.schema(fields))
    applied = channel.apply(table)
    assert applied.rejected.num_rows == 0
    assert answers_of(applied) == [(1, "s1", "e1", "u", "past"), (2, "s1", "e2", "u", "live")]
    assert [e.until for e in channel.find("a")][-1] == from_us(AT + 9 * SECOND)


def test_a_slice_of_a_table_is_only_that_slice(open_channel: Opener) -> None:
    channel = open_channel()
    table = table_of([tell(f"e{n}", at=n) for n in range(6)])
    channel.apply(table.slice(2, 2))
    assert [e.id for e in channel.find("a")] == ["e3", "e2"]


def test_points_and_circles_stand_in_lon_lat_and_radius(open_channel: Opener) -> None:
    channel = open_channel(space=QUAD)
    circle = Circle((4.0, 4.0), radius_m=50_000)
    rows = [
        ask("circle", circle),
        ask("point", (4.0, 4.1)),
        tell("near", (4.0, 4.1)),
        tell("far", (4.0, 5.0)),
        tell("cloud", circle),
    ]
    assert [(a[1], a[2]) for a in answers_of(channel.apply(table_of(rows, shapes=True)))] == [
        ("circle", "near"),
        ("point", "near"),
        ("circle", "cloud"),
        ("point", "cloud"),
    ]
    assert [e.place for e in channel.find(Box(3.9, 4.9, 4.1, 5.1))] == [(4.0, 5.0)]
    applied = channel.apply(table_of([ask("path", "2", since=AT - SECOND)]))
    assert {a[2] for a in answers_of(applied)} >= {"near", "far"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_late_row_matches_by_its_own_time_and_validity_is_judged_at_the_newest(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    rows = [
        ask("open", since=AT - 60 * SECOND),
        ask("short", until=AT + 5 * SECOND),
        tell("valid", until=AT + 30 * SECOND),
        tell("gone", until=AT + 5 * SECOND),
        tell("newest", "b", at=10),
        tell("late", at=-2),  # before `short` began; in the window of `open`
        tell("late2", at=3),  # in the window of `short`, which is no longer valid
        ask("late ask", at=2, since=AT - 60 * SECOND),  # `gone` is gone at 10
    ]
    answers = answers_of(channel.apply(table_of(rows)))
    assert [(a[1], a[2]) for a in answers if a[0] == 5] == [("open", "late")]
    assert [(a[1], a[2]) for a in answers if a[0] == 6] == [("open", "late2")]
    assert [a[2] for a in answers if a[0] == 7] == ["late", "late2", "valid"]
    assert channel.stats().late == 3
    late = {e.id: e.at for e in channel.find("a")}
    assert late["late"] == from_us(AT - 2 * SECOND)


@pytest.mark.parametrize("between", ["nothing", "seal", "reopen"])
def test_the_newest_time_seen_outlives_the_table(between: str, open_channel: Opener) -> None:
    channel = open_channel()
    channel.apply(table_of([tell("gone", until=AT + 5 * SECOND), tell("newest", "b", at=10)]))
    if between == "seal":
        channel.seal()
    elif between == "reopen":
        channel = open_channel()
    applied = channel.apply(table_of([ask("s", at=1, since=AT - SECOND)]))
    assert answers_of(applied) == []


# Times no datetime can name: before the year 1, after 9999, and where integers end.
NEVER = [-62_135_596_800_000_001, -(2**63), 10**18, 2**62, 2**63 - 1]
BAD_ROWS = [
    (tell("x", bad={"op": "explode"}), "op must be"),
    (tell("x", bad={"op": None}), "op is missing"),
    *((tell("x", bad={"at": time}), "at must lie") for time in NEVER),
    *((ask("x", bad={"at": time}), "at must lie") for time in NEVER),
    *((stop("known", bad={"at": time}), "at must lie") for time in NEVER),
    *((tell("x", bad={"until": time}), "until must lie") for time in NEVER),
    *((ask("x", bad={"since": time}), "since must lie") for time in NEVER),
    *(
        (tell("x", bad={"op": op}), "op must be")
        for op in (  # of a right length, or nearly
            "",
            "publisH",
            "Publish",
            "publish ",
            "subscribd",
            "xubscribe",
            "cance",
            "cancel\0",
            "cancem",
        )
    ),
    (tell("x", bad={"at": None}), "at"),
    (tell("x", bad={"id": ""}), "id"),
    (tell("x", bad={"id": "x" * 257}), "256"),
    (tell("x", bad={"place": None}), "place"),
    (tell("x", bad={"place": ""}), "place"),
    (tell("x", bad={"place": "k" * 513}), "512"),
    (tell("x", bad={"body": None}), "body"),
    (tell("x", bad={"body": "{"}), "body"),
    (tell("x", bad={"body": "NaN"}), "body"),
    (tell("x", bad={"body": '"' + "x" * 131_071 + '"'}), "131072"),
    (tell("x", bad={"until": from_us(AT - 1)}), "after"),
    (ask("x", bad={"user": None}), "user"),
    (ask("x", bad={"user": ""}), "user"),
    (ask("x", bad={"until": from_us(AT)}), "after"),
    (ask("x", bad={"where": "{"}), "where"),
    (ask("x", bad={"where": "[1]"}), "where"),
    (ask("x", bad={"where": '{"n": {"$nope": 1}}'}), "$nope"),
    (stop("nobody"), "no such subscription"),
    (stop("x", bad={"id": None}), "id"),
    (tell("known", "b"), "other content"),
    (ask("known", user="v"), "other content"),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("row", "fragment"), BAD_ROWS)
def test_a_bad_row_is_returned_with_its_reason_and_the_good_rows_land(
    layout: str, row: dict[str, Any], fragment: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    channel.apply(table_of([tell("known"), ask("known")]))
    applied = channel.apply(table_of([tell("e1"), row, tell("e2", at=1)]))
    reasons = rejected_of(applied)
    assert list(reasons) == [1]
    assert fragment in reasons[1]
    assert [(a[0], a[2]) for a in answers_of(applied)] == [(0, "e1"), (2, "e2")]
    for _ in range(2):
        assert [e.id for e in channel.find("a")] == ["e2", "e1", "known"]
        assert [s.id for s in channel.subscriptions()] == ["known"]
        channel = open_channel(layout)


@pytest.mark.parametrize(("unit", "time"), [("s", 2**62), ("ms", -(2**62)), ("s", 10**18)])
def test_a_time_that_microseconds_cannot_hold_does_not_wrap(
    unit: str, time: int, open_channel: Opener
) -> None:
    channel = open_channel()
    table = table_of([tell("x"), tell("y")])
    wrong = pa.array([time, 1], pa.timestamp(unit))
    applied = channel.apply(table.set_column(table.column_names.index("at"), "at", wrong))
    assert list(rejected_of(applied)) == [0]
    assert [event.id for event in channel.find("a")] == ["y"]


@pytest.mark.parametrize(
    "bad", [{"lon": float("nan")}, {"lon": 9.0}, {"lat": None}, {"radius_m": -1.0}]
)
def test_a_bad_shape_is_a_bad_row(bad: dict[str, Any], open_channel: Opener) -> None:
    channel = open_channel(space=QUAD)
    rows = [ask("good", (1.0, 1.0)), ask("bad", Circle((1.0, 1.0), 10.0), bad=bad)]
    applied = channel.apply(table_of(rows, shapes=True))
    assert list(rejected_of(applied)) == [1]
    assert [s.id for s in channel.subscriptions()] == ["good"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_row_given_twice_in_one_table_counts_once(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    rows = [ask("s"), tell("e"), tell("e"), ask("s"), tell("e", body={"n": 2})]
    applied = channel.apply(table_of(rows))
    assert answers_of(applied) == [(1, "s", "e", "u", "live")]
    assert list(rejected_of(applied)) == [4]
    applied = channel.apply(table_of(rows[:4]))  # the whole table again: a safe retry
    assert answers_of(applied) == []
    assert applied.rejected.num_rows == 0
    assert (channel.stats().events, channel.stats().subscriptions) == (1, 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cancelled_id_can_be_used_again_in_the_same_table(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    rows = [ask("s"), stop("s"), ask("s", "b", user="v"), tell("e1"), tell("e2", "b"), stop("x")]
    applied = channel.apply(table_of(rows))
    assert answers_of(applied) == [(4, "s", "e2", "v", "live")]
    assert list(rejected_of(applied)) == [5]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unseen_rows_leave_out_what_the_user_got(layout: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    rows = [
        tell("e1"),
        ask("plain"),
        tell("e2"),
        ask("unseen", unseen=True),
        tell("e3"),
        stop("plain"),
        tell("e4"),
        ask("other", user="v", unseen=True),
    ]
    answers = [(a[1], a[2]) for a in answers_of(channel.apply(table_of(rows)))]
    assert answers == [
        ("plain", "e1"),
        ("plain", "e2"),
        ("plain", "e3"),
        ("unseen", "e4"),
        *(("other", f"e{n}") for n in range(1, 5)),
    ]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "subscribe", "cancel"]),
        st.sampled_from([0, 0, 1, 3]),
        PLACE,
        USER,
        SINCE,
        SPAN,
        BODY,
        WHERE,
        st.booleans(),
    ),
    max_size=25,
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("world", WORLDS)
@given(drawn=ROWS, cut=st.integers(0, 25))
def test_a_table_is_as_good_as_one_call_per_row(
    layout: str, world: str, drawn: list[tuple[Any, ...]], cut: int
) -> None:
    space = WORLDS[world].space
    places = [p for p in WORLDS[world].places if isinstance(p, str)]
    rows, at = [], 0
    for n, (op, step, place, user, since, span, body, where, unseen) in enumerate(drawn):
        at += step
        start = AT + (at if op == "publish" else at + since) * SECOND
        until = FOREVER if span is None else start + span * SECOND
        where_at = places[place % len(places)]
        if op == "publish":
            rows.append(tell(f"e{n}", where_at, at, until=until, body=body))
        elif op == "subscribe":
            asked = {"user": user, "since": start, "until": until, "where": where}
            rows.append(ask(f"s{n}", where_at, at, unseen=unseen, **asked))
        else:
            rows.append(stop(f"s{n - 1}", at))
    clock = ManualClock(1_000)
    with tideline.open(":memory:", clock=clock) as db:
        batch = db.channel("batch", space=space, layout=layout)
        single = db.channel("single", space=space, layout=layout)
        expected, rejected = Model(space).apply(rows)
        applied = [batch.apply(table_of(part)) for part in (rows[:cut], rows[cut:])]
        offset = min(cut, len(rows))
        answers = answers_of(applied[0])
        answers += [(a[0] + offset, *a[1:]) for a in answers_of(applied[1])]
        assert answers == sorted(expected)
        refused = [*rejected_of(applied[0]), *(n + offset for n in rejected_of(applied[1]))]
        assert refused == rejected
        assert sorted(one_by_one(single, clock, rows)) == sorted(expected)


def one_by_one(
    channel: Any, clock: ManualClock, rows: list[dict[str, Any]]
) -> list[tuple[int, str, str, str, str]]:
    answers = []
    for number, row in enumerate(rows):
        clock.advance((row["at"] - clock.now()) / SECOND)
        until = from_us(row.get("until", FOREVER))
        if row["op"] == "publish":
            told = channel.publish(row["place"], row["body"], id=row["id"], until=until)
            answers += [(number, s.id, row["id"], s.user, "live") for s in told.subscriptions]
        elif row["op"] == "subscribe":
            asked = {name: row[name] for name in ("place", "user", "id", "where", "unseen")}
            sub = channel.subscribe(since=from_us(row["since"]), until=until, **asked)
            answers += [(number, sub.id, e.id, sub.user, "past") for e in sub.past]
        elif row["id"] in {s.id for s in channel.subscriptions()}:
            channel.cancel(row["id"])
    return answers


# ---- events that end -------------------------------------------------------------------------


def end(id: str, at: int = 0) -> dict[str, Any]:
    return {"op": "retract", "id": id, "at": AT + at * SECOND}


def replacing(rows: list[dict[str, Any]], *numbers: int) -> pa.Table:
    """The table of rows, some of which replace."""
    yes = pa.array([n in numbers for n in range(len(rows))])
    return table_of(rows).append_column("replace", yes)


@pytest.mark.parametrize("layout", ["dual", "two", "poll"])
@pytest.mark.parametrize("between", ["nothing", "seal"])
def test_rows_retract_and_replace_events(layout: str, between: str, open_channel: Opener) -> None:
    channel = open_channel(layout)
    applied = channel.apply(table_of([tell("old"), tell("gone"), tell("truck")]))
    assert applied.rejected.num_rows == 0
    if between == "seal":
        channel.seal()
    rows = [
        tell("stays", at=1), end("gone", at=1), tell("truck", "b", at=1), end("nobody", at=2),
        tell("truck", "c", at=2), tell("new", at=2), tell("new", at=2), end("new", at=3),
        tell("first", "b", at=3), end("gone", at=3),
    ]  # fmt: skip
    applied = channel.apply(replacing(rows, 2, 4, 8))
    reason = "no valid event has this id: "
    assert rejected_of(applied) == {3: f"{reason}'nobody'", 9: f"{reason}'gone'"}
    found = {place: sorted(e.id for e in channel.find(place)) for place in "abc"}
    assert found == {"a": ["old", "stays"], "b": ["first"], "c": ["truck"]}
    channel = open_channel(layout)
    assert {p: sorted(e.id for e in channel.find(p)) for p in "abc"} == found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whoever_was_told_of_an_event_that_a_row_ends_is_told(
    layout: str, open_channel: Opener
) -> None:
    channel = open_channel(layout)
    here = channel.subscribe("a", user="u", id="here", retractions=True, until_s=600)
    both = channel.subscribe("b", user="v", id="both", retractions=True, until_s=600)
    quiet = channel.subscribe("a", user="w", id="quiet", until_s=600)
    rows = [tell("e1"), tell("truck"), end("e1", at=1), tell("truck", "b", at=1), end("truck", 2)]
    applied = channel.apply(replacing(rows, 3))
    assert [(a[1], a[2]) for a in answers_of(applied)] == [
        ("here", "e1"), ("quiet", "e1"), ("here", "truck"), ("quiet", "truck"), ("both", "truck"),
    ]  # fmt: skip
    assert [(e.id, e.retracted) for e in here.take()] == [
        ("e1", False), ("truck", False), ("e1", True), ("truck", True),
    ]  # fmt: skip
    assert [(e.id, e.retracted) for e in both.take()] == [("truck", False), ("truck", True)]
    assert [(e.id, e.retracted) for e in quiet.take()] == [("e1", False), ("truck", False)]


def test_rows_that_end_nothing_say_what_is_missing(open_channel: Opener) -> None:
    channel = open_channel("dual")
    rows = [tell("x") | {"id": None}, end("y") | {"id": None}]
    applied = channel.apply(replacing(rows, 0))
    assert applied.rejected.column("reason").to_pylist() == [
        "replace needs the id of what it replaces", "a retract needs the id of an event",
    ]  # fmt: skip
    with pytest.raises(tideline.InvalidRequest, match="replace must hold booleans"):
        channel.apply(table_of([tell("z")]).append_column("replace", pa.array(["yes"])))


def test_a_batch_with_ends_goes_on_where_it_was_cut(open_channel: Opener) -> None:
    """The number of a writer's batch counts rows, whatever parts they ran in."""
    channel = open_channel("dual")
    rows = [tell("a1"), tell("t"), tell("t", "b", at=1), end("a1", at=1), tell("a2", at=1)]
    assert not channel.apply(replacing(rows, 2), once=("w", 1)).repeated
    assert channel.apply(replacing(rows, 2), once=("w", 1)).repeated
    assert sorted(e.id for e in [*channel.find("a"), *channel.find("b")]) == ["a2", "t"]
