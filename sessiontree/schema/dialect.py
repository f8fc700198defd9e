"""Dialects: which part of JSON Schema each provider accepts, the report of losses, and warnings to authors.

Sources: seed 001, section 4.3 (the twenty keywords that ``gemini-openapi`` goes without) and the facts below,
read in the providers' own documents and error messages in autumn 2026:

- Gemini's JSON Schema field: the list of supported keywords in the reference of ``responseJsonSchema``; a
  ``$ref`` is alone, and a cycle only beneath optional properties.
- Gemini's older field: the message ``Schema`` (an OpenAPI 3.0 subset), whose ``enum`` holds text only and
  whose arrays need ``items``.
- OpenAI: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the
  top level"; strict mode: the guide to Structured Outputs, "Supported schemas".
- Anthropic: "input_schema does not support oneOf, allOf, or anyOf at the top level"; schemas are 2020-12.
- Mistral does not document the root: it is treated like OpenAI's.
- Constrained replies: what llama.cpp's ``json_schema_to_grammar`` supports. Lengths are left out, because it
  refuses repetitions in the thousands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.pointer import make_json_pointer
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.schema.keywords import DEFINITIONS, Schema, locate_subschemas

Effect: TypeAlias = Literal["same", "wider", "narrower"]
"""How the set of fitting values changed, compared with the tool itself: the same, more, or fewer."""
Place: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the root down."""


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """One part of a schema that a model does not see, or sees differently."""

    pointer: str
    """Where the keyword was, as a JSON pointer into the tool's own schema; ``""`` is the root."""
    keyword: str
    effect: Effect
    done: str
    """What was done about it."""

    def to_wire(self) -> dict[str, JsonValue]:
        """Return ``{pointer, keyword, effect, done}``."""
        return {
            "pointer": self.pointer,
            "keyword": self.keyword,
            "effect": self.effect,
            "done": self.done,
        }


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A schema in the form that one dialect accepts."""

    schema: Schema
    """Must not be changed."""
    losses: tuple[Loss, ...]
    """In the order found, each once. Every call is still checked against what is lost here: the tool's own
    schema decides, whatever its model was shown."""

    @property
    def is_lossy(self) -> bool:
        """Whether the schema shown to the model accepts a different set of values than the tool."""
        return any(loss.effect != "same" for loss in self.losses)


class LossReport:
    """Collects losses while a schema is cleaned."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Loss, None] = {}

    def add(self, place: Place, keyword: str, effect: Effect, done: str) -> None:
        """Add a loss; a repeated one changes nothing."""
        self._found[Loss(make_json_pointer(*place), keyword, effect, done)] = None

    def list_losses(self) -> tuple[Loss, ...]:
        """Return the losses in the order in which they were added."""
        return tuple(self._found)


_UNIONS = frozenset({"allOf", "anyOf", "oneOf"})
_SHAPE = frozenset({"description", "items", "properties", "required", "title", "type"})

GEMINI_STRIPPED: Final = frozenset(
    {
        "$defs",
        "$id",
        "$ref",
        "$schema",
        "additionalProperties",
        "definitions",
        "examples",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "patternProperties",
        "uniqueItems",
    }
)
"""The keywords that seed 001 strips for Google; here, every other keyword unknown to the older field is
stripped too."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one provider accepts."""

    name: str
    keywords: frozenset[str] | None = None
    """All keywords it accepts, at any depth; None = all of JSON Schema 2020-12."""
    root_refused: frozenset[str] = frozenset()
    """Keywords it knows but refuses at the root."""
    enum_types: frozenset[str] = frozenset({"string", "number", "boolean", "null"})
    """Types of the values that its ``enum`` may list."""
    formats: frozenset[str] | None = None
    """Values of ``format`` that it knows; None = any."""
    has_null: bool = True
    """Whether null is a type, and whether a type may be a list of types."""
    cycles: Literal["any", "optional", "none"] = "any"
    """Where a ``$ref`` to a schema that contains it may be: ``any``, ``optional`` (in an optional property)
    or ``none``."""
    is_strict: bool = False
    """Whether every property is required and no other is allowed."""
    is_changed: bool = True
    """Whether schemas are cleaned at all."""


PLAIN: Final = Dialect("plain", is_changed=False)

_ALL = (
    Dialect("anthropic", root_refused=_UNIONS),
    Dialect(
        "constrained",
        keywords=_SHAPE
        | {"$defs", "$ref", "additionalProperties", "anyOf", "enum", "prefixItems"}
        | {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"},
    ),
    Dialect(
        "gemini",
        keywords=_SHAPE
        | {"$defs", "$ref", "additionalProperties", "anyOf", "enum", "format"}
        | {"maxItems", "maximum", "minItems", "minimum", "prefixItems"},
        enum_types=frozenset({"string", "number"}),
        cycles="optional",
    ),
    Dialect(
        "gemini-openapi",
        keywords=_SHAPE | {"anyOf", "default", "enum"},
        enum_types=frozenset({"string"}),
        has_null=False,
        cycles="none",
    ),
    Dialect("mistral", root_refused=_UNIONS | {"const", "enum", "not"}),
    Dialect("openai", root_refused=_UNIONS | {"const", "enum", "not"}),
    Dialect(
        "openai-strict",
        keywords=_SHAPE
        | {"$defs", "$ref", "additionalProperties", "anyOf", "enum", "format", "pattern", "multipleOf"}
        | {"exclusiveMaximum", "exclusiveMinimum", "maxItems", "maximum", "minItems", "minimum"},
        formats=frozenset(
            {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
        ),
        is_strict=True,
    ),
    PLAIN,
)
DIALECTS: Final = {dialect.name: dialect for dialect in _ALL}
"""Every dialect by its name."""

_PROVIDERS = {
    "anthropic": "anthropic",
    "azure": "openai",
    "gemini": "gemini",
    "google": "gemini",
    "google-gla": "gemini",
    "google-vertex": "gemini",
    "local": "constrained",
    "mistral": "mistral",
    "mistralai": "mistral",
    "openai": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "vertexai": "gemini",
}
_MISTRAL_MODELS = ("mistral", "mixtral", "codestral", "pixtral", "devstral", "ministral", "magistral")
_FAMILIES = (
    (("claude", "anthropic.claude"), "anthropic"),
    (("gemini",), "gemini"),
    (("gpt-", "chatgpt-", "o1", "o3", "o4"), "openai"),
    (_MISTRAL_MODELS, "mistral"),
)


def find_dialect(name: str) -> Dialect:
    """Return the dialect with a name.

    Raises:
        ConfigError: the dialect is unknown; lists the existing ones.
    """
    dialect = DIALECTS.get(name)
    if dialect is None:
        raise ConfigError(f"{name!r} is not a schema dialect; choose one of {', '.join(DIALECTS)}")
    return dialect


def choose_dialect(model: str) -> Dialect:
    """Return the dialect of a model by its name, ``provider:name`` or ``provider/name``.

    The first part that names a dialect or a provider decides, so that ``openai-strict:gpt-5`` selects the
    strict dialect. Otherwise the model family at the beginning of the last part decides; otherwise it is
    ``plain``.
    """
    parts = re.split(r"[:/]", model.strip().lower())
    for part in parts[:-1]:
        name = part if part in DIALECTS else _PROVIDERS.get(part)
        if name is not None:
            return DIALECTS[name]
    for beginnings, name in _FAMILIES:
        if any(part.startswith(beginnings) for part in parts[-1:]):
            return DIALECTS[name]
    return PLAIN


_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_WARNED_UNIONS: Final = ("anyOf", "oneOf")


class SchemaWarning(UserWarning):
    """A tool's schema contains something that some models can't be shown unchanged."""


def find_schema_warnings(schema: Schema) -> tuple[str, ...]:
    """Return what is wrong and what to do instead, one sentence each, in the order of the schema.

    It finds unions, null as a variant, properties called ``format``, and parameter names that some provider
    refuses.

    Args:
        schema: A tool's compiled schema.
    """
    properties = schema.get("properties")
    names = properties if isinstance(properties, dict) else {}
    refused = [
        f"the parameter {name!r} has a name some providers refuse; use letters, digits, '_', '.' and '-'"
        for name in names
        if not _NAME.fullmatch(name)
    ]
    return (*refused, *dict.fromkeys(_find_slips(schema, ())))


def _find_slips(schema: Schema, place: Place) -> Iterator[str]:
    where = make_json_pointer(*place) or "the root"
    properties = schema.get("properties")
    if isinstance(properties, dict) and "format" in properties:
        yield f"{where}: a property is called 'format', which some validators take for the keyword; rename it"
    for union in _WARNED_UNIONS:
        variants = schema.get(union)
        if isinstance(variants, list):
            left = [variant for variant in variants if variant != {"type": "null"}]
            if len(left) > 1:
                yield f"{where}: a union ({union}); use one enum, or one object with optional properties"
    if _can_be_null(schema):
        yield f"{where}: null as a variant; make the parameter optional instead"
    for step, inner in locate_subschemas(schema):
        yield from _find_slips(inner, (*place, *step))
    for keyword in sorted(DEFINITIONS & schema.keys()):
        definitions = schema[keyword]
        for name, definition in definitions.items() if isinstance(definitions, dict) else ():
            if isinstance(definition, dict):
                yield from _find_slips(definition, (*place, keyword, name))


def _can_be_null(schema: Schema) -> bool:
    named, values = schema.get("type"), schema.get("enum")
    variants: list[JsonValue] = []
    for union in _WARNED_UNIONS:
        listed = schema.get(union)
        variants += listed if isinstance(listed, list) else []
    return (
        (isinstance(named, list) and "null" in named)
        or (isinstance(values, list) and None in values)
        or {"type": "null"} in variants
    )
