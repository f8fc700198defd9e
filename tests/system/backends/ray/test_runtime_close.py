"""A runtime closed under its trees, twice at once, ends them in words and leaves the program running."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import asyncio, sys
import ray
from sessiontree import Runtime, ScriptedModel, SessionTree

workspace, state_dir = sys.argv[1:]


async def told(what):
    try:
        print(await what)
    except Exception as error:
        print(type(error).__name__)


async def main():
    runtime = Runtime(state_dir, slots=1)
    model = ScriptedModel(["here"] * 3)
    tree = SessionTree(workspace, model=model, runtime=runtime)
    starting = asyncio.create_task(tree.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    tree = SessionTree(workspace, model=model, runtime=runtime)
    await tree.start()
    await told(tree.main.send("hello"))
    waiting = asyncio.create_task(runtime.backend.supervisor.result(tree.tree_id, "main"))
    given_up = asyncio.create_task(runtime.backend.supervisor.result(tree.tree_id, "main"))
    await asyncio.sleep(0.1)
    given_up.cancel()
    await asyncio.wait([asyncio.create_task(runtime.close()) for _ in range(2)])
    await told(waiting)
    await told(tree.main.send("hello?"))
    await told(SessionTree(workspace, model=model, runtime=runtime).start())
    await tree.close()
    await runtime.close()
    print(ray.is_initialized())


asyncio.run(main())
"""


@pytest.mark.long
def test_runtime_closed_twice_at_once_under_its_tree(tmp_path: Path) -> None:
    """Who waits is informed, nothing starts another Ray, and Ray's end does not end the program."""
    (tmp_path / "workspace").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "workspace"), str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = ["here", "SessionClosed", "SessionClosed", "SessionTreeError", "False"]
    assert done.stdout.split()[-len(told) :] == told
