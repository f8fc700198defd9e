"""The journal is the tree: what is read there, in order and once, is what the tree is."""

from __future__ import annotations

import asyncio
import json
import sys
from types import ModuleType
from typing import cast

import pytest

from sessiontree import ScriptedModel, script_call
from sessiontree.contracts.facts.session_facts import CallIntended, CallResolved, TurnReplied, TurnStarted
from sessiontree.contracts.facts.tree_facts import SessionEnded, SessionSpawned, TreeCreated
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_fact
from sessiontree.session.evolve import evolve as evolve_session
from sessiontree.session.state import make_initial_state
from sessiontree.tree.report import build_receipt
from sessiontree.tree.state.budgets import compute_remaining
from sessiontree.tree.state.evolve import evolve as evolve_tree
from sessiontree.tree.state.state import make_initial_tree
from tests.behaviour import household_fakes as household
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, read_on, records
from tests.behaviour.tree_fixtures import Opener
from tests.unit.tree.tree_invariant_oracle import check_invariants


@pytest.mark.covers("REL-S38", "DUR7")
async def test_facts_of_a_finished_run_replay_to_the_trees_state(open_tree: Opener) -> None:
    """REL-S38: evolving the tree's facts from nothing gives its state, receipt and invariants included."""
    async with open_tree(household.MODEL, tools=TOOLS, approvals="auto") as tree:
        await tree.main.send("go")
        await household.finished(tree)
        await tree.finish("over")
        state = make_initial_tree()
        for record in await records(tree, ""):
            evolve_tree(state, read_fact(record.text))
        check_invariants(state)
        assert build_receipt(state, "main") == tree.receipt()
        assert {line.session_id for line in tree.receipt()} == {"main", *household.RESULTS}
        for session, node in state.sessions.items():
            report = tree.session(session).status()
            assert (report.kind, report.depth, report.status) == (
                node.spec.kind,
                node.spec.depth,
                node.status,
            )
            assert (report.usage, report.budget_left) == (node.usage, compute_remaining(state, session))
            assert report.children == tuple(state.children.list_members(session))
            assert report.pending_approvals == node.pending == 0
            assert (await tree.session(session).result()) == node.result


@pytest.mark.on_ray
async def test_every_sessions_facts_replay_to_its_transcript(open_tree: Opener) -> None:
    """Each session by itself: transcript, artifacts and usage are in its own facts."""
    model = ScriptedModel(
        [script_call("write", path="a.txt", content="x"), script_call("read", path="a.txt"), "done"]
    )
    async with open_tree(model) as tree:
        branch = await tree.main.spawn("branch", "go")
        result = await branch.result()
        (created,) = await facts_of(tree, TreeCreated)
        (spawned,) = [
            fact for fact in await facts_of(tree, SessionSpawned) if fact.spec.session_id == "main/b1"
        ]
        state = make_initial_state(spawned.spec, created.config.limits)
        for record in await records(tree, "main/b1"):
            evolve_session(state, read_fact(record.text))
        assert state.transcript == branch.history()
        assert tuple(state.artifacts) == result.artifacts
        assert state.usage == result.usage
        assert [artifact.path for artifact in result.artifacts] == ["a.txt"]


@pytest.mark.covers("ORD9")
async def test_events_are_all_facts_in_order_and_once(open_tree: Opener) -> None:
    """A reader that comes first, one that comes late and one that comes again read the same numbers."""
    async with open_tree(household.MODEL, tools=TOOLS, approvals="auto") as tree:

        async def follow(after: int = 0) -> list[int]:
            return [record.seq async for record in tree.events(after=after)]

        early = asyncio.create_task(follow())
        await asyncio.sleep(0)
        await tree.main.send("go")
        await household.finished(tree)
        again = asyncio.create_task(follow(after=10))
        await tree.finish("over")
        async with asyncio.timeout(PATIENCE_S):
            numbers = await early
            assert numbers == list(range(1, len(numbers) + 1))
            assert await again == numbers[10:]
            assert await follow() == numbers
            assert await follow(after=numbers[-1]) == []
            assert [record.seq for record in await records(tree)] == numbers


async def test_reading_after_a_number_is_idempotent(open_tree: Opener) -> None:
    """The same question has the same answer, in pieces of any size."""
    async with open_tree(household.MODEL, tools=TOOLS, approvals="auto") as tree:
        await tree.main.send("go")
        await household.finished(tree)
        await tree.finish("over")
        whole = await read_on(tree, 0, 10_000)
        for size in (1, 7, 100):
            pieces: list[JournalRecord] = []
            while piece := await read_on(tree, pieces[-1].seq if pieces else 0, size):
                assert await read_on(tree, pieces[-1].seq if pieces else 0, size) == piece
                pieces += piece
            assert pieces == whole


async def test_facts_are_plain_json_with_a_kind_and_a_version(open_tree: Opener) -> None:
    """Whoever reads the journal needs no code of ours: ASCII, one object each, with cause and time."""
    async with open_tree(household.MODEL, tools=TOOLS, approvals="auto") as tree:
        await tree.main.send("go ☕")
        await household.finished(tree)
        found = await records(tree)
        for record in found:
            assert record.text.isascii()
            assert "\n" not in record.text
            fact = json.loads(record.text)
            assert isinstance(fact["kind"], str)
            assert fact["v"] >= 1
            assert record.cause
            assert record.at_ms > 1_600_000_000_000
        assert isinstance(read_fact(found[0].text), TreeCreated)


@pytest.mark.covers("REL-S43", "DUR4")
async def test_intent_precedes_its_effect_and_a_result_the_next_question(open_tree: Opener) -> None:
    """REL-S43: in every session, calls are intended before they run, resolved before the next turn."""
    async with open_tree(household.MODEL, tools=TOOLS, approvals="auto") as tree:
        await tree.main.send("go")
        await household.finished(tree)
        for session in ("main", *household.RESULTS):
            open_calls: set[str] = set()
            intended: set[str] = set()
            for record in await records(tree, session):
                fact = read_fact(record.text)
                if isinstance(fact, TurnReplied):
                    open_calls |= {f"{fact.turn}.{index}" for index in range(len(fact.message.tool_calls))}
                elif isinstance(fact, CallIntended):
                    assert fact.call.key in open_calls
                    intended.add(fact.call.key)
                elif isinstance(fact, CallResolved):
                    open_calls.discard(fact.key)
                elif isinstance(fact, TurnStarted):
                    assert not open_calls
            ran = {
                call_id.partition("#")[2]
                for call_id, _ in effects(open_tree.workspace)
                if call_id.startswith(f"{session}#")
            }
            assert ran <= intended
        assert len(await facts_of(tree, SessionEnded)) == len(household.RESULTS)


class _Frames:
    """Stands for pandas: a data frame is the list of its rows."""

    DataFrame = list


@pytest.mark.on_ray
async def test_facts_so_far_become_rows_and_the_reader_goes_on(
    open_tree: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are those after the number, also of facts that were read; a frame waits for nothing."""
    monkeypatch.setitem(sys.modules, "pandas", cast("ModuleType", _Frames))
    async with open_tree(ScriptedModel(["one", "two"])) as tree:
        await tree.main.send("go")
        reader = tree.events(after=1)
        first = await anext(reader)
        rows = await reader.to_pandas()
        assert [row["seq"] for row in rows] == list(range(2, len(rows) + 2))
        assert rows[0] == {
            "seq": first.seq,
            "session": first.session,
            "at_ms": first.at_ms,
            "kind": first.to_json()["kind"],
            "fact": first.to_json(),
        }
        await tree.main.send("more")
        assert (await anext(reader)).seq == first.seq + 1
        assert len(await reader.to_pandas()) > len(rows)
        await reader.aclose()
        assert await tree.events(after=10**6).to_pandas() == []
