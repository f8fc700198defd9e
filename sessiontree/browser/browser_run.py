"""The run of a session's browser: started by a call, ended by its session, a call, or when it is idle."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from sessiontree.browser.browser_process import Answer, BrowserProcess
from sessiontree.browser.tunnels import Network, Tunnels
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.values.untrusted import wrap_untrusted
from sessiontree.sandbox.process_tree import ProcessIdentity

IDLE_S: Final = 600.0
"""How long a browser runs that no call has used."""
DIALOG_S: Final = 60.0
LIMIT_S: Final = 60.0
"""The longest time an order may take; each step of it has a shorter limit in the browser's process."""
MAX_BYTES: Final = 256 * 2**20
MAX_CONNECTIONS: Final = 2000
"""What pages may load between two calls."""
ERROR_CHARS: Final = 2000
FAILURES: Final = {
    "stale": "the number is stale: take a new snapshot, and use a number of it",
    "slow": "the page did not answer in time",
    "network": "the address can't be loaded",
}
"""What an order's failure means, by its sort; the details come from the page or its browser."""
UNKNOWN: Final = "the browser can't do that"
_STOPPED: Final = "it was idle"


class CallAllowance:
    """What pages may load until the next call."""

    def __init__(self) -> None:
        self._connections = MAX_CONNECTIONS
        self._bytes = MAX_BYTES

    def renew(self) -> None:
        """Allow all of it again, because a call came."""
        self._connections, self._bytes = MAX_CONNECTIONS, MAX_BYTES

    def spend(self, connections: int, received_bytes: int) -> bool:
        """Count connections and bytes; return whether they were within the bounds."""
        self._connections -= connections
        self._bytes -= received_bytes
        return self._connections >= 0 and self._bytes >= 0


class BrowserRun:
    """Holds the process of one session's browser while there is one, and takes orders to it.

    Args:
        network: Makes its connections; None = the owner allows no web.
        idle_s: How long it may run without a call.
        dialog_s: How long a dialog waits for an answer.
    """

    def __init__(self, network: Network | None, idle_s: float, dialog_s: float) -> None:
        self.process: BrowserProcess | None = None
        self.tunnels: Tunnels | None = None
        self.offline: dict[str, int] = {}
        """Offline tabs, with the number of their files."""
        self.why_ended = ""
        self._network = network
        self._idle_s = idle_s
        self._dialog_s = dialog_s
        self._turn = asyncio.Lock()
        """Race: two calls at once could start two processes, or use one that ends. They take turns."""
        self._ending: set[BrowserProcess] = set()
        self._allowance = CallAllowance()
        self._idle: asyncio.TimerHandle | None = None
        self._calls = 0
        self._has_left = False

    @property
    def is_running(self) -> bool:
        """Whether a process of it exists."""
        return any(each.is_running for each in self._list_processes())

    def end(self) -> set[ProcessIdentity]:
        """Kill it because its session leaves; return its processes. It does not start again."""
        self._has_left = True
        self._note_idle(None)
        return set().union(*(each.kill() for each in self._list_processes()))

    async def ended(self) -> None:
        """Wait until nothing of it exists."""
        for each in self._list_processes():
            await each.gone()

    def _list_processes(self) -> set[BrowserProcess]:
        return self._ending | ({self.process} if self.process is not None else set())

    async def ask(self, order: dict[str, Any], blob: bytes = b"", limit_s: float = LIMIT_S) -> Answer:
        """Return the answer to an order.

        Raises:
            ExecutionError: it was refused, or the browser has ended.
        """
        process = await self.ensure_running()
        self._allowance.renew()
        self._calls += 1
        try:
            message, data = await process.ask(order, blob, limit_s)
        finally:
            self._calls -= 1
            self._note_idle(self._idle_s)
        if "error" in message:
            said = wrap_untrusted(str(message["error"])[:ERROR_CHARS], kind="browser", source="error")
            raise ExecutionError(f"{FAILURES.get(str(message.get('sort')), UNKNOWN)}\n{said}")
        found = message.get("ok")
        return (found if isinstance(found, dict) else {}), data

    async def ensure_running(self) -> BrowserProcess:
        """Return the process; start one if none runs."""
        async with self._turn:
            if self._has_left:
                raise ExecutionError("the browser was not started: its session has left")
            process = self.process
            if process is not None and process.is_running and not process.ended:
                return process
            await self._drop()
            self.tunnels = Tunnels(self._network, self._allowance)
            self._allowance.renew()
            process = BrowserProcess(self.tunnels, dialog_s=self._dialog_s)
            # Race: the session may leave while the process starts. It is killed then, if it is listed.
            self._ending.add(process)
            try:
                await process.start()
            finally:
                if not process.is_running:
                    self._ending.discard(process)
            self._ending.discard(process)
            self.process = process
            if self._has_left:
                process.kill()
                raise ExecutionError("the browser was not started: its session has left")
            return process

    async def _drop(self) -> None:
        """End the process that there is."""
        process, self.process = self.process, None
        self.offline.clear()
        self._note_idle(None)
        if process is not None:
            self.why_ended = process.ended
            self._ending.add(process)
            process.kill()
            await process.gone()
            self._ending.discard(process)

    def explain_end(self) -> str:
        """Return why the last process ended; empty = none has, or a call stopped it."""
        return self.process.ended if self.process is not None and self.process.ended else self.why_ended

    def _note_idle(self, idle_s: float | None) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if idle_s is not None and not self._has_left:
            self._idle = asyncio.get_running_loop().call_later(idle_s, self._end_idle)

    def _end_idle(self) -> None:
        process = self.process
        if process is not None and not self._calls:
            process.ended = process.ended or f"{_STOPPED} for {self._idle_s:g} s"
            process.kill()

    async def stop(self) -> bool:
        """End the process; return whether it ran."""
        async with self._turn:
            was_running = self.process is not None and self.process.is_running
            await self._drop()
            self.why_ended = ""
            return was_running
