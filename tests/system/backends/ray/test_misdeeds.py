"""A tool that harms its process takes its own session down, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessiontree import Limits, Runtime, SessionStatus, SessionTree
from sessiontree.backends.ray.backend import RayBackend
from tests.system.backends.ray.misdeed_fakes import MODEL, TOOLS

pytestmark = pytest.mark.slow

PATIENCE_S = 180.0


def listed(folder: Path) -> list[str]:
    """Return the names in a folder."""
    return sorted(path.name for path in folder.iterdir())


CRASHES = {
    "leave": "lost 3 hosts in a row at the same step",
    "block": "a tool blocked observing",
    "grow": "bytes of memory; a host may hold",
}


@pytest.fixture
def tool_timeout_s(request: pytest.FixtureRequest) -> float:
    """A few seconds where a tool blocks its host for good, and a minute for those that get something done."""
    return 5.0 if request.node.name.endswith("[block]") else 60.0


@pytest.fixture
async def tree(ray_runtime: Runtime, tmp_path: Path, tool_timeout_s: float) -> AsyncIterator[SessionTree]:
    """A tree whose tools have that long, and five seconds more before they count as blocking their host."""
    limits = Limits(tool_timeout_s=tool_timeout_s)
    tree = SessionTree(tmp_path, model=MODEL, tools=TOOLS, limits=limits, runtime=ray_runtime)
    async with tree, asyncio.timeout(PATIENCE_S):
        yield tree


@pytest.mark.covers("C2", "I21")
@pytest.mark.parametrize(
    "misdeed", ["leave", *(pytest.param(each, marks=pytest.mark.long) for each in ("block", "grow"))]
)
async def test_misdeed_ends_its_own_session_alone(tree: SessionTree, misdeed: str) -> None:
    """The session fails, typed, with the reason; a sibling and Main go on."""
    bad = await tree.main.spawn("worker", misdeed)
    good = await tree.main.spawn("worker", "name")
    result = await bad.result()
    assert result.status is SessionStatus.FAILED
    assert CRASHES[misdeed] in result.summary
    assert (await good.result()).status is SessionStatus.COMPLETED
    assert await tree.main.send("and you?") == "still here"


@pytest.mark.covers("I19")
async def test_host_with_a_leaked_thread_serves_nobody_else(tree: SessionTree) -> None:
    """The session that leaked it ends well; its process is never given to another session."""
    leaked = (await (await tree.main.spawn("worker", "leak")).result()).summary
    others = {(await (await tree.main.spawn("worker", "name")).result()).summary for _ in range(4)}
    assert leaked not in others


@pytest.mark.covers("A37", "REL-L57")
async def test_workers_process_changes_no_file(
    tree: SessionTree, ray_runtime: Runtime, tmp_path: Path
) -> None:
    """Neither loop, threads nor subprocesses of a Worker's host; its status says what confines it."""
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    victim.chmod(0o644)
    before = victim.stat()
    worker = await tree.main.spawn("worker", "write_all")
    assert (await worker.result()).summary == "[]"
    after = victim.stat()
    assert victim.read_text() == "as it was"
    assert (after.st_mtime_ns, after.st_mode, after.st_nlink) == (before.st_mtime_ns, before.st_mode, 1)
    assert listed(tmp_path) == ["victim"]
    backend = ray_runtime.backend
    assert isinstance(backend, RayBackend)
    levels = {row.confinement for row in await backend.actors() if row.role == "observing" and row.pid}
    assert all(level.startswith("landlock-") and level.endswith("+seccomp") for level in levels)


@pytest.mark.long
async def test_branchs_process_may_write(tree: SessionTree, tmp_path: Path) -> None:
    """The same attempts succeed where nothing confines them: they are attempts indeed."""
    (tmp_path / "victim").write_text("as it was")
    branch = await tree.main.spawn("branch", "write_all")
    assert "overwrite from the loop" in (await branch.result()).summary


@pytest.mark.covers("A36", "REL-L50")
async def test_forged_and_foreign_grants_get_nothing(tree: SessionTree) -> None:
    """From inside a Worker's host, with its own grant or a made-up one: nothing comes of it."""
    worker = await tree.main.spawn("worker", "forge")
    result = await worker.result()
    assert result.summary.split() == ["SessionClosed"] * 2 + ["PermissionDenied"] * 7
    assert [line.session_id for line in tree.receipt()] == ["main", "main/w1"]
