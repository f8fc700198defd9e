"""A command on a node of a cluster, as the host of its session sees it.

The host owns an actor on that node (``node_command.py``), and asks it for output until the command is over.
If the node is lost, how the command ended is not known. It is looked for nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any, Final, Literal

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray.commands.node_command import PIECE_BYTES, CommandNews, CommandOrder, NodeCommand
from sessiontree.backends.ray.commands.remote_node import AGENT_OPTIONS, compare_workspace, release
from sessiontree.contracts.errors import ExecutionError, describe_error
from sessiontree.contracts.handles.nodes import NodeInfo
from sessiontree.contracts.handles.ports import Finished
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.host.node_shell import describe_node
from sessiontree.sandbox import build_py_executable
from sessiontree.sandbox.commands.command_channel import CommandChannel
from sessiontree.sandbox.commands.command_process import Decoder, OnOutput
from sessiontree.sandbox.commands.running_commands import RunningCommands
from sessiontree.sandbox.process_tree import ProcessIdentity

START_S: Final = 60.0
"""How long a node may take to start the actor and to look around, on a busy machine."""
NO_REPORTS: Final = Path("/dev/null")
"""Where a reaper can put no report."""
END_S: Final = 15.0
"""How long a node may take to end a command, in addition to the command's own time for that."""


@dataclass(frozen=True, slots=True)
class RemoteShell:
    """Runs commands on one node; see :class:`~sessiontree.sandbox.JobShell`.

    Args:
        node: The node.
        workspace: The session's workspace on this machine.
        running: The session's other commands.
    """

    node: NodeInfo
    workspace: Path
    running: RunningCommands

    async def run(
        self,
        command: str,
        *,
        workdir: str = ".",
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        keep_bytes: int = 50_000,
        on_output: OnOutput | None = None,
        channel: CommandChannel | None = None,
    ) -> Finished:
        """Run one command line there.

        Raises:
            ExecutionError: it was not started, or its node was lost and what it did is not known.
        """
        connected = channel or CommandChannel()
        order = CommandOrder(
            command,
            None,
            workdir,
            dict(env or {}),
            timeout_s,
            self.running.cleanup_s,
            keep_bytes,
            connected.window,
            connected.wants_input,
        )

        async def run_now() -> Finished:
            remote = RemoteCommand(self.node, self.running, connected, on_output)
            with self.running.hold(remote):
                return await remote.run(order, self.workspace)

        return await self.running.take_turn(run_now, connected)


class RemoteCommand:
    """Runs one command on a node; use it once.

    Args:
        node: The node.
        running: The session's commands, which know how long one may take to end.
        channel: What it is connected to.
        on_output: Called with output as it arrives.
    """

    def __init__(
        self, node: NodeInfo, running: RunningCommands, channel: CommandChannel, on_output: OnOutput | None
    ) -> None:
        self._node = node
        self._name = describe_node(node)
        self._running = running
        self._channel = channel
        self._on_output = on_output
        self._decoder = Decoder()
        self._killing = asyncio.Event()
        self._has_begun = False
        """Whether the command may run."""

    def kill(self) -> set[ProcessIdentity]:
        """Have it killed; return its process, with a number that no process of this machine has."""
        self._killing.set()
        identity = self._channel.identity
        return set() if identity is None else {ProcessIdentity(-identity.pid, identity.started)}

    async def run(self, order: CommandOrder, workspace: Path) -> Finished:
        """Run it to its end; cancelling ends it too, and cancelling again ends it at once.

        Args:
            order: The command; where it starts is added here.
            workspace: The session's workspace on this machine.
        """
        actor = self._start_actor()
        over = asyncio.create_task(self._run(actor, order, workspace))
        killing = asyncio.create_task(self._killing.wait())
        try:
            await asyncio.wait({over, killing}, return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                await self._end(actor, over, killing)
        except asyncio.CancelledError:
            if not over.done():
                await self._end(actor, over, killing)
            raise
        finally:
            with contextlib.suppress(RayError, RuntimeError):  # its node is lost, or Ray has ended here
                ray.kill(actor)
            killing.cancel()
            over.cancel()
            await asyncio.wait({over})
            if not over.cancelled():
                over.exception()  # it is raised below, or nobody waits for it
        if over.cancelled() and not self._has_begun:
            raise ExecutionError("the command was not started: its session has left meanwhile")
        if over.cancelled():
            raise ExecutionError(self._explain_unknown("it was ended with its session"))
        return over.result()

    def _start_actor(self) -> Any:
        make: Any = ray.remote(NodeCommand)
        where = NodeAffinitySchedulingStrategy(self._node.node_id, soft=False)
        # Else the actor would inherit the runtime environment of this host, which names the host's files. Its
        # reaper ends what is left when Ray kills the actor's children before they end theirs.
        words = build_py_executable("node-command", Path("/"), None, reports=NO_REPORTS)
        environment = {"py_executable": words}
        return make.options(**AGENT_OPTIONS, scheduling_strategy=where, runtime_env=environment).remote()

    async def _end(
        self, actor: Any, over: asyncio.Task[Finished], killing: asyncio.Task[Literal[True]]
    ) -> None:
        """End the command: it is asked to, unless its session leaves; a cancellation ends it at once."""
        if not self._has_begun:
            over.cancel()
            await asyncio.wait({over})
            return
        window_s = self._running.cleanup_s
        if window_s > 0 and not killing.done():
            actor.stop.remote(False)
            try:
                waiting = {over, killing}
                await asyncio.wait(waiting, timeout=window_s + END_S, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                actor.stop.remote(True)
                await asyncio.wait({over}, timeout=END_S)
                raise
        if not over.done():
            actor.stop.remote(True)
            await asyncio.wait({over}, timeout=END_S)

    async def _run(self, actor: Any, order: CommandOrder, workspace: Path) -> Finished:
        try:
            async with asyncio.timeout(START_S):
                refusal = await actor.check.remote(release())
                if refusal is not None:
                    raise ExecutionError(f"the command was not started: node {self._name}: {refusal}")
                reason = await compare_workspace(workspace, actor)
            with contextlib.ExitStack() as opened:
                source = self._open_input(opened)
                self._has_begun = True
                order = replace(order, workspace=workspace if reason is None else None)
                refusal = await actor.begin.remote(order)
                if refusal is not None:
                    raise ExecutionError(f"the command was not started: node {self._name}: {refusal}")
                self._channel.place = self._place(reason)
                return await self._follow(actor, source)
        except TimeoutError as error:
            raise ExecutionError(
                f"the command was not started: node {self._name} did not answer within {START_S:g} s"
            ) from error
        except RayError as error:
            why = describe_error(error).strip().splitlines()[0]
            if not self._has_begun:
                raise ExecutionError(f"the command was not started: node {self._name}: {why}") from error
            self._channel.is_lost = True
            raise ExecutionError(
                self._explain_unknown(f"the node, or this runtime's process there, was lost ({why})")
            ) from error

    def _explain_unknown(self, why: str) -> str:
        return (
            f"how the command on node {self._name} ended is not known: {why}. It may have run; look at what "
            "it changed before you run it again"
        )

    def _place(self, reason: str | None) -> str:
        if reason is None:
            return f"on node {self._name}, in the workspace"
        return (
            f"on node {self._name}, in an empty directory that is removed, because the workspace is not "
            f"there ({reason})"
        )

    def _open_input(self, opened: contextlib.ExitStack) -> FileIO | None:
        """Return where what is written to the command is read from; None = it has no input."""
        opened.callback(self._channel.close)
        read = self._channel.open_input()
        if read is None and self._channel.window is not None:
            read, write = os.pipe()
            opened.callback(os.close, write)
            os.set_blocking(write, False)
            self._channel.attach_terminal(write)
        return None if read is None else opened.enter_context(FileIO(read, "rb"))

    async def _follow(self, actor: Any, source: FileIO | None) -> Finished:
        """Take the command's output until it is over.

        Raises:
            RayError: the node is lost.
        """
        feeding = None if source is None else asyncio.create_task(self._feed(actor, source))
        try:
            while True:
                news: CommandNews = await actor.follow.remote()
                self._take(news)
                if news.error is not None:
                    raise news.error
                if news.finished is not None:
                    return news.finished
        finally:
            if feeding is not None:
                feeding.cancel()
                await asyncio.wait({feeding})

    def _take(self, news: CommandNews) -> None:
        if self._channel.identity is None and news.identity is not None:
            self._channel.note_start(news.identity)
        is_over = news.finished is not None or news.error is not None
        data = news.data
        if news.dropped_bytes:
            data = f"\n… {news.dropped_bytes:,} bytes of output are left out here …\n".encode() + data
        self._channel.take(data)
        if self._on_output is not None and (text := self._decoder.text(data, last=is_over)):
            self._on_output(text)

    async def _feed(self, actor: Any, source: FileIO) -> None:
        """Pass on what is written to the command, until it reads nothing more."""
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, source)
        try:
            while data := await reader.read(PIECE_BYTES):
                while data:
                    data = data[await actor.write.remote(data) :]
            await actor.end_input.remote()
        except RayError:  # it reads nothing more; if the node is lost, whoever follows the command says so
            self._channel.close()
        finally:
            transport.close()
