"""Markers for parameters: what a tool may say about one parameter beyond its type.

A marker rides in ``Annotated`` and travels as a keyword of the parameter's JSON Schema, so a tool that
declares its parameters as a schema may write the keyword itself. No model ever sees the keywords.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from sessiontree.contracts.errors import ConfigError

TRIMMED_KEYWORD = "x-trimmed"
"""``true`` where strings are trimmed."""
ALLOW_EMPTY_KEYWORD = "x-allow-empty"
"""``true`` where an empty string counts as given."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Strings lose the white space around them before the call's digest is taken.

    For names, ids, addresses and queries: ``Annotated[str, Trimmed()]``. Never for text, patches,
    commands or paths, where white space means something.
    """

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the type's schema with the keyword added."""
        return {**handler(core_schema), TRIMMED_KEYWORD: True}


@dataclass(frozen=True, slots=True)
class AllowEmpty:
    """An empty string is a value of this required parameter: ``Annotated[str, AllowEmpty()]``.

    Without it, a required parameter given as ``""`` counts as missing.
    """

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the type's schema with the keyword added."""
        return {**handler(core_schema), ALLOW_EMPTY_KEYWORD: True}


def string_enum(values: Iterable[str]) -> Any:
    """Return the type of a parameter that takes one of some texts, which the program knows when it runs.

    Where they are known before, ``Literal["markdown", "text"]`` is the same. In every dialect it is one flat
    ``enum``, never a union.

    Raises:
        ConfigError: there is none, or one is no text.

    Source: seed 001, section 4.2, ``stringEnum``.
    """
    listed = tuple(dict.fromkeys(values))
    if isinstance(values, str) or not listed or not all(isinstance(each, str) for each in listed):
        raise ConfigError(f"string_enum({values!r}): give a list of texts, one at least")
    return Literal[listed]


def optional_string_enum(values: Iterable[str]) -> Any:
    """Return the same for a parameter that may be left out; give it the default None.

    Models are shown no null: to leave it out is the one way to say nothing.

    Raises:
        ConfigError: as :func:`string_enum`.

    Source: seed 001, section 4.2, ``optionalStringEnum``.
    """
    return string_enum(values) | None
