"""The right to run a saved program, for the sessions of a tree whose owner named it."""

from __future__ import annotations

import warnings
from typing import Any

from sessiontree.api.agents.agents import AgentSpec
from sessiontree.policy.compiled import PolicyWarning
from sessiontree.policy.settings import PolicyConfig


def grant_program(options: dict[str, Any], name: str) -> None:
    """Let the sessions of a new tree hold a saved program that its owner named.

    What the owner denies stays denied, and the tools that the program calls are judged as ever.

    Args:
        options: The arguments of the tree; changed.
        name: The program.
    """
    policy: PolicyConfig = options.get("policy") or PolicyConfig()
    lists = policy.tools
    if lists.profile is None and not lists.also_allow:  # the owner did not write this list
        warnings.filterwarnings("ignore", r"tools\.alsoAllow adds to a profile's list", PolicyWarning)
    update: dict[str, Any] = {"also_allow": (*(lists.also_allow or ()), name)}
    if lists.allow is not None:
        update["allow"] = (*lists.allow, name)
    options["policy"] = policy.model_copy(update={"tools": lists.model_copy(update=update)})
    agents: dict[str, AgentSpec] = options.get("agents") or {}
    options["agents"] = {
        agent: spec if spec.tools is None else spec.model_copy(update={"tools": (*spec.tools, name)})
        for agent, spec in agents.items()
    }
