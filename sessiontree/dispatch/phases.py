"""The named results of preparing and running a tool call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessiontree.contracts.codec import Outcome
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import ToolResultMessage
from sessiontree.contracts.results import Artifact
from sessiontree.dispatch.tool_table import ToolEntry


@dataclass(slots=True)
class PreparedCall:
    """A call whose arguments fit and which the rules let pass, maybe after an approval."""

    key: str
    provider_id: str
    """The id the model gave the call; its result carries it."""
    entry: ToolEntry
    params: Any
    """Validated parameters."""
    arguments: Mapping[str, JsonValue]
    """Final arguments, as shown to approvers and bound by the digest."""
    tier: int
    digest: str
    """Empty for a ReadOnly call that needs no approval."""
    needs_approval: bool
    standings: frozenset[str] | None = None
    """The protected places it may change once it is allowed; None = it names no files, and may change all."""

    @property
    def harmless(self) -> bool:
        """Whether it changes nothing and nobody has to allow it."""
        return self.tier == 0 and not self.needs_approval


@dataclass(slots=True)
class RejectedCall:
    """A call whose arguments do not fit."""

    key: str
    tool: str
    message: str
    field: str | None
    digest: str
    schema: Mapping[str, JsonValue]


@dataclass(slots=True)
class ImmediateOutcome:
    """A call that has its result without having run, or after it ran."""

    key: str
    outcome: Outcome
    message: ToolResultMessage
    artifacts: tuple[Artifact, ...] = ()
    again: bool = False
    """Whether the call may be tried again: it failed of what may pass, and repeating it changes nothing."""
    untrusted: bool = False
    """Whether its text comes from outside."""
