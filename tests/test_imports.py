"""The layers of the library, proved by walking its imports.

    cli server web spark              may import everything below; cli calls spark
    aclient                           what tideline.aconnect and aopen give: the same, awaited
    client                            what tideline.connect gives: the same names, over HTTP
    cluster                           a database that several nodes have
    database                          what users hold; datasets: what lies in its folder
    channel documents live stream
    volume                            disks on it
    replica                           a log that survives machines: knows bytes, not what they mean
    standing                          many conditions at once: which of them a document meets
    index
    lsm                               knows nothing of channels, places or conditions
    kernels                           nothing of ours but kernels, addresses and shelter
    space where model clock errors    may call kernels too: those are leaves, so it is no circle
    near                              names that are nearly right: for messages
    addresses                         of memory, for kernels: imports nothing
    shelter                           threads that nothing cuts: imports nothing
    protocols aprotocols              what every way in has, as types: beside the bottom row
    workload testing                  beside: only the bottom row; for cli and spark
    heatmap                           beside: those two rows; for cli and spark

Imports under `if TYPE_CHECKING:` and inside functions count as well.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tideline"

BOTTOM = {"errors", "near", "addresses", "shelter", "clock", "model", "space", "where", "protocols"}
LIBRARY = BOTTOM | {
    "kernels", "lsm", "index", "standing", "channel", "documents", "live", "stream", "replica",
    "volume", "datasets", "database", "cluster",
}  # fmt: skip

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "near": {"errors"},
    "addresses": set(),
    "shelter": set(),
    "clock": {"errors"},
    "space": {"errors", "addresses", "clock", "model", "kernels"},
    "where": {"errors", "near", "addresses", "clock", "model", "space", "kernels"},
    "model": {"errors", "clock", "space", "where"},
    "protocols": {"clock", "model", "space"},
    "kernels": {"addresses", "shelter"},
    "lsm": {"errors", "addresses", "shelter", "clock", "model", "kernels"},
    "index": BOTTOM | {"kernels", "lsm"},
    "channel": BOTTOM | {"kernels", "lsm", "index", "standing"},
    "documents": BOTTOM | {"kernels", "lsm", "index"},
    "standing": BOTTOM | {"kernels", "index"},
    "live": BOTTOM | {"kernels", "lsm", "index", "documents", "standing"},
    "stream": BOTTOM | {"kernels", "lsm", "index"},
    "replica": {"errors", "lsm"},
    "volume": {"errors", "lsm", "replica"},
    "datasets": LIBRARY - {"database", "cluster", "volume"},
    "database": LIBRARY - {"cluster", "volume"},
    "cluster": LIBRARY - {"volume"},
    "testing": BOTTOM,
    "workload": BOTTOM,
    "heatmap": BOTTOM | {"workload"},
    "cli": LIBRARY | {"heatmap", "workload", "testing", "spark", "server", "client", ""},
    "server": LIBRARY | {"web", ""},
    "web": LIBRARY | {""},
    "client": LIBRARY,
    "aclient": LIBRARY | {"client"},
    "aprotocols": {"clock", "model", "protocols", "space"},
    "spark": LIBRARY | {"heatmap", "workload", "client", ""},
    "__main__": {"cli"},
    "": LIBRARY | {"client", "aclient"},  # tideline/__init__.py
}

# What must not be loaded by `import tideline`: slow to load, or optional.
LAZY = ["numba", "pyspark", "shapely", "pandas", "matplotlib", "pyarrow.compute", "typer", "rich"]
LAZY += ["re2", "starlette", "uvicorn", "websockets"]


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The layer a file belongs to: its first folder or its own name; "" for the package."""
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imported_names(path: Path) -> Iterator[tuple[int, str]]:
    """Every module a file imports, as (line, absolute dotted name)."""
    package = ("tideline", *path.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, node.module] if node.module else base)
            for name in node.names:
                yield node.lineno, f"{stem}.{name.name}"


def imported_parts(path: Path) -> Iterator[tuple[int, str]]:
    """The layers of ours that a file imports."""
    for line, name in imported_names(path):
        root, _, rest = name.partition(".")
        if root == "tideline":
            first = rest.split(".")[0]
            known = (SOURCE / first).is_dir() or (SOURCE / f"{first}.py").is_file()
            yield line, first if first and known else ""


def test_imports_point_down() -> None:
    parts = {part_of(path) for path in modules()}
    assert parts <= set(MAY_IMPORT), "add it to MAY_IMPORT with a reason"
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports tideline{'.' * bool(other)}{other}"
        for path in modules()
        for line, other in imported_parts(path)
        if other != part_of(path) and other not in MAY_IMPORT[part_of(path)]
    ]
    assert wrong == []


def test_the_layers_have_no_circle() -> None:
    """The table above is itself one-way, apart from the model and the bottom row."""
    seen: set[str] = set()

    def visit(part: str, path: tuple[str, ...]) -> None:
        assert part not in path, " -> ".join([*path, part])
        if part not in seen:
            for below in MAY_IMPORT[part] - {part}:
                if not (part in BOTTOM and below in BOTTOM):
                    visit(below, (*path, part))
            seen.add(part)

    for part in MAY_IMPORT:
        visit(part, ())


def test_import_tideline_loads_nothing_slow() -> None:
    loaded = _loaded_by("tideline")
    assert [name for name in LAZY if name in loaded] == []


def test_the_command_line_starts_without_the_engine() -> None:
    """Help, mistakes and commands on a server need no kernels."""
    loaded = _loaded_by("tideline.cli.main")
    assert [name for name in ("numba", "pandas", "pyarrow", "numpy") if name in loaded] == []


def test_a_reader_of_spark_loads_no_kernels() -> None:
    """Every process that plans or runs a read loads it."""
    pytest.importorskip("pyspark")
    loaded = _loaded_by("tideline.spark.source, tideline.spark.remote, tideline.spark.http")
    assert [name for name in ("numba", "tideline.kernels") if name in loaded] == []


def _loaded_by(modules: str) -> set[str]:
    code = f"import json, sys, {modules}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent)},
    )
    return set(json.loads(done.stdout))


def test_all_names_what_is_importable() -> None:
    package = importlib.import_module("tideline")
    names = package.__all__
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(package, name)] == []
    namespace: dict[str, object] = {}
    exec("from tideline import *", namespace)
    del namespace["__builtins__"]
    assert sorted(namespace) == sorted(names)


def test_all_names_every_public_name() -> None:
    package = importlib.import_module("tideline")
    submodules = {path.stem for path in SOURCE.iterdir()} | {"annotations"}
    public = {n for n in vars(package) if not n.startswith("_")} - submodules
    assert public <= set(package.__all__)


def test_what_public_methods_return_is_public() -> None:
    """Whoever writes `list[tideline.Nearest]` or `-> tideline.Pane` finds the names at the top."""
    package = importlib.import_module("tideline")
    model = importlib.import_module("tideline.model")
    inner = {"ComponentsRead", "Considered", "IndexStats"}  # parts of what is returned
    assert set(model.__all__) - inner <= set(package.__all__)
    assert package.StreamWindow.__name__ == "StreamWindow"


def test_modules_export_what_they_define() -> None:
    """`__all__`, where a module has one, holds no name that is not there."""
    assert {str(p): found for p in modules() if (found := exported_in_vain(p))} == {}


def exported_in_vain(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    listed: list[str] = []
    defined: set[str] = set()
    lazy = False
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined.add(node.name)
            lazy = lazy or node.name == "__getattr__"
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            defined |= {(name.asname or name.name).split(".")[0] for name in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for leaf in ast.walk(target):
                    if isinstance(leaf, ast.Name):
                        defined.add(leaf.id)
                        is_all = leaf.id == "__all__" and isinstance(node.value, ast.List)
                        if is_all and node.value is not None:
                            listed = ast.literal_eval(node.value)
        elif isinstance(node, (ast.If, ast.Try)):
            for inner in ast.walk(node):
                if isinstance(inner, (ast.Import, ast.ImportFrom)):
                    defined |= {(name.asname or name.name).split(".")[0] for name in inner.names}
    return set() if lazy else set(listed) - defined
