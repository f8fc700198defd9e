"""Calls of client tools, as the creating program sees and answers them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any

from sessiontree.api.runtime.backend import READ_WAIT_S, Backend
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded.client_calls import ClientAnswer, ClientCall
from sessiontree.contracts.tools.client_tool import answer_failure, build_answer
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.runtime.transport.supervisor_api import ClientCallArrived


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """One call that waits for the program. It is cheap; several objects may refer to the same call."""

    call: ClientCall
    _calls: ClientCalls

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
        """The arguments as an instance of the tool's ``Params``.

        Raises:
            ConfigError: the tree was resumed without the tool.
            ValidationError: the tree was resumed with a tool that has other parameters.
        """
        return self._calls.params_of(self.call)

    async def answer(self, result: object) -> None:
        """Give the call its result; it is durable when this returns.

        Args:
            result: A ToolResult, or any value with a JSON form.

        Raises:
            AnswerTooLate: the call has a result already, timed out, was cancelled, or its session ended.
            ValidationError: it has no JSON form, is too long, or does not fit the tool's ``result_type``;
                the call still waits.
        """
        await self._calls.answer(self.call_id, result)

    async def fail(self, message: str) -> None:
        """Fail the call with a message for the model; raises as :meth:`answer`."""
        await self._calls.fail(self.call_id, message)


class ClientCalls:
    """The calls of one tree that wait for the program; iterate over them as they arrive.

    Args:
        backend: Where the tree is.
        tree_id: The tree.
        table: Its tools, as given in this process.
    """

    def __init__(self, backend: Backend, tree_id: str, table: ToolTable) -> None:
        self._backend = backend
        self._tree_id = tree_id
        self._table = table

    def pending(self) -> list[WaitingCall]:
        """Return the calls that wait, in the order they were handed over."""
        return [
            WaitingCall(call, self)
            for call in self._backend.ask_now(lambda supervisor: supervisor.client_calls(self._tree_id))
        ]

    async def __aiter__(self) -> AsyncIterator[WaitingCall]:
        """Yield the waiting calls, then each new call once; ends when Main has ended."""
        supervisor = self._backend.supervisor
        after = await supervisor.last_seq(self._tree_id)
        waiting = self.pending()
        seen = {each.call_id for each in waiting}
        for each in waiting:
            yield each
        while not await supervisor.is_over(self._tree_id):
            after, events = await supervisor.read_inbox_events(self._tree_id, after, READ_WAIT_S)
            for event in events:
                if isinstance(event, ClientCallArrived) and event.call.call_id not in seen:
                    yield WaitingCall(event.call, self)
            seen.clear()  # only the first read can repeat a call that waited at the beginning

    async def answer(self, call_id: str, result: object) -> None:
        """Give the call ``call_id`` its result; raises as :meth:`WaitingCall.answer`."""
        await self._send(call_id, build_answer(call_id, result))

    async def fail(self, call_id: str, message: str) -> None:
        """Fail the call ``call_id`` with a ``message``; raises as :meth:`WaitingCall.answer`."""
        await self._send(call_id, answer_failure(call_id, message))

    async def _send(self, call_id: str, answer: ClientAnswer) -> None:
        await self._backend.supervisor.answer(self._tree_id, call_id, answer, secrets.token_hex(16))

    def params_of(self, call: ClientCall) -> Any:
        """Return a call's arguments as :attr:`WaitingCall.params` does.

        Raises:
            ConfigError: its tool was not given in this process.
        """
        entry = self._table.get(call.tool)
        if entry is None:
            raise ConfigError(
                f"tool {call.tool!r} was not given here; give it to SessionTree.resume(tools=…)"
            )
        params, _ = entry.compiled.validate(call.arguments)
        return params
