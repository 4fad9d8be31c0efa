"""What somebody gets who installs Tideline: its licence, its facts, the page's files."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import tideline

ROOT = Path(__file__).resolve().parents[1]
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_the_licence_is_the_whole_apache_licence() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    # With an expression, a classifier of the licence is not allowed any more.
    assert not any(each.startswith("License") for each in project["classifiers"])


def test_the_version_is_the_same_everywhere_and_has_its_notes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == tideline.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{tideline.__version__}]" in changes


def test_the_readme_begins_with_how_to_install_it() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"```\w*\n(.*?)```", text, re.DOTALL)
    assert first is not None
    assert first[1].startswith("pip install ")
    assert text.index("pip install") < text.index("make demo")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of what is here, built without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = tmp_path_factory.mktemp("source")  # a build writes into its source
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(
        ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet",
         "--disable-pip-version-check", "--wheel-dir", str(folder), str(copy)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [made] = folder.glob("tideline-*.whl")
    return made


def test_a_wheel_has_the_licence_its_facts_and_the_page(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        [metadata] = [name for name in names if name.endswith("/METADATA")]
        facts = Parser().parsestr(files.read(metadata).decode())
        [licence] = [name for name in names if name.endswith("/licenses/LICENSE")]
        assert hashlib.sha256(files.read(licence)).hexdigest() == APACHE_2
    assert facts["License-Expression"] == "Apache-2.0"
    assert set(facts.get_all("Provides-Extra", [])) >= {"server", "client", "spark", "plot"}
    web = [path for path in (ROOT / "src/tideline/web").rglob("*") if path.is_file()]
    assert {path.relative_to(ROOT / "src").as_posix() for path in web} <= names
    assert "tideline/py.typed" in names
    assert {"pyspark_tideline.py", "tideline/spark/log4j2.properties"} <= names  # for Spark
