"""`tideline demo`: traffic over New York State into a server, live on a page; Spark joins in.

    traffic of this process ------------------------> channel `roads` <- server <- page, desks
    format `traffic` -> pipeline on Spark -> server ------^                        terminal

Drivers, as they move, ask about the circle around them: what happened there in the last ten
minutes that they were not told yet, and what happens until they ask again. Incidents appear
beside the roads. In Midtown Manhattan, where the page begins, 60 couriers ask about the streets
around them (workload/manhattan.py). Desks in some towns are clients of the server and hear of all
around them over its WebSocket. Beside them some hundred orders change all the time (orders.py), for
the live tables; what is sold goes into a stream window. Places open and close (places.py), for the
search box of the map.
Everything is real: the database has its log on, in a temporary folder.

Half of the drivers start at once, in this process (traffic.py). The other half comes through Spark
when that is up (spark_feed.py): it cleans, deduplicates and places the rows and stores them by the
server. Without pyspark or Java this process drives them too. Both make no more traffic than the
machine keeps up with. The page and the terminal say what Spark does.

Nothing a visitor sends ends the demo. Ctrl-C, SIGTERM and the end of its time do, within seconds
(ending.py).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

import tideline
from tideline.cli.ending import Ending
from tideline.cli.orders import Orders
from tideline.cli.places import Places
from tideline.cli.spark_feed import SparkFeed
from tideline.cli.story import Story
from tideline.cli.traffic import Traffic
from tideline.cli.warm import warm_up
from tideline.errors import Conflict, InvalidRequest, TidelineError, Unavailable
from tideline.space import Circle, QuadTree
from tideline.workload.fleet import Fleet
from tideline.workload.manhattan import CENTRE, Couriers
from tideline.workload.newyork import BOUNDS, CITIES

__all__ = ["run_demo"]

_ASK_S = 5.0  # every driver asks so often, and about twice as long ahead
_JOURNAL_S = 60.0
_SPREAD_M = 3_000.0
_DESKS = ("New York", "Albany", "Syracuse", "Buffalo", "Binghamton")
_DESK_M = 110_000.0
_START = {"channel": "roads", "at": list(CENTRE), "radius_m": 1_000, "across_m": 3_600,
          "name": "Midtown Manhattan"}  # fmt: skip
_PORTS = 20  # tried from the first one on
_STOP_S = 2.0  # for what is still being sent when the server stops
_AGAIN_S = 1.0  # until a desk that was cancelled asks again


def run_demo(
    *, seconds: float | None, drivers: int, incidents_s: float, radius_m: float, seed: int,
    port: int, browser: bool, with_spark: bool = True,
) -> None:  # fmt: skip
    """Run until `seconds` are over, Ctrl-C or SIGTERM, then print a summary."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise InvalidRequest("seconds must be over 0", seconds=seconds)
    whole = Fleet(
        drivers=drivers, drivers_s=drivers / _ASK_S, incidents_s=incidents_s, radius_m=radius_m,
        ahead_s=2 * _ASK_S, spread_m=_SPREAD_M, seed=seed,
    )  # fmt: skip
    ours, sparks = _halves(whole)
    console = Console()
    with Ending() as ending, contextlib.ExitStack() as stack:
        warm_up(quiet=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tideline-demo-")))
        ending.folder = folder
        database = stack.enter_context(tideline.open(folder / "data"))
        _roads(database)
        said: list[Callable[[], str]] = [lambda: ""]
        url = _serve(stack, database, port, lambda: said[0]())
        traffic = Traffic(lambda: _roads(database), ours)
        traffic.add(Couriers(seed=seed))
        stack.callback(traffic.stop)
        traffic.start()
        orders = Orders(database, seed)
        stack.callback(orders.stop)
        orders.start()
        places = Places(database, seed)
        stack.callback(places.stop)
        places.start()
        spark = _spark(stack, url, folder, sparks, traffic)
        ending.kill = spark.kill
        story = _story(stack, database, drivers, url, traffic, spark, ending.stop)
        said[0] = story.status
        ending.running = True
        if with_spark:
            spark.start()
        else:
            spark.decline("the demo was started without it")
        if browser:
            _open_browser(url)
        _show(console, story, ending.stop, seconds)
        story.end()
        ending.begin()
        traffic.stop()
        spark.stop()
        print(story.summary(), flush=True)


def _halves(whole: Fleet) -> tuple[Fleet, Fleet]:
    """Those that start at once, and those that come through Spark."""
    first = max(1, whole.drivers // 2)
    parts = [
        replace(
            whole, drivers=drivers, drivers_s=drivers / _ASK_S, incidents_s=whole.incidents_s / 2,
            seed=whole.seed + number,
        )
        for number, drivers in enumerate((first, max(1, whole.drivers - first)))
    ]  # fmt: skip
    return parts[0], parts[1]


def _roads(database: Any) -> Any:
    """The demo's channel. It is the demo's: what a visitor put in its place goes."""
    made: dict[str, Any] = {"space": QuadTree(bounds=BOUNDS, depth=9), "journal_s": _JOURNAL_S}
    try:
        return database.channel("roads", **made)
    except Conflict:
        drop = "drop_collection" if "roads" in database.collections() else "drop_channel"
        getattr(database, drop)("roads")
        return database.channel("roads", **made)


def _serve(
    stack: contextlib.ExitStack, database: Any, port: int, status: Callable[[], str]
) -> str:  # fmt: skip
    """The server, at the port or the next one that is free."""
    try:
        from tideline.server import running
    except ModuleNotFoundError as error:
        raise Unavailable(
            "the demo needs more packages: pip install 'tideline[server]'", missing=error.name
        ) from None
    log = logging.getLogger("tideline.server")  # of visitors' mistakes nothing in the terminal
    stack.callback(log.setLevel, log.level)
    log.setLevel(logging.ERROR)
    for number in range(port, port + _PORTS) if port else [0]:
        try:
            url = stack.enter_context(
                # Spark's rows come from one caller: as many as there may be.
                running(
                    database,
                    port=number,
                    status=status,
                    start=_START,
                    stop_s=_STOP_S,
                    rate_per_s=1e9,
                )
            )
        except Unavailable:
            if number in (0, port + _PORTS - 1):
                raise
            continue
        if number != port:
            print(f"Port {port} is in use; {number} is free.", flush=True)
        print(f"The live map is at {url}", flush=True)
        return url
    raise AssertionError("unreachable")


def _spark(
    stack: contextlib.ExitStack, url: str, folder: Path, fleet: Fleet, traffic: Traffic
) -> SparkFeed:
    """Spark's process; where there is none, this process drives its half."""
    names = ("drivers", "drivers_s", "incidents_s", "radius_m", "ahead_s", "spread_m", "seed")
    (folder / "spark").mkdir()
    spark = SparkFeed(
        url, folder / "spark", {name: getattr(fleet, name) for name in names},
        ended=lambda: traffic.add(replace(fleet, name="more-")),
    )  # fmt: skip
    stack.callback(spark.stop)
    return spark


def _story(
    stack: contextlib.ExitStack, database: Any, drivers: int, url: str, traffic: Traffic,
    spark: SparkFeed, stop: threading.Event,
) -> Story:  # fmt: skip
    """Those who listen to the server: the desks, and the terminal's figures."""
    from tideline.cli.figures import Figures

    figures = stack.enter_context(Figures(url, "roads"))
    remote = stack.enter_context(tideline.connect(url))
    for town in _DESKS:
        threading.Thread(target=_listen, args=(remote, town, stop), daemon=True).start()
    return Story(database, drivers, figures, traffic, spark, url)


def _listen(remote: Any, town: str, stop: threading.Event) -> None:
    """A desk: reads what is delivered, and asks again when a visitor has cancelled its question."""
    around = Circle(CITIES[town][:2], radius_m=_DESK_M)
    while not stop.is_set():
        with contextlib.suppress(TidelineError):
            for _ in remote.channel("roads").subscribe(around, user=f"desk {town}"):
                pass
        stop.wait(_AGAIN_S)


def _show(
    console: Console, story: Story, stop: threading.Event, seconds: float | None
) -> None:  # fmt: skip
    """Show the story until it is told to stop, or its time is over."""
    pretty = console.is_terminal and os.environ.get("TERM") != "dumb"
    every_s = 0.25 if pretty else 1.0
    with contextlib.ExitStack() as stack:
        live = None
        if pretty:
            live = stack.enter_context(Live(console=console, auto_refresh=False, transient=True))
        while not stop.is_set():
            if live is not None:
                live.update(story.table(console.width), refresh=True)
            else:
                print(story.line(), flush=True)
            left = math.inf if seconds is None else seconds - story.elapsed_s
            if left <= 0:
                return
            stop.wait(min(every_s, left))


def _open_browser(url: str) -> None:
    """Show the page where there is a screen and a browser; otherwise do nothing."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(url)
