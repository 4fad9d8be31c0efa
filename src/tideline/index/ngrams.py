"""The kind `ngrams`: inverted lists of the grams of texts, with their positions.

    $contains   all grams of the piece, one behind the other
    $regex      the same for each plain piece that every match has in it
    $jaccard    so many grams of the text that the similarity can be reached; an entry with many
                grams of its own must share more
    $fuzzy      a word of g grams within d edits has g - n d of them or more, at positions that are
                shifted by d at most

What is too short for a gram of n characters is not served; nor is `$jaccard` by grams of another
size. What is found is held against the condition again: counts may find too many, never too few.

A text that is not ASCII has an entry for `$regex`, too (index/textual.py). Components, memory and
searching: index/inverted.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tideline.errors import InvalidRequest
from tideline.index import textual
from tideline.index.inverted import InvertedKind, Requirement
from tideline.index.kind import Asked, Entries, register
from tideline.index.texts import Texts
from tideline.kernels.inverted.lists import NEAR, PHRASE, SHARES
from tideline.where.grams import GRAMS_LIMIT
from tideline.where.tree import Contains, Fuzzy, Jaccard, Near, Regex, Test

__all__ = ["NgramsKind", "pieces"]

_MOST = 64  # grams of a piece that are asked for: they are taken all along it
_LETTERS = frozenset("dDwWsSbBAztnrfv")  # after a backslash: a class, and nothing belongs to it
_CASES = frozenset("ksKS")  # letters that have another case beyond ASCII


class NgramsKind(InvertedKind):
    """Grams of texts.

    >>> from tideline.where.tree import Contains
    >>> asked = Asked((), (Contains("l-tea"), Contains("ab")), lambda: True)
    >>> [str(ask) for (ask,) in NgramsKind(seed=1).serves(asked)]
    ["contains 'l-tea'"]
    """

    name = "ngrams"
    made_for = (Contains, Jaccard, Fuzzy, Regex)

    def __init__(self, *, seed: int, n: Any = 3) -> None:
        super().__init__(seed=seed)
        if type(n) is not int or not 2 <= n <= GRAMS_LIMIT:
            raise InvalidRequest(f"n must be a whole number, 2 to {GRAMS_LIMIT}", n=n)
        self.grams = n

    def extract(self, docs: Texts, fields: Sequence[str]) -> list[Entries]:
        """Each text, folded."""
        return textual.extract(docs, fields, words=False, raw=True)

    def serves(self, asked: Asked) -> list[tuple[Any, ...]]:
        """Pieces of text, patterns with a plain piece, similar texts and words."""
        found: list[tuple[Any, ...]] = []
        for test in asked.tests:
            requirements, text = self._of(test)
            if requirements:
                found.append((self.ask(requirements, text),))
        return found

    def _of(self, test: Test) -> tuple[list[Requirement], str]:
        if isinstance(test, Contains):
            return self._pieces([test.text]), f"contains {test.text!r}"
        if isinstance(test, Regex):
            found = [one for one in pieces(test) if len(one) >= self.grams]
            return self._pieces(found), f"contains {', '.join(map(repr, found))}"
        if isinstance(test, Jaccard):
            return self._shared(test), f"similar to {test.text!r}"
        if isinstance(test, Fuzzy):
            near = [one for word in test.words for one in self._near(word)]
            return near, f"near {', '.join(one.word for one in test.words)}"
        return [], ""

    def _grams(self, text: str) -> list[str]:
        return [text[at : at + self.grams] for at in range(len(text) - self.grams + 1)]

    def _pieces(self, texts: Sequence[str]) -> list[Requirement]:
        found = []
        for text in texts:
            grams = self._grams(text)
            step = -(-len(grams) // _MOST) or 1
            offsets = sorted({*range(0, len(grams), step), len(grams) - 1} - {-1})
            if offsets:
                some = [grams[at] for at in offsets]
                found.append(Requirement(some, offsets, len(some), PHRASE))
        return found

    def _shared(self, test: Jaccard) -> list[Requirement]:
        if test.grams != self.grams or not test.text or not test.similarity:
            return []
        grams = list(dict.fromkeys(self._grams(test.text) or [test.text]))
        part, whole = test.similarity.numerator, test.similarity.denominator
        least = max(-(-part * len(grams) // whole), 1)
        share = int(test.similarity * SHARES)  # rounded down: too many, never too few
        return [Requirement(grams, [0] * len(grams), least, 0, 0, share)]

    def _near(self, one: Near) -> list[Requirement]:
        grams = self._grams(one.word)
        different = list(dict.fromkeys(grams))
        most = _most_edits(one, len(different) // self.grams + 1)
        least = len(different) - self.grams * most
        if least < 1:
            return []
        if len(different) < len(grams):  # positions of a gram that comes twice say little
            return [Requirement(different, [0] * len(different), least)]
        return [Requirement(different, range(len(grams)), least, NEAR, most)]


def _most_edits(one: Near, enough: int) -> int:
    """The greatest edit distance of a word that is near; `enough` or more is not looked at.

    >>> from fractions import Fraction
    >>> _most_edits(Near("abcdefghi", similarity=Fraction(4, 5)), 9)
    2
    """
    longest = len(one.word)
    while one.limit(longest) < enough and longest + 1 - len(one.word) <= one.limit(longest + 1):
        longest += 1
    return one.limit(longest)


def pieces(test: Regex) -> list[str]:
    """Plain pieces that are in every text in which a pattern is found, A to Z folded.

    A pattern with groups or alternatives has none here.

    >>> pieces(Regex("^Flat t.re+s?$")), pieces(Regex("a(b|c)")), pieces(Regex("ask Me", "i"))
    (['flat t', 're'], [], ['a', ' me'])
    """
    pattern, folding = test.pattern, "i" in test.options
    if "x" in test.options or re.search(r"[(|]|\\[QC]", pattern):
        return []
    found, piece = [], ""
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        plain = ""
        if character == "\\":
            if at == len(pattern):
                return []
            plain = pattern[at]
            at += 1
            if plain.isalnum():
                if plain not in _LETTERS:
                    return []
                plain = ""
        elif character == "[":
            end = pattern.find("]", at + 1 + pattern.startswith("^", at))
            if end < 0 or "[" in pattern[at:end] or "\\" in pattern[at:end]:
                return []
            at = end + 1
        elif character in "*?{":
            piece = piece[:-1]
            if character == "{":
                at = pattern.find("}", at) + 1
                if not at:
                    return []
        elif character not in ".^$+":
            plain = character
        if plain and not (folding and (plain in _CASES or not plain.isascii())):
            piece += plain.lower() if plain.isascii() else plain
        else:
            found.append(piece)
            piece = ""
    return [one for one in [*found, piece] if one]


register("ngrams", NgramsKind)
