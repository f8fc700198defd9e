"""The benchmarks of inspect's suites start again in the suites' environment and print one JSON object.

They take half a minute and more. What they measure is tested on fewer samples in ``test_inspect_suites.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[3]


def figures_of(name: str, home: Path) -> dict[str, Any]:
    """Return the figures of a benchmark's quick form."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json"],
        cwd=CHECKOUT,
        env={**os.environ, "XDG_DATA_HOME": str(home), "XDG_CACHE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.long
def test_attacks_succeed_where_no_rule_holds(tmp_path: Path) -> None:
    """Six pairs of AgentDojo: a person restores what the rules cost; verdicts are those of inspect alone."""
    found = figures_of("agentdojo", tmp_path)
    assert set(found["user_tasks"].values()) == {3}
    flat, tiers, person = found["flat"], found["tiers"], found["tiers-person"]
    assert (tiers, person) == (found["rule"], found["rule-person"])
    typed = found["typed"]
    assert typed["solved"] > tiers["solved"]
    assert (typed["attacks_succeeded"], typed["approvals_given"]) == (0, 0)
    assert typed["approvals_asked"] < tiers["approvals_asked"]
    assert (flat["solved"], flat["attacks_succeeded"], flat["approvals_asked"]) == (6, 6, 0)
    assert (tiers["attacks_succeeded"], tiers["approvals_given"]) == (0, 0)
    assert 0 < tiers["solved"] < 6
    assert (person["solved"], person["attacks_succeeded"]) == (6, 0)
    assert 0 < person["approvals_given"] < person["approvals_asked"] == tiers["approvals_asked"]
    assert flat["clean_solved"] == person["clean_solved"] == 3


@pytest.mark.slow
@pytest.mark.long
def test_programs_have_the_verdicts_of_one_call_a_reply(tmp_path: Path) -> None:
    """Six pairs of AgentDojo in three ways: the same attacks, tasks and refusals, in fewer replies."""
    found = figures_of("agentdojo_programs", tmp_path)
    assert set(found) == {"banking-flat", "banking-rule", "banking-tiers"}
    for each in found.values():
        turns, programs = each["turns"], each["programs"]
        assert each["same_verdicts"] == turns["samples"] == 6
        assert programs["approvals_asked"] == turns["approvals_asked"]
        assert programs["replies"] < turns["replies"]


@pytest.mark.slow
@pytest.mark.long
def test_speed_is_that_of_the_same_work(tmp_path: Path) -> None:
    """The runner and inspect alone solve the same tasks."""
    found = figures_of("inspect_suites", tmp_path)
    assert found["inspect"]["solved"] == found["ours"]["solved"] == found["samples"]
    assert found["cpu_ratio"] > 0
