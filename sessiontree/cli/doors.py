"""What the commands that open a door give it: conversations with the agents of the owner's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sessiontree.api.runtime import Runtime
from sessiontree.api.runtime_options import BackendName
from sessiontree.cli.configured_tree import load_configuration, tree_options
from sessiontree.doors.conversations import Conversations
from sessiontree.doors.principals import DEFAULT_AGENT


def make_conversations(state_dir: Path, config: Path | None, backend: BackendName) -> Conversations:
    """Return the conversations of a door; the configuration is read again for each of their trees.

    Args:
        state_dir: Where their journals are.
        config: File of the owner's configuration; None = the default one.
        backend: What runs their trees.
    """

    def options_for(workspace: str, agent: str | None) -> dict[str, Any]:
        configured = load_configuration(config, Path(workspace))
        return tree_options(configured, model=None, agent=agent, approve=None, has_person=True)

    return Conversations(lambda: Runtime(state_dir, backend=backend), options_for)


def list_agents(state_dir: Path, config: Path | None) -> tuple[str, ...]:
    """Return the names of the agents that clients may ask for.

    Raises:
        ConfigError: the configuration can't be used.
    """
    return tuple(dict.fromkeys((DEFAULT_AGENT, *load_configuration(config, state_dir).agents)))
