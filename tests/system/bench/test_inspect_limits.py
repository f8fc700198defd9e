"""The time of a sample: what a suite says at its end is what inspect says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.bench.inspect_fixtures import facts_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """What the program found, by case."""
    return facts_of("inspect_limits_program")


def test_samples_over_their_time_are_scored_as_by_inspect(facts: dict[str, Any]) -> None:
    """A tool had saved the answer before the time was over."""
    assert facts["late"]["alone"] == {str(at): ["time", {"stored": 1.0}] for at in (1, 2, 3)}
    assert facts["late"]["suite"] == facts["late"]["alone"]


def test_queue_of_a_limiter_costs_no_sample_its_time(facts: dict[str, Any]) -> None:
    """All wait longer than they may work. The last one takes too long by itself."""
    found = facts["queue"]["alone"]
    assert found.pop("6") == ["working", {"includes": "I"}]
    assert found == {str(at): [None, {"includes": "C"}] for at in range(1, 6)}
    assert facts["queue"]["suite"].pop("6") == ["working", {"includes": "I"}]
    assert facts["queue"]["suite"] == found


def test_neighbours_of_blocking_code_have_the_verdicts_they_have_alone(facts: dict[str, Any]) -> None:
    """The sample that blocks is late in both."""
    found = facts["neighbours"]["alone"]
    assert found["1"][0] == "working"
    assert set(found) == {"1", "2", "3", "4", "5", "6"}
    assert all(found[name] == [None, {"includes": "C"}] for name in "23456")
    assert facts["neighbours"]["suite"] == found
