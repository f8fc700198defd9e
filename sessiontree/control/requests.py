"""Requests: what comes in through the control socket, one JSON object per line, and what goes out again.

- in: ``{"id", "ask", "given"}`` asks a question; ``{"withdraw": id}`` waits for its answer no more;
- out: first ``{"protocol", "release", "pid"}``; then, by id and in any order, ``{"id", "items"}`` any number
  of times and ``{"id", "value"}`` once, or ``{"id", "error"}`` once. An error without an id is the last word.

Nothing is ever unpickled. Ids are numbers the asking side counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.jsonable import JsonValue, dump_json
from sessiontree.control.error_codec import error_to_wire
from sessiontree.control.lines import MAX_LINE_BYTES

PROTOCOL = 1
MOST_ID = 2**53
MAX_PART_CHARS = 256 * 1024
"""Items are sent in parts of about this size, so that a long answer holds nobody up."""
_MOST_NUMBER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SocketRequest:
    """A question."""

    id: int
    ask: str
    given: Given


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Nobody waits for an answer any more."""

    id: int


@dataclass(frozen=True, slots=True)
class Told:
    """An answer: one value, and items that may travel in parts before it."""

    value: JsonValue = None
    items: Iterable[Any] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a question; every getter raises ConfigError where one is not as it must be."""

    members: Mapping[str, Any]

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        value = self.members.get(name, default)
        if not isinstance(value, str):
            raise ConfigError(f"{name} must be text, not {_short(value)}")
        return value

    def words(self, name: str) -> str:
        """Return a text with something in it."""
        value = self.text(name)
        if not value.strip():
            raise ConfigError(f"{name} must be text with something in it")
        return value

    def one_of(self, name: str, known: Iterable[str]) -> str:
        """Return one of some words."""
        value = self.text(name)
        words = list(known)
        if value not in words:
            raise ConfigError(f"{name} {_short(value)} is none of {', '.join(words)}")
        return value

    def truth(self, name: str) -> bool:
        """Return true or false."""
        value = self.members.get(name)
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, not {_short(value)}")
        return value

    def count(self, name: str, most: int = _MOST_NUMBER) -> int:
        """Return a whole number from 0."""
        value = self.members.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise ConfigError(f"{name} must be a whole number from 0 to {most}, not {_short(value)}")
        return value

    def seconds(self, name: str, most: float) -> float:
        """Return a time from 0."""
        value = self.members.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
            raise ConfigError(f"{name} must be a number from 0 to {most:g}, not {_short(value)}")
        return float(value)

    def object(self, name: str) -> dict[str, JsonValue]:
        """Return a JSON object."""
        value = self.members.get(name)
        if not isinstance(value, dict):
            raise ConfigError(f"{name} must be an object, not {_short(value)}")
        return value


def said_in(line: bytes) -> SocketRequest | Withdrawal:
    """Return what a line says.

    Raises:
        ValueError: it says nothing of this protocol.
    """
    try:
        wire = json.loads(line.decode("utf-8"), parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(wire, dict):
        raise ValueError("it is no JSON object")
    if "withdraw" in wire:
        return Withdrawal(_id(wire["withdraw"]))
    ask, given = wire.get("ask"), wire.get("given", {})
    if not isinstance(ask, str) or not isinstance(given, dict):
        raise ValueError("it asks nothing")
    return SocketRequest(_id(wire.get("id")), ask, Given(given))


def line_of(wire: Mapping[str, Any]) -> bytes:
    """Return an object as a line.

    Raises:
        ValueError, TypeError, RecursionError: it has no JSON form.
    """
    return dump_json(wire).encode("ascii") + b"\n"


def lines_of(request_id: int, told: Told) -> Iterator[bytes]:
    """Yield an answer's lines, each as it is wanted.

    Raises:
        SessionTreeError: one part of it is longer than a line may be.
    """
    part: list[str] = []
    chars = 0
    for item in told.items:
        text = dump_json(item)
        part.append(text)
        chars += len(text)
        if chars > MAX_PART_CHARS:
            yield _checked(f'{{"id":{request_id},"items":[{",".join(part)}]}}\n')
            part, chars = [], 0
    if part:
        yield _checked(f'{{"id":{request_id},"items":[{",".join(part)}]}}\n')
    yield _checked(f'{{"id":{request_id},"value":{dump_json(told.value)}}}\n')


def error_line(request_id: int | None, error: BaseException) -> bytes:
    """Return an error as a line."""
    return line_of({"id": request_id, "error": error_to_wire(error)})


def _checked(line: str) -> bytes:
    if len(line) > MAX_LINE_BYTES:
        raise SessionTreeError(
            f"one part of the answer has {len(line):,} bytes, at most {MAX_LINE_BYTES:,}; read the journal"
        )
    return line.encode("ascii")


def _id(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_ID:
        raise ValueError("its id is no whole number from 0")
    return value


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _short(value: object) -> str:
    return repr(value)[:80]
