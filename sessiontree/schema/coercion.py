"""Corrects arguments that have only one reading: names of parameters, and types of values.

A value that fits its schema is left unchanged, with two exceptions that keep its meaning: marked strings are
trimmed, and ``3.0`` becomes ``3`` where only whole numbers fit. So a value that the schema accepts never
changes its type, and normalising twice gives the same result as normalising once.
If text comes as the blocks of a message, it becomes the text of these blocks.
Source: seed 000, section 6; seed 001, section 5.2; DESIGN section 9, parameter names and trimming; blocks:
the specification's source system.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.tools.tool import TRIMMED_KEYWORD
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.pointer import make_json_pointer
from sessiontree.schema.argument_text import has_structure_start, read_structure
from sessiontree.schema.json_form import NotJson, name_json_type, to_json_form
from sessiontree.schema.keywords import Schema, list_subschemas

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False}
_UNIONS = ("anyOf", "oneOf")
_TEXT_TYPES = ("text", "input_text", "output_text")
_TYPE_MEMBERS = frozenset({"type", "kind"})
_TEXT_MEMBERS = frozenset({"text", "content", "parts", "value"})
MAX_NUMBER_CHARS = 400
"""Maximum length of a text that is read as a number."""


class Coercer:
    """Coercion for one root schema, which holds the definitions that its parts refer to."""

    __slots__ = ("_root",)

    def __init__(self, root: Schema) -> None:
        self._root = root

    def coerce(self, value: JsonValue, schema: JsonValue) -> JsonValue:
        """Return the value as the schema expects it, or the same object if nothing changes.

        Args:
            value: Pure JSON.
            schema: The root or a part of it.

        Contract: never mutates the value; total; idempotent.
        """
        if not isinstance(schema, dict):
            return value
        schema = self._resolve(schema)
        if isinstance(value, str) and self.check_any_variant(schema, _is_trimmed):
            value = value.strip()
        types = self._find_types(schema)
        if types is not None and not _is_one_of(value, types):
            value = self._convert(value, types, schema)
        elif isinstance(value, float) and types and "number" not in types and value.is_integer():
            value = int(value)
        if isinstance(value, dict | list):
            part = self._choose_variant(value, schema)
            return (
                self._coerce_members(value, part)
                if isinstance(value, dict)
                else self._coerce_items(value, part)
            )
        return value

    def is_settled(self, schema: JsonValue) -> bool:
        """Whether coercion leaves every value that fits the schema unchanged."""
        if not isinstance(schema, dict):
            return True
        if "$ref" in schema or schema.get(TRIMMED_KEYWORD) is True:
            return False
        types = self._find_types(schema)
        if types is not None and "integer" in types and "number" not in types:
            return False
        return all(self.is_settled(inner) for inner in list_subschemas(schema))

    def accepts(self, value: JsonValue, schema: JsonValue) -> bool:
        """Whether the schema accepts the value's type."""
        if not isinstance(schema, dict):
            return schema is not False
        types = self._find_types(self._resolve(schema))
        return types is None or _is_one_of(value, types)

    def has_only_types(self, types: frozenset[str], schema: JsonValue) -> bool:
        """Whether every value that fits the schema has one of these types."""
        taken = self._find_types(self._resolve(schema)) if isinstance(schema, dict) else None
        return taken is not None and taken <= types

    def check_any_variant(self, schema: JsonValue, asked: Callable[[Schema], bool]) -> bool:
        """Whether a condition holds for the schema, or for one variant of its union."""
        if not isinstance(schema, dict):
            return False
        schema = self._resolve(schema)
        return asked(schema) or any(asked(self._resolve(variant)) for variant in _list_variants(schema))

    def _resolve(self, schema: Schema) -> Schema:
        # This ends: `write_out` has refused references that lead back to themselves for the same value.
        while isinstance(ref := schema.get("$ref"), str):
            definitions = self._root.get("$defs")
            name = ref.removeprefix("#/$defs/")
            target = definitions.get(name) if isinstance(definitions, dict) else None
            if ref == "#":
                target = self._root
            beside = {keyword: item for keyword, item in schema.items() if keyword != "$ref"}
            schema = {**(target if isinstance(target, dict) else {}), **beside}
        return schema

    def _find_types(self, schema: Schema) -> frozenset[str] | None:
        """Return the types that a schema accepts, or None if it accepts all."""
        named = schema.get("type")
        if isinstance(named, str):
            return frozenset({named})
        if isinstance(named, list):
            return frozenset(str(name) for name in named)
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list):
            return frozenset(name_json_type(item) for item in values)
        return self._collect_union_types(schema)

    def _collect_union_types(self, schema: Schema) -> frozenset[str] | None:
        for union in _UNIONS:
            variants = schema.get(union)
            if isinstance(variants, list):
                found: frozenset[str] = frozenset()
                for variant in variants:
                    types = self._find_types(self._resolve(variant)) if isinstance(variant, dict) else None
                    if types is None:
                        return None
                    found |= types
                return found
        return None

    def _choose_variant(self, value: JsonValue, schema: Schema) -> Schema:
        """Return the only variant of a union that the value can mean, or the schema itself."""
        fitting = [
            self._resolve(variant) for variant in _list_variants(schema) if self.accepts(value, variant)
        ]
        if len(fitting) > 1 and isinstance(value, dict):
            fitting = [variant for variant in fitting if self._may_mean(value, variant)]
        return (
            self._choose_variant(value, _combine_variant(schema, fitting[0])) if len(fitting) == 1 else schema
        )

    def _may_mean(self, value: dict[str, JsonValue], variant: Schema) -> bool:
        """Whether correcting types can make the value fit: no member is missing, and no tag contradicts."""
        properties, required = variant.get("properties"), variant.get("required")
        if isinstance(required, list) and not value.keys() >= {str(name) for name in required}:
            return False
        known = properties if isinstance(properties, dict) else {}
        return not any(
            isinstance(value[name], str) and self._is_other_tag(value[name], known[name])
            for name in value.keys() & known.keys()
        )

    def _is_other_tag(self, text: JsonValue, schema: JsonValue) -> bool:
        """Whether a member accepts only certain texts, and this is not one of them."""
        if not isinstance(schema, dict):
            return False
        schema = self._resolve(schema)
        tags = [schema["const"]] if "const" in schema else schema.get("enum")
        return isinstance(tags, list) and all(isinstance(tag, str) for tag in tags) and text not in tags

    def _coerce_members(self, value: dict[str, JsonValue], schema: Schema) -> JsonValue:
        properties, required = schema.get("properties"), schema.get("required")
        known = properties if isinstance(properties, dict) else {}
        needed = required if isinstance(required, list) else []
        other = None if "patternProperties" in schema else schema.get("additionalProperties")
        members: dict[str, JsonValue] = {}
        for name, item in value.items():
            part = known.get(name, other)
            # Models send null for what they leave out.
            if item is None and name in known and name not in needed and not self.accepts(None, part):
                continue
            members[name] = self.coerce(item, part)
        same = len(members) == len(value) and all(members[name] is value[name] for name in members)
        return value if same else members

    def _coerce_items(self, value: list[JsonValue], schema: Schema) -> JsonValue:
        first, rest = schema.get("prefixItems"), schema.get("items")
        if isinstance(rest, list):  # before draft 2020-12
            first, rest = rest, schema.get("additionalItems")
        parts = first if isinstance(first, list) else []
        items = [
            self.coerce(item, parts[index] if index < len(parts) else rest)
            for index, item in enumerate(value)
        ]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items

    def _convert(self, value: JsonValue, types: frozenset[str], schema: Schema) -> JsonValue:
        if isinstance(value, str):
            readings = list(self._find_readings(value, types, schema))
            # A text with two readings is left to the model: a guess would be recorded as what it asked for.
            return readings[0] if len(readings) == 1 else value
        if "string" in types and _has_one_spelling(value):
            return str(value)
        if "string" in types and isinstance(value, dict | list):
            text = _extract_block_text(value)
            return value if text is None else self.coerce(text, schema)
        return value

    def _find_readings(self, text: str, types: frozenset[str], schema: Schema) -> Iterator[JsonValue]:
        """Yield the possible meanings of a text that stands for a value of another type."""
        if "boolean" in types and text in _BOOLEANS:
            yield _BOOLEANS[text]
        if types & {"integer", "number"}:
            yield from _read_number(text, whole="number" not in types)
        if not types & {"array", "object"}:
            return
        if has_structure_start(text):
            # What can't be read was meant as a structure all the same, never as a list of this one text.
            structure = _parse_structure(text)
            if structure is not None and name_json_type(structure) in types:
                yield structure
        # Empty text is a parameter that was not given, never a list of one empty item.
        elif text and "array" in types and self._has_string_items(schema):
            yield [text]

    def _has_string_items(self, schema: Schema) -> bool:
        items = self._choose_variant([], schema).get("items")
        return isinstance(items, dict) and self._find_types(self._resolve(items)) == frozenset({"string"})


def _list_variants(schema: Schema) -> Iterator[Schema]:
    for union in _UNIONS:
        variants = schema.get(union)
        if isinstance(variants, list):
            yield from (variant for variant in variants if isinstance(variant, dict))


def _combine_variant(schema: Schema, variant: Schema) -> Schema:
    """Return one variant of a union, combined with the keywords next to the union."""
    members: Schema = {}
    for part in (schema, variant):
        properties = part.get("properties")
        members |= properties if isinstance(properties, dict) else {}
    needed = [
        name
        for part in (schema, variant)
        if isinstance(names := part.get("required"), list)
        for name in names
    ]
    beside = {keyword: item for keyword, item in schema.items() if keyword not in _UNIONS}
    return {**beside, **variant, "properties": members, "required": needed}


def _is_trimmed(schema: Schema) -> bool:
    return schema.get(TRIMMED_KEYWORD) is True


def _is_one_of(value: JsonValue, types: frozenset[str]) -> bool:
    name = name_json_type(value)
    if name == "number" and "integer" in types:
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer()) or name in types
    return name in types


def _has_one_spelling(value: JsonValue) -> bool:
    # 1.0 may have been meant as "1" or "1.0"; True as "true" or "True".
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and not value.is_integer())


def _extract_block_text(value: JsonValue) -> str | None:
    """Return the text of a content block or a list of blocks, or None if there is anything else in it.

    A block holds its text as ``text``, ``content``, ``parts`` or ``value``, and nothing else except its kind
    (``type`` or ``kind``).
    """
    if isinstance(value, list):
        texts = [_extract_block_text(item) if isinstance(item, dict) else None for item in value]
        return None if not texts or None in texts else "".join(text for text in texts if text is not None)
    if not isinstance(value, dict) or any(
        value.get(name, "text") not in _TEXT_TYPES for name in _TYPE_MEMBERS
    ):
        return None
    members = [item for name, item in value.items() if name not in _TYPE_MEMBERS]
    if len(members) != 1 or not _TEXT_MEMBERS.issuperset(value.keys() - _TYPE_MEMBERS):
        return None
    return members[0] if isinstance(members[0], str) else _extract_block_text(members[0])


def _read_number(text: str, *, whole: bool) -> Iterator[JsonValue]:
    if len(text) > MAX_NUMBER_CHARS or not _NUMBER.fullmatch(text):
        return
    number: int | float = json.loads(text)
    if isinstance(number, float) and not math.isfinite(number):
        return
    if whole and isinstance(number, float):
        if not number.is_integer():
            return
        number = int(number)
    yield number


def _parse_structure(text: str) -> JsonValue:
    """Return the object or list that a text spells as pure JSON, or None."""
    try:
        return to_json_form(read_structure(text))
    except (NotJson, RecursionError):
        return None


CLAUDE_STYLE = {"file_path": "path", "old_string": "old_text", "new_string": "new_text"}
"""Names that some models learned in training, mapped to the names used here."""

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Spellings:
    """Every spelling of one tool's parameters.

    Names come first, then the given aliases, then camelCase and snake_case of the names, then Claude-style
    names, then camelCase and snake_case of all aliases. A spelling that fits two parameters is not used.

    Args:
        names: The canonical names, as in the schema.
        aliases: Other spellings, mapped to canonical names.

    Raises:
        ConfigError: an alias leads to no parameter, or is itself the name of one.
    """

    __slots__ = ("_canonical",)

    def __init__(self, names: Iterable[str], aliases: Mapping[str, str]) -> None:
        canonical = {name: name for name in names}
        for alias, name in aliases.items():
            if name not in canonical:
                raise ConfigError(
                    f"alias {alias!r} leads to {name!r}, which is not one of {_join_names(canonical)}"
                )
            if alias in canonical and alias != name:
                raise ConfigError(f"alias {alias!r} is itself a parameter; drop one of the two")
        own = [*canonical.items()]
        self._canonical = canonical
        self._add(aliases.items())
        self._add(_derive_other_cases(own))
        claude = [
            (alias, name)
            for name, _ in own
            for alias, wanted in CLAUDE_STYLE.items()
            if to_snake_case(name) == wanted
        ]
        self._add(claude)
        self._add(_derive_other_cases([*aliases.items(), *claude]))

    def find_canonical(self, spelling: str) -> str | None:
        """Return the canonical name of a spelling, or None."""
        return self._canonical.get(spelling)

    def rename(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments by canonical name, in the given order; unknown names are kept.

        Raises:
            ValidationError: two spellings of one parameter are given.
        """
        renamed: dict[str, object] = {}
        given: dict[str, str] = {}
        for spelling, value in arguments.items():
            name = self._canonical.get(spelling, spelling)
            if name in given:
                raise ValidationError(
                    f"{given[name]!r} and {spelling!r} are two spellings of one parameter; give one of them",
                    make_json_pointer(name),
                )
            given[name] = spelling
            renamed[name] = value
        return renamed

    def _add(self, spellings: Iterable[tuple[str, str]]) -> None:
        """Add spellings of one rank; those of a higher rank do not change."""
        found: dict[str, set[str]] = {}
        for spelling, name in spellings:
            if spelling not in self._canonical:
                found.setdefault(spelling, set()).add(name)
        self._canonical |= {spelling: names.pop() for spelling, names in found.items() if len(names) == 1}


def to_snake_case(name: str) -> str:
    """Return ``file_path`` for ``filePath``."""
    return _WORD_START.sub("_", name).lower()


def to_camel_case(name: str) -> str:
    """Return ``filePath`` for ``file_path``; leading and trailing underscores are kept."""
    return re.sub(r"(?<=[A-Za-z0-9])_+([A-Za-z0-9])", lambda match: match[1].upper(), name)


def _derive_other_cases(spellings: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [
        (change(spelling), name) for spelling, name in spellings for change in (to_camel_case, to_snake_case)
    ]


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "its (no) parameters"
