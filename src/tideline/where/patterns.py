"""Patterns: `$regex` on RE2, an engine whose time is linear in the text.

MongoDB's engine can take time exponential in the text on some patterns; RE2 cannot, and
its memory and the size of its programs are bounded here too. What it cannot do in linear time
(back references, looking around) is refused when the condition is parsed. Its rules are those
of the engine in pyarrow, so a batch and a single body get one answer.

Options, as in MongoDB: `i` ignore case, `m` lines (^ and $ at each), `s` let `.` match line
breaks, `x` ignore white space and `#` comments in the pattern; RE2 has no `x`, so `plain`
takes both out. Without `m`, `$` is the end of the text and not also before a last line break.

Calling RE2 costs a microsecond, so what people write most goes another way to the same answer:
a plain text or a start needs no engine, and a short pattern that gives a backtracking engine
nothing to go back over many times (`simple`) runs on Python's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tideline.errors import InvalidRequest
from tideline.where.tree import Regex
from tideline.where.values import Place, place_text

__all__ = ["check", "easy", "finds", "plain", "prefix", "program_size", "simple"]

PATTERN_LIMIT = 1_024  # characters
MEMORY_LIMIT = 512 << 10  # bytes of program and states one pattern may hold
_LITERAL = re.compile(r"(\^?)([^\\^$.|?*+()\[\]{}]*)")


def check(pattern: object, options: object, place: Place, holder: Place) -> Regex:
    """The operands of `$regex` and `$options` as a test.

    >>> check("^a", "i", "where.road.$regex", "where.road")
    Regex(pattern='^a', options='i')
    """
    if not isinstance(pattern, str):
        raise InvalidRequest(f"{place_text(place)} must be text, a pattern", value=pattern)
    if len(pattern) > PATTERN_LIMIT:
        raise InvalidRequest(
            f"{place_text(place)} is too long; at most {PATTERN_LIMIT} characters are allowed"
        )
    if not isinstance(options, str) or not set(options) <= set("imsx"):
        raise InvalidRequest(
            f"{place_text((holder, '$options'))} must be text made of i, m, s and x", value=options
        )
    test = Regex(pattern, "".join(sorted(set(options))))
    import re2  # here, because most conditions have no pattern and loading it takes 10 ms

    try:
        _compiled(plain(test))
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise InvalidRequest(
            f"{place_text(place)} is not a pattern RE2 can run ({reason})", pattern=pattern
        ) from None
    return test


def program_size(test: Regex) -> int:
    """The number of instructions of the pattern: a byte of text may cost a step for each.

    >>> program_size(Regex("^a.*z$")) < 20 < program_size(Regex("[^y]{100}"))
    True
    """
    size: int = _compiled(plain(test)).programsize
    return size


def easy(test: Regex) -> bool:
    """Whether the pattern is found without RE2, in few steps a character.

    >>> easy(Regex("^A8")), easy(Regex("^A[0-9]+")), easy(Regex("(a|b)+c"))
    (True, True, False)
    """
    literal = _LITERAL.fullmatch(test.pattern) is not None and not set(test.options) - {"s"}
    # With options, texts beyond ASCII go to the engine.
    return literal or (not set(test.options) - {"x"} and simple(plain(test)) is not None)


def plain(test: Regex) -> str:
    """The pattern with its options inside, as RE2 reads it.

    >>> plain(Regex("a b # note", "ix"))
    '(?i)ab'
    """
    pattern = _without_space(test.pattern) if "x" in test.options else test.pattern
    flags = test.options.replace("x", "")
    return f"(?{flags}){pattern}" if flags else pattern


def finds(test: Regex) -> Callable[[object], bool]:
    """Whether a value is a text in which the pattern is found, as a function of the value.

    >>> finds(Regex("^a"))("ab"), finds(Regex("b.d", "i"))("aBcD"), finds(Regex("1"))(1)
    (True, True, False)
    """
    literal = _LITERAL.fullmatch(test.pattern)
    if literal is not None and not set(test.options) - {"s"}:
        start, part = literal.groups()
        if start:
            return lambda value: type(value) is str and value.startswith(part)
        return lambda value: type(value) is str and part in value
    pattern = plain(test)
    engine = _engine(pattern)
    easy = simple(pattern)
    if easy is None:
        return engine
    quick = re.compile(easy).search
    if not easy.startswith("(?"):
        return lambda value: type(value) is str and quick(value) is not None

    def with_options(value: object) -> bool:
        # Beyond ASCII the engines have cases of their own: to Python, dotless i is an i.
        if type(value) is str and value.isascii():
            return quick(value) is not None
        return engine(value)

    return with_options


def _engine(pattern: str) -> Callable[[object], bool]:
    """Whether a value is a text in which RE2 finds the pattern, as a function of the value."""
    import re2

    compiled = _compiled(pattern)
    try:
        # Without the wrapper's match object, which takes longer than the search itself.
        match, anchor = compiled._regexp.Match, re2._Anchor.UNANCHORED
        match(anchor, b"", 0, 0)
    except (AttributeError, TypeError):  # another release of the wrapper
        search = compiled.search
        return lambda value: type(value) is str and search(value.encode()) is not None

    def found(value: object) -> bool:
        if type(value) is not str:
            return False
        text = value.encode()
        return match(anchor, text, 0, len(text))[0][0] >= 0  # type: ignore[no-any-return]

    return found


_FLAGS = re.compile(r"\(\?([ims]+)\)")
_CLASS = r"\[\^?(?:\w-\w|[\w ,:/.])+-?\]"
_ITEM = re.compile(rf"""[\w ,;:/'"@%&=<>~!-]|\.|{_CLASS}|\\[dws.$^|?*+()\[\]{{}}/-]""", re.ASCII)
_CLASSES = {r"\d": "[0-9]", r"\w": "[0-9A-Za-z_]", r"\s": "[\\t\\n\\f\\r ]"}


def simple(pattern: str) -> str | None:
    """The pattern for Python's engine, if there it takes few steps a character; else None.

    Alternatives of single characters and classes, up to three `?`, and one `+` or `*` in each:
    with `^` in front, where there is one place to start from, or as the last, where there is
    nothing left to fail. It says the same to both engines, in ASCII and with RE2's classes; only
    where cases are ignored, the text must be ASCII too.

    >>> simple("^A[0-9]+"), simple("(?i)acc?ident|jam"), simple("a+b"), simple("(a|b)")
    ('^A[0-9]+', '(?i)acc?ident|jam', None, None)
    """
    flags = _FLAGS.match(pattern)
    options = flags.group(1) if flags else ""
    made = [flags.group()] if flags else []
    at = flags.end() if flags else 0
    optional = 0
    if len(pattern) > 64:
        return None
    while True:  # an alternative
        start = at
        anchored = pattern.startswith("^", at)
        if anchored:
            made.append("^")
            at += 1
        many = False
        while (item := _ITEM.match(pattern, at)) is not None:
            text = item.group()
            at = item.end()
            made.append(_CLASSES.get(text, text))
            after = pattern[at : at + 1]
            if after in ("?", "*", "+"):
                made.append(after)
                at += 1
                optional += after == "?"
                last = at == len(pattern) or pattern[at] == "|"
                if after != "?" and (many or "m" in options or not (anchored or last)):
                    return None
                many = many or after != "?"
        if pattern.startswith("$", at) and "m" not in options:
            made.append(r"\Z")
            at += 1
        if at == start or optional > 3:
            return None
        if at == len(pattern):
            return "".join(made)
        if pattern[at] != "|":
            return None
        made.append("|")
        at += 1


def prefix(test: Regex) -> tuple[str, bool]:
    """What every text found must begin with, and whether that is all the pattern asks.

    >>> prefix(Regex("^A8")), prefix(Regex("^A8+ west")), prefix(Regex("A8")), prefix(Regex("^a|b"))
    (('A8', True), ('A', False), ('', False), ('', False))
    """
    if set(test.options) - {"s"} or "|" in test.pattern or not test.pattern.startswith("^"):
        return "", False
    literal = _LITERAL.match(test.pattern)
    assert literal is not None
    part = literal.group(2)
    rest = test.pattern[literal.end() :]
    if rest[:1] in ("*", "?", "+", "{"):  # what is repeated may be absent
        part = part[:-1]
    return part, not rest


@lru_cache(maxsize=128)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = MEMORY_LIMIT
    options.log_errors = False
    options.never_capture = True
    return re2.compile(pattern, options)


def _without_space(pattern: str) -> str:
    """The pattern without the white space and comments that option `x` takes out."""
    kept: list[str] = []
    at = 0
    in_class = False
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            kept.append(pattern[at : at + 2])
            at += 2
            continue
        if in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
            # A bracket right after the opening one, or after its ^, is an ordinary one.
            opening = re.match(r"\[\^?\]?", pattern[at:])
            assert opening is not None
            kept.append(opening.group())
            at += opening.end()
            continue
        elif character.isspace():
            at += 1
            continue
        elif character == "#":
            end = pattern.find("\n", at)
            at = len(pattern) if end < 0 else end + 1
            continue
        kept.append(character)
        at += 1
    return "".join(kept)
