"""An index over standing conditions says what the predicate of each says of every document."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many
from strategies import PATHS, TEXTS, documents
from texts import body_texts

from tideline.errors import InvalidRequest
from tideline.index.texts import Texts
from tideline.standing import ADD, CHANGE, REMOVE, Standing, filing
from tideline.standing.filing import Columns, Filing
from tideline.standing.tables import Tables
from tideline.where import Condition, parse
from tideline.where.operators import OPERATORS

Met = set[tuple[int, int]]


def met(conditions: dict[int, Condition], texts: list[bytes]) -> Met:
    """The pairs that hold, one by one."""
    bodies = [(row, msgspec.json.decode(text)) for row, text in enumerate(texts) if text]
    return {
        (row, number)
        for row, body in bodies
        for number, condition in conditions.items()
        if condition.matches(body)
    }


def check(
    standing: Standing, conditions: dict[int, Condition], old: list[bytes], new: list[bytes]
) -> None:
    """`matching` of both and the `changes` between them are what the predicates say."""
    before, after = met(conditions, old), met(conditions, new)
    for texts, expected in ((old, before), (new, after)):
        pairs = standing.matching(Texts.of(texts))
        found = list(zip(pairs.rows.tolist(), pairs.numbers.tolist(), strict=True))
        assert sorted(found) == sorted(expected)
        assert pairs.rows.tolist() == sorted(pairs.rows.tolist())
    rows, numbers, kinds = (
        part.tolist() for part in standing.changes(Texts.of(old), Texts.of(new))
    )
    assert rows == sorted(rows)
    told = sorted(zip(rows, numbers, kinds, strict=True))
    expected_kinds = [
        (*pair, CHANGE if pair in before and pair in after else ADD if pair in after else REMOVE)
        for pair in before | after
    ]
    assert told == sorted(expected_kinds)
    assert len(standing) == len(conditions)


# --- every operator, random documents ---

POINTS = [[0, 0], [0.5, 0.5], [1, 1], [-180, 0], [180, 0.2], [2, 90], [0.004, 0.003]]
paths = st.sampled_from(PATHS)
places = st.sampled_from(
    [
        {"$geoWithin": {"$box": [[0, 0], [1, 1]]}},
        {"$geoWithin": {"$polygon": [[0, 0], [4, 0], [0, 4]]}},
        {"$geoWithin": {"$centerSphere": [[0, 0], 0.0001]}},
        {"$near": [180, 0], "$maxDistance": 50_000},
        {"$near": [0, 0], "$maxDistance": 600, "$minDistance": 10},
        {"$nearSphere": [2, 89.999], "$maxDistance": 1_000},
        {"$near": [0, 0], "$minDistance": 1_000},
    ]
)
ranges = st.tuples(st.integers(-8, 8), st.sampled_from([0, 0.5, 1, 3, 2**31, 2**53, 2.0**64])).map(
    lambda one: {"$gte": one[0], "$lt": one[0] + one[1]}
)
wheres = st.one_of(
    documents(),
    documents(),
    st.dictionaries(paths, places, min_size=1, max_size=1),
    st.dictionaries(paths, st.one_of(ranges, st.sampled_from([0, 1, *TEXTS])), max_size=3),
    st.builds(lambda a, b: {**a, **b}, st.dictionaries(paths, places, max_size=1), documents(0)),
).map(parse)


@st.composite
def images(draw: st.DrawFn) -> list[bytes]:
    texts = draw(body_texts())
    for row in range(len(texts)):
        what = draw(st.sampled_from(["", "", "", "", "none", "point", "geojson"]))
        if what:
            point = draw(st.sampled_from(POINTS))
            shape = {"type": "Point", "coordinates": point}
            body = {draw(st.sampled_from("abc")): point if what == "point" else shape, "b": 1}
            texts[row] = b"" if what == "none" else json.dumps(body).encode()
    return texts


@settings(max_examples=many(150))
@given(st.lists(wheres, max_size=12), st.data())
def test_it_says_what_the_predicates_say(given_: list[Condition], data: st.DataObject) -> None:
    standing, conditions = Standing(), {}
    for _ in range(2):
        for condition in given_:
            number = standing.add(condition)
            assert number not in conditions
            conditions[number] = condition
        new = data.draw(images())
        changed = data.draw(images())
        old = [(changed + new)[row] for row in range(len(new))]
        check(standing, conditions, old, new)
        for number in list(conditions)[:: data.draw(st.integers(1, 3))]:
            standing.remove(number)
            del conditions[number]
        check(standing, conditions, old, new)


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda one: one.name)
def test_the_examples_of_every_operator(operator: Any) -> None:
    if operator.name == "$delta":
        with pytest.raises(InvalidRequest, match=r"\$delta"):
            Standing().add(parse(operator.example, delta=True))
        return
    standing = Standing()
    number = standing.add(parse(operator.example))
    for expected, bodies in ((True, operator.holds), (False, operator.fails)):
        texts = [json.dumps(body).encode() for body in bodies]
        assert (
            standing.matching(Texts.of(texts)).numbers.tolist() == [number] * len(texts) * expected
        )


# --- many at once ---


def mixed(random: Random) -> dict[str, Any]:
    """A condition as applications have them."""
    shop, price = random.randrange(40), random.randrange(1000)
    at = [random.uniform(0, 1), random.uniform(48, 49)]
    return random.choice(
        [
            lambda: {"shop": shop},
            lambda: {"user": f"user {random.randrange(200)}"},
            lambda: {"shop": {"$in": [shop, shop + 3, "none"]}},
            lambda: {"shop": shop, "price": {"$gte": price, "$lt": price + random.randrange(300)}},
            lambda: {"price": {"$gt": price, "$lte": price + random.random() * 9}},
            lambda: {"price": {"$gt": price}},
            lambda: {"price": {"$lt": price}, "state": "open"},
            lambda: {"at": {"$near": at, "$maxDistance": random.randrange(1, 20_000)}},
            lambda: {
                "at": {"$geoWithin": {"$box": [at, [at[0] + 0.1, at[1] + 0.2]]}},
                "shop": shop,
            },
            lambda: {"note": {"$words": random.choice(["flat tire", "Flat", "jam"])}},
            lambda: {"user": {"$regex": f"^user {random.randrange(30)}"}},
            lambda: {"state": {"$ne": "open"}, "price": {"$lt": 20}},
            lambda: {"$or": [{"shop": shop}, {"price": price}, {"state": None, "shop": 3}]},
            lambda: {"tags": random.choice("abc"), "state": random.choice(["open", None, True])},
            lambda: {"tags": {"$all": ["a", "b"]}, "price": {"$gte": 5, "$lt": 50}},
            lambda: {"inner.part": {"$gte": price / 7, "$lt": price}, "inner.name": "n"},
            lambda: {"price": {"$mod": [7, shop]}},
            lambda: {},
        ]
    )()


def document(random: Random) -> dict[str, Any]:
    found: dict[str, Any] = {
        "shop": random.choice([random.randrange(45), float(random.randrange(45)), None, "none"]),
        "user": f"user {random.randrange(220)}",
        "price": random.choice([random.randrange(1100), random.random() * 99, [3, 60], "12"]),
        "at": [random.uniform(0, 1), random.uniform(48, 49)],
        "note": random.choice(
            ["A FLAT tire", "traffic jam", "", "Ein \u00dcber-jam", 'a "jam"', 7]
        ),
        "state": random.choice(["open", "closed", None, True, ["open"]]),
        "tags": random.sample("abcd", random.randrange(4)),
        "inner": random.choice([{"part": random.randrange(100), "name": "n"}, [{"part": 9}], 1]),
    }
    for name in random.sample(sorted(found), random.randrange(3)):
        del found[name]
    return found


def test_thousands_of_conditions_come_and_go() -> None:
    random = Random(7)
    standing, conditions = Standing(), {}
    for _ in range(4):
        for number in random.sample(sorted(conditions), len(conditions) // 3):
            standing.remove(number)
            del conditions[number]
        made = [parse(mixed(random)) for _ in range(1_500)]
        for number, condition in zip(standing.add_many(made), made, strict=True):
            assert number not in conditions
            conditions[number] = condition
        assert max(conditions) == len(conditions) - 1  # numbers are used again
        old = [json.dumps(document(random)).encode() for _ in range(60)]
        new = [json.dumps({**json.loads(text), **document(random)}).encode() for text in old]
        old[::7], new[3::11] = [b""] * len(old[::7]), [b""] * len(new[3::11])
        check(standing, conditions, old, new)
    for number in conditions:
        standing.remove(number)
    check(standing, {}, old, new)


def test_named_conditions_are_found_by_their_texts() -> None:
    random, standing = Random(3), Standing()
    others = standing.add_many([parse({"a": n}) for n in range(50)])
    named: dict[bytes, int] = {}
    wanted = [parse(None), *(parse({"a": n, "b": "x" * (n % 40)}) for n in range(600))]
    for _ in range(60):
        new = [each for each in random.sample(wanted, 40) if each.text not in named]
        numbers = standing.add_many(new, named=True)
        named |= zip((each.text for each in new), numbers, strict=True)
        for text in random.sample(sorted(named), random.randrange(len(named))):
            standing.remove(named.pop(text), named=True)
        assert [standing.find(each.text) for each in wanted] == [
            named.get(each.text, -1) for each in wanted
        ]
    assert [standing.find(standing.text(number)) for number in others] == [-1] * 50
    assert len(standing) == 50 + len(named)


def test_of_many_all_are_filed_or_none() -> None:
    standing = Standing()
    good, bad = parse({"a": 1}), parse({"b": {"$delta": {"$gt": 1}}}, delta=True)
    with pytest.raises(InvalidRequest, match="delta cannot be asked of documents"):
        standing.add_many([good, bad], named=True)
    assert (len(standing), standing.find(good.text)) == (0, -1)
    check(standing, {}, [b'{"a": 1}'], [b'{"a": 1}'])


def test_bad_input_changes_nothing() -> None:
    standing = Standing()
    number = standing.add(parse({"a": 1}))
    with pytest.raises(InvalidRequest, match="no condition has this number"):
        standing.remove(number + 1)
    with pytest.raises(InvalidRequest, match="as many"):
        standing.changes(Texts.of([b"{}"]), Texts.of([]))
    with pytest.raises(InvalidRequest, match="JSON"):
        standing.matching(Texts.of([b'{"a": 1}', b'{"a": ']))
    assert standing.matching(Texts.of([b'{"a": 1.0}'])).numbers.tolist() == [number]
    standing.remove(number)
    with pytest.raises(InvalidRequest, match="no condition has this number"):
        standing.remove(number)


def test_another_word_at_a_field_is_not_the_same() -> None:
    """What the check in an entry said of an old word was taken for the new one, too."""
    standing = Standing()
    for _ in range(40):  # so that the other word is the rarer one
        standing.add(parse({"a": {"$words": "x"}, "z": {"$exists": True}}))
    number = standing.add(parse({"a": {"$words": "x"}, "b": {"$words": "red"}}))
    texts = [Texts.of([json.dumps({"a": word, "b": "red"}).encode()]) for word in ("x", "y")]
    for old, new, kind in ((1, 0, ADD), (0, 1, REMOVE), (0, 0, CHANGE)):
        found = standing.changes(texts[old], texts[new])
        assert found.kinds[found.numbers == number].tolist() == [kind]


wanted = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -0.0, 2**53, 2**60, *TEXTS]))
one_of = st.builds(
    lambda path, asked: parse({path: asked}),
    paths,
    st.one_of(wanted, st.lists(wanted, max_size=4).map(lambda values: {"$in": values})),
)


@settings(max_examples=many(300))
@given(st.one_of(one_of, wheres))
def test_values_at_a_path_are_filed_as_their_clause_is_to_the_word(condition: Condition) -> None:
    tables, columns = Tables(), Columns()
    found = Filing(condition, tables, columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filing, "one_of", lambda condition, seed: None)
        expected = Filing(condition, tables, columns)
    for each in (found, expected):
        each.place(7, 1_000, 2_000)
    assert (found.rows, found.used) == (expected.rows, expected.used)
    assert found.program_words == expected.program_words
    assert found.program[1:] == expected.program[1:]
