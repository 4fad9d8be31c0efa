"""Topic paths as bytes: their order is the order of the tree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import InvalidRequest
from tideline.space.dewey import decode_path, encode_path

_texts = st.text(st.characters(codec="utf-8", exclude_characters="/\x00"), min_size=1, max_size=8)
_numbers = st.one_of(st.integers(0, 120), st.integers(0, 10**30)).map(str)
# Few letters, so that equal segments, prefixes and leading zeros are common.
_close = st.text("019aé", min_size=1, max_size=3)
_segments = st.lists(st.one_of(_close, _numbers, _texts), min_size=1, max_size=5)


def _order(segments):
    """The order of the tree, said plainly: numbers by value, then texts by code point."""
    return [(0, int(s), "") if _is_number(s) else (1, 0, s) for s in segments]


def _is_number(segment):
    return segment.isascii() and segment.isdigit() and str(int(segment)) == segment


@given(_segments, _segments)
def test_byte_order_is_tree_order(one, other):
    keys = encode_path("/".join(one)), encode_path("/".join(other))
    assert (keys[0] < keys[1]) == (_order(one) < _order(other))
    assert (keys[0] == keys[1]) == (one == other)


@given(_segments, _segments)
def test_a_subtree_is_exactly_the_keys_with_its_prefix(one, other):
    below = encode_path("/".join(other)).startswith(encode_path("/".join(one)))
    assert below == (other[: len(one)] == one)


@given(_segments, _segments)
def test_a_child_starts_with_its_parent(parent, child):
    assert encode_path("/".join(parent + child)).startswith(encode_path("/".join(parent)))


@given(_segments)
def test_a_path_comes_back(segments):
    path = "/".join(segments)
    assert decode_path(encode_path(path)) == path


def test_ten_comes_after_nine():
    paths = ["b/2", "b", "b/10", "b/9", "a", "10", "9", "0", "b/x", "007"]
    assert sorted(paths, key=encode_path) == [
        *("0", "9", "10", "007", "a", "b", "b/2", "b/9", "b/10", "b/x"),
    ]


def test_the_bytes_are_those_of_the_format():
    assert encode_path("é/10/0/01") == b"\x02\xc3\xa9\x00\x01\x0210\x00\x01\x010\x00\x0201\x00"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "none of them empty"),
        ("/a", "none of them empty"),
        ("a/", "none of them empty"),
        ("a//b", "none of them empty"),
        ("a\x00b", "NUL"),
        ("\ud800", "Unicode"),
        ("/".join("a" * 33), "at most 32 segments"),
        ("é" * 257, "at most 512 bytes"),
        ("1" * 256, "at most 255 digits"),
    ],
)
def test_a_wrong_path_is_refused_with_the_reason(path, reason):
    with pytest.raises(InvalidRequest, match=reason):
        encode_path(path)


def test_the_limits_themselves_are_allowed():
    for path in ("/".join("a" * 32), "é" * 256, "1" * 255):
        assert decode_path(encode_path(path)) == path


def test_other_scripts_digits_are_text():
    assert encode_path("٣")[0] == 2
