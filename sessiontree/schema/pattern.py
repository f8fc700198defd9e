"""Patterns of schemas, tried in time that is linear in the text.

A pattern is compiled by an engine that does not backtrack. Lookahead at the beginning of an anchored pattern,
as in ``^(?!-)[a-z-]+$``, is split into patterns of that engine. What looks around elsewhere, or refers back,
is tried by an engine that backtracks: on short text only, and on a bounded amount of text in one check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

import jsonschema_rs

from sessiontree.contracts.errors import ConfigError
from sessiontree.schema.keywords import DEFINITIONS, Schema, list_subschemas

LINEAR: Final = jsonschema_rs.RegexOptions()
"""The engine that does not backtrack."""
MAX_CHARS: Final = 1_000
"""Longest text on which a pattern is tried that backtracks."""
MAX_CHARS_OF_CHECK: Final = 20_000
"""Longest text on which such patterns are tried in one check, all together."""
MAX_WEIGHT: Final = 16
"""What the patterns of a schema that a model wrote may weigh."""
HEAVY: Final = 8
"""Weight of a pattern that is too large to be small; a small one weighs 1."""
_SMALL_BYTES: Final = 1 << 14
_LARGEST_BYTES: Final = 1 << 17
_BACKTRACKING: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=20_000)
_LOOKAHEAD: Final = re.compile(r"\(\?([=!])")


# Checks run on several threads, and the checking library hands nothing to a keyword but the value.
_LEFT_CHARS: Final = ContextVar("left_chars", default=MAX_CHARS_OF_CHECK)
"""What is left of the text on which backtracking patterns may be tried in one check."""


def begin_check() -> None:
    """Allow the text of one check to the patterns that backtrack."""
    _LEFT_CHARS.set(MAX_CHARS_OF_CHECK)


class PatternKeyword:
    """The keyword ``pattern`` of a schema with patterns that the linear engine refuses; see the module.

    The checking library makes it and calls :meth:`validate`.
    """

    def __init__(self, parent_schema: dict[str, Any], value: Any, schema_path: list[str | int]) -> None:
        self._pattern = str(value)
        parts = list(_split_pattern(self._pattern))
        self._parts = [(_compile_pattern(part, LINEAR), wanted) for part, wanted in parts]
        self._backtracking = None if parts else _compile_pattern(self._pattern, _BACKTRACKING)

    def validate(self, instance: Any) -> None:
        """Refuse a text that the pattern does not fit.

        Raises:
            ValueError: it does not fit, or it is too long to be tried.
        """
        if not isinstance(instance, str):
            return
        if self._backtracking is None:
            if any(part.is_valid(instance) is not wanted for part, wanted in self._parts):
                raise ValueError(f'the value does not match "{self._pattern}"')
            return
        # One list may hold thousands of texts that are each short enough.
        left = _LEFT_CHARS.get() - len(instance)
        _LEFT_CHARS.set(left)
        if len(instance) > MAX_CHARS or left < 0:
            raise ValueError(
                f'the value is too long to be matched with "{self._pattern}": a pattern that looks around or '
                f"refers back is tried on {MAX_CHARS} characters, and on {MAX_CHARS_OF_CHECK} in one call"
            )
        if not self._backtracking.is_valid(instance):
            raise ValueError(f'the value does not match "{self._pattern}"')


def _compile_pattern(
    pattern: str, options: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions
) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=options)


def is_linear(pattern: str, options: jsonschema_rs.RegexOptions = LINEAR) -> bool:
    """Whether the engine that does not backtrack takes a pattern."""
    try:
        _compile_pattern(pattern, options)
    except (jsonschema_rs.ValidationError, ValueError):
        return False
    return True


def _split_pattern(pattern: str) -> Iterator[tuple[str, bool]]:
    """Yield the patterns that a pattern is made of, and whether each must fit; nothing if that can't be."""
    if is_linear(pattern):
        yield pattern, True
        return
    if not pattern.startswith("^"):
        return
    parts: list[tuple[str, bool]] = []
    at = 1
    while (look := _LOOKAHEAD.match(pattern, at)) is not None:
        end = _end_of_group(pattern, at)
        if end < 0:
            return
        parts.append((f"^(?:{pattern[look.end() : end]})", look[1] == "="))
        at = end + 1
    # A repetition behind the last lookahead, or an alternative to all of this, can't be split.
    if not parts or pattern[at : at + 1] in {"*", "+", "?", "{"} or _has_alternative(pattern, at):
        return
    parts.append((f"^(?:{pattern[at:]})", True))
    if all(is_linear(part) for part, _ in parts):
        yield from parts


def _end_of_group(pattern: str, begin: int) -> int:
    """Return the place of the bracket that closes a group, or -1."""
    depth = 0
    for at, sign in _scan_signs(pattern, begin):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return at
    return -1


def _has_alternative(pattern: str, begin: int) -> bool:
    depth = 0
    for _, sign in _scan_signs(pattern, begin):
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and depth == 0:
            return True
    return False


def _scan_signs(pattern: str, begin: int) -> Iterator[tuple[int, str]]:
    """Yield the characters of a pattern that are neither escaped nor in a class of characters."""
    at, in_class = begin, False
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif in_class:
            in_class = sign != "]"
        elif sign == "[":
            in_class = True
        else:
            yield at, sign
        at += 1


def find_patterns(schema: Schema) -> Iterator[str]:
    """Yield every pattern in a schema, also of names."""
    pattern, named = schema.get("pattern"), schema.get("patternProperties")
    if isinstance(pattern, str):
        yield pattern
    if isinstance(named, dict):
        yield from named
    for keyword in DEFINITIONS & schema.keys():
        definitions = schema[keyword]
        for inner in definitions.values() if isinstance(definitions, dict) else ():
            if isinstance(inner, dict):
                yield from find_patterns(inner)
    for inner in list_subschemas(schema):
        yield from find_patterns(inner)


def weigh_patterns(schema: Schema) -> int:
    """Return what the patterns of a schema weigh together.

    Raises:
        ConfigError: one can't be tried in linear time, or is too large.
    """
    return sum(_weigh(pattern) for pattern in find_patterns(schema))


def _weigh(pattern: str) -> int:
    if is_linear(pattern, jsonschema_rs.RegexOptions(size_limit=_SMALL_BYTES)):
        return 1
    if is_linear(pattern, jsonschema_rs.RegexOptions(size_limit=_LARGEST_BYTES)):
        return HEAVY
    raise ConfigError(
        f"result schema: the pattern {pattern[:200]!r} can't be tried in linear time: it must be small (few "
        "counted repetitions), and must not look around or refer back"
    )
