"""A tree that is left open when its event loop ends says so at once, and can still be closed."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiontree import Runtime, ScriptedModel, SessionTree, WrongLoop, script_call
from sessiontree.api.runtime.runtime_options import BackendName
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import PATIENCE_S

BACKENDS = ["local", pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.long])]
ASKS: dict[str, Any] = {
    "send": lambda tree: tree.main.send("hello"),
    "spawn": lambda tree: tree.main.spawn("worker", "look"),
    "call": lambda tree: tree.main.call("look"),
    "interrupt": lambda tree: tree.main.interrupt(),
    "cancel": lambda tree: tree.cancel(),
    "finish": lambda tree: tree.finish("over"),
    "result": lambda tree: tree.main.result(),
}
PLAIN: dict[str, Any] = {
    "status": lambda tree: tree.main.status(),
    "history": lambda tree: tree.main.history(),
    "receipt": lambda tree: tree.receipt(),
    "usage": lambda tree: tree.usage(),
    "pending": lambda tree: tree.approvals.pending(),
    "client calls": lambda tree: tree.client_calls.pending(),
}


@pytest.fixture(autouse=True)
def leftovers() -> Iterator[None]:
    """What a closed loop has lost is collected here, and warned of nowhere else."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def opened(place: Path, backend: BackendName, runtime: Runtime | None = None) -> SessionTree:
    """Open a tree in a loop that ends, and leave it open, in the middle of something."""
    workspace = place / "workspace"
    workspace.mkdir(exist_ok=True)
    given: dict[str, Any] = {"runtime": runtime}
    if runtime is None:
        given = {"state_dir": place / "state", "backend": backend}

    async def start() -> SessionTree:
        model = ScriptedModel(["hello", script_call("launch"), "done"])
        tree = await SessionTree(workspace, model=model, tools=TOOLS, **given).start()
        await tree.main.send("hi")
        tree.main.send("launch")
        return tree

    return asyncio.run(start())


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_tree_of_an_ended_loop_says_so(tmp_path: Path, backend: BackendName) -> None:
    """Whatever it is asked, at once and with what to do; closing it works, and then it can be taken up."""
    tree = opened(tmp_path, backend)
    main = None

    async def use() -> None:
        nonlocal main
        for ask in ASKS.values():
            with pytest.raises(WrongLoop, match=f"await SessionTree.resume\\('{tree.tree_id}'"):
                async with asyncio.timeout(PATIENCE_S):
                    await ask(tree)
        for ask in PLAIN.values():
            with pytest.raises(WrongLoop):
                ask(tree)
        await tree.close()
        model = ScriptedModel(["again"])
        again = await SessionTree.resume(
            tree.tree_id, model=model, tools=TOOLS, state_dir=tmp_path / "state", backend=backend
        )
        async with again:
            assert len(again.main.history()) >= 2

    asyncio.run(use())


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_handle_kept_over_the_loops_end_says_so(tmp_path: Path, backend: BackendName) -> None:
    """One that was made while all was well, too."""
    tree = opened(tmp_path, backend)

    async def use() -> None:
        with pytest.raises(WrongLoop):
            await tree.main.send("hello")
        await tree.close()
        await tree.close()

    asyncio.run(use())


@pytest.mark.slow
def test_local_runtime_of_an_ended_loop_says_so(tmp_path: Path) -> None:
    """A runtime is used by one loop; another tree in another loop is refused at once, and closing works."""
    runtime = Runtime(tmp_path / "state", backend="local")
    tree = opened(tmp_path, "local", runtime)

    async def use() -> None:
        with pytest.raises(WrongLoop, match="close it and open a new one here"):
            await SessionTree(tmp_path / "workspace", model=ScriptedModel(["x"]), runtime=runtime).start()
        await tree.close()
        await runtime.close()
        async with Runtime(tmp_path / "state", backend="local") as fresh:
            again = await SessionTree.resume(
                tree.tree_id, model=ScriptedModel(["again"]), tools=TOOLS, runtime=fresh
            )
            await again.close()

    asyncio.run(use())
