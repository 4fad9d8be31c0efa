"""What somebody can do on the page, done in a real browser: publish, subscribe, be told.

Every test looks at both ends: what the page shows, and what the store holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.server import running
from tideline.space import Box, Circle, QuadTree
from tideline.workload.newyork import BOUNDS

MIDDLE = (0.55, 0.5)  # of the map, in shares: somewhere in the middle of the state
EVERYWHERE = Box(*BOUNDS)


def test_a_click_publishes_an_event_there_and_whoever_asked_is_told(
    screen: Any, served: Any
) -> None:
    lon, lat = screen.place(*MIDDLE)
    asked = served.roads.subscribe(Circle((lon, lat), radius_m=5000), user="ann")
    screen.tool("publish")
    screen.page.fill("#kind", "flooding")
    screen.page.fill("#ttl", "2")
    screen.page.fill("#body", '{"severity": 4}')
    screen.click(*MIDDLE)
    screen.wait_for_text("#published", "1 told")
    (event,) = asked.take()
    assert event.body == {"kind": "flooding", "severity": 4}
    assert event.place == pytest.approx((lon, lat), abs=0.002)
    assert event.until_us - event.at_us == 120 * 1_000_000


def test_a_drawn_circle_gets_its_past_at_once_and_the_rest_live(screen: Any, served: Any) -> None:
    roads = served.roads
    lon, lat = screen.place(*MIDDLE)
    east, _ = screen.place(MIDDLE[0] + 0.2, MIDDLE[1])
    roads.publish((lon, lat), {"kind": "fire", "severity": 5}, id="before", ttl_s=600)
    roads.publish((lon + 0.01, lat), {"kind": "fire", "severity": 1}, id="mild", ttl_s=600)
    roads.publish((east, lat), {"kind": "fire", "severity": 5}, id="far", ttl_s=600)
    screen.tool("subscribe")
    screen.page.fill("#back", "15")
    screen.page.fill("#ahead", "7")
    screen.page.fill("#where", '{"severity": {"$gte": 3}}')
    screen.draw(*MIDDLE, pixels=60)
    assert screen.wait_for_answers(1) == [("past", "before")]

    (stored,) = roads.subscriptions()
    assert stored.where == {"severity": {"$gte": 3}}
    assert stored.place.center == pytest.approx((lon, lat), abs=0.002)
    assert stored.until_us - stored.since_us == pytest.approx(22 * 60 * 1_000_000, abs=1)
    radius_km = float(screen.page.input_value("#radius"))
    assert stored.place.radius_m == pytest.approx(radius_km * 1000, abs=60)

    roads.publish((east, lat), {"kind": "debris", "severity": 5}, id="far too", ttl_s=600)
    roads.publish((lon, lat + 0.01), {"kind": "debris", "severity": 2}, id="milder", ttl_s=600)
    roads.publish((lon, lat), {"kind": "debris", "severity": 3}, id="after", ttl_s=600)
    assert screen.wait_for_answers(2) == [("past", "before"), ("live", "after")]
    assert "debris, severity 3" in screen.page.inner_text("#answers li >> nth=0")
    screen.wait_for_text("#spoken", "debris, severity 3")  # a screen reader hears it


def test_what_was_missed_while_the_plug_was_out_comes_when_it_is_in_again(
    screen: Any, served: Any
) -> None:
    roads = served.roads
    lon, lat = screen.place(*MIDDLE)
    screen.tool("subscribe")
    screen.draw(*MIDDLE, pixels=80)
    screen.page.wait_for_selector(".card")
    roads.publish((lon, lat), {"n": 0}, id="e0", ttl_s=600)
    assert screen.wait_for_answers(1) == [("live", "e0")]

    screen.page.click("#plug")
    screen.wait_for_text(".card", "not connected")
    for n in range(1, 6):
        roads.publish((lon, lat), {"n": n}, id=f"e{n}", ttl_s=600)
    # The map goes on: its feed is another connection. The answers wait.
    screen.wait_for_text("#live-events", "6")
    assert screen.answers() == [("live", "e0")]
    assert screen.page.inner_text("#plug") == "Plug in again"

    screen.page.click("#plug")
    missed = [("missed", f"e{n}") for n in range(1, 6)]
    assert screen.wait_for_answers(6) == [("live", "e0"), *missed]
    roads.publish((lon, lat), {"n": 6}, id="e6", ttl_s=600)
    assert screen.wait_for_answers(7) == [("live", "e0"), *missed, ("live", "e6")]
    screen.wait_for_text(".card", "5 missed and caught up")
    # All of it can be read: nothing is cut off at the card's edge, where that is narrow too.
    screen.page.set_viewport_size({"width": 1000, "height": 800})
    assert screen.page.evaluate(
        "[...document.querySelectorAll('.card .fine')].every((p) => p.scrollWidth <= p.clientWidth)"
    )


def test_pulling_the_plug_while_events_keep_coming_loses_none_and_doubles_none(
    screen: Any, served: Any
) -> None:
    roads = served.roads
    lon, lat = screen.place(*MIDDLE)
    screen.tool("subscribe")
    screen.draw(*MIDDLE, pixels=80)
    screen.page.wait_for_selector(".card")
    enough = threading.Event()
    published: list[str] = []

    def publish() -> None:
        # The page lists 300 answers; few enough that all of them are there in the end.
        while not enough.is_set() and len(published) < 280:
            published.append(roads.publish((lon, lat), {"n": len(published)}, ttl_s=600).event.id)
            time.sleep(0.01)

    publisher = threading.Thread(target=publish)
    publisher.start()
    cuts = 0
    try:
        while cuts < 4 and len(published) < 200:
            cuts += 1
            screen.wait_for_answers(len(screen.answers()) + 3)
            screen.page.click("#plug")
            screen.wait_for_text("#plug", "Plug in again")
            screen.page.click("#plug")
            screen.page.wait_for_selector(".card[data-state=open]")
    finally:
        enough.set()
        publisher.join()
    shown = [event for _, event in screen.wait_for_answers(len(published))]
    assert shown == published
    assert cuts > 1


def test_a_wrong_condition_is_said_at_its_field_and_nothing_is_stored(
    screen: Any, served: Any
) -> None:
    page = screen.page
    screen.tool("subscribe")
    page.fill("#where", '{"severity": {"$nope": 3}}')
    screen.draw(*MIDDLE, pixels=60)
    screen.wait_for_text("#where-error", "$nope")
    assert page.get_attribute("#where", "aria-invalid") == "true"
    # The button below the error is still all there, and it is what a click on its edge hits.
    assert page.evaluate(
        """() => { const button = document.querySelector('#tool-subscribe button.main');
          const box = button.getBoundingClientRect();
          return [box.top + 2, box.bottom - 2].every((y) =>
            document.elementFromPoint(box.left + 9, y) === button); }"""
    )
    page.fill("#where", '{"severity": ')
    screen.draw(*MIDDLE, pixels=60)
    screen.wait_for_text("#where-error", "not JSON")
    assert served.roads.subscriptions() == []

    page.fill("#where", '{"severity": 3}')
    assert page.get_attribute("#where", "aria-invalid") is None
    screen.draw(*MIDDLE, pixels=60)
    page.wait_for_selector(".card")
    assert [found.where for found in served.roads.subscriptions()] == [{"severity": 3}]


def test_a_window_is_prolonged_and_a_subscription_cancelled(screen: Any, served: Any) -> None:
    page, roads = screen.page, served.roads
    screen.tool("subscribe")
    page.fill("#ahead", "2")
    screen.draw(*MIDDLE, pixels=60)
    screen.wait_for_text(".card", "2 min left")
    (before,) = roads.subscriptions()
    page.click(".card >> text=+ 10 min")
    screen.wait_for_text(".card", "10 min left")
    (after,) = roads.subscriptions()
    assert after.id == before.id
    assert after.until_us - before.until_us == pytest.approx(8 * 60e6, abs=30e6)
    page.click(".card >> text=Cancel")
    screen.wait_for_text(".card", "ended: cancelled")
    assert roads.subscriptions() == []
    page.click(".card >> text=Dismiss")
    page.wait_for_selector(".card", state="detached")


def test_looking_lists_what_is_valid_around_a_place(screen: Any, served: Any) -> None:
    lon, lat = screen.place(*MIDDLE)
    served.roads.publish((lon, lat), {"kind": "fire", "near": "here"}, id="near", ttl_s=600)
    served.roads.publish((lon + 1, lat), {"kind": "fire"}, id="far", ttl_s=600)
    screen.tool("look")
    screen.click(*MIDDLE)
    screen.page.wait_for_selector("#found li[data-event=near]")
    assert screen.page.locator("#found li[data-event]").count() == 1
    screen.click(0.3, 0.8)
    screen.wait_for_text("#found", "Nothing is valid within")


def test_the_keyboard_does_all_of_it(screen: Any, served: Any) -> None:
    page = screen.page
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # "To the map"
    assert page.evaluate("document.activeElement.id") == "map"
    assert (
        page.evaluate("getComputedStyle(document.querySelector('#map'), '::after').borderTopWidth")
        == "3px"
    )  # the focus can be seen
    start = page.inner_text("#readout")
    for key in ("ArrowRight", "ArrowRight", "Shift+ArrowUp"):
        page.keyboard.press(key)
    assert page.inner_text("#readout") != start
    page.keyboard.press("s")
    page.keyboard.press("Enter")
    page.wait_for_selector(".card")
    page.keyboard.press("p")
    page.keyboard.press("Enter")
    (how, event), *others = screen.wait_for_answers(1)
    assert (how, others) == ("live", [])
    (stored,) = served.roads.subscriptions()
    (found,) = served.roads.find(EVERYWHERE)
    assert found.id == event
    assert found.place == pytest.approx(stored.place.center, abs=1e-6)


def test_a_server_that_goes_and_comes_back_is_noticed_and_nothing_is_missed(
    screen: Any, served: Any
) -> None:
    screen.expected = ["ERR_CONNECTION_REFUSED", "WebSocket connection"]
    page, roads = screen.page, served.roads
    lon, lat = screen.place(*MIDDLE)
    screen.tool("subscribe")
    screen.draw(*MIDDLE, pixels=60)
    page.wait_for_selector(".card")
    served.stop()
    page.wait_for_selector("#banner:not([hidden])")
    assert "does not answer" in page.inner_text("#banner")
    roads.publish((lon, lat), {"n": 1}, id="while away", ttl_s=600)
    served.start()
    page.evaluate("document.getElementById('banner-retry').click()")  # it may be back by itself
    page.wait_for_selector("#status[data-state=open]")
    page.wait_for_selector("#banner", state="hidden")
    assert screen.wait_for_answers(1) == [("missed", "while away")]
    roads.publish((lon, lat), {"n": 2}, id="again", ttl_s=600)
    assert screen.wait_for_answers(2)[-1] == ("live", "again")


def test_a_token_is_asked_for_when_the_server_wants_one(
    open_screen: Callable[..., Any], served: Any
) -> None:
    from tideline.server.tokens import Tokens

    secret, _ = Tokens(served.db.path).create(["admin"])
    served.stop()
    served.start()  # it has tokens now
    screen = open_screen(None)
    screen.expected = ["401"]
    page = screen.page
    page.goto(served.url)
    page.fill("#token", "tl_wrong")
    page.click("#token-form >> text=Use it")
    screen.wait_for_text("#token-error", "not known")
    page.fill("#token", secret)
    page.click("#token-form >> text=Use it")
    page.wait_for_selector("#status[data-state=open]")
    screen.tool("subscribe")
    screen.draw(*MIDDLE, pixels=60)
    page.wait_for_selector(".card")
    assert len(served.roads.subscriptions()) == 1
    assert "token" not in "".join(screen.requests)


def test_a_server_without_a_map_offers_to_make_one(
    open_screen: Callable[..., Any], served: Any
) -> None:
    served.db.drop_channel("roads")
    screen = open_screen(None)
    screen.page.goto(served.url)
    screen.page.click("#empty >> text=Make the channel")
    screen.page.wait_for_selector("#status[data-state=open]")
    assert served.db.channels() == ["roads"]


def test_answers_of_a_channel_without_a_journal_are_counted(
    open_screen: Callable[..., Any], served: Any
) -> None:
    space = QuadTree(bounds=BOUNDS, depth=9)
    quiet = served.db.channel("quiet", space=space)
    screen = open_screen("/?channel=quiet")
    quiet.subscribe(Circle((-75.0, 43.0), radius_m=10_000), user="ann", until_s=600)
    for _ in range(3):
        quiet.publish((-75.0, 43.0), {"kind": "fire"}, ttl_s=600)
    screen.wait_for_text("#live-events", "3")
    screen.wait_for_text("#total-answers", "3")


def test_a_server_with_a_status_shows_it(browser: Any, tmp_path: Path) -> None:
    said = ["Spark: starting…"]
    space = QuadTree(bounds=BOUNDS, depth=9)
    with (
        tideline.open(tmp_path / "status") as db,
        running(db, status=lambda: said[0]) as url,
        browser.new_context() as context,
    ):
        db.channel("roads", space=space, journal_s=60)
        page = context.new_page()
        page.goto(url)
        page.wait_for_function(
            "() => document.querySelector('#said').textContent.includes('start')"
        )
        said[0] = "Spark: off <b>"
        page.wait_for_function("() => document.querySelector('#said').textContent.endsWith('<b>')")
        assert page.is_visible("#said")


def test_a_channel_that_is_dropped_and_made_again_is_followed_again(
    screen: Any, served: Any
) -> None:
    screen.expected += ["WebSocket connection", "404"]  # while there is none
    served.db.drop_channel("roads")
    screen.page.wait_for_selector("#status:not([data-state=open])")
    made = served.db.channel("roads", space=QuadTree(bounds=BOUNDS, depth=9), journal_s=60)
    screen.page.wait_for_selector("#status[data-state=open]")
    made.publish((-75.0, 43.0), {"kind": "fire"}, ttl_s=600)
    screen.wait_for_text("#live-events", "1")
