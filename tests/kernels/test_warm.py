"""The list of kernels to compile is complete: nothing compiles in the middle of a call."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from tideline.kernels import warm

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src" / "tideline"


def name_of(kernel: Any) -> str:
    return f"{kernel.py_func.__module__}.{kernel.py_func.__name__}"


def run(*args: str) -> str:
    """Run Python by itself: other tests call kernels with types of their own."""
    done = subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The signatures of every kernel after a process that used everything once."""
    warm.compile_groups(*warm.GROUPS)
    printed = run(str(TESTS / "kernels" / "everything.py"), str(tmp_path_factory.mktemp("warm")))
    found: dict[str, list[str]] = json.loads(printed)
    return found


@pytest.mark.parametrize(
    ("kernel", "signature"),
    [
        pytest.param(*it, id=name_of(it[0]))
        for group in warm.GROUPS
        if group != "matching"  # tests/spark/test_match_route.py
        for it in warm.kernels(group)
    ],
)
def test_a_kernel_is_called_with_the_listed_types_only(
    kernel: Any, signature: tuple[Any, ...], called: dict[str, list[str]]
) -> None:
    assert called[name_of(kernel)] == [str(signature)]


def kernels_used(path: Path) -> set[str]:
    """The kernels a module names: imported by name, or as attributes of imported modules."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    modules: dict[str, Any] = {}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not any(it.name.startswith("tideline.kernels") for it in node.names), path
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "tideline.kernels"
        ):
            assert node.module is not None
            folder = SOURCE.parent.joinpath(*node.module.split("."))
            for it in node.names:
                if (folder / f"{it.name}.py").exists():
                    module = importlib.import_module(f"{node.module}.{it.name}")
                    modules[it.asname or it.name] = module
                else:
                    found.append(getattr(importlib.import_module(node.module), it.name))
    found += [
        getattr(modules[node.value.id], node.attr, None)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
    ]
    return {name_of(it) for it in found if isinstance(it, Dispatcher)}


def test_the_list_names_every_kernel_python_calls() -> None:
    listed = [name_of(kernel) for kernel, _ in warm.kernels()]
    assert len(set(listed)) == len(listed)
    paths = [path for path in SOURCE.rglob("*.py") if SOURCE / "kernels" not in path.parents]
    used = set().union(*map(kernels_used, paths))
    assert used == set(listed)
