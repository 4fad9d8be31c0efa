"""Drivers and incidents stay in New York State, and a seed tells the same story again."""

from __future__ import annotations

from shapely.geometry import Point, Polygon

from tideline.workload.newyork import BOUNDS, CITIES, OUTLINE, ROADS, NewYork, inside

STATE = Polygon(OUTLINE)


def test_the_outline_is_a_polygon_within_the_bounds() -> None:
    assert STATE.is_valid
    west, south, east, north = STATE.bounds
    assert BOUNDS[0] <= west < east <= BOUNDS[2]
    assert BOUNDS[1] <= south < north <= BOUNDS[3]


def test_every_road_lies_inside_the_state() -> None:
    for road in NewYork(drivers=0, seed=1).roads:
        for step in range(201):
            assert STATE.contains(Point(road.at(road.length_m * step / 200))), road.name


def test_every_city_has_a_road() -> None:
    assert {city for _, start, end, _ in ROADS for city in (start, end)} == set(CITIES)


def test_inside_agrees_with_shapely() -> None:
    west, south, east, north = BOUNDS
    for i in range(60):
        for j in range(60):
            place = (
                west + (east - west) * (i + 0.37) / 60,
                south + (north - south) * (j + 0.41) / 60,
            )
            assert inside(place) == STATE.contains(Point(place)), place


def test_drivers_move_at_their_speed_and_stay_inside() -> None:
    state = NewYork(drivers=50, seed=3, hurry=20.0)
    for driver in state.drivers:
        for now_s in range(0, 2000, 50):
            assert inside(state.move(driver, float(now_s)))
        assert 18.0 <= driver.speed_mps <= 33.0


def test_time_that_stands_still_moves_nobody() -> None:
    state = NewYork(drivers=1, seed=3)
    [driver] = state.drivers
    assert state.move(driver, 10.0) == state.move(driver, 10.0) == state.move(driver, 5.0)


def test_incidents_are_inside_and_live_for_a_while() -> None:
    state = NewYork(drivers=0, seed=5)
    for _ in range(2000):
        incident = state.incident()
        assert inside(incident.place)
        assert 60 <= incident.ttl_s <= 1200
        assert 1 <= incident.body["severity"] <= 5
        assert incident.body["near"] in CITIES


def test_the_same_seed_tells_the_same_story() -> None:
    def story(seed: int) -> list[object]:
        state = NewYork(drivers=5, seed=seed)
        moves = [state.move(driver, 1000.0) for driver in state.drivers]
        return [*moves, *(state.incident() for _ in range(5))]

    assert story(1) == story(1)
    assert story(1) != story(2)
