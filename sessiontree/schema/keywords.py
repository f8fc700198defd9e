"""The keywords of JSON Schema, and the schemas inside a schema.

Source: JSON Schema 2020-12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from sessiontree.contracts.tools.tool import ALLOW_EMPTY_KEYWORD, TRIMMED_KEYWORD
from sessiontree.contracts.values.jsonable import JsonValue

Schema: TypeAlias = dict[str, JsonValue]

ONE_SCHEMA = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords whose value is a schema."""
MANY_SCHEMAS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
"""Keywords whose value is a list of schemas."""
NAMED_SCHEMAS = frozenset({"dependencies", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose value maps names to schemas."""
DEFINITIONS = frozenset({"$defs", "definitions"})
"""Keywords that hold schemas for ``$ref`` and do not constrain a value themselves."""
IN_PLACE = frozenset(
    {"allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then"}
)
"""Keywords whose schemas apply to the same value as the schema that holds them."""
ANNOTATIONS = frozenset(
    {"default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}
    | {ALLOW_EMPTY_KEYWORD, TRIMMED_KEYWORD}
)
"""Keywords that do not constrain a value."""

_FIRST = ("$schema", "type", "description", "properties", "required", "additionalProperties", "items", "enum")
_PLACE = {keyword: place for place, keyword in enumerate(_FIRST)}


def list_subschemas(
    schema: Mapping[str, JsonValue], keywords: frozenset[str] | None = None
) -> Iterator[Schema]:
    """Yield the schemas directly inside, except definitions; only beneath ``keywords`` if given."""
    for keyword, value in schema.items():
        if keywords is None or keyword in keywords:
            yield from (inner for _, inner in _yield_inner(keyword, value))


def locate_subschemas(schema: Mapping[str, JsonValue]) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    """Yield the schemas directly inside, except definitions, with the keys and indexes that lead there."""
    for keyword, value in schema.items():
        yield from _yield_inner(keyword, value)


def replace_inside(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return a copy in which every schema directly inside, including definitions, is ``change(schema)``."""
    return {keyword: _replace_inner(keyword, value, change) for keyword, value in schema.items()}


def rewrite(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return a copy in which every schema, innermost first, is ``change(schema)``.

    ``change`` gets a fresh dict each time and may edit it. The order of keywords and names is kept.
    """
    return change(replace_inside(schema, lambda inner: rewrite(inner, change)))


def order_keywords(schema: Schema) -> Schema:
    """Return the schema with its keywords in the project's order; names of properties keep their order."""
    last = len(_FIRST)
    return dict(
        sorted(schema.items(), key=lambda item: (item[0] in DEFINITIONS, _PLACE.get(item[0], last), item[0]))
    )


def _yield_inner(keyword: str, value: JsonValue) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    if isinstance(value, dict):
        if keyword in ONE_SCHEMA:
            yield (keyword,), value
        elif keyword in NAMED_SCHEMAS:
            yield from (((keyword, name), item) for name, item in value.items() if isinstance(item, dict))
    elif isinstance(value, list) and keyword in MANY_SCHEMAS:
        yield from (((keyword, at), item) for at, item in enumerate(value) if isinstance(item, dict))


def _replace_inner(keyword: str, value: JsonValue, change: Callable[[Schema], Schema]) -> JsonValue:
    if isinstance(value, dict):
        if keyword in ONE_SCHEMA:
            return change(value)
        if keyword in NAMED_SCHEMAS or keyword in DEFINITIONS:
            return {name: change(item) if isinstance(item, dict) else item for name, item in value.items()}
    if isinstance(value, list) and keyword in MANY_SCHEMAS:
        return [change(item) if isinstance(item, dict) else item for item in value]
    return value
