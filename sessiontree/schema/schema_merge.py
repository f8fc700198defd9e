"""Two schemas as one: what both ask, or what either asks.

Where JSON Schema has no one keyword for the result, what is asked becomes less, never more, and the report
says so. The one exception is stated too: a property that only some of a union's variants name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.schema.keywords import ANNOTATIONS, Schema
from sessiontree.schema.loss_report import LossReport, Place

_LARGER: Final = frozenset(
    {"exclusiveMinimum", "minContains", "minItems", "minLength", "minProperties", "minimum"}
)
_SMALLER: Final = frozenset(
    {"exclusiveMaximum", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum"}
)
_GROUPS: Final = (frozenset({"else", "if", "then"}), frozenset({"contains", "maxContains", "minContains"}))
"""Keywords that mean something only together, so that two groups are never mixed."""
_SIGHT: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})
"""Keywords that look at what stands beside them, and would see another thing after merging."""
_ALONE: Final = (_LARGER | _SMALLER | ANNOTATIONS) - {"maxContains", "minContains"} | {
    "const",
    "enum",
    "format",
    "multipleOf",
    "not",
    "pattern",
    "required",
    "type",
}
"""Keywords that mean the same whatever stands beside them."""
_OPEN_LITERAL: Final = ANNOTATIONS | {"const", "enum", "type"}


def both(one: Schema, other: Schema, report: LossReport, place: Place) -> Schema:
    """Return a schema that asks what both ask; annotations of the first win.

    Args:
        one: Kept as it is where the two can't be joined.
        other: What is joined to it.
        report: Told what of the other is asked no more.
        place: Where the two stand.
    """
    result = {keyword: value for keyword, value in one.items() if keyword not in _SIGHT}
    left_out = _clashing_groups(one, other)
    for keyword in sorted((one.keys() | other.keys()) & _SIGHT | left_out):
        report.add(place, keyword, "wider", "left out where schemas were merged")
    for keyword, value in other.items():
        if keyword in _SIGHT or keyword in left_out:
            continue
        if keyword not in result or result[keyword] == value:
            result[keyword] = value
        elif keyword not in ANNOTATIONS:
            joined = _joined(keyword, result[keyword], value)
            if joined is None:
                report.add(place, keyword, "wider", "the second of two was left out")
            else:
                result[keyword] = joined
    return result


def either(variants: list[Schema], base: Schema, report: LossReport, place: Place) -> Schema:
    """Return the object that variants of a union make together, to be joined to the schema they stand in.

    Properties are those of all variants, in the order met; one that the base names too is only taken where
    every variant speaks of it. Required is what all variants require.

    Args:
        variants: Schemas of objects, at least one, without unions of their own at the top.
        base: What stands beside the union.
        report: Told what is asked no more, and which properties are asked more.
        place: Where the union stands.
    """
    own = _dict(base, "properties")
    properties: Schema = {}
    for name in dict.fromkeys(name for variant in variants for name in _dict(variant, "properties")):
        named = [variant for variant in variants if name in _dict(variant, "properties")]
        is_open = any(not _is_closed(variant) for variant in variants if variant not in named)
        if is_open and name in own:
            report.add((*place, "properties", name), "anyOf", "wider", "what some variants ask was left out")
            continue
        if is_open:
            report.add(
                (*place, "properties", name), "anyOf", "narrower", "taken from the variants that name it"
            )
        properties[name] = any_of([_dict(variant, "properties")[name] for variant in named])
    merged: Schema = {"type": "object", "properties": properties}
    required = _required_by_all(variants)
    if required:
        merged["required"] = required
    if all(_is_closed(variant) for variant in variants):
        merged["additionalProperties"] = False
    return merged


def any_of(parts: Iterable[JsonValue]) -> JsonValue:
    """Return a schema for values that fit one of the schemas: the only one of them, or ``anyOf``.

    Those that only list values become one list.
    """
    distinct = {_text(part): part for part in parts}
    if any(part is True or part == {} for part in distinct.values()):
        return {}
    left = [part for part in distinct.values() if isinstance(part, dict)]
    listed = [part for part in left if literals(part) is not None]
    if len(listed) > 1:
        values = [value for part in listed for value in literals(part) or ()]
        first = left.index(listed[0])
        left = [part for part in left if part not in listed]
        left.insert(first, _enumerated(listed, values))
    if not left:
        return False
    return left[0] if len(left) == 1 else {"anyOf": list[JsonValue](left)}


def literals(schema: Schema) -> list[JsonValue] | None:
    """Return the values of a schema that does nothing but list values, None of any other."""
    if not schema.keys() <= _OPEN_LITERAL or {"const", "enum"} <= schema.keys():
        return None
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _enumerated(parts: list[Schema], values: list[JsonValue]) -> Schema:
    """Return the enum of several enums: values as first met, the type only where all say the same."""
    result: Schema = {}
    types = [part.get("type") for part in parts]
    if types[0] is not None and types.count(types[0]) == len(types):
        result["type"] = types[0]
    for annotation in ("title", "description", "default"):
        given = [part[annotation] for part in parts if annotation in part]
        if given:
            result[annotation] = given[0]
    result["enum"] = list({_text(value): value for value in values}.values())
    return result


def _clashing_groups(one: Schema, other: Schema) -> frozenset[str]:
    clashing = frozenset[str]()
    for group in _GROUPS:
        mine = {keyword: one[keyword] for keyword in group & one.keys()}
        theirs = {keyword: other[keyword] for keyword in group & other.keys()}
        if mine and theirs and mine != theirs:
            clashing |= theirs.keys()
    return clashing


def _joined(keyword: str, one: JsonValue, other: JsonValue) -> JsonValue:
    """Return what a keyword says where both its values are asked, None where one value can't say it."""
    if keyword in {"items", "additionalProperties"}:
        return _and(one, other)
    if keyword in {"properties", "patternProperties"} and isinstance(one, dict) and isinstance(other, dict):
        names = dict.fromkeys([*one, *other])
        return {name: _and(one.get(name, {}), other.get(name, {})) for name in names}
    if isinstance(one, list) and isinstance(other, list):
        return _joined_lists(keyword, one, other)
    if isinstance(one, int | float) and isinstance(other, int | float):
        if keyword in _LARGER:
            return max(one, other)
        if keyword in _SMALLER:
            return min(one, other)
    if keyword == "type":
        return _shared_types(one, other)
    return None


def _joined_lists(keyword: str, one: list[JsonValue], other: list[JsonValue]) -> JsonValue:
    if keyword == "required":
        return list(dict.fromkeys(map(str, [*one, *other])))
    if keyword == "enum":
        texts = {_text(value) for value in other}
        return [value for value in one if _text(value) in texts] or None
    if keyword == "prefixItems":
        longest = range(max(len(one), len(other)))
        return [
            _and(one[place] if place < len(one) else True, other[place] if place < len(other) else True)
            for place in longest
        ]
    if keyword == "type":
        return _shared_types(one, other)
    return None


def _shared_types(one: JsonValue, other: JsonValue) -> JsonValue:
    mine = [one] if isinstance(one, str) else one
    theirs = [other] if isinstance(other, str) else other
    if not isinstance(mine, list) or not isinstance(theirs, list):
        return None
    shared = [name for name in mine if name in theirs or (name == "integer" and "number" in theirs)]
    if "number" in mine and "integer" in theirs and "integer" not in shared:
        shared.append("integer")
    return shared[0] if len(shared) == 1 else list(shared) or None


def _and(one: JsonValue, other: JsonValue) -> JsonValue:
    """Return one schema or boolean for what two ask of the same value."""
    if one is False or other is False:
        return False
    if one is True or one == {} or one == other:
        return other
    if other is True or other == {}:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        clash = (one.keys() & other.keys()) - ANNOTATIONS
        if not clash and (one.keys() | other.keys()) <= _ALONE:
            return {**other, **one}
    return {"allOf": [one, other]}


def _is_closed(variant: Schema) -> bool:
    return variant.get("additionalProperties") is False and "patternProperties" not in variant


def _required_by_all(variants: list[Schema]) -> list[JsonValue]:
    lists = [names if isinstance(names := variant.get("required"), list) else [] for variant in variants]
    return [name for name in lists[0] if all(name in names for names in lists)]


def _dict(schema: Schema, keyword: str) -> Schema:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _text(value: JsonValue) -> str:
    """Return what two values that say the same have in common."""
    return json.dumps(value, sort_keys=True)
