"""What the commands that open a door give it: conversations with the agents of the owner's configuration.

Rights that options name are here too: those of tokens, and of the one program that a command serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sessiontree import AgentSpec, Configuration
from sessiontree.api.agents.model_choice import resolve_models
from sessiontree.api.runtime.runtime import Runtime
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.channels.port import HumanChannel
from sessiontree.cli.configured_tree import build_tree_options, load_configuration
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import TierLabel
from sessiontree.contracts.settings.settings import suggest_nearest
from sessiontree.doors.conversations import Conversations
from sessiontree.doors.principals import DEFAULT_AGENT, DoorPrincipal, DoorRights
from sessiontree.models.port import get_model_name

TIERS: Final[dict[str, TierLabel]] = {
    "read-only": "ReadOnly",
    "workspace": "Workspace",
    "system": "System",
    "elevated": "Elevated",
}
"""What ``--tier`` takes."""


def parse_rights(
    tier: str,
    workspace: Path,
    *,
    budget_usd: float | None,
    agents: Sequence[str] | None,
    tools: Sequence[str] | None,
    approve: bool,
) -> DoorRights:
    """Return the rights that the options of a command name.

    Raises:
        ConfigError: the tier is unknown, or the workspace is not a directory.
    """
    if tier not in TIERS:
        raise ConfigError(f"--tier {tier!r} is not one of {', '.join(TIERS)}{suggest_nearest(tier, TIERS)}")
    place = workspace.expanduser().resolve()
    if not place.is_dir():
        raise ConfigError(f"--workspace {str(workspace)!r} is not a directory")
    return DoorRights(
        tier=TIERS[tier],
        budget_usd=budget_usd,
        workspace=str(place),
        agents=tuple(agents or ()),
        tools=None if not tools else tuple(tools),
        approves=approve,
    )


def make_conversations(
    state_dir: Path,
    config: Path | None,
    backend: BackendName,
    *,
    model: str | None = None,
    tree_id: str | None = None,
    channel_for: Callable[[DoorPrincipal], HumanChannel] = DoorPrincipal.channel,
) -> Conversations:
    """Return the conversations of a door; the configuration is read again for each of their trees.

    Args:
        state_dir: Where their journals are.
        config: File of the owner's configuration; None = the default one.
        backend: What runs their trees.
        model: The model that an option names; None = what the configuration says.
        tree_id: A tree whose journal is meant; None = one that no other process has open.
        channel_for: Returns the channel of a tree's Main.
    """

    def load_options(workspace: str, agent: str | None) -> dict[str, Any]:
        configured = load_configuration(config, Path(workspace))
        return build_tree_options(configured, model=model, agent=agent, approve=None, has_person=True)

    return Conversations(
        lambda: Runtime(state_dir, backend=backend, tree_id=tree_id), load_options, channel_for
    )


def list_agents(state_dir: Path, config: Path | None) -> tuple[str, ...]:
    """Return the names of the agents that clients may ask for.

    Raises:
        ConfigError: the configuration can't be used.
    """
    return tuple(dict.fromkeys((DEFAULT_AGENT, *load_configuration(config, state_dir).agents)))


def list_models(configured: Configuration, model: str | None, agent: str) -> list[Any]:
    """Return what may answer in an editor's sessions, first what does where nobody chooses.

    These are the tree's own model and those that the configuration names. An agent that names its own model
    has that alone. A model that can't be made, because its key is missing, say, is left out.

    Args:
        configured: The owner's configuration.
        model: The model that an option names.
        agent: Main's agent.

    Raises:
        ConfigError: the configuration can't be used.
    """
    from sessiontree.doors.acp.options import ModelChoice

    def build_choice(name: str, options: dict[str, Any]) -> ModelChoice:
        spec = options["agents"].get(agent) or AgentSpec()
        made = resolve_models(options["model"], options["models"], {agent: spec})[agent]
        size = spec.config.context_tokens or getattr(made, "context_tokens", None)
        return ModelChoice(name, get_model_name(made), options["model"], size)

    options = build_tree_options(configured, model=model, agent=agent, approve=None, has_person=True)
    usual = model or ", ".join(configured.model)
    found = [build_choice(usual, options)]
    spec = options["agents"].get(agent)
    if spec is None or not spec.config.model:
        for name in configured.models:
            if name != usual:
                with suppress(ConfigError):
                    found.append(build_choice(name, {**options, "model": configured.find_model(name)}))
    return found
