"""The control socket's server: it accepts peers and answers their requests to a supervisor."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from sessiontree.contracts.errors import ConfigError, PermissionDenied, SessionTreeError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.tools.thread_calls import is_cancelled
from sessiontree.control.call_codec import SocketAnswer, answer_to_wire, decode_arguments
from sessiontree.control.peer import (
    Lineage,
    Peer,
    explain_hidden_process,
    explain_refusal,
    has_ended,
    hold_process,
    identify_peer,
    read_confinement,
)
from sessiontree.control.protocol import (
    PROTOCOL,
    Lines,
    OpenSocket,
    SocketRequest,
    Withdrawal,
    encode_answer,
    encode_error_line,
    encode_line,
    open_control_socket,
    parse_line,
)
from sessiontree.runtime.transport.rpc import RpcAnswers
from sessiontree.version import VERSION

READ_BYTES = 64 * 1024
MAX_BUFFER_BYTES = 256 * 1024
"""If more is buffered, writing waits until the peer has read some of it."""
MAX_AT_ONCE = 64
"""Most pending requests of one peer."""

Answer: TypeAlias = Callable[[SocketRequest], Awaitable[SocketAnswer]]


class Connection:
    """Serves one peer, many requests at once.

    Args:
        line: The connection.
        answer: Answers a request.
        patience_s: How long a peer may take to finish a line, or to read an answer.
        grace_s: How long pending answers and buffered data may take at the end.
    """

    def __init__(self, line: socket.socket, answer: Answer, *, patience_s: float, grace_s: float) -> None:
        self._line = line
        self._answer = answer
        self._patience_s = patience_s
        self._grace_s = grace_s
        self._answering: dict[int, asyncio.Task[None]] = {}
        # One answer at a time is written: if all were, the buffer would grow by a line for each before any
        # waits.
        self._speaking = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ends = False

    async def run(self, refusal: SessionTreeError | None = None) -> None:
        """Serve the peer until it disconnects, sends an invalid line, or stops reading.

        Args:
            refusal: Why the peer may not send requests; sent to the peer before the connection is closed.
        """
        reader, writer = await asyncio.open_unix_connection(sock=self._line, limit=READ_BYTES)
        self._writer = writer
        writer.transport.set_write_buffer_limits(high=MAX_BUFFER_BYTES)
        try:
            self._listening = asyncio.create_task(self._listen(reader, refusal))
            # Race: `end` may be called while the connection is opened, when no task listens that it could
            # cancel.
            if self._ends:
                self._listening.cancel()
            await asyncio.wait({self._listening})
            if self._ends and self._answering:
                await asyncio.wait(self._answering.values(), timeout=self._grace_s)
        finally:
            await self._hang_up(writer)

    def end(self) -> None:
        """Read no more requests; pending ones are still answered within the grace time."""
        self._ends = True
        if self._listening is not None:
            self._listening.cancel()

    async def _listen(self, reader: asyncio.StreamReader, refusal: SessionTreeError | None) -> None:
        """Read the peer's requests; return when no more can be read."""
        lines = Lines()
        with suppress(OSError):  # TimeoutError is an OSError
            if refusal is not None:
                await self._say(encode_error_line(None, refusal))
                return
            await self._say(encode_line({"protocol": PROTOCOL, "release": VERSION, "pid": os.getpid()}))
            try:
                while not lines.is_overlong and (data := await self._read(reader, lines.is_within)):
                    for line in lines.take(data):
                        await self._hear(line)
                if lines.is_overlong:
                    raise ValueError("it is too long")
            except ValueError as error:
                await self._say(encode_error_line(None, ConfigError(f"a request can't be read: {error}")))

    async def _read(self, reader: asyncio.StreamReader, is_within: bool) -> bytes:
        # A peer may be silent between its lines for as long as it likes, but half a line holds memory.
        async with asyncio.timeout(self._patience_s if is_within else None):
            return await reader.read(READ_BYTES)

    async def _hear(self, line: bytes) -> None:
        said = parse_line(line)
        under_way = self._answering.get(said.id)
        if isinstance(said, Withdrawal):
            if under_way is not None:
                under_way.cancel()
        elif under_way is not None:
            raise ValueError(f"request {said.id} is not answered yet; use another id")
        # Each request is a task of the supervisor, and a peer may send them faster than they are answered.
        elif len(self._answering) >= MAX_AT_ONCE:
            reason = f"{MAX_AT_ONCE} requests are already waiting for answers; try again later"
            await self._say(encode_error_line(said.id, SessionTreeError(reason)))
        else:
            task = asyncio.create_task(self._reply(said))
            self._answering[said.id] = task
            task.add_done_callback(lambda _: self._answering.pop(said.id, None))

    async def _reply(self, request: SocketRequest) -> None:
        with suppress(OSError):
            try:
                told = await self._answer(request)
            except (Exception, asyncio.CancelledError) as error:
                # A method may raise CancelledError itself, as an answer. Only a cancellation of this task
                # ends it.
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                await self._say(encode_error_line(request.id, error))
                return
            try:
                for line in encode_answer(request.id, told):
                    await self._say(line)
            except (SessionTreeError, TypeError, ValueError, RecursionError) as error:
                await self._say(encode_error_line(request.id, error))

    async def _say(self, line: bytes) -> None:
        """Write a line; wait while the peer has not read earlier lines.

        Raises:
            OSError: the peer has disconnected or does not read; no more requests of it are read.
        """
        writer = self._writer
        if writer is None or writer.is_closing():
            raise ConnectionResetError("the other end has closed the connection")
        try:
            async with self._speaking:
                writer.write(line)
                async with asyncio.timeout(self._patience_s):
                    await writer.drain()
        except OSError:
            # Closing would wait until the peer has read what is buffered, which it does not do.
            writer.transport.abort()
            if self._listening is not None:
                self._listening.cancel()
            raise

    async def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        under_way = [*self._answering.values(), *filter(None, [self._listening])]
        for task in under_way:
            task.cancel()
        writer.close()
        try:
            if under_way:
                await asyncio.wait(under_way)
            async with asyncio.timeout(self._grace_s):
                await writer.wait_closed()
        except OSError:
            pass
        finally:
            writer.transport.abort()


MAX_PEERS = 32
PATIENCE_S = 30.0
GRACE_S = 2.0
PAUSE_S = 1.0
"""How long no peer is accepted after the system could not open another connection."""


class ControlServer:
    """Serves a supervisor's control socket while it is open.

    Every accepted peer is an owner: root, or a process of the same user that is no more confined than this
    one. A process of the engine that the supervisor runs on is not an owner, because tools can have it
    start one. A peer never delays the supervisor, whether it sends data or not: lines, requests, connections
    and buffers are bounded, and no peer is waited for longer than ``patience_s``.

    Args:
        answers: Answers the requests; peers can call only the methods that the interface declares
            ``for_peers``.
        state_dir: Where the control socket is; this process holds its lock.
        most_peers: Most connections at a time; another one is refused with an error.
        lineage: Distinguishes the engine's processes from a person's; None without an engine.
        patience_s: How long a peer may take to finish a line, or to read an answer.
        grace_s: How long pending answers may take at the end.
    """

    def __init__(
        self,
        answers: RpcAnswers,
        state_dir: Path,
        *,
        lineage: Lineage | None = None,
        most_peers: int = MAX_PEERS,
        patience_s: float = PATIENCE_S,
        grace_s: float = GRACE_S,
    ) -> None:
        self._answers = answers
        self._methods = {name: method for name, method in answers.methods.items() if method.for_peers}
        self._state_dir = state_dir
        self._lineage = lineage
        self._most_peers = most_peers
        self._patience_s = patience_s
        self._grace_s = grace_s
        self._control: OpenSocket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._conversations: dict[asyncio.Task[None], Connection] = {}

    def start(self) -> None:
        """Open the control socket; peers are served on the running loop from now on.

        Raises:
            JournalUnwritable: the socket file can't be made.
        """
        self._control = open_control_socket(self._state_dir)
        self._let_in()

    async def close(self) -> None:
        """Close the control socket. Call it after the supervisor has ended: every request is answered then.

        Pending answers are still sent within the grace time; then all connections are closed.
        """
        listener, self._control = self._control, None
        if listener is None:
            return
        if self._pause is not None:
            self._pause.cancel()
        # Before it is closed: its number may be given to another file, which the loop would then watch.
        asyncio.get_running_loop().remove_reader(listener.listener)
        listener.close()
        for conversation in self._conversations.values():
            conversation.end()
        if self._conversations:
            await asyncio.wait(self._conversations)

    def abandon(self) -> None:
        """Close the control socket if its loop is closed: no peer can be served any more."""
        listener, self._control = self._control, None
        if listener is not None:
            listener.close()

    def _let_in(self) -> None:
        self._pause = None
        if self._control is not None:
            asyncio.get_running_loop().add_reader(
                self._control.listener, self._accept, self._control.listener
            )

    def _accept(self, listener: socket.socket) -> None:
        try:
            line, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            # no descriptor is left: new connections wait, and the loop does not spin
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            self._pause = loop.call_later(PAUSE_S, self._let_in)
            return
        peer = identify_peer(line)
        conversation = Connection(
            line,
            partial(self._answer, str(peer)),
            patience_s=self._patience_s,
            grace_s=self._grace_s,
        )
        refusal: SessionTreeError | None = None
        reason = self._check_peer(line, peer)
        if reason is not None:
            refusal = PermissionDenied(PermissionTier.ELEVATED, f"only an owner may ask here: {reason}")
        elif len(self._conversations) >= self._most_peers:
            refusal = SessionTreeError(
                f"{self._most_peers} other clients are already connected; end one of them"
            )
        task = asyncio.create_task(conversation.run(refusal))
        self._conversations[task] = conversation
        task.add_done_callback(self._conversations.pop)

    def _check_peer(self, line: socket.socket, peer: Peer) -> str | None:
        with hold_process(line, peer) as process:
            reason = explain_refusal(peer, os.geteuid(), read_confinement(), read_confinement(peer.pid))
            if reason is None and self._lineage is not None:
                if process is None:
                    return explain_hidden_process(peer.pid)
                reason = self._lineage.explain_refusal(peer.pid)
                # Race: the id of a process that has ended may be given to another one while its ancestors are
                # read. If the held process still runs, they were its own.
                if reason is None and has_ended(process):
                    return f"process {peer.pid} has ended"
            return reason

    async def _answer(self, peer: str, request: SocketRequest) -> SocketAnswer:
        """Call a method for a peer.

        Raises:
            ConfigError: peers can't call a method of that name, or an argument is not valid.
            SessionTreeError: the error that the method raised.
        """
        method = self._methods.get(request.ask)
        if method is None:
            known = ", ".join(self._methods)
            raise ConfigError(f"the runtime has no operation {request.ask[:80]!r}; it has {known}")
        given = decode_arguments(method, request.given, peer)
        return answer_to_wire(method, await self._answers.ask(method, tuple(given)))
