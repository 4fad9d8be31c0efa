"""Text by its characters: `$contains` and `$jaccard`.

Texts are folded as words are (`words.py`), but not parted: spaces and signs count.

A *gram* of n is a run of n characters. The grams of a text are all that it has, each once; a text
shorter than n has one, itself, and an empty one has none. The Jaccard similarity of two texts is
how many grams both have, divided by how many at least one has; of two without any it is 1. It is
compared by whole numbers: no rounding decides.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable

from tideline.errors import InvalidRequest
from tideline.where.tree import Contains, Jaccard
from tideline.where.values import Place, place_text
from tideline.where.words import fold, similarity_of

__all__ = ["GRAMS_LIMIT", "contained", "contains", "grams_of", "is_similar", "similar"]

GRAMS_LIMIT = 8  # characters of a gram


def grams_of(folded: str, size: int) -> frozenset[str]:
    """The grams of a folded text.

    >>> sorted(grams_of("tidetide", 3)), grams_of("ab", 3), grams_of("", 3)
    (['det', 'eti', 'ide', 'tid'], frozenset({'ab'}), frozenset())
    """
    if len(folded) <= size:
        return frozenset((folded,) if folded else ())
    return frozenset(folded[start : start + size] for start in range(len(folded) - size + 1))


def contains(test: Contains) -> Callable[[object], bool]:
    """Whether a value is a text that contains another, as a function of the value.

    >>> contains(Contains("l-tea"))("Pearl-Tea House")
    True
    """
    wanted = test.text
    return lambda value: type(value) is str and wanted in fold(value)


def is_similar(test: Jaccard) -> Callable[[object], bool]:
    """Whether a value is a text that shares enough grams, as a function of the value.

    >>> from fractions import Fraction
    >>> is_similar(Jaccard("tideline", 3, Fraction(1, 2)))("Tidelines")
    True
    """
    wanted, size = grams_of(test.text, test.grams), test.grams
    part, whole = test.similarity.numerator, test.similarity.denominator

    def matches(value: object) -> bool:
        if type(value) is not str:
            return False
        found = grams_of(fold(value), size)
        both = len(wanted & found)
        return both * whole >= part * (len(wanted) + len(found) - both)

    return matches


# --- operands ---


def contained(operand: object, place: Place) -> Contains:
    """The operand of `$contains` as a test.

    >>> contained("L-Tea", "where.name.$contains")
    Contains(text='l-tea')
    """
    if not isinstance(operand, str) or not operand:
        raise InvalidRequest(
            f"{place_text(place)} must be text of one character or more", value=operand
        )
    return Contains(fold(operand))


def similar(operand: object, place: Place) -> Jaccard:
    """The operand of `$jaccard` as a test.

    >>> similar({"text": "Tide", "similarity": 0.6}, "where.name.$jaccard")
    Jaccard(text='tide', grams=3, similarity=Fraction(3, 5))
    """
    known = {"text", "grams", "similarity"}
    if not isinstance(operand, dict) or not {"text", "similarity"} <= operand.keys() <= known:
        raise InvalidRequest(
            f"{place_text(place)} must be like {{'text': 'tideline', 'similarity': 0.6}}",
            value=operand,
        )
    text, size = operand["text"], operand.get("grams", 3)
    if not isinstance(text, str):
        raise InvalidRequest(f"{place_text((place, 'text'))} must be text", text=text)
    if type(size) is not int or not 1 <= size <= GRAMS_LIMIT:
        raise InvalidRequest(
            f"{place_text((place, 'grams'))} must be a whole number, 1 to {GRAMS_LIMIT}", grams=size
        )
    return Jaccard(fold(text), size, similarity_of(operand["similarity"], place))
