"""Limits and budgets: the defaults promised, and what is no bound at all."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.settings import Budget, Limits

NUMBERS = ["max_children", "max_depth", "max_live", "max_total", "max_turns"]
SECONDS = [
    "tool_timeout_s",
    "approval_expiry_s",
    "approval_patience_s",
    "branch_ttl_s",
    "worker_ttl_s",
    "cancel_grace_s",
]


def test_defaults_are_those_promised() -> None:
    """A tree that says nothing has these bounds."""
    assert Limits().model_dump() == {
        "max_depth": 4,
        "max_children": 8,
        "max_live": 256,
        "max_total": 10_000,
        "max_turns": 50,
        "max_commands": 16,
        "max_open_approvals": 256,
        "max_repeats": 5,
        "model_retries": 2,
        "model_timeout_s": 600.0,
        "tool_timeout_s": 120.0,
        "approval_expiry_s": 900.0,
        "approval_patience_s": 30.0,
        "branch_ttl_s": 1_800.0,
        "worker_ttl_s": 300.0,
        "cancel_grace_s": 30.0,
    }


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("max_depth", 1),
        ("max_children", 0),
        ("max_live", 1),
        ("max_total", 1),
        ("max_turns", 1),
        ("approval_patience_s", 0.0),
        ("cancel_grace_s", 0.0),
    ],
)
def test_least_value_passes_and_less_is_refused(name: str, least: float) -> None:
    """The edge is where it is said to be."""
    assert getattr(Limits.model_validate({name: least}), name) == least
    with pytest.raises(ValidationError, match=name):
        Limits.model_validate({name: least - 1})


@pytest.mark.parametrize("name", ["tool_timeout_s", "approval_expiry_s", "branch_ttl_s", "worker_ttl_s"])
def test_no_time_at_all_is_no_bound(name: str) -> None:
    """A time-out of zero would end everything before it began."""
    for wrong in (0, -1):
        with pytest.raises(ValidationError, match=name):
            Limits.model_validate({name: wrong})
    assert getattr(Limits.model_validate({name: 0.001}), name) == 0.001


@pytest.mark.parametrize("name", ["approval_patience_s", "branch_ttl_s", "worker_ttl_s"])
def test_none_means_no_bound_where_there_may_be_none(name: str) -> None:
    """Patience and times to live may be endless."""
    assert getattr(Limits.model_validate({name: None}), name) is None


@pytest.mark.parametrize("name", [*NUMBERS, "tool_timeout_s", "approval_expiry_s", "cancel_grace_s"])
def test_none_is_refused_where_a_bound_must_be(name: str) -> None:
    """A tree without these bounds would not end."""
    with pytest.raises(ValidationError, match=name):
        Limits.model_validate({name: None})


@pytest.mark.parametrize("name", [*NUMBERS, *SECONDS])
def test_not_a_number_is_refused(name: str) -> None:
    """NaN compares with nothing and bounds nothing."""
    with pytest.raises(ValidationError, match=name):
        Limits.model_validate({name: float("nan")})


@pytest.mark.parametrize("value", [1.5, "many", [4]])
@pytest.mark.parametrize("name", NUMBERS)
def test_counts_are_whole_numbers(name: str, value: Any) -> None:
    """Half a child is not one."""
    with pytest.raises(ValidationError, match=name):
        Limits.model_validate({name: value})


def test_deepest_tree_is_sixty_four() -> None:
    """Paths stay short."""
    assert Limits(max_depth=64).max_depth == 64
    with pytest.raises(ConfigError, match="max_depth"):
        Limits(max_depth=65)


@pytest.mark.parametrize("name", ["tokens", "cost_usd", "tool_calls", "sessions"])
def test_budget_may_be_nothing_but_not_less(name: str) -> None:
    """Zero forbids; None leaves it to the parent."""
    assert getattr(Budget(), name) is None
    assert getattr(Budget.model_validate({name: 0}), name) == 0
    with pytest.raises(ValidationError, match=name):
        Budget.model_validate({name: -1})


def test_budget_of_no_time_is_refused() -> None:
    """A session with no time could not even say so."""
    with pytest.raises(ConfigError, match="wall_s"):
        Budget(wall_s=0)


@pytest.mark.parametrize("model", [Limits, Budget])
def test_misspelt_bound_is_refused(model: type[BaseModel]) -> None:
    """A bound nobody reads would be no bound."""
    with pytest.raises(ValidationError, match="max_childern"):
        model.model_validate({"max_childern": 3})


@pytest.mark.parametrize("value", [Limits(), Budget()])
def test_bounds_cannot_be_changed(value: BaseModel) -> None:
    """They are fixed for the life of a tree."""
    for name in type(value).model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(value, name, 1)
