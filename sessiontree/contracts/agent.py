"""Agents: named settings that sessions run with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field, model_validator

from sessiontree.contracts.images import ImageLimits
from sessiontree.contracts.ports import COMMAND_CLEANUP_S, COMMAND_TIMEOUT_S, MAX_COMMAND_TIMEOUT_S
from sessiontree.contracts.settings import StrictSettings
from sessiontree.contracts.tiers import ExecSecurity, SystemAnswer, WorkspaceAccess

DEFAULT_PROMPT = (
    "You are one session in a tree of sessions. Work with the tools you are given, "
    "say plainly what you did and what you could not do."
)

CHARS_PER_TOKEN: Final = 4
RESULT_SHARE: Final = 0.3
"""Most of a model's context that one tool result may take."""
LEAST_RESULT_CHARS: Final = 2_000
"""A share is never less than this."""
MOST_RESULT_CHARS: Final = 400_000


def result_share(context_tokens: int) -> int:
    """Return how many characters of one tool result fit a context of so many tokens."""
    share = int(context_tokens * CHARS_PER_TOKEN * RESULT_SHARE)
    return max(LEAST_RESULT_CHARS, min(MOST_RESULT_CHARS, share))


class AgentConfig(StrictSettings):
    """What a tool may know about the agent it runs for."""

    agent_id: str = Field(default="default", min_length=1, max_length=64)
    """Name of the agent."""
    model: str = Field(default="", max_length=200)
    """Name of the model; empty = the tree's."""
    prompt: str = DEFAULT_PROMPT
    """The first part of the system prompt."""
    system_tier: SystemAnswer = "allow"
    """What happens to System calls: run, need approval, or are refused."""
    exec_security: ExecSecurity = "full"
    """Which commands its sessions may run: any in the sandbox, or known harmless programs alone."""
    exec_timeout_s: float = Field(default=COMMAND_TIMEOUT_S, gt=0, le=MAX_COMMAND_TIMEOUT_S)
    """Longest run of a command, in seconds, where the model asks for no other."""
    exec_cleanup_s: float = Field(default=COMMAND_CLEANUP_S, ge=0, le=60)
    """How long a command that was asked to end may take, in seconds, before it is killed."""
    tool_timeouts: Mapping[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Longest run of one call of a tool, in seconds, by the tool's name. It goes before the tool's own
    ``timeout_s`` and the tree's ``tool_timeout_s``."""
    workspace_access: WorkspaceAccess = "rw"
    """What its sessions and their commands may do to the workspace; with ``ro`` they hold no writer."""
    context_tokens: int | None = Field(default=None, ge=1)
    """Size of the model's context; None = not known."""
    max_result_chars: int = Field(default=40_000, ge=200, le=MOST_RESULT_CHARS)
    """Longest text of one tool result a model gets; never more than 30 % of ``context_tokens``, at 4
    characters a token, but 2,000 always fit. Left out, it is that share."""
    images: ImageLimits | None = ImageLimits()
    """How large images in tool results may be; None = the model reads text alone, a line tells of each image
    that was left out. Images of one result take no more than 30 % of ``context_tokens``, at 750 pixels a
    token; a line tells of those that were left out."""

    @model_validator(mode="before")
    @classmethod
    def _share_context(cls, given: Any) -> Any:
        """Bound a result by its share of the context; leave what is wrong to the fields' own checks."""
        if isinstance(given, dict) and isinstance(tokens := given.get("context_tokens"), int) and tokens > 0:
            share = result_share(tokens)
            chars = given.get("max_result_chars", share)
            return {**given, "max_result_chars": min(chars, share) if isinstance(chars, int) else chars}
        return given


class AgentSpec(StrictSettings):
    """An agent as given to a tree: its configuration and which tools it may hold at most."""

    config: AgentConfig = AgentConfig()
    tools: tuple[str, ...] | None = None
    """Names of the tools its sessions may hold; None = all that its kind allows."""
