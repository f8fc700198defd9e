"""Verdicts on public tasks that do not come with this package: the same as those of inspect alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.bench.inspect_fixtures import facts_of

pytestmark = [pytest.mark.slow, pytest.mark.long]
TASKS = ("boolq", "gsm8k", "cyse4_malware_analysis", "sycophancy", "tac")


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """What the program found, by task."""
    return facts_of("inspect_parity_program")


@pytest.mark.parametrize("name", TASKS)
def test_verdicts_are_those_of_inspect_alone(facts: dict[str, Any], name: str) -> None:
    """With the plan kept and a tree in place of the model, and as a suite; sample by sample."""
    found = facts[name]
    assert found["status"] == ["success", "success"]
    assert len(found["alone"]) >= 8
    assert len({str(each) for each in found["alone"].values()}) > 1
    assert found["with_tree"] == found["alone"]
    assert found["suite"] == found["alone"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("tac", "'setup_scenario_store' was replaced"), ("cyse4_malware_analysis", "no message shows them")],
)
def test_plan_that_would_be_lost_is_refused_before_the_model_is_asked(
    facts: dict[str, Any], name: str, said: str
) -> None:
    """Nothing is scored, and the error recommends what keeps the plan; a person may accept the loss."""
    found = facts[f"replaced {name}"]
    assert (found["status"], found["scored"], found["tokens"]) == ("error", 0, 0)
    assert said in found["error"]
    assert "with_tree(task)" in found["error"]
    assert facts["dropped tac"]["status"] == "success"


def test_plan_of_text_alone_may_be_replaced(facts: dict[str, Any]) -> None:
    """It gives no tools, and shows no choices."""
    assert (facts["replaced boolq"]["status"], facts["replaced boolq"]["scored"]) == ("success", 8)
