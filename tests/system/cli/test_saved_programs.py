"""Saved programs on the command line: listed, checked, run, saved from a run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from sessiontree import FunctionModel, PolicyConfig, SessionTree, ToolPolicy
from tests.system.cli.command_fixtures import Program

COUNT = '''"""Counts the letters of a file.

---
tools: [read]
agents: [scout]
budget: {tool_calls: 20}
---
"""


async def main(path: str, times: int = 1, mark: str = "") -> str:
    text = await read(path=path)
    return mark + str(len(text.strip()) * times)
'''
CODE = """
words = [word.upper() for word in names]
text = '''first
  second'''
kept = await read(
    path="a.txt"
)
[words,
 text, kept]
"""


@pytest.fixture
def place(tmp_path: Path, program: Program) -> Path:
    """The owner's folder of programs, next to a workspace with a file."""
    folder = program.config_home / "sessiontree" / "programs"
    folder.mkdir(parents=True)
    (folder / "count.py").write_text(COUNT)
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "a.txt").write_text("hello\n")
    return folder


def test_programs_are_listed_with_those_that_are_refused(place: Path, program: Program) -> None:
    """A file that can't be used is named with its line, and stops no other one."""
    (place / "bad.py").write_text('"""Bad."""\n\n\nasync def main(path): ...\n')
    done = program.call("program", "list")
    assert done.code == 0
    assert "count    read   Counts the letters of a file." in done.out
    assert "bad.py:4: parameter path has no type" in done.out
    told = json.loads(program.call("program", "list", "--json").out)
    assert [each["name"] for each in told["programs"]] == ["count"]
    assert told["programs"][0]["budget"]["tool_calls"] == 20
    assert [each["line"] for each in told["refused"]] == [4]


def test_program_is_checked_for_an_agent(tmp_path: Path, place: Path, program: Program) -> None:
    """Tools, tiers and approvals are shown; what is missing or of the wrong type makes the exit code 1."""
    where = ("--workspace", tmp_path / "workspace")
    agents = place.parent / "agents"
    agents.mkdir()
    (agents / "scout.md").write_text("---\ntools: read\n---\n\nLook.\n")
    done = program.call("program", "check", place / "count.py", "--agent", "scout", *where)
    assert done.code == 0, done.out + done.err
    assert "read  ReadOnly  runs" in done.out
    (place / "count.py").write_text(
        COUNT.replace("[read]", "[read, exec, raed]").replace("path=path", "path=5")
    )
    told = json.loads(
        program.call("program", "check", place / "count.py", "--agent", "scout", "--json", *where).out
    )
    assert not told["fits"]
    assert "count.py:12" in told["faults"]
    assert [(each["name"], each["approval"]) for each in told["tools"]] == [
        ("read", "runs"),
        ("exec", None),
        ("raed", None),
    ]
    assert "did you mean 'read'" in told["tools"][2]["why_not"]
    (place / "count.py").write_text("1 +\n")
    done = program.call("program", "check", place / "count.py", *where)
    assert (done.code, "count.py:1: it is not Python" in done.out) == (1, True)


def test_program_runs_without_a_model(tmp_path: Path, place: Path, program: Program) -> None:
    """Its value is the answer; inputs are checked against its main before a tree is opened."""
    run = ("run", "--backend", "local", "--workspace", tmp_path / "workspace", "--program")
    done = program.call(*run, "count", "--input", "path=a.txt", "--input", "times=3", "--input", "mark=7")
    assert (done.code, done.out) == (0, '"715"\n'), done.err
    for options, reason in {
        ("coutn",): "did you mean 'count'",
        ("count",): "path required",
        ("count", "--input", "path=a.txt", "--input", "times=few"): "times: the value is not of type",
        ("count", "--input", "path"): "write --input name=value",
        ("count", "task", "--input", "path=a.txt"): "--program and a task are given",
    }.items():
        done = program.call(*run, *options)
        assert (done.code, reason in done.err) == (2, True), done.err
    assert len(json.loads(program.call("tree", "--list", "--json", tmp_path / "workspace").out)["trees"]) == 1


async def _ran(place: Path) -> tuple[str, object]:
    policy = PolicyConfig(tools=ToolPolicy(allow=("program", "read")))
    async with SessionTree(
        place / "workspace",
        model=FunctionModel(lambda request: "done"),
        policy=policy,
        state_dir=place / "state",
        backend="local",
    ) as tree:
        return tree.tree_id, await tree.main.run_program(CODE, names=["ada"])


def test_program_of_a_run_is_saved_and_does_the_same(tmp_path: Path, place: Path, program: Program) -> None:
    """Its variables become typed parameters; a file is replaced only if that is asked for."""
    tree_id, value = asyncio.run(_ran(tmp_path))
    missing = program.call("program", "save", tree_id, "9.9", "other", "--state-dir", tmp_path / "state")
    assert missing.code == 2
    key = missing.err.rpartition("programs that it ran: ")[2].strip()
    save = ("program", "save", tree_id, key, "names", "--state-dir", tmp_path / "state")
    assert program.call(*save).code == 0
    text = (place / "names.py").read_text()
    assert "async def main(names: list[str]) -> Any:" in text
    assert 'tools: ["read"]' in text
    again = program.call(*save)
    assert (again.code, "--force" in again.err) == (2, True)
    assert program.call(*save, "--force").code == 0
    run = ("run", "--backend", "local", "--workspace", tmp_path / "workspace", "--program", "names")
    done = program.call(*run, "--input", 'names=["ada"]')
    assert json.loads(done.out) == value, done.err
