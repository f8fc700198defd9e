"""Trajectories of trees that drew lots: well formed, with sums and edges that the journal's facts give."""

from __future__ import annotations

import asyncio
import copy
import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.api.trajectories.atif_export import TreeTrajectory
from sessiontree.api.trajectories.semantic_edges import edges_of
from sessiontree.api.trajectories.step_spool import StepSpool
from sessiontree.contracts.errors import JournalCorrupt
from sessiontree.contracts.facts import session_facts
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.recorded.codec import pack
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from sessiontree.contracts.values.request_names import EDGES_KEY, MAX_CHARS, parse_turn, request_name
from sessiontree.journal.record import JournalRecord
from tests.unit.api.trajectory_fixtures import facts_on_disk, grow, trajectory_of
from tests.unit.api.trajectory_oracle import (
    all_in,
    check_charges,
    check_edges,
    check_form,
    check_sums,
    results_of,
)

MAIN = "main"
SHORT, LONG = (2, 4, 7), tuple(range(100, 140))
"""Trees: one that ended with much work, a fork, one that ended with little; and many more."""


@pytest.fixture(scope="module")
def grown(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[int], tuple[TreeConfig, list[JournalRecord]]]:
    """Return a function from a number to a tree's configuration and facts; each tree grows once."""
    known: dict[int, tuple[TreeConfig, list[JournalRecord]]] = {}

    def of(seed: int) -> tuple[TreeConfig, list[JournalRecord]]:
        if seed not in known:
            place = tmp_path_factory.mktemp("grown")
            known[seed] = facts_on_disk(place, asyncio.run(grow(place, seed)))
        return known[seed]

    return of


Grown = Callable[[int], tuple[TreeConfig, list[JournalRecord]]]


def check_all(config: TreeConfig, records: list[JournalRecord]) -> dict[str, Any]:
    """Check the trajectory of facts, and return it."""
    trajectory = trajectory_of(config, records)
    check_form(trajectory)
    check_sums(trajectory, config, records)
    check_edges(trajectory, records)
    if trajectory["extra"]["status"] != "active":
        check_charges(trajectory, records)
    return trajectory


@pytest.mark.covers("EXP1", "EXP2", "EXP3")
@pytest.mark.parametrize("seed", [*SHORT, *(pytest.param(seed, marks=pytest.mark.long) for seed in LONG)])
def test_sums_and_edges_are_those_of_the_journal(grown: Grown, seed: int) -> None:
    """Retries, summaries, forks, programs, reports and stopped children: all is counted, once."""
    trajectory = check_all(*grown(seed))
    assert trajectory["final_metrics"]["total_prompt_tokens"] > 0


def test_tree_that_still_works_can_be_read_at_any_moment(grown: Grown) -> None:
    """After every few facts the trajectory is whole, and its sums are those of the facts so far."""
    config, records = grown(7)
    for count in range(2, len(records), 5):
        check_all(config, records[:count])


def test_edges_are_the_same_without_a_trajectory(grown: Grown) -> None:
    """Doors read the edges from the facts alone."""
    config, records = grown(2)
    found = trajectory_of(config, records)["extra"][EDGES_KEY]["edges"]
    assert [each._asdict() for each in edges_of(config, records)] == found
    assert {each["type"] for each in found} == {
        "subagent_call", "subagent_return", "subagent_cancel", "compaction_attempt", "compaction"
    }  # fmt: skip


def test_steps_before_a_fork_are_marked_as_copied(grown: Grown) -> None:
    """A trainer must not learn twice from what two trees share."""
    config, records = grown(4)
    for one in all_in(trajectory_of(config, records)):
        for step in one["steps"]:
            assert step.get("is_copied_context", False) == (step["extra"]["seq"] <= config.forks[-1].seq)


def _drop_metrics(trajectory: dict[str, Any]) -> None:
    del next(step for step in trajectory["steps"] if "metrics" in step)["metrics"]


def _turn_edge(trajectory: dict[str, Any]) -> None:
    edges = trajectory["extra"][EDGES_KEY]["edges"]
    edge = next(edge for edge in edges if edge["type"] == "subagent_call")
    edge["source_request_id"], edge["target_request_id"] = (
        edge["target_request_id"],
        edge["source_request_id"],
    )


def _lose_edge(trajectory: dict[str, Any]) -> None:
    edges = trajectory["extra"][EDGES_KEY]["edges"]
    edges.remove(next(edge for edge in edges if edge["type"] == "subagent_return"))


def _lose_child(trajectory: dict[str, Any]) -> None:
    trajectory["subagent_trajectories"].pop()


def _cost_alone(trajectory: dict[str, Any]) -> None:
    trajectory["final_metrics"]["total_cost_usd"] = trajectory["final_metrics"]["extra"]["own_cost_usd"]


@pytest.mark.parametrize("fault", [_drop_metrics, _turn_edge, _lose_edge, _lose_child, _cost_alone])
def test_faults_are_noticed(grown: Grown, fault: Callable[[dict[str, Any]], None]) -> None:
    """The checks can fail: each of these faults is one of the export's that they find."""
    config, records = grown(2)
    trajectory = copy.deepcopy(trajectory_of(config, records))
    fault(trajectory)
    with pytest.raises((AssertionError, KeyError)):
        check_form(trajectory)
        check_sums(trajectory, config, records)
        check_edges(trajectory, records)


def altered(record: JournalRecord, fact: object) -> JournalRecord:
    """Return a record with another fact."""
    return replace(record, text=pack(fact))


def story(count: int, records: list[JournalRecord], text: str = "x" * 200) -> Iterator[JournalRecord]:
    """Yield a tree's beginning, and then so many turns of Main, each with a call."""
    begun = list(itertools.takewhile(lambda record: "turn_replied" not in record.text, records))
    yield from begun
    seq = begun[-1].seq
    for turn in range(1, count + 1):
        reply = AssistantMessage(
            (TextContent(text), ToolCall("id", "read", {"path": text})), "toolUse", Usage(3, 2, 0.5)
        )
        result = ToolResultMessage("id", "read", (TextContent(text),))
        for fact in (
            session_facts.TurnStarted(turn, 0, False),
            session_facts.TurnReplied(turn, reply),
            session_facts.CallResolved(f"{turn}.0", "ok", result),
        ):
            seq += 1
            yield JournalRecord(seq, MAIN, "cause", 1_000, pack(fact))


def peak_of(config: TreeConfig, records: Iterator[JournalRecord], path: Path) -> int:
    """Return the most memory in bytes that writing a trajectory takes."""
    tracemalloc.start()
    try:
        with StepSpool() as spool, path.open("wb") as out:
            trajectory = TreeTrajectory(config, spool)
            for record in records:
                trajectory.add(record)
            trajectory.write(out)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("turns", [800, pytest.param(40_000, marks=pytest.mark.long)])
def test_long_tree_needs_no_more_memory(grown: Grown, tmp_path: Path, turns: int) -> None:
    """Steps are on the disk: ten times as many facts take the same memory, and ten times the file."""
    config, records = grown(7)
    few = peak_of(config, story(turns // 10, records), tmp_path / "few")
    many = peak_of(config, story(turns, records), tmp_path / "many")
    assert many < few + 500_000
    assert (tmp_path / "many").stat().st_size > 9 * (tmp_path / "few").stat().st_size


def test_hostile_words_and_numbers_stay_json(grown: Grown) -> None:
    """Half of a surrogate pair, and what a provider can't have used: the file can be read, the sums hold."""
    config, records = grown(7)
    at = next(
        place for place, record in enumerate(records) if isinstance(record.fact, session_facts.TurnReplied)
    )
    fact = records[at].fact
    assert isinstance(fact, session_facts.TurnReplied)
    usage = Usage(-5, 3, -0.5)
    reply = AssistantMessage(
        (TextContent('\ud800"\u2028'), ToolCall("", "read", {"\udfff": "x"})), usage=usage
    )
    records = [*records[:at], altered(records[at], replace(fact, message=reply, finished=None))]
    steps = trajectory_of(config, records)["steps"]
    assert steps[-1]["message"] == '?"\u2028'
    assert steps[-1]["metrics"] == {
        "prompt_tokens": 0, "completion_tokens": 3, "cached_tokens": 0, "cost_usd": 0.0
    }  # fmt: skip
    assert steps[-1]["tool_calls"][0]["arguments"] == {"?": "x"}


def test_images_are_named_and_unread_messages_kept(grown: Grown) -> None:
    """Nothing that was said is missing: a message that no turn has taken is the last step."""
    config, records = grown(7)
    message = UserMessage((TextContent("late"),), 1)
    late = session_facts.MessageReceived("late", message, steer=False, wakes=False)
    more = JournalRecord(len(records) + 1, MAIN, "cause", 1_000, pack(late))
    step = trajectory_of(config, [*records, more])["steps"][-1]
    assert (step["message"], step["source"], step["extra"]["event"]) == ("late", "user", "not read")


def test_call_without_a_result_has_none(grown: Grown) -> None:
    """A tree that was cut in a call shows the call, and no result that nobody saw."""
    config, records = grown(7)
    facts = [record.fact for record in records]
    at = next(place for place, fact in enumerate(facts) if isinstance(fact, session_facts.CallResolved))
    steps = trajectory_of(config, records[:at])["steps"]
    assert steps[-1]["tool_calls"]
    assert not results_of(steps[-1])


def test_tree_without_facts_is_refused(grown: Grown) -> None:
    """There is nothing to learn from it, and the format wants a step."""
    with pytest.raises(JournalCorrupt, match="no fact of it is good"):
        trajectory_of(grown(7)[0], [])


@given(
    st.lists(st.tuples(st.sampled_from("bw"), st.integers(1, 10**6)), max_size=40),
    st.integers(1, 10**9),
)
def test_names_of_requests_are_as_readers_take_them(path: list[tuple[str, int]], turn: int) -> None:
    """However deep a session is, the name is short and of few letters; a key gives the turn back."""
    session = "/".join([MAIN, *(f"{kind}{number}" for kind, number in path)])
    name = request_name(session, turn)
    assert len(name) <= MAX_CHARS
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.:")
    assert name != request_name(session, turn + 1)
    assert name != request_name(f"{session}/w1", turn)
    assert parse_turn(f"{turn}.0/3") == turn
    assert parse_turn(f"call.{turn}") is None
