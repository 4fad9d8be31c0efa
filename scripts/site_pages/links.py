"""Where a file of the repository is on the site.

    docs/guide/live.md               guide/live.md
    CONTRIBUTING.md                  contributing/index.md
    benchmarks/results/live.md       results/live.md
    examples/fastapi_app.py          source/examples/fastapi_app.py.md: the file on a page

A link to anything else of the repository leads to a page with the text of that file, or, of a
folder, to nothing: then its label stays.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WHOLE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing/index.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/results": "results/index.md",
    "docs/decisions": "decisions/index.md",
}
_LANGUAGES = {".py": "python", ".html": "html", ".toml": "toml", ".js": "js", ".sh": "sh"}


def page_of(path: str) -> str | None:
    """The page of the site that has a file of the repository; None if none has."""
    path = path.rstrip("/")
    if path in WHOLE:
        return WHOLE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("benchmarks/results/") and path.endswith((".md", ".png")):
        return "results/" + path.removeprefix("benchmarks/results/")
    if (ROOT / path).is_file():
        return f"source/{path.removesuffix('.md')}.md"
    return None


def file_of(page: str) -> str:
    """The file of the repository that a page of the site shows."""
    for path, name in WHOLE.items():
        if name == page and path.endswith(".md") and path != "README.md":
            return path
    if page.startswith("results/") and page != "results/index.md":
        return "benchmarks/" + page
    if page.startswith("source/"):
        return page.removeprefix("source/")
    return f"docs/{page}"


def within_the_site(text: str, page: str) -> str:
    """The text of a page with links that lead within the site."""
    own = posixpath.dirname(file_of(page))

    def turned(found: re.Match[str]) -> str:
        picture, label, link = found.groups()
        if "](" in label:  # a picture that is a link
            label = LINK.sub(turned, label)
        if ":" in link or link.startswith("#"):
            return found[0]
        name, hash_, anchor = link.partition("#")
        target = page_of(posixpath.normpath(posixpath.join(own, name)))
        if target is None:
            return label
        path = posixpath.relpath(target, posixpath.dirname(page) or ".")
        return f"{picture}[{label}]({path}{hash_}{anchor})"

    parts = []
    last = 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(turned, text[last : fence.start()]), _coloured(fence)]
        last = fence.end()
    return "".join([*parts, LINK.sub(turned, text[last:])])


def _coloured(fence: re.Match[str]) -> str:
    kind, inner = fence.groups()
    kind = {"py": "python", "jsonl": "json"}.get(kind, kind)
    if kind == "python" and ">>>" in inner:
        kind, inner = "pycon", inner.rstrip() + "\n"
    return f"```{kind}\n{inner}```"


@cache
def linked() -> frozenset[str]:
    """Files of the repository, besides pages, that a page links to."""
    found: set[str] = set()
    left = [p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")]
    left += [path for path in WHOLE if path.endswith(".md") and path != "README.md"]
    while left:
        path = left.pop()
        text = FENCE.sub("", (ROOT / path).read_text(encoding="utf-8"))
        for _, _, link in LINK.findall(text):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link.split("#")[0]))
            page = None if ":" in link else page_of(target)
            if page is not None and page.startswith("source/") and target not in found:
                found.add(target)
                left += [target] * target.endswith(".md")
    return frozenset(found)


def pages() -> dict[str, str]:
    """Files of the repository as pages."""
    made = {
        name: (ROOT / path).read_text(encoding="utf-8")
        for path, name in WHOLE.items()
        if path.endswith(".md") and path != "README.md"
    }
    for path in linked():
        file = ROOT / path
        if file.suffix == ".md":
            made[f"source/{path}"] = file.read_text(encoding="utf-8")
        elif file.suffix not in (".png", ".svg"):
            text = file.read_text(encoding="utf-8").replace("```", "` ` `")
            language = _LANGUAGES.get(file.suffix, "text")
            made[f"source/{path}.md"] = f"# {path}\n\n```{language}\n{text.rstrip()}\n```\n"
    return made
