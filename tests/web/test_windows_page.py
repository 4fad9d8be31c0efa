"""The view of windows, in a real browser: a live expressway, stream windows, or how to get one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_looks import CONTRAST

OUTSIDE = """(width) => [...document.querySelectorAll('body *')]
  .filter((node) => { // what only screen readers get may lie anywhere
    for (let each = node; each; each = each.parentElement) {
      if (getComputedStyle(each).clipPath !== 'none') return false; }
    return node.offsetParent && !node.matches('.skip'); })
  .filter((node) => { const box = node.getBoundingClientRect();
    const style = getComputedStyle(node);
    const clipped = node.scrollWidth > node.clientWidth + 1 && style.overflow === 'hidden'
      && node.textContent.trim() && !node.matches('.motto, .status span');
    return box.width > 0 && (box.left < -0.5 || box.right > width + 0.5 || clipped); })
  .map((node) => node.id || node.textContent)"""


def segment(d: int, s: int, **facts: Any) -> dict[str, Any]:
    made = {"id": f"0-{d}-{s}", "x": 0, "d": d, "s": s, "speed": 55.4, "cars": 20, "toll": 0,
            "accident": False, "minute": 17}  # fmt: skip
    return {**made, **facts}


NOW = {"id": "now", "minute": 18, "second": 1024, "cars": 8123, "reports": 1_034_321, "tolls": 12,
       "accidents": 1, "worst_ms": 81.6, "L": 1}  # fmt: skip


@pytest.fixture
def road(served: Any) -> tuple[Any, Any]:
    """The collections that the page shows an expressway from."""
    segments = served.db.collection("segments", key="id")
    segments.put_many([segment(d, s) for d in range(2) for s in range(100)])
    segments.put(segment(1, 41, speed=9.5, cars=96, toll=4232, accident=True))
    segments.put(segment(0, 7, speed=None, cars=0))
    now = served.db.collection("road", key="id")
    now.put(NOW)
    return segments, now


def wait_for_label(page: Any, place: str, label: str) -> None:
    page.wait_for_function(
        "([place, label]) => document.querySelector(`#segment-${place}`)"
        "?.getAttribute('aria-label') === label", arg=[place, label],
    )  # fmt: skip


def test_an_expressway_is_shown_and_stays_up_to_date(
    open_screen: Callable[..., Any], road: tuple[Any, Any]
) -> None:
    segments, now = road
    screen = open_screen("/#windows")
    page = screen.page
    wait_for_label(page, "1-41", "Segment 41 westbound: 96 cars at 10 mph, toll 4232, accident")
    wait_for_label(page, "0-7", "Segment 7 eastbound: 0 cars, no toll, no accident")
    screen.wait_for_text("#road-time", "17:04")
    assert page.inner_text("#road-cars") == "8,123"
    assert page.inner_text("#road-worst") == "82"
    assert "Westbound 41" in page.inner_text("#road-accident-list")
    assert page.locator("#road-toll-list li").all_inner_texts()[0].split("\n")[-1] == "4232"
    page.wait_for_function(  # bars grow to their height
        """() => { const [slow, fast] = ["1-41", "1-40"].map((at) =>
             document.querySelector(`#segment-${at} i`).getBoundingClientRect().height);
           return slow > 4 * fast; }"""
    )
    assert page.inner_text("#road-full") == "100"
    segments.put(segment(1, 3, cars=640))  # more than fill a bar: all are drawn anew
    screen.wait_for_text("#road-full", "1000")
    segments.put(segment(1, 41, cars=1))
    segments.put(segment(0, 99, accident=True))
    now.put({**NOW, "minute": 19, "second": 1080})
    wait_for_label(page, "1-41", "Segment 41 westbound: 1 car at 55 mph, no toll, no accident")
    page.wait_for_selector("#segment-0-99[data-accident]")
    screen.wait_for_text("#road-time", "18:00")
    screen.wait_for_text("#road-toll-list", "No toll is asked now")
    assert page.locator("#road-accident-list li").count() == 1
    page.click("#tab-map")  # let go of, and taken up again
    segments.put(segment(0, 99))
    page.click("#tab-windows")
    wait_for_label(page, "0-99", "Segment 99 eastbound: 20 cars at 55 mph, no toll, no accident")


def test_segments_are_walked_by_keyboard_and_told(
    open_screen: Callable[..., Any], road: tuple[Any, Any]
) -> None:
    segments, now = road
    now.put({**NOW, "L": 2})
    segments.put({**segment(1, 9, cars=3), "id": "1-1-9", "x": 1})
    screen = open_screen("/#windows")
    page = screen.page
    page.wait_for_selector("#segment-1-41[data-accident]")
    page.focus("#lane-1")
    for key, at in [("End", 99), ("ArrowLeft", 98), ("PageUp", 88), ("Home", 0), ("ArrowLeft", 0),
                    ("ArrowRight", 1), ("PageDown", 11)]:  # fmt: skip
        page.keyboard.press(key)
        chosen = page.get_attribute("#lane-1", "aria-activedescendant")
        assert chosen == f"segment-1-{at}"
        assert page.get_attribute(f"#{chosen}", "aria-selected") == "true"
        screen.wait_for_text("#segment-said", f"Segment {at} westbound: ")
    assert page.locator("[role=option][aria-selected=true]").count() == 1
    page.hover("#segment-1-41")
    screen.wait_for_text("#segment-said", "toll 4232, accident.")
    page.select_option("#expressway", "1")
    wait_for_label(page, "1-9", "Segment 9 westbound: 3 cars at 55 mph, no toll, no accident")
    wait_for_label(page, "1-41", "Segment 41 westbound: 0 cars, no toll, no accident")


def test_stream_windows_are_listed_and_asked(open_screen: Callable[..., Any], served: Any) -> None:
    screen = open_screen("/#windows")
    page = screen.page
    screen.wait_for_text("#windows-text", "no stream windows yet: tideline window create")
    assert "--span-s" in page.locator("#windows-text code span").all_inner_texts()
    cars = served.db.window("cars", span_s=300, slide_s=60, key=("x", "vid"),
                            values={"vel": "int32"})  # fmt: skip
    cars.append([{"x": 0, "vid": n, "vel": 50 + n} for n in range(11)])
    page.wait_for_selector("#windows-rows tr")
    shown = page.locator("#windows-rows tr").first.inner_text().split()
    assert shown[:10] == ["cars", "5", "min", "by", "60", "s", "x,", "vid", "11", "1"]
    page.click("#range button")
    screen.wait_for_text("#range-result", "mean(vel): 55")
    for keys, mapper, said in [("[0", "", "not JSON"), ("[0]", "men(vel)", "did you mean 'mean'"),
                               ('["a"]', "", "must be a whole number")]:  # fmt: skip
        page.fill("#range-keys", keys)
        page.fill("#range-map", mapper)
        page.press("#range-map", "Enter")
        screen.wait_for_text("#range-error", said)
        assert page.inner_text("#range-result") == ""
    page.fill("#range-keys", "[[0, 3], [0, 5]]")
    page.fill("#range-map", "sum(vel)")
    page.fill("#range-last", "60")
    page.click("#range button")
    screen.wait_for_text("#range-result", "sum(vel): 107")
    cars.append({"x": 0, "vid": 99, "vel": 1})
    page.wait_for_function(
        "() => document.querySelector('#windows-rows td:nth-of-type(3)').textContent === '12'"
    )
    served.db.collection("segments", key="id").put(segment(0, 3, accident=True))
    served.db.collection("road", key="id").put(NOW)
    page.wait_for_selector("#segment-0-3[data-accident]")  # an expressway has come
    assert page.is_hidden("#windows-list")
    screen.expected = ["status of 400"]  # what was asked wrongly on purpose


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_nothing_is_clipped_and_everything_can_be_read(
    open_screen: Callable[..., Any], served: Any, road: tuple[Any, Any], width: int
) -> None:
    for theme in ("light", "dark"):
        screen = open_screen("/#windows", viewport={"width": width, "height": 740},
                             color_scheme=theme, reduced_motion="reduce")  # fmt: skip
        page = screen.page
        page.wait_for_selector("#segment-1-41[data-accident]")
        assert page.evaluate(OUTSIDE, width) == []
        assert page.evaluate(CONTRAST) == []
    served.db.drop_collection("road")
    served.db.window("cars_of_all_expressways", span_s=300, slide_s=60, key=("x", "vid")).append(
        {"x": 0, "vid": 1}
    )
    screen.open("/#windows")
    page.reload()
    page.wait_for_selector("#windows-rows tr")
    assert page.evaluate(OUTSIDE, width) == []
    assert page.evaluate(CONTRAST) == []
