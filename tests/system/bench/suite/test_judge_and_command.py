"""Scorers that ask: a model that judges, and a command with files that no agent saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AssistantMessage,
    ConfigError,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    ToolContext,
    Usage,
    script_call,
    tool,
)
from sessiontree.bench import RunResults, command, model_graded
from sessiontree.contracts.values.messages import TextContent
from tests.system.bench.suite_fixtures import ended, rows, suite

pytestmark = pytest.mark.anyio


def judging(*said: str) -> tuple[FunctionModel, list[str]]:
    """Return a judge that says these in turn, for a dime each, and what it was asked."""
    asked: list[str] = []

    def reply(request: ModelRequest) -> AssistantMessage:
        asked.append(request.messages[-1].text)
        words = said[min(len(asked), len(said)) - 1]
        return AssistantMessage((TextContent(words),), usage=Usage(100, 20, 0.1))

    return FunctionModel(reply, name="judge"), asked


async def test_judge_gives_the_grade_and_its_cost_is_apart(tmp_path: Path) -> None:
    """The solver's figures are its own; the score, the report and the run's money have the judge's."""
    judge, asked = judging("It says so.\nGRADE: C")
    found = await ended(suite(2, scorers=model_graded(judge)), tmp_path / "run")
    assert (found.scored, found.passed) == (2, 2)
    report = RunResults(tmp_path / "run").report()
    assert report.totals.cost_usd == pytest.approx(0.02)
    assert (report.judging.asked, report.judging.input_tokens) == (2, 200)
    assert report.judging.cost_usd == pytest.approx(0.2)
    assert any(line.startswith("judging: $0.2000 for 2 scores") for line in report.render_summary())
    ((spent,),) = rows(tmp_path / "run", "SELECT value FROM run WHERE key = 'spent_usd'")
    assert float(spent) == pytest.approx(0.22)
    assert "<answer>\nsay 0\n</answer>" in asked[0]
    assert "<criterion>\nsay 0\n</criterion>" in asked[0]


async def test_judge_is_asked_again_for_a_grade(tmp_path: Path) -> None:
    """A grade that an answer holds is not the judge's; what it says last counts."""
    judge, asked = judging("I can't say.", "GRADE: P, or rather\n**GRADE: I**")
    found = await ended(suite(1, scorers=model_graded(judge)), tmp_path / "run")
    assert (found.scored, found.passed) == (1, 0)
    assert len(asked) == 2
    ((text,),) = rows(tmp_path / "run", "SELECT scores FROM scores")
    score = json.loads(text)["model_graded"]
    assert (score["value"], score["metadata"]["grade"]) == (0.0, "I")
    assert score["metadata"]["judge"]["cost_usd"] == pytest.approx(0.2)


async def test_partial_credit_is_a_half(tmp_path: Path) -> None:
    """Only where it was asked for; elsewhere it is not a grade."""
    half, _ = judging("GRADE: P")
    await ended(suite(1, scorers=model_graded(half, partial_credit=True, name="half")), tmp_path / "half")
    ((text,),) = rows(tmp_path / "half", "SELECT scores FROM scores")
    assert json.loads(text)["half"]["value"] == 0.5
    none, asked = judging("GRADE: P")
    await ended(suite(1, scorers=model_graded(none)), tmp_path / "none")
    assert len(asked) == 3
    ((said,),) = rows(tmp_path / "none", "SELECT error FROM attempts")
    assert "gave no grade in 3 replies" in said


def test_template_shows_what_is_judged() -> None:
    """One that leaves the answer out is refused."""
    with pytest.raises(ConfigError, match=r"lacks \{answer\}"):
        model_graded(template="{question} {criterion} {instructions}")


@tool(tier=PermissionTier.WORKSPACE)
async def save(text: str, ctx: ToolContext) -> str:
    """Save the answer, and set traps for whoever tests it."""
    (ctx.workspace_root / "answer.py").write_text(f"ANSWER = {text!r}\n", "utf-8")
    (ctx.workspace_root / "tests").symlink_to("/etc")
    return " ".join(sorted(each.name for each in ctx.workspace_root.iterdir()))


def saving(request: ModelRequest) -> Any:
    """Save the task's words, then say what is in the workspace."""
    text = request.messages[-1].text
    return script_call("save", text=text) if request.turn == 1 else text


CHECK = "import pathlib, sys; sys.path.insert(0, '.'); import answer; sys.exit(answer.ANSWER != 'say 0')\n"


def hidden_test(tmp_path: Path, line: str = "python3 tests/check.py", **options: Any) -> Any:
    """Return a suite of two samples, of which the first has what the hidden file wants."""
    (tmp_path / "hidden").mkdir(exist_ok=True)
    (tmp_path / "hidden/check.py").write_text(CHECK, "utf-8")
    given = {"files": {"tests": tmp_path / "hidden"}, "timeout_s": 60.0, **options}
    return suite(
        2,
        scorers=command(line, **given),
        model=FunctionModel(saving, name="saving"),
        tree={"tools": [save], "builtin_tools": False},
    )


async def test_hidden_command_decides(tmp_path: Path) -> None:
    """Its exit code is the score; the agent saw no file of it, and its links lead the copy nowhere."""
    made, run = hidden_test(tmp_path), tmp_path / "run"
    found = await ended(made, run, keep="all")
    assert (found.scored, found.passed) == (2, 1)
    by_id = {
        sample: json.loads(text)["command"]
        for sample, text in rows(run, "SELECT sample_id, scores FROM scores")
    }
    assert by_id["s0"]["metadata"]["exit_code"] == 0
    assert by_id["s1"]["metadata"]["exit_code"] == 1
    outputs = {json.loads(text) for (text,) in rows(run, "SELECT output FROM scores")}
    assert outputs == {"answer.py tests"}
    for workspace in (run / "workspaces").iterdir():
        assert (workspace / "tests").is_symlink()
        assert not list(workspace.rglob("check.py"))
    assert not list((run / "scoring").iterdir())


async def test_command_over_its_time_does_not_pass(tmp_path: Path) -> None:
    """And the score says why."""
    found = await ended(hidden_test(tmp_path, "sleep 60", timeout_s=0.5), tmp_path / "run")
    assert (found.scored, found.passed) == (2, 0)
    ((text,), _) = rows(tmp_path / "run", "SELECT scores FROM scores")
    assert json.loads(text)["command"]["metadata"]["reason"] == "timeout"


def test_wrong_commands_are_refused(tmp_path: Path) -> None:
    """Files that are not there, that lead out, and a time of nothing."""
    for files in ({"../x": tmp_path}, {"/x": tmp_path}, {"x": tmp_path / "gone"}, tmp_path / "gone"):
        with pytest.raises(ConfigError, match=r"out of the workspace|does not exist|no directory"):
            command("true", files=files)
    for line, timeout_s in ((" ", 1.0), ("true", 0.0)):
        with pytest.raises(ConfigError, match="takes a command line"):
            command(line, timeout_s=timeout_s)
