"""Agents: named settings that sessions run with."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.tiers import SystemAnswer

DEFAULT_PROMPT = (
    "You are one session in a tree of sessions. Work with the tools you are given, "
    "say plainly what you did and what you could not do."
)


class AgentConfig(BaseModel):
    """What a tool may know about the agent it runs for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent_id: str = Field(default="default", min_length=1, max_length=64)
    """Name of the agent."""
    model: str = Field(default="", max_length=200)
    """Name of the model; empty = the tree's."""
    prompt: str = DEFAULT_PROMPT
    """The first part of the system prompt."""
    system_tier: SystemAnswer = "allow"
    """What happens to System calls: run, need approval, or are refused."""
    max_result_chars: int = Field(default=40_000, ge=200)
    """Longest text of one tool result a model gets."""


class AgentSpec(BaseModel):
    """An agent as given to a tree: its configuration and which tools it may hold at most."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: AgentConfig = AgentConfig()
    tools: tuple[str, ...] | None = None
    """Names of the tools its sessions may hold; None = all that its kind allows."""
