"""The examples run as their READMEs say: examples/*/. Two of them in a browser."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GUARD_S = 300.0


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=GUARD_S
    )


@contextlib.contextmanager
def started(*words: str, says: str) -> Iterator[str]:
    """An example that goes on until Ctrl-C: what it says that one opens."""
    process = subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        seen = ""
        for line in process.stdout:
            seen += line
            if found := re.search(says, line):
                yield found[1]
                break
        else:
            pytest.fail(f"it ended and said {seen}")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=GUARD_S)
        assert process.returncode == 0


def test_every_folder_has_a_readme_that_names_its_files() -> None:
    front = (EXAMPLES / "README.md").read_text("utf-8")
    folders = sorted(path.parent.name for path in EXAMPLES.glob("*/__main__.py"))
    assert len(folders) >= 6
    for name in folders:
        assert f"({name}/README.md)" in front
        said = (EXAMPLES / name / "README.md").read_text("utf-8")
        for path in (EXAMPLES / name).iterdir():
            assert path.name in (*said.split("`"), "README.md", "__init__.py", "__pycache__") or (
                path.name in said
            )


def test_couriers_take_orders_and_what_nobody_takes_is_forgotten(tmp_path: Path) -> None:
    first = run("examples/couriers", "--minutes", "15", "--folder", str(tmp_path / "store"))
    assert first.returncode == 0, first.stderr
    placed, taken, forgotten, waiting = map(
        int,
        re.findall(r"(\d+) orders: (\d+) taken, (\d+) forgotten, (\d+) open", first.stdout)[0],
    )
    assert placed == taken + forgotten + waiting
    assert taken == len(re.findall(r"taken by", first.stdout)) > 0
    assert max(map(int, re.findall(r"after (\d+) s", first.stdout))) < 600
    again = run("examples/couriers", "--minutes", "15")
    assert again.stdout == first.stdout  # simulated time is the same for everybody
    wrong = run("examples/couriers", "--couriers", "0")
    assert wrong.returncode == 2
    assert "at least one courier" in wrong.stderr
    nowhere = run("examples/couriers", "--folder", str(ROOT / "LICENSE"))
    assert nowhere.returncode == 2
    assert "path is not a folder that can be used" in nowhere.stderr
    assert "Traceback" not in nowhere.stderr


def test_places_are_found_with_typing_errors_nearest_first() -> None:
    done = run("examples/fuzzy_places", "sutishi resturant", "--places", "5000", "--limit", "9")
    assert done.returncode == 0, done.stderr
    found = re.findall(r"(\d+) m  (.*)", done.stdout)
    assert len(found) == 9
    assert [int(metres) for metres, _ in found] == sorted(int(metres) for metres, _ in found)
    assert all("Restaurant" in name for _, name in found)
    assert any("Suteishi" in name for _, name in found)
    wrong = run("examples/fuzzy_places", "sushi", "--at", "200,3", "--places", "10")
    assert wrong.returncode == 2
    assert "[200, 3]" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_leader_is_killed_and_nothing_acknowledged_is_lost() -> None:
    done = run("examples/three_nodes", "--kills", "1", "--seconds", "0.5")
    assert done.returncode == 0, done.stdout + done.stderr
    written, lost = re.findall(r"(\d+) acknowledged, (\d+) lost", done.stdout)[0]
    assert (int(written) > 0, lost) == (True, "0")
    assert " 0 missed, 0 twice" in done.stdout


def test_orders_are_placed_and_go_on_in_the_page(browser: Any) -> None:
    pytest.importorskip("fastapi")
    with (
        started("examples/orders_web", "--port", "0", says=r"running on (\S+)") as url,
        browser.new_context() as context,
    ):
        page, other = context.new_page(), context.new_page()
        for each in (page, other):
            each.goto(url)
        other.wait_for_function("document.querySelector('script') !== null")
        page.fill("input[name=id]", "7")
        page.fill("input[name=dish]", "<b>soup</b>")
        page.click("button")
        page.wait_for_selector("tr#o7 >> text=<b>soup</b>")
        page.click("tr#o7 button")
        page.wait_for_selector("tr#o7 >> text=on its way")
        other.reload()
        other.wait_for_selector("tr#o7 >> text=cooking")
        page.goto("about:blank")
        other.goto("about:blank")


def test_live_orders_change_in_the_page(browser: Any) -> None:
    wrong = run("examples/live_orders", "--port", "99999")
    assert wrong.returncode == 2
    assert "port 99999: no such port; --port 0 takes a free one" in wrong.stderr
    with (
        started("examples/live_orders", "--port", "0", says=r"open (\S+)") as url,
        browser.new_context() as context,
    ):
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        page.wait_for_function("document.querySelectorAll('#top tbody tr').length === 10")
        page.wait_for_function("document.querySelectorAll('#shops tbody tr').length === 4")
        first = page.inner_text("#top tbody tr:first-child td:first-child")
        page.click(f"button[aria-label='order {first} is paid']")
        page.wait_for_function(
            "first => ![...document.querySelectorAll('#top td:first-child')]"
            ".some(cell => cell.textContent === first)",
            arg=first,
        )
        totals = page.eval_on_selector_all(
            "#top tbody tr",
            "rows => rows.map(row => Number(row.cells[2].textContent.replaceAll(',', '')))",
        )  # fmt: skip
        assert totals == sorted(totals, reverse=True)
        assert page.inner_text("#state") == "open"
        page.goto("about:blank")
        assert errors == []
