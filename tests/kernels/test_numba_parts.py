"""The numba that is installed has what docs/internals/numba.md lists, and the list is whole.

A failure says what a new numba has moved, and which of our files uses it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import llvmlite
import numba
import pytest
from numba.core.compiler import DefaultPassBuilder
from numba.core.registry import cpu_target

from tideline.kernels import compiler, jit

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "numba.md"
KERNELS = ROOT / "src" / "tideline" / "kernels"
PUBLIC = {"numba", "numba.extending", "llvmlite", "llvmlite.ir"}
MEMBER = re.compile(r"`(\w+)(?:\(([^)]*)\))?`")


class Row(NamedTuple):
    part: str
    members: str
    used: str
    purpose: str


def rows() -> list[Row]:
    lines = PAGE.read_text("utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return [Row(*row) for row in cells if row[0] not in ("part", "---")]


@jit
def _one() -> int:
    return 1


def instance(part: str) -> Any:
    """What a part without a dotted name is."""
    context = cpu_target.target_context
    codegen = context.codegen()
    return {
        "a dispatcher": lambda: _one,
        "a dispatcher's compiler": lambda: _one._compiler,
        "a code library": lambda: compiler._Library(codegen, "none"),
        "a code generator": lambda: codegen,
        "an execution engine": lambda: codegen._engine,
        "the target context": lambda: context,
        "a calling convention": lambda: context.call_conv,
    }[part]()


def found(part: str) -> Any:
    """The object of a part; AttributeError or ImportError when numba has none of that name."""
    if not part.startswith("`"):
        return instance(part)
    name = part.strip("`")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        above, _, last = name.rpartition(".")
        return getattr(found(f"`{above}`"), last)


def missing(row: Row) -> Iterator[str]:
    """What numba has no longer of a row."""
    try:
        owner = found(row.part)
    except (AttributeError, ImportError):
        yield row.part
        return
    for name, parameters in MEMBER.findall(row.members):
        if not hasattr(owner, name):
            yield f"{row.part} {name}"
            continue
        wanted = {each.strip() for each in parameters.split(",") if each.strip()}
        if wanted:
            known = inspect.signature(getattr(owner, name)).parameters
            takes_any = any(each.kind is each.VAR_KEYWORD for each in known.values())
            gone = set() if takes_any else wanted - set(known)
            yield from (f"{row.part} {name}: parameter {each}" for each in sorted(gone))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.part}-{row.used}".replace("`", ""))
def test_numba_has_the_part(row: Row) -> None:
    gone = list(missing(row))
    assert gone == [], (
        f"numba {numba.__version__} (llvmlite {llvmlite.__version__}) has moved {gone}, which "
        f"{row.used} uses for: {row.purpose}. See docs/internals/numba.md."
    )


def test_a_part_that_is_gone_is_named() -> None:
    row = Row("`numba.core.compiler`", "`compile_extra(func, nothing)`, `no_such`", "", "")
    assert list(missing(row)) == [
        "`numba.core.compiler` compile_extra: parameter nothing",
        "`numba.core.compiler` no_such",
    ]
    assert list(missing(Row("`numba.core.no_such`", "", "", ""))) == ["`numba.core.no_such`"]


def private_imports() -> Iterator[tuple[str, str]]:
    """(module, name) of every import from a private module of numba or llvmlite, with its file."""
    for path in sorted(KERNELS.parent.rglob("*.py")):
        file = str(path.relative_to(KERNELS.parent))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                if node.module.split(".")[0] in ("numba", "llvmlite"):
                    for each in node.names:
                        if node.module not in PUBLIC:
                            yield f"{node.module}.{each.name}", file
            elif isinstance(node, ast.Import):
                for each in node.names:
                    if each.name.split(".")[0] in ("numba", "llvmlite") and each.name not in PUBLIC:
                        yield each.name, file


def test_every_private_import_is_on_the_page() -> None:
    listed = {}
    for row in rows():
        part = row.part.strip("`")
        listed.setdefault(part, set()).add(row.used)
        for name, _ in MEMBER.findall(row.members):
            listed.setdefault(f"{part}.{name}", set()).add(row.used)
    unlisted = [
        (name, file)
        for name, file in private_imports()
        if not any(Path(file).name in used for used in listed.get(name, ()))
    ]
    assert unlisted == [], "name them in docs/internals/numba.md"


def test_the_passes_that_are_left_out_are_there() -> None:
    state = SimpleNamespace(func_ir=None, flags=_one._flags())
    passes = {
        each[0].__name__
        for define in (
            DefaultPassBuilder.define_untyped_pipeline,
            DefaultPassBuilder.define_typed_pipeline,
        )
        for each in define(state).passes
    }
    gone = sorted(set(compiler._UNUSED) - passes)
    assert gone == [], f"numba {numba.__version__} has other passes: see kernels/compiler.py"
