"""Validation of JSON against a JSON Schema, with errors that help a model to correct its arguments."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final, Protocol

import jsonschema_rs
import pydantic

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.values.jsonable import JsonValue, dump_json, dump_readable
from sessiontree.contracts.values.pointer import LeadsNowhere, find_value, make_json_pointer
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.truncation import find_cut
from sessiontree.schema.argument_text import has_structure_start
from sessiontree.schema.keywords import Schema
from sessiontree.schema.pattern import LINEAR, PatternKeyword, begin_check

MAX_TOLD: Final = 4
"""Maximum number of faults in one message."""
MAX_MESSAGE_CHARS: Final = 300
"""Maximum length of the text about one fault."""
MAX_VALUE_CHARS: Final = 60
"""Maximum length of the excerpt of a refused value."""
_SEARCHED: Final = 200
"""Maximum number of faults searched for the first one."""
_MAX_WAYS: Final = 10_000
"""Maximum number of ways through a schema that are searched for faults."""
_TYPES: Final = "array, boolean, integer, null, number, object, string"


class _Fault(Protocol):
    """The members of the checking library's error that this module reads."""

    message: str
    instance: Any
    instance_path: list[str | int]
    kind: Any


class Checker:
    """One compiled schema.

    Args:
        schema: A JSON Schema; ``$schema`` names the draft, by default 2020-12.

    Raises:
        ConfigError: it is not a valid JSON Schema, or refers to anything outside itself.

    Contract: a check ends soon, whatever the text; see :mod:`sessiontree.schema.pattern`.
    """

    __slots__ = ("_branches", "_validator", "fits")

    def __init__(self, schema: Schema) -> None:
        try:
            try:
                self._validator = _make_validator(schema, {})
                self.fits: Callable[[JsonValue], bool] = self._validator.is_valid
                """Whether a pure JSON value fits."""
            except jsonschema_rs.ValidationError as error:
                # Only a pattern that the linear engine refuses is worth the slower way.
                if "pattern" not in error.instance_path:
                    raise
                self._validator = _make_validator(schema, {"pattern": PatternKeyword})
                self.fits = self._check_bounded
        except jsonschema_rs.ValidationError as error:
            raise ConfigError(
                f"not a valid JSON Schema: {_cut(_describe_schema_fault(error, schema))}"
            ) from error
        except (jsonschema_rs.ReferencingError, ValueError) as error:
            raise ConfigError(f"not a valid JSON Schema: {_cut(str(error).replace(chr(10), ' '))}") from error
        self._branches = dump_json(schema).count('"$ref"')

    def _check_bounded(self, value: JsonValue) -> bool:
        begin_check()
        return self._validator.is_valid(value)

    def check(self, value: JsonValue) -> None:
        """Refuse a value that does not fit.

        Args:
            value: Pure JSON.

        Raises:
            ValidationError: lists the first faults; ``field`` is the first one's, None for the whole value.
        """
        if self._branches and self._branches ** _measure_depth(value) > _MAX_WAYS:
            # The library looks at every way through a schema that refers to itself when it lists faults.
            if not self.fits(value):
                raise ValidationError("the value does not fit, and is nested too deep to say where")
            return
        begin_check()
        # A hostile value has as many faults as it has members, and the model reads the first few.
        faults: list[_Fault] = list(islice(self._validator.iter_errors(value), _SEARCHED))
        if not faults:
            return
        order: dict[str | int, int] = (
            {name: place for place, name in enumerate(value)} if isinstance(value, dict) else {}
        )
        told = sorted(
            (entry for fault in faults for entry in _make_entries(fault)),
            key=lambda entry: (order.get(entry.path[0], -1) if entry.path else -1, entry.place),
        )
        message = "; ".join(_cut(entry.text) for entry in told[:MAX_TOLD])
        raise ValidationError(message, make_json_pointer(*told[0].path) or None)


def _make_validator(schema: Schema, keywords: dict[str, Any]) -> jsonschema_rs.Validator:
    # Offline, so that no reference is ever fetched. Without the mask a message would hold the whole value.
    return jsonschema_rs.validator_for(
        schema, offline=True, mask="the value", pattern_options=LINEAR, keywords=keywords
    )


def _describe_schema_fault(error: jsonschema_rs.ValidationError, schema: Schema) -> str:
    """Return what is wrong with a schema: the place, what is there, and what may be."""
    pointer = make_json_pointer(*error.instance_path)
    try:
        found = shorten_json(find_value(schema, [str(part) for part in error.instance_path]))
    except LeadsNowhere:
        found = "the value"
    keywords = [part for part in error.instance_path if isinstance(part, str)]
    if keywords[-1:] == ["type"]:
        return f"{pointer}: {found} is not a type; use one of {_TYPES}, or a list of them"
    if "pattern" in keywords[-1:]:
        return f"{pointer}: {found} is not a regular expression"
    if "patternProperties" in keywords:
        return (
            f"{pointer}: it names no regular expression that can be tried in linear time; a pattern of names "
            "must not look around or refer back"
        )
    return f"{pointer or 'the root'}: {error.message} (got {found})"


def _measure_depth(value: JsonValue) -> int:
    """Return how many lists and objects are inside each other."""
    depth, level = 0, [value]
    while level := [
        inner
        for each in level
        if isinstance(each, dict | list)
        for inner in (each.values() if isinstance(each, dict) else each)
    ]:
        depth += 1
    return depth


def shorten_json(value: JsonValue) -> str:
    """Return the beginning of a value's JSON text."""
    text = dump_readable(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: find_cut(text, MAX_VALUE_CHARS - 1)] + "…"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One reported fault: the path of the field, and what is wrong with it."""

    path: list[str | int]
    reason: str

    @property
    def place(self) -> list[tuple[bool, str | int]]:
        """The sort key: indexes are compared as numbers, names as text."""
        return [(isinstance(part, str), part) for part in self.path]

    @property
    def text(self) -> str:
        """The field and the reason."""
        return f"{make_json_pointer(*self.path)[1:]}{self.reason}".lstrip(": ")


def _make_entries(fault: _Fault) -> list[_Entry]:
    """Return the entries of a fault; for a missing or an unknown property, that property is the field."""
    kind, details = fault.kind.name, fault.kind.as_dict()
    path = list(fault.instance_path)
    if kind == "required":
        return [_Entry([*path, details["property"]], " required")]
    if kind in {"additionalProperties", "unevaluatedProperties"}:
        return [_Entry([*path, name], " is not a known property") for name in details["unexpected"]]
    got = f"(got {shorten_json(fault.instance)})"
    if kind == "falseSchema":
        return [_Entry(path, f": nothing may be given here {got}")]
    if kind == "anyOf":
        reasons = dict.fromkeys(error.message for errors in details["context"] for error in errors[:1])
        return [_Entry(path, f": fits no variant: {' / '.join(reasons)} {got}")]
    if kind == "type" and isinstance(fault.instance, str) and has_structure_start(fault.instance):
        return [_Entry(path, f": {fault.message}, and it can't be read as one: send JSON, not text {got}")]
    return [_Entry(path, f": {fault.message} {got}")]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: find_cut(text, MAX_MESSAGE_CHARS - 1)] + "…"


def make_refusal(error: Exception, value: JsonValue) -> ValidationError:
    """Return the error for a value that a pydantic type did not accept.

    Args:
        error: What the type raised: pydantic's error, or whatever a custom validator raised.
        value: The value that was validated; the error's fields are pointers into it.
    """
    if not isinstance(error, pydantic.ValidationError):
        return ValidationError(f"the value was refused: {type(error).__name__}: {error}")
    told = [
        (_build_pointer(fault["loc"], value), fault["msg"].removeprefix("Value error, "))
        for fault in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    message = "; ".join(f"{pointer[1:]}: {reason}".lstrip(": ") for pointer, reason in told[:MAX_TOLD])
    return ValidationError(message, told[0][0] or None)


def _build_pointer(location: tuple[str | int, ...], value: JsonValue) -> str:
    """Return the pointer for pydantic's location, without the names of union variants in it."""
    place, path = value, list[str | int]()
    for part in location:
        members = place if isinstance(place, dict) else {}
        items = place if isinstance(place, list) else []
        if isinstance(part, str) and part in members:
            place = members[part]
        elif isinstance(part, int) and part < len(items):
            place = items[part]
        else:
            continue
        path.append(part)
    return make_json_pointer(*path)
