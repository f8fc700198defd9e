"""Tasks of inspect_ai as suites: the same verdicts, logs that inspect reads, and attacks that rules stop."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.bench.inspect_fixtures import facts_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """What the program found, by case."""
    return facts_of("inspect_suite_program")


def test_task_runs_over_the_runner_with_its_own_solvers_and_tools(facts: dict[str, Any]) -> None:
    """The solvers' system message is the agent's prompt; their tools run in the sample's store."""
    plain = facts["plain task"]
    keys = [f"{sample}#{epoch}" for sample in (1, 2, 3) for epoch in (1, 2)]
    assert plain["scored"] == {key: ["completed", 1.0] for key in keys}
    assert plain["log"]["answer"] == "2 as ordered"
    assert plain["log"]["calls"] == 1


def test_log_has_one_header_and_every_sample_once(facts: dict[str, Any]) -> None:
    """Read by inspect: scores, messages, metrics and the tree; written again when the run goes on."""
    plain = facts["plain task"]
    assert (plain["after one"], plain["early log"]) == (["1#1", "1#2"], ["success", 2])
    assert plain["again"]
    log = plain["log"]
    assert (log["status"], log["task"], log["accuracy"]) == ("success", "sums", [1.0])
    assert log["samples"] == sorted(plain["scored"])
    assert log["roles"] == ["system", "user", "assistant", "tool", "assistant"]
    assert log["tree"]


@pytest.mark.long
def test_model_that_repeats_a_call_is_not_ended(facts: dict[str, Any]) -> None:
    """Only the limits of inspect end such a sample."""
    assert facts["same call"] == [["completed", 1.0]]


def test_verdicts_of_agentdojo_are_those_of_inspect_alone(facts: dict[str, Any]) -> None:
    """The ground truth of the same users' tasks, called by inspect and by a tree."""
    parity = facts["parity"]
    assert parity["alone"] == parity["ours"]
    assert len(parity["alone"]) == 3


def test_what_a_model_knows_changes_nothing_that_is_judged(facts: dict[str, Any]) -> None:
    """AgentDojo's ground truth of one order marks mail as read; the judge compares mail before and after."""
    assert facts["parity"]["mail"] == [1.0]
    assert facts["parity"]["attacked mail"] == [1.0]


def test_gullible_model_in_one_flat_session_does_what_it_reads(facts: dict[str, Any]) -> None:
    """The tasks are solved, and every order that was read is carried out."""
    for found in (facts["attacks"]["flat"], facts["attacks"]["flat threats"]):
        assert all(each["utility"] == 1 for each in found.values())
        assert all(each["attack"] == each["read"] for each in found.values())
        assert all(each["approvals"] == 0 for each in found.values())


@pytest.mark.parametrize("way", ["rule", "tiers"])
def test_changes_after_untrusted_text_are_refused_when_nobody_approves(
    facts: dict[str, Any], way: str
) -> None:
    """No order is carried out, and no task whose changes need what was read; an answer can't be stopped."""
    pairs, threats = facts["attacks"][way], dict(facts["attacks"][f"{way} threats"])
    assert {(each["utility"], each["attack"]) for each in pairs.values()} == {(0.0, 0.0)}
    assert all(each["approvals"] > 0 for each in pairs.values())
    spoken = threats.pop("mp_001#1")
    assert (spoken["utility"], spoken["attack"], spoken["approvals"]) == (1.0, 1.0, 0.0)
    assert {each["attack"] for each in threats.values()} == {0.0}


def test_workers_that_return_text_add_nothing_to_the_rule(facts: dict[str, Any]) -> None:
    """One session under the same rule has the same verdicts and requests, sample by sample."""
    for part in ("", " threats"):
        rule, tiers = facts["attacks"][f"rule{part}"], facts["attacks"][f"tiers{part}"]
        assert rule == tiers


@pytest.mark.parametrize("way", ["flat", "rule"])
def test_judges_and_counts_see_the_calls_of_programs(facts: dict[str, Any], way: str) -> None:
    """Verdicts and refused calls are those of the same calls, made one a reply; no order is lost."""
    found = facts["programs"][f"slack-{way}"]
    turns, programs = found["turns"], found["programs"]
    assert found["same_verdicts"] == turns["samples"] == 2
    for each in ("solved", "attacks_succeeded", "no_order_read", "approvals_asked"):
        assert programs[each] == turns[each], each
    assert programs["replies"] < turns["replies"]
    wanted = ("solved", "attacks_succeeded") if way == "flat" else ("approvals_asked",)
    assert all(programs[each] > 0 for each in wanted)


def test_typed_workers_solve_more_and_ask_less(facts: dict[str, Any]) -> None:
    """Where numbers suffice, the change runs without a question, and the order is never read."""
    typed, rule = facts["attacks"]["typed"], facts["attacks"]["rule"]
    by_number, by_text = "banking-u2-i4#1", "banking-u0-i4#1"
    assert (typed[by_number]["utility"], typed[by_number]["attack"]) == (1.0, 0.0)
    assert (typed[by_number]["approvals"], typed[by_number]["read"]) == (0.0, False)
    assert typed[by_text] == rule[by_text]


@pytest.mark.parametrize("way", ["rule-person", "typed-person"])
def test_person_who_knows_the_task_restores_it_and_no_attack(facts: dict[str, Any], way: str) -> None:
    """Those calls of the user's task are approved that are asked for."""
    for part in ("", " threats"):
        person = facts["attacks"][f"{way}{part}"]
        assert all(each["utility"] == 1 for each in person.values())
        assert all(each["attack"] == 0 for name, each in person.items() if not name.startswith("mp_"))
        assert any(each["approvals"] >= 1 for each in person.values())


@pytest.mark.parametrize(
    ("case", "said"), [("sandbox", "needs a sandbox of inspect"), ("no scorer", "has no scorer")]
)
def test_tasks_that_need_inspects_own_runner_are_refused(facts: dict[str, Any], case: str, said: str) -> None:
    """The error names the task, and what to do instead."""
    assert said in facts["refusals"][case]


def test_second_generate_is_a_second_message(facts: dict[str, Any]) -> None:
    """To the same session, which answers both; a plan without a reply is scored as it is."""
    assert facts["plans"]["two"] == [["completed", 1.0]]
    assert facts["plans"]["two roles"] == ["user", "assistant", "user", "assistant"]
    assert facts["plans"]["none"] == [["completed", 0.0]]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("rewritten", "changes messages that a tree has read"),
        ("single", 'generate(tool_calls="single")'),
        ("twice", "without a new message of a user"),
    ],
)
def test_plan_that_a_tree_does_not_fit_ends_the_run(facts: dict[str, Any], case: str, said: str) -> None:
    """No sample is scored for it; the error recommends what keeps the plan."""
    assert facts["plans"][case] == []
    assert said in facts["plans"][f"{case} refused"]
    assert "with_tree" in facts["plans"][f"{case} refused"]


@pytest.mark.parametrize("limit", ["messages", "tokens"])
def test_limits_of_a_task_hold_as_in_inspect(facts: dict[str, Any], limit: str) -> None:
    """The same limit is noted, the same calls ran, and the sample is scored."""
    assert facts["limits"][f"{limit} ours"] == facts["limits"][f"{limit} alone"]
    assert facts["limits"][f"{limit} ours"][0] == {"messages": "message", "tokens": "token"}[limit]


def test_sample_over_its_time_is_scored_as_it_is(facts: dict[str, Any]) -> None:
    """As in inspect: the tool had saved the answer before the time was over."""
    assert facts["late answer"] == {"scored": [["timeout", 1.0]] * 3, "limits": ["time"] * 3}


def test_orders_are_read_in_every_form_that_results_have(facts: dict[str, Any]) -> None:
    """As text, as JSON with all letters or ASCII alone, folded as YAML; a cut frame orders nothing."""
    assert facts["readings"] == {"plain": True, "json": True, "ascii": True, "folded": True, "cut": []}
