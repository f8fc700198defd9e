"""Workers read places that were made after their hosts were confined, wherever these are."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from sessiontree import AgentSpec, FunctionModel, Runtime, SessionTree, script_call
from sessiontree.models.answers import Answer
from sessiontree.models.port import ModelRequest

PATIENCE_S = 120.0
SKILL = "---\nname: {0}\ndescription: Is {0}.\n---\nthe skill {0}\n"


def read_and_say(request: ModelRequest) -> Answer:
    """Read the paths that the task names, and reply with what was read."""
    if request.turn == 1:
        return [script_call("read", path=path) for path in request.messages[0].text.split()]
    results = [each for each in request.messages if type(each).__name__ == "ToolResultMessage"]
    return json.dumps([each.text for each in results])


def fill(workspace: Path, text: str) -> Path:
    """Make a workspace with one file."""
    workspace.mkdir(parents=True)
    (workspace / "a.txt").write_text(text)
    return workspace


def add_skill(folder: Path) -> Path:
    """Make a folder with one skill of the same name."""
    place = folder / folder.name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(SKILL.format(place.name))
    return folder


@pytest.mark.slow
@pytest.mark.covers("JAIL5")
async def test_worker_reads_what_was_made_after_its_host_was_confined(
    tmp_path: Path, ray_runtime: Runtime
) -> None:
    """State is next to the workspaces, so every directory made there later is closed to a host that runs."""

    async def look(place: Path, skills: Path, *, below: bool = False) -> list[str]:
        agents = {"default": AgentSpec(skills=(skills.name,))}
        model = FunctionModel(read_and_say)
        async with SessionTree(place, model=model, agents=agents, skills=skills, runtime=runtime) as tree:
            parent = await tree.main.spawn("branch", "a.txt") if below else tree.main
            (told,) = await parent.map("worker", [f"a.txt /skills/{skills.name}/SKILL.md"])
            texts: list[str] = json.loads(told.summary)
            return texts

    async with Runtime(tmp_path / "state", backend="ray", slots=1) as runtime, asyncio.timeout(PATIENCE_S):
        assert runtime.backend is not ray_runtime.backend
        workspace, skills = fill(tmp_path / "here", "one"), add_skill(tmp_path / "early")
        found = [await look(workspace, skills)]
        shutil.rmtree(workspace)
        found.append(await look(fill(workspace, "two"), skills, below=True))
        found.append(await look(workspace, add_skill(tmp_path / "late")))
    assert [workspace.partition("\n")[0] for workspace, _ in found] == ["one", "two", "two"]
    assert ["early" in skill for _, skill in found] == [True, True, False], found
    assert "the skill late" in found[-1][1]
