"""What a resume or a fork of a stored tree would do, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from sessiontree.contracts.values.quick_dataclass import dataclass

CallForecast: TypeAlias = Literal[
    "begins", "repeats", "program", "approval", "answer", "child", "turn", "unknown", "skipped"
]
"""What becomes of an open call.

``begins``: it is checked, and then runs or asks for an approval, as no intent of it is recorded; ``repeats``:
it had begun and runs once more, because it may be repeated; ``program``: its text runs again with its
recorded answers; ``approval``, ``answer``, ``child``, ``turn``: it waits for an approval, for a person or the
creating program, for a child, for the end of the session's turn; ``unknown``: its result is
``OutcomeUnknown``; ``skipped``: it ends without running.
"""


@dataclass(frozen=True, slots=True)
class DryCall:
    """An open call of a stored tree, and what becomes of it."""

    session: str
    key: str
    """``<turn>.<index>``, for a program's call with ``/<number>`` after it; ``call.<id>`` from outside."""
    tool: str
    becomes: CallForecast
    served: int = 0
    """Of a program: how many answers it gets from the journal."""


@dataclass(frozen=True, slots=True)
class DryQuestion:
    """A model's reply that a session would ask for."""

    turn: int
    most_input_tokens: int | None
    """Most tokens of the request; None = not known, because no provider has counted the conversation."""
    most_output_tokens: int
    """Most tokens of the reply that a budget counts, as long as the model's settings name no other number."""
    most_usd: float | None
    """Most that it costs, in US dollars; None = not known, because its price or its tokens are not."""


@dataclass(frozen=True, slots=True)
class DrySession:
    """A session of a stored tree that has not ended, and what it would do."""

    session: str
    agent: str
    model: str
    served_replies: int
    """Replies of the model that come from the journal."""
    served_calls: int
    """Results of calls that come from the journal."""
    messages: int
    """Messages, answers and reports that it would take in at once."""
    question: DryQuestion | None
    """The reply that it would ask its model for; None = it asks nothing at once."""
    calls: tuple[DryCall, ...]
    """Its open calls, in the order in which they were made."""
    lost_jobs: int
    """Commands in the background that would count as lost."""
    budget_left: Mapping[str, float]
    """What it may still use, by member of its budget, for each member with a cap."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a resume or a fork would do at once. Nothing was written or started to find out."""

    tree_id: str
    """The stored tree."""
    forked_at: int | None
    """Number of the last fact that a fork would share; None = it is about a resume."""
    facts: int
    """Number of facts from which the sessions continue."""
    ended: int
    """Number of sessions that have ended; none of their work runs again."""
    sessions: tuple[DrySession, ...]
    """The others, in the order of their spawns."""
    most_usd: float | None
    """Most that the replies asked for at once cost, in US dollars; None = not known of at least one."""

    @property
    def calls(self) -> tuple[DryCall, ...]:
        """All open calls of all sessions."""
        return tuple(call for session in self.sessions for call in session.calls)
