"""What a run would find now: the source's files, the channel, how far an earlier run got.

    preflight(config)       raises what a run would refuse because of it, with the line
    surroundings(config)    what is there, in sentences

Looks at files only: the store is not opened, and another process may have it open. What a server
has is known only to a run.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tideline.errors import InvalidRequest
from tideline.lsm.folder import check_no_strangers
from tideline.lsm.manifest import Manifest
from tideline.space import Flat, space_from_spec
from tideline.spark.pipeline.check import check_space, space_of
from tideline.spark.pipeline.config import FILES, Config, Problems
from tideline.spark.pipeline.counts import COUNTS

__all__ = ["preflight", "surroundings"]


def preflight(config: Config) -> None:
    """Raise what a run that is passed no database would refuse."""
    problems = Problems(config.file, config.lines)
    store = config.store
    folder = config.store_folder
    if folder is None and store.url is None:
        problems.add(("store",), "[store] needs a folder or a url, or run an open database")
    elif folder is not None:
        try:
            check_no_strangers(folder)
        except InvalidRequest as error:
            problems.add(("store", "folder"), str(error))
            problems.check()
        facts = _facts(folder, store.channel)
        wanted = space_of(config)
        if not facts:  # it is made by the first run, as the config says
            if wanted is None:
                check_space(config, Flat(), problems)
        else:
            has = space_from_spec(facts["space"])
            if wanted is not None and wanted != has:
                message = f"the channel {store.channel} has another space: {has}"
                problems.add(("store", "space"), message)
            if facts.get("layout") == "poll":
                problems.add(("store", "channel"), "a channel with layout 'poll' takes no batches")
            check_space(config, has, problems)
    problems.check()


def surroundings(config: Config) -> list[str]:
    """What a run would find now, one sentence each."""
    return [*_files(config), *_channel(config), *_progress(config)]


def _files(config: Config) -> Iterable[str]:
    if config.source.format not in FILES:
        return
    for path in config.paths:
        here = config.here(path)
        if here is None:
            continue
        found = [Path(name) for name in glob.glob(str(here))]
        files = [f for p in found for f in (p.iterdir() if p.is_dir() else [p])]
        files = [f for f in files if f.is_file() and f.name[0] not in "._"]
        size = sum(f.stat().st_size for f in files)
        if not found:
            yield f"source: there is nothing at {path}"
        else:
            yield f"source: {len(files):,} files, {size / 1e6:,.1f} MB at {path}"


def _facts(folder: Path, name: str | None) -> dict[str, Any]:
    """What the store says about the channel; nothing when there is none."""
    document = Manifest(folder / "MANIFEST").load() or {}
    channel = document.get("channels", {}).get(name)
    if channel is None:
        return {}
    manifest = Manifest(folder / "channels" / channel / "MANIFEST").load() or {}
    facts: dict[str, Any] = manifest.get("facts", {})
    return facts


def _channel(config: Config) -> Iterable[str]:
    store, folder = config.store, config.store_folder
    if folder is None:
        return
    if not (folder / "MANIFEST").exists():
        yield "store: the database is made by the first run"
        return
    if store.collection is not None:
        names = (Manifest(folder / "MANIFEST").load() or {}).get("collections", {})
        made = "is there" if store.collection in names else "is made by the first run"
        yield f"store: the collection {store.collection} {made}"
        return
    facts = _facts(folder, store.channel)
    if not facts:
        yield f"store: the channel {store.channel} is made by the first run"
        return
    kind = facts["space"]["kind"]
    yield f"store: the channel {store.channel} is there, its space is {kind}"


def _progress(config: Config) -> Iterable[str]:
    folder = config.here(config.checkpoint)
    if folder is None:
        return
    if not (folder / "pipeline.json").exists():
        yield "checkpoint: new; the source is read from its beginning"
        return
    files = [path for path in (folder / "batches").glob("*.json") if path.stem.isdigit()]
    if not files:
        yield "checkpoint: no batch is done yet"
        return
    last = json.loads(max(files, key=lambda path: int(path.stem)).read_bytes())
    totals = {name: last["before"].get(name, 0) + last[name] for name in COUNTS}
    counts = ", ".join(f"{count:,} {name}" for name, count in totals.items() if count)
    yield f"checkpoint: {last['number'] + 1:,} batches are done: {counts or 'no rows'}"
