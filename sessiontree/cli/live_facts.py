"""Live facts: what the beginning of a fact's text tells, so that long facts need not be read whole.

A fact is compact JSON whose members stand in the order of its class, so its first ones can be read alone:
results and messages behind them may be hundreds of kilobytes. What does not begin as this release writes it
is read whole, and tells the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sessiontree.contracts.codec import current_versions
from sessiontree.runtime.replay import fact_of

_VALUE = r'("[^"\\]*(?:\\.[^"\\]*)*"|-?\d+)'
_DEEPER = {"message.tool_call_id": '"message":{"role":"toolResult","toolCallId":'}
"""What stands before a value that lies deeper than the fact's own members."""

_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "session_stirred": ("session",),
    "result_held": ("session",),
    "session_ended": ("session", "status"),
    "approval_decided": ("request_id",),
    "turn_started": ("turn",),
    "turn_replied": ("turn",),
    "call_parked": ("key",),
    "call_resolved": ("key", "outcome", "message.tool_call_id"),
}
"""By kind, its first members in order; those of other kinds are not told from the beginning."""


@dataclass(frozen=True, slots=True)
class _Head:
    pattern: re.Pattern[str]
    members: Callable[[Any], Any]
    """Gives the same of the whole fact."""
    count: int


def _head(kind: str, members: tuple[str, ...]) -> _Head:
    before = [_DEEPER.get(name, f'"{name}":') for name in members]
    values = "".join(f",{re.escape(text)}{_VALUE}" for text in before)
    pattern = rf'\{{"kind":"{kind}","v":{current_versions()[kind]}{values}[,}}]'
    return _Head(re.compile(pattern), attrgetter(*members), len(members))


_HEADS = {kind: _head(kind, members) for kind, members in _MEMBERS.items()}


def first_members(kind: str, text: str) -> tuple[Any, ...]:
    """Return the first members of a fact; O(their length) where this release wrote it.

    Args:
        kind: Its kind, one this room tells the beginning of.
        text: The fact as journaled.

    Raises:
        KeyError: nothing is told of the kind.
        JournalTooNew, JournalCorrupt: the text is no fact of this release.
    """
    head = _HEADS[kind]
    found = head.pattern.match(text)
    if found is not None:
        return tuple(json.loads(group) for group in found.groups())
    members = head.members(fact_of(text))
    return members if head.count > 1 else (members,)
