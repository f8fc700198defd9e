"""Checking JSON against a JSON Schema, and saying what is wrong in a way a model can mend."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol

import jsonschema_rs

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.jsonable import JsonValue, dump_readable
from sessiontree.contracts.truncation import whole
from sessiontree.schema.keywords import Schema
from sessiontree.schema.pointer import json_pointer

MAX_TOLD: Final = 4
"""Most faults told in one message."""
MAX_MESSAGE_CHARS: Final = 300
"""Longest text about one fault."""
MAX_VALUE_CHARS: Final = 60
"""Longest part of a refused value that is shown."""
_SEARCHED: Final = 200
"""Faults looked at to find the first."""


class _Fault(Protocol):
    """What this module reads of the checking library's error."""

    message: str
    instance: Any
    instance_path: list[str | int]
    kind: Any


class Checker:
    """One schema, compiled.

    Args:
        schema: A JSON Schema; its ``$schema`` names the draft, else 2020-12.

    Raises:
        ConfigError: it is no valid JSON Schema, or refers to anything outside itself.
    """

    __slots__ = ("_validator", "fits")

    def __init__(self, schema: Schema) -> None:
        try:
            self._validator = jsonschema_rs.validator_for(schema, offline=True, mask="the value")
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise ConfigError(f"not a valid JSON Schema: {_cut(str(error).replace(chr(10), ' '))}") from error
        self.fits = self._validator.is_valid
        """Whether a value of pure JSON fits."""

    def check(self, value: JsonValue) -> None:
        """Refuse a value that does not fit.

        Args:
            value: Pure JSON.

        Raises:
            ValidationError: tells the first faults; ``field`` is the first one's, None for the whole value.
        """
        faults: list[_Fault] = list(islice(self._validator.iter_errors(value), _SEARCHED))
        if not faults:
            return
        order: dict[str | int, int] = (
            {name: place for place, name in enumerate(value)} if isinstance(value, dict) else {}
        )
        told = sorted(
            (entry for fault in faults for entry in _entries(fault)),
            key=lambda entry: (order.get(entry.path[0], -1) if entry.path else -1, entry.place),
        )
        message = "; ".join(_cut(entry.text) for entry in told[:MAX_TOLD])
        raise ValidationError(message, json_pointer(*told[0].path) or None)


def shown(value: JsonValue) -> str:
    """Return the beginning of a value's JSON text."""
    text = dump_readable(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: whole(text, MAX_VALUE_CHARS - 1)] + "…"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One thing to tell: the path of the field at fault, and what is wrong with it."""

    path: list[str | int]
    reason: str

    @property
    def place(self) -> list[tuple[bool, str | int]]:
        """Sorts indexes as numbers and names as text."""
        return [(isinstance(part, str), part) for part in self.path]

    @property
    def text(self) -> str:
        """The field and the reason."""
        return f"{json_pointer(*self.path)[1:]}{self.reason}".lstrip(": ")


def _entries(fault: _Fault) -> list[_Entry]:
    """Return what a fault means: of a missing or an unknown property, that property is the field."""
    kind, details = fault.kind.name, fault.kind.as_dict()
    path = list(fault.instance_path)
    if kind == "required":
        return [_Entry([*path, details["property"]], " required")]
    if kind in {"additionalProperties", "unevaluatedProperties"}:
        return [_Entry([*path, name], " is not a known property") for name in details["unexpected"]]
    got = f"(got {shown(fault.instance)})"
    if kind == "falseSchema":
        return [_Entry(path, f": nothing may be given here {got}")]
    if kind == "anyOf":
        reasons = dict.fromkeys(error.message for errors in details["context"] for error in errors[:1])
        return [_Entry(path, f": fits no variant: {' / '.join(reasons)} {got}")]
    return [_Entry(path, f": {fault.message} {got}")]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: whole(text, MAX_MESSAGE_CHARS - 1)] + "…"
