"""Puts descriptions and examples of ``fields.toml`` into the OpenAPI document."""

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, cast

Schema = dict[str, Any]

COMMON: Final = "fields"
_REF: Final = "#/components/schemas/"
DEPRECATED: Final = "; deprecated."
_MAX_DEPTH: Final = 5
_PLAIN: Final[Mapping[str, Any]] = {
    "string": "text", "integer": 1, "number": 1.0, "boolean": True, "object": {},
}  # fmt: skip


@lru_cache(maxsize=1)
def field_texts() -> Mapping[str, Mapping[str, list[Any]]]:
    """Description and example by schema and field; those of ``fields`` hold for every schema."""
    return tomllib.loads(
        files("forge_jobs.web.api").joinpath("fields.toml").read_text(encoding="utf-8")
    )


def describe(components: dict[str, Schema]) -> None:
    """Add a description to every property of every schema, and an example where the value is not
    another schema. What a type says by itself stays."""
    texts = field_texts()
    for name, schema in components.items():
        properties = cast("dict[str, Schema]", schema.get("properties", {}))
        for field, inner in properties.items():
            known = texts.get(name, {}).get(field) or texts[COMMON].get(field)
            if known is not None:
                _add(inner, known)


def describe_parameter(path: str, parameter: dict[str, Any]) -> dict[str, Any]:
    """A parameter with its description and example; those of its path come first."""
    texts, name = field_texts(), parameter["name"]
    known = texts.get(path, {}).get(name) or texts[COMMON].get(name)
    if known is not None:
        parameter.setdefault("description", known[0])
        if known[0].endswith(DEPRECATED):
            parameter["deprecated"] = True
        schema = parameter["schema"]
        if "enum" in schema:
            parameter["example"] = schema["enum"][0]
        elif "$ref" not in schema:
            parameter["example"] = _fitting(schema, known[1:])
    return parameter


def example_of(schema: Schema, components: Mapping[str, Schema], depth: int = 0) -> Any:
    """An example of a schema, made of the examples of its fields."""
    if "example" in schema:
        return schema["example"]
    if "$ref" in schema:
        return example_of(components[schema["$ref"].removeprefix(_REF)], components, depth + 1)
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], components, depth)
    if "properties" in schema:
        properties = cast("dict[str, Schema]", schema["properties"])
        wanted = properties if depth < _MAX_DEPTH else schema.get("required", ())
        return {name: example_of(properties[name], components, depth) for name in wanted}
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return [example_of(one, components, depth) for one in schema["prefixItems"]]
        return [example_of(schema["items"], components, depth)] if depth < _MAX_DEPTH else []
    simple: dict[str, Any] = {
        "string": "text",
        "integer": 1,
        "number": 1.0,
        "boolean": True,
        "object": {},
    }
    return simple.get(schema.get("type", ""))


def _add(schema: Schema, known: list[Any]) -> None:
    schema.setdefault("description", known[0])
    if known[0].endswith(DEPRECATED):
        schema["deprecated"] = True
    if len(known) > 1 and not _holds_schemas(schema):
        schema.setdefault("example", _fitting(schema, known[1:]))


def _fitting(schema: Schema, given: list[Any]) -> Any:
    """The given example; a list of it where the field holds a list."""
    if "enum" in schema:
        return schema["enum"][0] if given[0] not in schema["enum"] else given[0]
    if not given:
        return example_of(schema, {})
    example: Any = given[0]
    if schema.get("type") == "array" and not isinstance(example, list):
        return cast("Any", [example])
    return cast("Any", example)


def _holds_schemas(schema: Schema) -> bool:
    if "$ref" in schema:
        return True
    inner = [*schema.get("anyOf", ()), *([schema["items"]] if schema.get("items") else [])]
    return any(_holds_schemas(one) for one in inner)
