"""Results that a session owes its parent: the schema of the requested type, and the value in the text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn

from pydantic import TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.values.jsonable import JsonValue, dump_json, dump_readable
from sessiontree.contracts.values.pointer import make_json_pointer
from sessiontree.schema.checker import Checker, make_refusal
from sessiontree.schema.definitions import write_out
from sessiontree.schema.derive import (
    compute_schema_digest,
    copy_schema,
    generate_schema,
    remove_markers,
    remove_titles,
)
from sessiontree.schema.json_form import NotJson, to_json_form
from sessiontree.schema.keywords import Schema, rewrite
from sessiontree.schema.pattern import HEAVY, MAX_WEIGHT, find_patterns, weigh_patterns

MAX_SCHEMA_CHARS: Final = 65_536
"""Longest JSON text of a result schema that a model gives, definitions written out."""
MAX_SCHEMA_VALUES: Final = 2_000
"""Most values that such a schema lists (``enum``), and names that it requires or describes, all together."""
MAX_SCHEMA_DEPTH: Final = 32
"""Deepest nesting of such a schema."""
MAX_PATTERN_CHARS: Final = 400_000
"""Longest result that is tried on one pattern; several patterns share it, down to the next number."""
MIN_PATTERN_CHARS: Final = 100_000
_FENCE = "```"
_CACHED = 256


def compile_result(schema: Mapping[str, JsonValue]) -> ResultSchema:
    """Return the compiled schema of a result; equal schemas return the same object while it is cached.

    Args:
        schema: A JSON Schema with any root; references must stay inside.

    Raises:
        ConfigError: it is not a valid JSON Schema, or refers to anything outside itself.

    Contract: never mutates its input.
    """
    try:
        # The text is the key of the cache, because a schema has no hash.
        return _compile_result(dump_json(copy_schema(schema)))
    except ConfigError as error:
        raise ConfigError(f"result schema: {error}") from error


def check_model_schema(schema: Mapping[str, JsonValue]) -> None:
    """Refuse a result schema from a model that is too large, or whose patterns may take long.

    Raises:
        ConfigError: as :func:`compile_result`, or a bound is exceeded; says which.
    """
    try:
        # Before it is compiled, because compiling a huge schema takes long; and again after its references
        # are written out, because they may multiply it.
        _refuse_large(schema, "it")
        written = compile_result(schema).schema
        _refuse_large(written, "with its definitions written out it")
        weight = weigh_patterns(written)
    except RecursionError as error:
        raise ConfigError("result schema: it is nested too deep") from error
    if weight > MAX_WEIGHT:
        raise ConfigError(
            f"result schema: its patterns are too many or too large ({weight} of {MAX_WEIGHT}; a pattern "
            f"with counted repetitions of large classes counts {HEAVY})"
        )


def _refuse_large(schema: Mapping[str, JsonValue], what: str) -> None:
    levels = values = 0
    level: list[JsonValue] = [dict(schema)]
    while level:
        levels += 1
        if levels > MAX_SCHEMA_DEPTH:
            raise ConfigError(f"result schema: {what} is nested more than {MAX_SCHEMA_DEPTH} levels deep")
        inner: list[JsonValue] = []
        for each in level:
            found = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
            values += len(found)
            inner += found
        if values > MAX_SCHEMA_VALUES:
            raise ConfigError(
                f"result schema: {what} has more than {MAX_SCHEMA_VALUES} members and listed values; where "
                "there are many, describe them by a type or a pattern"
            )
        level = [each for each in inner if isinstance(each, dict | list)]
    size = len(dump_json(dict(schema)))
    if size > MAX_SCHEMA_CHARS:
        raise ConfigError(
            f"result schema: {what} has {size:,} characters, {MAX_SCHEMA_CHARS:,} are the most; shorten it"
        )


def derive_result_schema(result_type: Any) -> Schema:
    """Return the JSON Schema of any type that pydantic knows: a model, dataclass, TypedDict or plain type.

    Raises:
        ConfigError: the type has no JSON Schema.
    """
    adapter = _get_adapter(result_type)
    return remove_markers(
        rewrite(write_out(generate_schema(adapter.json_schema, repr(result_type))), remove_titles)
    )


def convert_result(result_type: Any, value: JsonValue) -> Any:
    """Return validated JSON as the type that a parent asked for.

    Args:
        result_type: As for :func:`derive_result_schema`.
        value: JSON that fits the type's schema.

    Raises:
        ValidationError: the type's own checks refuse the value.
        ConfigError: the type is unknown to pydantic.
    """
    adapter = _get_adapter(result_type)
    plain = _to_plain(value)
    try:
        # From JSON text a strict type accepts what JSON can't express otherwise, such as a date.
        return adapter.validate_json(dump_json(plain))
    except ValidationError:
        raise
    except Exception as error:
        # The type's own validators may raise anything; in every case they did not accept the value.
        raise make_refusal(error, plain) from error


class ResultSchema:
    """One compiled result schema; made by :func:`compile_result`.

    Args:
        schema: The schema, pure JSON.

    Raises:
        ConfigError: as :func:`compile_result`.
    """

    __slots__ = ("_checker", "_most_chars", "digest", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = remove_markers(write_out(schema))
        """The schema as a model sees it; must not be changed."""
        self.digest = compute_schema_digest(self.schema)
        """SHA-256 (hex) of the schema."""
        self._checker = Checker(self.schema)
        number = sum(1 for _ in find_patterns(self.schema))
        self._most_chars = max(MIN_PATTERN_CHARS, MAX_PATTERN_CHARS // number) if number else None

    @property
    def demand(self) -> str:
        """The instruction for a model that must give such a result; ends with the schema."""
        form = "text" if self.schema.get("type") == "string" else "JSON value"
        return (
            f"Your last reply must be one {form} that fits this JSON Schema, and nothing else:\n"
            f"{dump_readable(self.schema)}"
        )

    def validate_text(self, text: str) -> JsonValue:
        """Return the value in a session's final text.

        The text is JSON, or holds JSON in its only fenced block (marked ``json`` or unmarked). If the
        schema's type is ``string``, the text is a JSON string, or else the value itself.

        Raises:
            ValidationError: it holds no JSON, or the value does not fit; ``field`` points at the first
                field that fails, None for the whole.
        """
        # Refused before it is parsed: a pattern is tried on every text in the result.
        if self._most_chars is not None and len(text) > self._most_chars:
            raise ValidationError(
                f"the result has {len(text):,} characters, and its schema has patterns, which are tried on "
                f"{self._most_chars:,}; give a shorter result"
            )
        if self.schema.get("type") == "string":
            return self._choose_string(text)
        return self.validate(_parse(text))

    def validate(self, value: JsonValue) -> JsonValue:
        """Return a copy of a value that fits.

        Raises:
            ValidationError: it does not fit, or is not JSON.
        """
        plain = _to_plain(value)
        self._checker.check(plain)
        return plain

    def _choose_string(self, text: str) -> JsonValue:
        for reading in _list_string_readings(text):
            if self._checker.fits(_to_plain(reading)):
                return reading
        return self.validate(text)


@lru_cache(maxsize=_CACHED)
def _compile_result(text: str) -> ResultSchema:
    return ResultSchema(json.loads(text))


def _get_adapter(result_type: Any) -> TypeAdapter[Any]:
    try:
        hash(result_type)
    except TypeError:
        return _make_adapter(result_type)
    return _remembered_adapter(result_type)


def _make_adapter(result_type: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(result_type)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise ConfigError(f"result type {result_type!r}: {str(error).partition(chr(10))[0]}") from error


_remembered_adapter = lru_cache(maxsize=_CACHED)(_make_adapter)


def _list_string_readings(text: str) -> list[str]:
    """Return the possible readings of a text as a string: its JSON string, the text, the stripped text."""
    try:
        spelled = json.loads(text)
    except (ValueError, RecursionError):
        spelled = None
    return [*([spelled] if isinstance(spelled, str) else []), text, text.strip()]


def _parse(text: str) -> JsonValue:
    try:
        return _parse_json(text)
    except ValidationError as error:
        blocks = _extract_fenced_blocks(text)
        if not blocks:
            raise
        # Which of several blocks was meant is not guessed.
        if len(blocks) > 1:
            raise ValidationError(
                f"the result holds {len(blocks)} fenced blocks; give one, or the JSON alone"
            ) from error
        return _parse_json(blocks[0])


def extract_text_around(text: str, value: JsonValue) -> str:
    """Return the text of a final message around its value; empty if there is only the value.

    Args:
        text: The final message.
        value: What :meth:`ResultSchema.validate_text` found in it.
    """
    if isinstance(value, str) and value in _list_string_readings(text):
        return ""
    try:
        _parse_json(text)
    except ValidationError:
        spans = _find_fenced(text)
    else:
        return ""
    if len(spans) != 1:
        return text
    lines, (begin, end) = text.split("\n"), spans[0]
    return "\n".join([*lines[: begin - 1], *lines[end + 1 :]]).strip()


def _extract_fenced_blocks(text: str) -> list[str]:
    lines = text.split("\n")
    return ["\n".join(lines[begin:end]) for begin, end in _find_fenced(text)]


def _find_fenced(text: str) -> list[tuple[int, int]]:
    """Return the begin and end lines of blocks marked ``json``, or of unmarked ones if none is marked so.

    Blocks of other languages do not count.
    """
    found: dict[str, list[tuple[int, int]]] = {"json": [], "": []}
    mark: str | None = None
    begin = 0
    for number, line in enumerate(text.split("\n")):  # other line breaks may be inside a JSON string
        stripped = line.strip()
        if mark is None and stripped.startswith(_FENCE):
            mark, begin = stripped.removeprefix(_FENCE).strip().lower(), number + 1
        elif mark is not None and stripped == _FENCE:
            found.setdefault(mark, []).append((begin, number))
            mark = None
    return found["json"] or found[""]


def _parse_json(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValidationError(
            f"the result must be JSON alone: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"the result must be JSON of ordinary size: {error}") from error
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _to_plain(value: object) -> JsonValue:
    try:
        return to_json_form(value)
    except NotJson as error:
        pointer = make_json_pointer(*reversed(error.path))
        raise ValidationError(
            f"{pointer[1:] or 'the result'}: the value {error.reason}", pointer or None
        ) from error
    except RecursionError as error:
        raise ValidationError("the result is nested too deep") from error
