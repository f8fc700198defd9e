"""The runtime's actor on another node: what it refuses before anything is made, and what it waits for."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sessiontree.backends.ray.commands.remote_node import release
from sessiontree.backends.ray.engine.program_copy import read_files
from sessiontree.backends.ray.hosts.node_agent import AgentPlan, NodeAgent
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


def test_directory_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    """Whoever guesses the path can't read reports or plant modules: the node is refused instead."""
    open_to_all, link, file, own = (tmp_path / name for name in ("open", "link", "file", "own"))
    own.mkdir(0o700)
    open_to_all.mkdir()
    open_to_all.chmod(0o770)
    link.symlink_to(own)
    file.touch(0o600)
    foreign = Path("/proc/1/fd") if os.getuid() else tmp_path / "foreign"  # both belong to another user
    if not os.getuid():
        foreign.mkdir(0o700)
        os.chown(foreign, 65534, 65534)
    for path, reason in [
        (open_to_all, "other users have rights to it (mode 770)"),
        (link, "it is not a directory"),
        (file, "it is not a directory"),
        (foreign, "it belongs to user "),
    ]:
        found = NodeAgent().take(path)
        assert found is not None
        assert found.startswith(f"the runtime's directory {str(path)!r} is there already, and {reason}")
    assert names_in(own) == []


async def test_own_directory_of_another_node_is_used(tmp_path: Path) -> None:
    """Nodes of one machine share it; only the agent that made it removes it."""
    own = tmp_path / "own"
    own.mkdir(0o700)
    agent = NodeAgent()
    assert agent.take(own) is None
    await agent.close()
    assert names_in(own) == ["reports"]


async def test_copy_that_was_cut_short_is_written_again(tmp_path: Path) -> None:
    """A file that can't be written leaves nothing that counts as the program's modules."""
    own = tmp_path / "own"
    own.mkdir(0o700)
    agent = NodeAgent()
    assert agent.take(own) is None
    whole = {"one.py": b"1", "pack/two.py": b"2"}
    with pytest.raises(OSError, match="too long"):
        await agent.receive("modules", {"one.py": b"1", "x" * 300: b"2"})
    assert names_in(own) == ["reports"]
    await agent.receive("modules", whole)
    await agent.receive("modules", {"other.py": b"it is there already"})
    assert read_files(own / "modules") == whole
