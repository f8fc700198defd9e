"""Rescoring: scorers judge again what a run has kept, without a model, and no score is overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError, FunctionModel, ModelRequest
from sessiontree.bench import Attempt, RunResults, Score
from sessiontree.bench.mending.rescore import Rescored, RescoreOptions, Rescoring
from tests.system.bench.suite_fixtures import Heard, rows, suite

LOCAL: dict[str, Any] = {"backend": "local", "keep": "all"}


def refuse(request: ModelRequest) -> str:
    """Answer nothing: a rescoring asks no model."""
    raise AssertionError(f"a model was asked: {request.messages[-1].text}")


async def solve(attempt: Attempt[str]) -> str:
    """Write a file, and repeat the sample; one of them fails."""
    (attempt.workspace / "said").write_text(attempt.sample.input)
    if attempt.sample.id == "s2":
        raise KeyError("planted")
    return await attempt.tree.main.send(attempt.sample.input)


def broken(attempt: Attempt[str]) -> bool:
    """Fail on one sample."""
    if attempt.sample.id == "s1":
        raise ValueError("planted")
    return False


def mended(attempt: Attempt[str]) -> Score:
    """Look at the output and the workspace."""
    said = (attempt.workspace / "said").read_text()
    (attempt.workspace / "said").write_text("judged")
    return Score(said == attempt.output == attempt.sample.target, answer=said)


broken.__name__ = mended.__name__ = "exact"


async def rescored(scorer: Any, run_dir: Path, **options: Any) -> Rescored:
    """Judge a run of the suite again."""
    judging = suite(solver=solve, scorers=scorer, model=FunctionModel(refuse, name="echo"))
    return await Rescoring(judging, run_dir, RescoreOptions(**options)).run()


@pytest.mark.slow
@pytest.mark.covers("SUI12")
async def test_kept_attempts_are_judged_again(tmp_path: Path) -> None:
    """What a scorer had failed on is decided; the workspace stays as it was; earlier scores are history."""
    run_dir = tmp_path / "run"
    await suite(solver=solve, scorers=broken).run(run_dir, progress=Heard(), **LOCAL)
    for again in range(2):
        outcome = await rescored(mended, run_dir, reason=f"mended {again}")
        assert (outcome.rescored, outcome.unsolved, outcome.kept) == (2, 1, {})
        assert (outcome.changed, outcome.decided) == ((2, 1) if again == 0 else (0, 0))
    results = RunResults(run_dir)
    assert (results.counts.scored, results.counts.undecided) == (2, 1)
    told = {row["sample_id"]: row for row in results.to_arrow().to_pylist()}
    assert {name: row["passed"] for name, row in told.items()} == {"s0": True, "s1": True, "s2": None}
    assert (told["s1"]["status"], told["s1"]["error"]) == ("completed", None)
    assert (told["s0"]["revision"], told["s0"]["made_by"]) == (3, "rescore")
    assert told["s0"]["provenance"] != told["s0"]["solver_provenance"]
    assert (told["s0"]["input"], told["s0"]["target"]) == ("say 0", '"say 0"')
    history = results.to_arrow("history").to_pylist()
    assert [(row["sample_id"], row["revision"], row["passed"], row["reason"]) for row in history] == [
        ("s0", 1, False, "mended 0"),
        ("s0", 2, True, "mended 1"),
        ("s1", 1, None, "mended 0"),
        ("s1", 2, True, "mended 1"),
    ]


@pytest.mark.slow
@pytest.mark.covers("SUI12")
async def test_what_was_not_kept_changes_no_score(tmp_path: Path) -> None:
    """A scorer that needs a workspace, state or an open tree gets an error, and the score stays."""
    run_dir = tmp_path / "run"
    await suite(2).run(run_dir, backend="local", keep="none", progress=Heard())

    def needs_workspace(attempt: Attempt[str]) -> bool:
        return (attempt.workspace / "said").exists()

    def needs_state(attempt: Attempt[str]) -> bool:
        return "desk" in attempt.state

    async def needs_tree(attempt: Attempt[str]) -> bool:
        await attempt.tree.main.send("judge yourself")
        return True

    for scorer, said in (
        (needs_workspace, "attempt.workspace was not kept"),
        (needs_state, "attempt.state"),
        (needs_tree, "the tree is over"),
    ):
        outcome = await Rescoring(suite(2, scorers=scorer), run_dir, RescoreOptions()).run()
        assert outcome.rescored == 0
        assert len(outcome.kept) == 2
        assert all(said in why for why in outcome.kept.values())
    assert rows(run_dir, "SELECT count(*) FROM past_scores") == [(0,)]
    assert RunResults(run_dir).to_arrow()["passed"].to_pylist() == [True, True]


@pytest.mark.slow
async def test_scorer_reads_the_facts_of_its_tree(tmp_path: Path) -> None:
    """Its transcript and events are there, and only chosen samples and scorers are judged."""
    run_dir = tmp_path / "run"
    await suite(2).run(run_dir, progress=Heard(), **LOCAL)

    async def spoke(attempt: Attempt[str]) -> bool:
        texts = [step.text for step in await attempt.tree.transcript()]  # type: ignore[attr-defined]
        facts = [record async for record in attempt.tree.events()]
        return attempt.sample.input in texts and len(facts) > 1

    judging = suite(2, scorers=[spoke])
    chosen = RescoreOptions(scorers=["spoke"], samples=["s1"])
    assert (await Rescoring(judging, run_dir, chosen).run()).rescored == 1
    told = RunResults(run_dir).to_arrow().to_pylist()
    names = [[score["name"] for score in row["scores"]] for row in told]
    assert names == [["exact"], ["spoke", "exact"]]
    assert told[1]["passed"] is True


@pytest.mark.slow
@pytest.mark.covers("SUI14")
async def test_only_scorers_may_have_changed(tmp_path: Path) -> None:
    """Another solver is refused by name, unless it is accepted; so is an unknown scorer."""
    run_dir = tmp_path / "run"
    await suite(1).run(run_dir, progress=Heard(), **LOCAL)
    with pytest.raises(ConfigError, match="solver solve was"):
        await rescored(mended, run_dir)
    with pytest.raises(ConfigError, match="has no scorer 'other'; it has exact"):
        await rescored(mended, run_dir, scorers=["other"])
    outcome = await Rescoring(
        suite(1, scorers=lambda_scorer()), run_dir, RescoreOptions(accept_changes=True)
    ).run()
    assert outcome.rescored == 1


def lambda_scorer() -> Any:
    """Return a scorer of another name."""

    def lengthy(attempt: Attempt[str]) -> bool:
        return len(attempt.output) > 3

    return lengthy
