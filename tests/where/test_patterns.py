"""What patterns promise: MongoDB's options on a linear engine; fast ways find the same."""

from __future__ import annotations

import re
import warnings

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many

from tideline.channel.checks import BODY_LIMIT_BYTES
from tideline.errors import InvalidRequest
from tideline.where import parse, patterns
from tideline.where.build import PROGRAM_LIMIT
from tideline.where.patterns import finds, plain, prefix, program_size, simple
from tideline.where.tree import Regex

MANY = many(300)
texts = st.text("aAbB1. \n#^é", max_size=8)


def found(pattern: str, text: str, options: str = "") -> bool:
    return parse({"a": {"$regex": pattern, "$options": options}}).matches({"a": text})


@pytest.mark.parametrize(
    ("pattern", "options", "text", "held"),
    [
        ("ABC", "i", "xabc", True),
        ("É", "i", "é", True),
        ("^b", "", "a\nb", False),
        ("^b", "m", "a\nb", True),
        ("a$", "m", "a\nb", True),
        ("a.b", "", "a\nb", False),
        ("a.b", "s", "a\nb", True),
        ("a b # c", "x", "ab", True),
        ("a b # c\n d", "x", "abd", True),
        (r"a\ b", "x", "a b", True),
        ("[ #]b", "x", "#b", True),
        ("[]# ]b", "x", " b", True),
        ("[^]# ]b", "x", "#b", False),
        ("A B", "xi", "ab", True),
        ("b$", "", "b\n", False),
        (r"\d", "", "٣", False),
        (r"\pL", "", "ж", True),
        ("", "", "", True),
    ],
)
def test_options_are_those_of_mongodb(pattern, options, text, held):
    assert found(pattern, text, options) is held


@given(st.text("ab1é. \n", max_size=4), texts, st.booleans())
def test_plain_text_needs_no_engine_and_finds_the_same(literal, text, at_start):
    pattern = ("^" if at_start else "") + literal.replace(".", "")
    expected = re2.search(pattern, text) is not None
    assert finds(Regex(pattern))(text) is expected
    assert finds(Regex(pattern, "m"))(text) is (re2.search(f"(?m){pattern}", text) is not None)


pieces = st.sampled_from(
    ["a", "A", "k", "s", "S", "i", "1", " ", ".", "|", "^", "$", "?", "+", "*", r"\d", r"\w", r"\s",
     r"\.", "[ab]", "[^a1]", "[0-9]", "[a-c]", "[^a-k.-]", "[-a]", "(?i)", "-"]
)  # fmt: skip


@settings(max_examples=MANY)
@given(
    st.lists(pieces, min_size=1, max_size=8).map("".join),
    st.text("aAbBkKsSiI1. \n\v\u0663\u212a\u017fé\u0130\u0131", max_size=12),
    st.text("ims", max_size=2),
)
def test_a_simple_pattern_finds_the_same_on_python(pattern, text, options):
    test = Regex(pattern, "".join(sorted(set(options))))
    easy = simple(plain(test))
    if easy is None:
        return
    expected = re2.search(plain(test), text) is not None
    assert finds(test)(text) is expected
    if text.isascii() or "(?i" not in easy:
        assert (re.search(easy, text) is not None) is expected


def test_cases_are_those_of_re2_in_every_script():
    cased = [
        text
        for text in map(chr, [*range(0xD800), *range(0xE000, 0x20000)])
        if text.lower() != text or text.upper() != text
    ]
    for pattern in ["i", "k", "s", "Z", "a", r"\w", "[^k]", "[h-l]"]:
        finder = finds(Regex(pattern, "i"))
        by_engine = re2.compile(f"(?i){pattern}").search
        wrong = [text for text in cased if finder(text) is not (by_engine(text) is not None)]
        assert wrong == [], pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)jam",
        "acc?ident|crash",
        "^a.c",
        "(?ms)^a|b",
        r"^A\d+$",
        r"exit \d+",
        "^[^a]*x|b+",
        "^$|a",
    ],
)
def test_what_is_simple(pattern):
    assert simple(pattern) is not None


@pytest.mark.parametrize(
    "pattern",
    ["a+b", "a+$", "(a|b)", "^a+b+", "(?m)^a+b", "a?b?c?d?", "x" * 65, "a{2}", "é", r"\b", "a??",
     "a+?", "a|", "[[:alpha:]]", r"\pL", "a++"],
)  # fmt: skip
def test_what_is_not_simple(pattern):
    assert simple(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a?a?a?" + "a" * 50 + "b", "a" * BODY_LIMIT_BYTES),
        ("^[^x]*" + "a" * 50 + "b", "a" * BODY_LIMIT_BYTES),
        ("|".join(["aaab"] * 12), "a" * BODY_LIMIT_BYTES),
        (r"ab?b?b?\w*", "a" * BODY_LIMIT_BYTES),
    ],
)
def test_a_simple_pattern_is_quick_on_the_longest_body(pattern, text):
    assert simple(pattern) is not None
    found(pattern, text)


@given(st.text("a b#[]\\\n^", max_size=10), texts)
def test_option_x_is_that_of_python(pattern, text):
    try:
        with warnings.catch_warnings(action="ignore"):  # of what "[[" may mean one day
            expected = re.compile(pattern, re.X).search(text) is not None
        parse({"a": {"$regex": pattern, "$options": "x"}})
    except (re.error, InvalidRequest):  # not a pattern for one of the two
        return
    assert found(pattern, text, "x") is expected


@given(st.text("ab1é.*+?^|(){}[]", max_size=6), texts)
def test_a_prefix_is_one(pattern, text):
    start, only = prefix(Regex(pattern))
    try:
        held = re2.search(pattern, text) is not None
    except re2.error:
        return
    if held:
        assert text.startswith(start)
    if only:
        assert held is text.startswith(start)


def test_the_engine_is_given_the_options_in_the_pattern():
    assert plain(Regex("a b", "imsx")) == "(?ims)ab"
    assert plain(Regex("a b")) == "a b"


def test_another_release_of_the_wrapper_is_asked_by_its_public_name(monkeypatch):
    class Wrapper:
        search = staticmethod(lambda text: re.search(rb"(ab)+c", text))

    monkeypatch.setattr(patterns, "_compiled", lambda pattern: Wrapper)
    finder = finds(Regex("(ab)+c"))
    assert (finder("xababc"), finder("ab"), finder(5)) == (True, False, False)


def test_the_largest_program_on_the_longest_body_ends():
    pattern = "(x[^y]{0,60}){7}z"
    assert PROGRAM_LIMIT * 0.9 < program_size(Regex(pattern)) <= PROGRAM_LIMIT
    assert not found(pattern, "xab" * (BODY_LIMIT_BYTES // 3))
