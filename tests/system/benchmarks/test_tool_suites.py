"""Figures of suites of tool calls: shares by kind of damage, and what a failed sample is put down to."""

from __future__ import annotations

from typing import Any

from benchmarks.tool_suites import compared, repaired, verdicts


def score(name: str, value: float, *damage: tuple[str, str, bool], same: bool = True) -> dict[str, Any]:
    """Return a sample's score as the program prints it."""
    metadata = {"same_state": same, "damage": [list(each) for each in damage]}
    return {
        "id": name,
        "status": "completed",
        "error": None,
        "value": value,
        "explanation": "" if value else f"{name} differs",
        "metadata": metadata,
    }


def run_of(*scores: dict[str, Any], cpu_s: float = 1.0) -> dict[str, Any]:
    """Return what the program prints of a run."""
    return {"scores": list(scores), "cpu_s": cpu_s, "wall_s": cpu_s}


def test_shares_of_a_kind_sum_to_one() -> None:
    """Each damaged call has one outcome; ``within_3`` counts those that were carried out as intended."""
    damage = [
        ("null", "corrected", True),
        ("null", "attempt_2", True),
        ("null", "attempt_3", False),
        ("null", "given_up", True),
    ]
    found = repaired(run_of(score("a", 0.0, *damage)), run_of(score("a", 1.0)))
    assert found["calls"] == 4
    kinds: Any = found["kinds"]
    assert kinds["null"] == {
        "calls": 4,
        "corrected": 0.25,
        "attempt_2": 0.25,
        "attempt_3": 0.25,
        "given_up": 0.25,
        "refused": 0.0,
        "other_arguments": 0.0,
        "within_3": 0.75,
        "named": 0.75,
    }


def test_failure_without_a_cause_is_reported() -> None:
    """A failed sample counts as explained by damage that was not repaired, or if it fails undamaged."""
    found = repaired(
        run_of(
            score("whole", 1.0, ("null", "attempt_2", True)),
            score("given up", 0.0, ("null", "given_up", True)),
            score("fails anyway", 0.0),
            score("strange", 0.0, ("null", "attempt_2", True)),
        ),
        run_of(
            score("whole", 1.0), score("given up", 1.0), score("fails anyway", 0.0), score("strange", 1.0)
        ),
    )
    assert (found["passed"], found["explained"]) == (1, 2)
    assert found["unexplained"] == {"strange": "strange differs"}


def test_baseline_is_compared_by_sample() -> None:
    """Equal sums with different samples are not the same verdicts."""
    own = run_of(score("a", 1.0), score("b", 0.0, same=False), cpu_s=4.0)
    found = compared(own, run_of(score("a", 0.0), score("b", 1.0)))
    assert (found["passed"], found["direct_passed"], found["same_verdicts"]) == (1, 1, 0)
    assert (found["same_state"], found["ratio"], found["cpu_ms_per_sample"]) == (1, 4.0, 2000.0)


def test_failed_samples_are_named() -> None:
    """With the judge's explanation, or the error of the attempt."""
    broken = score("b", 0.0) | {"error": "lost", "status": "error"}
    assert verdicts(run_of(score("a", 0.0), broken))["failed"] == {"a": "a differs", "b": "lost"}
