"""Calls of client tools, for programs without ``await``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sessiontree.contracts.client_call import ClientCall
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.sync.blocking_bridge import Crossing
from sessiontree.sync.event_buffer import Pump

if TYPE_CHECKING:
    from sessiontree.api import client_calls

READ_AHEAD = 64
"""Calls that an iteration holds before the loop waits for its reader."""


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """One call that waits for the program."""

    call: ClientCall
    _waiting: client_calls.WaitingCall
    _crossing: Crossing

    @property
    def call_id(self) -> str:
        """The call's id; unguessable."""
        return self.call.call_id

    @property
    def session_id(self) -> str:
        """The session that makes the call."""
        return self.call.session_id

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.call.tool

    @property
    def arguments(self) -> Mapping[str, JsonValue]:
        """The final arguments."""
        return self.call.arguments

    @property
    def params(self) -> Any:
        """The arguments as an instance of the tool's ``Params``; raises as the original."""
        return self._waiting.params

    def answer(self, result: object) -> None:
        """Give the call its result; it is durable when this returns.

        Args:
            result: A ToolResult, or anything that has a JSON form.

        Raises:
            ClientCallClosed: the call has a result already, timed out, was cancelled, or its session ended.
            ClientAnswerRefused: it has no JSON form, is too long, or does not fit the tool's ``result_type``;
                the call still waits.
        """
        self._crossing.run(self._waiting.answer, result)

    def fail(self, message: str) -> None:
        """Let the call fail with a message for the model; raises as :meth:`answer`."""
        self._crossing.run(self._waiting.fail, message)


class ClientCalls:
    """The calls of a tree that wait for the program; iterate over them as they come."""

    def __init__(self, calls: client_calls.ClientCalls, crossing: Crossing) -> None:
        """Bind the tree's."""
        self._calls = calls
        self._crossing = crossing

    def pending(self) -> list[WaitingCall]:
        """Return the calls that wait, in the order they were handed over."""
        return [self._crossed(waiting) for waiting in self._crossing.run(self._calls.pending)]

    def __iter__(self) -> Iterator[WaitingCall]:
        """Yield the calls that wait, then each that comes, once; ends when Main has ended."""
        pump: Pump[client_calls.WaitingCall] = self._crossing.run(
            lambda: Pump(self._crossing, aiter(self._calls), READ_AHEAD)
        )
        try:
            while taken := self._crossing.wait(pump.take, 1):
                yield self._crossed(taken[0])
        finally:
            pump.close()

    def answer(self, call_id: str, result: object) -> None:
        """Give a call its result, by its id; raises as :meth:`WaitingCall.answer`."""
        self._crossing.run(self._calls.answer, call_id, result)

    def fail(self, call_id: str, message: str) -> None:
        """Let a call fail, by its id; raises as :meth:`WaitingCall.answer`."""
        self._crossing.run(self._calls.fail, call_id, message)

    def params_of(self, call: ClientCall) -> Any:
        """Return a call's arguments as :attr:`WaitingCall.params` does."""
        return self._calls.params_of(call)

    def _crossed(self, waiting: client_calls.WaitingCall) -> WaitingCall:
        return WaitingCall(waiting.call, waiting, self._crossing)
