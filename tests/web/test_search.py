"""The search box of the map: places roughly by name in the visible part, kept up to date.

Every test looks at both ends: what the page shows, and what the collection has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from javascript import wait_for

ALBANY, BUFFALO = [-73.77, 42.65], [-78.87, 42.89]
PLACES = [
    {"id": 1, "name": "Sushi Restaurant Hudson", "kind": "restaurant", "at": ALBANY},
    {"id": 2, "name": "Harbor Restaurant", "town": "Buffalo", "at": BUFFALO},
    {"id": 3, "name": "Harbor Bakery", "at": {"type": "Point", "coordinates": BUFFALO}},
    {"id": 4, "name": "Restaurant far away", "at": [10, 50]},
    {"id": 5, "name": "<b>Bold</b> Hotel", "at": ALBANY},
]
SHOWN = "[...document.querySelectorAll('#search-list .name')].map((node) => node.textContent)"


class Search:
    """The box, and the collection that it searches."""

    def __init__(self, screen: Any, places: Any) -> None:
        self.screen, self.page, self.places = screen, screen.page, places

    def type(self, text: str) -> None:
        self.page.fill("#search-text", text)

    def wait_for(self, *names: str) -> None:
        self.page.wait_for_function(
            f"(names) => JSON.stringify({SHOWN}) === JSON.stringify(names)", arg=list(names)
        )


@pytest.fixture
def opened(open_screen: Callable[..., Any], served: Any) -> Callable[..., Search]:
    """`opened(**options of a browser context)`: the page, with places."""
    places = served.db.collection("places", key="id")
    places.put_many(PLACES)

    def factory(path: str = "/", **options: Any) -> Search:
        search = Search(open_screen(path, **options), places)
        search.page.wait_for_selector("#search:not([hidden])")
        return search

    return factory


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("resturant", ["Harbor Restaurant", "Sushi Restaurant Hudson"]),
        ("sutishi restaraunt", ["Sushi Restaurant Hudson"]),
        ("harb", ["Harbor Bakery", "Harbor Restaurant"]),
        ("BAKREY", ["Harbor Bakery"]),
        ("b", ["<b>Bold</b> Hotel", "Harbor Bakery", "Harbor Restaurant"]),
        ('"$where": {', []),
    ],
)
def test_words_may_be_wrong_or_not_finished(
    opened: Callable[..., Search], typed: str, names: list[str]
) -> None:
    search = opened()
    search.type("harbor")
    search.wait_for("Harbor Bakery", "Harbor Restaurant")
    search.type(typed)
    search.wait_for(*names)
    said = "No place of this name" if not names else f"{len(names)} place"
    search.screen.wait_for_text("#search-said", said)


def test_the_result_stays_answered(opened: Callable[..., Search]) -> None:
    search = opened()
    search.type("harbor")
    search.wait_for("Harbor Bakery", "Harbor Restaurant")
    search.places.put({"id": 9, "name": "Harbour Hotel", "at": ALBANY})
    search.wait_for("Harbor Bakery", "Harbor Restaurant", "Harbour Hotel")
    assert search.page.evaluate("document.querySelectorAll('#search-list .new').length") == 1
    search.places.update(2, {"$set": {"name": "Closed"}})
    search.places.delete(3)
    search.wait_for("Harbour Hotel")
    search.places.update(9, {"$set": {"at": [10, 50]}})
    search.screen.wait_for_text("#search-said", "No place of this name")


def test_the_part_of_the_map_that_is_seen_is_searched(opened: Callable[..., Search]) -> None:
    search = opened()
    search.type("restaurant")
    search.wait_for("Harbor Restaurant", "Sushi Restaurant Hudson")
    search.page.press("#search-text", "ArrowUp")  # the last one
    assert search.page.get_attribute("#search-text", "aria-activedescendant") == "search-1"
    search.page.press("#search-text", "Enter")  # it comes into the middle, and the map is closer
    search.wait_for("Sushi Restaurant Hudson")
    assert not search.page.is_visible("#search-found")
    lon, lat = search.screen.place(0.5, 0.5)
    assert (lon, lat) == pytest.approx(ALBANY, abs=0.01)
    search.page.click("#zoom-fit")
    search.wait_for("Harbor Restaurant", "Sushi Restaurant Hudson")


def test_the_keyboard_is_enough(opened: Callable[..., Search]) -> None:
    search = opened()
    page = search.page
    page.focus("#map")
    page.keyboard.press("/")
    page.keyboard.type("harbor")
    search.wait_for("Harbor Bakery", "Harbor Restaurant")
    assert page.get_attribute("#search-text", "aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#search-list [aria-selected=true] .name") == "Harbor Restaurant"
    page.keyboard.press("Escape")
    search.wait_for()
    assert page.input_value("#search-text") == ""
    page.wait_for_selector("#search-clear", state="hidden")


def test_one_query_stands_at_a_time_and_none_without_words(
    opened: Callable[..., Search],
) -> None:
    search = opened()
    for text in ("harbor", "bakery", "hotel"):
        search.type(text)
        search.page.wait_for_selector("#search-list li")
    search.wait_for("<b>Bold</b> Hotel")
    search.page.click("#search-clear")
    search.wait_for()
    wait_for(lambda: search.places.stats().standing_queries == 0)


def test_without_a_collection_there_is_no_box_until_there_is(
    open_screen: Callable[..., Any], served: Any
) -> None:
    page = open_screen("/?places=sights").page
    assert not page.is_visible("#search")
    served.db.collection("sights", key="id")
    page.wait_for_selector("#search:not([hidden])")


@pytest.mark.parametrize("width", [320, 768])
def test_a_narrow_screen_has_all_of_it(opened: Callable[..., Search], width: int) -> None:
    search = opened(viewport={"width": width, "height": 640}, has_touch=True, is_mobile=True)
    search.type("restaurant")
    search.wait_for("Harbor Restaurant", "Sushi Restaurant Hudson")
    outside = search.page.evaluate(
        """(width) => [...document.querySelectorAll('#search, #search *, .zoom button')]
          .filter((node) => node.offsetParent)
          .filter((node) => { const box = node.getBoundingClientRect();
            const map = document.querySelector('.map').getBoundingClientRect();
            return box.left < 0 || box.right > width + 0.5 || box.bottom > map.bottom; })
          .map((node) => node.outerHTML)""",
        width,
    )
    assert outside == []
    assert search.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_are_readable(opened: Callable[..., Search], scheme: str) -> None:
    from test_looks import CONTRAST

    search = opened(color_scheme=scheme)
    search.type("restaurant")
    search.wait_for("Harbor Restaurant", "Sushi Restaurant Hudson")
    search.page.press("#search-text", "ArrowDown")
    assert search.page.evaluate(CONTRAST) == []
