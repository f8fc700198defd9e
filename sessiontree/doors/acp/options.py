"""What a person may choose for a session in the editor: the highest tier of a call, within its rights."""

from __future__ import annotations

from typing import Final

from acp.schema import SessionConfigOptionSelect, SessionConfigSelectOption, SessionMode, SessionModeState

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier

TIER: Final = "tier"
"""Id of the option."""
_MEANS: Final = {
    "ReadOnly": "Nothing is changed.",
    "Workspace": "Files of the workspace may be changed.",
    "System": "Commands, messages and requests, too.",
    "Elevated": "Everything; what can't be undone needs your approval.",
}


def tiers_up_to(most: str) -> list[str]:
    """Return the labels of the tiers that may be chosen, lowest first."""
    return [tier.label for tier in PermissionTier if tier <= PermissionTier.from_label(most)]


def check_tier(chosen: object, most: str) -> str:
    """Return a chosen tier.

    Raises:
        ConfigError: it is unknown, or above ``most``.
    """
    if not isinstance(chosen, str) or chosen not in tiers_up_to(most):
        raise ConfigError(f"a tier of this session is one of {', '.join(tiers_up_to(most))}")
    return chosen


def options_at(tier: str, most: str) -> list[SessionConfigOptionSelect]:
    """Return the options of a session whose tier is ``tier`` now."""
    choices = [
        SessionConfigSelectOption(value=label, name=label, description=_MEANS[label])
        for label in tiers_up_to(most)
    ]
    return [
        SessionConfigOptionSelect(
            type="select",
            id=TIER,
            name="Tier",
            description="The highest tier of a call.",
            category="mode",
            current_value=tier,
            options=choices,
        )
    ]


def modes_at(tier: str, most: str) -> SessionModeState:
    """Return the same as modes, for editors that know no options."""
    modes = [SessionMode(id=label, name=label, description=_MEANS[label]) for label in tiers_up_to(most)]
    return SessionModeState(current_mode_id=tier, available_modes=modes)
