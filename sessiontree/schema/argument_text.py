"""Reading objects and lists in text: JSON, and what models and providers actually send instead.

One reader for the arguments of a call and for a value inside them that came as text. Also accepted, and
nothing else:

- no text, or ``null``: no arguments;
- raw control characters inside strings, trailing commas, strings in single quotes, unknown escapes (the
  backslash is kept), Python's ``True``, ``False`` and ``None``;
- a code fence around the value, or the value spelled as a JSON string;
- around all arguments alone: the same object twice, additional empty objects (some providers begin with
  ``{}``), and a missing last brace after a whole value.

Never guessed: missing commas or quotes, text around the object, two objects that differ, NaN. A text that
breaks off anywhere else is refused: half a path or half a list is another path or list.
Each character is read a bounded number of times.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.whole_text import join_halves
from sessiontree.schema.json_form import MAX_DEPTH

_SPACE = re.compile(r"[\s\ufeff]*")
_FENCE = re.compile(r"```[A-Za-z0-9]*[ \t]*\n?")
_OPENING = re.compile(r"[\s\ufeff]*(?:[\[{\"']|```)")
_WORD = re.compile(r"[^\s,:\[\]{}\"']+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_WORDS: Final[dict[str, JsonValue]] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")


@dataclass(frozen=True, slots=True)
class ParsedArguments:
    """The content of an argument text."""

    values: dict[str, JsonValue]
    closed: bool = False
    """Whether the last brace is missing: all values are whole, but members may be missing."""


class _Unreadable(ValueError):
    """The text is not in an accepted form."""


def read_arguments(text: str) -> ParsedArguments | None:
    """Return the arguments in a text, or None if it can't be read as an object.

    Contract: raises nothing. Time is linear in the text.
    """
    found: ParsedArguments | None = _read_out(text, _read)
    return found


def has_structure_start(text: str) -> bool:
    """Whether a text begins like an object, a list, a quoted string or a code fence."""
    return _OPENING.match(text) is not None


def read_structure(text: str) -> dict[str, JsonValue] | list[JsonValue] | None:
    """Return the one object or list that a text spells, or None.

    Contract: raises nothing. Time is linear in the text.
    """
    found = _read_out(text, _parse_value)
    return found if isinstance(found, dict | list) else None


def _read_out(text: str, read: Callable[[str], Any]) -> Any:
    """Return what a reader finds in a text, or in the string that the text spells; None = neither fits."""
    # Twice at most: strings within strings must not make the work grow with their depth.
    for _ in range(2):
        try:
            found = read(text)
        except (_Unreadable, ValueError, RecursionError):
            return None
        if not isinstance(found, str):
            return found
        text = found
    return None


def _parse_value(text: str) -> JsonValue:
    try:
        value: JsonValue = _parse_json(text)
    except _Unreadable:
        raise
    except ValueError:
        return _TextReader(text).read_only_value()
    return value


def _parse_json(text: str) -> Any:
    return json.loads(text, strict=False, parse_float=_parse_finite, parse_constant=_refuse)


def _read(text: str) -> ParsedArguments | str:
    if _SPACE.fullmatch(text):
        return ParsedArguments({})
    try:
        value = _parse_json(text)
    except ValueError:
        return _TextReader(text).read_object()
    if isinstance(value, str):
        return value
    if value is None:
        return ParsedArguments({})
    if not isinstance(value, dict):
        raise _Unreadable
    # Counting is cheap, and only a text with so many brackets can be nested too deep.
    if text.count("{") + text.count("[") > MAX_DEPTH:
        _refuse_deep(value)
    return ParsedArguments(value)


def _refuse(constant: str) -> NoReturn:
    raise _Unreadable(constant)


def _parse_finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise _Unreadable(number)
    return value


def _refuse_deep(value: dict[str, JsonValue]) -> None:
    """Refuse a value that is nested deeper than any tool accepts."""
    level: list[dict[str, JsonValue] | list[JsonValue]] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise _Unreadable


class _TextReader:
    """Reads one text from its beginning."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._closed = False

    def read_object(self) -> ParsedArguments:
        """Return the one object in the text, which may be repeated."""
        self._skip(_SPACE)
        fenced = self._skip(_FENCE)
        found: dict[str, JsonValue] = {}
        said, has_object = "{}", False
        while self._read_next():
            if fenced and self._skip(_FENCE):
                continue
            value = self._read_value(0)
            if not isinstance(value, dict):
                raise _Unreadable
            has_object = True
            words = dump_json(value)
            if words in {"{}", said}:
                continue
            if said != "{}":
                raise _Unreadable
            found, said = value, words
        if not has_object:
            raise _Unreadable
        return ParsedArguments(found, self._closed)

    def read_only_value(self) -> JsonValue:
        """Return the only value in the text, which must be whole."""
        self._skip(_SPACE)
        fenced = self._skip(_FENCE)
        value = self._read_value(0)
        self._skip(_SPACE)
        if fenced:
            self._skip(_FENCE)
        if self._closed or self._read_next():
            raise _Unreadable
        return value

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match.group()

    def _read_next(self) -> str:
        """Return the next character that is not a space, or ``""`` at the end."""
        self._skip(_SPACE)
        return self._text[self._at : self._at + 1]

    def _read_value(self, depth: int) -> JsonValue:
        begins = self._read_next()
        if depth >= MAX_DEPTH and begins in {"{", "["}:
            raise _Unreadable
        if begins == "{":
            return self._read_object(depth)
        if begins == "[":
            return self._list(depth)
        if begins in _PLAIN:
            return self._read_string(begins)
        word = self._skip(_WORD)
        if word in _WORDS:
            return _WORDS[word]
        number = _NUMBER.fullmatch(word)
        if number is None or self._at == len(self._text):  # more digits may be missing
            raise _Unreadable
        return int(word) if number.group(1) is None and number.group(2) is None else _parse_finite(word)

    def _read_object(self, depth: int) -> dict[str, JsonValue]:
        members: dict[str, JsonValue] = {}

        def read_member() -> None:
            begins = self._read_next()
            if begins not in _PLAIN:
                raise _Unreadable
            key = self._read_string(begins)
            if not self._take(":"):
                raise _Unreadable
            members[key] = self._read_value(depth + 1)

        self._read_members("}", read_member, may_be_open=depth == 0)
        return members

    def _list(self, depth: int) -> list[JsonValue]:
        items: list[JsonValue] = []
        self._read_members("]", lambda: items.append(self._read_value(depth + 1)))
        return items

    def _read_members(self, end: str, read: Callable[[], None], *, may_be_open: bool = False) -> None:
        """Read members up to an end; a comma may be before it.

        Args:
            end: The character that ends them.
            read: Reads one of them.
            may_be_open: Whether the end may be missing after a whole member.
        """
        self._at += 1
        while not self._take(end):
            read()
            if self._take(","):
                continue
            if may_be_open and not self._read_next():
                self._closed = True
                return
            if self._read_next() != end:
                raise _Unreadable

    def _take(self, sign: str) -> bool:
        if self._read_next() != sign:
            return False
        self._at += 1
        return True

    def _read_string(self, quote: str) -> str:
        self._at += 1
        parts: list[str] = []
        while True:
            parts.append(self._skip(_PLAIN[quote]))
            sign = self._text[self._at : self._at + 1]
            self._at += 1
            if sign == "\\":
                parts.append(self._read_escaped())
                continue
            if not sign:
                raise _Unreadable
            return join_halves("".join(parts))

    def _read_escaped(self) -> str:
        sign = self._text[self._at : self._at + 1]
        self._at += 1
        if sign != "u":
            return _ESCAPES.get(sign, f"\\{sign}" if sign else "")
        if digits := self._skip(_HEX):
            return chr(int(digits, 16))
        return "\\u"
