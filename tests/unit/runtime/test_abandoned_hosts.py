"""A host on which something of a session still runs, though it was let go, serves nobody else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    FunctionModel,
    PermissionTier,
    ScriptedModel,
    SessionTree,
    Tool,
    ToolContext,
    ToolResult,
)
from sessiontree.backends.local.backend import LocalBackend, LocalTransport
from sessiontree.models.answers import script_call
from sessiontree.runtime.host.host import HostCore
from sessiontree.sandbox.process_tree import ProcessIdentity
from tests.behaviour.fact_fixtures import results
from tests.behaviour.waiting_fakes import Nothing
from tests.unit.runtime.runtime_fakes import FaultyRuntime

PATIENCE_S = 60.0


class Threadless:
    """A process in which no thread is at work."""

    def begin(self) -> None:
        """Nothing to note."""

    def is_busy(self) -> bool:
        """No thread is at work."""
        return False

    def end_leftovers(self, ending: Collection[ProcessIdentity]) -> int:
        """Commands end by themselves, and nothing else was started."""
        return 0


class OwnProcesses(LocalBackend):
    """Hosts that watch over what runs in their process."""

    def _make_transport(self, pool: str, name: str) -> LocalTransport:
        host = HostCore(self._equip, self.services, self.memory, self._hub, self._clock.now_ms, Threadless())
        transport = LocalTransport(host, None, self.transports.remove)
        self.transports.append(transport)
        return transport


class Waiting(Tool[Nothing]):
    """Waits until the test lets it end, or until it is cancelled, if it heeds that."""

    name = "waiting"
    description = "Wait."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = PermissionTier.READ_ONLY

    def __init__(self, *, heeds: bool) -> None:
        self.heeds = heeds
        self.began = asyncio.Event()
        self.ending = asyncio.Event()

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        self.began.set()
        while not self.ending.is_set():
            try:
                await self.ending.wait()
            except asyncio.CancelledError:
                if self.heeds:
                    raise
        return ToolResult("ended")


@pytest.mark.short(2)
@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("heeds", [True, False])
async def test_host_whose_call_goes_on_serves_nobody_else(tmp_path: Path, heeds: bool, calls: int) -> None:
    """A coroutine that ignores its cancellation counts as a thread does; one that heeds it costs no host."""
    runtime = FaultyRuntime(tmp_path / "state")
    await runtime.close()
    backend = runtime.backend = runtime.local = OwnProcesses(tmp_path / "state", slots=1)
    tool = Waiting(heeds=heeds)
    model = FunctionModel(lambda request: [script_call("waiting")] * calls)
    try:
        async with runtime, asyncio.timeout(PATIENCE_S):
            async with SessionTree(tmp_path, model=model, tools=[tool], runtime=runtime) as tree:
                tree.main.send("go")
                await tool.began.wait()
                (host,) = backend.transports
            async with SessionTree(tmp_path, model=ScriptedModel(["here"]), runtime=runtime) as other:
                assert await other.main.send("hello") == "here"
                assert (host in backend.transports) is heeds
    finally:
        tool.ending.set()


DEAF = "trap '' TERM; exec 3>pipe; echo begun >&3; echo half; while :; do sleep 1; done"


@pytest.mark.slow
async def test_command_that_does_not_heed_its_end_is_killed_and_costs_no_host(tmp_path: Path) -> None:
    """Its call is waited for as long as the command may take: it is cut short, not left behind."""
    runtime = FaultyRuntime(tmp_path / "state")
    await runtime.close()
    backend = runtime.backend = runtime.local = OwnProcesses(tmp_path / "state", slots=1)
    os.mkfifo(tmp_path / "pipe")
    model = ScriptedModel([script_call("exec", command=DEAF), "went on"])
    async with runtime, asyncio.timeout(PATIENCE_S):
        async with SessionTree(tmp_path, model=model, runtime=runtime) as tree:
            sent = asyncio.ensure_future(tree.main.send("go"))
            with await asyncio.to_thread((tmp_path / "pipe").open) as file:
                assert await asyncio.to_thread(file.readline) == "begun\n"
                await tree.main.send("enough", mode="steer")
                assert await sent == "went on"
                assert await asyncio.to_thread(file.read) == ""
            (told,) = results(tree, "main")
            assert "aborted while it ran" in told.text
            assert "half\\n" in told.text
            (host,) = backend.transports
        async with SessionTree(tmp_path, model=ScriptedModel(["here"]), runtime=runtime) as other:
            assert await other.main.send("hello") == "here"
            assert host in backend.transports
