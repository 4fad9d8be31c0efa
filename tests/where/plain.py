"""The plain evaluator: MongoDB's rules on a condition document, slow and obvious.

It reads the document itself, not the tree, and shares no code with the library, so it is a
second opinion on the parser and every target. Words and patterns are its own too; it
knows no places (tests/where/test_where_geo.py has shapely for those).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import Any

NOTHING = object()  # what lies at a path that leads nowhere
ORDER = ["null", "number", "text", "object", "array", "boolean"]


def holds(document: dict[str, Any], body: Any) -> bool:
    """Whether a body meets a condition."""
    if not document:
        return True
    return isinstance(body, dict) and query(document, body)


def query(document: dict[str, Any], body: dict[str, Any]) -> bool:
    for name, asked in document.items():
        if name == "$and":
            held = all(query(each, body) for each in asked)
        elif name == "$or":
            held = any(query(each, body) for each in asked)
        elif name == "$nor":
            held = not any(query(each, body) for each in asked)
        else:
            candidates = list(reach(body, name.split(".")))
            held = all(operator(o, w, asked, candidates) for o, w in operators(asked))
        if not held:
            return False
    return True


def operators(asked: Any) -> list[tuple[str, Any]]:
    if isinstance(asked, dict) and any(name.startswith("$") for name in asked):
        return list(asked.items())
    return [("$eq", asked)]


def reach(value: Any, parts: list[str]) -> Iterator[list[Any]]:
    """Every candidate at a path, as the list of values a test by element sees, whole first."""
    if not parts:
        yield [value, *value] if isinstance(value, list) else [value]
    elif isinstance(value, dict):
        yield from reach(value.get(parts[0], NOTHING), parts[1:])
    elif isinstance(value, list):
        for number, each in enumerate(value):
            if isinstance(each, dict):
                yield from reach(each, parts)
            if str(number) == parts[0]:
                if len(parts) == 1:
                    yield [each]
                elif isinstance(each, (dict, list)):
                    yield from reach(each, parts[1:])
    else:
        yield [NOTHING]


def operator(name: str, wanted: Any, beside: Any, candidates: list[list[Any]]) -> bool:
    """Whether an operator holds for a field with these candidates."""
    if name == "$ne":
        return not operator("$eq", wanted, beside, candidates)
    if name == "$nin":
        return not operator("$in", wanted, beside, candidates)
    if name == "$not":
        return not all(operator(o, w, wanted, candidates) for o, w in wanted.items())
    if name == "$exists":
        return bool(wanted) == any(seen[0] is not NOTHING for seen in candidates)
    if name == "$all":
        return bool(wanted) and all(
            all(operator(o, w, each, candidates) for o, w in operators(each)) for each in wanted
        )
    if name in ("$size", "$elemMatch"):
        return any(whole_array(name, wanted, seen[0]) for seen in candidates)
    return any(single(name, wanted, beside, value) for seen in candidates for value in seen)


def whole_array(name: str, wanted: Any, value: Any) -> bool:
    if not isinstance(value, list):
        return False
    if name == "$size":
        return len(value) == wanted
    logical = {"$and", "$or", "$nor"}
    if any(key.startswith("$") and key not in logical for key in wanted):
        return any(
            all(operator(o, w, wanted, [[each]]) for o, w in wanted.items()) for each in value
        )
    documents = [
        dict(zip(map(str, range(len(each))), each, strict=True)) if isinstance(each, list) else each
        for each in value
    ]
    return any(isinstance(each, dict) and query(wanted, each) for each in documents)


def single(name: str, wanted: Any, beside: Any, value: Any) -> bool:
    """An operator on one value."""
    if name == "$eq":
        return same(value, wanted)
    if name in ("$gt", "$gte", "$lt", "$lte"):
        if bracket(value) != bracket(wanted):
            return False
        side = before(value, wanted)
        return (
            side < 0
            if name == "$lt"
            else side > 0
            if name == "$gt"
            else (side <= 0 if name == "$lte" else side >= 0)
        )
    if name == "$in":
        return any(
            single("$regex", each["$regex"], each, value)
            if isinstance(each, dict) and "$regex" in each
            else same(value, each)
            for each in wanted
        )
    if name == "$type":
        asked = wanted if isinstance(wanted, list) else [wanted]
        return any(of_type(value, each) for each in asked)
    if name == "$regex":
        flags = sum(
            {"i": re.I, "m": re.M, "s": re.S, "x": re.X}[each]
            for each in set(beside.get("$options", ""))
        )
        return isinstance(value, str) and re.search(wanted, value, flags) is not None
    if name == "$mod":
        if bracket(value) != "number":
            return False
        divisor, remainder = int(wanted[0]), int(wanted[1])
        whole = int(value)
        return whole - int_divided(whole, divisor) * divisor == remainder
    if name == "$words":
        return isinstance(value, str) and has_words(wanted, split(value))
    if name == "$fuzzy":
        return isinstance(value, str) and has_near(wanted, split(value))
    if name == "$contains":
        return isinstance(value, str) and wanted.casefold() in value.casefold()
    if name == "$jaccard":
        return isinstance(value, str) and jaccard(wanted, value)
    assert name == "$options", name
    return True


def int_divided(a: int, b: int) -> int:
    """Towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def bracket(value: Any) -> str:
    if value is None or value is NOTHING:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return {str: "text", list: "array", dict: "object"}[type(value)]


def same(a: Any, b: Any) -> bool:
    return bracket(a) == bracket(b) and before(a, b) == 0


def before(a: Any, b: Any) -> int:
    """-1, 0 or 1 as a comes before, with or after b."""
    if bracket(a) != bracket(b):
        return -1 if ORDER.index(bracket(a)) < ORDER.index(bracket(b)) else 1
    if bracket(a) == "null":
        return 0
    if isinstance(a, list):
        pairs = [(before(x, y)) for x, y in zip(a, b, strict=False)]
        return next((side for side in pairs if side), (len(a) > len(b)) - (len(a) < len(b)))
    if isinstance(a, dict):
        rows = [
            [[ORDER.index(bracket(each[name])), name, each[name]] for name in sorted(each)]
            for each in (a, b)
        ]
        return before(*rows)
    return int(a > b) - int(a < b)


def of_type(value: Any, asked: Any) -> bool:
    names = {1: "double", 2: "string", 3: "object", 4: "array", 8: "bool", 10: "null",
             16: "int", 18: "long"}  # fmt: skip
    asked = names.get(asked, asked)
    if bracket(value) == "number":
        small = isinstance(value, int) and -(2**31) <= value < 2**31
        kind = "double" if isinstance(value, float) else "int" if small else "long"
        return asked in (kind, "number")
    if value is NOTHING:
        return False
    kinds = {"null": "null", "text": "string", "object": "object", "array": "array"}
    return asked == kinds.get(bracket(value), "bool")


def split(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text.casefold()).split()


def has_words(wanted: str, found: list[str]) -> bool:
    """All words, and those of each phrase at places that follow each other."""
    parts = wanted.split('"')
    if len(parts) % 2 == 0:
        parts[-2:] = [parts[-2] + " " + parts[-1]]
    for number, part in enumerate(parts):
        asked = split(part)
        if number % 2 and not any(
            found[start : start + len(asked)] == asked for start in range(len(found) + 1)
        ):
            return False
        if not set(asked) <= set(found):
            return False
    return True


def has_near(wanted: dict[str, Any], found: list[str]) -> bool:
    given = wanted.get("words", [wanted])
    for one in split(given) if isinstance(given, str) else given:
        asked = one if isinstance(one, dict) else {"word": one}
        if not {"distance", "similarity"} & asked.keys():
            asked = {**wanted, **asked}
        if not any(is_near(asked, split(asked["word"])[0], word) for word in found):
            return False
    return True


def is_near(asked: dict[str, Any], a: str, b: str) -> bool:
    distance = edits(a, b)
    if "similarity" in asked:  # by decimals, which have no rounding here
        with localcontext() as exactly:
            exactly.prec = 400
            return (
                Decimal(max(len(a), len(b))) * (1 - Decimal(str(asked["similarity"]))) >= distance
            )
    return distance <= asked.get("distance", 1)


def jaccard(wanted: dict[str, Any], value: str) -> bool:
    size = wanted.get("grams", 3)
    a, b = (gram_list(text.casefold(), size) for text in (wanted["text"], value))
    union = sorted({*a, *b})
    both = sum(1 for gram in union if gram in a and gram in b)
    with localcontext() as exactly:
        exactly.prec = 400
        return Decimal(both) >= Decimal(str(wanted["similarity"])) * len(union)


def gram_list(text: str, size: int) -> list[str]:
    if not text:
        return []
    return [text[at : at + size] for at in range(max(len(text) - size, 0) + 1)]


def edits(a: str, b: str) -> int:
    """The edit distance, by the whole table."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)))
    return row[-1]
