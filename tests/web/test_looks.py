"""How the page looks: colours, a phone, a layout that stays put, and a map drawn from facts alone.

Pixels are read back from the map's canvases, where the server's events and subscriptions must show.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import shapely

from tideline.space import Circle

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "src" / "tideline" / "web"
LIVE, TOP = 2, 3  # the canvases of the map, as stage.js lists them
PAINTED = """([layer, x, y, reach]) => {
  const canvas = document.querySelectorAll('#map canvas')[layer];
  const box = canvas.getBoundingClientRect();
  const scale = canvas.width / box.width;
  const [left, top, side] = [x - box.x - reach, y - box.y - reach, 2 * reach].map((n) => n * scale);
  const { data } = canvas.getContext('2d').getImageData(left, top, side, side);
  for (let i = 3; i < data.length; i += 4) if (data[i] > 60) return true;
  return false;
}"""

# Controls that lie beside the page.
BESIDE = """(width) => [...document.querySelectorAll('button, input, select, textarea, h2')]
  .filter((node) => node.offsetParent)
  .filter((node) => { const box = node.getBoundingClientRect();
    return box.left < 0 || box.right > width + 0.5; })
  .map((node) => node.id || node.textContent)"""

# Texts with too little contrast to what is behind them.
CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => { const f = (c) => { c /= 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const behind = (node) => { for (; node; node = node.parentElement) {
    const colour = parse(getComputedStyle(node).backgroundColor);
    if (colour.length < 4 || colour[3] > 0.9) return colour; } return [255, 255, 255]; };
  return [...document.querySelectorAll('body *')].filter((node) => node.offsetParent &&
      [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
    .filter((node) => !node.disabled && !node.closest('.skip, .tools'))
    .map((node) => { const a = light(parse(getComputedStyle(node).color));
      const b = light(behind(node));
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.textContent.trim()]; })
    .filter(([contrast]) => contrast < 4.5); }"""


def wait_for_paint(
    screen: Any, layer: int, spot: tuple[float, float], painted: bool = True, reach: int = 3
) -> None:
    """Wait until something (or nothing) is drawn around a spot of the map."""
    screen.expected = ["willReadFrequently"]  # a hint to whoever reads pixels: only tests do
    x, y = screen.spot(*spot)
    expression = PAINTED if painted else f"(args) => !({PAINTED})(args)"
    screen.page.wait_for_function(expression, arg=[layer, x, y, reach])


def test_a_driver_is_drawn_where_it_asked_and_moves_when_it_asks_again(
    screen: Any, served: Any
) -> None:
    here, there = (0.5, 0.4), (0.56, 0.4)
    first, second = screen.place(*here), screen.place(*there)
    ask = {"user": "driver", "until_s": 60, "unseen": True}
    served.roads.subscribe(Circle(first, radius_m=3000), **ask)
    wait_for_paint(screen, LIVE, here)
    served.roads.subscribe(Circle(second, radius_m=3000), **ask)
    wait_for_paint(screen, LIVE, there)
    wait_for_paint(screen, LIVE, here, painted=False)


def test_a_cancelled_subscription_leaves_the_map(screen: Any, served: Any) -> None:
    spot = (0.5, 0.4)
    asked = served.roads.subscribe(Circle(screen.place(*spot), radius_m=3000), user="ann")
    wait_for_paint(screen, LIVE, spot)
    asked.cancel()
    wait_for_paint(screen, LIVE, spot, painted=False)


def test_an_event_is_marked_and_a_line_leads_to_whoever_is_told(screen: Any, served: Any) -> None:
    who, what, between = (0.5, 0.5), (0.62, 0.5), (0.56, 0.5)
    served.roads.subscribe(Circle(screen.place(*who), radius_m=150_000), user="ann", until_s=60)
    wait_for_paint(screen, LIVE, who)
    served.roads.publish(screen.place(*what), {"kind": "fire"}, ttl_s=600)
    wait_for_paint(screen, LIVE, between, reach=2)
    wait_for_paint(screen, TOP, what)


def test_events_from_before_the_page_was_opened_are_on_the_map(screen: Any, served: Any) -> None:
    spot = (0.62, 0.5)
    wait_for_paint(screen, TOP, spot, painted=False)
    served.roads.publish(screen.place(*spot), {"kind": "fire"}, ttl_s=600)
    wait_for_paint(screen, TOP, spot)
    screen.open()
    wait_for_paint(screen, TOP, spot)


def test_subscriptions_from_before_the_page_was_opened_are_on_the_map(
    screen: Any, served: Any
) -> None:
    spot = (0.5, 0.4)
    asked = served.roads.subscribe(Circle(screen.place(*spot), radius_m=3000), user="ann")
    wait_for_paint(screen, LIVE, spot)
    screen.open()
    wait_for_paint(screen, LIVE, spot)
    asked.cancel()
    wait_for_paint(screen, LIVE, spot, painted=False)


def test_dark_and_light_follow_the_system_until_the_switch_is_used(
    open_screen: Callable[..., Any],
) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    sea = "document.querySelector('#map canvas').getContext('2d').getImageData(5, 5, 1, 1).data[0]"
    screen = open_screen(color_scheme="dark")
    screen.expected = ["willReadFrequently"]
    page = screen.page
    dark = page.evaluate(ground)
    assert page.evaluate(sea) < 60
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => {ground} !== '{dark}' && {sea} > 200")
    page.click("#theme")
    assert page.evaluate(ground) == dark
    page.wait_for_function(f"() => {sea} < 60")
    screen.open()
    assert page.evaluate(ground) == dark


@pytest.mark.parametrize("width", [320, 390, 768])
def test_a_link_to_the_map_leaves_the_header_where_it_is(
    open_screen: Callable[..., Any], width: int
) -> None:
    page = open_screen("/#map", viewport={"width": width, "height": 640}).page
    assert page.evaluate("document.querySelector('.bar').getBoundingClientRect().top") == 0
    assert page.is_visible("#view-map")


@pytest.mark.parametrize("width", [320, 768, 1024, 1280])
def test_what_the_page_says_is_not_cut(
    open_screen: Callable[..., Any], served: Any, width: int
) -> None:
    served.db.collection("places", key="id").put({"id": 1, "name": "A", "at": [-74.0, 40.7]})
    page = open_screen(viewport={"width": width, "height": 640}).page
    page.wait_for_selector("#search:not([hidden])")
    assert page.evaluate(
        """() => { const node = document.querySelector('#search-text');
          const style = getComputedStyle(node);
          const context = document.createElement('canvas').getContext('2d');
          context.font = style.font;
          return node.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)
            - context.measureText(node.placeholder).width; }"""
    ) >= 0  # fmt: skip
    cut = page.evaluate(
        """() => [...document.querySelectorAll('.motto, .readout, .figures p, .figures h2')]
          .filter((node) => node.scrollWidth > node.clientWidth + 1
            || node.scrollHeight > node.clientHeight + 1).map((node) => node.textContent)"""
    )
    assert cut == []


@pytest.mark.parametrize("width", [320, 768])
def test_a_narrow_screen_needs_no_sideways_scrolling(
    open_screen: Callable[..., Any], served: Any, width: int
) -> None:
    screen = open_screen(viewport={"width": width, "height": 740}, has_touch=True, is_mobile=True)
    page = screen.page
    for tool in ("look", "publish", "subscribe"):
        screen.tool(tool)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(BESIDE, width) == []
    screen.tool("subscribe")
    page.touchscreen.tap(*screen.spot(0.5, 0.5))
    page.wait_for_selector(".card")
    screen.tool("publish")
    page.touchscreen.tap(*screen.spot(0.5, 0.5))
    assert [how for how, _ in screen.wait_for_answers(1)] == ["live"]


def test_nothing_jumps_when_things_happen(screen: Any, served: Any) -> None:
    page = screen.page
    boxes = """['#map', '.figures', '.tools', '.mine', '.bar']
      .map((name) => { const box = document.querySelector(name).getBoundingClientRect();
        return [name, box.x, box.y, box.width]; })"""
    before = page.evaluate(boxes)
    lon, lat = screen.place(0.5, 0.5)
    for tool in ("publish", "subscribe"):
        screen.tool(tool)
        assert page.evaluate(boxes) == before
    page.fill("#where", '{"$nope": 1}')
    screen.draw(0.5, 0.5, pixels=60)
    screen.wait_for_text("#where-error", "$nope")
    assert page.evaluate(boxes) == before
    page.fill("#where", "")
    screen.draw(0.5, 0.5, pixels=60)
    page.wait_for_selector(".card")
    for n in range(20):
        served.roads.publish((lon, lat), {"n": n, "text": "long " * 20}, ttl_s=60)
    screen.wait_for_answers(20)
    page.click("#plug")
    screen.wait_for_text("#plug", "Plug in again")
    assert page.evaluate(boxes) == before


def test_texts_are_readable_in_both_themes(open_screen: Callable[..., Any]) -> None:
    """4.5 to 1 or more between every text and what is behind it, as WCAG AA asks."""
    for scheme in ("light", "dark"):
        screen = open_screen(color_scheme=scheme)
        for tool in ("look", "publish", "subscribe"):
            screen.tool(tool)
            assert screen.page.evaluate(CONTRAST) == []


def test_the_roads_on_the_map_are_those_of_the_workload() -> None:
    script = ROOT / "scripts" / "web_roads.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_outline_holds_the_towns_and_is_sound() -> None:
    land = json.loads((WEB / "land.json").read_text(encoding="utf-8"))
    roads = json.loads((WEB / "roads.json").read_text(encoding="utf-8"))
    rings = [shapely.Polygon(ring) for ring in land["state"]]
    assert all(ring.is_valid for ring in rings)
    state = shapely.union_all(rings)
    assert [t["name"] for t in roads["towns"] if not state.contains(shapely.Point(t["at"]))] == []
    # The land and its inner waters, in square kilometres, without its parts of the great lakes.
    squeeze = 0.735  # cosine of the middle latitude
    assert state.area * 111.195**2 * squeeze == pytest.approx(127_000, rel=0.03)
