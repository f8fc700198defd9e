"""``sessiontree show``: the transcript of a tree, live or closed, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessiontree import PermissionTier, Rule, ScriptedModel, SessionTree, ToolResult, script_call, tool
from sessiontree.api.stored.tree_export import import_tree
from tests.system.cli.command_fixtures import Program
from tests.system.pages.waiting_program_fixtures import waiting_program_tree
from tests.unit.golden.scenario_fixtures import HERE


@tool(tier=PermissionTier.ELEVATED)
def sweep(place: str) -> ToolResult:
    """Sweep a place.

    Args:
        place: Where.
    """
    return ToolResult(output=f"swept {place}")


@tool(tier=PermissionTier.READ_ONLY)
def divide(over: int) -> ToolResult:
    """Divide one.

    Args:
        over: By what.
    """
    return ToolResult(output=str(1 / over))


MODEL = ScriptedModel(
    {
        "main": [
            [
                script_call("read", path="missing.txt"),
                script_call("divide", over="x"),
                script_call("divide", over=0),
            ],
            [script_call("fly", height=3), script_call("sweep", place="cellar\u202e")],
            [script_call("exec", command="echo out; exit 3")],
            [script_call("sessions_spawn", kind="worker", task="look around", label="eyes")],
            "started",
            "all done",
        ],
        "main/w1": ["a note"],
    }
)


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[Path]:
    """A state directory whose tree has one failure of each kind, and is still open in this process."""
    place = tmp_path / "journal"
    tree = SessionTree(
        tmp_path,
        model=MODEL,
        tools=[sweep, divide],
        approver=[Rule(tool="sweep", answer="deny")],
        state_dir=place,
        backend="local",
        purpose="spring cleaning",
    )
    async with tree:
        await tree.main.send("go")
        await tree.session("main/w1").result()
        yield place


async def test_transcript_has_what_was_said_and_done(program: Program, state: Path) -> None:
    """Messages, calls with arguments, results, errors with reasons, exit codes, approvals, children."""
    done = program.call("show", "--state-dir", state, "--json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    steps = [(step["session"], step["what"], step["is_failure"]) for step in told["steps"]]
    for expected in (
        ("main", "message from user", False),
        ("main", "call read", False),
        ("main", "result of read (error)", True),
        ("main", "arguments of divide rejected, attempt 1", True),
        ("main", "result of divide (error)", True),
        ("main", "result of fly (error)", True),
        ("main", "approval denied by rule", True),
        ("main", "result of sweep (error)", True),
        ("main", "result of exec (exit code 3)", True),
        ("main", "spawned main/w1", False),
        ("main/w1", "reply", False),
        ("main/w1", "ended: completed", False),
        ("main", "reply", False),
    ):
        assert expected in steps, (expected, steps)
    texts = "\n".join(step["text"] for step in told["steps"])
    for words in ("missing.txt", "ZeroDivisionError", '"height": 3', "look around", "echo out; exit 3"):
        assert words in texts
    seqs = [step["seq"] for step in told["steps"]]
    assert seqs == sorted(seqs)
    text = program.call("show", "--state-dir", state)
    assert text.code == 0
    assert "\\u{202e}" in text.out
    assert text.out.replace("\n", "").isprintable()


async def test_tree_and_session_are_named_in_short(program: Program, state: Path) -> None:
    """A tree by the beginning of its id, a session by its path alone; unknown ones are one typed line."""
    tree = json.loads(program.call("show", "--state-dir", state, "--json").out)["tree"]
    for words in ((tree,), (tree[:6],), (tree[:6], "main/w1"), ("main/w1",), ("main/w1", "--json")):
        done = program.call("show", *words, "--state-dir", state)
        assert (done.code, done.err) == (0, ""), words
        assert ("main/w1: reply" in done.out) != ("--json" in words)
        assert ("main: reply" in done.out) == ("main/w1" not in words), words
    for words, error in (
        (("t000",), "TreeNotFound: "),
        (("t0000000000000000",), "TreeNotFound: "),
        (("nonsense",), "TreeNotFound: "),
        ((tree, "main/w9"), "SessionNotFound: "),
        (("main/b1",), "SessionNotFound: "),
    ):
        done = program.call("show", *words, "--state-dir", state)
        assert (done.code, done.out) == (2, ""), words
        assert done.err.startswith(f"sessiontree: {error}")
        assert len(done.err.splitlines()) == 1


def test_new_folder_has_nothing_to_show(program: Program, tmp_path: Path) -> None:
    """Every command that looks for a tree says so in one line, and makes nothing."""
    for words in (
        ("show",),
        ("show", "t12"),
        ("tree",),
        ("tree", "--list"),
        ("tree", "--follow"),
        ("approvals",),
        ("cancel",),
        ("interrupt",),
        ("chat",),
        ("journal", "export"),
        ("fork", "t12"),
    ):
        done = program.call(*words, "--state-dir", tmp_path / "none")
        assert (done.code, done.out) == (1, ""), (words, done)
        assert done.err.startswith("sessiontree: nothing ran here yet: "), (words, done.err)
        assert len(done.err.splitlines()) == 1
        assert not (tmp_path / "none").exists()


def test_golden_journals_are_shown(program: Program, tmp_path: Path) -> None:
    """Journals of this release, and of those before it."""
    for index, file in enumerate(sorted(HERE.glob("*.ndjson"))):
        place = tmp_path / str(index)
        import_tree(file, place)
        done = program.call("show", "--state-dir", place, "--json")
        assert (done.code, done.err) == (0, ""), file
        told = json.loads(done.out)["steps"]
        assert any(step["what"].startswith("message from") for step in told), file
        assert any(step["what"].startswith("result of") for step in told), file


async def test_program_is_one_step(program: Program, tmp_path: Path) -> None:
    """People see it with the lines that wait and its counts; a request stays a step; JSON has everything."""
    async with waiting_program_tree(tmp_path):
        shown = program.call("show", "--state-dir", tmp_path / "state").out
        told = json.loads(program.call("show", "--state-dir", tmp_path / "state", "--json").out)["steps"]
        child = program.call("show", "main/w1", "--state-dir", tmp_path / "state").out
    heads = [line.partition(" ")[2] for line in shown.splitlines() if line.startswith("[")]
    assert [head.partition(", request")[0] for head in heads] == [
        "main: spawned main",
        "main: message from user",
        "main: program 1.0 runs",
        "main: approval asked for publish",
    ]
    for words in ("phases: read, rate and publish", ">    7  [6 wait] ", ">   12  [1 waits] "):
        assert words in shown
    assert "map of 20: 6 running, 10 done, 1 failed, 0 lost, 3 not started" in shown
    assert "children: main/w1 to main/w17" in shown
    assert "main/w1: reply" in child
    whats = [step["what"] for step in told]
    assert sum(what.startswith("program calls sessions_spawn") for what in whats) == 17
    assert "fan-out 1 begins, map of 20" in whats
    assert "program output" not in whats
