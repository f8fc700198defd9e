"""Damage to arguments: always a change, never to the tool, the same for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.bench.suites.damage import KINDS, Damage, DamagePlan, is_named, make_damage, plan_damage

SCHEMA = {
    "type": "object",
    "properties": {
        "file_name": {"type": "string"},
        "account": {"type": "string"},
        "lines": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "cabin": {"type": "string", "enum": ["economy", "business"]},
        "reply_to": {"type": "integer"},
    },
    "required": ["file_name"],
    "additionalProperties": False,
}
EVERYTHING = {
    "file_name": "report.txt",
    "account": "1042",
    "lines": 3,
    "ratio": 0.5,
    "deep": True,
    "tags": ["a", "b"],
    "cabin": "economy",
}
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "file_name": st.text(max_size=8),
    "account": st.integers(0, 10**6).map(str),
    "lines": st.integers(-(10**6), 10**6),
    "ratio": st.floats(-1e6, 1e6),
    "deep": st.booleans(),
    "tags": st.lists(st.text(max_size=4), max_size=3),
    "cabin": st.sampled_from(["economy", "business"]),
}
ARGUMENTS = st.fixed_dictionaries({}, optional=dict(VALUES))
Damaging = Callable[[str, Mapping[str, Any], Mapping[str, Any], random.Random], Damage | None]


def check_change(damaging: Damaging, kind: str, arguments: Mapping[str, Any], seed: int) -> None:
    """Check one damage: another text, the same for the same seed, with something that an error can name."""
    before = json.dumps(arguments)
    first = damaging(kind, arguments, SCHEMA, random.Random(seed))
    assert json.dumps(arguments) == before, "the undamaged arguments were changed"
    assert first == damaging(kind, arguments, SCHEMA, random.Random(seed)), "one seed did two things"
    if first is not None:
        assert first.text != before, "nothing was damaged"
        assert first.kind == kind
        assert all(first.names)
        assert first.names


@given(st.sampled_from(sorted(KINDS)), ARGUMENTS, st.integers(0, 2**32))
def test_damage_changes_the_arguments(kind: str, arguments: Mapping[str, Any], seed: int) -> None:
    """Whatever the call, a kind of damage changes its text, or says that it has nothing to damage."""
    check_change(make_damage, kind, arguments, seed)


def unchanged(kind: str, given: Mapping[str, Any], schema: Mapping[str, Any], pick: random.Random) -> Damage:
    """Damage nothing."""
    return Damage(kind, json.dumps(given), ("file_name",))


def unseeded(kind: str, given: Mapping[str, Any], schema: Mapping[str, Any], pick: random.Random) -> Damage:
    """Ignore the seed."""
    return Damage(kind, str(random.SystemRandom().random()), ("file_name",))


@pytest.mark.parametrize("broken", [unchanged, unseeded])
def test_planted_bug_is_found(broken: Damaging) -> None:
    """Damage that changes nothing, or that differs from run to run."""
    with pytest.raises(AssertionError):
        check_change(broken, "missing_required", EVERYTHING, 7)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_damages_a_call_that_has_everything(kind: str) -> None:
    """No kind is dead: with an argument of each type, each of them finds something."""
    found = [make_damage(kind, EVERYTHING, SCHEMA, random.Random(seed)) for seed in range(20)]
    assert any(found)


@pytest.mark.parametrize("kind", ["number_as_text", "list_as_text", "wrong_enum_case", "missing_required"])
def test_kind_that_does_not_fit_damages_nothing(kind: str) -> None:
    """A call without arguments has no number, list, choice or required argument."""
    assert make_damage(kind, {}, SCHEMA, random.Random(0)) is None


@given(ARGUMENTS, st.integers(0, 2**32), st.floats(0, 1))
def test_plan_damages_each_attempt_differently(
    arguments: Mapping[str, Any], seed: int, persistence: float
) -> None:
    """Identical bad arguments would end the attempts early, so no two attempts send the same text."""
    plan = plan_damage(arguments, SCHEMA, random.Random(seed), persistence=persistence)
    assert plan is not None
    texts = [each.text for each in plan.ways]
    assert len(set(texts)) == len(texts) == 3
    assert 0 <= plan.persists < 3


def test_named_damage_is_repaired_and_another_is_not() -> None:
    """The script sends the undamaged arguments only after an error that names what was wrong."""
    plan = DamagePlan(
        (Damage("a", "1", ("file_name",)), Damage("b", "2", ("lines",)), Damage("c", "3", ("deep",))), 0
    )
    assert plan.choose_text(0, None) == "1"
    assert plan.choose_text(1, {"field": "/file_name", "error": "is missing"}) is None
    assert plan.choose_text(1, {"field": "", "error": "something is wrong"}) == "2"
    assert plan.choose_text(2, {"field": "", "error": "lines must be a number"}) is None


def test_persistence_keeps_a_named_damage() -> None:
    """A plan that persists once stays damaged at the second attempt, whatever the error says."""
    plan = DamagePlan((Damage("a", "1", ("x",)), Damage("b", "2", ("y",)), Damage("c", "3", ("z",))), 1)
    assert plan.choose_text(1, {"error": "x is wrong"}) == "2"
    assert plan.choose_text(2, {"error": "y is wrong"}) is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"field": "/lines", "error": "must be an integer"}, True),
        ({"field": None, "error": "unknown argument 'lines'"}, True),
        ({"field": "/deadlines", "error": "must be an integer"}, False),
        ({}, False),
    ],
)
def test_name_counts_as_a_whole_word(error: Mapping[str, Any], expected: bool) -> None:
    """In the field or in the text; part of another name is not enough."""
    assert is_named(Damage("kind", "text", ("lines",)), error) is expected
