"""``const``, ``enum`` and lists of types, as dialects take them that know only some of these."""

from __future__ import annotations

from typing import Final

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.schema.dialect import Dialect
from sessiontree.schema.jsonform import type_of
from sessiontree.schema.keywords import ANNOTATIONS, Schema
from sessiontree.schema.loss_report import LossReport, Place

_OF_TYPE: Final = {
    "array": frozenset({"contains", "items", "maxItems", "minItems", "prefixItems", "uniqueItems"}),
    "object": frozenset({"additionalProperties", "patternProperties", "properties", "required"}),
}


def listed_values(schema: Schema, dialect: Dialect, report: LossReport, place: Place) -> Schema:
    """Return the schema with ``const`` as ``enum``, and ``enum`` only where the dialect lists such values.

    A list that holds others becomes their types, which takes more; null beside values that can be listed
    becomes a variant of its own, or is left out where the dialect has no null.
    """
    if "const" in schema:
        rest = {keyword: value for keyword, value in schema.items() if keyword != "const"}
        if "enum" in schema:
            report.add(place, "const", "wider", "left out beside enum")
            schema = rest
        else:
            report.add(place, "const", "same", "became an enum of one value")
            schema = {**rest, "enum": [schema["const"]]}
    values = schema.get("enum")
    if not isinstance(values, list):
        return schema
    fitting = _fitting(values, schema.get("type"))
    rest = {keyword: value for keyword, value in schema.items() if keyword != "enum"}
    listed = [value for value in fitting if type_of(value) in dialect.enum_types]
    others = [value for value in fitting if type_of(value) not in dialect.enum_types]
    if others and others != [None]:
        report.add(place, "enum", "wider", "became the types of its values")
        return rest if "type" in schema else {**rest, "type": _types(fitting)}
    if others and not listed:
        return {**rest, "type": "null"}
    if not listed:
        report.add(place, "enum", "wider", "left out: no value is of the type beside it")
        return rest
    types = _types(listed)
    if others and not dialect.has_null:
        report.add(place, "enum", "narrower", "null was left out; leave the value out instead")
    elif others:
        told = {keyword: value for keyword, value in rest.items() if keyword in ANNOTATIONS}
        asked = {keyword: value for keyword, value in rest.items() if keyword not in ANNOTATIONS | {"type"}}
        report.add(place, "enum", "wider" if asked else "same", "null became a variant of its own")
        return {**told, "anyOf": [{**asked, "type": types, "enum": listed}, {"type": "null"}]}
    return {**rest, "type": types, "enum": listed}


def plain_type(schema: Schema, dialect: Dialect, report: LossReport, place: Place) -> Schema:
    """Return the schema with one type, or a union of such, where the dialect takes no list of types."""
    named = schema.get("type")
    if not isinstance(named, list):
        return schema
    rest = {keyword: value for keyword, value in schema.items() if keyword != "type"}
    types = [name for name in named if isinstance(name, str)]
    if not dialect.has_null and "null" in types and len(types) > 1:
        report.add(place, "type", "narrower", "null was left out; leave the value out instead")
        types.remove("null")
    if len(types) == 1:
        return {**rest, "type": types[0]}
    if dialect.has_null:
        return {**rest, "type": list[JsonValue](types)}
    report.add(place, "type", "same", "became one variant for each type")
    told = {keyword: value for keyword, value in rest.items() if keyword in ANNOTATIONS}
    asked = {keyword: value for keyword, value in rest.items() if keyword not in ANNOTATIONS}
    return {**told, "anyOf": [{"type": name, **_of_type(asked, name)} for name in types]}


def _fitting(values: list[JsonValue], named: JsonValue) -> list[JsonValue]:
    """Return the values that are of the type said beside them."""
    if named is None:
        return values
    types = named if isinstance(named, list) else [named]
    return [value for value in values if type_of(value) in types or ("integer" in types and _is_whole(value))]


def _is_whole(value: JsonValue) -> bool:
    return type_of(value) == "number" and isinstance(value, int | float) and value == int(value)


def _types(values: list[JsonValue]) -> JsonValue:
    types = list(dict.fromkeys(type_of(value) for value in values))
    if "number" in types and all(isinstance(value, int) for value in values if type_of(value) == "number"):
        types[types.index("number")] = "integer"
    return types[0] if len(types) == 1 else list[JsonValue](types)


def _of_type(asked: Schema, name: str) -> Schema:
    """Return what is asked of values of one type."""
    foreign = frozenset[str]().union(*(own for other, own in _OF_TYPE.items() if other != name))
    kept = {keyword: value for keyword, value in asked.items() if keyword not in foreign}
    values = kept.get("enum")
    if isinstance(values, list):
        kept["enum"] = _fitting(values, name)
    return kept
