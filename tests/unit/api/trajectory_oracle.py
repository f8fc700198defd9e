"""What holds for the trajectory of every tree, and for the edges in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from sessiontree.contracts.facts.session_facts import ContextCompacted, TurnReplied
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.facts.tree_facts import (
    CancelBegun,
    SessionEnded,
    SessionSpawned,
    UsageCharged,
    VisionAnswered,
)
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.request_names import EDGES_KEY, request_name
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_facts, replay_session
from sessiontree.session.calls import UNAWAITED

AGENT_ONLY = {"model_name", "reasoning_content", "tool_calls", "metrics"}


def all_in(trajectory: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a trajectory and all below it."""
    yield trajectory
    for below in trajectory.get("subagent_trajectories", ()):
        yield from all_in(below)


def check_form(trajectory: dict[str, Any]) -> None:
    """Steps count from 1, results belong to calls of their step, and each child is referred to once."""
    for one in all_in(trajectory):
        steps = one["steps"]
        assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1))
        assert one["final_metrics"]["total_steps"] == len(steps) > 0
        for step in steps:
            assert step["source"] == "agent" or not AGENT_ONLY & set(step)
            assert step.get("llm_call_count") != 0 or "metrics" not in step
            called = [call["tool_call_id"] for call in step.get("tool_calls", ())]
            answered = [each.get("source_call_id") for each in results_of(step)]
            assert len(called) == len(set(called))
            assert set(answered) - {None} <= set(called)
        below = Counter(each["trajectory_id"] for each in one.get("subagent_trajectories", ()))
        assert Counter(refs_of(steps)) == below
        assert set(below.values()) <= {1}


def results_of(step: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results that a step observed."""
    found: list[dict[str, Any]] = step.get("observation", {}).get("results", [])
    return found


def refs_of(steps: Iterable[dict[str, Any]]) -> list[str]:
    """Return the ids of the trajectories that steps refer to."""
    refs = (
        ref for step in steps for each in results_of(step) for ref in each.get("subagent_trajectory_ref", ())
    )
    return [ref["trajectory_id"] for ref in refs]


def amounts(metrics: dict[str, Any]) -> tuple[int, int, int]:
    """Return the tokens of a step's metrics, or of final ones."""
    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    return tuple(metrics.get(name, metrics.get(f"total_{name}")) for name in names)  # type: ignore[return-value]


def check_sums(trajectory: dict[str, Any], config: TreeConfig, records: list[JournalRecord]) -> None:
    """Steps add up to their trajectory, and trajectories to what the facts replay to, to the bit."""
    whole = Usage()
    for one in all_in(trajectory):
        session, final = one["extra"]["session"], one["final_metrics"]
        journaled = usage_of(session, config, records)
        metrics = [step["metrics"] for step in one["steps"] if "metrics" in step]
        summed = tuple(map(sum, zip(*map(amounts, metrics), strict=True))) or (0, 0, 0)
        expected = (journaled.input_tokens, journaled.output_tokens, journaled.cache_read_tokens)
        assert summed == amounts(final) == expected
        cost = 0.0
        for each in metrics:
            cost += each["cost_usd"]
        assert cost == final["extra"]["own_cost_usd"] == journaled.cost_usd
        below = 0.0
        for each in one.get("subagent_trajectories", ()):
            below += each["final_metrics"]["total_cost_usd"]
        assert final["total_cost_usd"] == cost + below
        whole += journaled
    extra = trajectory["final_metrics"]["extra"]
    assert extra["total_prompt_tokens_with_subagents"] == whole.input_tokens
    assert extra["total_completion_tokens_with_subagents"] == whole.output_tokens


def usage_of(session: str, config: TreeConfig, records: list[JournalRecord]) -> Usage:
    """Return what the rules say that a session's facts used, and its image models."""
    facts = [(record, fact) for record in records for fact in record.facts]
    spec = next(
        fact.spec for _, fact in facts if isinstance(fact, SessionSpawned) and fact.spec.session_id == session
    )
    texts = [record.text for record in records if record.session == session]
    used = replay_session(spec, config.limits, texts).reported
    for _, fact in facts:
        if isinstance(fact, VisionAnswered) and fact.session == session:
            used += fact.usage
    return used


def check_charges(trajectory: dict[str, Any], records: list[JournalRecord]) -> None:
    """What the accounts of an ended tree were charged is in the trajectory, token by token."""
    charged = Usage()
    for record in records:
        for fact in record.facts:
            if isinstance(fact, UsageCharged):
                charged += fact.usage
    extra = trajectory["final_metrics"]["extra"]
    assert charged.input_tokens == extra["total_prompt_tokens_with_subagents"]
    assert charged.output_tokens == extra["total_completion_tokens_with_subagents"]
    assert abs(charged.cost_usd - trajectory["final_metrics"]["total_cost_usd"]) < 1e-9


def check_edges(trajectory: dict[str, Any], records: list[JournalRecord]) -> None:
    """Edges are those that the steps show: both ends were answered, and every cause is there once."""
    edges = [tuple(each.values()) for each in trajectory["extra"][EDGES_KEY]["edges"]]
    assert len(edges) == len(set(edges))
    answered = {
        step["extra"]["request_id"]
        for one in all_in(trajectory)
        for step in one["steps"]
        if "metrics" in step and "request_id" in step["extra"]
    }
    for source, target, _ in edges:
        assert source != target
        assert {source, target} <= answered
    assert {each for each in edges if each[2] == "subagent_call"} == set(expected_calls(trajectory))
    assert Counter(each[2] for each in edges)["subagent_return"] == len(expected_returns(trajectory))
    assert {each[1] for each in edges if each[2] == "subagent_cancel"} == set(expected_cancels(records))
    assert [each[:2] for each in edges if each[2] == "compaction"] == list(expected_compactions(records))


def first_request(one: dict[str, Any]) -> str | None:
    """Return the first request of a trajectory for a turn that was answered."""
    return next((step["extra"]["request_id"] for step in one["steps"] if is_turn(step)), None)


def is_turn(step: dict[str, Any]) -> bool:
    """Whether a step is the answer to a turn."""
    return step.get("llm_call_count") == 1 and "event" not in step["extra"]


def expected_calls(trajectory: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the edges from calls to the children that refer to them."""
    for one in all_in(trajectory):
        below = {each["trajectory_id"]: each for each in one.get("subagent_trajectories", ())}
        for step in one["steps"]:
            for result in results_of(step):
                turn = str(result.get("source_call_id", "")).partition(".")[0]
                for ref in result.get("subagent_trajectory_ref", ()):
                    target = first_request(below[ref["trajectory_id"]])
                    if turn.isdecimal() and target is not None:
                        name = one["extra"]["session"].replace("/", ".")
                        yield f"{name}:{turn}", target, "subagent_call"


def expected_cancels(records: list[JournalRecord]) -> Iterator[str]:
    """Yield the last requests of the sessions that replies stopped before they ended by themselves."""
    stopped: dict[str, str] = {}
    last: dict[str, str] = {}
    for record in records:
        for fact in read_facts(record.text):
            match fact:
                case CancelBegun(reason=reason):
                    if reason.endswith(" stopped it") or reason == UNAWAITED:
                        stopped = dict.fromkeys(fact.sessions, fact.status) | stopped
                case TurnReplied(turn=turn):
                    last[record.session] = request_name(record.session, turn)
                case SessionEnded(session=session, status=status):
                    if stopped.get(session) == status and session in last:
                        yield last[session]


def expected_returns(trajectory: dict[str, Any]) -> list[str]:
    """Return the children whose reports a request has read, directly or through a program."""
    found = []
    for one in all_in(trajectory):
        last = max((step["step_id"] for step in one["steps"] if is_turn(step)), default=0)
        asked = {each["trajectory_id"]: first_request(each) for each in one.get("subagent_trajectories", ())}
        prefix = one["trajectory_id"].removesuffix(one["extra"]["session"])
        for step in one["steps"]:
            if step["extra"].get("origin") == "child" and step["step_id"] < last:
                found.append(prefix + reporter_in(step["message"]))
            if "program" in step["extra"]:
                found += [ref for ref in refs_of([step]) if has_report(one, step, last)]
        found = [each for each in found if asked.get(each, True) is not None]
    return found


def reporter_in(text: str) -> str:
    """Return the session that a report is from."""
    return text.partition('{"session":"')[2].partition('"')[0]


def has_report(one: dict[str, Any], step: dict[str, Any], last: int) -> bool:
    """Whether the report of a program's child reached the program, and its result a request."""
    program = step["extra"]["program"]
    caller, call = next(
        (each, call)
        for each in one["steps"]
        for call in each.get("tool_calls", ())
        if call["tool_call_id"] == program
    )
    result = next((each for each in results_of(caller) if each["source_call_id"] == program), None)
    if result is None or not any('"session"' in str(each.get("content")) for each in results_of(step)):
        return False
    if result["extra"]["outcome"] != "pending":
        return bool(caller["step_id"] < last)
    begin = f"The pending call {call['extra']['provider_id']} "
    return any(each["message"].startswith(begin) and each["step_id"] < last for each in one["steps"])


def expected_compactions(records: list[JournalRecord]) -> Iterator[tuple[str, str]]:
    """Yield the last summary before a reply, and the reply."""
    summary: dict[str, str] = {}
    for record in records:
        name = record.session.replace("/", ".")
        for fact in record.facts:
            if isinstance(fact, ContextCompacted):
                summary[name] = f"{name}:{fact.turn}"
            elif isinstance(fact, TurnReplied) and name in summary:
                yield summary.pop(name), f"{name}:{fact.turn}"
