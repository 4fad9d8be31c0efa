"""The description matches what the server does: every route is in it, and does what it says.

Schemathesis makes requests from the description, good and bad ones, and checks that each answer
has a status, a media type and a document that the description names.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from talk import Api

import tideline
from tideline.server.app import all_ops
from tideline.server.openapi import describe

DESCRIPTION = json.loads(json.dumps(describe(all_ops())))  # as JSON: a tuple is a list
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance,
          response_schema_conformance, negative_data_rejection]  # fmt: skip


def test_every_route_is_described_and_served(api: Api, channel: Any) -> None:
    described = {
        (method.upper(), path)
        for path, methods in DESCRIPTION["paths"].items()
        for method in methods
    }
    assert described == {(op.method, op.path) for op in all_ops()}
    channel.subscribe("a", user="u", id="s", until_s=60)
    for op in all_ops():
        if op.gives in ("text/event-stream",):
            continue  # it does not end; test_sse.py reads it
        path = op.path.replace("{channel}", channel.name).replace("{id}", "s")
        path = path.replace("{collection}", "nothing").replace("{key}", "1")
        if op.method == "DELETE" and op.path.endswith("{channel}"):
            path = "/v1/channels/nothing"
        answer = api.call(op.method, path)
        known = DESCRIPTION["paths"][op.path][op.method.lower()]["responses"]
        assert str(answer.status) in known, (op.method, path, answer)
        assert answer.status not in (405, 500)
        for other in {"GET", "PUT", "POST", "PATCH", "DELETE"} - {
            o.method for o in all_ops() if o.path == op.path
        }:
            assert api.call(other, path).status == 405


def test_the_description_is_served(api: Api) -> None:
    assert api.get("/openapi.json").json == DESCRIPTION


def test_every_reference_leads_somewhere() -> None:
    names = set(re.findall(r"#/components/schemas/(\w+)", repr(DESCRIPTION)))
    assert names <= set(DESCRIPTION["components"]["schemas"])
    identifiers = [
        operation["operationId"]
        for methods in DESCRIPTION["paths"].values()
        for operation in methods.values()
    ]
    assert len(identifiers) == len(set(identifiers))


def test_the_reference_names_every_route() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md"
    named = set(re.findall(r"`(?:[A-Z]+`, `)?([A-Z]+) (/[^`? ]*)", page.read_text("utf-8")))
    paths = {path for _, path in named}
    assert {op.path for op in all_ops()} <= paths


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tideline.server import running

    folder = tmp_path_factory.mktemp("api") / "data"
    with tideline.open(folder, memory_mb=64) as database, running(database) as url:
        yield database, url


@schemathesis.serializer("application/vnd.apache.arrow.stream")
def as_it_is(context: Any, value: Any) -> bytes:
    """What Schemathesis makes up is no Arrow stream: test_tables.py has better bad ones."""
    return value if isinstance(value, bytes) else str(value).encode()


SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)
OPERATIONS = {
    f"{o.ok().method.upper()} {o.ok().path}": o.ok()
    for o in SCHEMA.get_all_operations()
    if not o.ok().path.endswith(("/stream", "/watch", "/v1/backup"))
}


def attack(target: Any, name: str, mode: GenerationMode, examples: int) -> None:
    database, url = target
    channel = database.channel("c", space=tideline.Topics(), journal_s=600)
    channel.subscribe("a", user="u", id="s", until_s=60)
    channel.publish("a", {"n": 1}, ttl_s=60)
    documents = database.collection("d", key="id", journal_s=600)
    documents.put_many([{"id": n, "a": n} for n in range(3)])

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=settings.default.derandomize,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[name].as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        if "channel" in (case.path_parameters or {}) and len(case.path_parameters["channel"]) % 2:
            case.path_parameters["channel"] = "c"  # half of them reach a channel that is there
        asked = (case.path_parameters or {}).get("collection", "")
        if len(asked) % 2 and name != "DELETE /v1/collections/{collection}":
            case.path_parameters["collection"] = "d"
        response = case.call(base_url=url)
        checks = CHECKS
        if response.status_code == 200 and b'"results"' in response.content:
            # Of many events each is refused by itself, inside an answer that is 200.
            checks = [check for check in CHECKS if check is not negative_data_rejection]
        if response.status_code == 503 and b"not there yet" in response.content:
            return  # changes that will be written later: try again then
        case.validate_response(response, checks=checks)

    run()


CASES = [(name, GenerationMode.POSITIVE) for name in sorted(OPERATIONS)] + [
    # What takes no query and no body cannot be asked wrongly.
    (f"{op.method} {op.path}", GenerationMode.NEGATIVE)
    for op in all_ops()
    if (op.query or op.takes) and f"{op.method} {op.path}" in OPERATIONS
]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_answers_are_as_described(target: Any, name: str, mode: GenerationMode) -> None:
    attack(target, name, mode, 6)


@pytest.mark.long
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_many_answers_are_as_described(target: Any, name: str, mode: GenerationMode) -> None:
    attack(target, name, mode, 400)
