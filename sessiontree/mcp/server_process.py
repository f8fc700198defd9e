"""The process of one connection as its supervisor sees it: started, asked, watched and ended."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sessiontree.contracts.errors import ConfinementUnavailable, ExecutionError, Timeout
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.interpreter.import_guard import build_command
from sessiontree.mcp.frames import FrameFault, encode_frame, read_message
from sessiontree.mcp.settings import ReachedServer
from sessiontree.sandbox.commands.command_bounds import HOME, TMP, Bounds
from sessiontree.sandbox.commands.environment import check_workspace, get_running_interpreter, mount_words
from sessiontree.sandbox.commands.kernel_support import find_bubblewrap
from sessiontree.sandbox.process_tree import ProcessIdentity, find_process_identity
from sessiontree.sandbox.socket_process import SocketProcess

PROGRAM: Final = "sessiontree.mcp.inside.program"
CANCEL_S: Final = 10.0
"""How long a process may take to confirm that it dropped a call; then it is ended."""
SPARE_S: Final = 15.0
"""What its own start may take in addition to the server's."""


class ServerUnavailable(Exception):
    """A server can't be connected to now.

    Args:
        message: Why.
        needs_login: Whether a person must log in first.
        said: The last complaints of its process, for the owner alone.
    """

    def __init__(self, message: str, *, needs_login: bool = False, said: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.needs_login = needs_login
        self.said = said


def make_lost_call_error(server: str, reason: str) -> ExecutionError:
    """Return the error of a call whose server was lost before it replied."""
    return ExecutionError(
        f"the MCP server {server} was lost during the call ({reason}); "
        "whether the call was carried out is unknown"
    )


@dataclass(frozen=True, slots=True)
class ServerFound:
    """What a server said when it was connected to."""

    protocol: str
    name: str
    """Its own name and version; empty = it gave none."""
    tools: tuple[Mapping[str, Any], ...]


class ServerProcess:
    """One connection; use it once.

    Args:
        name: The server's name.
        on_end: Called when the connection has ended, with the reason.
        on_tools: Called with the tools when the server says that they have changed.
    """

    def __init__(
        self,
        name: str,
        on_end: Callable[[str], None] = lambda reason: None,
        on_tools: Callable[[tuple[Mapping[str, Any], ...]], None] = lambda tools: None,
    ) -> None:
        self._name = name
        self._on_end = on_end
        self._on_tools = on_tools
        self._process = SocketProcess(f"the MCP server {name}", self.kill, self._note_end)
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = 0
        self._work: set[asyncio.Task[None]] = set()
        self._server: ProcessIdentity | None = None
        self._over = False
        self.shown: Callable[[str], None] = lambda address: None
        """Shows a person an address to open."""

    @property
    def pid(self) -> int | None:
        """The id of its process while it exists."""
        return self._process.pid

    @property
    def server_pid(self) -> int | None:
        """The id of the server's own process; None = it is not of this machine."""
        return None if self._server is None else self._server.pid

    @property
    def is_over(self) -> bool:
        """Whether it takes no calls any more."""
        return self._over

    async def start(self, order: Mapping[str, JsonValue], limit_s: float) -> ServerFound:
        """Start it with an order; return what the server said.

        Raises:
            ServerUnavailable: the server can't be connected to; says why.
        """
        found: list[dict[str, Any]] = []

        async def meet(near: socket.socket) -> None:
            near.setblocking(False)
            reader, self._writer = await asyncio.open_connection(sock=near)
            self._writer.write(encode_frame(dict(order)))
            while not found:
                message = await read_message(reader)
                if "open" in message:
                    self.shown(str(message["open"]))
                else:
                    found.append(message)
            # Only after the first answer: two readers of one stream would share its bytes.
            self._do(self._listen(reader))

        try:
            words = build_command("-m", PROGRAM)
            await self._process.start(lambda far: [*words, str(far)], meet, limit_s + SPARE_S)
        except FrameFault as error:
            raise ServerUnavailable(f"the MCP server {self._name} can't be connected to: {error}") from error
        except ExecutionError as error:
            raise ServerUnavailable(error.message) from error
        message = found[0]
        if "failed" in message:
            await self.close()
            raise self._make_unavailable(message["failed"])
        return self._read_found(message["ready"])

    def _make_unavailable(self, failed: Mapping[str, Any]) -> ServerUnavailable:
        if failed.get("kind") == "needs_login":
            reason = f"the MCP server {self._name} needs a login: run `sessiontree mcp login {self._name}`"
            return ServerUnavailable(reason, needs_login=True)
        reason = f"the MCP server {self._name} can't be connected to: {failed.get('reason', '')}"
        return ServerUnavailable(reason, said=str(failed.get("said", "")))

    def _read_found(self, ready: Mapping[str, Any]) -> ServerFound:
        pid = ready.get("pid")
        self._server = find_process_identity(pid) if isinstance(pid, int) else None
        return ServerFound(
            str(ready.get("protocol", "")), str(ready.get("server", "")), tuple(ready.get("tools", ()))
        )

    async def call(self, order: Mapping[str, JsonValue], limit_s: float) -> dict[str, Any]:
        """Return the answer to an order: ``{reply}`` or ``{error}``.

        The call is dropped if the caller is cancelled, or when its time is over; the server goes on.

        Raises:
            ExecutionError: the connection has ended.
            Timeout: no answer came in time.
        """
        if self._writer is None or self._over:
            raise ExecutionError(f"the connection to the MCP server {self._name} has ended")
        self._numbers += 1
        number = self._numbers
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(encode_frame({**order, "id": number}))
            async with asyncio.timeout(limit_s):
                answer: dict[str, Any] = await asked
            self._check_answered(answer)
            return answer
        except FrameFault as error:
            raise ExecutionError(f"the call can't be sent to the MCP server {self._name}: {error}") from error
        except TimeoutError as error:
            self._drop(number)
            raise Timeout(limit_s, f"the MCP server {self._name}") from error
        except asyncio.CancelledError:
            self._drop(number)
            raise
        finally:
            # After a drop the number belongs to the confirmation, which still has to arrive.
            if self._asked.get(number) is asked:
                del self._asked[number]

    def _check_answered(self, answer: Mapping[str, Any]) -> None:
        """Refuse the answer that the server was lost; then the connection takes no more calls.

        Raises:
            ExecutionError: it was lost.
        """
        error = answer.get("error")
        if not isinstance(error, dict) or error.get("kind") not in {"lost", "gone"}:
            return
        reason = str(error.get("reason", ""))
        # "gone" concerns one call that a restart has lost; only "lost" is the end of the connection.
        if error["kind"] == "lost":
            self._end(reason)
            self.kill()
        raise make_lost_call_error(self._name, reason)

    def _drop(self, number: int) -> None:
        """Have a call dropped; a process that does not confirm it is stuck, and is ended."""
        if self._writer is not None and not self._over:
            # In place of the call, so that a late reply counts as the confirmation: the process reacts.
            self._asked[number] = confirmed = asyncio.get_running_loop().create_future()
            self._writer.write(encode_frame({"cancel": number}))
            self._do(self._await_drop(number, confirmed))

    async def _await_drop(self, number: int, confirmed: asyncio.Future[dict[str, Any]]) -> None:
        try:
            async with asyncio.timeout(CANCEL_S):
                await confirmed
        except TimeoutError:
            self._end("it did not react to a cancellation")
            self.kill()
        except ExecutionError:
            pass  # it has ended meanwhile
        finally:
            self._asked.pop(number, None)

    async def close(self) -> None:
        """End it, with the server's process."""
        self._end("it was closed")
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_S):
                await self._process.gone()
        self.kill()
        await self._process.gone()
        # A copy, because a task that ends removes itself from the set.
        for task in tuple(self._work):
            task.cancel()

    def kill(self) -> None:
        """Kill it and the server's process group at once."""
        pid = self._process.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._kill_server()

    def _kill_server(self) -> None:
        server = self._server
        # Without its leader the group may live on, and keeps its number until its last process has ended.
        if server is not None and find_process_identity(server.pid) in {None, server}:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(server.pid, signal.SIGKILL)

    def _note_end(self) -> None:
        self._kill_server()
        self._end("its process has ended")

    def _end(self, reason: str) -> None:
        # The end is reported once: the reader, a drop and the process's own end may all notice it.
        if self._over:
            return
        self._over = True
        if self._writer is not None:
            self._writer.close()  # the process then ends the server gently, and itself
        for asked in self._asked.values():
            # A caller that was cancelled has closed its future already, and a second result would raise here.
            if not asked.done():
                asked.set_exception(make_lost_call_error(self._name, reason))
        self._on_end(reason)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        reason = "its process has ended"
        try:
            while True:
                message = await read_message(reader)
                if "failed" in message:
                    reason = str(message["failed"].get("reason", reason))
                    break
                if "tools" in message:
                    self._on_tools(tuple(message["tools"]))
                    continue
                asked = self._asked.get(message.get("id", 0))
                if asked is not None and not asked.done():
                    asked.set_result(message)
        except (OSError, EOFError):
            pass
        # Its process reads what a stranger writes, and is not believed either: whoever waits must hear of it.
        except (FrameFault, TypeError, ValueError, AttributeError, KeyError) as error:
            reason = f"it sent something that is not an answer: {error}"
        self._end(reason)
        # A process that no longer speaks may still run, and its server with it.
        self.kill()

    def _do(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


async def start_server(reached: ReachedServer, process: ServerProcess) -> ServerFound:
    """Start a connection's process; return what the server said.

    Raises:
        ConfinementUnavailable: this machine can't confine the server.
        ServerUnavailable: it can't be connected to.
    """
    # In a thread: whether bubblewrap works here is tried once, and that takes a while.
    placed = await asyncio.to_thread(confine, reached) if reached.confine else reached
    return await process.start({"do": "connect", **placed.to_order()}, reached.connect_s)


def _build_program_words(program: str, place: str) -> list[str]:
    """Return the words that show the environment of a program that is not the system's, read-only."""
    folder = Path(program).parent
    prefix = folder.parent if folder.name == "bin" else folder
    if prefix.is_relative_to("/usr") or prefix.is_relative_to(place) or prefix == Path("/"):
        return []
    return ["--ro-bind", str(prefix), str(prefix)]


def confine(reached: ReachedServer) -> ReachedServer:
    """Return a server whose command has no network, and changes only its working directory.

    Raises:
        ConfinementUnavailable: this machine can't confine it, or its directory can't be used.
    """
    place = str(Path(reached.cwd or "/").resolve())
    check_workspace(place)
    if not Path(place).is_dir():
        raise ConfinementUnavailable(f"{place!r} is not a directory", "create the server's cwd")
    program = shutil.which(reached.command[0], path=reached.env.get("PATH"))
    if program is None:
        raise ConfinementUnavailable(
            f"the program {reached.command[0]!r} of the MCP server {reached.name} was not found", "install it"
        )
    mounts = mount_words(place, (), get_running_interpreter(), Bounds())
    # Its variables stay out of the command line, which other processes can read.
    words = [find_bubblewrap(), *(word for word in mounts[:-2] if word != "--clearenv")]
    words += [*_build_program_words(program, place), *mounts[-2:]]
    words += ["--chdir", place, "--", program, *reached.command[1:]]
    return replace(reached, command=tuple(words), env={**reached.env, "HOME": HOME, "TMPDIR": TMP})
