"""What OpenAI's strict mode asks of every schema: closed objects, all properties required, types said.

A property that may be left out becomes required and nullable: null stands for leaving it out, and is taken
as that when a call is checked. Source: OpenAI's guide to Structured Outputs.
"""

from __future__ import annotations

import re
from typing import Final

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.schema.keywords import Schema
from sessiontree.schema.loss_report import LossReport, Place

_SCALARS: Final = ("string", "number", "boolean", "null")
_SAYS_TYPE: Final = frozenset({"$ref", "anyOf", "enum", "type"})
_LOOKAROUND: Final = re.compile(r"\(\?<?[=!]")


def closed_object(schema: Schema, report: LossReport, place: Place) -> Schema:
    """Return an object's schema with every property required and no other allowed."""
    properties = schema.get("properties")
    members = dict(properties) if isinstance(properties, dict) else {}
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    for name, inner in members.items():
        if name not in needed:
            report.add((*place, "properties", name), "required", "narrower", "null stands for leaving it out")
            members[name] = nullable(inner)
    if schema.get("additionalProperties") is not False:
        report.add(place, "additionalProperties", "narrower", "no member beside the properties can be given")
    return {
        **schema,
        "properties": members,
        "required": list[JsonValue](members),
        "additionalProperties": False,
    }


def nullable(schema: JsonValue) -> JsonValue:
    """Return a cleaned schema that takes null too."""
    if not isinstance(schema, dict):
        return schema
    variants, named = schema.get("anyOf"), schema.get("type")
    if isinstance(variants, list):
        has_null = any(_takes_null(variant) for variant in variants)
        return schema if has_null else {**schema, "anyOf": [*variants, {"type": "null"}]}
    if named is None:
        return {"anyOf": [schema, {"type": "null"}]}
    types = named if isinstance(named, list) else [named]
    result = schema if "null" in types else {**schema, "type": [*types, "null"]}
    values = schema.get("enum")
    return result if not isinstance(values, list) or None in values else {**result, "enum": [*values, None]}


def typed_items(schema: Schema, report: LossReport, place: Place) -> Schema:
    """Return an array's schema that says of which type its items are."""
    if isinstance(schema.get("items"), dict):
        return schema
    report.add(place, "items", "narrower", "items of any type became text, numbers, booleans or null")
    return {**schema, "items": {"type": list[JsonValue](_SCALARS)}}


def typed_value(schema: Schema, report: LossReport, place: Place) -> Schema:
    """Return a schema that says a type, and no pattern that strict mode can't compile."""
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and _LOOKAROUND.search(pattern):
        report.add(place, "pattern", "wider", "left out: it looks around")
        schema = {keyword: value for keyword, value in schema.items() if keyword != "pattern"}
    if _SAYS_TYPE & schema.keys():
        return schema
    report.add(place, "type", "narrower", "a value of any type became text, a number, a boolean or null")
    return {**schema, "type": list[JsonValue](_SCALARS)}


def _takes_null(schema: JsonValue) -> bool:
    named = schema.get("type") if isinstance(schema, dict) else None
    return named == "null" or (isinstance(named, list) and "null" in named)
