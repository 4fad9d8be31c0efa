"""Names that are nearly right, for messages that say what was meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tideline.errors import InvalidRequest

__all__ = ["check_no_directions", "did_you_mean", "nearest"]

_LONGEST = 64  # characters of a name that are looked at


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most like a word, whatever its case; None when none is near.

    `cutoff` says how like: 1 is the same, 0 is nothing in common.

    >>> nearest("Chanel", ["channel", "folder"]), nearest("xyz", ["channel", "folder"])
    ('channel', None)
    """
    import difflib  # only where something is wrong

    by_case = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(word[:_LONGEST].casefold(), by_case, n=1, cutoff=cutoff)
    return by_case[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not there: what was meant, if one is near.

    >>> did_you_mean("cras", ["cars", "roads"]), did_you_mean("x", ["cars"])
    (": did you mean 'cars'?", '')
    """
    meant = nearest(word, known)
    return f": did you mean {meant!r}?" if meant else ""


def check_no_directions(given: Any) -> None:
    """`InvalidRequest` for the fields of an index as MongoDB has them, with directions.

    >>> check_no_directions([("speed", 1)])
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: an index has no direction, it serves both: did you mean ...
    """
    if isinstance(given, (list, tuple)) and given:
        names = [part[0] for part in given if isinstance(part, (list, tuple)) and len(part) == 2]
        if len(names) == len(given) and all(isinstance(name, str) for name in names):
            meant = names[0] if len(names) == 1 else names
            raise InvalidRequest(
                f"an index has no direction, it serves both: did you mean {meant!r}?", field=given
            )
