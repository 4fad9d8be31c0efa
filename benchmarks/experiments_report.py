"""The page of benchmarks/experiments.py, written from its results."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import experiments_plots
from benchmarks.common import Results, machine_of, markdown_table

__all__ = ["page", "write"]

_TITLES = {
    "simple": "Simple subscriptions (figures 10 and 11)",
    "selfjoin": "Self-joining subscriptions (figures 12 and 13)",
    "hierarchy": "Hierarchy (figures 14 to 17)",
    "reads": "Component reads per operation (tables 3 and 4)",
    "beyond": "Windows larger than memory",
}
_RETURNED = ["dual, call us", "two, call us", "two / dual, call"]
_VERBS = {"all": "any", "subscribe": "subscribe", "publish": "publish"}


def write(results: Results) -> list[Path]:
    """Write experiments.md and the pictures."""
    written = [results.folder / "experiments.md"]
    written[0].write_text(page(results.parts))
    return written + experiments_plots.plots(results)


def page(parts: dict[str, Any]) -> str:
    """The results as Markdown; a part that was not run is left out."""
    tables = {
        "simple": _simple, "selfjoin": _selfjoin, "hierarchy": _hierarchy, "reads": _reads,
        "beyond": _beyond,
    }  # fmt: skip
    text = [
        "# The experiments with channels\n\nWritten by `python benchmarks/experiments.py`. "
        "What holds of the papers' claims: [docs/experiments.md](../../docs/experiments.md).\n"
    ]
    for name, table in tables.items():
        if name in parts:
            part = parts[name]
            machine = machine_of(part)
            when = f"Size {part['data']['size']}. Commit {part['commit']}, {part['date']}"
            text.append(f"## {_TITLES[name]}\n\n{table(part['data'])}\n{when}; {machine}.\n")
    return "\n".join(text)


# ---- simple and self-join ---------------------------------------------------------------------


def _run(run: dict[str, Any]) -> str:
    text = (
        f"{run['sections']} sections of {run['operations']:,} operations, {run['rate']:,} a second"
    )
    if run["memory_mb"]:
        text += f"; `memory_mb={run['memory_mb']}`, bodies of {run['body_bytes']} bytes"
    return text + ". "


def _ratios(data: dict[str, Any]) -> list[str]:
    return [ratio for ratio in ("3:1", "1:3") if ratio in data]


def _simple(data: dict[str, Any]) -> str:
    rows = []
    for ratio in _ratios(data):
        one = data[ratio]
        lines = [("any, by `apply`", one["overall"]["us"], one["overall"])]
        lines += [
            (f"{word}, by calls", one["verbs"]["us"][verb], one["verbs"])
            for verb, word in _VERBS.items()
        ]
        for number, (word, us, ratios) in enumerate(lines):
            verb = list(_VERBS)[number - 1] if number else None
            factors = [ratios[f"{name}_to_dual"] for name in ("two", "poll")]
            rows.append([
                f"{ratio} {word}",
                *(f"{median(us[name]):.2f}" for name in ("dual", "two", "poll")),
                *(f"{factor[verb] if verb else factor:.2f}x" for factor in factors),
                *(_returned(one["verbs"]["returned"], verb) if verb else ["", "", ""]),
            ])  # fmt: skip
    head = ["operation", "dual us", "two us", "poll us", "two / dual", "poll / dual", *_RETURNED]
    text = (
        _run(data["run"])
        + "Microseconds an operation, the median section; ratios are taken inside "
        "a section. By `apply`: batches of 10,000 to Arrow tables, where `poll` runs row by row in "
        "Python. By calls: `publish` and `subscribe` one by one, timed until the answers are "
        "objects; a subscription of `poll` includes its polls. The last columns are these calls "
        "timed until they came back, with their answers found but not yet made objects.\n\n"
    )
    text += markdown_table(head, rows)
    for ratio in _ratios(data):
        overall, verbs = data[ratio]["overall"], data[ratio]["verbs"]
        text += (
            f"\n{ratio}: {overall['answers_per_operation']:.1f} answers an operation, "
            f"{verbs['polls_per_subscription']:.1f} polls a subscription. Answers of dual and two "
            f"{_same(overall['same'] and verbs['same'])}, of poll after its last polls "
            f"{_same(verbs['same_polled'])}. At the end {_held(overall['held'])}.\n"
        )
    return text


def _selfjoin(data: dict[str, Any]) -> str:
    rows = [
        [
            f"{ratio} {word}",
            *(f"{median(data[ratio]['us'][verb][name]):.2f}" for name in ("dual", "two")),
            f"{data[ratio]['two_to_dual'][verb]:.2f}x",
            *_returned(data[ratio]["returned"], verb),
        ]
        for ratio in _ratios(data)
        for verb, word in _VERBS.items()
    ]
    text = (
        _run(data["run"]) + "By single calls: `publish(..., related=True)` and "
        "`subscribe(..., unseen=True)`.\n\n"
        + markdown_table(["operation", "dual us", "two us", "two / dual", *_RETURNED], rows)
    )
    for ratio in _ratios(data):
        one = data[ratio]
        text += (
            f"\n{ratio}: {one['answers_per_operation']:.1f} answers an operation, "
            f"{one['related_per_event']:.1f} related events an event. Answers "
            f"{_same(one['same'])}, related events {_same(one['same_related'])}. "
            f"At the end {_held(one['held'])}.\n"
        )
    return text


def _returned(data: dict[str, Any], verb: str) -> list[str]:
    us = [f"{median(data['us'][verb][name]):.2f}" for name in ("dual", "two")]
    return [*us, f"{data['two_to_dual'][verb]:.2f}x"]


def _same(same: bool) -> str:
    return "the same" if same else "**WRONG: not the same**"


def _held(held: dict[str, Any]) -> str:
    return "; ".join(
        f"{name}: {one['components']} components, {one['memory_mb']:.0f} MB in memory, "
        f"{one['disk_mb']:.0f} MB sealed"
        for name, one in held.items()
    )


# ---- hierarchy --------------------------------------------------------------------------------


def _hierarchy(data: dict[str, Any]) -> str:
    run = data["run"]
    text = (
        f"{run['sections']} sections of {run['operations']:,} operations, {run['rate']} a second, "
        "as many subscriptions as events. Microseconds an operation, all its copies together.\n"
    )
    for what in ("levels", "circles"):
        text += f"\n### {what.capitalize()}\n\n" + _granularity(data[what])
    return text


def _granularity(one: dict[str, Any]) -> str:
    verbs = one["verbs"]
    ways = list(verbs["us"]["all"])
    rows = []
    if "overall" in one:
        us = one["overall"]["us"]
        factor = one["overall"]["fixed_to_variable"]
        rows.append(["any, by `apply`", *(f"{median(us[w]):.1f}" for w in ways), f"{factor:.1f}x"])
    for verb, word in _VERBS.items():
        us = verbs["us"][verb]
        factor = verbs["fixed_to_variable"][verb]
        rows.append(
            [f"{word}, by calls", *(f"{median(us[w]):.1f}" for w in ways), f"{factor:.1f}x"]
        )
    for group in verbs["by"]:
        name = f"level {group['level']}" if "level" in group else f"radius {group['radius']:g} R"
        us = {way: group["us"][way]["all"] for way in ways}
        factor = us["fixed"] / us["variable"] if us["variable"] else 0
        rows.append([f"{name}, by calls", *(f"{us[w]:.1f}" for w in ways), f"{factor:.1f}x"])
    text = markdown_table(["operation", *(f"{way} us" for way in ways), "fixed / variable"], rows)
    right = verbs["as_they_must"]
    if "overall" in one:
        overall = one["overall"]
        right = right and overall["as_they_must"]
        answers = ", ".join(f"{way} {overall['answers_per_operation'][way]:.1f}" for way in ways)
        pairs = ", ".join(f"{way} {overall['pairs_per_operation'][way]:.1f}" for way in ways)
        text += (
            f"\n{overall['copies_per_operation']:.1f} copies an operation with fixed. Answers an "
            f"operation: {answers}; different pairs: {pairs}."
        )
    else:
        text += f"\nComponents at the end: {verbs['components']}."
    wanted = "exact within fixed within variable" if "exact" in ways else "the same pairs"
    return (
        text + f" Answers are as they must be, {wanted}: {'yes' if right else '**WRONG: no**'}.\n"
    )


# ---- reads ------------------------------------------------------------------------------------

_FORMULAS = {
    "simple": {"subscribe": "(L + l0) + 1", "publish": "(L + l0) + 1"},
    "two": {"subscribe": "2 (L + l0) + 1", "publish": "2 (L + l0) + 1"},
    "poll": {"subscribe": "the first of 10 (L + l0)", "poll": "each of them", "publish": "1"},
}


def _reads(data: dict[str, Any]) -> str:
    rows = []
    for sort in ("simple", "selfjoin"):
        for layout, found in data[sort].items():
            for verb in ("subscribe", "poll", "publish"):
                one = found["verbs"].get(verb)
                if one is None:
                    continue
                formula = _FORMULAS.get(layout if layout == "poll" or sort == "selfjoin" else "")
                formula = (formula or _FORMULAS["simple"])[verb]
                rows.append([
                    f"{sort} {layout} {verb}", formula, f"{one['there']:.1f}",
                    f"{one['lookups']:.2f}",
                    "" if one["components"] is None else f"{one['components']:.2f}",
                    f"{one['ids']:.2f}", f"{one['clear']:.2%}",
                ])  # fmt: skip
    head = ["operation", "paper", "components there", "look-ups", "different components"]
    text = (
        _run(data["run"])
        + "3:1; counted in the last section. A write is one more, to the log. The "
        "last column is the share of operations whose different components are known exactly.\n\n"
        + markdown_table([*head, "searches for its id", "known"], rows)
    )
    for sort in ("simple", "selfjoin"):
        dual = data[sort]["dual"]
        text += (
            f"\n{sort}: {dual['mixed']} of the {dual['components']} components of dual at the end "
            "hold both sides.\n"
        )
    tree = data["hierarchy"]
    rows = [
        [
            f"level {one['level']}", f"{one['copies']}", f"{one['fixed_there']:.1f}",
            f"{one['fixed']:.1f}", f"{one['variable_there']:.1f}", f"{one['variable']:.1f}",
        ]
        for one in tree["levels"]
    ]  # fmt: skip
    head = ["operation on", "leaves", "components, fixed", "look-ups, fixed"]
    return text + (
        f"\nHierarchy (table 4: 4^d (L + l0 + 1) against C (L + l0) + 1), sealed every "
        f"{tree['sealed_every']} operations; on average {tree['mean']['fixed']:.1f} look-ups an "
        f"operation with fixed, {tree['mean']['variable']:.1f} with variable:\n\n"
        + markdown_table([*head, "components, variable", "look-ups, variable"], rows)
    )


def _beyond(data: dict[str, Any]) -> str:
    text = "### Simple\n\n" + _simple(data["simple"])
    text += "\n### Self-join\n\n" + _selfjoin(data["selfjoin"])
    for what in ("levels", "circles"):
        text += f"\n### {what.capitalize()}, sealed every 50 operations\n\n"
        text += _granularity(data["hierarchy"][what])
    return text
