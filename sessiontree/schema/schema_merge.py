"""Merging of two schemas into one, and of the unions of a schema into one object.

If JSON Schema has no single keyword for the result, the result requires less, never more, and the report
says so. There is one exception, which is reported too: a property that only some variants of a union name.
Source: seed 002, section 4; DESIGN section 9, schema cleaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.schema.dialect import Effect, LossReport, Place
from sessiontree.schema.keywords import ANNOTATIONS, DEFINITIONS, Schema

_LARGER: Final = frozenset(
    {"exclusiveMinimum", "minContains", "minItems", "minLength", "minProperties", "minimum"}
)
_SMALLER: Final = frozenset(
    {"exclusiveMaximum", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum"}
)
_GROUPS: Final = (frozenset({"else", "if", "then"}), frozenset({"contains", "maxContains", "minContains"}))
"""Keywords that have a meaning only together, so that two groups are never mixed."""
_SIGHT: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})
"""Keywords whose meaning depends on their neighbours, so that merging would change it."""
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
"""Keywords whose meaning does not depend on their neighbours."""
_OPEN_LITERAL: Final = ANNOTATIONS | {"const", "enum", "type"}


def require_both(one: Schema, other: Schema, report: LossReport, place: Place) -> Schema:
    """Return a schema that requires what both require; annotations of the first win.

    Args:
        one: Kept as it is where the two can't be joined.
        other: What is joined to it.
        report: Called with the constraints of ``other`` that are lost.
        place: Where the two are.
    """
    result = {keyword: value for keyword, value in one.items() if keyword not in _SIGHT}
    left_out = _find_clashing_groups(one, other)
    for keyword in sorted((one.keys() | other.keys()) & _SIGHT | left_out):
        report.add(place, keyword, "wider", "left out where schemas were merged")
    for keyword, value in other.items():
        if keyword in _SIGHT or keyword in left_out:
            continue
        if keyword not in result or result[keyword] == value:
            result[keyword] = value
        elif keyword not in ANNOTATIONS:
            joined = _merge_keyword(keyword, result[keyword], value)
            if joined is None:
                report.add(place, keyword, "wider", "the second of two was left out")
            else:
                result[keyword] = joined
    return result


def merge_variants(variants: list[Schema], base: Schema, report: LossReport, place: Place) -> Schema:
    """Return the object that the variants of a union form together, to be joined to the schema around them.

    Properties are those of all variants, in the order found. One that the base names too is only included if
    every variant names it. Required is what all variants require.

    Args:
        variants: Schemas of objects, at least one, without unions of their own at the top.
        base: What is next to the union.
        report: Called with the constraints that are lost, and the properties that are more constrained.
        place: Where the union is.
    """
    own = _get_dict(base, "properties")
    properties: Schema = {}
    for name in dict.fromkeys(name for variant in variants for name in _get_dict(variant, "properties")):
        named = [variant for variant in variants if name in _get_dict(variant, "properties")]
        is_open = any(not _is_closed(variant) for variant in variants if variant not in named)
        # A variant that does not name it allows whatever the base allows.
        if is_open and name in own:
            report.add((*place, "properties", name), "anyOf", "wider", "what some variants ask was left out")
            continue
        if is_open:
            report.add(
                (*place, "properties", name), "anyOf", "narrower", "taken from the variants that name it"
            )
        properties[name] = make_any_of([_get_dict(variant, "properties")[name] for variant in named])
    merged: Schema = {"type": "object", "properties": properties}
    required = _find_required_by_all(variants)
    if required:
        merged["required"] = required
    if all(_is_closed(variant) for variant in variants):
        merged["additionalProperties"] = False
    return merged


def make_any_of(parts: Iterable[JsonValue]) -> JsonValue:
    """Return a schema for values that fit one of the schemas: the only schema, or ``anyOf``.

    Schemas that only list values become one list.
    """
    distinct = {_to_json_text(part): part for part in parts}
    if any(part is True or part == {} for part in distinct.values()):
        return {}
    left = [part for part in distinct.values() if isinstance(part, dict)]
    listed = [part for part in left if list_literals(part) is not None]
    if len(listed) > 1:
        values = [value for part in listed for value in list_literals(part) or ()]
        first = left.index(listed[0])
        left = [part for part in left if part not in listed]
        left.insert(first, _merge_enums(listed, values))
    if not left:
        return False
    return left[0] if len(left) == 1 else {"anyOf": list[JsonValue](left)}


def list_literals(schema: Schema) -> list[JsonValue] | None:
    """Return the values of a schema that only lists values, or None for any other schema."""
    if not schema.keys() <= _OPEN_LITERAL or {"const", "enum"} <= schema.keys():
        return None
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _merge_enums(parts: list[Schema], values: list[JsonValue]) -> Schema:
    """Return the enum of several enums: values in the order found, the type only if all have the same."""
    result: Schema = {}
    types = [part.get("type") for part in parts]
    if types[0] is not None and types.count(types[0]) == len(types):
        result["type"] = types[0]
    for annotation in ("title", "description", "default"):
        given = [part[annotation] for part in parts if annotation in part]
        if given:
            result[annotation] = given[0]
    result["enum"] = list({_to_json_text(value): value for value in values}.values())
    return result


def _find_clashing_groups(one: Schema, other: Schema) -> frozenset[str]:
    clashing = frozenset[str]()
    for group in _GROUPS:
        mine = {keyword: one[keyword] for keyword in group & one.keys()}
        theirs = {keyword: other[keyword] for keyword in group & other.keys()}
        if mine and theirs and mine != theirs:
            clashing |= theirs.keys()
    return clashing


def _merge_keyword(keyword: str, one: JsonValue, other: JsonValue) -> JsonValue:
    """Return a keyword's value that combines both values, or None if one value can't express both."""
    if keyword in {"items", "additionalProperties"}:
        return _combine(one, other)
    if keyword in {"properties", "patternProperties"} and isinstance(one, dict) and isinstance(other, dict):
        names = dict.fromkeys([*one, *other])
        return {name: _combine(one.get(name, {}), other.get(name, {})) for name in names}
    if isinstance(one, list) and isinstance(other, list):
        return _join_lists(keyword, one, other)
    if isinstance(one, int | float) and isinstance(other, int | float):
        if keyword in _LARGER:
            return max(one, other)
        if keyword in _SMALLER:
            return min(one, other)
    if keyword == "type":
        return _intersect_types(one, other)
    return None


def _join_lists(keyword: str, one: list[JsonValue], other: list[JsonValue]) -> JsonValue:
    if keyword == "required":
        return list(dict.fromkeys(map(str, [*one, *other])))
    if keyword == "enum":
        texts = {_to_json_text(value) for value in other}
        # Many readers refuse an enum without values, so then the second one is left out.
        return [value for value in one if _to_json_text(value) in texts] or None
    if keyword == "prefixItems":
        longest = range(max(len(one), len(other)))
        return [
            _combine(one[place] if place < len(one) else True, other[place] if place < len(other) else True)
            for place in longest
        ]
    if keyword == "type":
        return _intersect_types(one, other)
    return None


def _intersect_types(one: JsonValue, other: JsonValue) -> JsonValue:
    mine = [one] if isinstance(one, str) else one
    theirs = [other] if isinstance(other, str) else other
    if not isinstance(mine, list) or not isinstance(theirs, list):
        return None
    shared = [name for name in mine if name in theirs or (name == "integer" and "number" in theirs)]
    if "number" in mine and "integer" in theirs and "integer" not in shared:
        shared.append("integer")
    return shared[0] if len(shared) == 1 else list(shared) or None


def _combine(one: JsonValue, other: JsonValue) -> JsonValue:
    """Return one schema or boolean that combines what two require of the same value."""
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


def _find_required_by_all(variants: list[Schema]) -> list[JsonValue]:
    lists = [names if isinstance(names := variant.get("required"), list) else [] for variant in variants]
    return [name for name in lists[0] if all(name in names for names in lists)]


def _get_dict(schema: Schema, keyword: str) -> Schema:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _to_json_text(value: JsonValue) -> str:
    """Return a value's JSON text with sorted keys, for comparisons."""
    return json.dumps(value, sort_keys=True)


UNIONS: Final = frozenset({"allOf", "anyOf", "oneOf"})
"""Keywords that combine several schemas for the same value."""
_CONJUNCTION: Final = "allOf"
_VARIANTS: Final = ("anyOf", "oneOf")
_REACHING = frozenset({"additionalProperties", "items", "patternProperties", "prefixItems"})
"""Keywords that constrain members which their neighbours name or place."""


class Flattener:
    """Merging within one root schema, which holds the definitions that its parts refer to.

    References are followed only with ``follow``, at the top of the root and of definitions. No schema refers
    to itself for the same value, so following ends there; further down it might not.

    Args:
        root: Written out, so that nothing refers to itself for the same value.
        report: Called with what merging left out.
    """

    __slots__ = ("_report", "_root")

    def __init__(self, root: Schema, report: LossReport) -> None:
        self._root = root
        self._report = report

    def flatten(self, schema: Schema, place: Place, *, follow: bool) -> Schema:
        """Return the object that a schema describes, without references and unions at its top.

        Variants that no object fits are left out: only objects are relevant here.
        """
        schema = self.join(self._resolve(schema, place, follow=follow), place, follow=follow)
        base = {keyword: value for keyword, value in schema.items() if keyword not in _VARIANTS}
        for union in _VARIANTS:
            variants = schema.get(union)
            if not isinstance(variants, list):
                continue
            objects = [
                self.flatten(variant, (*place, union, index), follow=follow)
                if isinstance(variant, dict)
                else {}
                for index, variant in enumerate(variants)
                if variant is not False
            ]
            fitting = [variant for variant in objects if _may_be_object(variant)]
            is_one = len(variants) == 1 and bool(fitting) and not _can_interfere([*variants, base])
            effect: Effect = "same" if is_one else "wider"
            self._report.add(place, union, effect, f"its {len(variants)} variants became one object")
            if fitting:
                merged = (
                    fitting[0] if len(fitting) == 1 else merge_variants(fitting, base, self._report, place)
                )
                base = require_both(base, merged, self._report, place)
        return base

    def join(self, schema: Schema, place: Place, *, follow: bool) -> Schema:
        """Return the schema with everything that ``allOf`` requires added to its own constraints."""
        parts = schema.get(_CONJUNCTION)
        if not isinstance(parts, list):
            return schema
        base = {keyword: value for keyword, value in schema.items() if keyword != _CONJUNCTION}
        for index, part in enumerate(parts):
            if isinstance(part, dict):
                where = (*place, _CONJUNCTION, index)
                inner = self.join(self._resolve(part, where, follow=follow), where, follow=follow)
                base = require_both(base, inner, self._report, where)
        effect: Effect = "wider" if _can_interfere([*parts, base]) else "same"
        self._report.add(place, _CONJUNCTION, effect, "merged into one schema")
        return base

    def _resolve(self, schema: Schema, place: Place, *, follow: bool) -> Schema:
        """Return a schema without a reference at its top: the reference is followed, or left out."""
        while isinstance(ref := schema.get("$ref"), str):
            beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
            if not follow:
                self._report.add(place, "$ref", "wider", "left out: what refers to itself is not merged")
                return beside
            schema = require_both(beside, self.target(ref), self._report, place)
        return schema

    def target(self, ref: str) -> Schema:
        """Return the target of a reference in a written-out schema."""
        if ref == "#":
            return {keyword: value for keyword, value in self._root.items() if keyword not in DEFINITIONS}
        definitions = self._root.get("$defs")
        found: JsonValue = None
        if isinstance(definitions, dict):
            found = definitions.get(ref.removeprefix("#/$defs/"))
        return found if isinstance(found, dict) else {}


def _can_interfere(parts: list[JsonValue]) -> bool:
    """Whether the meaning of one of the schemas may change when another is merged with it."""
    return any(part is False or (isinstance(part, dict) and bool(_REACHING & part.keys())) for part in parts)


def _may_be_object(schema: Schema) -> bool:
    named = schema.get("type", "object")
    return named == "object" or (isinstance(named, list) and "object" in named)
