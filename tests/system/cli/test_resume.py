"""Finding one's tree again: ``sessiontree resume`` without an id or by a part of it, and the list."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from sessiontree import ScriptedModel, SessionTree
from tests.system.cli.command_fixtures import Program
from tests.system.cli.provider_fixtures import Serve

BACKEND = ("--model", "openai:gpt-5", "--backend", "local")
REFUSED = {"status": 401, "error": "no such key"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program) -> Path:
    """A workspace that is the working directory, with the state in its usual place."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    monkeypatch.chdir(workspace)
    return workspace


async def leave_open(workspace: Path, state: Path) -> str:
    """Open a tree as a program does, use it, close it, and return its id."""
    tree = SessionTree(workspace, model=ScriptedModel(["hello"]), state_dir=state, backend="local")
    async with tree:
        await tree.main.send("say\nhello")
        return tree.tree_id


def state_dir_of(program: Program) -> Path:
    """Return the one state directory that was made."""
    (place,) = (program.state_home / "sessiontree").iterdir()
    return place


def test_newest_unfinished_tree_is_resumed(program: Program, serve: Serve, here: Path) -> None:
    """The last line is the plain command; trees that ended, or that a program left open, are passed over."""
    serve({"text": "First."}, REFUSED, {"text": "All is well."}, {"text": "Again."})
    assert program.call("run", "one", *BACKEND).code == 0
    done = program.call("run", "two", *BACKEND)
    assert done.code == 1
    assert done.err.splitlines()[-1].endswith("go on with: sessiontree resume")
    place = state_dir_of(program)
    program_tree = asyncio.run(leave_open(here, place))
    done = program.call("resume", "--backend", "local")
    assert (done.code, done.out) == (0, "All is well.\n")
    assert done.err.splitlines()[-1].endswith("show it: sessiontree show)")
    listed = json.loads(program.call("tree", "--list", "--json").out)["trees"]
    assert [each["state"] for each in listed] == ["completed", "completed", "left open"]
    assert listed[2]["task"] == "say\nhello"
    assert listed[2]["purpose"]
    shown = program.call("tree", "--list").out
    assert f"{listed[2]['purpose']}: say hello" in shown
    done = program.call("resume")
    assert (done.code, done.out) == (2, "")
    assert program_tree in done.err
    assert "SessionTree.resume" in done.err


def test_tree_is_found_by_a_part_of_its_id(program: Program, serve: Serve, here: Path) -> None:
    """In ``resume`` and wherever a tree is named; a part that fits none or several is one typed line."""
    serve(REFUSED, {"text": "All is well."})
    assert program.call("run", "two", *BACKEND).code == 1
    (tree,) = json.loads(program.call("tree", "--list", "--json").out)["trees"]
    part = tree["tree"][:7]
    assert f"tree {tree['tree']}" in program.call("tree", "--tree", part).out
    assert program.call("replay", part).code == 0
    done = program.call("resume", part, "--backend", "local")
    assert (done.code, done.out) == (0, "All is well.\n")
    for words, error in ((("t000",), "begins with 't000'"), (("nowhere",), "begins with 'nowhere'")):
        done = program.call("resume", *words)
        assert (done.code, done.out) == (2, "")
        assert error in done.err
        assert len(done.err.splitlines()) == 1
    for _ in range(2):
        asyncio.run(leave_open(here, state_dir_of(program)))
    done = program.call("show", "t")
    assert (done.code, "the ids of 3 trees begin with 't'" in done.err) == (2, True)


def test_nothing_to_resume_is_said(program: Program, serve: Serve, here: Path) -> None:
    """A new folder, and one where every tree has ended."""
    done = program.call("resume")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("sessiontree: nothing ran here yet: ")
    assert not any(here.iterdir())
    serve({"text": "First."})
    assert program.call("run", "one", *BACKEND).code == 0
    done = program.call("resume")
    assert (done.code, done.out) == (2, "")
    assert "no tree here can be resumed: each has ended" in done.err
