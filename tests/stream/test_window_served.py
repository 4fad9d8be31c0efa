"""A window on a server does what it does in this process: HTTP, WebSocket, clients, tokens, CLI."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from test_cli import Run, run

import tideline
from tideline.errors import Closed, Conflict, InvalidRequest, NotFound, Unauthorized
from tideline.server import running
from tideline.server.tokens import Tokens
from tideline.testing import ManualClock

__all__ = ["run"]  # a fixture

CARS: dict[str, Any] = {
    "span_s": 30, "slide_s": 10, "key": {"seg": (0, 99), "vid": None}, "values": {"vel": "int32"},
    "time": "t", "keep": "all", "max_ahead_s": float("inf"),
}  # fmt: skip
ROWS = [{"seg": 4, "vid": n, "vel": 10 * n, "t": 5} for n in range(5)]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with tideline.open(tmp_path / "db", clock=ManualClock(0)) as opened:
        yield opened


@pytest.fixture
def url(db: Any) -> Iterator[str]:
    with running(db) as found:
        yield found


def test_a_client_gets_what_the_library_gives(db: Any, url: str) -> None:
    with tideline.connect(url) as remote:
        cars = remote.window("cars", **CARS)
        local = db.window("cars")
        assert (remote.windows(), cars.key, cars.values) == (["cars"], local.key, local.values)
        done = cars.append([*ROWS, {"seg": 100, "vid": 1, "vel": 1, "t": 1}, {"seg": 1}])
        assert (done.stored, done.late) == (5, 0)
        assert done.rejected["reason"].to_pylist() == ["seg is not 0 to 99", "vid is missing"]
        table = pa.table({"seg": [5, 6], "vid": [1, 1], "vel": [7, 8], "t": [12, 25]})
        assert cars.append(table, once=("w", 1)).stored == 2
        assert cars.append(table, once=("w", 1)).repeated
        assert cars.append({n: np.array([4]) for n in ("seg", "vid", "vel", "t")}).stored == 1
        assert cars.append({"seg": 6, "vid": 2, "vel": 1, "t": datetime.fromtimestamp(25, UTC)})
        assert cars.append({"seg": 1, "vid": 2, "vel": 1, "t": -1e6}).late == 1
        for keys in ((4,), ((4, 2), (6,)), None, (4, 99), ((5,), None)):
            assert cars.range(keys).equals(local.range(keys))
            for mapper in ("mean(vel)", ["count()", "top(2, vel)"], {"m": "median(vel)"}):
                for options in ({}, {"last_s": 10}, {"closed": True, "last_s": 20}):
                    found = cars.range(keys, map=mapper, **options)
                    assert found == local.range(keys, map=mapper, **options)
        assert cars.get((4, 3)) == local.get((4, 3)) == [{"vel": 30}]
        asked = [(4, 1), (9, 9)]
        assert cars.get_many(asked).equals(local.get_many(asked))
        assert cars.get_many({"seg": [4, 9], "vid": [1, 9]}).equals(local.get_many(asked))
        assert cars.stats().late == 1
        assert remote.stats()["cars"] == local.stats()
        for wrong in (
            lambda: cars.range((4,), map="sum(x)"), lambda: cars.range((4,), last_s=7),
            lambda: cars.range((4,), map=len, initial=0), lambda: cars.append(7),
            lambda: cars.get((4,)), lambda: cars.watch(map="nothing"),
            lambda: remote.window("w", span_s=1),
        ):  # fmt: skip
            with pytest.raises(InvalidRequest):
                wrong()
        with pytest.raises(Conflict):
            remote.window("cars", keep="last")
        remote.drop_window("cars")
        with pytest.raises(NotFound):
            cars.range()


def test_panes_come_over_the_wire(db: Any, url: str) -> None:
    with tideline.connect(url) as remote:
        cars = remote.window("cars", **CARS)
        with cars.watch((4,), map=["sum(vel)", "top(1, vel)"]) as watch:
            cars.append([{**row, "t": 8 * row["vid"]} for row in ROWS])  # to 32 s: three slides
            panes = watch.take()
            assert [pane.value["sum(vel)"] for pane in panes] == [10, 30, 60]
            assert panes[2].value["top(1, vel)"] == [((4, 3), 30)]
            assert panes[2].until == datetime.fromtimestamp(30, UTC)
            cars.append({"seg": 4, "vid": 1, "vel": 5, "t": 41})
            assert next(watch).value["sum(vel)"] == 20 + 30 + 40
            assert watch.take() == []
            db.drop_window("cars")
            with pytest.raises(Closed, match="dropped"):
                next(watch)


def test_panes_that_slid_by_without_a_connection_are_counted(db: Any, url: str) -> None:
    with tideline.connect(url) as remote:
        cars = remote.window("cars", **CARS)
        with cars.watch(map="count()") as watch:
            cars.append([{**ROWS[0], "t": 0}, {**ROWS[0], "t": 10}])
            assert [pane.missed for pane in watch.take()] == [0]
            watch._drop()
            assert wait_for(lambda: not db.window("cars")._engine.watchers)
            cars.append([{**ROWS[0], "t": 10 * n} for n in range(2, 6)])
            assert watch.take() == []
            cars.append({**ROWS[0], "t": 60})
            assert [(pane.value, pane.missed) for pane in watch.take()] == [(3, 4)]


@pytest.mark.parametrize("awaited", [False, True])
def test_a_pane_that_the_next_server_tells_again_comes_once(db: Any, awaited: bool) -> None:
    """As after a failover: a leader tells of a slide before the majority has the row of it."""

    async def sums(urls: list[str], rows: list[Any], gone: Any) -> list[Any]:
        async with await tideline.aconnect(urls) as remote:
            cars = await remote.window("cars", **CARS)
            async with cars.watch(map="sum(vel)") as watch:
                await cars.append(rows[:2])
                panes = await watch.take()
                gone()
                panes += await watch.take()  # it watches there now
                await cars.append(rows)
                return [pane.value for pane in [*panes, *await watch.take()]]

    def blocking(urls: list[str], rows: list[Any], gone: Any) -> list[Any]:
        with tideline.connect(urls) as remote:
            cars = remote.window("cars", **CARS)
            with cars.watch(map="sum(vel)") as watch:
                cars.append(rows[:2])
                panes = watch.take()
                gone()
                panes += watch.take()
                cars.append(rows)
                return [pane.value for pane in [*panes, *watch.take()]]

    rows = [{**ROWS[0], "vel": 10 ** (n // 10), "t": n} for n in (0, 10, 20)]
    with tideline.open(":memory:") as other, running(other) as second, ExitStack() as stack:
        other.window("cars", **CARS)
        asked = [stack.enter_context(running(db)), second], rows, stack.close
        found = asyncio.run(sums(*asked)) if awaited else blocking(*asked)
    assert found == [1, 11]


def wait_for(holds: Any) -> bool:
    """Until a server has noticed, however busy the machine is."""
    import time

    limit = time.monotonic() + 60
    while not holds() and time.monotonic() < limit:
        time.sleep(0.005)
    return bool(holds())


def test_a_window_is_awaited(url: str) -> None:
    async def served() -> list[Any]:
        async with await tideline.aconnect(url) as remote:
            cars = await remote.window("cars", **CARS)
            return await used(cars)

    async def embedded() -> list[Any]:
        async with await tideline.aopen(":memory:") as local:
            cars = await local.window("cars", **CARS)
            return await used(cars)

    async def used(cars: Any) -> list[Any]:
        async with cars.watch(map="count()") as watch:
            await cars.append(ROWS)
            await cars.append({"seg": 1, "vid": 1, "vel": 1, "t": 33})
            taken = await watch.take(1)
            rest = [pane.value async for pane in first(watch, 2)]
        return [
            [pane.value for pane in taken], rest, await cars.get((4, 2)),
            await cars.range((4,), map="sum(vel)"), (await cars.range()).num_rows,
            (await cars.stats()).rows, (await cars.get_many([(1, 1)])).num_rows, cars.key,
        ]  # fmt: skip

    async def first(watch: Any, count: int) -> Any:
        async for pane in watch:
            yield pane
            count -= 1
            if not count:
                return

    expected = [[5], [5, 5], [], 0, 1, 1, 1, ("seg", "vid")]
    assert asyncio.run(served()) == expected
    assert asyncio.run(embedded()) == expected


def test_json_by_hand(url: str) -> None:
    def ask(method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{url}/v1/windows{path}", method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    made = ask("PUT", "/cars", {**CARS, "max_ahead_s": "never"})
    assert made["settings"]["span_s"] == 30
    assert ask("POST", "/cars/append", {"rows": [*ROWS, 7]}) == {
        "stored": 5, "late": 0, "rejected": {"5": "a row must be a dict"}, "repeated": False,
    }  # fmt: skip
    assert ask("POST", "/cars/get", {"key": [4, 1]}) == {"result": [{"vel": 10}]}
    assert ask("POST", "/cars/range", {"keys": [4], "map": "mean(vel)"}) == {"result": 20.0}
    rows = ask("POST", "/cars/range", {"keys": [[4, 3], None]})["result"]
    assert [row["vid"] for row in rows] == [3, 4]
    assert [each["name"] for each in ask("GET", "")] == ["cars"]
    assert ask("DELETE", "/cars") == {"dropped": "cars"}


def test_tokens_hold_for_windows_as_for_collections(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "db", clock=ManualClock(0)) as db:
        db.window("cars", **CARS).append(ROWS)
        db.window("other", **CARS)
        tokens = Tokens(tmp_path / "db")
        made = {
            name: tokens.create(scopes, name=name, **options)[0]
            for name, scopes, options in (
                ("reader", ["read:cars"], {}), ("writer", ["write:cars"], {}),
                ("admin", ["admin"], {}), ("user", ["read"], {"user": "ann"}),
            )
        }  # fmt: skip
        with running(db) as url:
            with tideline.connect(url, token=made["reader"]) as remote:
                cars = remote.window("cars")
                assert remote.windows() == ["cars"]
                assert cars.range((4,), map="count()") == 5
                cars.watch(map="count()").close()
                for refused in (
                    lambda: cars.append(ROWS), lambda: remote.drop_window("cars"),
                    lambda: remote.window("other"), lambda: remote.window("new", **CARS),
                ):  # fmt: skip
                    with pytest.raises(Unauthorized):
                        refused()
            with tideline.connect(url, token=made["writer"]) as remote:
                cars = remote.window("cars")
                assert cars.append(ROWS).stored == 5
                for refused in (lambda: cars.range(), lambda: cars.watch(map="count()")):
                    with pytest.raises(Unauthorized):
                        refused()
            with tideline.connect(url, token=made["user"]) as remote:
                with pytest.raises(Unauthorized):
                    remote.window("cars")
                assert remote.windows() == []
            with tideline.connect(url, token=made["admin"]) as remote:
                remote.window("new", **CARS)
                remote.drop_window("new")


def test_the_commands_are_twins(tmp_path: Path, run: Run) -> None:
    folder = str(tmp_path / "db")

    def command(*args: str, code: int = 0, given: str | None = None) -> Any:
        done = run("window", *args, stdin=given)
        assert done.code == code, done.error
        return [json.loads(text) for text in done.text.splitlines()]

    command("create", folder, "cars", "--span-s", "30", "--slide-s", "10", "--key", "seg=0..99",
        "--key", "road=text", "--value", "vel=int32", "--time", "t", "--keep", "all")  # fmt: skip
    assert [row["name"] for row in command("list", folder)] == ["cars"]
    rows = "".join(
        json.dumps({"seg": 4, "road": road, "vel": n, "t": 5}) + "\n"
        for n, road in enumerate(["A1", "A2", "A1", "7"])
    )
    assert command("append", folder, "cars", given=rows) == [
        {"stored": 4, "late": 0, "rejected": 0}
    ]
    assert command("append", folder, "cars", '[{"seg": 5, "road": "A1", "vel": 9, "t": 12}]')[0][
        "stored"
    ]
    bad = command("append", folder, "cars", given='{"seg": 100}\nno\n', code=2)
    assert bad == [{"stored": 0, "late": 0, "rejected": 2}]
    assert command("get", folder, "cars", "4", "A1") == [{"vel": 0}, {"vel": 2}]
    assert command("get", folder, "cars", "4", '"7"') == [{"vel": 3}]
    assert [row["road"] for row in command("range", folder, "cars", "4")] == ["7", "A1", "A1", "A2"]
    assert [
        row["vel"] for row in command("range", folder, "cars", "4", "A2", "--below", "[6]")
    ] == [
        1,
        9,
    ]
    assert command("range", folder, "cars", "4", "--map", "sum(vel)", "--last-s", "20") == [
        {"sum(vel)": 6}
    ]
    assert command("range", folder, "cars", "--map", "count()", "--map", "max(vel)") == [
        {"count()": 5, "max(vel)": 9}
    ]
    assert command("stats", folder, "cars")[0]["rows"] == 5
    command("range", folder, "crs", code=3)
    command("watch", folder, "cars", code=2)
    command("watch", folder, "cars", "--map", "count()", "--count", "-1", code=2)
    with tideline.open(folder) as db, running(db) as url:
        assert command("range", url, "cars", "4", "--map", "count()") == [{"count()": 4}]
        db.window("tick", span_s=0.2, slide_s=0.1, key="k")
        panes = command("watch", url, "tick", "--map", "count()", "--count", "2")
        assert [pane["value"] for pane in panes] == [0, 0]
        command("drop", url, "tick")
    command("drop", folder, "cars")
    assert command("list", folder) == []


def test_a_client_refuses_what_the_library_refuses(db: Any, url: str) -> None:
    with tideline.connect(url) as remote:
        window = remote.window("w", span_s=60, key=("a", "b"), values={"v": "float64"}, time="t",
                               max_ahead_s=float("inf"))  # fmt: skip
        row = {"a": 1, "b": 2, "v": 0.5, "t": datetime(2026, 1, 1, tzinfo=UTC)}
        done = window.append([{**row, "v": math.nan}, row, {**row, "v": -math.inf}])
        assert (done.stored, done.rejected["row"].to_pylist()) == (1, [0, 2])
        table = pa.table({name: [value] for name, value in row.items()})
        assert [window.append(table, once=("a:b", 1)).repeated for _ in range(2)] == [False, True]
        wrong: list[Any] = [5, "abc", {"a": [1]}, {"a": [1], "b": [1, 2]}, pa.table({"a": [1]})]
        for keys in wrong:
            with pytest.raises(InvalidRequest):
                window.get_many(keys)
        with pytest.raises(InvalidRequest):
            window.append(table, once=5)  # type: ignore[arg-type]
