"""The page's own arithmetic against the library's: the same point, the same cell."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tideline.space import Grid, QuadTree
from tideline.workload.newyork import BOUNDS

WEST, SOUTH, EAST, NORTH = BOUNDS
SPACES = [
    QuadTree(bounds=BOUNDS, depth=9),
    QuadTree(bounds=(-180.0, -90.0, 180.0, 90.0), depth=20),
    Grid(bounds=BOUNDS, rows=30, cols=50),
]


@pytest.fixture
def module(open_screen: Callable[..., Any]) -> Callable[..., Any]:
    """`module(script, argument)`: run a function of the page's modules `m` in the browser."""
    screen = open_screen()

    def run(name: str, script: str, argument: Any) -> Any:
        return screen.page.evaluate(
            f"async (given) => {{ const m = await import('/assets/{name}.js');"
            f" return ({script})(m, given); }}",
            argument,
        )

    return run


def test_the_page_and_the_library_name_the_same_cells(module: Callable[..., Any]) -> None:
    pick = random.Random(1)
    for space in SPACES:
        points = [(WEST, SOUTH), (EAST, NORTH), (WEST, NORTH), (-75.8, 42.75)]
        points += [(pick.uniform(WEST, EAST), pick.uniform(SOUTH, NORTH)) for _ in range(300)]
        names = module(
            "cells",
            "(m, [space, points]) => { const cells = new m.Cells(space);"
            " return points.map(([lon, lat]) => [cells.name(lon, lat),"
            " cells.named(cells.name(lon, lat))]); }",
            [space.spec(), points],
        )
        for point, (name, (west, south, east, north)) in zip(points, names, strict=True):
            assert name == space._text(space.encode(point).key)
            assert west - 1e-9 <= point[0] <= east + 1e-9
            assert south - 1e-9 <= point[1] <= north + 1e-9


def test_a_place_on_the_screen_and_back(module: Callable[..., Any]) -> None:
    shown = module(
        "view",
        "(m, bounds) => { const view = new m.View(bounds); view.resize(900, 600);"
        " view.zoom(3, 700, 100); view.pan(-40, 25);"
        " return [[0, 0], [450, 300], [900, 600]].map("
        "([x, y]) => [x, y, view.x(view.lon(x)), view.y(view.lat(y))]); }",
        list(BOUNDS),
    )
    for x, y, x_again, y_again in shown:
        assert (x_again, y_again) == pytest.approx((x, y), abs=1e-6)


def test_numbers_are_short(module: Callable[..., Any]) -> None:
    numbers = [0, 0.042, 0.5, 3.14159, 12.7, 999, 1234, 9994, 12_345, 99_949, 123_456, 999_499]
    large = [1_234_567, 56_700_000, 999_499_999, 1e9, 123_456_789_012]
    texts = module("charts", "(m, given) => given.map(m.short)", [*numbers, *large])
    assert texts == [
        "0", "0.04", "0.5", "3.1", "13", "999", "1,234", "9,994", "12.3 k", "99.9 k", "123 k",
        "999 k", "1.23 M", "56.7 M", "999 M", "1.00 G", "123 G",
    ]  # fmt: skip


@pytest.mark.parametrize(("told_at", "frame_at"), [(0.5, 1.76e9), (1.76e9, 1.76e9 + 20)])
def test_a_dot_is_drawn_however_late_the_next_frame_comes(
    module: Callable[..., Any], told_at: float, frame_at: float
) -> None:
    """Told before the server's time was known, or on a machine too busy to draw: it still shows."""
    steps = module(
        "drivers",
        "(m, [then, now]) => { const drivers = new m.Drivers();"
        " const tell = (id, lon, at) => drivers.tell("
        "{ id, user: 'ann', unseen: true }, { lon, lat: 42, metres: 100 }, Infinity, at);"
        " tell('s1', -75, then); const first = [drivers.busy(now), drivers.busy(now)];"
        " tell('s2', -74.9, now); const moved = [drivers.busy(now + 20), drivers.busy(now + 20)];"
        " drivers.answer('s2', now + 20, false); const lit = [drivers.busy(now + 30)];"
        " drivers.end('s2', now + 40); drivers.sweep(now + 40);"
        " return [...first, ...moved, ...lit, drivers.busy(now + 50), drivers.busy(now + 50)]; }",
        [told_at, frame_at],
    )
    assert steps == [True, False, True, False, True, True, False]
