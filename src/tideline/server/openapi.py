"""The description of the interface (OpenAPI 3.1), made from the same declarations that serve it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

import tideline
from tideline.server.ops import ARROW, JSON, Op

__all__ = ["describe"]

_REF = "#/components/schemas/{name}"
_WORDS = {
    200: "It worked.", 201: "It was made.", 400: "The request is wrong; nothing was stored.",
    401: "A token is needed, or it is not known.", 403: "The token, the page or the name may not.",
    404: "There is no such thing.", 405: "Not with this method.", 408: "The body came too slowly.",
    409: "It exists with other content.", 413: "The body is too large.",
    429: "Too many: slow down.", 503: "Not now: try later.",
}  # fmt: skip


class ErrorBody(msgspec.Struct):
    """What went wrong: the kind, a message for people, and when to come back if the rate was it."""

    kind: str
    message: str
    retry_after_s: int | msgspec.UnsetType = msgspec.UNSET


class Error(msgspec.Struct):
    """The answer to a request that does not work."""

    error: ErrorBody


def describe(ops: list[Op]) -> dict[str, Any]:
    """The description of all routes."""
    kinds: list[Any] = [Error]
    for op in ops:
        kinds += [kind for kind in _types(op.takes) + _types(op.gives) if kind not in kinds]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    schema_of = dict(zip(map(repr, kinds), schemas, strict=True))
    paths: dict[str, Any] = {}
    for op in ops:
        paths.setdefault(op.path, {})[op.method.lower()] = _operation(op, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tideline",
            "version": tideline.__version__,
            "description": "A database for live data: one question about the past and the future. "
            "The WebSockets /v1/live and /v1/watch are described in docs/reference/http.md.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(kinds: Any) -> list[Any]:
    """The types a declaration names; media types are none."""
    if kinds is None or isinstance(kinds, str):
        return []
    found = kinds if isinstance(kinds, tuple) else (kinds,)
    return [kind for kind in found if not isinstance(kind, str)]


def _operation(op: Op, schema_of: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True,
         "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", op.path)
    ]  # fmt: skip
    if op.query is not None:
        parameters += _query(op.query)
    answers = {
        str(status): {"description": _WORDS[status], "content": _content(op.gives, schema_of)}
        for status in op.statuses
    }
    error = {JSON: {"schema": schema_of[repr(Error)]}}
    for status in sorted(_refusals(op)):
        answers[str(status)] = {"description": _WORDS[status], "content": error}
    described: dict[str, Any] = {
        "summary": op.summary,
        "operationId": op.handler.__name__,
        "parameters": parameters,
        "responses": answers,
        # None is among them: a server without tokens asks for none.
        "security": [{}, {"token": []}] if op.scope else [{}],
    }
    if op.takes:
        described["requestBody"] = {"required": True, "content": _content(op.takes, schema_of)}
    return described


def _refusals(op: Op) -> set[int]:
    found = {400, 403, *op.refuses}
    if op.scope is not None:
        found |= {401, 429, 503}
    if "{" in op.path:
        found.add(404)
    if op.takes:
        found |= {408, 413}
    return found - set(op.statuses)


def _content(kinds: Any, schema_of: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    found = [schema_of[repr(kind)] for kind in _types(kinds)]
    if found:
        content[JSON] = {"schema": found[0] if len(found) == 1 else {"anyOf": found}}
    for media in kinds if isinstance(kinds, tuple) else (kinds,):
        if isinstance(media, str):
            binary = (
                {"type": "string", "format": "binary"} if media == ARROW else {"type": "string"}
            )
            content[media] = {"schema": binary}
    return content


def _query(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
    schema = msgspec.json.schema(kind)
    fields = schema["$defs"][kind.__name__]
    required = set(fields.get("required", []))
    found = []
    for name, field in fields["properties"].items():
        described = {key: value for key, value in field.items() if key != "default"}
        choices = described.pop("anyOf", None)
        if choices is not None:  # a query has no null: it is left out
            described |= next(choice for choice in choices if choice != {"type": "null"})
        found.append(
            {"name": name, "in": "query", "required": name in required, "schema": described}
        )
    return found
