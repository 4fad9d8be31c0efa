"""The routes of a server, from the description that `GET /v1/openapi.json` gives."""

from __future__ import annotations

from typing import Any

HEAD = """# OpenAPI

Every route with what it takes and gives, written from the description that each server has at
`/openapi.json` (OpenAPI {openapi}), which tools for clients and tests read. In words, and with the
messages of the WebSockets: [HTTP and WebSocket](http.md).

"""
JSON = "application/json"


def _kind(schema: dict[str, Any]) -> str:
    """The type of a value in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items') or {})}".removesuffix(" of anything")
    found = schema.get("type", "anything")
    return " or ".join(found) if isinstance(found, list) else str(found)


def _fields(schema: dict[str, Any]) -> str:
    needed = set(schema.get("required", []))
    rows = [
        f"| `{name}` | {_kind(field)} | {'needed' if name in needed else _default(field)} |\n"
        for name, field in schema.get("properties", {}).items()
    ]
    return "| field | | without it |\n|---|---|---|\n" + "".join(rows) + "\n" if rows else ""


def _default(field: dict[str, Any]) -> str:
    default = field.get("default")
    return "" if default in (None, [], {}) else f"`{default}`"


def _content(content: dict[str, Any]) -> str:
    shown = []
    for media, each in content.items():
        shown.append(_kind(each["schema"]) if media == JSON else f"`{media}`")
    return " or ".join(shown)


def _operation(path: str, method: str, each: dict[str, Any]) -> str:
    text = f"### {method.upper()} {path}\n\n{each.get('summary', '')}\n\n"
    asked = [p for p in each["parameters"] if p["in"] == "query"]
    if asked:
        text += "| in the query | | |\n|---|---|---|\n"
        for one in asked:
            needed = "needed" if one["required"] else ""
            text += f"| `{one['name']}` | {_kind(one['schema'])} | {needed} |\n"
        text += "\n"
    body = each.get("requestBody")
    if body is not None:
        text += f"Takes {_content(body['content'])}.\n\n"
    good = [(code, a) for code, a in each["responses"].items() if code < "300"]
    bad = [code for code in each["responses"] if code >= "400"]
    for code, answer in good:
        given = _content(answer["content"])
        text += f"Gives {code}{': ' + given if given else ''}. "
    if bad:
        text += f"Refuses with {', '.join(bad)}."
    return text.rstrip() + "\n\n"


def pages() -> dict[str, str]:
    """The one page."""
    from tideline.server.app import all_ops
    from tideline.server.openapi import describe

    found = describe(all_ops())
    text = HEAD.format(openapi=found["openapi"]) + "## Routes\n\n"
    for path, methods in found["paths"].items():
        for method, each in methods.items():
            text += _operation(path, method, each)
    text += "## Values\n\n"
    for name, schema in sorted(found["components"]["schemas"].items()):
        lead = " ".join((schema.get("description") or "").split())
        text += f"### {name}\n\n{lead + chr(10) + chr(10) if lead else ''}{_fields(schema)}"
    return {"reference/openapi.md": text}
