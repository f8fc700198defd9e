"""Who may ask a supervisor for what, by what they show."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessiontree import PermissionDenied, TreeNotFound
from sessiontree.contracts.errors import JournalLocked, SessionClosed, SessionTreeError
from sessiontree.memory.settings import MemorySettings
from sessiontree.runtime.memory.memory_api import MemoryAuthority, MemoryProcess
from sessiontree.runtime.rights.host_services import Services
from sessiontree.runtime.scheduling.pool import PoolSize
from sessiontree.runtime.scheduling.settings import Settings
from sessiontree.runtime.supervisor.process.supervisor_lifetime import ProcessStarts
from sessiontree.runtime.supervisor.process.supervisor_process import SupervisorProcess
from sessiontree.runtime.supervisor.tree_resources import PackedResources
from sessiontree.runtime.transport.link import Transport
from sessiontree.runtime.transport.rpc import collect_methods
from tests.unit.tree.tree_fixtures import config

KEY = "the program's"
WRITER = """
import sys
from pathlib import Path
from sessiontree.journal.journal import Journal
journal = Journal.open(Path(sys.argv[1]), program_pid=int(sys.argv[2]))
print("open", flush=True)
sys.stdin.read()
"""


class Nothing:
    """Runs alongside a supervisor and does nothing."""

    def start(self) -> None:
        """Begin."""

    async def close(self) -> None:
        """End."""


def no_process(*names: str) -> Transport:
    """Start nothing: these supervisors serve no session."""
    raise AssertionError(f"started {names}")


def no_memory() -> MemoryProcess:
    """Start nothing: nobody of these remembers anything."""
    raise AssertionError("started memory")


def no_spare(libraries: Sequence[str]) -> None:
    """Nothing is started in these tests."""
    raise AssertionError("started a spare gateway")


@asynccontextmanager
async def opened(state_dir: Path) -> AsyncIterator[SupervisorProcess]:
    """Return an open supervisor without hosts."""
    settings = Settings(
        state_dir=state_dir,
        journal_dir=state_dir,
        program_pid=os.getpid(),
        python=None,
        node_id="node",
        unseen_s=1.0,
        logs_dir=state_dir,
        token_path=None,
        scratch=state_dir,
        reports=state_dir,
        program=state_dir,
        program_started=0,
        pass_env=(),
        passed=None,
        pool=PoolSize(most=1, usual=1),
        warm=0,
        host_bytes=2**30,
        gateway_bytes=2**30,
        memory=MemorySettings(),
        memory_bytes=2**30,
        enforcement="required",
        security={},
    )
    starts = ProcessStarts(no_process, no_process, no_spare, no_memory, lambda answers: Nothing(), dict)
    serving = SupervisorProcess(KEY, settings, starts)
    (await serving.ask(KEY, "open", ())).unwrap()
    try:
        yield serving
    finally:
        (await serving.ask(KEY, "close", ())).unwrap()


async def test_models_are_for_the_gateway_alone(tmp_path: Path) -> None:
    """What a host shows opens no model, which may hold keys; what the gateway shows opens no tools."""
    async with opened(tmp_path / "state") as serving:
        for token, name, may in [
            (serving.host_key, "resources", True),
            (serving.gateway_key, "model", True),
            (serving.host_key, "model", False),
            (serving.gateway_key, "resources", False),
            (KEY, "model", False),
            ("", "resources", False),
        ]:
            answer = await serving.serve(token, name, ("tree#1",))
            assert type(answer.error) is (TreeNotFound if may else PermissionDenied)


@pytest.mark.parametrize("name", sorted(collect_methods(Services)))
async def test_each_declared_request_of_a_host_reaches_the_supervisor(tmp_path: Path, name: str) -> None:
    """A grant that is not valid is what it refuses, not the name of the request."""
    count = len(collect_methods(Services)[name].parameters) - 1
    async with opened(tmp_path / "state") as serving:
        refused = await serving.serve("no grant", name, (None,) * count)
        assert type(refused.error) is SessionClosed
        assert type((await serving.serve("no grant", f"{name}s", ())).error) is PermissionDenied


async def test_each_declared_request_of_memory_reaches_the_supervisor(tmp_path: Path) -> None:
    """Memory alone may ask, and for nothing that is not declared."""
    async with opened(tmp_path / "state") as serving:
        for name in collect_methods(MemoryAuthority):
            assert (await serving.serve(serving.memory_key, name, ((),))).error is None
            assert type((await serving.serve(serving.host_key, name, ((),))).error) is PermissionDenied
        refused = await serving.serve(serving.memory_key, "create", ())
        assert type(refused.error) is PermissionDenied


async def test_tree_that_can_not_be_taken_up_leaves_nothing(tmp_path: Path) -> None:
    """Tools and models of a tree that was refused are not kept, however often somebody tries."""
    async with opened(tmp_path / "state") as serving:
        for number in range(3):
            given: tuple[Any, ...] = (f"tree{number}", {}, PackedResources(b"tools", b"model"))
            answer = await serving.ask(KEY, "resume", given)
            assert isinstance(answer.error, SessionTreeError)
        assert serving.lifetime.resources == {}


async def test_tree_whose_main_has_ended_bounds_no_nodes(tmp_path: Path) -> None:
    """Whatever becomes of its workspace, the hosts of the other trees may run where these fit."""
    async with opened(tmp_path / "state") as serving:
        for name in ("one", "other"):
            tree = replace(config(), tree_id=name, workspace=str(tmp_path))
            given: tuple[Any, ...] = (tree, {}, PackedResources(b"tools", None, name.encode()))
            (await serving.ask(KEY, "create", given)).unwrap()
        assert serving.lifetime.places() == (b"one", b"other")
        (await serving.ask(KEY, "stop", ("one", "main", "enough"))).unwrap()
        assert serving.lifetime.places() == (b"other",)


@pytest.mark.covers("ORD2")
async def test_what_is_said_is_begun_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    """What overtook the rest waits for it; a number counted for another supervisor waits for nobody."""
    async with opened(tmp_path / "state") as serving:
        here = serving.incarnation
        second = asyncio.create_task(serving.ask(KEY, "is_open", ("b",), (here, 2)))
        await asyncio.sleep(0)
        assert not second.done()
        stale = serving.ask(KEY, "is_open", ("c",), ("another", 57))
        async with asyncio.timeout(60):
            assert (await stale).value is False
        await serving.ask(KEY, "is_open", ("a",), (here, 1))
        async with asyncio.timeout(60):
            assert (await second).value is False


@pytest.mark.parametrize("key", ["", "guess", "\udc80"])
async def test_without_the_key_of_the_program_nothing_is_asked(tmp_path: Path, key: str) -> None:
    """Whoever shows anything else is refused, whatever it is."""
    async with opened(tmp_path / "state") as serving:
        answer = await serving.ask(key, "actors", ())
        assert isinstance(answer.error, PermissionDenied)


@contextmanager
def another_writer(state_dir: Path, program_pid: int) -> Iterator[subprocess.Popen[bytes]]:
    """Have another process write the journal for a program, until it is asked to end."""
    command = [sys.executable, "-c", WRITER, str(state_dir), str(program_pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        try:
            yield writer
        finally:
            writer.kill()


def pid_of_nobody() -> int:
    """Return the id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as program:
        return program.pid


async def test_writer_whose_program_was_killed_is_given_time_to_end(tmp_path: Path) -> None:
    """Who resumes right after the kill waits for the lock."""
    with another_writer(tmp_path, pid_of_nobody()) as writer:
        asyncio.get_running_loop().call_later(0.25, writer.kill)
        async with opened(tmp_path) as serving:
            assert writer.wait() == -signal.SIGKILL
            assert (await serving.ask(KEY, "open", ())).error is None


async def test_writer_whose_program_lives_is_an_error_at_once(tmp_path: Path) -> None:
    """It names the writer, and what to do."""
    with another_writer(tmp_path, os.getpid()) as writer:
        words = f"process {writer.pid} writes it; end it"
        with pytest.raises(JournalLocked, match=words):
            await opened(tmp_path).__aenter__()
