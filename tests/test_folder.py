"""Which folders become a database, and who may have one open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tideline
from tideline.errors import Corruption, InvalidRequest, Unavailable
from tideline.lsm.owner import Owner


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_of_other_files_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    for n, name in enumerate(["notes.txt", "MANIFEST", "src/main.py", "channels/news.txt"]):
        folder = tmp_path / str(n)
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("mine")
        (folder / "README").write_text("mine")
        before = names(folder)
        with pytest.raises(InvalidRequest, match="give an empty or a new folder"):
            tideline.open(folder)
        assert names(folder) == before


def test_hidden_files_do_not_make_a_folder_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / ".gitkeep").touch()
    (tmp_path / "lost+found").mkdir()
    with tideline.open(tmp_path) as db:
        db.channel("c")
    with tideline.open(tmp_path) as db:
        assert db.channels() == ["c"]


def test_a_database_is_opened_whatever_was_put_beside_it(tmp_path: Path) -> None:
    tideline.open(tmp_path / "data").close()
    (tmp_path / "data" / "notes.txt").write_text("mine")
    tideline.open(tmp_path / "data").close()


def test_what_a_kill_left_before_the_first_manifest_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text("pid 1 since then")
    (tmp_path / "MANIFEST.tmp").write_text("tide")
    tideline.open(tmp_path).close()


def test_a_database_that_lost_its_manifest_is_damaged_not_somebody_elses(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as db:
        db.channel("c")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "MANIFEST").unlink()
    with pytest.raises(Corruption, match="manifest is missing"):
        tideline.open(tmp_path)


def test_whoever_opens_a_folder_twice_is_told_which_process_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    again = f"import tideline; tideline.open({str(folder)!r})"
    with tideline.open(folder):
        for path in (folder, tmp_path / "." / "data", tmp_path / "data" / ".." / "data"):
            with pytest.raises(Unavailable, match="this process has the folder open") as caught:
                tideline.open(path)
            assert "another process" not in str(caught.value)
        done = subprocess.run(
            [sys.executable, "-c", again], capture_output=True, text=True, check=False
        )
        assert "Unavailable: the folder is open in another process" in done.stderr
    tideline.open(folder).close()


def test_a_process_knows_what_it_holds_by_itself_not_by_its_number(tmp_path: Path) -> None:
    """Two containers may have the same process id: what the lock file says does not decide."""
    hold = f"""
from pathlib import Path
from tideline.lsm.owner import Owner
owner = Owner(Path({str(tmp_path)!r}))
print("held", flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        mine = Owner(_folder(tmp_path / "mine"))
        (tmp_path / "LOCK").write_text((tmp_path / "mine" / "LOCK").read_text())
        with pytest.raises(Unavailable, match="open in another process"):
            Owner(tmp_path)
        mine.leave()
        other.communicate("\n")


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
