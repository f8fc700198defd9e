"""The beginnings and ends of facts: what a view needs of a fact without parsing the whole of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from sessiontree.contracts.facts.session_facts import TurnStarted
from sessiontree.contracts.recorded.codec import list_current_versions
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.replay import read_fact, read_facts

_VALUE = r'("[^"\\]*(?:\\.[^"\\]*)*"|-?\d+)'
_DEEPER = {"message.tool_call_id": '"message":{"role":"toolResult","toolCallId":'}
"""What is before a value that is deeper than the fact's own members."""

_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "session_reactivated": ("session",),
    "result_held": ("session",),
    "session_ended": ("session", "status"),
    "approval_decided": ("request_id",),
    "client_call_ended": ("client_id",),
    "turn_started": ("turn",),
    "compaction_begun": ("turn",),
    "turn_replied": ("turn",),
    "call_parked": ("key",),
    "call_resolved": ("key", "outcome", "message.tool_call_id"),
}
"""By kind, its first members in order; those of other kinds are not reported from the beginning."""


@dataclass(frozen=True, slots=True)
class _Head:
    pattern: re.Pattern[str]
    members: Callable[[Any], Any]
    """Gives the same of the whole fact."""
    count: int


def _compile_head(kind: str, members: tuple[str, ...]) -> _Head:
    before = [_DEEPER.get(name, f'"{name}":') for name in members]
    values = "".join(f",{re.escape(text)}{_VALUE}" for text in before)
    pattern = rf'\{{"kind":"{kind}","v":{list_current_versions()[kind]}{values}[,}}]'
    return _Head(re.compile(pattern), attrgetter(*members), len(members))


_HEADS = {kind: _compile_head(kind, members) for kind, members in _MEMBERS.items()}


def read_first_members(kind: str, text: str) -> tuple[Any, ...]:
    """Return the first members of a fact; O(their length) where this release wrote it.

    Args:
        kind: Its kind, one this room tells the beginning of.
        text: The fact as journaled.

    Raises:
        KeyError: nothing is known of the kind.
        JournalTooNew, JournalCorrupt: the text is not a fact of this release.
    """
    head = _HEADS[kind]
    found = head.pattern.match(text)
    if found is not None:
        return tuple(map(_parse_value, found.groups()))
    # A fact of an earlier form does not match the pattern, and is read as a whole.
    members = head.members(read_fact(text))
    return members if head.count > 1 else (members,)


def _parse_value(text: str) -> Any:
    """Return the value of a text or a whole number; one without an escape is not parsed for it."""
    if text[0] != '"':
        return int(text)
    return json.loads(text) if "\\" in text else text[1:-1]


_TURN_AT_END = re.compile(
    rf'"turn":\{{"kind":"turn_started","v":{list_current_versions()["turn_started"]},"turn":(\d+),"took":\d+,'
    r'"fresh_run":(?:true|false)\}\}\Z'
)
"""The start of a turn in the fact before it, whose last member it is."""
MAX_TURN_CHARS = 120
"""How long the start of a turn is at most, as journaled."""


def turn_in(text: str) -> int | None:
    """Return the turn whose start a fact holds, or None; what this release wrote is not parsed for it."""
    found = _TURN_AT_END.search(text, max(0, len(text) - MAX_TURN_CHARS))
    if found is not None or "turn_started" not in text:
        return None if found is None else int(found[1])
    return next((fact.turn for fact in reversed(read_facts(text)) if isinstance(fact, TurnStarted)), None)
