"""Plans whose Workers read for a change and return typed values: numbers, dates and truth values, no text.

The session that acts starts a Worker with the calls that read, and a result schema for what the following
changes need of it. A change can be prepared so if each of its arguments is known without reading, or fits a
closed form. The others are prepared as before, by Workers that return text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from typing import Any, Final, TypeAlias

from sessiontree.bench.suites.scripted_agents import SPAWN, FromReader, Plan, PlannedCall, write_reader_task
from sessiontree.contracts.values.quick_dataclass import dataclass

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_MINUTE: Final = re.compile(r"(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2})")
_NUMBER: Final = re.compile(r"0|[1-9]\d{0,14}")
_BOOLEAN: Final = {"type": "boolean"}
_FORMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "truth": _BOOLEAN,
    "number": {"type": "number"},
    "digits": {"type": "integer"},
    "day": {"type": "string", "format": "date"},
    "minute": {"type": "string", "format": "date-time"},
}
"""Schemas of values that a Worker may return, by the kind of argument that they become."""
Value: TypeAlias = Any


def make_typed_plan(plan: Plan, reading: frozenset[str], known: str) -> Plan:
    """Return the plan with typed Workers where they suffice.

    Args:
        plan: Calls in order, without Workers.
        reading: Names of the tools that only read.
        known: What the session knows without reading: the user's message, and words of its own.
    """
    runs = [
        (is_reading, list(calls))
        for is_reading, calls in groupby(plan.calls, lambda each: each.tool in reading)
    ]
    found: list[PlannedCall] = []
    unseen: list[PlannedCall] = []
    number = 0
    for at, (is_reading, calls) in enumerate(runs):
        changes = runs[at + 1][1] if is_reading and at + 1 < len(runs) else []
        if not is_reading:
            if at == 0:
                found += calls
            continue
        number += 1
        prepared = list(_prepare(changes, known, number))
        if prepared:
            found += [_make_reader(calls, prepared), *(each.call for each in prepared)]
            unseen += calls
        rest = changes[len(prepared) :]
        if rest or not changes:
            found += calls
            unseen = [each for each in unseen if each not in calls]
        found += rest
    # The answer is text: what it needs is read once more, when nothing is left to be changed.
    return Plan((*found, *(unseen if plan.output else ())), plan.output)


@dataclass(slots=True)
class _PreparedChange:
    """A change whose arguments come from the session itself or from a typed Worker."""

    call: PlannedCall
    schema: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)


class _NeedsText(Exception):
    """An argument is known only to who has read a text."""


def _prepare(changes: Sequence[PlannedCall], known: str, number: int) -> Iterator[_PreparedChange]:
    """Yield the changes, in order, up to the first that needs text."""
    for at, change in enumerate(changes):
        found = _PreparedChange(change)
        try:
            arguments = {
                name: _resolve_value(value, known, f"r{number}c{at}_{name}", found)
                for name, value in change.arguments.items()
            }
        except _NeedsText:
            return
        found.call = PlannedCall(change.tool, arguments)
        yield found


def _resolve_value(value: Value, known: str, name: str, found: _PreparedChange) -> Value:
    """Return a value that needs no reading, or where it comes from.

    Raises:
        _NeedsText: it is a text that is not known.
    """
    if isinstance(value, Mapping):
        return {key: _resolve_value(each, known, f"{name}_{key}", found) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_resolve_value(each, known, f"{name}_{at}", found) for at, each in enumerate(value)]
    if value is None or (isinstance(value, str) and _is_known(value, known)):
        return value
    kind, given = _choose_kind(value)
    found.schema[name] = _FORMS[kind]
    found.values[name] = given
    return FromReader(name, kind)


def _is_known(text: str, known: str) -> bool:
    words = re.escape(" ".join(text.split()).casefold())
    return re.search(rf"(?<!\w){words}(?!\w)", " ".join(known.split()).casefold()) is not None


def _choose_kind(value: Value) -> tuple[str, Value]:
    """Return the kind of a value, and how a Worker gives it.

    Raises:
        _NeedsText: it fits no closed form.
    """
    if isinstance(value, bool):
        return "truth", value
    if isinstance(value, int | float):
        return "number", value
    text = str(value)
    minute = _MINUTE.fullmatch(text)
    if minute:
        return "minute", f"{minute.group(1)}T{minute.group(2)}:00Z"
    if _DAY.fullmatch(text):
        return "day", text
    if _NUMBER.fullmatch(text):
        return "digits", int(text)
    raise _NeedsText


def _make_reader(calls: Sequence[PlannedCall], changes: Iterable[_PreparedChange]) -> PlannedCall:
    """Return the start of a Worker that makes these calls and returns what the changes need.

    It always says whether they shall be made: many tasks set a condition.
    """
    schema: dict[str, Mapping[str, Any]] = {"go": _BOOLEAN}
    values: dict[str, Value] = {"go": True}
    for each in changes:
        schema |= each.schema
        values |= each.values
    asked = {
        "type": "object",
        "properties": schema,
        "required": list(schema),
        "additionalProperties": False,
    }
    task = write_reader_task(calls, json.dumps(values))
    return PlannedCall(SPAWN, {"kind": "worker", "task": task, "result_schema": asked})
