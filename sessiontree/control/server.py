"""The control socket's server: lets peers in beside a supervisor and answers what they ask of its owner."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from pathlib import Path

from sessiontree.contracts.errors import PermissionDenied, SessionTreeError
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.control.connection import Connection
from sessiontree.control.lineage import Lineage
from sessiontree.control.peer import Peer, confinement_of, has_ended, held, peer_of, refusal_of
from sessiontree.control.place import OpenSocket, open_control_socket
from sessiontree.control.questions import answer
from sessiontree.control.requests import SocketRequest, Told
from sessiontree.runtime.supervisor_api import Owner

MOST_PEERS = 32
PATIENCE_S = 30.0
GRACE_S = 2.0
PAUSE_S = 1.0
"""How long nobody is let in after the system could not open one more connection."""


class ControlServer:
    """Stands beside a supervisor for as long as it is open.

    Whoever connects is an owner: a process of the same user, no more confined than this one, or root; but
    no process of the engine that the supervisor runs on, as tools can have one started.
    What peers say or leave unsaid never holds up the supervisor: lines, questions, connections and what is
    written ahead are bounded, and nobody is waited for longer than ``patience_s``.

    Args:
        owner: What may be asked of the supervisor.
        state_dir: Where the control socket is; this process holds its lock.
        most_peers: Most connections at a time; one more is told so and hung up on.
        lineage: What tells the engine's processes from a person's; None where there is no engine.
        patience_s: How long a peer may take to end a line, or to take what was said.
        grace_s: How long, at the end, answers under way may take.
    """

    def __init__(
        self,
        owner: Owner,
        state_dir: Path,
        *,
        lineage: Lineage | None = None,
        most_peers: int = MOST_PEERS,
        patience_s: float = PATIENCE_S,
        grace_s: float = GRACE_S,
    ) -> None:
        """Keep what it is made of; :meth:`start` opens the control socket."""
        self._owner = owner
        self._state_dir = state_dir
        self._lineage = lineage
        self._most_peers = most_peers
        self._patience_s = patience_s
        self._grace_s = grace_s
        self._control: OpenSocket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._conversations: dict[asyncio.Task[None], Connection] = {}

    def start(self) -> None:
        """Open the control socket; peers are heard on the running loop from now on.

        Raises:
            JournalUnwritable: the socket file can't be made.
        """
        self._control = open_control_socket(self._state_dir)
        self._let_in()

    async def close(self) -> None:
        """Close the control socket. Call it after the supervisor's end: what was asked has its answer then.

        Answers under way are still sent, for a moment; then everybody is hung up on.
        """
        listener, self._control = self._control, None
        if listener is None:
            return
        if self._pause is not None:
            self._pause.cancel()
        asyncio.get_running_loop().remove_reader(listener.listener)
        listener.close()
        for conversation in self._conversations.values():
            conversation.end()
        if self._conversations:
            await asyncio.wait(self._conversations)

    def abandon(self) -> None:
        """Close the control socket where its loop is closed: nobody is heard there any more."""
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
            # no descriptor is left: whoever knocks waits, and the loop does not spin
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            self._pause = loop.call_later(PAUSE_S, self._let_in)
            return
        peer = peer_of(line)
        conversation = Connection(
            line,
            partial(self._answer, str(peer)),
            patience_s=self._patience_s,
            grace_s=self._grace_s,
        )
        refusal: SessionTreeError | None = None
        reason = self._refusal_of(line, peer)
        if reason is not None:
            refusal = PermissionDenied(PermissionTier.ELEVATED, f"nobody but an owner may ask here: {reason}")
        elif len(self._conversations) >= self._most_peers:
            refusal = SessionTreeError(f"{self._most_peers} others are connected already; end one of them")
        task = asyncio.create_task(conversation.run(refusal))
        self._conversations[task] = conversation
        task.add_done_callback(self._conversations.pop)

    def _refusal_of(self, line: socket.socket, peer: Peer) -> str | None:
        with held(line, peer) as process:
            reason = refusal_of(peer, os.geteuid(), confinement_of(), confinement_of(peer.pid))
            if reason is None and self._lineage is not None:
                if process is None:
                    return f"process {peer.pid} can't be seen from the runtime; ask from where it runs"
                reason = self._lineage.refusal_of(peer.pid)
                if reason is None and has_ended(process):
                    return f"process {peer.pid} has ended"
            return reason

    async def _answer(self, who: str, request: SocketRequest) -> Told:
        return await answer(self._owner, request, who)
