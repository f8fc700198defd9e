"""Unions at the top of an object's schema merged into one object, without losing what stands beside them.

Source: seed 002, section 4; DESIGN section 9, schema cleaning.
"""

from __future__ import annotations

from typing import Final

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.schema.keywords import DEFINITIONS, Schema
from sessiontree.schema.loss_report import Effect, LossReport, Place
from sessiontree.schema.schema_merge import both, either

UNIONS: Final = frozenset({"allOf", "anyOf", "oneOf"})
"""Keywords that put several schemas of the same value together."""
_CONJUNCTION: Final = "allOf"
_VARIANTS: Final = ("anyOf", "oneOf")
_REACHING = frozenset({"additionalProperties", "items", "patternProperties", "prefixItems"})
"""Keywords that say something of members named or placed by their neighbours."""


class Flattener:
    """Merging within one root schema, which holds the definitions its parts refer to.

    References are followed only where ``follow`` says so, at the top of the root and of definitions: no
    schema refers to itself for the same value, so that following ends there, but not further down.

    Args:
        root: Written out, so that nothing refers to itself for the same value.
        report: Told what merging left out.
    """

    __slots__ = ("_report", "_root")

    def __init__(self, root: Schema, report: LossReport) -> None:
        self._root = root
        self._report = report

    def flattened(self, schema: Schema, place: Place, *, follow: bool) -> Schema:
        """Return the object a schema describes, with no reference and no union at its top.

        Variants that no object fits are left out: only objects are asked for here.
        """
        schema = self.joined(self._seen(schema, place, follow=follow), place, follow=follow)
        base = {keyword: value for keyword, value in schema.items() if keyword not in _VARIANTS}
        for union in _VARIANTS:
            variants = schema.get(union)
            if not isinstance(variants, list):
                continue
            objects = [
                self.flattened(variant, (*place, union, index), follow=follow)
                if isinstance(variant, dict)
                else {}
                for index, variant in enumerate(variants)
                if variant is not False
            ]
            fitting = [variant for variant in objects if _may_be_object(variant)]
            is_one = len(variants) == 1 and bool(fitting) and not _reaches([*variants, base])
            effect: Effect = "same" if is_one else "wider"
            self._report.add(place, union, effect, f"its {len(variants)} variants became one object")
            if fitting:
                merged = fitting[0] if len(fitting) == 1 else either(fitting, base, self._report, place)
                base = both(base, merged, self._report, place)
        return base

    def joined(self, schema: Schema, place: Place, *, follow: bool) -> Schema:
        """Return the schema with all that ``allOf`` asks beside what it asks itself."""
        parts = schema.get(_CONJUNCTION)
        if not isinstance(parts, list):
            return schema
        base = {keyword: value for keyword, value in schema.items() if keyword != _CONJUNCTION}
        for index, part in enumerate(parts):
            if isinstance(part, dict):
                where = (*place, _CONJUNCTION, index)
                inner = self.joined(self._seen(part, where, follow=follow), where, follow=follow)
                base = both(base, inner, self._report, where)
        effect: Effect = "wider" if _reaches([*parts, base]) else "same"
        self._report.add(place, _CONJUNCTION, effect, "merged into one schema")
        return base

    def _seen(self, schema: Schema, place: Place, *, follow: bool) -> Schema:
        """Return a schema without a reference at its top: followed, or left out."""
        while isinstance(ref := schema.get("$ref"), str):
            beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
            if not follow:
                self._report.add(place, "$ref", "wider", "left out: what refers to itself is not merged")
                return beside
            schema = both(beside, self.target(ref), self._report, place)
        return schema

    def target(self, ref: str) -> Schema:
        """Return what a reference of a written out schema leads to."""
        if ref == "#":
            return {keyword: value for keyword, value in self._root.items() if keyword not in DEFINITIONS}
        definitions = self._root.get("$defs")
        found: JsonValue = None
        if isinstance(definitions, dict):
            found = definitions.get(ref.removeprefix("#/$defs/"))
        return found if isinstance(found, dict) else {}


def _reaches(parts: list[JsonValue]) -> bool:
    """Whether one of the schemas may mean something else where another is merged with it."""
    return any(part is False or (isinstance(part, dict) and bool(_REACHING & part.keys())) for part in parts)


def _may_be_object(schema: Schema) -> bool:
    named = schema.get("type", "object")
    return named == "object" or (isinstance(named, list) and "object" in named)
