"""A commit that fails ends every tree of the journal with a typed error; nothing hangs, nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, resource, signal, sys
from sessiontree import JournalUnwritable, Runtime, ScriptedModel, SessionTree

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
workspace, state_dir = sys.argv[1:]
model = ScriptedModel(["fine"])


async def said(what):
    try:
        async with asyncio.timeout(60):
            print(await what)
    except JournalUnwritable:
        print("unwritable")


async def main():
    runtime = Runtime(state_dir, backend="local")
    one = SessionTree(workspace, model=model, runtime=runtime)
    other = SessionTree(workspace, model=model, runtime=runtime)
    await one.start()
    await other.start()
    await said(other.main.send("before"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    await said(one.main.send("x" * 50_000))
    await said(other.main.send("after"))
    await said(other.main.spawn("worker", "after"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await one.close()
    await other.close()
    await runtime.close()
    for tree in (one, other):
        again = await SessionTree.resume(tree.tree_id, model=model, state_dir=state_dir, backend="local")
        await said(again.main.send("again"))
        await again.close()


asyncio.run(main())
"""


@pytest.mark.covers("DUR6")
@pytest.mark.slow
def test_failed_commit_ends_all_trees_of_a_runtime_and_loses_none(tmp_path: Path) -> None:
    """DUR6: who waits gets JournalUnwritable in every tree, at once; after the cause is gone both go on."""
    (tmp_path / "workspace").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "workspace"), str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["fine", "unwritable", "unwritable", "unwritable", "fine", "fine"]
    assert "Traceback" not in done.stderr
