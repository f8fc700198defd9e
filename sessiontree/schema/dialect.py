"""Dialects: which part of JSON Schema each provider takes for the parameters of a tool.

Sources: seed 001, section 4.3 (the twenty keywords that ``gemini-openapi`` goes without) and the facts below,
read in the providers' own documents and error messages in autumn 2026:

- Gemini's JSON Schema field: the list of supported keywords in the reference of ``responseJsonSchema``; a
  ``$ref`` stands alone, and a cycle only beneath properties that may be left out.
- Gemini's older field: the message ``Schema`` (an OpenAPI 3.0 subset), whose ``enum`` holds text only and
  whose arrays need ``items``.
- OpenAI: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the
  top level"; strict mode: the guide to Structured Outputs, "Supported schemas".
- Anthropic: "input_schema does not support oneOf, allOf, or anyOf at the top level"; schemas are 2020-12.
- Mistral says nothing of the root: it is treated as OpenAI's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from sessiontree.contracts.errors import ConfigError

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
"""The keywords seed 001 strips for Google; here all others that its older field has no word for go too."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one provider takes."""

    name: str
    keywords: frozenset[str] | None = None
    """All keywords it knows, at any depth; None = all of JSON Schema 2020-12."""
    root_refused: frozenset[str] = frozenset()
    """Keywords it knows but refuses at the root."""
    enum_types: frozenset[str] = frozenset({"string", "number", "boolean", "null"})
    """Types of the values its ``enum`` may list."""
    formats: frozenset[str] | None = None
    """Values of ``format`` it knows; None = any."""
    has_null: bool = True
    """Whether null is a type, and a type may be a list of types."""
    cycles: Literal["any", "optional", "none"] = "any"
    """Where a ``$ref`` to what contains it may stand: ``any``, ``optional`` (beneath a property that may be
    left out) or ``none``."""
    is_strict: bool = False
    """Whether every property is required and no other may be given."""
    is_changed: bool = True
    """Whether anything is cleaned at all."""


PLAIN: Final = Dialect("plain", is_changed=False)

_ALL = (
    Dialect("anthropic", root_refused=_UNIONS),
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


def dialect_named(name: str) -> Dialect:
    """Return the dialect of a name.

    Raises:
        ConfigError: there is none; says which there are.
    """
    dialect = DIALECTS.get(name)
    if dialect is None:
        raise ConfigError(f"no schema dialect is called {name!r}; there are {', '.join(DIALECTS)}")
    return dialect


def dialect_of(model: str) -> Dialect:
    """Return the dialect of a model by its name, ``provider:name`` or ``provider/name``.

    The first part that names a dialect or a provider decides, so that ``openai-strict:gpt-5`` chooses the
    strict one; else the family the last part begins with; else it is ``plain``.
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
