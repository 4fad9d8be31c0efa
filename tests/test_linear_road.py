"""Linear Road, all of it: the rules by hand, a run that the validator passes, and answers that it
does not: changed, dropped, invented, doubled, late and early."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tideline
from examples.linear_road.answers import AnswerFiles, read_answers
from examples.linear_road.board import Board
from examples.linear_road.drive import Run, drive, prepare, prepared
from examples.linear_road.progress import Progress
from examples.linear_road.tolls import Tolls
from examples.linear_road.validator import KEYS, VALUES, Verdict, compare, expected, validate
from tideline.errors import InvalidRequest
from tideline.workload.linear_road import SCHEMA, LinearRoad

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, int]


# ---- the rules, by hand ------------------------------------------------------------------------


def report(time: int, vid: int, seg: int, **more: int) -> Row:
    row = {"type": 0, "time": time, "vid": vid, "speed": 30, "xway": 0, "lane": 1, "dir": 0,
           "seg": seg, "pos": seg * 5_280 + vid % 5_000, "qid": -1, "day": -1}  # fmt: skip
    return row | more


def asks(time: int, vid: int, qid: int, kind: int = 2, day: int = -1) -> Row:
    return report(time, vid, 0, type=kind, qid=qid, day=day)


def both(rows: list[Row]) -> dict[str, list[tuple[int, ...]]]:
    """What the application answers; the validator must ask for the same."""
    road = LinearRoad(1, 10_800, seed=3)
    batches = [
        pa.RecordBatch.from_pylist([row for row in rows if row["time"] == time], SCHEMA)
        for time in sorted({row["time"] for row in rows})
    ]
    wanted, _ = expected(batches, road)
    given: dict[str, list[tuple[int, ...]]] = {kind: [] for kind in KEYS}
    with tideline.open(":memory:") as db:
        app = Tolls(db, 1)
        app.load(LinearRoad(1, 2, seed=3))
        for batch in batches:
            for kind, told in app.second(batch).items():
                names = [*KEYS[kind], *VALUES[kind]]
                given[kind] += zip(*(told[name].tolist() for name in names), strict=True)
    for kind, rows_of in given.items():
        names = [*KEYS[kind], *VALUES[kind]]
        right = list(zip(*(wanted[kind][name].tolist() for name in names), strict=True))
        assert sorted(right) == sorted(rows_of), kind
    return {kind: sorted(told) for kind, told in given.items()}


def crowd(cars: int, speed: int, seg: int = 10, time: int = 0) -> list[Row]:
    return [report(time + n % 30, 100 + n, seg, speed=speed) for n in range(cars)]


@pytest.mark.parametrize(
    ("cars", "speed", "toll"),
    [(51, 39, 2), (60, 39, 200), (50, 39, 0), (60, 40, 0)],
    ids=["one over 50", "ten over", "exactly 50", "exactly 40 miles an hour"],
)
def test_a_crowded_slow_segment_costs(cars: int, speed: int, toll: int) -> None:
    told = both([*crowd(cars, speed), report(61, 1, 10)])["tolls"]
    assert told[0] == (1, 61, speed, toll)


def test_a_car_counts_once_and_only_in_the_minute_before() -> None:
    twice = [*crowd(50, 30), *crowd(50, 30, time=30)]
    assert both([*twice, report(61, 1, 10)])["tolls"][0] == (1, 61, 30, 0)
    # Two minutes later the speed still counts, the cars do not.
    assert both([*crowd(60, 30), report(121, 1, 10)])["tolls"][0] == (1, 121, 30, 0)
    assert both([*crowd(60, 30), report(361, 1, 10)])["tolls"][0] == (1, 361, 0, 0)


def test_who_goes_on_pays_and_who_exits_in_the_segment_does_not() -> None:
    rows = [
        *crowd(60, 30), *(report(61, vid, 10) for vid in (1, 2, 3, 4)),
        report(91, 1, 11), report(91, 2, 10, lane=4), report(91, 3, 11, lane=4),
        report(91, 4, 10, pos=10 * 5_280 + 5_000), report(121, 4, 11),
        *(asks(121, vid, 10 + vid) for vid in (1, 2, 3, 4)), asks(90, 1, 5), asks(91, 1, 6),
        # Who exited and comes back owes nothing for the segment that was left.
        report(2_000, 2, 30, lane=0), asks(2_000, 2, 20),
    ]  # fmt: skip
    told = both(rows)
    assert [(qid, owes) for qid, _, _, owes in told["balances"]] == [
        (5, 0), (6, 200), (11, 200), (12, 0), (13, 200), (14, 200), (20, 0),
    ]  # fmt: skip
    assert (3, 91) not in {(vid, time) for vid, time, *_ in told["tolls"]}, "no toll to an exit"


def stop(vid: int, seg: int, times: list[int], way: int = 0) -> list[Row]:
    return [report(time, vid, seg, pos=seg * 5_280 + 7, speed=0, dir=way) for time in times]


def test_an_accident_counts_from_the_minute_after_to_the_one_in_which_it_is_cleared() -> None:
    at = list(range(0, 331, 30))
    rows = [*stop(1, 20, at), *stop(2, 20, at), report(360, 1, 20, pos=20 * 5_280 + 900)]
    rows += stop(2, 20, [360, 390, 420])
    # Stopped at second 90, minute 2; cleared at 360, minute 7: it counts in minutes 3 to 7.
    entering = {3: 119, 4: 120, 5: 200, 6: 359, 7: 361, 8: 419, 9: 420}
    rows += [report(time, vid, 16) for vid, time in entering.items()]
    told = both(rows)["accidents"]
    assert [(vid, seg) for vid, _, _, _, seg in told] == [(vid, 20) for vid in (4, 5, 6, 7, 8)]


@pytest.mark.parametrize(("way", "warned"), [(0, range(16, 21)), (1, range(20, 25))])
def test_five_segments_are_warned_and_cost_nothing(way: int, warned: range) -> None:
    at = list(range(0, 211, 30))
    rows = [*stop(1, 20, at, way), *stop(2, 20, at, way)]
    for seg in range(14, 27):
        rows += [
            report(120 + n % 30, 1_000 * seg + n, seg, dir=way) for n in range(60)
        ]  # slow crowds in all of them
        rows.append(report(181, 50 + seg, seg, dir=way))
    told = both(rows)
    late = [(vid - 50, seg) for vid, time, _, _, seg in told["accidents"] if time == 181]
    assert late == [(seg, 20) for seg in warned]
    costs = {vid - 50 for vid, time, _, toll in told["tolls"] if time == 181 and toll > 0}
    assert costs == set(range(14, 27)) - set(warned)


def test_one_that_stands_alone_or_for_three_reports_is_no_accident() -> None:
    at = list(range(0, 211, 30))
    alone = stop(1, 20, at)
    short = [*stop(1, 20, at[:3]), *stop(2, 20, at[:3]), report(90, 1, 21), report(90, 2, 21)]
    lanes = [*stop(1, 20, at), *(row | {"lane": 2} for row in stop(2, 20, at))]
    after = [*stop(1, 20, at[:4]), report(120, 1, 21), *stop(2, 20, [t + 60 for t in at[:4]])]
    for rows in (alone, short, lanes, after):
        assert both([*rows, report(215, 9, 18)])["accidents"] == []


def test_the_past_is_known_by_day() -> None:
    road = LinearRoad(1, 2, seed=3)
    rows = [report(0, 5, 1), asks(0, 5, 1, kind=3, day=1), asks(0, 5, 2, kind=3, day=69)]
    paid = [int(road.expenditure([5], [day])[0]) for day in (1, 69)]
    assert both(rows)["expenditures"] == [(1, 0, 5, paid[0]), (2, 0, 5, paid[1])]


def test_a_car_with_too_great_a_number_is_told(tmp_path: Path) -> None:
    with tideline.open(":memory:") as db:
        batch = pa.RecordBatch.from_pylist([report(0, 1 << 20, 1)], SCHEMA)
        with pytest.raises(InvalidRequest, match="vid=1048576"):
            Tolls(db, 1).second(batch)


# ---- a run -------------------------------------------------------------------------------------

ROAD = LinearRoad(2, duration_s=1_300, seed=5)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any, Any, Run]]:
    """A run on a real folder: where its files are, the application, the board, what was done.

    Time stands still for it: nothing here depends on how fast the machine is.
    """
    folder = tmp_path_factory.mktemp("road")
    paths = prepare(ROAD, folder / "input", processes=1)
    files = AnswerFiles(folder / "answers")
    with tideline.open(folder / "data") as db:
        app = Tolls(db, 2)
        app.load(ROAD)
        board = Board(db, app, 2)
        run = drive(app, prepared(paths), files, shown=board.write)
        board.write(run, last=True)
        files.close()
        yield folder, app, db, run


def rows_of(folder: Path) -> Any:
    return lambda x: prepared([folder / "input" / f"{x}.arrow"])


@pytest.fixture(scope="module")
def judgement(played: Any) -> tuple[Verdict, dict[int, Any]]:
    """The verdict, and what was worked out for it."""
    folder, known = played[0], {}
    return validate(ROAD, read_answers(folder / "answers"), rows_of(folder), known), known


def test_the_validator_passes_a_run(played: Any, judgement: Any) -> None:
    run, verdict = played[3], judgement[0]
    assert verdict.passed, "\n".join(verdict.lines())
    assert verdict.facts["reports"] == run.reports
    # All that the rules are about has happened.
    assert verdict.facts["accidents"] >= 2
    assert verdict.facts["drives"] > verdict.facts["cars"]
    assert verdict.facts["charges"] > 1_000
    assert min(verdict.right.values()) > 500
    assert verdict.lines()[-1].startswith("validator: passed")


@pytest.fixture(scope="module")
def wanted(judgement: Any) -> Any:
    return judgement[1][0][0]


def given_of(played: Any, kind: str) -> dict[str, Any]:
    table = read_answers(played[0] / "answers")[kind]
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    mine = columns[KEYS[kind][0]] >> 20 == 0
    return {name: column[mine] for name, column in columns.items()}


def judged(kind: str, wanted: Any, given: dict[str, Any]) -> Verdict:
    verdict = Verdict()
    compare(kind, wanted[kind], given, verdict)
    return verdict


CHANGES = [(kind, name) for kind in KEYS for name in VALUES[kind]]


@pytest.mark.parametrize(("kind", "name"), CHANGES)
def test_the_validator_finds_a_changed_answer(
    played: Any, wanted: Any, kind: str, name: str
) -> None:
    given = given_of(played, kind)
    assert judged(kind, wanted, given).passed
    given[name] = given[name].copy()
    given[name][len(given[name]) // 2] += 1
    verdict = judged(kind, wanted, given)
    assert not verdict.passed
    assert verdict.wrong[kind] == 1
    assert any(name in line for line in verdict.examples)


@pytest.mark.parametrize("kind", KEYS)
def test_the_validator_finds_what_is_missing_invented_doubled_and_late(
    played: Any, wanted: Any, kind: str
) -> None:
    given = given_of(played, kind)
    rows = len(given["time"])

    def with_row(**changed: Any) -> dict[str, Any]:
        return {
            name: np.append(column, changed.get(name, column[7])) for name, column in given.items()
        }

    dropped = judged(kind, wanted, {name: np.delete(c, 3) for name, c in given.items()})
    invented = judged(kind, wanted, with_row(time=given["time"][7] + 1))
    doubled = judged(kind, wanted, with_row())
    late, early = (
        given | {"emit": np.where(np.arange(rows) == 5, given["time"] + by, given["emit"])}
        for by in (5.001, -0.001)
    )
    assert (dropped.missing[kind], sum(dropped.extra.values())) == (1, 0)
    assert (invented.extra[kind], sum(invented.missing.values())) == (1, 0)
    assert doubled.extra[kind] == 1
    assert judged(kind, wanted, late).late[kind] == 1
    assert judged(kind, wanted, early).late[kind] == 1
    assert not any(
        each.passed
        for each in (dropped, invented, doubled, judged(kind, wanted, late))
    )  # fmt: skip
    assert judged(kind, wanted, given).passed


def test_answers_about_other_expressways_are_extra(played: Any, judgement: Any) -> None:
    one = LinearRoad(1, ROAD.duration_s, ROAD.seed)
    verdict = validate(one, read_answers(played[0] / "answers"), known=judgement[1])
    assert sum(verdict.missing.values()) == 0
    assert verdict.extra["tolls"] > 1_000
    assert not verdict.passed


def test_the_board_has_a_document_for_each_segment(played: Any) -> None:
    _, app, db, run = played
    segments, road = db.collection("segments"), db.collection("road")
    assert segments.count() == 400
    one = segments.get("1-1-42")
    assert list(one) == ["id", "x", "d", "s", "speed", "cars", "toll", "accident", "minute"]
    assert one["minute"] == 22
    assert one["cars"] == app.now.cars[342]
    now = road.get("now")
    assert set(now) == {
        "id", "minute", "second", "cars", "reports", "tolls", "accidents", "worst_ms", "L",
    }  # fmt: skip
    assert (now["second"], now["reports"], now["L"]) == (1_299, run.reports, 2)
    assert segments.count({"accident": True}) == now["accidents"]
    for width in (60, 200):
        drawn = Board(db, app, 2).picture(run, width).plain
        assert "speed" in drawn
        assert "█" in drawn
        assert ("X" in drawn.split("miles")[0]) == (now["accidents"] > 0)


def test_the_windows_hold_what_the_answers_say(played: Any) -> None:
    folder, app, _, _ = played
    verdict_rows = given_of(played, "balances")
    vid, balance = int(verdict_rows["vid"][-1]), int(verdict_rows["balance"][-1])
    found = app.accounts.get((vid,))
    assert (found or {"balance": 0})["balance"] >= balance
    # Q2 of the paper: the mean of a segment over five minutes, by a plain scan of the input.
    table = pa.Table.from_batches(list(rows_of(folder)(0)))
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    chosen = (
        (columns["type"] == 0) & (columns["time"] >= 1_020) & (columns["seg"] == 50)
        & (columns["dir"] == 1)
    )  # fmt: skip
    mean = app.reports.range((0, 1, 50), map="mean(speed)")
    assert mean == pytest.approx(columns["speed"][chosen].mean())


# ---- a run that is killed ----------------------------------------------------------------------

SHORT = LinearRoad(1, duration_s=150, seed=11, start_s=4_800)


class Died(Exception):
    """Where a process is killed."""


def played_on(folder: Path, given: list[Any], kill: Any = None, copy: Any = None) -> Run:
    """Play on from where the files of a folder stand; killed at a step of a second, if so told."""
    with tideline.open(folder / "data") as db:

        def dies(at: str, second: int) -> None:
            if (at, second) == kill:
                # Copied at a moment when no file is being replaced.
                for each in (*db._windows.values(), *db._collections.values()):
                    each._engine.dataset.drain()
                shutil.copytree(folder, copy)
                raise Died

        app, progress = Tolls(db, 1), Progress(db, SHORT)
        run = progress.found()
        if run is None:
            app.load(SHORT)
            run = progress.begin()
        batches = islice(given, progress.known, None)
        progress.resume(app, run, batches)
        files = AnswerFiles(folder / "answers", run.second + 1)
        for window in ("reports", "accounts", "_cars", "_sums"):
            append = getattr(app, window).append

            def appended(*args: Any, append: Any = append, at: str = window, **named: Any) -> Any:
                made = append(*args, **named)
                dies(at, run.second + (not at.startswith("_")))
                return made

            setattr(app, window, SimpleNamespace(
                append=appended, get_many=getattr(app, window).get_many,
                range=getattr(app, window).range))  # fmt: skip

        def done(run: Run) -> None:
            progress.done(app, run, files)
            dies("done", run.second)

        made = drive(app, batches, files, start_s=run.second + 1, done=done, run=run)
        files.close()
        return made


def test_a_run_that_is_killed_anywhere_goes_on(tmp_path: Path) -> None:
    """What a killed process leaves is its files as they are: a copy of them goes on."""
    given = list(SHORT.seconds())
    # Kills in the middle of a second, on both sides of the store of a minute, and between minutes.
    kills = [("reports", 4_803), ("reports", 4_860), ("_cars", 4_860), ("_sums", 4_860),
             ("done", 4_919), ("accounts", 4_921)]  # fmt: skip
    folder = tmp_path / "0"
    for copies, kill in enumerate(kills):
        following = tmp_path / str(copies + 1)
        with pytest.raises(Died):
            played_on(folder, given, kill, following)
        folder = following
    run = played_on(folder, given)
    verdict = validate(SHORT, read_answers(folder / "answers"), lambda x: iter(given))
    assert verdict.passed, "\n".join(verdict.lines())
    assert verdict.facts["reports"] == run.reports
    assert verdict.facts["charges"] > 100
    with tideline.open(folder / "data") as db:
        other = LinearRoad(1, duration_s=150, seed=12, start_s=4_800)
        with pytest.raises(InvalidRequest, match="other traffic"):
            Progress(db, other).found()


# ---- the command -------------------------------------------------------------------------------


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.run(
        [sys.executable, "-m", "examples.linear_road", *arguments], cwd=ROOT, env=environment,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_the_command_ends_by_itself_with_a_verdict(tmp_path: Path) -> None:
    done = command("--minutes", "1.5", "--start", "0", "--speed", "60", "--port", "0",
                   "--folder", str(tmp_path / "kept"))  # fmt: skip
    # On a busy machine answers may be late; they are never wrong.
    assert done.returncode in (0, 1), done.stderr
    assert "the page is at http://127.0.0.1:" in done.stdout
    assert "an L-rating is of three hours" in done.stdout
    road = LinearRoad(1, 90)
    verdict = validate(road, read_answers(tmp_path / "kept" / "answers"))
    assert (sum(verdict.wrong.values()), sum(verdict.missing.values())) == (0, 0)
    assert sum(verdict.extra.values()) == 0
    assert done.returncode == (0 if verdict.passed else 1)
    with tideline.open(tmp_path / "kept" / "data") as db:
        assert db.collection("road").get("now")["second"] == 89


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--speed", "0"], "speed=0.0"),
        (["--minutes", "200"], "minutes=200.0"),
        (["--start", "179", "--minutes", "2"], "duration_s=120"),
        (["-L", "0"], "expressways=0"),
        (["--folder", str(ROOT)], "the folder is not empty"),
    ],
)
def test_wrong_options_are_told(wrong: list[str], said: str, capsys: Any) -> None:
    from examples.linear_road.__main__ import main

    assert main(wrong) == 2
    assert said in capsys.readouterr().err


@pytest.mark.long
def test_the_command_goes_on_after_kill_9(tmp_path: Path) -> None:
    folder, told = tmp_path / "kept", ["--minutes", "6", "--start", "80", "--speed", "30"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-m", "examples.linear_road", *told, "--no-page", "--folder",
             str(folder)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            minutes = 0
            for line in process.stdout:
                minutes += line.startswith("minute ")
                if minutes == 2:
                    break
            process.kill()
    done = command(*told, "--no-page", "--folder", str(folder))
    assert done.returncode in (0, 1), done.stderr  # on a busy machine answers may be late
    assert "going on behind second" in done.stdout
    verdict = validate(LinearRoad(1, 360, start_s=4_800), read_answers(folder / "answers"))
    bad = (verdict.wrong, verdict.missing, verdict.extra)
    assert [sum(each.values()) for each in bad] == [0, 0, 0], "\n".join(verdict.lines())
