"""Words in text: `$words` and `$fuzzy`.

A word is a run of letters, digits and the marks that belong to them; everything else
parts words. Words are compared folded: compatibility forms and cases of one letter are
one, so `STRASSE`, `Straße` and full-width letters meet. Accents stay.

The edit distance of two words is the least number of single characters to insert, delete
or replace that makes one of the other (Levenshtein), in folded characters.

Pure functions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from tideline.errors import InvalidRequest
from tideline.where.tree import Fuzzy, Words
from tideline.where.values import Place, place_text

__all__ = ["distance_within", "folded", "fuzzy", "has_fuzzy", "has_words", "words"]

DISTANCE_LIMIT = 3  # beyond it, short words are near everything
WORD_LIMIT = 64  # characters of a fuzzy word
_ASCII_WORDS = re.compile("[a-z0-9]+", re.ASCII).findall


def folded(text: str) -> list[str]:
    """The words of a text, folded, in their order.

    >>> folded("Flat TIRE, exit 12b; Straße_frei")
    ['flat', 'tire', 'exit', '12b', 'strasse', 'frei']
    """
    if text.isascii():
        return _ASCII_WORDS(text.lower())
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return text.translate(_LETTERS).split()


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
    """Whether a value is a text with all the words, as a function of the value.

    >>> has_words(Words(("flat", "tire")))("A flat rear TIRE")
    True
    """
    wanted = frozenset(test.words)

    def matches(value: object) -> bool:
        return type(value) is str and wanted.issubset(folded(value))

    return matches


def has_fuzzy(test: Fuzzy) -> Callable[[object], bool]:
    """Whether a value is a text with a word that near, as a function of the value.

    >>> has_fuzzy(Fuzzy("acident", 1))("Accident at exit 12")
    True
    """
    word, limit = test.word, test.distance
    near = distance_within(word, limit)

    def matches(value: object) -> bool:
        if type(value) is not str:
            return False
        found = folded(value)
        return word in found or (limit > 0 and any(map(near, found)))

    return matches


def distance_within(word: str, limit: int) -> Callable[[str], bool]:
    """Whether another word is within the edit distance, as a function of that word.

    Myers' bit-vector method: a column of the table of distances is two integers, one bit a
    row, so a character of the other word costs a dozen operations on integers.

    >>> near = distance_within("kitten", 2)
    >>> near("sitten"), near("sitting"), near("kitten")
    (True, False, True)
    """
    length = len(word)
    if not length:
        return lambda other: len(other) <= limit
    rows = (1 << length) - 1
    last = 1 << (length - 1)
    places: dict[str, int] = {}
    for row, character in enumerate(word):
        places[character] = places.get(character, 0) | (1 << row)

    def near(other: str) -> bool:
        if abs(len(other) - length) > limit:
            return False
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
        return score <= limit

    return near


# --- operands ---


def words(operand: object, place: Place) -> Words:
    """The operand of `$words` as a test.

    >>> words("Flat tire, flat", "where.note.$words")
    Words(words=('flat', 'tire'))
    """
    found = folded(operand) if isinstance(operand, str) else []
    if not found:
        raise InvalidRequest(
            f"{place_text(place)} must be text with one word or more", value=operand
        )
    return Words(tuple(sorted(set(found))))


def fuzzy(operand: object, place: Place) -> Fuzzy:
    """The operand of `$fuzzy` as a test.

    >>> fuzzy({"word": "Acident", "distance": 1}, "where.note.$fuzzy")
    Fuzzy(word='acident', distance=1)
    """
    if not isinstance(operand, dict) or not {"word"} <= operand.keys() <= {"word", "distance"}:
        raise InvalidRequest(
            f"{place_text(place)} must be like {{'word': 'acident', 'distance': 1}}", value=operand
        )
    found = folded(operand["word"]) if isinstance(operand["word"], str) else []
    if len(found) != 1 or len(found[0]) > WORD_LIMIT:
        raise InvalidRequest(
            f"{place_text((place, 'word'))} must be one word of at most {WORD_LIMIT} characters",
            word=operand["word"],
        )
    distance = operand.get("distance", 1)
    if type(distance) is not int or not 0 <= distance <= DISTANCE_LIMIT:
        raise InvalidRequest(
            f"{place_text((place, 'distance'))} must be a whole number, 0 to {DISTANCE_LIMIT}",
            distance=distance,
        )
    return Fuzzy(found[0], distance)
