"""The page of benchmarks/side_by_side.py, written from its results; pictures in side_plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common import Results, machine_of, markdown_table
from benchmarks.side_can import ABILITIES, KILL
from benchmarks.side_common import SIZES, SYSTEMS, Size
from benchmarks.side_plots import plots
from benchmarks.side_speed import MIXES

__all__ = ["NAMES", "page", "write"]

Data = dict[str, Any]
NAMES = {
    "tideline": "Tideline", "sqlite": "SQLite", "rocksdb": "RocksDB",
    "tideline-server": "Tideline, server", "postgres": "PostgreSQL", "redis": "Redis",
    "nats": "NATS JetStream",
}  # fmt: skip


def write(results: Results) -> list[Path]:
    """Write side-by-side.md and its pictures."""
    path = results.folder / "side-by-side.md"
    path.write_text(page(results.parts))
    return [path, *plots(results)]


def page(parts: Data) -> str:
    """The results as Markdown; a part that was not run is left out."""
    sections = {
        "speed": ("Operations a second", speed), "single": ("One operation in a call", single),
        "growth": ("As live subscriptions grow", growth), "room": ("Memory and disk", room),
        "can": ("What each can do", can),
    }  # fmt: skip
    text = [
        "# Side by side\n\nWritten by `python benchmarks/side_by_side.py`; what was compared and "
        "how is told in docs/peers.md. Systems in the process are called as a library, servers "
        "over a socket of the same machine; a system is compared with the Tideline of its own "
        "kind.\n"
    ]
    for name, (title, table) in sections.items():
        if name not in parts:
            continue
        part = parts[name]
        data = part["data"]
        keys = [key for key in SYSTEMS if key in data["versions"]]
        # JSON keeps no order of ours: systems as they are listed, and the mixes.
        order = list(MIXES) if name == "speed" else keys
        systems = {key: data["systems"][key] for key in order if key in data["systems"]}
        text.append(f"## {title}\n\n{table(systems, SIZES[data['size']])}")
        absent = [f"{NAMES[key]}: {why}." for key, why in data["missing"].items()]
        if absent:
            text.append(" ".join(absent) + "\n")
        machine = machine_of(part)
        versions = ", ".join(data["versions"][key] for key in keys if key != "tideline-server")
        text.append(
            f"Size {data['size']}. {versions}. Commit {part['commit']}, {part['date']}; "
            f"{machine}.\n"
        )
    return "\n".join(text)


def _ratio(systems: Data, key: str, value: float, of: str = "operations_per_s") -> str:
    """Tideline of the same kind, in times of this system."""
    base = "tideline" if SYSTEMS[key].where == "in-process" else "tideline-server"
    if key == base:
        return "1"
    if base not in systems or not value or not systems[base].get(of):
        return ""
    return f"{systems[base][of] / value:.1f}"


def _same(one: Data) -> str:
    return str(one["verdict"]["text"] if one["verdict"]["rows"] else "none compared")


# ---- the parts ---------------------------------------------------------------------------------


def speed(data: Data, size: Size) -> str:
    """Two tables, one a mix."""
    text = [
        f"Operations of the tweet-like workload at {size.rate:,} a second of channel time; filled "
        f"with {size.warm:,} operations first (at most {size.warm_s:.0f} s), then timed by turns "
        f"in {size.rounds} rounds, for {size.speed_s:.0f} s or {size.operations:,} operations "
        "each, whichever came first. `times` is how many times as fast the Tideline of the same "
        "kind is. Every answer is compared with embedded Tideline's.\n"
    ]
    for mix, all_of_it in data.items():
        systems = {key: all_of_it[key] for key in SYSTEMS if key in all_of_it}
        rows = []
        notes = []
        for key, one in systems.items():
            rate = one["operations_per_s"]
            turns = one["turns"] or [0.0]
            rows.append([
                NAMES[key], one["where"], f"{rate:,.0f}", _ratio(systems, key, rate),
                f"{min(turns):,.0f} to {max(turns):,.0f}", f"{one['operations']:,}",
                f"{one['answers_per_operation']:.1f}", _same(one),
            ])  # fmt: skip
            if one.get("by_clock"):
                notes.append(
                    f"{NAMES[key]} follows the wall clock: it ran alone, not filled first, on the "
                    "same operations, each happening when it was sent; so fewer live at once, and "
                    "answers are fewer."
                )
            elif one["warm"] < size.warm:
                notes.append(f"{NAMES[key]} was filled with {one['warm']:,} only.")
            if one["failed"]:
                notes.append(f"{NAMES[key]} {one['failed']}.")
        head = ["system", "where", "operations/s", "times", "by turns", "timed", "answers each"]
        events = "subscriptions to events"
        text.append(f"{mix} {events}\n\n" + markdown_table([*head, "answers"], rows))
        text.append(" ".join(notes) + "\n" if notes else "")
    return "\n".join(text) + "\n![operations a second](side-by-side-speed.png)\n"


def single(data: Data, size: Size) -> str:
    """Latencies."""
    rows = []
    for key, one in data.items():
        cells = []
        for verb in ("publish", "subscribe", "deliver"):
            if isinstance(one.get(verb), dict):
                cells += [f"{one[verb]['p50_us']:,.0f}", f"{one[verb]['p99_us']:,.0f}"]
            else:
                cells += ["", ""]
        calls = sum(one[verb]["calls"] for verb in ("publish", "subscribe") if verb in one)
        rows.append([NAMES[key], SYSTEMS[key].where, *cells, f"{calls:,}", _same(one)])
    head = ["system", "where", "publish p50 us", "p99 us", "subscribe p50 us", "p99 us"]
    head += ["delivered p50 us", "p99 us", "calls"]
    failed = [f"{NAMES[key]} {one['failed']}." for key, one in data.items() if one["failed"]]
    return (
        "3 subscriptions to 1 event, one caller, the answers looked at; all systems filled alike, "
        "then blocks of calls by turns. `delivered` is from the call of publish until a subscriber "
        "has the event (over a socket: on a connection of its own), one at a time.\n\n"
        + markdown_table([*head, "answers"], rows)
        + (" ".join(failed) + "\n" if failed else "")
        + "\n![one operation](side-by-side-single.png)\n"
    )  # fmt: skip


def growth(data: Data, size: Size) -> str:
    """Operations a second at each size."""
    rows, notes = [], []
    for key, one in data.items():
        cells = []
        for wanted in size.grow:
            at = next((s for s in one["sizes"] if s["subscriptions"] == wanted), None)
            cells.append(f"{at['operations_per_s']:,.0f}" if at else "")
        last = one["sizes"][-1] if one["sizes"] else None
        if last and last["subscriptions"] not in size.grow:
            notes.append(
                f"{NAMES[key]}: {one['stopped']}; {last['operations_per_s']:,.0f} operations/s "
                "there."
            )
        elif one["stopped"]:
            notes.append(f"{NAMES[key]}: {one['stopped']}.")
        flat = ""
        if len(one["sizes"]) > 1:
            flat = f"{last['operations_per_s'] / one['sizes'][0]['operations_per_s']:.2f}"
        answers = " / ".join(f"{s['answers_per_operation']:.1f}" for s in one["sizes"])
        texts = [s["verdict"]["text"] for s in one["sizes"]]
        same = next((text for text in texts if text != "the same"), "the same" if texts else "")
        load = f"{last['load_s']:.0f}" if last else ""
        rows.append([NAMES[key], SYSTEMS[key].where, *cells, flat, load, answers, same])
    head = ["system", "where", *(f"{n:,} live" for n in size.grow)]
    head += ["largest to smallest", "load s", "answers each", "answers"]
    return (
        "Operations/s of 1 event to 1 subscription at random places, ten live subscriptions a "
        f"place. Loading may take {size.load_s:,.0f} s in all. `largest to smallest` is 1 when "
        "speed is flat.\n\n" + markdown_table(head, rows)
        + ("\n" + " ".join(notes) + "\n" if notes else "")
        + "\n![growth](side-by-side-growth.png)\n"
    )  # fmt: skip


def room(data: Data, size: Size) -> str:
    """Memory and disk."""
    rows, failed = [], []
    for key, one in data.items():
        if "failed" in one:
            failed.append(f"{NAMES[key]}: {one['failed']}.")
            continue
        left = [f"{one[name]:,.0f}" if name in one else "" for name in ("left_mb", "left_disk_mb")]
        rows.append([
            NAMES[key], SYSTEMS[key].where, f"{one['subscriptions']:,} + {one['events']:,}",
            f"{one['start_mb']:,.0f}", f"{one['mb']:,.0f}",
            f"{one['bytes_per_subscription']:,.0f}", f"{one['bytes_per_event']:,.0f}",
            f"{one['disk_mb']:,.0f}", *left,
        ])  # fmt: skip
    head = ["system", "where", "subscriptions + events", "MB at start", "MB then"]
    head += ["bytes a subscription", "bytes an event", "disk MB", "MB left", "disk MB left"]
    return (
        "Live records, bodies of 100 bytes. Memory is what cannot be given back without writing "
        "it: anonymous and shared pages of the system's processes (in-process: of the whole "
        "process, with Python). Disk is what files take beyond an empty store's. `left` is what "
        "is there beyond the start when everything has expired.\n\n" + markdown_table(head, rows)
        + (" ".join(failed) + "\n" if failed else "") + "\n"
    )  # fmt: skip


def can(data: Data, size: Size) -> str:
    """What was tried, and why not."""
    tried = {name for one in data.values() for name in one}
    abilities = [name for name in (*ABILITIES, KILL) if name in tried]
    rows, why = [], []
    for key, one in data.items():
        rows.append([NAMES[key], *(one[name].partition(":")[0] for name in abilities)])
        for name in abilities:
            verdict, _, facts = one[name].partition(": ")
            if facts:
                why.append(f"- {NAMES[key]}, {name}: {verdict}: {facts}")
    return (
        "Each tried by a scenario of its own: yes, no (it has no way or fails), or wrong (it "
        "answers, but not what was due).\n\n" + markdown_table(["system", *abilities], rows)
        + "\n" + "\n".join(why) + "\n"
    )  # fmt: skip
