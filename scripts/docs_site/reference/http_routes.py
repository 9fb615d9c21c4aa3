"""Reference of the HTTP API, from its OpenAPI document."""

from collections.abc import Iterator, Mapping
from typing import Any

from forge_jobs.web.api.openapi import openapi_document

from .markdown import code, document, prose, table

_ROOT = "#/components/schemas/"
_LIMITS = {
    "format": "",
    "minimum": "≥",
    "maximum": "≤",
    "minLength": "length ≥",
    "maxLength": "length ≤",
}


def page() -> str:
    """The page of the HTTP API."""
    described = openapi_document("", read_only=False)
    parts = [
        "# HTTP API: every route and field",
        "How to authenticate, page and read errors is in [http-api.md](../http-api.md). A running "
        "Mission Control answers the same as an OpenAPI document under `/api/openapi.json`. The "
        "role is the lowest that may call the route.",
    ]
    group = ""
    for path, method, operation in operations(described):
        if operation["tags"][0] != group:
            group = operation["tags"][0]
            parts.append(f"## {group.replace('_', ' ').capitalize()}")
        parts.append(_route(path, method, operation))
    parts.append("## Objects")
    for name, schema in sorted(described["components"]["schemas"].items()):
        parts.append(_object(name, schema))
    return document(*parts)


def operations(described: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and operation of each route; routes of one group together."""
    found = [
        (path, method.upper(), operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    order = list(dict.fromkeys(operation["tags"][0] for *_, operation in found))
    yield from sorted(found, key=lambda one: order.index(one[2]["tags"][0]))


def _route(path: str, method: str, operation: Mapping[str, Any]) -> str:
    rows = [
        (code(one["name"]), one["in"], _type(one["schema"]), "yes" if one["required"] else "")
        for one in operation["parameters"]
    ]
    facts = [f"Role: {operation['x-role']}."]
    if "requestBody" in operation:
        facts.append(f"Body: {_type(_schema(operation['requestBody']))}.")
    for status in ("200", "204"):
        answer = operation["responses"].get(status)
        if answer is not None:
            sent = _type(_schema(answer)) if "content" in answer else "no content"
            facts.append(f"Answer {status}: {sent}.")
    return document(
        f"### {method} {path}",
        prose(operation["summary"]),
        " ".join(facts),
        table(("parameter", "in", "type", "required"), rows) if rows else "",
    )


def _schema(content: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(iter(content["content"].values()))["schema"]


def _object(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (code(field), _type(of), "yes" if field in required else _default(of))
        for field, of in schema.get("properties", {}).items()
    ]
    values = ", ".join(code(value) for value in schema.get("enum", ()))
    return document(
        f"### {name}",
        prose(schema.get("description", "")),
        f"One of {values}." if values else "",
        table(("field", "type", "required, or default"), rows) if rows else "",
    )


def _default(schema: Mapping[str, Any]) -> str:
    return code(schema["default"]) if schema.get("default") is not None else ""


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in one line, with a link to the object it names."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_ROOT)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    limits = [f"{word} {schema[key]}".strip() for key, word in _LIMITS.items() if key in schema]
    if "pattern" in schema:
        limits.append(code(schema["pattern"]))
    shown = "null" if kind == "null" else kind
    return f"{shown} ({', '.join(limits)})" if limits else shown
