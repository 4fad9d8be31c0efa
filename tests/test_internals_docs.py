"""The pages about the inside say what the code does: bytes, constants, names and links.

    docs/internals/keys.md     every key on the page is encoded again
    docs/internals/log.md      the row on the page is written again
    docs/internals/memory.md   widths of windows and sizes are computed again
    all of them                files and functions they name exist

Links of every page lead somewhere.

Frames, components and manifests have their own tests in tests/lsm/.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tideline.space import (
    CELL,
    CIRCLE,
    POINT,
    TOPICS,
    Circle,
    Flat,
    Place,
    QuadTree,
    Space,
    Topics,
    meets,
)

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "tideline"
PAGES = [
    DOCS / "index.md",
    DOCS / "papers.md",
    DOCS / "reference" / "stored-formats.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((DOCS / "contributing").glob("*.md")),
    *sorted((DOCS / "internals").glob("*.md")),
    *sorted((DOCS / "decisions").glob("*.md")),
]
EVERY_PAGE = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
EVERY_PAGE += sorted(DOCS.rglob("*.md"))
ROADS = QuadTree((-79.8, 40.4, -71.8, 45.1), depth=9)
KINDS = {CELL: "CELL", POINT: "POINT", CIRCLE: "CIRCLE"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(r"`(?:src/tideline/)?([\w/]+\.py)`(?:\s+`([\w.]+)`)?")


def text_of(name: str) -> str:
    return (DOCS / "internals" / name).read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# ---- keys --------------------------------------------------------------------------------


def topic_line(path: str) -> str:
    """A path and its key, with a wider gap after each segment."""
    quoted = f'"{path}"'
    key = Topics().encode(path).key.hex(" ")
    return f"{quoted:17} {re.sub('00 (?=0[12] )', '00  ', key)}\n"


def cell_line(shown: str, place: Place) -> str:
    key = place.key.hex(" ") or "(empty: the root)"
    return f"{shown:40} {key:28} {KINDS[place.kind]:7} {' '.join(map(str, place[2:6]))}\n"


def node_lengths(space: Space, key: bytes) -> list[int]:
    """The prefixes of a key that are places of the tree, by the definition on the page."""
    if space.mode == TOPICS:
        return [at + 1 for at, byte in enumerate(key) if byte == 0]
    return [len(key)] if space == Flat() else list(range(len(key) + 1))


def test_the_keys_of_topics_are_those_on_the_page() -> None:
    paths = ["sports", "sports/9", "sports/10", "sports/soccer"]
    assert "```\n" + "".join(map(topic_line, paths)) + "```" in text_of("keys.md")
    keys = [Topics().encode(path).key for path in paths]
    assert keys == sorted(keys)
    assert not Topics().encode("sportswear").key.startswith(keys[0])


def test_the_keys_of_cells_are_those_on_the_page() -> None:
    near, at_point, middle = (
        Circle(center, radius_m=800)
        for center in ((-73.97, 40.76), (-73.98, 40.75), (-75.8, 42.75))
    )
    lines = [
        cell_line('"1.4.2"', ROADS.encode("1.4.2")),
        cell_line("(-73.98, 40.75)", ROADS.encode((-73.98, 40.75))),
        cell_line("Circle((-73.97, 40.76), radius_m=800)", ROADS.encode(near)),
        cell_line("Circle((-73.98, 40.75), radius_m=800)", ROADS.encode(at_point)),
        cell_line("Circle((-75.8, 42.75), radius_m=800)", ROADS.encode(middle)),
    ]
    assert "```\n" + "".join(lines) + "```" in text_of("keys.md")


def test_the_keys_of_the_point_and_the_first_circle_meet_and_their_shapes_do_not() -> None:
    point = ROADS.encode((-73.98, 40.75))
    circle = ROADS.encode(Circle((-73.97, 40.76), radius_m=800))
    assert point.key.startswith(circle.key)
    assert not meets(ROADS, point, circle)


def test_the_nodes_of_a_key_are_those_on_the_page() -> None:
    for shown, mode, space, place in (
        ('"sports/soccer"', "TOPICS", Topics(), "sports/soccer"),
        ("(-73.98, 40.75)", "CELLS", ROADS, (-73.98, 40.75)),
        ('"sensor-7"', "FLAT", Flat(), "sensor-7"),
    ):
        lengths = ", ".join(map(str, node_lengths(space, space.encode(place).key)))
        assert f"{shown:19} {mode:8} prefixes of {lengths} bytes\n" in text_of("keys.md")


# ---- rows and memory ---------------------------------------------------------------------


def test_the_row_is_the_one_on_the_page() -> None:
    from tideline.channel.codec import write_row
    from tideline.kernels import layout

    buffer = bytearray(256)
    words = write_row(
        memoryview(buffer), layout.PUBLISH, 0, 7, 1_000_000, 1_000_000, 61_000_000,
        Topics().encode("sports/10"), b"e1", b"", b'{"n":1}',
    )  # fmt: skip
    page = text_of("log.md")
    for start in range(0, words * 8, 8):
        assert f"\n{start:4d}  {buffer[start : start + 8].hex(' ', 4)}    " in page
    kinds = (layout.VOID, layout.PUBLISH, layout.SUBSCRIBE, layout.CANCEL, layout.FIND)
    assert (*kinds, layout.GHOST, layout.NOTE, layout.TOMB, layout.TOLD) == tuple(range(9))
    assert (layout.R_COND, layout.R_UNSEEN, layout.R_SAME) == (1, 2, 4)


def test_the_numbers_of_the_memory_page_are_those_of_the_layout() -> None:
    from tideline.kernels import heap, layout

    page = " ".join(text_of("memory.md").split())
    assert f"segments of {layout.SEGMENT * 8 >> 10} KiB" in page
    assert f"subscription: {layout.SUB_WORDS} words" in page
    assert f"event: {layout.EVENT_WORDS} words" in page
    assert f"{layout.SUB_WORDS * 8} bytes a subscription, {layout.EVENT_WORDS * 8} an event" in page
    assert f"grow from 1 to {layout.CHUNK_MOST} records" in page
    assert f"There is room for {layout.WINDOWS}" in page
    assert f"{layout.SPARE} free segments" in page
    assert heap.LEAST_WIDTH == 1 << 20


def test_the_widths_of_windows_are_those_on_the_page() -> None:
    spans = {"2 s": 2, "20 s": 20, "10 min": 600, "1 h": 3600, "1 day": 86400}
    for shown, seconds in spans.items():
        power = 20
        while 1 << power < seconds * 1_000_000 >> 2:
            power += 1
        width_s = (1 << power) / 1_000_000
        rounded = f"{width_s:.2f}" if width_s < 100 else f"{width_s:.0f}"
        assert f"{shown:11} 2^{power} us = {rounded} s\n" in text_of("memory.md")


# ---- names and links ---------------------------------------------------------------------


@cache
def defined(path: Path) -> set[str]:
    """Functions, classes and methods (`Class.method`) of a file."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {
                f"{node.name}.{item.name}"
                for item in node.body
                if isinstance(item, ast.FunctionDef)
            }
    return names


def test_the_files_and_functions_that_pages_name_exist() -> None:
    files = [*SOURCE.rglob("*.py")]
    missing = []
    for page in PAGES:
        for file, name in FILE.findall(page.read_text(encoding="utf-8")):
            found = [p for p in (SOURCE / file, ROOT / file) if p.is_file()]
            found = found or [p for p in files if str(p).endswith(f"/{file}")]
            if not found or (name and not any(name in defined(path) for path in found)):
                missing.append((name_of(page), file, name))
    assert missing == []


NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|yml|sh)|Makefile)`")


@pytest.mark.parametrize(
    "page",
    [ROOT / "CONTRIBUTING.md", DOCS / "papers.md", *sorted((DOCS / "contributing").glob("*.md"))],
    ids=name_of,
)
def test_whatever_a_contributor_is_sent_to_is_there(page: Path) -> None:
    names = set(NAMED.findall(page.read_text(encoding="utf-8"))) - {"build/site"}
    assert names
    roots = (ROOT, SOURCE, ROOT / "src", SOURCE / "channel", SOURCE / "documents")
    roots += (SOURCE / "index", SOURCE / "lsm", SOURCE / "kernels", ROOT / "scripts")
    assert sorted(each for each in names if not any((r / each).exists() for r in roots)) == []


@cache
def anchors(page: Path) -> set[str]:
    """The names by which headings are linked to."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_and_their_anchors_lead_somewhere() -> None:
    broken = []
    for page in EVERY_PAGE:
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            # The results of the benchmarks are written by `make bench`.
            if ":" in link or "benchmarks/results" in link:
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append((name_of(page), link))
    assert broken == []


def test_no_page_names_a_path_of_one_machine() -> None:
    path = re.compile(r"(?<![\w.])/(home|root|work|Users)/")
    assert [name_of(page) for page in EVERY_PAGE if path.search(page.read_text("utf-8"))] == []


def test_a_decision_has_its_parts() -> None:
    wanted = ["Problem", "Choice", "Alternatives", "Cost", "What would change our mind"]
    for page in (DOCS / "decisions").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == wanted, page.name
        assert "*Doing nothing*" in text, page.name
