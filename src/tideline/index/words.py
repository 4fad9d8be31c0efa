"""The kind `words`: inverted lists of the words in texts, with their positions.

It serves `$words`, phrases among them, and the words of `$fuzzy` that allow no edit. The lists of
all words are intersected: the shortest is walked, the others are looked up along it; a phrase is
found by positions. An entry is one text, so what is found meets the test: the ask of a test that
stands alone is `exact`. Components, memory and searching: index/inverted.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tideline.index import textual
from tideline.index.inverted import InvertedKind, Requirement, TextAsk
from tideline.index.kind import Asked, Entries, register
from tideline.index.texts import Texts
from tideline.kernels.inverted.lists import PHRASE
from tideline.where.tree import Fuzzy, Words

__all__ = ["WordsKind"]


class WordsKind(InvertedKind):
    """Words of texts.

    >>> from tideline.where.tree import Words
    >>> asked = Asked((), (Words(("flat", "tire")),), lambda: True)
    >>> [str(ask) for (ask,) in WordsKind(seed=1).serves(asked)]
    ['words flat, tire']
    """

    name = "words"
    made_for = (Words,)
    decides_tests = True

    def extract(self, docs: Texts, fields: Sequence[str]) -> list[Entries]:
        """The words of each text."""
        return textual.extract(docs, fields, words=True)

    def serves(self, asked: Asked) -> list[tuple[Any, ...]]:
        """Words and phrases."""
        found: list[tuple[Any, ...]] = []
        alone = len(asked.tests) == 1 and not asked.needs
        for test in asked.tests:
            if isinstance(test, Words):
                found.append((self._of_words(test, alone),))
            elif isinstance(test, Fuzzy):
                same = [one.word for one in test.words if one.distance == 0 or one.similarity == 1]
                if same:
                    whole = alone and len(same) == len(test.words)
                    found.append((self._of_words(Words(tuple(sorted(set(same)))), whole),))
        return found

    def _of_words(self, test: Words, exact: bool) -> TextAsk:
        requirements = [
            Requirement(phrase, range(len(phrase)), len(phrase), PHRASE) for phrase in test.phrases
        ]
        inside = {word for phrase in test.phrases for word in phrase}
        requirements += [Requirement((w,), (0,), 1) for w in test.words if w not in inside]
        shown = [repr(" ".join(phrase)) for phrase in test.phrases]
        shown += [word for word in test.words if word not in inside]
        return self.ask(requirements, f"words {', '.join(shown)}", exact)


register("words", WordsKind)
