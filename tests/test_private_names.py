"""No module reads what another object keeps to itself.

An attribute whose name begins with an underscore belongs to the class that sets it: it is read as
`self._name` or `cls._name` and no other way. What others need has a name without an underscore.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tideline"
PACKAGES = ["channel"]
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}


def foreign(source: str) -> list[str]:
    """Private attributes of other objects that a module reads or sets, with their lines."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in OF_NAMED_TUPLES
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_reads_private_attributes_of_other_objects(package: str) -> None:
    found = {path.name: foreign(path.read_text()) for path in (SOURCE / package).rglob("*.py")}
    assert found  # the package is there
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_one_that_does_is_found() -> None:
    assert foreign("self._own\nother._theirs\nself._own._theirs\nrow._replace(a=1)") == [
        "line 2: other._theirs",
        "line 3: self._own._theirs",
    ]
