"""A tree's policy: compiled into the first row of its journal, asked again whenever a session is taken up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.spec import SessionSpec
from sessiontree.contracts.tree_config import PolicyRow, RemovedTools, TreeConfig
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.policy.compiled import CompiledPolicy, SessionPolicy, compiled
from sessiontree.policy.settings import PolicyConfig
from sessiontree.policy.steps import Standing

OWNERS: Final = frozenset({SessionKind.MAIN})
"""Kinds whose turns may act for an owner, and no child inherits that; whoever else a turn acts for takes
tools away from it (``SessionPolicy.withheld_from``)."""


def policy_row(
    policy: PolicyConfig, group: str, table: ToolTable, models: Mapping[str, str]
) -> tuple[PolicyRow, tuple[str, ...]]:
    """Return the policy of a new tree for its journal, and what is probably not meant as it is written.

    Args:
        policy: The owner's lists.
        group: Group of Main's channel.
        table: The tree's tools.
        models: Agent to the name of its model.

    Raises:
        ConfigError: the policy is strict, and an entry stands for nothing.
    """
    judge = compiled(table.rows, policy)
    unknown = [agent for agent in policy.agents if agent not in models]
    strangers = tuple(f"agents.{agent}: the tree has no agent of that name" for agent in unknown)
    if policy.strict and strangers:
        raise ConfigError(f"the policy is strict, and {'; '.join(strangers)}")
    removed = []
    for agent, model in models.items():
        for kind in SessionKind:
            kept = judge.decide(standing_of(kind, agent, model, group)).kept
            gone = sorted(row.name for row in table.rows if kind in row.kinds and row.name not in kept)
            if gone:
                removed.append(RemovedTools(agent, kind, tuple(gone)))
    return PolicyRow(
        policy.model_dump(mode="json", exclude_defaults=True), group, tuple(removed)
    ), judge.warnings + strangers


def policy_in(config: TreeConfig) -> tuple[PolicyConfig, str]:
    """Return a journaled tree's policy and group; a slip in it is no error any more."""
    if config.policy is None:
        return PolicyConfig(), ""
    return PolicyConfig.model_validate({**config.policy.config, "strict": False}), config.policy.group


def session_policy(
    policy: CompiledPolicy, group: str, spec: SessionSpec, model: str, *, has_channel: bool
) -> SessionPolicy:
    """Return a tree's policy as one of its sessions meets it."""
    standing = standing_of(spec.kind, spec.agent, model, group, has_channel=has_channel)
    return SessionPolicy(policy, standing)


def standing_of(
    kind: SessionKind, agent: str, model: str, group: str, *, has_channel: bool = True
) -> Standing:
    """Return what decides about a session's tools."""
    return Standing(kind, kind in OWNERS, agent, model, group, has_channel)
