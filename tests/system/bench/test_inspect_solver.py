"""The solver and the agent for inspect_ai: limits, errors, usage and messages are inspect's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.bench.inspect_fixtures import facts_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def logs() -> dict[str, Any]:
    """What the logs of all cases say."""
    return facts_of("inspect_solver_program")


def test_tools_run_in_the_sample_and_inspects_model_answers(logs: dict[str, Any]) -> None:
    """The tool writes into the sample's store; usage, score and conversation are in the log."""
    adds = logs["adds"]
    assert (adds["status"], adds["score"], adds["answer"]) == ("success", {"includes": "C"}, "the sum is 3")
    assert adds["roles"] == ["system", "user", "assistant", "tool", "assistant"]
    assert adds["tokens"] == {"mockllm/model": 30}
    assert adds["store"]["calls"] == 1


def test_log_names_the_tree_and_pairs_calls_with_their_events(logs: dict[str, Any]) -> None:
    """The tree's id is in the sample's metadata and store; tool events have the ids of the model's calls."""
    adds = logs["adds"]
    assert adds["tree"] == adds["store"]["sessiontree"]
    assert adds["calls"] == adds["tool_events"]
    assert len(adds["calls"]) == 1


def test_agent_does_the_same_with_tools_of_its_own(logs: dict[str, Any]) -> None:
    """As a solver made of the agent."""
    adds, agent = logs["adds"], logs["agent"]
    assert {name: agent[name] for name in ("status", "roles", "answer", "tokens", "score")} == {
        name: adds[name] for name in ("status", "roles", "answer", "tokens", "score")
    }
    assert agent["store"]["sessiontree"]["tree_id"] != adds["tree"]["tree_id"]


def test_tool_of_which_nothing_is_known_is_a_system_tool(logs: dict[str, Any]) -> None:
    """It runs by default; ``approvals=never`` refuses it, unless it is known to change nothing."""
    assert "calls" not in logs["never"]["store"]
    assert logs["never, known to read"]["store"]["calls"] == 1


@pytest.mark.parametrize("kind", ["token", "message", "time"])
def test_limits_of_inspect_end_the_sample(logs: dict[str, Any], kind: str) -> None:
    """The limit is in the log as inspect's, the sample is scored, and its conversation is kept."""
    ended = logs[f"{kind} limit"]
    assert (ended["status"], ended["limit"], ended["error"]) == ("success", kind, None)
    assert ended["score"] == {"includes": "I"}
    assert ended["roles"][:3] == ["system", "user", "assistant"]


@pytest.mark.long
def test_inspect_ends_a_model_that_repeats_a_call(logs: dict[str, Any]) -> None:
    """The same call with the same result: inspect's limit of 20 messages ends it, and nobody warns it."""
    ended = logs["same call"]
    assert (ended["status"], ended["limit"], ended["error"]) == ("success", "message", None)
    assert ended["roles"] == ["system", "user", *["assistant", "tool"] * 9]


def test_error_of_a_tool_goes_to_the_model(logs: dict[str, Any]) -> None:
    """The model hears inspect's words, and the sample goes on."""
    ended = logs["tool error"]
    assert ended["answer"] == "I heard: unknown: the shelf is empty"
    assert (ended["tool_errors"], ended["error"]) == (["unknown"], None)


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("broken tool", "RuntimeError('the shelf broke')"),
        ("broken model", "ValueError('the model fell over')"),
    ],
)
def test_other_errors_are_the_samples(logs: dict[str, Any], case: str, error: str) -> None:
    """What a tool or the model raises reaches inspect unchanged."""
    assert (logs[case]["error"], logs[case]["score"]) == (error, {})


def test_children_work_and_the_answer_waits_for_them(logs: dict[str, Any]) -> None:
    """A Worker runs the reading tool; what it read makes a change need an approval, which nobody gives."""
    children = logs["children"]
    assert children["answer"] == "approval"
    assert children["tool_errors"] == ["approval"]
    assert children["store"]["calls"] == 1
    assert "main/b1/w1" in children["spans"]
    assert children["tokens"] == {"mockllm/model": 90}


def test_every_tree_ends_with_its_sample(logs: dict[str, Any]) -> None:
    """Also after limits, errors and cancellation; the journal has one tree a sample."""
    assert logs["trees"] == {"count": len(logs) - 1, "live": 0}
