"""Where the hosts of a kind of session run on a cluster: the resources and labels that their node must have.

Not here: which nodes have them, and whether they see the workspace (``backends/ray``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import Field, field_validator

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.settings.settings import StrictSettings, suggest_nearest

_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"(?:(?=[^/]{{1,253}}/){_NAME}(?:\.{_NAME})*/)?{_NAME}")
_CONDITION: Final = re.compile(rf"!?(?:in\({_NAME}(?:, ?{_NAME})*\)|{_NAME})")
_BUILT_IN: Final = ("CPU", "GPU", "memory", "object_store_memory")
"""Resources that every node of Ray has; they are not given by name."""
NODE_LABEL: Final = "ray.io/node-id"
"""The label that Ray itself gives every node."""
LEAST: Final = 0.0001
"""The smallest amount of a resource that Ray can reserve."""
_Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Placement(StrictSettings):
    """What a node must offer for the hosts of one kind of session; each host reserves it on its node."""

    num_cpus: float = Field(default=0, ge=0, allow_inf_nan=False)
    """CPUs that a host reserves; more than one only as a whole number."""
    resources: Mapping[str, _Amount] = Field(default_factory=dict)
    """Amounts of the cluster's own resources that a host reserves, by name."""
    label: Mapping[str, str] = Field(default_factory=dict)
    """Conditions on the labels of the node: a value, ``!value``, ``in(a, b)`` or ``!in(a, b)``."""

    @field_validator("num_cpus")
    @classmethod
    def _check_countable(cls, given: float) -> float:
        return _check_reservable(given)

    @field_validator("resources")
    @classmethod
    def _check_custom(cls, given: Mapping[str, float]) -> Mapping[str, float]:
        for name, amount in given.items():
            if name in _BUILT_IN or not name.strip():
                raise ValueError(f"{name!r} is not one of the cluster's own resources; CPUs are num_cpus")
            _check_reservable(amount)
        return dict(given)

    @field_validator("label")
    @classmethod
    def _check_well_formed(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        for key, condition in given.items():
            if not _KEY.fullmatch(key):
                raise ValueError(f"{key!r} is not a label's key; give a name such as 'zone' or 'team/zone'")
            if not _CONDITION.fullmatch(condition):
                raise ValueError(
                    f"label {key!r}: {condition!r} is not a condition; "
                    "give 'value', '!value', 'in(a, b)' or '!in(a, b)'"
                )
        return dict(given)

    def fits(self, labels: Mapping[str, str], resources: Mapping[str, float]) -> bool:
        """Whether a node with these labels and total resources can ever run such a host."""
        wanted = {"CPU": self.num_cpus, **self.resources}
        has_room = all(resources.get(name, 0.0) >= amount for name, amount in wanted.items())
        return has_room and all(_is_met(condition, labels.get(key)) for key, condition in self.label.items())

    def __str__(self) -> str:
        """Return what is asked of a node, for errors."""
        words = [f"label {key}={condition}" for key, condition in self.label.items()]
        words += [f"{amount:g} {name}" for name, amount in self.resources.items()]
        words += [f"num_cpus={self.num_cpus:g}"] if self.num_cpus else []
        return ", ".join(words) or "nothing in particular"


def _check_reservable(amount: float) -> float:
    if 0 < amount < LEAST:
        raise ValueError(f"{amount:g} is less than {LEAST:g}, the smallest amount that can be reserved")
    if amount > 1 and amount != int(amount):
        raise ValueError(f"{amount:g} is not a whole number; only amounts up to 1 may be fractions")
    return amount


def _is_met(condition: str, value: str | None) -> bool:
    is_negated = condition.startswith("!")
    plain = condition.removeprefix("!")
    values = re.split(", ?", plain[3:-1]) if plain.startswith("in(") else [plain]
    return (value in values) != is_negated


class Placements(StrictSettings):
    """The placement of each kind of session that may run on other nodes; None = the supervisor's node."""

    worker: Placement | None = None
    branch: Placement | None = None

    @classmethod
    def from_given(cls, given: Mapping[str, Any] | None) -> Self | None:
        """Return what a program gave; None = nothing is placed.

        Raises:
            ConfigError: a kind or member is unknown, or a value is wrong; names it.
        """
        if given is None:
            return None
        members: dict[str, Any] = {str(kind): value for kind, value in given.items()}
        kinds = sorted(cls.model_fields)
        for kind in members:
            if kind == SessionKind.MAIN:
                raise ConfigError(
                    "placement can't move 'main': Main stays on the node of the state directory; "
                    "place 'worker' and 'branch'"
                )
            if kind not in kinds:
                raise ConfigError(
                    f"placement names {kind!r}, which is not a kind that can be placed"
                    f"{suggest_nearest(kind, kinds) or '; place ' + ' and '.join(map(repr, kinds))}"
                )
        found = cls(**members)
        return found if found.group_by_kind() else None

    def group_by_kind(self) -> dict[SessionKind, Placement]:
        """Return the placement of each kind that has one."""
        kinds = {SessionKind.WORKER: self.worker, SessionKind.BRANCH: self.branch}
        return {kind: placement for kind, placement in kinds.items() if placement is not None}
