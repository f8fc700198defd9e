"""A confined process that its host asks over a socket: it is started, met, and seen to end.

Not here: the words that confine it, and what is said over the socket; those are its user's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from typing import IO, Final

from sessiontree.contracts.errors import ExecutionError

SHOWN_CHARS: Final = 1000
"""How much of its complaint is shown if it does not start."""


class SocketProcess:
    """One process, in a session and a group of its own, without an environment; use it once.

    Args:
        name: What it is called in errors, such as ``the browser``.
        kill: Ends it.
        on_end: Called when it has ended.
    """

    def __init__(self, name: str, kill: Callable[[], object], on_end: Callable[[], None]) -> None:
        self._name = name
        self._kill = kill
        self._on_end = on_end
        self._process: subprocess.Popen[bytes] | None = None
        self._gone = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Its id while it exists; until its end was seen, no other process gets that id."""
        return None if self._process is None or self._gone.is_set() else self._process.pid

    async def start(
        self,
        words: Callable[[int], Sequence[str]],
        meet: Callable[[socket.socket], Awaitable[None]],
        limit_s: float,
    ) -> None:
        """Start it; return when it was met.

        Args:
            words: Returns its command; given the descriptor of its end of the socket.
            meet: Waits on the other end, which it owns from then on, until the process takes orders. Raises
                OSError or EOFError if the process ends before that.
            limit_s: The longest start, in seconds.

        Raises:
            ExecutionError: it did not start; says what it complained about.
        """
        near, far = socket.socketpair()
        # A file and not a pipe: nobody reads it while the process runs, and a full pipe would stop the
        # process.
        complaint = os.fdopen(os.memfd_create("complaint"), "w+b")
        with far:
            try:
                self._process = self._start_process(words(far.fileno()), far, complaint)
            except BaseException:
                near.close()
                complaint.close()
                raise
        try:
            async with asyncio.timeout(limit_s):
                await meet(near)
        except TimeoutError as error:
            await self._give_up(f"it did not start within {limit_s:g} s", complaint, error)
        except (OSError, EOFError) as error:
            await self._give_up("it ended at once", complaint, error)
        except BaseException:
            self._kill()
            raise
        finally:
            complaint.close()

    async def gone(self) -> None:
        """Wait until it has ended; it was killed before."""
        if self._process is not None:
            await self._gone.wait()

    async def _give_up(self, why: str, complaint: IO[bytes], error: Exception) -> None:
        # Killed before the wait for its end, which otherwise might never come.
        self._kill()
        await self.gone()
        complaint.seek(0)
        said = complaint.read(2**16).decode(errors="replace").strip()[-SHOWN_CHARS:]
        raise ExecutionError(f"{self._name} can't be started: {why}{': ' if said else ''}{said}") from error

    def _start_process(
        self, words: Sequence[str], far: socket.socket, complaint: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(  # noqa: S603 - the words are the package's own
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaint,
                pass_fds=(far.fileno(),),
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ExecutionError(f"{self._name} can't be started: {error}") from error
        descriptor = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(descriptor, self._note_end, descriptor, process)
        return process

    def _note_end(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        # Collected here and nowhere else; until then its id can't belong to another process.
        process.wait()
        self._gone.set()
        self._on_end()
