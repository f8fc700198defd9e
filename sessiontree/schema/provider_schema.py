"""Schemas cleaned for a provider: the part of JSON Schema its dialect takes, and a report of all the rest.

What a dialect can't say is left out, so that the schema shown takes more than the tool does; where a dialect
forces it to take less, the report says ``narrower``. The tool's own schema stays what every call is checked
against.
Sources: seed 001, section 4.3; seed 002, section 4; DESIGN section 9, schema cleaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.schema.definitions import MAX_SCHEMAS, write_out
from sessiontree.schema.dialect import Dialect
from sessiontree.schema.flat_unions import UNIONS, Flattener
from sessiontree.schema.jsonform import json_form
from sessiontree.schema.keywords import ANNOTATIONS, DEFINITIONS, Schema, ordered, rewrite
from sessiontree.schema.listed_values import listed_values, plain_type
from sessiontree.schema.loss_report import Cleaned, Effect, LossReport, Place
from sessiontree.schema.older_drafts import modernised
from sessiontree.schema.openai_strict import closed_object, typed_items, typed_value
from sessiontree.schema.schema_merge import any_of, both

_OBJECT = frozenset({"additionalProperties", "patternProperties", "properties", "required"})
_ARRAY = frozenset({"items", "maxItems", "minItems"})
_SAYS_TYPE = frozenset({"$ref", "anyOf", "enum", "type"})


def clean(schema: Mapping[str, JsonValue], dialect: Dialect) -> Cleaned:
    """Return a tool's schema as a provider takes it, and what that changed.

    Args:
        schema: JSON Schema of an object.
        dialect: What the provider takes.

    Raises:
        ConfigError: the root is no object, a reference leads nowhere, or what is written out grows too large.

    Contract: pure; total otherwise, also for schemas that refer to themselves; never mutates its input;
    cleaning what was cleaned changes nothing more.
    """
    copy = json_form(schema)
    if not isinstance(copy, dict) or copy.get("type", "object") != "object":
        raise ConfigError("the root of a tool's schema must be an object")
    written = write_out(copy)
    if not dialect.is_changed:
        return Cleaned({"type": "object", **written}, ())
    report = LossReport()
    written = modernised(written, report)
    while True:
        cleaned = _Cleaner(written, dialect, report).root()
        # What was cut no longer contains itself, and what was merged refers to less: definitions that can be
        # written out now are, and cleaned where they stand. Each round has fewer of them.
        written = write_out(cleaned)
        if written == cleaned:
            return Cleaned(rewrite(cleaned, ordered), report.finished())


class _Cleaner:
    """One schema on its way into one dialect."""

    def __init__(self, root: Schema, dialect: Dialect, report: LossReport) -> None:
        self._schema = {"type": "object", **root}
        self._dialect = dialect
        self._report = report
        self._flattener = Flattener(self._schema, report)
        self._used: dict[str, None] = {}
        self._made = 0

    def root(self) -> Schema:
        """Return the whole schema."""
        schema: Schema = {"properties": {}, **self._schema}
        definitions = {keyword: schema.pop(keyword) for keyword in DEFINITIONS & schema.keys()}
        if self._dialect.keywords is None:
            return {**self._open_root(schema), **definitions}
        if UNIONS & schema.keys():
            schema = self._flattener.flattened(schema, (), follow=True)
        cleaned = self._node(schema, (), may_lack=False)
        kept: Schema = {}
        while waiting := [name for name in self._used if name not in kept]:
            for name in waiting:
                where: Place = ("$defs", name)
                target = self._flattener.joined(self._flattener.target(f"#/$defs/{name}"), where, follow=True)
                kept[name] = self._node(target, where, may_lack=False)
        return {**cleaned, "$defs": dict(sorted(kept.items()))} if kept else cleaned

    def _open_root(self, schema: Schema) -> Schema:
        refused = self._dialect.root_refused
        if refused & UNIONS & schema.keys():
            schema = self._flattener.flattened(schema, (), follow=True)
        for keyword in sorted(refused & schema.keys()):
            self._report.add((), keyword, "wider", "left out: refused at the root")
        return {keyword: value for keyword, value in schema.items() if keyword not in refused}

    def _node(self, schema: Schema, place: Place, *, may_lack: bool) -> Schema:
        """Return one schema; ``may_lack``: it stands beneath a property that may be left out."""
        self._made += 1
        if self._made > MAX_SCHEMAS:
            raise ConfigError(f"cleaned for a model it makes more than {MAX_SCHEMAS} schemas; nest it less")
        schema = _with_lone_reference(schema)
        if "$ref" in schema:
            return self._reference(schema, place, may_lack=may_lack)
        schema = self._flattener.joined(schema, place, follow=False)
        schema = self._with_one_union(schema, place)
        schema = listed_values(schema, self._dialect, self._report, place)
        if isinstance(schema.get("anyOf"), list):
            return self._union(schema, place, may_lack=may_lack)
        schema = plain_type(schema, self._dialect, self._report, place)
        if "anyOf" in schema:
            return self._union(schema, place, may_lack=may_lack)
        return self._finished(self._with_members(self._known(schema, place), place, may_lack), place)

    def _reference(self, schema: Schema, place: Place, *, may_lack: bool) -> Schema:
        ref = str(schema["$ref"])
        cycles = self._dialect.cycles
        if cycles == "any" or (cycles == "optional" and may_lack):
            for keyword in sorted(schema.keys() - {"$ref"}):
                effect: Effect = "same" if keyword in ANNOTATIONS else "wider"
                self._report.add(place, keyword, effect, "left out: a reference stands alone")
            if ref != "#":
                self._used[ref.removeprefix("#/$defs/")] = None
            return {"$ref": ref}
        self._report.add(place, "$ref", "wider", "cut: what refers to itself is shown once")
        found = self._flattener.target(ref)
        known = {
            keyword: value
            for keyword, value in {**found, **schema}.items()
            if keyword in {"description", "title", "type"}
        }
        # What is known of the type alone has no members left to say anything of.
        return self._node(known, place, may_lack=may_lack)

    def _with_one_union(self, schema: Schema, place: Place) -> Schema:
        """Return the schema with ``anyOf`` alone: no dialect that lists its keywords takes ``oneOf``."""
        if not isinstance(schema.get("oneOf"), list):
            return schema
        rest = {keyword: value for keyword, value in schema.items() if keyword != "oneOf"}
        if "anyOf" in schema:
            self._report.add(place, "oneOf", "wider", "left out beside anyOf")
            return rest
        self._report.add(place, "oneOf", "wider", "became anyOf")
        return {**rest, "anyOf": schema["oneOf"]}

    def _union(self, schema: Schema, place: Place, *, may_lack: bool) -> Schema:
        variants = schema["anyOf"]
        assert isinstance(variants, list)  # noqa: S101 - asked by the caller
        beside = {keyword: value for keyword, value in schema.items() if keyword != "anyOf"}
        if beside.get("type") == "object" and _OBJECT & beside.keys():
            merged = self._flattener.flattened(schema, place, follow=False)
            return self._node(merged, place, may_lack=may_lack)
        told = {keyword: value for keyword, value in beside.items() if keyword in ANNOTATIONS}
        asked = {keyword: value for keyword, value in beside.items() if keyword not in ANNOTATIONS}
        found: list[JsonValue] = []
        for index, variant in enumerate(variants):
            where = (*place, "anyOf", index)
            if variant is False:
                continue
            inner = _dict(variant)
            if asked and "$ref" in inner:
                self._report.add(place, "anyOf", "wider", "what stands beside it is not asked of references")
            elif asked:
                inner = both(inner, asked, self._report, where)
            cleaned = self._node(inner, where, may_lack=may_lack)
            nested = cleaned.get("anyOf")
            found += nested if isinstance(nested, list) and len(cleaned) == 1 else [cleaned]
        union = any_of(self._without_null(found, place))
        if union is False:
            self._report.add(place, "anyOf", "wider", "left out: nothing fits any of it")
        elif isinstance(union, dict) and "enum" in union:
            self._report.add(place, "anyOf", "same", "became one enum")
        merged = self._with_listed_variants(_dict(union), place)
        return self._finished(self._known({**merged, **told}, place), place)

    def _with_listed_variants(self, union: Schema, place: Place) -> Schema:
        """Return a union, or what it became, with the types said of values that were put into one list."""
        variants = union.get("anyOf")
        if not isinstance(variants, list):
            return listed_values(union, self._dialect, self._report, place)
        typed = [
            listed_values(_dict(variant), self._dialect, self._report, (*place, "anyOf", index))
            for index, variant in enumerate(variants)
        ]
        return {**union, "anyOf": list[JsonValue](typed)}

    def _without_null(self, variants: list[JsonValue], place: Place) -> list[JsonValue]:
        if self._dialect.has_null:
            return variants
        left = [variant for variant in variants if variant != {"type": "null"}]
        if len(left) < len(variants) and left:
            self._report.add(place, "anyOf", "narrower", "null was left out; leave the value out instead")
        return left or variants

    def _known(self, schema: Schema, place: Place) -> Schema:
        """Return the schema without keywords the dialect has no word for."""
        keywords = self._dialect.keywords or frozenset()
        unknown = sorted(schema.keys() - keywords)
        for keyword in unknown:
            effect: Effect = "same" if keyword in ANNOTATIONS else "wider"
            self._report.add(place, keyword, effect, "left out")
        known = {keyword: value for keyword, value in schema.items() if keyword in keywords}
        # Without the patterns, what is said of all other names would be said of theirs too.
        if "patternProperties" in schema and known.pop("additionalProperties", None) is not None:
            self._report.add(place, "additionalProperties", "wider", "left out with patternProperties")
        if "prefixItems" in unknown and isinstance(prefix := schema["prefixItems"], list):
            rest = known.pop("items", True)
            most = schema.get("maxItems")
            reaches_rest = not isinstance(most, int) or most > len(prefix)
            known["items"] = any_of([*prefix, rest] if reaches_rest else prefix)
        if isinstance(known.get("items"), bool):
            self._report.add(place, "items", "same" if known.pop("items") else "wider", "left out")
        formats, named = self._dialect.formats, known.get("format")
        if formats is not None and named is not None and named not in formats:
            self._report.add(place, "format", "wider", f"left out: {named!r} is not known")
            del known["format"]
        return known

    def _with_members(self, schema: Schema, place: Place, may_lack: bool) -> Schema:
        result = dict(schema)
        properties, required = schema.get("properties"), schema.get("required")
        if isinstance(properties, dict):
            needed = required if isinstance(required, list) else []
            members: Schema = {}
            for name, inner in properties.items():
                where = (*place, "properties", name)
                if inner is False:
                    self._report.add(where, "properties", "wider", "left out: nothing may be given there")
                    continue
                members[name] = self._node(_dict(inner), where, may_lack=may_lack or name not in needed)
            result["properties"] = members
        self._keep_known_names(result, place)
        items = schema.get("items")
        if isinstance(items, dict):
            result["items"] = self._node(items, (*place, "items"), may_lack=may_lack)
        prefix = schema.get("prefixItems")
        if isinstance(prefix, list):
            for index, inner in enumerate(prefix):
                if inner is False:
                    where = (*place, "prefixItems", index)
                    self._report.add(where, "prefixItems", "wider", "left out: nothing may be given there")
            result["prefixItems"] = [
                self._node(_dict(inner), (*place, "prefixItems", index), may_lack=may_lack)
                for index, inner in enumerate(prefix)
            ]
        other = schema.get("additionalProperties")
        if isinstance(other, dict):
            result["additionalProperties"] = self._node(
                other, (*place, "additionalProperties"), may_lack=True
            )
        return result

    def _keep_known_names(self, schema: Schema, place: Place) -> None:
        """Leave out required names that are no properties: providers refuse them."""
        required, properties = schema.get("required"), schema.get("properties")
        if not isinstance(required, list):
            return
        known = properties if isinstance(properties, dict) else {}
        left: list[JsonValue] = [name for name in required if name in known]
        for name in required:
            if name not in known:
                self._report.add(place, "required", "wider", f"{name!r} left out: it is no property")
        if left:
            schema["required"] = left
        else:
            del schema["required"]

    def _finished(self, schema: Schema, place: Place) -> Schema:
        """Return the schema with what the dialect asks of every schema of its type."""
        if (self._dialect.is_strict or not self._dialect.has_null) and not _SAYS_TYPE & schema.keys():
            schema = self._with_type(schema, place)
        named = schema.get("type")
        types = named if isinstance(named, list) else [named]
        if self._dialect.is_strict:
            if "object" in types:
                schema = closed_object(schema, self._report, place)
            if "array" in types:
                schema = typed_items(schema, self._report, place)
            return typed_value(schema, self._report, place)
        if not self._dialect.has_null and "array" in types and "items" not in schema:
            return {**schema, "items": {}}
        return schema

    def _with_type(self, schema: Schema, place: Place) -> Schema:
        """Return the schema with the type that alone what it asks can be meant for, if any."""
        for name, own in (("object", _OBJECT), ("array", _ARRAY)):
            if own & schema.keys():
                self._report.add(place, "type", "narrower", f"said to be an {name}: it asks things of one")
                return {**schema, "type": name}
        return schema


def _with_lone_reference(schema: Schema) -> Schema:
    """Return the schema with a reference beside what it asks, where ``allOf`` holds nothing else."""
    parts = schema.get("allOf")
    if not isinstance(parts, list) or len(parts) != 1 or "$ref" in schema:
        return schema
    (part,) = parts
    if not isinstance(part, dict) or part.keys() != {"$ref"}:
        return schema
    return {**{keyword: value for keyword, value in schema.items() if keyword != "allOf"}, **part}


def _dict(schema: JsonValue) -> Schema:
    """Return a schema as a dict of its own; ``true`` asks nothing."""
    return dict(schema) if isinstance(schema, dict) else {}
