"""The view of tokens, in a real browser."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect
from test_looks import CONTRAST
from test_windows_page import OUTSIDE

from tideline.server.tokens import Tokens

HOSTILE = '<img src=x onerror="alert(1)">'


@pytest.fixture
def tokens(served: Any) -> Tokens:
    return Tokens(served.db.path)


def enter(screen: Any, text: str, selector: str = "#access-all:not([hidden])") -> None:
    """Open the view with a token, as somebody who pastes it."""
    screen.expected = ["status of 401", "status of 403"]
    screen.page.goto(screen.url + "/#access")
    screen.page.wait_for_selector("#token-dialog[open]")
    screen.page.fill("#token", text)
    screen.page.click("#token-form .main")
    screen.page.wait_for_selector(selector)


def channels(url: str, token: str) -> int:
    request = urllib.request.Request(f"{url}/v1/channels")
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request) as answer:
            return len(json.load(answer))
    except urllib.error.HTTPError as error:
        return -int(error.code)


def test_an_admin_makes_a_token_sees_it_once_and_revokes_it(
    open_screen: Callable[..., Any], served: Any, tokens: Tokens
) -> None:
    admin, own = tokens.create(["admin"], name="operator")
    screen = open_screen(None)
    page = screen.page
    enter(screen, admin)
    screen.wait_for_text("#access-rows", "yours")
    screen.expected.append("status of 400")
    page.fill("#grant-name", HOSTILE)
    page.uncheck("#grant-read")
    page.click("#grant-go")
    screen.wait_for_text("#grant-error", "at least one thing")
    page.check("#grant-read")
    page.check("#grant-subscribe")
    page.fill("#grant-only", "roads, ro*")
    page.click("#grant-go")
    screen.wait_for_text("#grant-error", "no patterns")
    page.fill("#grant-only", "roads")
    page.fill("#grant-rows", "{nope")
    page.click("#grant-go")
    screen.wait_for_text("#grant-error", "not JSON")
    assert page.get_attribute("#grant-rows", "aria-invalid") == "true"
    page.fill("#grant-rows", '{"orders": {"owner": {"$nope": 1}}}')
    page.click("#grant-go")
    screen.wait_for_text("#grant-error", "rows.orders")
    page.fill("#grant-rows", '{"orders": {"owner": "$user"}}')
    page.fill("#grant-user", "ann")
    page.press("#grant-user", "Enter")
    page.wait_for_selector("#made-dialog[open]")
    text = page.input_value("#made-text")
    assert channels(served.url, text) == 1
    page.click("#made-dialog button[type=submit]")
    expect(page.locator("#made-text")).to_have_value("")
    assert text not in page.content()
    [made] = [token for token in tokens.load() if token.id != own.id]
    assert (made.name, made.user, made.scopes) == (
        HOSTILE,
        "ann",
        ("read:roads", "subscribe:roads"),
    )
    screen.wait_for_text("#access-rows", '{"orders":{"owner":"$user"}}')
    assert made.hash not in page.content()
    page.click(f"#revoke-{made.id}")
    page.click("#revoke-cancel")
    assert channels(served.url, text) == 1
    page.click(f"#revoke-{made.id}")
    page.click("#revoke-go")
    page.wait_for_selector(f"#revoke-{made.id}", state="detached")
    assert channels(served.url, text) == -401
    # The last one that may do everything stays, and the page says why.
    screen.expected.append("status of 409")
    page.click(f"#revoke-{own.id}")
    screen.wait_for_text("#revoke-what", "this page will ask for another one")
    page.click("#revoke-go")
    screen.wait_for_text("#access-text", "the last token that may do everything")
    assert [token.id for token in tokens.load()] == [own.id]


def test_who_is_no_admin_is_told_so(open_screen: Callable[..., Any], tokens: Tokens) -> None:
    admin, _ = tokens.create(["admin"])
    reader, _ = tokens.create(["read"])
    screen = open_screen(None)
    page = screen.page
    enter(screen, reader, "#access-token:not([hidden])")
    assert "needs a token with the scope admin" in page.inner_text("#access-text")
    assert page.is_hidden("#access-all")
    page.click("#access-token")
    page.fill("#token", admin)
    page.click("#token-form .main")
    page.wait_for_selector("#access-rows tr")
    assert page.locator("#access-rows tr").count() == 2


def test_a_server_without_tokens_says_so(open_screen: Callable[..., Any], served: Any) -> None:
    screen = open_screen("/#access")
    screen.wait_for_text("#access-text", "runs without tokens")
    assert screen.page.is_hidden("#access-tokens")
    screen.wait_for_text("#access-limits", "20,000")


def test_nothing_is_clipped_and_everything_can_be_read(
    open_screen: Callable[..., Any], tokens: Tokens
) -> None:
    admin, _ = tokens.create(["admin"], name="a" * 200)
    tokens.create(["read", "write:a_collection_with_a_long_name"], user="u" * 256,
                  rows={"*": {"owner": "$user", "state": {"$in": ["open", "sent"]}}})  # fmt: skip
    screen = open_screen(None)
    enter(screen, admin)
    page = screen.page
    page.wait_for_selector("#access-rows tr")
    for width, theme in ((320, "light"), (768, "dark"), (1280, "light"), (1920, "dark")):
        page.set_viewport_size({"width": width, "height": 740})
        page.emulate_media(color_scheme=theme)
        assert page.evaluate(OUTSIDE, width) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
        page.click("#access-rows tr:last-child button")
        page.wait_for_selector("#revoke-dialog[open]")
        assert page.evaluate(OUTSIDE, width) == []
        page.keyboard.press("Escape")
