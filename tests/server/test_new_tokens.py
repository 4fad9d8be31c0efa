"""A token that was made is good at once."""

from __future__ import annotations

from pathlib import Path

from tideline.server.access import Access
from tideline.server.tokens import Tokens


def test_a_token_is_known_at_its_first_use(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    first, _ = tokens.create(["read"])
    access = Access(tmp_path, always=False)
    assert access.caller(first, "here").token is not None
    second, made = tokens.create(["read"])
    assert access.caller(second, "here").key == made.id
