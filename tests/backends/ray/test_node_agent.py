"""The runtime's actor on another node: what it refuses before anything is made, and what it waits for."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sessiontree.backends.ray.node_agent import AgentPlan, NodeAgent, release
from sessiontree.sandbox import launcher
from sessiontree.workspace.identity import DirectoryView


@pytest.fixture
def plan(tmp_path: Path) -> AgentPlan:
    """What this machine has."""
    python, first = Path(sys.executable), Path(launcher.__file__)
    return AgentPlan(release(), python, first, tmp_path / "logs", tmp_path / "scratch", "required")


def names_in(path: Path) -> list[str]:
    """Return what a directory holds."""
    return [each.name for each in path.iterdir()]


async def test_node_without_the_installation_is_refused(plan: AgentPlan, tmp_path: Path) -> None:
    """The reason names the path that is missing, or the release that differs; nothing is made."""
    ours = release()
    for wrong, reason in [
        (replace(plan, release=(ours[0], "3.10.1", ours[2])), f"it has Python {ours[1]} instead of 3.10.1"),
        (
            replace(plan, python=Path("/nowhere/python")),
            "it has no '/nowhere/python'; install sessiontree at",
        ),
        (replace(plan, launcher=Path("/nowhere/launcher.py")), "it has no '/nowhere/launcher.py'"),
    ]:
        facts = await NodeAgent().begin(wrong)
        assert facts.refusal is not None
        assert facts.refusal.startswith(reason)
    assert names_in(tmp_path) == []


async def test_agent_says_what_it_sees(tmp_path: Path) -> None:
    """A directory is described; a missing one is a reason and not a crash."""
    assert isinstance(await NodeAgent().look(tmp_path, True), DirectoryView)
    missing = await NodeAgent().look(tmp_path / "missing", False)
    assert isinstance(missing, str)
    assert missing.startswith("no such directory can be read there: ")


async def test_agent_waits_for_the_end_of_a_reaper() -> None:
    """It returns once that process has ended, and at once for a host that it does not know."""
    agent = NodeAgent()
    words = (sys.executable, "-I", "-S", "-c", "input()")
    reaper = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE)
    await agent.hold(1, reaper.pid)
    assert await agent.ended(2) == 0
    assert reaper.returncode is None
    reaper.kill()
    assert await agent.ended(1) == 0
    assert await reaper.wait() < 0
