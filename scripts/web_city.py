"""Writes src/tideline/web/city.json: Manhattan close by, for the page's map.

    python scripts/web_city.py SHAPEFILE    writes the file
    python scripts/web_city.py --check      ends with 1 when its streets are not the workload's

Streets are those of tideline.workload.manhattan, on which the demo's couriers go. The shore is that
of the boroughs of New York City (Department of City Planning, open data), from the file nybb.shp in
the wheel of geopandas 0.14.4, simplified to about thirty metres. That file is in New York's own
plane (EPSG:2263, US feet); the formulas back to degrees are at the end.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tideline.workload.manhattan import AVENUES, BROADWAY, PARK, STREETS, corner

FILE = Path(__file__).resolve().parents[1] / "src" / "tideline" / "web" / "city.json"
BOX = (-74.06, 40.66, -73.82, 40.90)
SIMPLER = 3e-4  # degrees
SMALLEST = 1e-5  # square degrees: no smaller island
ABOUT = (
    "Manhattan. shore: boroughs of New York City, open data of its Department of City Planning, "
    "simplified. water: drawn by hand, what lies between it and New Jersey. streets: the grid, "
    "from a plane through three corners, good to about a hundred metres (scripts/web_city.py)."
)
WATER = [
    (-74.060, 40.655), (-74.042, 40.690), (-74.033, 40.714), (-74.028, 40.730), (-74.024, 40.752),
    (-74.013, 40.768), (-74.000, 40.788), (-73.980, 40.815), (-73.968, 40.835), (-73.957, 40.852),
    (-73.945, 40.875), (-73.925, 40.905), (-73.908, 40.905), (-73.900, 40.870), (-73.905, 40.830),
    (-73.880, 40.810), (-73.850, 40.800), (-73.820, 40.800), (-73.825, 40.790), (-73.890, 40.760),
    (-73.930, 40.765), (-73.945, 40.740), (-73.950, 40.715), (-73.970, 40.695), (-73.985, 40.680),
    (-74.000, 40.655),
]  # fmt: skip


def streets(island: Any) -> dict[str, list[list[list[float]]]]:
    """The lines of streets and avenues on the island, and around the park."""
    from shapely.geometry import LineString, Polygon

    low, high, east, west = PARK
    park = Polygon([corner(east, low), corner(west, low), corner(west, high), corner(east, high)])
    inner = park.buffer(-1e-4)

    def cut(points: list[tuple[float, float]]) -> list[list[list[float]]]:
        found = LineString(points).intersection(island).difference(inner)
        parts = getattr(found, "geoms", [found])
        return [_round(part.coords) for part in parts if part.length > 1e-3]

    ends = max(AVENUES.values()) + 800, min(AVENUES.values()) - 800
    minor, major = [], []
    for street in STREETS:
        wide = street in (14, 23, 34, 42, 57, 72, 79, 86, 96, 106, 110, 116, 125, 135, 145, 155)
        (major if wide else minor).extend(cut([corner(end, street) for end in ends]))
    for metres in AVENUES.values():
        major.extend(cut([corner(metres, STREETS[0]), corner(metres, STREETS[-1])]))
    broadway = cut([corner(metres, street) for street, metres in BROADWAY])
    return {"minor": minor, "major": [*major, *broadway], "park": [_round(park.exterior.coords)]}


def _round(points: Any) -> list[list[float]]:
    return [[round(lon, 4), round(lat, 4)] for lon, lat in points]


def text(shore: list[list[list[float]]]) -> str:
    """The file's content."""
    from shapely.geometry import Point, Polygon

    polygons = [Polygon(ring) for ring in shore]
    island = next(each for each in polygons if each.contains(Point(corner("5 Av", 34))))
    document = {"about": ABOUT, "water": [list(point) for point in WATER], "shore": shore,
                **streets(island)}  # fmt: skip
    lines = [
        f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in document.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def shore_of(path: Path) -> list[list[list[float]]]:
    """The rings of the boroughs around Manhattan."""
    from shapely.geometry import Polygon, box
    from shapely.ops import unary_union

    data, rings, at = path.read_bytes(), [], 100
    while at < len(data):
        words = struct.unpack(">ii", data[at : at + 8])[1]
        record = data[at + 8 : at + 8 + 2 * words]
        at += 8 + 2 * words
        parts, points = struct.unpack("<ii", record[36:44])
        begins = [*struct.unpack(f"<{parts}i", record[44 : 44 + 4 * parts]), points]
        numbers = struct.unpack(f"<{2 * points}d", record[44 + 4 * parts :][: 16 * points])
        for first, limit in pairwise(begins):
            rings.append([degrees(*numbers[2 * n : 2 * n + 2]) for n in range(first, limit)])
    land = unary_union([Polygon(ring).buffer(0).buffer(2e-5) for ring in rings])
    land = land.intersection(box(*BOX)).simplify(SIMPLER)
    return [_round(part.exterior.coords[:-1]) for part in land.geoms if part.area > SMALLEST]


_FOOT = 0.3048006096012192
_A, _F = 6378137.0, 1 / 298.257222101
_E = math.sqrt(2 * _F - _F * _F)
_SOUTH, _NORTH, _BASE = (math.radians(d) for d in (40 + 40 / 60, 41 + 2 / 60, 40 + 10 / 60))


def _m(lat: float) -> float:
    return math.cos(lat) / math.sqrt(1 - (_E * math.sin(lat)) ** 2)


def _t(lat: float) -> float:
    squeeze = ((1 - _E * math.sin(lat)) / (1 + _E * math.sin(lat))) ** (_E / 2)
    return math.tan(math.pi / 4 - lat / 2) / squeeze


_N = math.log(_m(_SOUTH) / _m(_NORTH)) / math.log(_t(_SOUTH) / _t(_NORTH))
_SCALE = _A * _m(_SOUTH) / (_N * _t(_SOUTH) ** _N)
_R0 = _SCALE * _t(_BASE) ** _N


def degrees(x_ft: float, y_ft: float) -> tuple[float, float]:
    """Longitude and latitude of a point of EPSG:2263 (Lambert's conformal conic, inverse)."""
    x, y = x_ft * _FOOT - 300_000.0, _R0 - y_ft * _FOOT
    t = (math.hypot(x, y) / _SCALE) ** (1 / _N)
    lat = math.pi / 2 - 2 * math.atan(t)
    for _ in range(6):
        squeeze = ((1 - _E * math.sin(lat)) / (1 + _E * math.sin(lat))) ** (_E / 2)
        lat = math.pi / 2 - 2 * math.atan(t * squeeze)
    return math.degrees(math.atan2(x, y) / _N) - 74, math.degrees(lat)


def main() -> int:
    if sys.argv[1:] != ["--check"]:
        FILE.write_text(text(shore_of(Path(sys.argv[1]))), encoding="utf-8")
        return 0
    found = FILE.read_text(encoding="utf-8")
    if found == text(json.loads(found)["shore"]):
        return 0
    print(f"{FILE.name} is not what the workload says: run scripts/web_city.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
