"""`tideline demo`: traffic over New York State through Spark into a server, live on a page.

    format `traffic` -> pipeline on Spark -> channel `roads` <- server <- page, desks, terminal

Drivers, as they move, ask about the circle around them: what happened there in the last ten
minutes that they were not told yet, and what happens until they ask again. Incidents appear
beside the roads. Spark reads both as a stream, cleans, deduplicates and places the rows; the
store matches them. Desks in some towns are clients of the server and hear of all around them
over its WebSocket. Everything is real: the database has its log on, in a temporary folder.

The terminal shows the page's figures: a live table, or (a pipe, TERM=dumb) a plain line a second.
Everything is one process with Spark's below it; when it ends, all of it does.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live

import tideline
from tideline.cli.warm import warm_up
from tideline.errors import InvalidRequest, TidelineError, Unavailable
from tideline.space import Circle, QuadTree
from tideline.workload.newyork import BOUNDS, CITIES

if TYPE_CHECKING:
    from tideline.cli.story import Story

__all__ = ["run_demo"]

_EVERY_S = 0.5  # how often Spark looks for what has happened
_ASK_S = 5.0  # every driver asks so often, and about twice as long ahead
_JOURNAL_S = 60.0
_SPREAD_M = 3_000.0
_DESKS = ("New York", "Albany", "Syracuse", "Buffalo", "Binghamton")
_DESK_M = 110_000.0
_PORTS = 20  # tried from the first one on


def run_demo(
    *, seconds: float | None, drivers: int, incidents_s: float, radius_m: float, seed: int,
    port: int, browser: bool,
) -> None:  # fmt: skip
    """Run until `seconds` are over or Ctrl-C, then print a summary."""
    from tideline.workload.fleet import Fleet

    if seconds is not None and not 0 < seconds < math.inf:
        raise InvalidRequest("seconds must be over 0", seconds=seconds)
    options: dict[str, Any] = {
        "drivers": drivers, "drivers_s": drivers / _ASK_S, "incidents_s": incidents_s,
        "radius_m": radius_m, "ahead_s": 2 * _ASK_S, "spread_m": _SPREAD_M, "seed": seed,
    }  # fmt: skip
    Fleet(**options)  # refuses wrong numbers before Spark starts
    console = Console()
    warm_up(quiet=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tideline-demo-"))
        database = stack.enter_context(tideline.open(Path(folder) / "data"))
        space = QuadTree(bounds=BOUNDS, depth=9)
        roads = database.channel("roads", space=space, journal_s=_JOURNAL_S)
        url = _serve(stack, database, port)
        story = _story(stack, roads, drivers, url)
        _stream(database, folder, options, story, console, seconds, url if browser else None)
        summary = story.summary()
    print(summary, flush=True)


def _serve(stack: contextlib.ExitStack, database: Any, port: int) -> str:
    """The server, at the port or the next one that is free."""
    try:
        from tideline.server import running
    except ModuleNotFoundError as error:
        raise Unavailable(
            "the demo needs more packages: pip install 'tideline[server]'", missing=error.name
        ) from None
    for number in range(port, port + _PORTS) if port else [0]:
        try:
            url = stack.enter_context(running(database, port=number))
        except Unavailable:
            if number in (0, port + _PORTS - 1):
                raise
            continue
        if number != port:
            print(f"Port {port} is in use; {number} is free.", flush=True)
        print(f"The live map is at {url}", flush=True)
        return url
    raise AssertionError("unreachable")


def _story(stack: contextlib.ExitStack, roads: Any, drivers: int, url: str) -> Story:
    """Those who listen to the server: the desks, and the terminal's figures."""
    from tideline.cli.figures import Figures
    from tideline.cli.story import Story

    figures = stack.enter_context(Figures(url, "roads"))
    remote = stack.enter_context(tideline.connect(url))
    for town in _DESKS:
        around = Circle(CITIES[town][:2], radius_m=_DESK_M)
        asked = remote.channel("roads").subscribe(around, user=f"desk {town}")
        threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    return Story(roads, drivers, figures, url)


def _listen(asked: Any) -> None:
    """Read what is delivered, until the connection is closed."""
    with contextlib.suppress(TidelineError):
        for _ in asked:
            pass


def _stream(
    database: Any, folder: str, options: dict[str, Any], story: Story, console: Console,
    seconds: float | None, page: str | None,
) -> None:  # fmt: skip
    """The pipeline, from the format `traffic` into the channel, until told to stop."""
    from tideline.spark import session
    from tideline.spark.pipeline import Pipeline
    from tideline.spark.pipeline.run import Watch
    from tideline.spark.traffic import TrafficSource

    pipeline = Pipeline(_config(folder, options))
    pretty = console.is_terminal and os.environ.get("TERM") != "dumb"

    class Screen(Watch):
        """Shows the story; stops the pipeline when its time is over."""

        shown = 0.0
        opened = page is None

        def tick(self) -> None:
            if not story.started:
                return
            if not self.opened:  # there is something to see from now on
                self.opened = True
                _open_browser(str(page))
            if seconds is not None and story.elapsed_s >= seconds:
                pipeline.stop()
            if time.perf_counter() - self.shown < (0.25 if pretty else 1.0):
                return
            self.shown = time.perf_counter()
            if pretty:
                live.update(story.table(console.width), refresh=True)
            else:
                print(story.line(), flush=True)

    with Live(console=console, auto_refresh=False, transient=True) if pretty else _Quiet() as live:
        if pretty:
            live.update("Spark starts, which takes some seconds ...", refresh=True)
        else:
            print("Spark starts, which takes some seconds ...", flush=True)
        spark = session(app="tideline demo")
        spark.dataSource.register(TrafficSource)
        traffic = spark.readStream.format("traffic").options(**options).load()
        try:
            pipeline.run(
                database, spark=spark, source=traffic, on_batch=story.batch, watch=Screen()
            )
        finally:
            with _patience():
                spark.stop()


def _open_browser(url: str) -> None:
    """Show the page where there is a screen and a browser; otherwise do nothing."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(url)


def _config(folder: str, options: dict[str, Any]) -> dict[str, Any]:
    """The pipeline, as a TOML file would say it."""
    return {
        "name": "demo",
        "source": {"format": "traffic", "options": options},
        "parse": {"format": "columns"},
        "clean": {
            "id": {"required": True},
            "at": {"required": True},
            "lon": {"min": BOUNDS[0], "max": BOUNDS[2]},
            "lat": {"min": BOUNDS[1], "max": BOUNDS[3]},
        },
        "place": {"point": ["lon", "lat"], "radius_m": "radius_m"},
        "deduplicate": {"by": ["id"], "within_s": 30},
        "operation": {
            "op_column": "op", "id": "id", "at": "at", "since": "since", "until": "until",
            "user": "user", "body_json": "body", "unseen": "unseen",
        },
        "store": {"channel": "roads"},
        "run": {"checkpoint": str(Path(folder) / "checkpoint"), "every_s": _EVERY_S},
    }  # fmt: skip


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Ctrl-C pressed again while Spark ends does not cut the summary off."""
    with contextlib.suppress(KeyboardInterrupt):
        yield


class _Quiet:
    """Stands in for the live table where there is no terminal."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None
