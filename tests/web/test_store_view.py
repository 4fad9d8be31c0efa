"""The view of the store, in a real browser: what it says is what the server and the files say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_looks import CONTRAST
from test_windows_page import OUTSIDE

HOSTILE = '<img src=x onerror="alert(1)">'


@pytest.fixture
def orders(served: Any) -> Any:
    """A collection with an index, three components each, and a row in memory."""
    made = served.db.collection("orders", key="id", indexes={"shop": "composite"})
    for part in range(3):
        made.put_many([{"id": part * 100 + n, "shop": HOSTILE} for n in range(100)])
        made._engine.seal()
    made._engine.drain()
    made.put({"id": 999, "shop": "x"})
    return made


def wait_for_row(page: Any, name: str, *texts: str) -> None:
    """Wait until the row of a name has these texts."""
    page.wait_for_function(
        "([name, texts]) => [...document.querySelectorAll('#store-rows tr')].some((row) =>"
        " row.querySelector('button').textContent === name"
        " && texts.every((text) => row.textContent.includes(text)))",
        arg=[name, list(texts)],
    )


def test_the_store_is_shown_from_inside_and_stays_up_to_date(
    open_screen: Callable[..., Any], served: Any, orders: Any
) -> None:
    screen = open_screen("/#store")
    page = screen.page
    stats = orders.stats()
    wait_for_row(page, "orders", "collection", f"{stats.components}", "3 / ")
    wait_for_row(page, "roads", "channel")
    page.click("#store-rows button:text('orders')")
    screen.wait_for_text("#store-inside-title", "orders")
    screen.wait_for_text("#store-inside-facts", "collection by id, 1 index")
    files = list((served.db.path / "collections").glob("*/c-*.arrow"))
    page.wait_for_function(
        "(n) => document.querySelectorAll('[data-box=component]').length === n", arg=len(files)
    )
    said = page.locator("[data-box=component]").evaluate_all("(all) => all.map((e) => e.ariaLabel)")
    assert {text.partition(":")[0] for text in said} == {file.name for file in files}
    assert page.locator("[data-box=memory]").count() == 1
    screen.wait_for_text("#store-deeds", "of orders")
    assert page.inner_text("#store-requests") != "–"
    # A seal while somebody looks: a new line, and new boxes.
    orders._engine.seal()
    orders._engine.drain()
    wait_for_row(page, "orders", "4 / ")
    # By keyboard: the boxes of a level are a list, and each is told.
    page.focus("[id^=level-0-]")
    page.keyboard.press("Home")
    screen.wait_for_text("#store-component", ".arrow: level 0, ")
    chosen = page.get_attribute("[id^=level-0-]", "aria-activedescendant")
    assert page.get_attribute(f"#{chosen}", "aria-selected") == "true"
    # Channels and windows, too; and what is dropped goes.
    served.roads.publish((-73.9, 40.7), {"n": 1}, ttl_s=600)
    page.click("#store-rows button:text('roads')")
    screen.wait_for_text("#store-inside-facts", "1 valid events, 0 open subscriptions")
    served.db.window("cars", span_s=300, key="k").append([{"k": 1}, {"k": 2}])
    page.click("#store-rows button:text('cars')")
    screen.wait_for_text("#store-inside-facts", "2 rows in 1 sub-windows")
    served.db.drop_window("cars")
    page.wait_for_function("() => document.querySelectorAll('#store-rows tr').length === 2")
    screen.wait_for_text("#store-inside-title", "")
    screen.expected = ["status of 404"]  # asked for while it was dropped


def test_who_may_not_read_is_told_so_and_nobody_looks_in_vain(
    open_screen: Callable[..., Any], served: Any, orders: Any
) -> None:
    from tideline.server.tokens import Tokens

    tokens = Tokens(served.db.path)
    tokens.create(["admin"])
    text, _ = tokens.create(["read:roads"])
    screen = open_screen(None)
    page = screen.page
    screen.expected = ["status of 401", "status of 403"]
    page.goto(served.url + "/#store")
    page.wait_for_selector("#token-dialog[open]")
    page.fill("#token", text)
    page.click("#token-form .main")
    wait_for_row(page, "roads", "channel")
    assert page.locator("#store-rows tr").count() == 1
    assert page.inner_text("#store-process") == "needs the scope read"
    # In front of another view, and in a page that nobody sees, it asks for nothing.
    page.click("#tab-windows")
    page.wait_for_selector("#view-store", state="hidden")
    asked = len([url for url in screen.requests if url.endswith("/v1/store")])
    with page.expect_response("**/v1/windows"):
        pass
    with page.expect_response("**/v1/windows"):
        pass
    assert len([url for url in screen.requests if url.endswith("/v1/store")]) == asked


def test_nothing_is_clipped_and_everything_can_be_read(
    open_screen: Callable[..., Any], served: Any, orders: Any
) -> None:
    served.db.collection("a_collection_whose_name_is_as_long_as_a_name_can_reasonably_be", key="id")
    screen = open_screen("/#store", reduced_motion="reduce")
    page = screen.page
    page.click("#store-rows button:text('orders')")
    page.wait_for_selector("[data-box=component]")
    for width, theme in ((320, "light"), (768, "dark"), (1280, "light"), (1920, "dark")):
        page.set_viewport_size({"width": width, "height": 740})
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        assert page.evaluate(OUTSIDE, width) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
