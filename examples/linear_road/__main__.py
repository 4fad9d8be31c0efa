"""`python -m examples.linear_road`: traffic, application, picture, page, and then the verdict."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

import tideline
from examples.linear_road.answers import AnswerFiles, read_answers
from examples.linear_road.board import Board
from examples.linear_road.drive import Run, batches_of, drive
from examples.linear_road.progress import Progress
from examples.linear_road.tolls import Tolls
from examples.linear_road.validator import validate
from tideline.errors import InvalidRequest, TidelineError, Unavailable
from tideline.workload.linear_road import LinearRoad

_PORTS = 20  # tried from the first one on


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m examples.linear_road", description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    made.add_argument("-L", "--expressways", type=int, default=1, help="how many expressways")
    made.add_argument("--minutes", type=float, default=10, help="simulated; 180 is all")
    made.add_argument(
        "--start", type=float, default=60, metavar="MINUTE", help="of the three hours to begin with"
    )
    made.add_argument("--speed", type=float, default=10, help="simulated seconds in a second")
    made.add_argument("--seed", type=int, default=0, help="another one, other traffic")
    made.add_argument("--port", type=int, default=8080, help="of the page; or a free one after it")
    made.add_argument("--no-page", action="store_true", help="without a server")
    made.add_argument(
        "--folder",
        type=Path,
        help="keep database and answers there; one of a run that was killed: go on with that",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run to the end; 0 when the validator found nothing."""
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except TidelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        again = f"; the same command goes on in {options.folder}" if options.folder else ""
        print(f"\nstopped; nothing was validated{again}", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    if not 0 < options.speed <= 10_000:
        raise InvalidRequest("speed must be over 0, up to 10000", speed=options.speed)
    minutes, start = options.minutes, options.start
    if not (0 < minutes <= 180 and 0 <= start <= 180):
        raise InvalidRequest("a run is within 180 minutes", minutes=minutes, start=start)
    begin = round(start * 60)
    road = LinearRoad(options.expressways, max(1, round(minutes * 60)), options.seed, start_s=begin)
    with contextlib.ExitStack() as stack:
        folder = options.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tideline-road-")))
        elif folder.exists() and any(folder.iterdir()) and not (folder / "data").exists():
            raise InvalidRequest("the folder is not empty", folder=str(folder))
        run = _live(stack, options, road, folder)
        print(
            f"{run.reports:,} reports and {run.requests:,} requests of {minutes:g} simulated "
            f"minutes at {options.speed:g} times the speed; "
            f"the application worked {run.busy_s:.1f} s",
            flush=True,
        )
        print("checking every answer...", flush=True)
        verdict = validate(road, read_answers(folder / "answers"))
        print("\n".join(verdict.lines()))
        if options.minutes < 180:
            print("A shortened run: an L-rating is of three hours (--start 0 --minutes 180).")
        return 0 if verdict.passed else 1


def _live(
    stack: contextlib.ExitStack, options: argparse.Namespace, road: LinearRoad, folder: Path
) -> Run:  # fmt: skip
    console = Console()
    db = stack.enter_context(tideline.open(folder / "data"))
    print("compiling, and storing what cars paid in the past...", flush=True)
    Tolls.warm(road.expressways)
    app, progress = Tolls(db, road.expressways), Progress(db, road)
    run = progress.found()
    if run is None:
        print(f"{app.load(road):,} cars have a past of 69 days", flush=True)
        run = progress.begin()
    else:
        print(f"going on behind second {run.second:,}, where the run was left", flush=True)
    first = run.second + 1
    board = Board(db, app, road.expressways)
    if not options.no_page:
        _serve(stack, db, options.port)
    picture = None
    if console.is_terminal:
        picture = stack.enter_context(Live(console=console, auto_refresh=False))
    files = AnswerFiles(folder / "answers", first)

    def shown(run: Run) -> None:
        if board.write(run):
            if picture is not None:
                picture.update(board.picture(run, console.width), refresh=True)
            elif run.second % 60 == 0:
                print(board.line(run), flush=True)

    try:
        with batches_of(road, progress.known) as batches:
            progress.resume(app, run, batches)
            run = drive(
                app, batches, files, start_s=first, speed=options.speed, shown=shown,
                done=lambda run: progress.done(app, run, files), run=run,
            )  # fmt: skip
        board.write(run, last=True)
        if picture is not None:
            picture.update(board.picture(run, console.width), refresh=True)
    finally:
        files.close()
        if picture is not None:
            picture.stop()
    return run


def _serve(stack: contextlib.ExitStack, db: Any, port: int) -> str:
    try:
        from tideline.server import running
    except ModuleNotFoundError as error:
        raise Unavailable(
            "the page needs more packages: pip install 'tideline[server]'; or --no-page",
            missing=error.name,
        ) from None
    for number in range(port, port + _PORTS) if port else [0]:
        try:
            url = stack.enter_context(running(db, port=number, stop_s=2.0))
        except Unavailable:
            if number in (0, port + _PORTS - 1):
                raise
            continue
        print(f"the page is at {url}/#windows", flush=True)
        return str(url)
    raise AssertionError("unreachable")


if __name__ == "__main__":
    sys.exit(main())
