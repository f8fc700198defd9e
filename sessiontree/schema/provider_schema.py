"""A tool's schema in the dialect of a provider, with a report of everything that changed.

A keyword that the dialect lacks is left out, so that the schema shown accepts more than the tool does. Where
a dialect forces it to accept less, the report says ``narrower``. Every call is still checked against the
tool's own schema.
OpenAI's strict mode requires closed objects, all properties required and a type everywhere. An optional
property then becomes required and nullable, and null counts as absent when a call is checked.
Sources: seed 001, section 4.3; seed 002, section 4; DESIGN section 9, schema cleaning; the release notes of
JSON Schema 2019-09 and 2020-12; OpenAI's guide to Structured Outputs.

Long because each keyword that a dialect lacks has a rule of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.schema.definitions import MAX_SCHEMAS, write_out
from sessiontree.schema.dialect import Cleaned, Dialect, Effect, LossReport, Place
from sessiontree.schema.json_form import name_json_type, to_json_form
from sessiontree.schema.keywords import (
    ANNOTATIONS,
    DEFINITIONS,
    Schema,
    locate_subschemas,
    order_keywords,
    rewrite,
)
from sessiontree.schema.schema_merge import UNIONS, Flattener, make_any_of, require_both

_OLDER: Final = re.compile(r"draft-0[3467]|2019-09")
_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_ASKED: Final = {
    "draft-04": frozenset({"format"}),
    "draft-06": frozenset({"contentEncoding", "contentMediaType", "format"}),
    "draft-07": frozenset({"contentEncoding", "contentMediaType", "format"}),
}
"""Keywords that constrain values in a draft, but are only annotations in 2020-12."""
_TURNED: Final = DEFINITIONS | {"contains", "if", "not", "oneOf"}
"""Keywords beneath which, or beneath whose references, a weaker constraint may make fewer values fit."""


def modernise(schema: Schema, report: LossReport) -> Schema:
    """Return the schema without ``$schema``, and in the spelling of 2020-12 if it uses an older draft."""
    if "$schema" not in schema:
        return schema
    rest = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
    report.add((), "$schema", "same", "left out: providers take 2020-12")
    named = str(schema["$schema"])
    asked = next((keywords for draft, keywords in _ASKED.items() if draft in named), None)
    if asked is not None:
        _report_notes(rest, (), asked, report)
    return rewrite(rest, _modernise_keywords) if _OLDER.search(named) else rest


def _report_notes(schema: Schema, place: Place, asked: frozenset[str], report: LossReport) -> None:
    for keyword in sorted(asked & schema.keys()):
        report.add(place, keyword, "wider", "only a note in 2020-12")
        if not _TURNED.isdisjoint(place):
            report.add(place, keyword, "narrower", "only a note in 2020-12")
    for step, inner in locate_subschemas(schema):
        _report_notes(inner, (*place, *step), asked, report)
    for keyword in sorted(DEFINITIONS & schema.keys()):
        definitions = schema[keyword]
        for name, target in definitions.items() if isinstance(definitions, dict) else ():
            if isinstance(target, dict):
                _report_notes(target, (*place, keyword, name), asked, report)


def _modernise_keywords(schema: Schema) -> Schema:
    items = schema.get("items")
    rest = schema.pop("additionalItems", None)
    if isinstance(items, list):
        del schema["items"]
        schema["prefixItems"] = items
        if rest is not None:
            schema["items"] = rest
    for strict, bound in _BOUNDS:
        if isinstance(schema.get(strict), bool) and schema.pop(strict) and bound in schema:
            schema[strict] = schema.pop(bound)
    return _split_dependencies(schema)


def _split_dependencies(schema: Schema) -> Schema:
    dependencies = schema.pop("dependencies", None)
    if isinstance(dependencies, dict):
        names: dict[str, JsonValue] = {n: need for n, need in dependencies.items() if isinstance(need, list)}
        schemas = {name: need for name, need in dependencies.items() if name not in names}
        schema |= {"dependentRequired": names} if names else {}
        schema |= {"dependentSchemas": schemas} if schemas else {}
    return schema


_UNSHOWN: Final = frozenset(
    {"default", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength", "maximum"}
    | {"minItems", "minLength", "minimum", "pattern"}
)
"""Bounds and defaults that a brief tool does not show."""


def remove_bounds(schema: Schema, *, is_strict: bool) -> Schema:
    """Return a brief tool's schema as a model sees it: without bounds, defaults and its own description.

    It does not say whether other properties are allowed, unless the dialect is strict and requires that.
    """

    def simplify(inner: Schema) -> Schema:
        if not is_strict and isinstance(inner.get("additionalProperties"), bool):
            del inner["additionalProperties"]
        return {keyword: value for keyword, value in inner.items() if keyword not in _UNSHOWN}

    shown = rewrite(schema, simplify)
    shown.pop("description", None)
    return shown


_OF_TYPE: Final = {
    "array": frozenset({"contains", "items", "maxItems", "minItems", "prefixItems", "uniqueItems"}),
    "object": frozenset({"additionalProperties", "patternProperties", "properties", "required"}),
}


def list_values(schema: Schema, dialect: Dialect, report: LossReport, place: Place) -> Schema:
    """Return the schema with ``const`` as ``enum``, and ``enum`` only if the dialect can list its values.

    A list with other values becomes their types, which accept more. Null next to values that can be listed
    becomes a separate variant, or is left out if the dialect has no null.
    """
    if "const" in schema:
        rest = {keyword: value for keyword, value in schema.items() if keyword != "const"}
        if "enum" in schema:
            report.add(place, "const", "wider", "left out next to enum")
            schema = rest
        else:
            report.add(place, "const", "same", "became an enum of one value")
            schema = {**rest, "enum": [schema["const"]]}
    values = schema.get("enum")
    if not isinstance(values, list):
        return schema
    fitting = _select_fitting(values, schema.get("type"))
    rest = {keyword: value for keyword, value in schema.items() if keyword != "enum"}
    listed = [value for value in fitting if name_json_type(value) in dialect.enum_types]
    others = [value for value in fitting if name_json_type(value) not in dialect.enum_types]
    if others and others != [None]:
        report.add(place, "enum", "wider", "became the types of its values")
        return rest if "type" in schema else {**rest, "type": _list_types(fitting)}
    if others and not listed:
        return {**rest, "type": "null"}
    if not listed:
        report.add(place, "enum", "wider", "left out: no value is of the type next to it")
        return rest
    types = _list_types(listed)
    if others and not dialect.has_null:
        report.add(place, "enum", "narrower", "null was left out; leave the value out instead")
    elif others:
        told = {keyword: value for keyword, value in rest.items() if keyword in ANNOTATIONS}
        asked = {keyword: value for keyword, value in rest.items() if keyword not in ANNOTATIONS | {"type"}}
        report.add(place, "enum", "wider" if asked else "same", "null became a variant of its own")
        return {**told, "anyOf": [{**asked, "type": types, "enum": listed}, {"type": "null"}]}
    return {**rest, "type": types, "enum": listed}


def simplify_type(schema: Schema, dialect: Dialect, report: LossReport, place: Place) -> Schema:
    """Return the schema with one type, or a union of such schemas, if the dialect has no lists of types."""
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
    return {**told, "anyOf": [{"type": name, **_select_constraints(asked, name)} for name in types]}


def _select_fitting(values: list[JsonValue], named: JsonValue) -> list[JsonValue]:
    """Return the values that have the type given next to them."""
    if named is None:
        return values
    types = named if isinstance(named, list) else [named]
    return [
        value
        for value in values
        if name_json_type(value) in types or ("integer" in types and _is_whole(value))
    ]


def _is_whole(value: JsonValue) -> bool:
    return name_json_type(value) == "number" and isinstance(value, int | float) and value == int(value)


def _list_types(values: list[JsonValue]) -> JsonValue:
    types = list(dict.fromkeys(name_json_type(value) for value in values))
    if "number" in types and all(
        isinstance(value, int) for value in values if name_json_type(value) == "number"
    ):
        types[types.index("number")] = "integer"
    return types[0] if len(types) == 1 else list[JsonValue](types)


def _select_constraints(asked: Schema, name: str) -> Schema:
    """Return the constraints on values of one type."""
    foreign = frozenset[str]().union(*(own for other, own in _OF_TYPE.items() if other != name))
    kept = {keyword: value for keyword, value in asked.items() if keyword not in foreign}
    values = kept.get("enum")
    if isinstance(values, list):
        kept["enum"] = _select_fitting(values, name)
    return kept


_SCALARS: Final = ("string", "number", "boolean", "null")
_SAYS_TYPE: Final = frozenset({"$ref", "anyOf", "enum", "type"})
_LOOKAROUND: Final = re.compile(r"\(\?<?[=!]")


def close_object(schema: Schema, report: LossReport, place: Place) -> Schema:
    """Return an object's schema with every property required and no other allowed."""
    properties = schema.get("properties")
    members = dict(properties) if isinstance(properties, dict) else {}
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    for name, inner in members.items():
        if name not in needed:
            report.add((*place, "properties", name), "required", "narrower", "null means that it is left out")
            members[name] = make_nullable(inner)
    if schema.get("additionalProperties") is not False:
        report.add(
            place, "additionalProperties", "narrower", "no member other than the properties can be given"
        )
    return {
        **schema,
        "properties": members,
        "required": list[JsonValue](members),
        "additionalProperties": False,
    }


def make_nullable(schema: JsonValue) -> JsonValue:
    """Return a cleaned schema that also accepts null."""
    if not isinstance(schema, dict):
        return schema
    variants, named = schema.get("anyOf"), schema.get("type")
    if isinstance(variants, list):
        has_null = any(_can_be_null(variant) for variant in variants)
        return schema if has_null else {**schema, "anyOf": [*variants, {"type": "null"}]}
    if named is None:
        return {"anyOf": [schema, {"type": "null"}]}
    types = named if isinstance(named, list) else [named]
    result = schema if "null" in types else {**schema, "type": [*types, "null"]}
    values = schema.get("enum")
    return result if not isinstance(values, list) or None in values else {**result, "enum": [*values, None]}


def require_item_type(schema: Schema, report: LossReport, place: Place) -> Schema:
    """Return an array's schema that gives the type of its items."""
    if isinstance(schema.get("items"), dict):
        return schema
    report.add(place, "items", "narrower", "items of any type became text, numbers, booleans or null")
    return {**schema, "items": {"type": list[JsonValue](_SCALARS)}}


def require_type(schema: Schema, report: LossReport, place: Place) -> Schema:
    """Return a schema that gives a type, and has no pattern that strict mode can't compile."""
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and _LOOKAROUND.search(pattern):
        report.add(place, "pattern", "wider", "left out: it looks around")
        schema = {keyword: value for keyword, value in schema.items() if keyword != "pattern"}
    if _SAYS_TYPE & schema.keys():
        return schema
    report.add(place, "type", "narrower", "a value of any type became text, a number, a boolean or null")
    return {**schema, "type": list[JsonValue](_SCALARS)}


def _can_be_null(schema: JsonValue) -> bool:
    named = schema.get("type") if isinstance(schema, dict) else None
    return named == "null" or (isinstance(named, list) and "null" in named)


_MAX_WRITTEN_OUT: Final = 200
"""Most schemas made by writing out what refers to itself: definitions that name each other grow fast."""
_OBJECT = frozenset({"additionalProperties", "patternProperties", "properties", "required"})
_ARRAY = frozenset({"items", "maxItems", "minItems"})


def clean(schema: Mapping[str, JsonValue], dialect: Dialect) -> Cleaned:
    """Return a tool's schema in the form that a provider accepts, and what changed.

    Args:
        schema: JSON Schema of an object.
        dialect: What the provider accepts.

    Raises:
        ConfigError: the root is not an object, a reference leads nowhere, or the written-out schema is too
            large.

    Contract: pure; otherwise total, also for schemas that refer to themselves; never mutates its input;
    cleaning a cleaned schema changes nothing.
    """
    copy = to_json_form(schema)
    if not isinstance(copy, dict) or copy.get("type", "object") != "object":
        raise ConfigError("the root of a tool's schema must be an object")
    written = write_out(copy)
    if not dialect.is_changed:
        return Cleaned({"type": "object", **written}, ())
    report = LossReport()
    written = modernise(written, report)
    while True:
        cleaned = _Cleaner(written, dialect, report).root()
        # A schema that was cut no longer contains itself, and a merged one refers to less. Definitions that
        # can be written out now are, and are cleaned in place. Each round has fewer of them.
        written = write_out(cleaned)
        if written == cleaned:
            return Cleaned(rewrite(cleaned, order_keywords), report.list_losses())


class _Cleaner:
    """Cleans one schema for one dialect."""

    def __init__(self, root: Schema, dialect: Dialect, report: LossReport) -> None:
        self._schema = {"type": "object", **root}
        self._dialect = dialect
        self._report = report
        self._flattener = Flattener(self._schema, report)
        self._used: dict[str, None] = {}
        self._made = 0
        self._open = ["#"]
        """References whose targets are being written out around the present place."""
        self._written_out = 0

    def root(self) -> Schema:
        """Return the whole schema."""
        schema: Schema = {"properties": {}, **self._schema}
        definitions = {keyword: schema.pop(keyword) for keyword in DEFINITIONS & schema.keys()}
        if self._dialect.keywords is None:
            return {**self._open_root(schema), **definitions}
        if UNIONS & schema.keys():
            schema = self._flattener.flatten(schema, (), follow=True)
        cleaned = self._clean_node(schema, (), may_lack=False)
        kept: Schema = {}
        while waiting := [name for name in self._used if name not in kept]:
            for name in waiting:
                where: Place = ("$defs", name)
                target = self._flattener.join(self._flattener.target(f"#/$defs/{name}"), where, follow=True)
                kept[name] = self._clean_node(target, where, may_lack=False)
        return {**cleaned, "$defs": dict(sorted(kept.items()))} if kept else cleaned

    def _open_root(self, schema: Schema) -> Schema:
        refused = self._dialect.root_refused
        if refused & UNIONS & schema.keys():
            schema = self._flattener.flatten(schema, (), follow=True)
        for keyword in sorted(refused & schema.keys()):
            self._report.add((), keyword, "wider", "left out: refused at the root")
        return {keyword: value for keyword, value in schema.items() if keyword not in refused}

    def _clean_node(self, schema: Schema, place: Place, *, may_lack: bool) -> Schema:
        """Return one cleaned schema; ``may_lack``: it is beneath an optional property."""
        self._made += 1
        self._written_out += len(self._open) > 1
        if self._made > MAX_SCHEMAS:
            raise ConfigError(f"cleaned for a model it makes more than {MAX_SCHEMAS} schemas; nest it less")
        schema = _unwrap_reference(schema)
        if "$ref" in schema:
            return self._clean_reference(schema, place, may_lack=may_lack)
        schema = self._flattener.join(schema, place, follow=False)
        schema = self._convert_alternatives(schema, place)
        schema = list_values(schema, self._dialect, self._report, place)
        if isinstance(schema.get("anyOf"), list):
            return self._clean_union(schema, place, may_lack=may_lack)
        schema = simplify_type(schema, self._dialect, self._report, place)
        if "anyOf" in schema:
            return self._clean_union(schema, place, may_lack=may_lack)
        return self._finish(self._clean_members(self._keep_known(schema, place), place, may_lack), place)

    def _clean_reference(self, schema: Schema, place: Place, *, may_lack: bool) -> Schema:
        ref = str(schema["$ref"])
        cycles = self._dialect.cycles
        if cycles == "any" or (cycles == "optional" and may_lack):
            for keyword in sorted(schema.keys() - {"$ref"}):
                effect: Effect = "same" if keyword in ANNOTATIONS else "wider"
                self._report.add(place, keyword, effect, "left out: a reference is alone")
            if ref != "#":
                self._used[ref.removeprefix("#/$defs/")] = None
            return {"$ref": ref}
        found = self._flattener.target(ref)
        if ref not in self._open and self._written_out < _MAX_WRITTEN_OUT:
            self._report.add(place, "$ref", "same", "written out here, and cut where it returns")
            return self._clean_reference_once(ref, schema, place, may_lack=may_lack)
        reason = "it returns here" if ref in self._open else "written out it is too large"
        self._report.add(place, "$ref", "wider", f"cut: {reason}")
        known = {
            keyword: value
            for keyword, value in {**found, **schema}.items()
            if keyword in {"description", "title", "type"}
        }
        # If only the type is known, no members are left to describe.
        return self._clean_node(known, place, may_lack=may_lack)

    def _clean_reference_once(self, ref: str, schema: Schema, place: Place, *, may_lack: bool) -> Schema:
        """Return a reference's target with its members, together with what is next to the reference."""
        beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        told = {keyword: value for keyword, value in beside.items() if keyword in ANNOTATIONS}
        asked = {keyword: value for keyword, value in beside.items() if keyword not in ANNOTATIONS}
        found = self._flattener.join(self._flattener.target(ref), place, follow=True)
        if asked:
            found = require_both(found, asked, self._report, place)
        # A reference is cut where it returns to one that is being written out around it.
        self._open.append(ref)
        try:
            return self._clean_node({**found, **told}, place, may_lack=may_lack)
        finally:
            self._open.pop()

    def _convert_alternatives(self, schema: Schema, place: Place) -> Schema:
        """Return the schema with ``anyOf`` alone: no dialect with a keyword list accepts ``oneOf``."""
        if not isinstance(schema.get("oneOf"), list):
            return schema
        rest = {keyword: value for keyword, value in schema.items() if keyword != "oneOf"}
        if "anyOf" in schema:
            self._report.add(place, "oneOf", "wider", "left out next to anyOf")
            return rest
        self._report.add(place, "oneOf", "wider", "became anyOf")
        return {**rest, "anyOf": schema["oneOf"]}

    def _clean_union(self, schema: Schema, place: Place, *, may_lack: bool) -> Schema:
        variants = schema["anyOf"]
        assert isinstance(variants, list)  # noqa: S101 - asked by the caller
        beside = {keyword: value for keyword, value in schema.items() if keyword != "anyOf"}
        if beside.get("type") == "object" and _OBJECT & beside.keys():
            merged = self._flattener.flatten(schema, place, follow=False)
            return self._clean_node(merged, place, may_lack=may_lack)
        told = {keyword: value for keyword, value in beside.items() if keyword in ANNOTATIONS}
        asked = {keyword: value for keyword, value in beside.items() if keyword not in ANNOTATIONS}
        found: list[JsonValue] = []
        for index, variant in enumerate(variants):
            where = (*place, "anyOf", index)
            if variant is False:
                continue
            inner = _to_dict(variant)
            if asked and "$ref" in inner:
                self._report.add(place, "anyOf", "wider", "what is next to it is not asked of references")
            elif asked:
                inner = require_both(inner, asked, self._report, where)
            cleaned = self._clean_node(inner, where, may_lack=may_lack)
            nested = cleaned.get("anyOf")
            found += nested if isinstance(nested, list) and len(cleaned) == 1 else [cleaned]
        union = make_any_of(self._remove_null(found, place))
        if union is False:
            self._report.add(place, "anyOf", "wider", "left out: nothing fits any of it")
        elif isinstance(union, dict) and "enum" in union:
            self._report.add(place, "anyOf", "same", "became one enum")
        merged = self._add_variant_types(_to_dict(union), place)
        return self._finish(self._keep_known({**merged, **told}, place), place)

    def _add_variant_types(self, union: Schema, place: Place) -> Schema:
        """Return a union, or its replacement, with the types of values that were merged into one list."""
        variants = union.get("anyOf")
        if not isinstance(variants, list):
            return list_values(union, self._dialect, self._report, place)
        typed = [
            list_values(_to_dict(variant), self._dialect, self._report, (*place, "anyOf", index))
            for index, variant in enumerate(variants)
        ]
        return {**union, "anyOf": list[JsonValue](typed)}

    def _remove_null(self, variants: list[JsonValue], place: Place) -> list[JsonValue]:
        if self._dialect.has_null:
            return variants
        left = [variant for variant in variants if variant != {"type": "null"}]
        if len(left) < len(variants) and left:
            self._report.add(place, "anyOf", "narrower", "null was left out; leave the value out instead")
        return left or variants

    def _keep_known(self, schema: Schema, place: Place) -> Schema:
        """Return the schema without the keywords that the dialect lacks."""
        keywords = self._dialect.keywords or frozenset()
        unknown = sorted(schema.keys() - keywords)
        for keyword in unknown:
            effect: Effect = "same" if keyword in ANNOTATIONS else "wider"
            self._report.add(place, keyword, effect, "left out")
        known = {keyword: value for keyword, value in schema.items() if keyword in keywords}
        # Without the patterns, the rule for all other names would also apply to names that match a pattern.
        if "patternProperties" in schema and known.pop("additionalProperties", None) is not None:
            self._report.add(place, "additionalProperties", "wider", "left out with patternProperties")
        if "prefixItems" in unknown and isinstance(prefix := schema["prefixItems"], list):
            rest = known.pop("items", True)
            most = schema.get("maxItems")
            reaches_rest = not isinstance(most, int) or most > len(prefix)
            known["items"] = make_any_of([*prefix, rest] if reaches_rest else prefix)
        if isinstance(known.get("items"), bool):
            self._report.add(place, "items", "same" if known.pop("items") else "wider", "left out")
        formats, named = self._dialect.formats, known.get("format")
        if formats is not None and named is not None and named not in formats:
            self._report.add(place, "format", "wider", f"left out: {named!r} is not known")
            del known["format"]
        return known

    def _clean_members(self, schema: Schema, place: Place, may_lack: bool) -> Schema:
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
                members[name] = self._clean_node(
                    _to_dict(inner), where, may_lack=may_lack or name not in needed
                )
            result["properties"] = members
        self._keep_known_names(result, place)
        items = schema.get("items")
        if isinstance(items, dict):
            result["items"] = self._clean_node(items, (*place, "items"), may_lack=may_lack)
        prefix = schema.get("prefixItems")
        if isinstance(prefix, list):
            for index, inner in enumerate(prefix):
                if inner is False:
                    where = (*place, "prefixItems", index)
                    self._report.add(where, "prefixItems", "wider", "left out: nothing may be given there")
            result["prefixItems"] = [
                self._clean_node(_to_dict(inner), (*place, "prefixItems", index), may_lack=may_lack)
                for index, inner in enumerate(prefix)
            ]
        other = schema.get("additionalProperties")
        if isinstance(other, dict):
            result["additionalProperties"] = self._clean_node(
                other, (*place, "additionalProperties"), may_lack=True
            )
        return result

    def _keep_known_names(self, schema: Schema, place: Place) -> None:
        """Remove required names that are not properties: providers refuse them."""
        required, properties = schema.get("required"), schema.get("properties")
        if not isinstance(required, list):
            return
        known = properties if isinstance(properties, dict) else {}
        left: list[JsonValue] = [name for name in required if name in known]
        for name in required:
            if name not in known:
                self._report.add(place, "required", "wider", f"{name!r} left out: it is not a property")
        if left:
            schema["required"] = left
        else:
            del schema["required"]

    def _finish(self, schema: Schema, place: Place) -> Schema:
        """Return the schema with what the dialect requires of every schema of its type."""
        if (self._dialect.is_strict or not self._dialect.has_null) and not _SAYS_TYPE & schema.keys():
            schema = self._add_type(schema, place)
        named = schema.get("type")
        types = named if isinstance(named, list) else [named]
        if self._dialect.is_strict:
            if "object" in types:
                schema = close_object(schema, self._report, place)
            elif named is not None:
                schema = self._remove_object_keywords(schema, place)
            if "array" in types:
                schema = require_item_type(schema, self._report, place)
            return require_type(schema, self._report, place)
        if not self._dialect.has_null and "array" in types and "items" not in schema:
            return {**schema, "items": {}}
        return schema

    def _remove_object_keywords(self, schema: Schema, place: Place) -> Schema:
        """Return the schema of values other than objects without the keywords for objects alone."""
        for keyword in sorted(schema.keys() & _OBJECT):
            self._report.add(place, keyword, "same", "left out: its type is not object")
        return {keyword: value for keyword, value in schema.items() if keyword not in _OBJECT}

    def _add_type(self, schema: Schema, place: Place) -> Schema:
        """Return the schema with the only type that its constraints can apply to, if there is one."""
        for name, own in (("object", _OBJECT), ("array", _ARRAY)):
            if own & schema.keys():
                self._report.add(place, "type", "narrower", f"said to be an {name}: it asks things of one")
                return {**schema, "type": name}
        return schema


def _unwrap_reference(schema: Schema) -> Schema:
    """Return the schema with its reference next to its constraints, if ``allOf`` holds nothing else."""
    parts = schema.get("allOf")
    if not isinstance(parts, list) or len(parts) != 1 or "$ref" in schema:
        return schema
    (part,) = parts
    if not isinstance(part, dict) or part.keys() != {"$ref"}:
        return schema
    return {**{keyword: value for keyword, value in schema.items() if keyword != "allOf"}, **part}


def _to_dict(schema: JsonValue) -> Schema:
    """Return a schema as a new dict; ``true`` has no constraints."""
    return dict(schema) if isinstance(schema, dict) else {}
