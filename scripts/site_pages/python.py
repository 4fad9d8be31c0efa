"""The reference of Python names, from signatures and docstrings.

The sources are read, not imported: so no Spark, no kernels and no server are needed. A name is
followed through the imports of its package to where it is written; a class shows what it has and
what it inherits from classes of Tideline's. Every name of `tideline.__all__` and
`tideline.spark.__all__` is on a page (tests/test_site.py).
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"

PAGES: dict[str, tuple[str, str, list[str]]] = {
    "database": (
        "Opening a database",
        "A database is a folder that this process opens, or a server that it connects to; both "
        "with or without `await`. The names are the same from there on.",
        ["tideline.open", "tideline.connect", "tideline.aopen", "tideline.aconnect",
         "tideline.Database", "tideline.Report", "tideline.server.running"],
    ),
    "channels": (
        "Channels",
        "Events and subscriptions. [Guide](../../guide/subscriptions.md).",
        ["tideline.Channel", "tideline.Subscription", "tideline.Event", "tideline.Told",
         "tideline.Subscriber", "tideline.SubscriptionInfo", "tideline.Applied",
         "tideline.ChannelStats"],
    ),
    "collections": (
        "Collections",
        "Documents by primary key. [Guide](../../guide/documents.md).",
        ["tideline.Collection", "tideline.Changes", "tideline.Change", "tideline.Stored",
         "tideline.Updated", "tideline.Versioned", "tideline.Nearest", "tideline.Documents",
         "tideline.Explanation", "tideline.Advice", "tideline.CollectionStats"],
    ),
    "live": (
        "Live queries",
        "What `Collection.watch` and `watch_groups` give. [Guide](../../guide/live.md).",
        ["tideline.Live", "tideline.LiveChange", "tideline.WatchPlan"],
    ),
    "windows": (
        "Stream windows",
        "The rows of the last so many seconds, in the order of a key. "
        "[Guide](../../guide/stream-windows.md).",
        ["tideline.StreamWindow", "tideline.Appended", "tideline.Pane", "tideline.WindowStats"],
    ),
    "spaces": (
        "Spaces and shapes",
        "How the places of a channel relate, and what a place may be. "
        "[Guide](../../guide/places.md).",
        ["tideline.Flat", "tideline.Topics", "tideline.Grid", "tideline.QuadTree",
         "tideline.Circle", "tideline.Box", "tideline.Polygon", "tideline.MultiPolygon"],
    ),
    "errors": (
        "Errors",
        "Everything that Tideline raises on purpose. The base is `TidelineError`; each kind says "
        "what to do.",
        ["tideline.TidelineError", "tideline.InvalidRequest", "tideline.Unauthorized",
         "tideline.NotFound", "tideline.Conflict", "tideline.Unavailable", "tideline.Closed",
         "tideline.Corruption"],
    ),
    "spark": (
        "Spark",
        "Needs `pip install 'tideline[spark]'` and Java 17 or newer. "
        "[Start](../../start/spark.md).",
        ["tideline.spark.session", "tideline.spark.register", "tideline.spark.share",
         "tideline.spark.Gate", "tideline.spark.Pipeline", "tideline.spark.bulk_load",
         "tideline.spark.match", "tideline.spark.watch", "tideline.spark.panes",
         "tideline.spark.latest", "tideline.spark.aggregate", "tideline.spark.heatmap",
         "tideline.spark.tweets"],
    ),
    "testing": (
        "For tests of your own",
        "A clock that moves by hand, so that a test need not wait.",
        ["tideline.testing.ManualClock"],
    ),
}  # fmt: skip

CALLED = {"Database": "db", "StreamWindow": "window", "ManualClock": "clock"}
"""What an object of a class is called in the examples; else by its class, in small letters."""

Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


# ---- where a name is written --------------------------------------------------------------------


@cache
def _tree(module: str) -> ast.Module | None:
    base = SOURCE.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return ast.parse(path.read_text(encoding="utf-8"))
    return None


@cache
def _found(module: str, name: str) -> tuple[Named, str] | None:
    """The definition of a name that a module has, and the module that it is written in."""
    tree = _tree(module)
    if tree is None:
        return None
    is_package = (SOURCE.joinpath(*module.split("."), "__init__.py")).is_file()
    for node in ast.walk(tree):
        if isinstance(node, Named) and node.name == name and node in _outer(tree):
            return node, module
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                if (each.asname or each.name) != name:
                    continue
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package] if node.level else []
                source = ".".join([*parts, node.module] if node.module else parts)
                return _found(source, each.name) or _found(f"{source}.{each.name}", each.name)
    return None


def _outer(tree: ast.Module) -> list[ast.stmt]:
    return [
        *tree.body,
        *(inner for node in tree.body if isinstance(node, ast.If) for inner in node.body),
    ]


def _bases(node: ast.ClassDef, module: str) -> list[tuple[ast.ClassDef, str]]:
    """The classes of Tideline's that a class is made of, nearest first."""
    found = []
    for base in node.bases:
        base = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
            # `documents.Collection` after `from tideline import documents`
            there = _found(f"tideline.{base.value.id}", base.attr)
        elif isinstance(base, ast.Name):
            there = _found(module, base.id)
        else:
            there = None
        if there is not None and isinstance(there[0], ast.ClassDef):
            found += [(there[0], there[1]), *_bases(there[0], there[1])]
    return found


# ---- what a page says ---------------------------------------------------------------------------


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, *, method: bool) -> str:
    """How a function is called, over several lines when it is long."""
    given = node.args
    names = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(names) - len(given.defaults)) + list(given.defaults)
    shown = [_argument(a, d) for a, d in zip(names, defaults, strict=True)][1 if method else 0 :]
    if given.vararg:
        shown.append("*" + _argument(given.vararg, None))
    elif given.kwonlyargs:
        shown.append("*")
    shown += [_argument(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        shown.append("**" + _argument(given.kwarg, None))
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    before = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    line = f"{before}{name}({', '.join(shown)}){result}"
    if len(line) <= 76:
        return line
    return f"{before}{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){result}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {ast.unparse(argument.annotation)}"
    if default is not None:
        text += f"{' = ' if argument.annotation is not None else '='}{ast.unparse(default)}"
    return text


def said(docstring: str | None, parameters: set[str] | None = None) -> str:
    """A docstring as Markdown: parameters as a list, sessions as code."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    out: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        named = re.match(r"^(\w+(?:, \w+)*): (.*)$", line)
        if line.startswith(">>>"):
            end = at
            while end < len(lines) and lines[end].strip():
                end += 1
            out += ["```pycon", *lines[at:end], "```"]
            at = end
        elif named and all(each in (parameters or ()) for each in named[1].split(", ")):
            names = ", ".join(f"`{each}`" for each in named[1].split(", "))
            if out and out[-1].strip() and not out[-1].startswith(("- ", "  ")):
                out.append("")
            out.append(f"- {names}: {named[2]}")
            at += 1
            while at < len(lines) and lines[at].startswith(" "):
                out.append(f"  {lines[at].strip()}")
                at += 1
        elif line.startswith("    ") and (not out or not out[-1].strip()):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            out += ["```text", *inspect.cleandoc("\n".join(lines[at:end])).splitlines(), "```", ""]
            at = end
        else:
            out.append(line)
            at += 1
    text = re.sub(r"\(docs/([\w/.-]+\.md)\)", r"([\1](../../\1))", "\n".join(out))
    return re.sub(r"\[(?:[\w-]+/)*([\w-]+)\.md\]", lambda m: f"[{m[1]}]", text)


def _is_value(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(each) for each in node.decorator_list)


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, shown: str, level: int, owner: str
) -> str:
    given = node.args
    names = {a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    head = f"{'#' * level} {shown}\n\n"
    if _is_value(node):
        kind = f": {ast.unparse(node.returns)}" if node.returns is not None else ""
        return f"{head}`{shown}{kind}`\n\n{said(ast.get_docstring(node))}\n\n"
    is_bound = bool(owner) and "staticmethod" not in map(ast.unparse, node.decorator_list)
    call = signature(node, f"{owner}.{shown}" if owner and level > 2 else shown, method=is_bound)
    return f"{head}```python\n{call}\n```\n\n{said(ast.get_docstring(node), names)}\n\n"


def _class(node: ast.ClassDef, module: str) -> str:
    bases = _bases(node, module)
    text = f"## {node.name}\n\n{said(ast.get_docstring(node))}\n\n"
    lines = [node, *(base for base, _ in bases)]
    fields: dict[str, str] = {}
    members: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for each in reversed(lines):
        body = each.body
        for statement, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                if name.startswith("_"):
                    continue
                note = ""
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    note = " ".join(inspect.cleandoc(str(after.value.value)).split())
                kind = ast.unparse(statement.annotation)
                fields[name] = f"| `{name}` | `{kind}` | {note} |\n"
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                overloads = "overload" in map(ast.unparse, statement.decorator_list)
                if not statement.name.startswith("_") and not overloads:
                    members[statement.name] = statement
    made = next(
        (s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"), None
    )
    public = re.search(r"Made by|makes one|made by|handle", ast.get_docstring(node) or "") is None
    if made is not None and public and not bases:
        text += f"```python\n{signature(made, node.name, method=True)}\n```\n\n"
        text += f"{said(ast.get_docstring(made))}\n\n"
    if fields:
        text += "| | | |\n|---|---|---|\n" + "".join(fields.values()) + "\n"
    # What a class says itself comes first, in its order; then what it inherits.
    order = [n for each in lines for s in each.body if (n := getattr(s, "name", None)) in members]
    for name in sorted(dict.fromkeys(order), key=lambda name: _is_value(members[name])):
        if ast.get_docstring(members[name]) is not None:
            owner = CALLED.get(node.name, node.name.lower())
            text += _function(members[name], name, 3, owner)
    return text


def definition(name: str) -> tuple[Named, str]:
    """Where a public name such as `tideline.spark.match` is written."""
    module, _, last = name.rpartition(".")
    found = _found(module, last)
    if found is None:
        raise LookupError(f"{name} is nowhere in src/: scripts/site_pages/python.py lists it")
    return found


def summary(node: Named) -> str:
    """The first sentence of a docstring."""
    first = inspect.cleandoc(ast.get_docstring(node) or "").split("\n\n")[0]
    return re.sub(":$", ".", re.split(r"(?<=[.:])\s", " ".join(first.split()))[0])


def types() -> str:
    """The names that stand for types in signatures: assignments with a docstring behind them."""
    rows = ""
    for module in ("tideline.protocols.given", "tideline.clock"):
        tree = _tree(module)
        assert tree is not None
        for node, after in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(node, ast.AnnAssign):
                target: ast.expr = node.target
            elif isinstance(node, ast.Assign):
                target = node.targets[0]
            else:
                continue
            if not isinstance(after, ast.Expr) or not isinstance(after.value, ast.Constant):
                continue
            name = ast.unparse(target)
            if name[0].isupper() and not name.isupper() and node.value is not None:
                note = " ".join(str(after.value.value).split())
                rows += f"| `{name}` | {note} | `{ast.unparse(node.value)}` |\n"
    return "\n## Types in signatures\n\n| | | |\n|---|---|---|\n" + rows


def pages() -> dict[str, str]:
    """A page for each group of names, and the list of them."""
    made = {}
    listed = (
        "# Python\n\nEvery public name, from its docstring. The examples run in the tests. What is "
        "told of a channel, a collection or a window holds for a folder in this process and for a "
        "server, and with `await` for both in an event loop "
        "([the differences](../../guide/async.md)).\n"
    )
    for stem, (title, lead, names) in PAGES.items():
        text = f"# {title}\n\n{lead}\n\n"
        listed += f"\n## {title}\n\n| | |\n|---|---|\n"
        for name in names:
            node, module = definition(name)
            last = name.rpartition(".")[2]
            anchor = last.lower()
            shown = name.removeprefix("tideline.") if name.count(".") > 1 else last
            listed += f"| [`{shown}`]({stem}.md#{anchor}) | {summary(node)} |\n"
            if isinstance(node, ast.ClassDef):
                text += _class(node, module)
            else:
                text += _function(node, last, 2, "")
        made[f"reference/python/{stem}.md"] = text
    return made | {"reference/python/index.md": listed + types()}
