"""The documentation site is whole, as far as can be told without building it (`make docs` does).

Its menu names every page; the pages that are made (scripts/site_pages) say every public name, every
command and every route; links lead somewhere, those that were turned from links of the repository
into links of the site, too; nothing is fetched from elsewhere while it is read.
"""

from __future__ import annotations

import posixpath
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.append(str(ROOT / "scripts"))

from site_pages import commands, decisions, http, links, python, results, words  # noqa: E402

SETTINGS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
MENU = set(
    re.findall(r"^[^#\n]*?([\w/.-]+\.md)\s*$", SETTINGS.partition("\nnav:\n")[2], re.MULTILINE)
)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@cache
def made() -> dict[str, str]:
    """The pages that are written while the site is built."""
    found: dict[str, str] = {}
    for part in (python, commands, http, decisions, results, links, words):
        found |= part.pages()
    return found


@cache
def site() -> dict[str, str]:
    """Every page of the site, with the links that it has there."""
    written = {p.relative_to(DOCS).as_posix(): p.read_text("utf-8") for p in DOCS.rglob("*.md")}
    return {name: links.within_the_site(text, name) for name, text in (written | made()).items()}


@cache
def anchors(page: str) -> set[str]:
    """The names by which headings are linked to, as the site makes them."""
    text = re.sub(r"^```.*?^```", "", site()[page], flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        number = sum(1 for each in found if re.fullmatch(f"{re.escape(name)}(_\\d+)?", each))
        found.add(f"{name}_{number}" if number else name)
    return found


def test_the_menu_names_every_page() -> None:
    pages = {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md")}
    unlisted = {page for page in pages - MENU if not page.startswith("decisions/")}
    assert sorted(unlisted) == []
    assert sorted(MENU - pages - set(made())) == []


def test_the_list_of_decisions_is_made() -> None:
    assert "](decisions/" not in (DOCS / "index.md").read_text("utf-8"), "nobody keeps it by hand"
    text = made()["decisions/index.md"]
    assert all(f"({p.name})" in text for p in (DOCS / "decisions").glob("*.md"))


def test_every_layout_of_words_is_on_its_page() -> None:
    from tideline.kernels import layout

    text = made()["internals/words.md"]
    assert all(f"| `{word.name}` |" in text for word in layout.ENGINE.words)
    assert text.count("| | word | | |") == len(words.layouts()) > 10


def test_every_public_name_is_in_the_reference() -> None:
    import tideline
    import tideline.spark

    listed = {name for _, _, names in python.PAGES.values() for name in names}
    wanted = {f"tideline.{name}" for name in tideline.__all__}
    wanted |= {f"tideline.spark.{name}" for name in tideline.spark.__all__}
    assert sorted(wanted - listed) == []
    text = made()["reference/python/channels.md"]
    assert "### subscribe\n" in text
    assert "- `unseen`: leave out what the user was told" in text
    collections = made()["reference/python/collections.md"]
    assert "| `Place` | Where: a name or path" in made()["reference/python/index.md"]
    for inherited in ("put_many", "find", "update", "watch"):  # from four classes
        assert f"### {inherited}\n" in collections


def test_every_command_and_every_route_has_its_page() -> None:
    from tideline.server.app import all_ops

    found = commands.commands()
    assert {"publish", "collection put", "serve", "token create"} <= set(found)
    for name, command in found.items():
        text = made()[f"reference/commands/{name.split()[0]}.md"]
        assert f"# tideline {name}\n" in text
        for each in command.params:
            if not each.hidden and each.name != "help":
                assert f"`{each.opts[0]}`" in text or (each.metavar or "") in text
    text = made()["reference/openapi.md"]
    assert [op.path for op in all_ops() if f"### {op.method} {op.path}\n" not in text] == []


def test_links_of_the_site_lead_somewhere() -> None:
    pictures = {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*") if p.suffix != ".md"}
    there = set(site()) | pictures | set(results.pictures())
    broken = []
    for page, text in site().items():
        folder = posixpath.dirname(page)
        for link in LINK.findall(CODE.sub("``", text)):
            if "://" in link or link.startswith("mailto:"):
                continue
            name, _, anchor = link.partition("#")
            target = posixpath.normpath(posixpath.join(folder, name)) if name else page
            if target not in there or (anchor and anchor not in anchors(target)):
                broken.append((page, link))
    assert broken == []


def test_nothing_is_fetched_while_the_site_is_read() -> None:
    assert "font: false" in SETTINGS
    for path in (DOCS / "assets").iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, path.name
    polyfills = re.search(r"polyfills: \[(.*)\]", SETTINGS)
    assert polyfills is not None
    assert (DOCS / polyfills[1]).is_file()
