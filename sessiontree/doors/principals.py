"""Principals: who comes in by a door, and what a tree of theirs may do at most.

A principal acts for itself and never for the owner. Its bounds become the policy and the budget of each of
its trees, so that they hold where rights are built, and no protocol has a rule of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from sessiontree.channels.program_channels import QueueChannel
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier, TierLabel
from sessiontree.contracts.recorded.senders import Sender
from sessiontree.contracts.settings.settings import Budget, StrictSettings
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.doors.client_tools import allow_hosted
from sessiontree.policy.settings import PolicyConfig

DoorName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
DEFAULT_AGENT = "default"
"""What a client calls the agent of Main if the owner's configuration names no other."""


def name_tier_group(label: str) -> str:
    """Return the group of messages whose turns make calls up to this tier, below that of the rights."""
    return f"tier:{label}"


class DoorRights(StrictSettings):
    """What a principal may do: bounds of each tree that it opens by a door."""

    tier: TierLabel = "ReadOnly"
    """The highest tier of a call."""
    budget_usd: float | None = Field(default=None, gt=0)
    """Most that all its trees may spend together, in US dollars; None = each what the owner's configuration
    says. It is looked at when a turn begins: turns that go on together may each spend what was left then."""
    workspace: str = Field(min_length=1)
    """Directory of its trees; absolute."""
    agents: tuple[DoorName, ...] = ()
    """Agents that it may talk to; empty = those that the owner's configuration has."""
    tools: tuple[DoorName, ...] | None = None
    """Tools that its trees hold at most; None = those that the policy allows."""
    approves: bool = False
    """Whether it answers the requests and questions of its own trees, as their owner."""
    per_minute: int = Field(default=60, ge=1, le=100_000)
    """Requests that begin in one minute."""
    max_open: int = Field(default=64, ge=1, le=10_000)
    """Requests that are open at once."""


@dataclass(frozen=True, slots=True)
class DoorPrincipal:
    """Who comes in by a door."""

    principal_id: str
    """Names it in journals: ``token:`` and the token's id, or the name of a local door, such as ``acp``."""
    name: str
    """Says for people who it is."""
    rights: DoorRights

    @property
    def purpose(self) -> str:
        """The purpose of its trees: who they belong to is in their journals."""
        return f"door:{self.principal_id}"

    @property
    def passing_purpose(self) -> str:
        """The purpose of its trees of which nothing is to be kept."""
        return f"{self.purpose}:passing"

    @property
    def sender(self) -> Sender:
        """The sender of its messages, and of its answers."""
        return Sender(self.principal_id, name=self.name, channel="door")

    def check_agent(self, agent: str) -> None:
        """Refuse an agent that it may not talk to.

        Raises:
            ConfigError: it is not one of its agents.
        """
        if self.rights.agents and agent not in self.rights.agents:
            raise ConfigError(f"{self.name} may talk to {', '.join(self.rights.agents)}, not to {agent!r}")

    def channel(self) -> QueueChannel:
        """Return the channel of a tree's Main: it lists the principal as owner if it may answer requests."""
        return QueueChannel(owners=(self.principal_id,) if self.rights.approves else ())

    def limit(
        self, options: Mapping[str, Any], client_tools: Sequence[str] = (), *, budget_usd: float | None = None
    ) -> dict[str, Any]:
        """Return the arguments of a tree within what the principal may do.

        Args:
            options: The arguments before.
            client_tools: Names of tools that the client hosts: no allow list leaves them out.
            budget_usd: Most that the tree may spend, in US dollars; None = as the arguments say.
        """
        rights = self.rights
        policy = allow_hosted(options.get("policy") or PolicyConfig(), client_tools)
        allowed = PermissionTier.from_label(rights.tier)
        before = PermissionTier.from_label(policy.max_tier or rights.tier)
        lower = {name_tier_group(tier.label): tier.label for tier in PermissionTier if tier < allowed}
        changes: dict[str, Any] = {
            "max_tier": min(allowed, before).label,
            "max_tier_by_group": {**policy.max_tier_by_group, **lower},
        }
        if rights.tools is not None:
            changes["max_tools"] = (*rights.tools, *client_tools)
        budget = options.get("budget") or Budget()
        if budget_usd is not None:
            most = budget_usd if budget.cost_usd is None else min(budget_usd, budget.cost_usd)
            budget = budget.model_copy(update={"cost_usd": most})
        return {
            **options,
            "policy": policy.model_copy(update=changes),
            "budget": budget,
            "purpose": self.purpose,
            "channel": self.channel(),
        }


class Spending:
    """What the trees of one principal have cost, in US dollars; journals say it, this sums it up.

    Args:
        by_tree: What each tree had cost when it was read.
    """

    def __init__(self, by_tree: Mapping[str, float]) -> None:
        self._by_tree = dict(by_tree)
        self._total = sum(self._by_tree.values())

    def note(self, tree_id: str, cost_usd: float) -> None:
        """Take in what a tree has cost by now."""
        self._total += cost_usd - self._by_tree.get(tree_id, 0.0)
        self._by_tree[tree_id] = cost_usd

    def left(self, principal: DoorPrincipal) -> float | None:
        """Return what the principal may still spend; None = its budget has no end."""
        budget = principal.rights.budget_usd
        return None if budget is None else budget - self._total
