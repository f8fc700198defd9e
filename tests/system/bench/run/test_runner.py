"""Runs of suites: every sample is scored once, whatever its solver, its tree or its program do."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sessiontree import (
    AgentSpec,
    Budget,
    ConfigError,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    Rule,
    ScriptedModel,
    SessionHandle,
    SessionTree,
    SessionTreeError,
    ShardLost,
    SupervisorUnavailable,
    script_call,
    tool,
)
from sessiontree.bench import Attempt, Sample, Score
from sessiontree.runtime.supervisor.process.collection_interval import YOUNG
from tests.system.bench.suite_fixtures import ECHO, Heard, ended, exact, rows, samples, solve, suite

LOCAL: dict[str, Any] = {"backend": "local"}


@pytest.mark.covers("SUI1")
@pytest.mark.slow
@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.long)])
async def test_every_sample_is_scored_once(tmp_path: Path, count: int) -> None:
    """All epochs of all samples, with what their trees used; a second run finds nothing to do."""
    heard, both = Heard(), 2 * count
    summary = await ended(suite(count, epochs=2), tmp_path / "run", heard=heard, **LOCAL)
    assert (summary.total, summary.scored, summary.passed, summary.failed) == (both, both, both, 0)
    assert summary.cost_usd == pytest.approx(0.01 * both)
    assert len(rows(tmp_path / "run", "SELECT 1 FROM scores WHERE sessions = 1 AND turns = 1")) == both
    assert len(rows(tmp_path / "run", "SELECT 1 FROM sessions WHERE status = 'completed'")) == both
    assert heard.lines == [f"all {both} samples are scored"]
    assert (heard.paces[-1].done, heard.paces[-1].passed) == (both, both)
    again = Heard()
    assert (await ended(suite(count, epochs=2), tmp_path / "run", heard=again, **LOCAL)).scored == both
    assert again.results == []
    assert list((tmp_path / "run" / "workspaces").iterdir()) == []


async def test_garbage_is_looked_for_less_often_during_a_run(tmp_path: Path) -> None:
    """Python's own threshold would take an eighth of its processor time."""
    seen: list[int] = []

    async def look(attempt: Attempt[str]) -> str:
        seen.append(gc.get_threshold()[0])
        return await solve(attempt)

    assert (await ended(suite(1, solver=look), tmp_path / "run", **LOCAL)).passed == 1
    assert seen == [max(YOUNG, *seen)]


@pytest.mark.slow
async def test_larger_limit_goes_on(tmp_path: Path) -> None:
    """The first samples are not solved again."""
    assert (await ended(suite(6), tmp_path / "run", limit=2, **LOCAL)).scored == 2
    heard = Heard()
    summary = await ended(suite(6), tmp_path / "run", heard=heard, **LOCAL)
    assert summary.scored == 6
    assert sorted(lease.sample_id for lease, _ in heard.results) == ["s2", "s3", "s4", "s5"]


async def test_agent_solves(tmp_path: Path) -> None:
    """Main runs as it, is sent the input, and its reply is the output."""
    told: list[str] = []

    def reply(request: ModelRequest) -> str:
        told.append(request.system_prompt)
        return request.messages[-1].text

    agent = AgentSpec(prompt="Repeat it.")
    summary = await ended(suite(1, solver=agent, model=FunctionModel(reply)), tmp_path / "run")
    assert summary.passed == 1
    assert "Repeat it." in told[0]


@pytest.mark.parametrize("where", ["solver", "scorer", "group"])
async def test_error_decides_nothing_and_is_shown(tmp_path: Path, where: str) -> None:
    """It is reported with the sample, the tree and the command that shows it; others are scored."""

    async def broken(attempt: Attempt[str]) -> str:
        if where == "solver" and attempt.sample.id == "s1":
            raise KeyError("planted")
        if where == "group" and attempt.sample.id == "s1":
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        return await solve(attempt)

    async def fail() -> None:
        raise KeyError("planted")

    def judge(attempt: Attempt[str]) -> bool:
        if where == "scorer" and attempt.sample.id == "s1":
            raise KeyError("planted")
        return exact(attempt)

    heard = Heard()
    summary = await ended(suite(solver=broken, scorers=judge), tmp_path / "run", heard=heard, **LOCAL)
    assert (summary.scored, summary.passed, summary.undecided) == (2, 2, 1)
    assert "1 of 3 samples ended in an error" in summary.why
    ((tree_id,),) = rows(tmp_path / "run", "SELECT tree_id FROM scores WHERE status = 'error'")
    (line,) = [line for line in heard.lines if "KeyError" in line]
    assert "'s1'" in line
    assert "planted" in line
    assert tree_id in line
    assert f"sessiontree bench show {tmp_path / 'run'} s1" in line


async def test_errors_are_logged_where_nobody_asked_for_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A script and a cell show them on standard error."""

    async def broken(attempt: Attempt[str]) -> str:
        raise KeyError("planted")

    await suite(1, solver=broken).run(tmp_path / "run", **LOCAL)
    traced, found, _ = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "in broken" in str(traced.exc_text)
    assert "sample 's0', epoch 1: KeyError: 'planted'; tree t" in found.getMessage()


@pytest.mark.slow
async def test_late_sample_is_stopped_and_scored(tmp_path: Path) -> None:
    """Its status says why; a solver's own TimeoutError is an error like any other."""
    judged: list[str] = []

    async def slow(attempt: Attempt[str]) -> str:
        if attempt.sample.id == "s0":
            await asyncio.get_running_loop().create_future()
        if attempt.sample.id == "s1":
            raise TimeoutError("its own")
        return await solve(attempt)

    def judge(attempt: Attempt[str]) -> bool:
        judged.append(attempt.sample.id)
        return exact(attempt)

    await suite(solver=slow, scorers=judge).run(tmp_path / "run", sample_timeout_s=3.0, **LOCAL)
    found = dict(rows(tmp_path / "run", "SELECT sample_id, status FROM scores"))
    assert found == {"s0": "timeout", "s1": "error", "s2": "completed"}
    assert sorted(judged) == ["s0", "s2"]


async def test_spent_budget_is_the_samples(tmp_path: Path) -> None:
    """A sample whose tree used up the suite's budget has that status."""
    model = FunctionModel(lambda request: script_call("nothing"))

    @tool
    async def nothing() -> str:
        """Do nothing."""
        return "nothing"

    found = suite(1, model=model, budget=Budget(tool_calls=2), tree={"tools": [nothing]})
    await found.run(tmp_path / "run", **LOCAL)
    assert rows(tmp_path / "run", "SELECT status, passed FROM scores") == [("budget", 0)]


async def test_supervisor_that_restarts_costs_no_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it has no answer while a tree opens, for the solver, or while the tree is finished."""
    restarting = SupervisorUnavailable("the supervisor to report", "it is being restarted")
    away = {"s0"}

    async def curious(attempt: Attempt[str]) -> str:
        if attempt.sample.id in away:
            away.discard(attempt.sample.id)
            raise restarting
        return await solve(attempt)

    opened: list[str] = []
    start = SessionTree.start

    async def late(tree: SessionTree) -> SessionTree:
        opened.append(tree.tree_id)
        if len(opened) == 2:
            raise restarting
        return await start(tree)

    def status(handle: object) -> NoReturn:
        raise restarting

    monkeypatch.setattr(SessionTree, "start", late)
    monkeypatch.setattr(SessionHandle, "status", status)
    found = await ended(suite(3, solver=curious), tmp_path / "run", concurrency=1, **LOCAL)
    assert (found.scored, found.passed, found.failed) == (3, 3, 0)
    outcomes = rows(tmp_path / "run", "SELECT outcome, count(*) FROM attempts GROUP BY outcome")
    assert dict(outcomes) == {"error": 2, "scored": 3}


@pytest.mark.slow
async def test_infrastructure_errors_are_never_scored(tmp_path: Path) -> None:
    """The sample waits again, and is tried by itself; after too many more losses it has failed."""
    lost = ShardLost("a node", "its supervisor ended")

    async def unlucky(attempt: Attempt[str]) -> str:
        if attempt.sample.id == "s0" and attempt.number <= 2:
            raise lost
        if attempt.sample.id == "s1" and attempt.number <= 5:
            raise ValueError("wrapped") from lost
        return await solve(attempt)

    heard = Heard()
    unlucky_suite = suite(4, solver=unlucky)
    options = {"concurrency": 1, **LOCAL}
    summary = await ended(unlucky_suite, tmp_path / "run", retries=3, heard=heard, **options)
    assert (summary.scored, summary.passed, summary.failed) == (3, 3, 1)
    assert "1 of 4 samples have failed" in summary.why
    assert len([line for line in heard.lines if "is not scored: ShardLost" in line]) == 7
    summary = await ended(unlucky_suite, tmp_path / "run", retries=9, **options)
    assert (summary.scored, summary.passed, summary.failed) == (4, 4, 0)
    outcomes = rows(tmp_path / "run", "SELECT outcome, count(*) FROM attempts GROUP BY outcome")
    assert dict(outcomes) == {"error": 7, "scored": 4}


@pytest.mark.slow
async def test_cost_of_a_run_is_capped(tmp_path: Path) -> None:
    """No more is leased once the money is used; the same call with more of it goes on."""

    async def two_cents(attempt: Attempt[str]) -> str:
        await attempt.tree.main.send("first")
        return await solve(attempt)

    costly = suite(6, solver=two_cents)
    summary = await ended(costly, tmp_path / "run", max_cost_usd=0.095, concurrency=2, **LOCAL)
    assert 2 <= summary.scored <= 4
    assert summary.cost_usd <= 0.095 + 2 * 0.01  # the next reply of a model in the session is not held back
    assert "the same command with a larger maximum cost goes on" in summary.why
    assert rows(tmp_path / "run", "SELECT 1 FROM scores WHERE NOT passed") == []
    summary = await ended(costly, tmp_path / "run", max_cost_usd=9.0, **LOCAL)
    assert (summary.scored, summary.passed) == (6, 6)


@tool(tier=PermissionTier.ELEVATED)
async def launch(what: str) -> str:
    """Do something that needs an approval."""
    return f"launched {what}"


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        ({}, {"s1": 0, "s2": 0}),
        ({"approvals": "auto"}, {"s1": 1, "s2": 1}),
        ({"rules": [Rule(tool="launch", where={"/what": "s1"}, answer="approve")]}, {"s1": 1, "s2": 0}),
        (
            {"approvals": "smart", "rules": [Rule(tool="launch", where={"/what": "s1"}, answer="approve")]},
            {"s1": 1, "s2": 0},
        ),
    ],
    ids=["never", "auto", "rules", "smart"],
)
async def test_approvals_are_decided_by_rule(
    tmp_path: Path, options: Mapping[str, Any], passed: Mapping[str, int]
) -> None:
    """Nobody is asked, and nothing waits."""

    def reply(request: ModelRequest) -> Any:
        return (
            script_call("launch", what=request.messages[-1].text)
            if request.turn == 1
            else request.messages[-1].text
        )

    asked = [Sample(name, name, f"launched {name}") for name in ("s1", "s2")]
    found = suite(samples=asked, model=FunctionModel(reply), tree={"tools": [launch]}, **options)
    await found.run(tmp_path / "run", **LOCAL)
    assert dict(rows(tmp_path / "run", "SELECT sample_id, passed FROM scores")) == passed


async def test_suite_makes_trees_and_models_for_an_attempt(tmp_path: Path) -> None:
    """An async ``tree`` fills the attempt's state; a model of the suite is made after it, by name."""

    async def tree(attempt: Attempt[str]) -> dict[str, Any]:
        attempt.state["said"] = f"{attempt.sample.input}, epoch {attempt.epoch}"
        return {"builtin_tools": False}

    found = suite(
        2,
        tree=tree,
        model=None,
        models={"truth": lambda attempt: ScriptedModel([attempt.state["said"]])},
        scorers=[lengthy, first_word],
    )
    summary = await ended(found, tmp_path / "run", model="truth", **LOCAL)
    assert summary.passed == 2
    texts = rows(tmp_path / "run", "SELECT scores, output FROM scores ORDER BY sample_id")
    assert texts[1][1] == '"say 1, epoch 1"'
    assert '"first_word": {"value": 0.5, "passed": true' in texts[0][0]


def lengthy(attempt: Attempt[str]) -> float:
    """Judge the length."""
    return len(attempt.output) > 5


async def first_word(attempt: Attempt[str]) -> Score:
    """Judge a word, half."""
    return Score(0.5, passed=attempt.output.startswith("say"), answer="say")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"count": 2}, "are not in the suite"),
        ({"model": FunctionModel(lambda _: "", name="other")}, "model was 'echo' and is 'other'"),
        ({"scorers": lengthy}, "scorer exact is gone"),
        ({"budget": Budget(tokens=9)}, "budget was"),
    ],
    ids=["samples", "model", "scorers", "budget"],
)
async def test_another_run_in_the_same_directory_is_refused(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    """The error names what differs, and nothing changes."""
    await suite().run(tmp_path / "run", **LOCAL)
    with pytest.raises(ConfigError, match=said):
        await suite(**changed).run(tmp_path / "run", **LOCAL)
    assert len(rows(tmp_path / "run", "SELECT 1 FROM scores")) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("count", "at_once"), [(8, 2), pytest.param(40, 4, marks=pytest.mark.long)])
async def test_two_programs_share_the_samples(tmp_path: Path, count: int, at_once: int) -> None:
    """Each has a ledger and a runtime of its own; together they score everything once."""
    heard = [Heard(), Heard()]
    async with asyncio.TaskGroup() as group:
        for each in heard:
            group.create_task(ended(suite(count), tmp_path / "run", heard=each, concurrency=at_once, **LOCAL))
    done = [lease.sample_id for each in heard for lease, _ in each.results]
    assert sorted(done) == sorted(each.id for each in samples(count))
    assert all(each.results for each in heard)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"keep": "some"}, "keep 'some' is not one of"),
        ({"epoch": 2}, "a run takes no option 'epoch'; did you mean 'epochs'"),
        ({"model": "nobody"}, "no model is called 'nobody'"),
        ({"max_cost_usd": -1}, "give US dollars above 0"),
        ({"max_cost_usd": 10**400}, "max_cost_usd is 10*…; give US dollars above 0"),
        ({"concurrency": 200_000}, "concurrency is 200000; give a whole number from 1 to 100,000"),
        ({"limit": 10**20}, "limit is 10*; give a whole number from 1 to 100,000,000"),
        ({"epochs": 2**63}, "epochs is .*; give a whole number from 1 to 100,000,000"),
        ({"epochs": 50_000_000}, "samples times epochs is .*; give at most 100,000,000"),
    ],
    ids=str,
)
async def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    """Before anything begins."""
    with pytest.raises(ConfigError, match=said):
        await suite().run(tmp_path / "run", **{**LOCAL, **options})


async def test_run_without_a_model_or_with_a_wrong_tree_ends_with_one_error(tmp_path: Path) -> None:
    """No sample is scored for it, and the corrected suite goes on."""
    with pytest.raises(ConfigError, match="names no model"):
        await suite(model=None).run(tmp_path / "none", **LOCAL)
    with pytest.raises(ConfigError, match="SessionTree takes no option 'tool'; did you mean 'tools'"):
        await suite(tree={"tool": []}).run(tmp_path / "run", **LOCAL)
    assert rows(tmp_path / "run", "SELECT DISTINCT state FROM samples") == [("waiting",)]
    assert (await ended(suite(), tmp_path / "run", **LOCAL)).scored == 3


async def test_tree_is_closed_after_its_attempt(tmp_path: Path) -> None:
    """What kept the attempt finds no open tree."""
    kept: list[Attempt[str]] = []

    async def keep(attempt: Attempt[str]) -> str:
        kept.append(attempt)
        return await solve(attempt)

    await suite(1, solver=keep).run(tmp_path / "run", **LOCAL)
    with pytest.raises(SessionTreeError, match="open only while"):
        _ = kept[0].tree
    assert kept[0].model is ECHO
