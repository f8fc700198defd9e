"""What a person may choose for a session in the editor: its model, and the highest tier of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acp.schema import SessionConfigOptionSelect, SessionConfigSelectOption, SessionMode, SessionModeState

from sessiontree.api.agents.model_choice import ModelLike
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.values.quick_dataclass import dataclass

TIER: Final = "tier"
"""Id of the option of the tier."""
MODEL: Final = "model"
"""Id of the option of the model."""
_MEANS: Final = {
    "ReadOnly": "Nothing is changed.",
    "Workspace": "Files of the workspace may be changed.",
    "System": "Commands, messages and requests, too.",
    "Elevated": "Everything; what can't be undone needs your approval.",
}


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that answers in a session."""

    name: str
    """What the owner calls it."""
    own_name: str
    """What journals call it."""
    model: ModelLike
    context_tokens: int | None = None
    """Size of its context; None = not known."""


def check_model(chosen: object, models: Sequence[ModelChoice]) -> ModelChoice:
    """Return a chosen model.

    Raises:
        ConfigError: it is not in ``models``.
    """
    for each in models:
        if each.name == chosen:
            return each
    raise ConfigError(f"a model of this session is one of {', '.join(each.name for each in models)}")


def list_tiers(most: str) -> list[str]:
    """Return the labels of the tiers that may be chosen, lowest first."""
    return [tier.label for tier in PermissionTier if tier <= PermissionTier.from_label(most)]


def check_tier(chosen: object, most: str) -> str:
    """Return a chosen tier.

    Raises:
        ConfigError: it is unknown, or above ``most``.
    """
    if not isinstance(chosen, str) or chosen not in list_tiers(most):
        raise ConfigError(f"a tier of this session is one of {', '.join(list_tiers(most))}")
    return chosen


def list_options(tier: str, most: str, models: Sequence[ModelChoice]) -> list[SessionConfigOptionSelect]:
    """Return the options of a session, whose model is the first one; a model alone is no choice."""
    tiers = [
        SessionConfigSelectOption(value=label, name=label, description=_MEANS[label])
        for label in list_tiers(most)
    ]
    named = [
        SessionConfigSelectOption(value=each.name, name=each.name, description=each.own_name)
        for each in sorted(models, key=lambda each: each.name)
    ]
    chosen = SessionConfigOptionSelect(
        type="select",
        id=TIER,
        name="Tier",
        description="The highest tier of a call.",
        category="mode",
        current_value=tier,
        options=tiers,
    )
    answering = SessionConfigOptionSelect(
        type="select",
        id=MODEL,
        name="Model",
        description="What answers from the next turn on.",
        category="model",
        current_value=models[0].name,
        options=named,
    )
    return [chosen, answering] if len(models) > 1 else [chosen]


def make_modes(tier: str, most: str) -> SessionModeState:
    """Return the same as modes, for editors that know no options."""
    modes = [SessionMode(id=label, name=label, description=_MEANS[label]) for label in list_tiers(most)]
    return SessionModeState(current_mode_id=tier, available_modes=modes)
