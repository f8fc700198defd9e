"""What model and tool calls used up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessiontree.contracts.fast_init import quickly_made


@quickly_made
@dataclass(frozen=True, slots=True)
class Usage:
    """Amounts used; adds up."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    turns: int = 0
    tool_calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the member-wise sum."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
            self.turns + other.turns,
            self.tool_calls + other.tool_calls,
        )

    def __sub__(self, other: Usage) -> Usage:
        """Return the member-wise difference."""
        return Usage(
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cost_usd - other.cost_usd,
            self.turns - other.turns,
            self.tool_calls - other.tool_calls,
        )

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def to_wire(self) -> dict[str, Any]:
        """Return the members under camelCase names."""
        return {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "costUsd": self.cost_usd,
            "turns": self.turns,
            "toolCalls": self.tool_calls,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Usage:
        """Return the usage of a wire object."""
        return cls(
            wire["inputTokens"], wire["outputTokens"], wire["costUsd"], wire["turns"], wire["toolCalls"]
        )


NOTHING_USED = Usage()
"""What a message uses whose model says nothing about it."""
