"""Words in text: `$words` and `$fuzzy`.

A word is a run of letters, digits and the marks that belong to them; everything else
parts words. Words are compared folded: compatibility forms and cases of one letter are
one, so `STRASSE`, `Straße` and full-width letters meet. Accents stay.

The edit distance of two words is the least number of single characters to insert, delete
or replace that makes one of the other (Levenshtein), in folded characters. Their similarity is

    1 - distance / length of the longer word

and a threshold t is met when that is t or more. So the distance may be the *floor* of (1 - t) times
the longer length. With the ceiling, which some libraries take, words would pass that are less
similar than t: "jam" and "jab" at 0.8 are, at 2/3. The threshold is the decimal number that was
written: 0.8 allows one edit of five characters, though the double next to 0.8 is above it and
would allow none. So all of it is done in fractions.

Pure functions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction

from tideline.errors import InvalidRequest
from tideline.where.tree import Fuzzy, Near, Words
from tideline.where.values import Place, place_text

__all__ = [
    "WORD_LIMIT", "distance_within", "edits_from", "fold", "folded", "fuzzy", "has_fuzzy",
    "has_words", "near", "similarity_of", "words",
]  # fmt: skip

DISTANCE_LIMIT = 3  # beyond it, short words are near everything
WORD_LIMIT = 64  # characters of a fuzzy word
FUZZY_LIMIT = 32  # words that are asked for at once: each is held against each word of a text
_ASCII_WORDS = re.compile("[a-z0-9]+", re.ASCII).findall
_KNOWN = 256  # lengths of words whose limits are made ahead


def fold(text: str) -> str:
    """A text in which cases and compatibility forms of a letter are one.

    >>> fold("Straße 1½")
    'strasse 11⁄2'
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def folded(text: str) -> list[str]:
    """The words of a text, folded, in their order.

    >>> folded("Flat TIRE, exit 12b; Straße_frei")
    ['flat', 'tire', 'exit', '12b', 'strasse', 'frei']
    """
    if text.isascii():
        return _ASCII_WORDS(text.lower())
    return fold(text).translate(_LETTERS).split()


class _Letters(dict[int, int]):
    """What parts words becomes a space; each character is looked up once."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        inside = character.isalnum() or unicodedata.category(character).startswith("M")
        if len(self) > 10_000:  # more than a language has
            self.clear()
        kept = self[code] = code if inside else 32
        return kept


_LETTERS = _Letters()


def has_words(test: Words) -> Callable[[object], bool]:
    """Whether a value is a text with all the words and phrases, as a function of the value.

    >>> has_words(Words(("flat", "tire")))("A flat rear TIRE")
    True
    >>> has_words(Words(("flat", "tire"), (("flat", "tire"),)))("A flat rear TIRE")
    False
    """
    wanted = frozenset(test.words)
    # A word has no space in it, so a phrase is a piece of all words joined by spaces.
    phrases = [f" {' '.join(phrase)} " for phrase in test.phrases]

    def matches(value: object) -> bool:
        return type(value) is str and wanted.issubset(folded(value))

    def matches_phrases(value: object) -> bool:
        if type(value) is not str:
            return False
        found = folded(value)
        if not wanted.issubset(found):
            return False
        joined = f" {' '.join(found)} "
        return all(phrase in joined for phrase in phrases)

    return matches_phrases if phrases else matches


def has_fuzzy(test: Fuzzy) -> Callable[[object], bool]:
    """Whether a value is a text with a word near each of those asked for.

    >>> has_fuzzy(Fuzzy((Near("acident", 1),)))("Accident at exit 12")
    True
    """
    asked = [(one.word, near(one)) for one in test.words]

    def matches(value: object) -> bool:
        if type(value) is not str:
            return False
        found = folded(value)
        return all(word in found or any(map(is_near, found)) for word, is_near in asked)

    return matches


def near(one: Near) -> Callable[[str], bool]:
    """Whether another word is near, as a function of that word.

    >>> is_near = near(Near("kitten", similarity=Fraction("0.8")))
    >>> is_near("sitten"), is_near("sitting")
    (True, False)
    """
    if one.similarity is None:
        return distance_within(one.word, one.limit(0))
    edits, length = edits_from(one.word), len(one.word)
    known = [one.limit(max(other, length)) for other in range(_KNOWN)]

    def similar(other: str) -> bool:
        size = len(other)
        limit = known[size] if size < _KNOWN else one.limit(max(size, length))
        return abs(size - length) <= limit and edits(other) <= limit

    return similar


def distance_within(word: str, limit: int) -> Callable[[str], bool]:
    """Whether another word is within the edit distance, as a function of that word.

    >>> is_near = distance_within("kitten", 2)
    >>> is_near("sitten"), is_near("sitting"), is_near("kitten")
    (True, False, True)
    """
    length = len(word)
    if not limit:
        return lambda other: other == word
    edits = edits_from(word)
    return lambda other: abs(len(other) - length) <= limit and edits(other) <= limit


def edits_from(word: str) -> Callable[[str], int]:
    """The edit distance of another word, as a function of that word.

    Myers' bit-vector method: a column of the table of distances is two integers, one bit a
    row, so a character of the other word costs a dozen operations on integers.

    >>> edits_from("kitten")("sitting")
    3
    """
    length = len(word)
    if not length:
        return len
    rows = (1 << length) - 1
    last = 1 << (length - 1)
    places: dict[str, int] = {}
    for row, character in enumerate(word):
        places[character] = places.get(character, 0) | (1 << row)

    def edits(other: str) -> int:
        up, down, score = rows, 0, length
        for character in other:
            same = places.get(character, 0)
            level = (((same & up) + up) ^ up) | same | down
            rises = down | ~(level | up)
            falls = up & level
            if rises & last:
                score += 1
            elif falls & last:
                score -= 1
            rises = (rises << 1) | 1
            up = ((falls << 1) | ~(level | rises)) & rows
            down = level & rises & rows
        return score

    return edits


# --- operands ---


def words(operand: object, place: Place) -> Words:
    """The operand of `$words` as a test; what stands between quotes is a phrase.

    >>> words("Flat tire, flat", "where.note.$words")
    Words(words=('flat', 'tire'), phrases=())
    >>> words('flat "right lane"', "where.note.$words")
    Words(words=('flat', 'lane', 'right'), phrases=(('right', 'lane'),))
    """
    parts = operand.split('"') if isinstance(operand, str) else []
    if len(parts) % 2 == 0 and parts:  # a quote that nothing closes parts words, as other signs do
        parts[-2:] = [" ".join(parts[-2:])]
    found = [folded(part) for part in parts]
    every = {word for part in found for word in part}
    if not every:
        raise InvalidRequest(
            f"{place_text(place)} must be text with one word or more", value=operand
        )
    phrases = sorted({tuple(part) for part in found[1::2] if len(part) > 1})
    return Words(tuple(sorted(every)), tuple(phrases))


def fuzzy(operand: object, place: Place) -> Fuzzy:
    """The operand of `$fuzzy` as a test.

    >>> fuzzy({"word": "Acident", "distance": 1}, "where.note.$fuzzy")
    Fuzzy(words=(Near(word='acident', distance=1, similarity=None),))
    >>> fuzzy({"words": "exit ramp", "similarity": 0.8}, "where.note.$fuzzy").words[1]
    Near(word='ramp', distance=None, similarity=Fraction(4, 5))
    """
    if isinstance(operand, dict) and "words" in operand:
        return Fuzzy(_several(operand, place))
    return Fuzzy((_one(operand, place, Near("", 1)),))


def _several(operand: dict[str, object], place: Place) -> tuple[Near, ...]:
    if not operand.keys() <= {"words", "distance", "similarity"}:
        raise InvalidRequest(
            f"{place_text(place)} must be like {{'words': ['acident', 'exit'], 'similarity': 0.8}}",
            value=operand,
        )
    given, here = operand["words"], (place, "words")
    wanted = folded(given) if isinstance(given, str) else given
    if not isinstance(wanted, list) or not 1 <= len(wanted) <= FUZZY_LIMIT:
        raise InvalidRequest(
            f"{place_text(here)} must be a list of 1 to {FUZZY_LIMIT} words", words=given
        )
    usual = _threshold(operand, place, Near("", 1))
    found = [
        _one(one if isinstance(one, dict) else {"word": one}, (here, number), usual)
        for number, one in enumerate(wanted)
    ]
    return tuple(dict.fromkeys(found))


def _one(operand: object, place: Place, usual: Near) -> Near:
    """A word with its threshold, or the usual one."""
    known = {"word", "distance", "similarity"}
    if not isinstance(operand, dict) or not {"word"} <= operand.keys() <= known:
        raise InvalidRequest(
            f"{place_text(place)} must be like {{'word': 'acident', 'distance': 1}}", value=operand
        )
    found = folded(operand["word"]) if isinstance(operand["word"], str) else []
    if len(found) != 1 or len(found[0]) > WORD_LIMIT:
        raise InvalidRequest(
            f"{place_text((place, 'word'))} must be one word of at most {WORD_LIMIT} characters",
            word=operand["word"],
        )
    threshold = _threshold(operand, place, usual)
    return Near(found[0], threshold.distance, threshold.similarity)


def _threshold(operand: dict[str, object], place: Place, usual: Near) -> Near:
    if "similarity" in operand:
        if "distance" in operand:
            raise InvalidRequest(
                f"{place_text(place)} takes a distance or a similarity, not both", value=operand
            )
        return Near("", None, similarity_of(operand["similarity"], place))
    distance = operand.get("distance")
    if "distance" not in operand:
        return usual
    if type(distance) is not int or not 0 <= distance <= DISTANCE_LIMIT:
        raise InvalidRequest(
            f"{place_text((place, 'distance'))} must be a whole number, 0 to {DISTANCE_LIMIT}",
            distance=distance,
        )
    return Near("", distance)


def similarity_of(value: object, place: Place) -> Fraction:
    """A threshold as the decimal number that it was written as.

    >>> similarity_of(0.8, "where.note.$fuzzy")
    Fraction(4, 5)
    """
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]
        raise InvalidRequest(
            f"{place_text((place, 'similarity'))} must be a number, 0 to 1", similarity=value
        )
    return Fraction(repr(value))
