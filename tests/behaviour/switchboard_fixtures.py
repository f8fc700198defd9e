"""A switchboard for tests whose doubles run in other processes: it lives in the test's process, one thread.

What a double shares with its test are values from here (``signal_fixtures.py``): small, picklable, and good
in any process of this machine, in a coroutine, a thread or plain code. A use is one short conversation over
loopback TCP; in the test's own process it is a call. A wait is a conversation whose answer comes late: nobody
polls.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import selectors
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

HOST = "127.0.0.1"
Request: TypeAlias = tuple[Any, ...]
"""Name of a cell, verb, and what the verb takes; everything with a JSON form."""
Give: TypeAlias = Callable[[Any], None]


class Line(Protocol):
    """A way to the switchboard."""

    def ask(self, request: Request, timeout_s: float | None = None) -> Any:
        """Return the answer, blocking the thread.

        Raises:
            TimeoutError: it did not come in time.
            ConnectionError: the switchboard is gone, or it does not know the caller.
        """
        ...

    async def ask_later(self, request: Request) -> Any:
        """Return the answer without blocking; being cancelled withdraws the question."""
        ...


@dataclass(frozen=True, slots=True)
class Remote:
    """The way from any process of this machine: an address and the secret that opens it."""

    port: int
    token: str

    def ask(self, request: Request, timeout_s: float | None = None) -> Any:
        """Return the answer, blocking the thread."""
        with socket.create_connection((HOST, self.port), timeout_s) as line:
            line.sendall(self._spoken(request))
            heard = bytearray()
            while not heard.endswith(b"\n"):
                heard += _said(line.recv(65_536))
        return json.loads(heard)

    async def ask_later(self, request: Request) -> Any:
        """Return the answer without blocking; being cancelled withdraws the question."""
        loop = asyncio.get_running_loop()
        with socket.socket() as line:
            line.setblocking(False)
            await loop.sock_connect(line, (HOST, self.port))
            await loop.sock_sendall(line, self._spoken(request))
            heard = bytearray()
            while not heard.endswith(b"\n"):
                heard += _said(await loop.sock_recv(line, 65_536))
        return json.loads(heard)

    def _spoken(self, request: Request) -> bytes:
        return f"{self.token} {json.dumps(request)}\n".encode()


def _said(heard: bytes) -> bytes:
    if not heard:
        raise ConnectionError("the switchboard hung up: the test is over, or the token is not its own")
    return heard


@dataclass(slots=True, eq=False)
class _Waiter:
    at_least: int
    take: int
    give: Give


@dataclass(slots=True)
class _Cell:
    """What is behind a name: a level that rises, what was written, and who waits for a level."""

    level: int = 0
    items: list[Any] = field(default_factory=list)
    waiting: list[_Waiter] = field(default_factory=list)

    def add(self, amount: int) -> int:
        self.level += amount
        level = self.level
        self.serve()
        return level

    def lift(self, level: int) -> None:
        self.level = max(self.level, level)
        self.serve()

    def append(self, item: Any) -> None:
        self.items.append(json.loads(json.dumps(item)))  # the same, whether it came over a line or not
        self.add(1)

    def serve(self) -> None:
        """Let through whom the level lets through, in the order they came."""
        for waiter in list(self.waiting):
            if self.level >= waiter.at_least:
                self.level -= waiter.take
                self.waiting.remove(waiter)
                waiter.give(True)


@dataclass(slots=True, eq=False)
class _Caller:
    """One conversation."""

    line: socket.socket
    heard: bytearray = field(default_factory=bytearray)
    withdraw: Callable[[], bool] | None = None

    def tell(self, answer: Any) -> None:
        """Say the answer; whoever hung up meanwhile does not hear it."""
        with suppress(OSError):
            self.line.sendall(json.dumps(answer).encode() + b"\n")


class Switchboard:
    """Holds every cell of a test run, and answers whoever knows the token."""

    def __init__(self) -> None:
        """Listen on a free port."""
        self._cells: defaultdict[str, _Cell] = defaultdict(_Cell)
        self._lock = threading.RLock()
        self._listener = socket.create_server((HOST, 0), backlog=1024)
        self._bell, self._control = socket.socketpair()
        self._callers: set[_Caller] = set()
        self._quiet = threading.Condition(self._lock)
        self.remote = Remote(self._listener.getsockname()[1], secrets.token_hex(16))
        """How other processes reach it."""
        self._thread = threading.Thread(target=self._serve, name="switchboard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody."""
        self._bell.close()
        self._thread.join()

    def is_quiet(self, timeout_s: float) -> bool:
        """Return whether, within a time, nobody is on the line any more.

        The kernel connects a caller before :meth:`_serve` accepts it. Callers are accepted in the order they
        came, so once a question of our own is answered, whoever had connected before it counts.
        """
        with suppress(ConnectionError):
            self.remote.ask(("", "level"))
        with self._lock:
            return self._quiet.wait_for(lambda: not self._callers, timeout_s)

    def ask(self, request: Request, timeout_s: float | None = None) -> Any:
        """Return the answer, blocking the thread."""
        answers: list[Any] = []
        answered = threading.Event()

        def give(answer: Any) -> None:
            answers.append(answer)
            answered.set()

        withdraw = self._put(request, give)
        if not answered.wait(timeout_s) and withdraw():
            raise TimeoutError
        return answers[0]

    async def ask_later(self, request: Request) -> Any:
        """Return the answer without blocking; being cancelled withdraws the question."""
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def give(value: Any) -> None:
            loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(value))

        withdraw = self._put(request, give)
        try:
            return await answer
        finally:
            withdraw()

    def _put(self, request: Request, give: Give) -> Callable[[], bool]:
        """Answer now or later; what is returned takes the question back and tells whether it was open."""
        name, verb, *given = request
        with self._lock:
            cell = self._cells[name]
            if verb == "wait":
                at_least, take = given
                waiter = _Waiter(at_least, take, give)
                cell.waiting.append(waiter)
                cell.serve()
                return lambda: self._take_back(cell, waiter)
            give(_VERBS[verb](cell, *given))
            return lambda: False

    def _take_back(self, cell: _Cell, waiter: _Waiter) -> bool:
        with self._lock:
            is_open = waiter in cell.waiting
            if is_open:
                cell.waiting.remove(waiter)
            return is_open

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector, self._listener, self._control:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._control, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._control:
                        for caller in list(self._callers):
                            self._hang_up(selector, caller)
                        return
                    if key.fileobj is self._listener:
                        line, _ = self._listener.accept()
                        caller = _Caller(line)
                        with self._lock:
                            self._callers.add(caller)
                        selector.register(line, selectors.EVENT_READ, caller)
                    elif not self._listen(key.data):
                        self._hang_up(selector, key.data)

    def _listen(self, caller: _Caller) -> bool:
        """Hear a caller out; False where the conversation is over."""
        try:
            said = caller.line.recv(65_536)
        except OSError:
            return False
        caller.heard += said
        if said and caller.heard.endswith(b"\n"):
            token, _, request = caller.heard.partition(b" ")
            if not hmac.compare_digest(token, self.remote.token.encode()):
                return False
            caller.withdraw = self._put(tuple(json.loads(request)), caller.tell)
        return bool(said)

    def _hang_up(self, selector: selectors.BaseSelector, caller: _Caller) -> None:
        if caller.withdraw is not None:
            caller.withdraw()
        selector.unregister(caller.line)
        with self._lock:
            caller.line.close()
            self._callers.discard(caller)
            self._quiet.notify_all()


_VERBS: dict[str, Callable[..., Any]] = {
    "add": _Cell.add,
    "lift": _Cell.lift,
    "append": _Cell.append,
    "level": lambda cell: cell.level,
    "items": lambda cell: list(cell.items),
}
