"""The API reference: every route of the HTTP API, rendered from the OpenAPI document."""

import json
import re
import shlex
from typing import Any, Final

from markupsafe import Markup

from forge_jobs.core.errors import NotFound
from forge_jobs.web.api.openapi import openapi_document
from forge_jobs.web.request_context import RequestContext

from .page import PageSpec, Params, TemplateVars

PATH: Final = "/api/docs"
_REF: Final = "#/components/schemas/"
_TOKEN: Final = "$FORGE_TOKEN"
_CODE: Final = re.compile(r"``?([^`]+)``?")


async def index(context: RequestContext, params: Params) -> TemplateVars:
    groups = _groups(_document(context))
    return {
        "groups": {
            name: [{**one, "summary": marked(one["operation"]["summary"])} for one in operations]
            for name, operations in groups.items()
        }
    }


async def group_view(context: RequestContext, params: Params) -> TemplateVars:
    document = _document(context)
    name = params["group"]
    operations = _groups(document).get(name)
    if operations is None:
        raise NotFound(f"the HTTP API has no part {name!r}: see {PATH}")
    schemas = document["components"]["schemas"]
    views = [_operation_view(one, context, schemas) for one in operations]
    used = _schemas_used([one["operation"] for one in operations], schemas)
    return {
        "group": name,
        "title": f"HTTP API: {name.replace('_', ' ')}",
        "operations": views,
        "schemas": [_schema_view(one, schemas[one]) for one in sorted(used)],
    }


def _document(context: RequestContext) -> dict[str, Any]:
    return openapi_document(context.root, read_only=context.read_only)


def _groups(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The operations by part of the API, in the order of the document."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            one = {"method": method.upper(), "path": path, "operation": operation}
            groups.setdefault(operation["tags"][0], []).append(one)
    return dict(sorted(groups.items()))


def _operation_view(
    one: dict[str, Any], context: RequestContext, schemas: dict[str, Any]
) -> dict[str, Any]:
    operation = one["operation"]
    body = _content(operation.get("requestBody", {}))
    answer = _content(operation["responses"].get("200", {}))
    return {
        "id": operation["operationId"],
        "method": one["method"],
        "path": one["path"],
        "summary": marked(operation["summary"]),
        "role": operation["x-role"],
        "parameters": [
            {
                "deprecated": False,
                "type": type_text(parameter["schema"]),
                **parameter,
                "description": marked(parameter.get("description", "")),
                "example": _shown(parameter.get("example")),
            }
            for parameter in operation["parameters"]
        ],
        "body": None if body is None else type_parts(body["schema"]),
        "answer": None if answer is None else type_parts(answer["schema"]),
        "answer_example": None if answer is None else _pretty(answer["example"]),
        "curl": curl_of(one["method"], context.root + one["path"], operation, body),
    }


def curl_of(method: str, path: str, operation: dict[str, Any], body: dict[str, Any] | None) -> str:
    """The request as a curl command, with the examples of its parameters and a placeholder for the
    token."""
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(parameter.get("example", "…")))
    parts = ["curl" if method == "GET" else f"curl -X {method}"]
    parts.append(f'-H "Authorization: Bearer {_TOKEN}"')
    if body is not None:
        required = {key: value for key, value in body["example"].items() if _is_shown(key, body)}
        parts += ["-H 'content-type: application/json'", f"-d {shlex.quote(json.dumps(required))}"]
    parts.append(f'"$FORGE_WEB_URL{path}"')
    return " \\\n  ".join(parts)


def _is_shown(name: str, body: dict[str, Any]) -> bool:
    """Whether the short example names a field: the required ones, else the first three."""
    return name in body["required"] if body["required"] else name in list(body["example"])[:3]


def _content(part: dict[str, Any]) -> dict[str, Any] | None:
    for content in part.get("content", {}).values():
        schema = content["schema"]
        resolved = _resolved(schema)
        return {**content, "required": resolved.get("required", [])}
    return None


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    whole = openapi_document("", read_only=False)["components"]["schemas"]
    return whole[schema["$ref"].removeprefix(_REF)]


def _schema_view(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    required = schema.get("required", [])
    return {
        "name": name,
        "description": marked(schema.get("description", "")),
        "values": [str(value) for value in schema.get("enum", [])],
        "fields": [
            {
                "name": field,
                "type": type_parts(inner),
                "required": field in required,
                "deprecated": inner.get("deprecated", False),
                "description": marked(inner.get("description", "")),
                "example": _shown(inner.get("example")),
            }
            for field, inner in schema.get("properties", {}).items()
        ],
    }


def _schemas_used(operations: list[dict[str, Any]], schemas: dict[str, Any]) -> set[str]:
    """The schemas that these operations refer to, directly or through others."""
    found: set[str] = set()
    waiting = [
        content["schema"]
        for operation in operations
        for part in (operation.get("requestBody", {}), *operation["responses"].values())
        for content in part.get("content", {}).values()
    ] + [parameter["schema"] for operation in operations for parameter in operation["parameters"]]
    while waiting:
        names = {name for name, _ in type_parts(waiting.pop()) if name in schemas} - found
        found |= names
        for name in names:
            waiting += schemas[name].get("properties", {}).values()
    return found


def type_parts(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """The type of a schema as parts: the name of a schema, or the text of a plain type, each with
    what stands before it."""
    if "$ref" in schema:
        return [(schema["$ref"].removeprefix(_REF), "")]
    if "anyOf" in schema:
        parts = [part for one in schema["anyOf"] for part in type_parts(one)]
        return [
            (name, before if n == 0 else f" or {before}") for n, (name, before) in enumerate(parts)
        ]
    if schema.get("type") == "array" and "items" in schema:
        name, before = type_parts(schema["items"])[0]
        return [(name, f"list of {before}")]
    if "enum" in schema:
        return [(", ".join(map(str, schema["enum"])), "one of ")]
    return [(_plain_type(schema), "")]


def type_text(schema: dict[str, Any]) -> str:
    """The type as one text."""
    return "".join(before + name for name, before in type_parts(schema))


def _plain_type(schema: dict[str, Any]) -> str:
    text = {"date-time": "time"}.get(schema.get("format", ""), str(schema.get("type", "any value")))
    bounds = [
        f"{sign} {schema[key]}"
        for key, sign in (("minimum", "≥"), ("maximum", "≤"), ("exclusiveMinimum", ">"))
        if key in schema
    ]
    return f"{text} ({', '.join(bounds)})" if bounds else text


def marked(text: str) -> Markup:
    """The text with names between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(Markup.escape(text))))


def _shown(example: Any) -> str | None:
    """An example as it is written in a request; None without one."""
    return example if example is None or isinstance(example, str) else json.dumps(example)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


PAGE: Final = PageSpec(
    path=PATH, name="api", title="HTTP API", template="api_reference.html", view=index, nav=False,
    live=False,
)  # fmt: skip
GROUP_PAGE: Final = PageSpec(
    path=f"{PATH}/{{group}}", name="api_group", title="HTTP API", template="api_group.html",
    view=group_view, nav=False, live=False,
)  # fmt: skip
