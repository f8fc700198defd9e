"""What a tool's schema had better go without, because some provider or validator stumbles over it.

Source: seed 001, section 4.2; the pattern of names is Anthropic's, from its error message ("Property keys
should match pattern").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.schema.keywords import DEFINITIONS, Schema, labelled_subschemas
from sessiontree.schema.loss_report import Place
from sessiontree.schema.pointer import json_pointer

_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_UNIONS: Final = ("anyOf", "oneOf")


class SchemaWarning(UserWarning):
    """A tool's schema says something that some models can't be told as it stands."""


def schema_slips(schema: Schema) -> tuple[str, ...]:
    """Return what is wrong and what to do instead, one sentence each, in the order of the schema.

    Looked for: a union, null as a variant, a property called ``format``, and a parameter whose name some
    provider refuses.

    Args:
        schema: A tool's schema, as it was compiled.
    """
    properties = schema.get("properties")
    names = properties if isinstance(properties, dict) else {}
    refused = [
        f"the parameter {name!r} has a name some providers refuse; use letters, digits, '_', '.' and '-'"
        for name in names
        if not _NAME.fullmatch(name)
    ]
    return (*refused, *dict.fromkeys(_slips(schema, ())))


def _slips(schema: Schema, place: Place) -> Iterator[str]:
    where = json_pointer(*place) or "the root"
    properties = schema.get("properties")
    if isinstance(properties, dict) and "format" in properties:
        yield f"{where}: a property is called 'format', which some validators take for the keyword; rename it"
    for union in _UNIONS:
        variants = schema.get(union)
        if isinstance(variants, list):
            left = [variant for variant in variants if variant != {"type": "null"}]
            if len(left) > 1:
                yield f"{where}: a union ({union}); use one enum, or one object with optional properties"
    if _takes_null(schema):
        yield f"{where}: null as a variant; make the parameter optional instead"
    for step, inner in labelled_subschemas(schema):
        yield from _slips(inner, (*place, *step))
    for keyword in sorted(DEFINITIONS & schema.keys()):
        definitions = schema[keyword]
        for name, definition in definitions.items() if isinstance(definitions, dict) else ():
            if isinstance(definition, dict):
                yield from _slips(definition, (*place, keyword, name))


def _takes_null(schema: Schema) -> bool:
    named, values = schema.get("type"), schema.get("enum")
    variants: list[JsonValue] = []
    for union in _UNIONS:
        listed = schema.get(union)
        variants += listed if isinstance(listed, list) else []
    return (
        (isinstance(named, list) and "null" in named)
        or (isinstance(values, list) and None in values)
        or {"type": "null"} in variants
    )
