"""Messages lost, repeated and late, hosts that die: the tree comes out the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from sessiontree import CallbackChannel, Limits, SessionTree, Tool
from sessiontree.backends.local.backend import Faults
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.values.session_ids import compute_session_key
from sessiontree.journal.replay import read_fact
from sessiontree.runtime.replay.replay_check import replay_records
from sessiontree.runtime.replay.stored_trees import load_tree
from sessiontree.session.evolve import evolve
from sessiontree.session.state import make_initial_state
from tests.behaviour import household_fakes as household
from tests.behaviour.effect_fakes import TOOLS, Append, effects
from tests.behaviour.fact_fixtures import facts_of, records
from tests.unit.runtime.runtime_fakes import FaultyRuntime, KillAt, faults_of
from tests.unit.tree.tree_state_oracle import snapshot

PATIENCE_S = 60.0
AT_ONCE = 4
"""Trees that run at the same time where there are many: each mostly waits for the disk."""


def seeds(numbers: range, few: int) -> list[Any]:
    """Return the seeds of a test; a few of them are its short form."""
    return [*numbers[:few], *(pytest.param(seed, marks=pytest.mark.long) for seed in numbers[few:])]


async def run_household(
    directory: Path, faults: Faults | None, seed: int = 0, tools: Sequence[Tool[Any]] = TOOLS
) -> None:
    """Run the household to its end under faults, and check all that must hold whatever went wrong.

    The seed also chooses who answers for the model and for the person, how patient the tree is, and on how
    few slots it lives.
    """
    workspace = directory / "workspace"
    workspace.mkdir(parents=True)
    async with FaultyRuntime(directory / "state", faults, 1 + seed % 4) as runtime:
        tree = SessionTree(
            workspace,
            model=household.WAITING if seed % 2 else household.MODEL,
            tools=tools,
            approvals="always" if seed % 3 else "auto",
            channel=CallbackChannel(lambda request: True),
            limits=Limits(approval_patience_s=(None, 0, 0.002)[seed % 3]),
            runtime=runtime,
        )
        async with tree, asyncio.timeout(PATIENCE_S):
            sent = tree.main.send("go")
            await household.finished(tree)
            assert household.outcome(tree) == household.RESULTS
            assert await sent in {"waiting", household.LAST_WORD}
            await check(runtime, tree, 0 if faults is None else faults.deaths)


async def check(runtime: FaultyRuntime, tree: SessionTree, deaths: int) -> None:
    """Effects at most once, and exactly once where no host died; the journal is the live state."""
    done = household.done(Path(tree._config.workspace))
    outcomes = Counter(fact.outcome for fact in await facts_of(tree, CallResolved))
    if deaths:
        assert max(done.values(), default=0) <= 1
        assert not done - household.EFFECTS
        assert sum((household.EFFECTS - done).values()) <= outcomes["unknown"]
    else:
        assert done == household.EFFECTS
        assert outcomes.keys() == {"ok"}
    call_ids = [call_id for call_id, _ in effects(Path(tree._config.workspace))]
    assert len(call_ids) == len(set(call_ids))
    await check_replay(runtime, tree)


async def check_replay(runtime: FaultyRuntime, tree: SessionTree) -> None:
    """REL-S38, REL-S41: facts are dense, replay to what the supervisor holds, and are decided again."""
    backend = runtime.local
    await backend.core.tree(tree.tree_id).wait_until_durable()
    found = await records(tree)
    assert [record.seq for record in found] == list(range(1, len(found) + 1))
    assert all(earlier.at_ms <= later.at_ms for earlier, later in pairwise(found))
    config, replayed, _ = load_tree(backend._journal, tree.tree_id)
    assert snapshot(replayed) == snapshot(backend.core.tree(tree.tree_id).state)
    report = replay_records(config, found)
    assert report.matches, report
    for transport in backend.transports:
        runner = transport.host._runner
        if runner is not None and runner.session in replayed.sessions:
            spec = replayed.sessions[runner.session].spec
            state = make_initial_state(
                spec, replayed.limits, compute_session_key(config.nonce, runner.session)
            )
            for record in backend._journal.read_session(tree.tree_id, runner.session):
                evolve(state, read_fact(record.text))
            assert state == runner.state


@pytest.mark.covers("REL-S38")
@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(8), 2))
async def test_without_deaths_every_effect_happens_exactly_once(tmp_path: Path, seed: int) -> None:
    """Losses, repeats and delays change nothing at all."""
    await run_household(tmp_path, faults_of(seed, deaths=0), seed)


@pytest.mark.covers("EFF1")
@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(12), 3))
async def test_dying_hosts_repeat_no_effect(tmp_path: Path, seed: int) -> None:
    """Whatever a lost host owed is done again, but for effects that may have happened."""
    await run_household(tmp_path, faults_of(seed, deaths=6), seed)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
async def test_many_more_seeds(tmp_path: Path, seed: int) -> None:
    """The same over many seeds, with more deaths."""
    await run_household(tmp_path, faults_of(seed, deaths=seed % 3 * 10), seed)


@pytest.mark.slow
async def test_host_that_dies_at_one_of_a_few_points_changes_nothing(tmp_path: Path) -> None:
    """One death, at every seventeenth message."""
    for point in count(1, 17):
        faults = KillAt(point)
        await run_household(tmp_path / str(point), faults, seed=1 + point % 2)
        if not faults.deaths:
            break


class Careless(Append):
    """Says of itself, falsely, that running twice does no harm."""

    idempotent = True


@pytest.mark.slow
async def test_effect_that_is_repeated_is_found(tmp_path: Path) -> None:
    """The check fails on a call that runs again after its host died: one death somewhere shows it.

    How messages fall together differs between runs, so a death may miss every call of one run.
    """
    tools = [Careless() if tool.name == "append" else tool for tool in TOOLS]

    async def search() -> None:
        for seed in range(5):
            for point in count(12):  # before that no effect has begun
                faults = KillAt(point)
                await run_household(tmp_path / f"{seed}-{point}", faults, seed, tools)
                if not faults.deaths:
                    break

    with pytest.raises(AssertionError):
        await search()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
async def test_host_that_dies_at_any_point_changes_nothing(tmp_path: Path, seed: int) -> None:
    """One death, at every single message to the last, whoever answers for the model.

    Of two seeds that have the same model one takes the odd messages, the other the even ones.
    """
    for first in count(1 + seed // 2, 2 * AT_ONCE):
        faults = {point: KillAt(point) for point in range(first, first + 2 * AT_ONCE, 2)}
        async with asyncio.TaskGroup() as group:
            for point, each in faults.items():
                group.create_task(run_household(tmp_path / str(point), each, seed))
        if not all(each.deaths for each in faults.values()):
            break
