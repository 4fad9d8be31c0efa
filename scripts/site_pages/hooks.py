"""What MkDocs calls while it builds the site (mkdocs.yml, `hooks`).

    on_files            adds pages that are made here: Python names, commands, OpenAPI, results,
                        decisions, words of kernels, and files of the repository that pages link to
    on_page_markdown    links into the repository become links within the site; sessions of
                        Python are coloured as such

The pages in docs/ are written for whoever reads them in the repository: this is what the site
needs besides.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "src")]

from site_pages import commands, decisions, http, links, python, results, words  # noqa: E402


def on_files(files: Files, *, config: Any) -> Files:
    """The pages of docs/ and those that are made."""
    os.environ |= {"COLUMNS": "100", "TERM": "dumb"}
    pages: dict[str, str] = {}
    for part in (python, commands, http, decisions, results, words):
        pages |= part.pages()
    pages |= links.pages()
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for name, path in results.pictures().items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """A page of the repository as one of the site."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    return links.within_the_site(markdown, page.file.src_uri)
