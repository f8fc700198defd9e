"""Dry runs: what they say will run again is what a resume then runs."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from sessiontree import (
    Budget,
    FunctionModel,
    Limits,
    ModelPrice,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    SessionTree,
    StoredTrees,
    ToolContext,
    ToolPolicy,
    script_call,
    tool,
)
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import CallResolved, RunFinished, TurnStarted
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, Usage
from sessiontree.contracts.values.session_ids import SessionIds, compute_session_key
from sessiontree.journal.claim import list_journal_dirs
from sessiontree.journal.export import Manifest
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_config, read_fact, read_facts, replay_session
from sessiontree.runtime.replay import dry_run
from sessiontree.runtime.replay.session_replay import React
from sessiontree.runtime.replay.tree_fork import group_around
from sessiontree.session.decide import react
from sessiontree.session.state import SessionState, make_initial_state
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.state import make_initial_tree
from tests.behaviour.fact_fixtures import asked, facts_of, until
from tests.behaviour.fact_fixtures import records as records_of
from tests.behaviour.tree_fixtures import Opener
from tests.unit.session.session_fixtures import spec

Step: TypeAlias = tuple[str, ...]
POLICY = PolicyConfig(tools=ToolPolicy(allow=("*",)))
SEARCH = settings(
    max_examples=3,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
CODE = """
import asyncio
await asyncio.gather(append(text="p1"), note(text="p2"), look_at(text="p3"))
await spawn("worker", "look around")
await append(text="p4")
"""
RAN: list[str] = []
"""Ids of the calls that ran, oldest first."""
ASKED: list[tuple[str, int]] = []
"""Sessions and turns for which a model was asked."""


async def _done(ctx: ToolContext) -> str:
    RAN.append(ctx.call_id)
    await asyncio.sleep(0)
    return "done"


@tool(tier=PermissionTier.WORKSPACE)
async def append(text: str, ctx: ToolContext) -> str:
    """Change something; never repeated."""
    return await _done(ctx)


@tool(tier=PermissionTier.WORKSPACE, idempotent=True)
async def note(text: str, ctx: ToolContext) -> str:
    """Change something; may be repeated."""
    return await _done(ctx)


@tool(tier=PermissionTier.ELEVATED)
async def launch(text: str, ctx: ToolContext) -> str:
    """Change something that needs an approval."""
    return await _done(ctx)


@tool(tier=PermissionTier.READ_ONLY)
async def look_at(text: str, ctx: ToolContext) -> str:
    """Change nothing."""
    return await _done(ctx)


LOGGED = (append, note, launch, look_at)
NAMES = frozenset(each.name for each in LOGGED)


def doing(steps: Sequence[Step]) -> FunctionModel:
    """Return a model whose Main makes these calls, one step a turn; children say that they are done."""

    def reply(request: ModelRequest) -> Any:
        ASKED.append((request.session_id, request.turn))
        if request.session_id != "main" or request.turn > len(steps):
            return "done"
        made = []
        for name in steps[request.turn - 1]:
            if name == "spawn":
                made.append(script_call("sessions_spawn", kind="worker", task="look around"))
            elif name == "program":
                made.append(script_call("program", code=CODE))
            else:
                made.append(script_call(name, text=name))
        return made

    return FunctionModel(reply)


STEPS = st.lists(
    st.lists(
        st.sampled_from(("append", "note", "launch", "look_at", "spawn", "program")), min_size=1, max_size=3
    ).map(tuple),
    min_size=1,
    max_size=3,
)


async def recorded(place: Path, steps: Sequence[Step]) -> tuple[Manifest, list[JournalRecord]]:
    """Run a tree to its end; return its facts."""
    (place / "workspace").mkdir()
    given: dict[str, Any] = {"state_dir": place / "first", "backend": "local", "policy": POLICY}
    model = doing(steps)
    async with SessionTree(place / "workspace", model=model, tools=LOGGED, approvals="auto", **given) as tree:
        await tree.main.send("go")
        name = tree.tree_id
    (journal_dir,) = list_journal_dirs(place / "first")
    with Journal.open(journal_dir, read_only=True) as journal:
        (row,) = journal.trees()
        return Manifest(name, row.created_ms, dict(journal.row0(name))), journal.read(name)


def cuts_of(records: Sequence[JournalRecord]) -> list[int]:
    """Return how many facts a program that was killed can have left, from Main's first turn on."""
    cuts: list[int] = []
    at = next(record.seq for record in records if _begins_turn(record))
    while at < len(records):
        _, end = group_around(records, at)
        cuts.append(end)
        at = end + 1
    return cuts


def _begins_turn(record: JournalRecord) -> bool:
    return record.session == "main" and any(
        isinstance(fact, TurnStarted) or getattr(fact, "turn", None) is not None
        for fact in read_facts(record.text)
    )


async def check_prefix(place: Path, manifest: Manifest, prefix: list[JournalRecord], steps: Any) -> None:
    """Compare what a dry run of a journal says with what a resume of it does."""
    with Journal.open(place) as journal:
        journal.import_tree(manifest, prefix)
    known = open_calls(manifest, prefix)
    keys = {key for _, key in known.values()}
    said = await StoredTrees(place).dry_resume(manifest.tree_id)
    RAN.clear()
    ASKED.clear()
    tree = await SessionTree.resume(
        manifest.tree_id, model=doing(steps), tools=LOGGED, state_dir=place, backend="local"
    )
    async with tree:
        await until(tree, RunFinished, session="main")
        if keys:  # Main may have ended its run while a program waited
            await until(tree, CallResolved, count=len(keys), where=lambda fact: fact.key in keys)
        resolved = await facts_of(tree, CallResolved)
    where = f"of {len(prefix)} facts"
    ran = sorted(known[call_id] for call_id in RAN if call_id in known)
    runs = {"begins", "repeats"}
    foretold = [each for each in said.calls if each.becomes in runs and each.tool in NAMES]
    assert ran == sorted((each.session, each.key) for each in foretold), where
    unknown = {each.key for each in said.calls if each.becomes == "unknown"}
    lost = {fact.key for fact in resolved if fact.outcome == "unknown"}
    assert unknown == {key for _, key in known.values() if key in lost}, where
    said_by_main = [fact for each in prefix if each.session == "main" for fact in read_facts(each.text)]
    is_over = any(isinstance(fact, RunFinished) for fact in said_by_main)
    assert is_over or any(each.question or each.calls for each in said.sessions), f"nothing goes on {where}"
    firsts: dict[str, int] = {}
    for session, turn in ASKED:
        firsts.setdefault(session, turn)
    for each in said.sessions:
        if each.question is not None:
            assert firsts[each.session] == each.question.turn, where
        else:
            assert firsts.get(each.session, math.inf) > each.served_replies, where
        is_busy = each.question is not None or bool(each.calls)
        assert is_busy or not each.messages, f"a message starts nothing {where}"
        children = sum(other.session.startswith(f"{each.session}/") for other in said.sessions)
        assert sum(call.becomes == "child" for call in each.calls) <= children, f"a child has ended {where}"


def open_calls(manifest: Manifest, prefix: Sequence[JournalRecord]) -> dict[str, tuple[str, str]]:
    """Return the sessions and keys of the calls without a result, by the ids that their tools get."""
    config = read_config(manifest.row0)
    state = make_initial_tree()
    texts: dict[str, list[str]] = {}
    for record in prefix:
        if record.session:
            texts.setdefault(record.session, []).append(record.text)
        else:
            evolve(state, read_fact(record.text))
    found: dict[str, tuple[str, str]] = {}
    for name, own in texts.items():
        key = compute_session_key(config.nonce, name)
        held = replay_session(state.sessions[name].spec, config.limits, own, key)
        found |= {SessionIds(name, key).call(each): (name, each) for each in held.calls}
    return found


async def check_steps(steps: Sequence[Step], every: int) -> None:
    """Compare both for one tree, killed after every so many of its commits."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        manifest, records = await recorded(place, steps)
        for number, cut in enumerate(cuts_of(records)[::every]):
            await check_prefix(place / f"again{number}", manifest, records[:cut], steps)


def foretold_is_run() -> None:
    """For generated trees that are killed anywhere."""

    @SEARCH
    @example(steps=[("spawn", "note")], every=1)
    @given(steps=STEPS, every=st.just(5))
    def check(steps: Sequence[Step], every: int) -> None:
        asyncio.run(check_steps(steps, every))

    check()


@pytest.mark.covers("STO16")
def test_resume_runs_what_its_dry_run_says() -> None:
    """Calls, replies and unknown outcomes, also of programs and children."""
    foretold_is_run()


def _recovers_nothing(state: SessionState, stimulus: stimuli.Stimulus) -> Any:
    return ([], []) if isinstance(stimulus, stimuli.Recovered) else react(state, stimulus)


def _repeats_everything(state: SessionState, stimulus: stimuli.Stimulus) -> Any:
    for call in state.calls.values():
        if call.checked is not None:
            call.checked = replace(call.checked, repeatable=True)
    return react(state, stimulus)


@pytest.mark.parametrize("planted", [_recovers_nothing, _repeats_everything])
def test_dry_run_of_other_rules_is_found(planted: React, monkeypatch: pytest.MonkeyPatch) -> None:
    """The property fails where the forecast is not the rules' own."""
    monkeypatch.setattr(dry_run, "react", planted)
    with pytest.raises(AssertionError, match=r"of \d+ facts"):
        foretold_is_run()


async def test_dry_run_writes_nothing_and_says_what_is_known_of_costs(open_tree: Opener) -> None:
    """Of a fork, too: what had begun is unknown there. The price is that of the agent."""
    price = ModelPrice(input_per_million=1.0, output_per_million=10.0)
    launching = FunctionModel(lambda request: script_call("launch", text="moon"))
    tree = await open_tree(launching, tools=LOGGED, budget=Budget(tokens=500)).start()
    tree.main.send("go")
    await asked(tree)
    stored = StoredTrees(tree.state_dir)
    before = await records_of(tree)
    for said in (await stored.dry_resume(tree.tree_id), await stored.dry_fork(tree.tree_id)):
        (call,) = said.calls
        assert (call.key, call.tool, call.becomes) == ("1.0", "launch", "approval")
        (main,) = said.sessions
        assert (main.served_replies, main.question, said.most_usd) == (1, None, 0)
        assert main.budget_left["tokens"] <= 500
    assert await records_of(tree) == before
    await tree.close()
    echo = FunctionModel(lambda request: "never")
    other = await open_tree(echo).start()
    async with other:
        await other.main.send("go")
    said = await stored.dry_resume(other.tree_id, prices={"default": price})
    assert (said.calls, said.most_usd) == ((), 0)


def test_cost_of_a_question_is_known_where_its_size_and_price_are() -> None:
    """A conversation that no provider has counted has no known size."""
    state = make_initial_state(spec(), Limits())
    state.asking, state.turn = True, 2
    price = ModelPrice(input_per_million=1.0, output_per_million=10.0)
    found = dry_run.build_dry_question(state, price)
    assert (found.most_input_tokens, found.most_output_tokens, found.most_usd) == (None, 8_192, None)
    state.transcript.append(AssistantMessage((TextContent("ok"),), usage=Usage(900, 100)))
    found = dry_run.build_dry_question(state, price)
    assert (found.most_input_tokens, found.most_usd) == (1_000, (1_000 + 81_920) / 1e6)
    assert dry_run.build_dry_question(state, None).most_usd is None
