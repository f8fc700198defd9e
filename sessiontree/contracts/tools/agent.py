"""Agents: named settings that sessions run with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from sessiontree.contracts.handles.jobs import YIELD_S
from sessiontree.contracts.handles.ports import COMMAND_CLEANUP_S, COMMAND_TIMEOUT_S, MAX_COMMAND_TIMEOUT_S
from sessiontree.contracts.kinds import ExecSecurity, SystemAnswer, WorkspaceAccess, WorkspaceChoice
from sessiontree.contracts.settings.model_settings import NO_SETTINGS, ModelPrice, ModelSettings
from sessiontree.contracts.settings.sandbox_spec import SandboxSpec
from sessiontree.contracts.settings.settings import ImageLimits, StrictSettings

DEFAULT_PROMPT = (
    "You are one session in a tree of sessions. Work with the tools you are given, "
    "say plainly what you did and what you could not do."
)

CHARS_PER_TOKEN: Final = 4
RESULT_SHARE: Final = 0.3
"""Largest share of a model's context that one tool result may use."""
LEAST_RESULT_CHARS: Final = 2_000
"""Lower bound of that share, in characters."""
MAX_RESULT_CHARS: Final = 400_000


def compute_result_share(context_tokens: int) -> int:
    """Return the maximum length of one tool result, in characters, for a context of ``context_tokens``."""
    share = int(context_tokens * CHARS_PER_TOKEN * RESULT_SHARE)
    return max(LEAST_RESULT_CHARS, min(MAX_RESULT_CHARS, share))


class AgentConfig(StrictSettings):
    """What a tool may know about the agent it runs for."""

    agent_id: str = Field(default="default", min_length=1, max_length=64)
    """Name of the agent."""
    model: str = Field(default="", max_length=200)
    """Name of the model; empty = the tree's."""
    compaction_model: str = Field(default="", max_length=200)
    """Name of the model that writes the summaries of long conversations; empty = the session's model, which
    is also asked if this one fails."""
    image_model: str = Field(default="", max_length=200)
    """Name of the model that the tool ``image`` asks about images; empty = the session's model sees them."""
    settings: ModelSettings = NO_SETTINGS
    """Model settings of its sessions, unless the session or a message sets others."""
    prompt: str = DEFAULT_PROMPT
    """The first part of the system prompt."""
    system_tier: SystemAnswer = "allow"
    """What happens to System calls: run, need approval, or are refused."""
    exec_security: ExecSecurity = "full"
    """Which commands its sessions may run: any in the sandbox, or only programs known to be harmless."""
    exec_timeout_s: float = Field(default=COMMAND_TIMEOUT_S, gt=0, le=MAX_COMMAND_TIMEOUT_S)
    """Default time limit of a command, in seconds; the model may ask for another."""
    exec_yield_s: float = Field(default=YIELD_S, ge=0, le=MAX_COMMAND_TIMEOUT_S)
    """Time after which a command goes on in the background, in seconds; the model may ask for another."""
    exec_max_timeout_s: float = Field(default=MAX_COMMAND_TIMEOUT_S, gt=0, le=MAX_COMMAND_TIMEOUT_S)
    """The longest time limit of a command that the model gets, in seconds."""
    exec_hosts: frozenset[Literal["host", "node"]] = frozenset()
    """Where its sessions may run commands without confinement, each time after an approval: ``host`` = as the
    user of the runtime, on the session's machine; ``node`` = as Ray's user, on a node of its cluster."""
    outside_roots: tuple[str, ...] = ()
    """Absolute paths of directories outside the workspace that its sessions' file tools may reach, each call
    after an approval. Commands, and links in the workspace, do not reach them. One that is missing where the
    session runs is closed, as any other outside path is."""
    exec_cleanup_s: float = Field(default=COMMAND_CLEANUP_S, ge=0, le=60)
    """Seconds between asking a command to end and killing it."""
    tool_timeouts: Mapping[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Time limit of one call in seconds, by tool name. It overrides the tool's own ``timeout_s`` and the
    tree's ``tool_timeout_s``."""
    workspace_access: WorkspaceAccess = "rw"
    """What its sessions and their commands may do to the workspace; with ``ro`` they get no writer."""
    tools_offered: Literal["all", "program"] = "all"
    """Which tools the model of its sessions is offered: all that the session holds, or only ``program``,
    whose programs may call the others, and ``tool_search``, which finds them. It changes no right. A session
    that does not hold both is offered all."""
    workspace: WorkspaceChoice = "shared"
    """Where its Branches work unless their spawn says so: with their parent, or in a copy of their own."""
    sandbox: SandboxSpec | None = None
    """The container in which its sessions run their commands; None = the tree's, or this machine's
    confinement."""
    context_tokens: int | None = Field(default=None, ge=1)
    """Size of the model's context; None = not known."""
    model_price: ModelPrice | Literal["unknown"] | None = None
    """Highest price of the model's tokens; ``unknown`` = its provider charges an unknown price. None = the
    tree asks the model; the price of a model that names none is what its replies report."""
    compaction_price: ModelPrice | Literal["unknown"] | None = None
    """Highest price of the compaction model's tokens, in the same form."""
    image_price: ModelPrice | Literal["unknown"] | None = None
    """Highest price of the image model's tokens, in the same form."""
    max_result_chars: int = Field(default=40_000, ge=200, le=MAX_RESULT_CHARS)
    """Maximum characters of one tool result that a model gets. It is never more than 30 % of
    ``context_tokens`` at 4 characters per token, and never less than 2,000. By default it is that share."""
    images: ImageLimits | None = ImageLimits()
    """Size limits of images in tool results; None = the model reads only text. The images of one result take
    at most 30 % of ``context_tokens`` at 750 pixels per token, those of a conversation half of it: older ones
    go first. A line of text replaces each omitted image."""

    @field_validator("outside_roots")
    @classmethod
    def _are_absolute(cls, roots: tuple[str, ...]) -> tuple[str, ...]:
        for root in roots:
            if not root.startswith("/") or "\0" in root or ".." in root.split("/"):
                raise ValueError(f"{root!r} must be an absolute path without '..'")
        return roots

    @model_validator(mode="after")
    def _may_run_there(self) -> Self:
        if self.sandbox is not None and self.exec_security != "full":
            raise ValueError(
                f"sandbox and exec_security={self.exec_security!r} exclude each other: programs of a "
                "container are not known to be harmless"
            )
        if self.exec_hosts and (self.exec_security != "full" or self.workspace_access == "ro"):
            raise ValueError(
                "exec_hosts needs exec_security='full' and workspace_access='rw': nothing bounds a command "
                "that is not confined"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _share_context(cls, given: Any) -> Any:
        """Limit a result to its share of the context; invalid values are left to the field validators."""
        if isinstance(given, dict) and isinstance(tokens := given.get("context_tokens"), int) and tokens > 0:
            share = compute_result_share(tokens)
            chars = given.get("max_result_chars", share)
            return {**given, "max_result_chars": min(chars, share) if isinstance(chars, int) else chars}
        return given
