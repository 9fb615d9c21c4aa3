"""Every field, parameter and route of the HTTP API has a description and an example that fits."""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from forge_jobs.web.api.field_texts import COMMON, example_of, field_texts
from forge_jobs.web.api.openapi import openapi_document

DOCUMENT = openapi_document("", read_only=False)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
HINT = "put it into src/forge_jobs/web/api/fields.toml"


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def fits(schema: dict[str, Any], example: Any) -> bool:
    whole = {**schema, "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(whole).is_valid(example)


def test_every_field_has_a_description() -> None:
    missing = [
        f"{name}.{field}"
        for name, schema in SCHEMAS.items()
        for field, inner in schema.get("properties", {}).items()
        if not inner.get("description")
    ]
    assert missing == [], HINT


def test_every_field_has_an_example_that_fits() -> None:
    wrong = [
        f"{name}.{field}: {example_of(inner, SCHEMAS)!r}"
        for name, schema in SCHEMAS.items()
        for field, inner in schema.get("properties", {}).items()
        if not fits(inner, example_of(inner, SCHEMAS))
    ]
    assert wrong == [], HINT


def test_every_parameter_has_a_description_and_an_example_that_fits() -> None:
    wrong = [
        f"{where}: {parameter['name']}"
        for where, operation in operations()
        for parameter in operation["parameters"]
        if not parameter.get("description")
        or not fits(
            parameter["schema"],
            parameter.get("example", example_of(parameter["schema"], SCHEMAS)),
        )
    ]
    assert wrong == [], HINT


def test_every_route_has_a_summary_and_examples_that_fit() -> None:
    wrong: list[str] = []
    for where, operation in operations():
        answer = operation["responses"].get("200", {})
        contents = [
            content
            for part in (operation.get("requestBody", {}), answer)
            for content in part.get("content", {}).values()
        ]
        if not operation["summary"] or not all(
            fits(one["schema"], one.get("example")) for one in contents
        ):
            wrong.append(where)
    assert wrong == []


def test_no_description_is_left_over() -> None:
    used = {field for schema in SCHEMAS.values() for field in schema.get("properties", {})}
    used |= {one["name"] for _, operation in operations() for one in operation["parameters"]}
    assert sorted(field_texts()[COMMON].keys() - used) == []
    paths = {path.removeprefix("/api") for path in DOCUMENT["paths"]}
    assert sorted(field_texts().keys() - SCHEMAS.keys() - paths - {COMMON}) == []
