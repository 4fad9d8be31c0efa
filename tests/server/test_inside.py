"""A store from inside: what the routes tell is what the files are, for those who may read it."""

from __future__ import annotations

from typing import Any

from talk import Api, as_


def find(store: Any, kind: str, name: str) -> Any:
    [found] = [each for each in store["datasets"] if (each["kind"], each["name"]) == (kind, name)]
    return found


def files_of(folder: Any, kind: str) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in (folder / kind).glob("*/c-*.arrow")}


def test_what_is_told_of_a_collection_is_what_its_files_are(api: Api, database: Any) -> None:
    docs = database.collection("docs", key="id", indexes={"n": "composite"})
    for part in range(6):
        docs.put_many([{"id": part * 500 + i, "n": i % 7} for i in range(500)])
        docs._engine.seal()
    docs._engine.drain()
    docs.put({"id": "new", "n": 1})
    told = api.get("/v1/collections/docs/components").json
    files = files_of(database.path, "collections")
    named = {c["name"]: c["size_bytes"] for tree in told["trees"] for c in tree["components"]}
    assert named == files
    assert [(tree["name"], tree["kind"], tree["policy"]) for tree in told["trees"]] == [
        ("primary", "sorted", "prefix"), ("index n composite", "composite", "prefix"),
    ]  # fmt: skip
    assert [sum(c["rows"] for c in tree["components"]) for tree in told["trees"]] == [3000, 3000]
    assert all(c["made"].endswith("Z") for tree in told["trees"] for c in tree["components"])
    [memory] = told["memory"]
    assert (memory["rows"], memory["frozen"]) == (1, False)
    line, stats = told["dataset"], docs.stats()
    assert line["bytes_disk"] == stats.bytes_disk == sum(files.values())
    assert (line["components"], line["bytes_log"]) == (stats.components, stats.bytes_log)
    assert line["seals"] == 6
    assert line["merges"] == len([deed for deed in told["done"] if deed["what"] == "merge"]) > 0
    seal = next(deed for deed in told["done"] if deed["what"] == "seal")
    assert (seal["rows"], seal["components"], len(seal["trees"])) == (1000, 2, 2)
    written = sum(deed["size_bytes"] for deed in told["done"] if deed["what"] != "move")
    assert line["written_bytes"] == written
    merge = next(deed for deed in told["done"] if deed["what"] == "merge")
    assert min(merge["inputs"] - 1, merge["bytes_in"], merge["took_s"]) > 0
    numbers = [deed["number"] for deed in told["done"]]
    assert numbers == sorted(numbers, reverse=True)


def test_channels_and_windows_are_told_too(api: Api, database: Any) -> None:
    roads = database.channel("roads", layout="two")
    roads.subscribe("a", user="u", until_s=600)
    roads.publish("a", {"n": 1}, ttl_s=600)
    cars = database.window("cars", span_s=60, key="k")
    cars.append([{"k": n} for n in range(5)])
    told = api.get("/v1/channels/roads/components").json
    assert [tree["name"] for tree in told["trees"]] == ["subscriptions", "events", "told"]
    assert [memory["rows"] for memory in told["memory"]] == [1, 1]
    told = api.get("/v1/windows/cars/components").json
    assert [(m["name"], m["rows"]) for m in told["memory"]] == [("open sub-window", 5)]
    for kind, name in [("channels", "no"), ("collections", "no"), ("windows", "no")]:
        assert api.get(f"/v1/{kind}/{name}/components").error == (404, "NotFound")


def test_the_list_adds_up_and_has_the_process(api: Api, database: Any) -> None:
    database.channel("lonely").publish("a", 1, ttl_s=60)
    database.collection("docs", key="id").put({"id": 1})
    store = api.get("/v1/store").json
    assert store["in_memory"] is False
    names = {(each["kind"], each["name"]) for each in store["datasets"]}
    assert {("channel", "lonely"), ("collection", "docs")} <= names
    stats = database.channel("lonely").stats()
    line = find(store, "channel", "lonely")
    assert (line["bytes_log"], line["components"]) == (stats.bytes_log, stats.components)
    process = store["process"]
    assert process["memory_limit_bytes"] == 64 << 20
    assert min(process["cpu_s"], process["disk_free_bytes"], process["uptime_s"]) > 0
    assert api.get("/v1/store?x=1").error == (400, "InvalidRequest")


def test_a_token_sees_what_it_may_read(guarded: dict[str, Any]) -> None:
    guarded["database"].collection("orders", key="id").put({"id": 1, "owner": "ann"})
    guarded["database"].window("cars", span_s=60, key="k")
    rows, _ = guarded["tokens"].create(["read"], user="ann", rows={"orders": {"owner": "$user"}})

    def seen(api: Api) -> tuple[list[str], bool]:
        store = api.get("/v1/store").json
        return [each["name"] for each in store["datasets"]], store["process"] is not None

    every = ["news", "roads", "orders", "cars"]
    assert seen(as_(guarded, "admin")) == (every, True)
    assert seen(as_(guarded, "service")) == (every, True)
    assert seen(as_(guarded, "reader")) == (["roads"], False)
    assert seen(as_(guarded, "publisher")) == ([], False)
    assert seen(as_(guarded, "ann")) == (["news", "roads"], False)
    assert seen(Api(guarded["url"], rows)) == (["news", "roads"], False)
    reader = as_(guarded, "reader")
    assert reader.get("/v1/channels/roads/components").status == 200
    for path in ("/v1/channels/news", "/v1/collections/orders", "/v1/windows/cars"):
        assert reader.get(f"{path}/components").error == (403, "Forbidden")
        assert Api(guarded["url"]).get(f"{path}/components").error == (401, "Unauthorized")
    own = Api(guarded["url"], rows)
    for path in ("/v1/collections/orders", "/v1/windows/cars"):
        assert own.get(f"{path}/components").error == (403, "Forbidden")
    assert as_(guarded, "publisher").get("/v1/channels/roads/components").status == 403
