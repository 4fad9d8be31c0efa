"""Writes src/tideline/web/roads.json, the towns and roads on the page's map, from the workload.

    python scripts/web_roads.py            writes the file
    python scripts/web_roads.py --check    ends with 1 when the file is not what it would write

The drivers of `make demo` keep to tideline.workload.newyork's roads, so the map draws those.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tideline.workload.newyork import CITIES, ROADS

FILE = Path(__file__).resolve().parents[1] / "src" / "tideline" / "web" / "roads.json"


def text() -> str:
    """The file's content: a town or a road a line."""
    towns = [
        json.dumps({"name": name, "at": [lon, lat], "weight": weight})
        for name, (lon, lat, weight) in CITIES.items()
    ]
    roads = [
        json.dumps({"name": name, "points": [CITIES[start][:2], *between, CITIES[end][:2]]})
        for name, start, end, between in ROADS
    ]
    lines = (",\n  ".join(towns), ",\n  ".join(roads))
    return '{{\n"towns": [\n  {}\n],\n"roads": [\n  {}\n]\n}}\n'.format(*lines)


def main() -> int:
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text(), encoding="utf-8")
        return 0
    if FILE.read_text(encoding="utf-8") == text():
        return 0
    print(f"{FILE.name} is not what the workload says: run scripts/web_roads.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
