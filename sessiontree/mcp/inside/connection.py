"""One connection: the task that owns it, the calls on it, and what the server asks during a call."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from mcp import Client, types
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError

from sessiontree.mcp.inside.replies import build_row, convert_reply
from sessiontree.version import VERSION

MAX_LISTED: Final = 10_001
"""Tools read of a listing; more are not looked at."""
MAX_PAGES: Final = 500
MAX_STATE_ROUNDS: Final = 10
"""How often in a row a server may want a call again without asking anything."""
HELD_PREFIX: Final = "sessiontree-held:"
HELD_S: Final = 3_600.0
"""How long a call waits inside a server for the answer to its question."""
Tell = Callable[[dict[str, Any]], Awaitable[None]]


class CallFailed(Exception):
    """A call that has no reply; ``kind`` says why."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


@dataclass(eq=False)
class _Held:
    """A call of a handshake-era server that waits inside the server for a person's answer."""

    task: asyncio.Task[dict[str, Any]]
    asked: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = field(
        default_factory=asyncio.Queue
    )
    answer: asyncio.Future[dict[str, Any]] | None = None


class OwnedConnection:
    """A connection to one server; use it once.

    Args:
        transport: Its streams.
        tell: Tells the parent of changed tools.
    """

    def __init__(self, transport: AbstractAsyncContextManager[Any], tell: Tell) -> None:
        self._transport = transport
        self._tell = tell
        self._client: Client | None = None
        self._running: list[_Held] = []
        self._held: dict[str, _Held] = {}
        self._has_changed = asyncio.Event()
        self._listing: asyncio.Task[None] | None = None

    async def run(self, ready: Callable[[dict[str, Any]], Awaitable[None]], over: asyncio.Event) -> None:
        """Own the connection until ``over`` is set; everything is opened and closed in this task."""
        client = Client(
            self._transport,
            client_info=types.Implementation(name="sessiontree", version=VERSION),
            elicitation_callback=self._on_asked,
            message_handler=self._on_message,
            cache=None,
        )
        async with client:
            self._client = client
            info = client.server_info
            await ready(
                {
                    "protocol": client.protocol_version,
                    "server": "" if info is None else f"{info.name} {info.version}"[:200],
                    "tools": await self._list(),
                }
            )
            self._listing = asyncio.create_task(self._list_again())
            try:
                await over.wait()
            finally:
                self._listing.cancel()
                # Calls that wait inside the server would never end: nobody can answer them on another
                # connection.
                for held in [*self._running, *self._held.values()]:
                    held.task.cancel()

    async def call(self, order: dict[str, Any]) -> dict[str, Any]:
        """Make a call, or go on with one; return its reply, or what the server needs first.

        Raises:
            CallFailed: it has no reply.
        """
        state = order.get("state")
        if isinstance(state, str) and state.startswith(HELD_PREFIX):
            # Taken out, so that one answer is given once, also if the same call comes twice.
            held = self._held.pop(state, None)
            if held is None:
                raise CallFailed("gone", "the server that asked was restarted; the call is gone")
            self._give(held, order.get("responses") or {})
        else:
            held = _Held(asyncio.create_task(self._run(order)))
        self._running.append(held)
        try:
            return await self._reply_or_question(held)
        except asyncio.CancelledError:
            held.task.cancel()
            raise
        finally:
            self._running.remove(held)

    async def _reply_or_question(self, held: _Held) -> dict[str, Any]:
        question = asyncio.create_task(held.asked.get())
        try:
            await asyncio.wait({held.task, question}, return_when=asyncio.FIRST_COMPLETED)
            if held.task.done():
                return held.task.result()
            request, held.answer = question.result()
        finally:
            question.cancel()
        token = f"{HELD_PREFIX}{secrets.token_hex(16)}"
        self._held[token] = held
        # A person may never answer, and the server would hold its call until it ends.
        asyncio.get_running_loop().call_later(HELD_S, self._give_up, token)
        return {"input": {"requests": {"1": request}, "state": token}}

    def _give_up(self, token: str) -> None:
        held = self._held.pop(token, None)
        if held is not None:
            held.task.cancel()

    def _give(self, held: _Held, responses: dict[str, Any]) -> None:
        answer = next(iter(responses.values()), {"action": "cancel"})
        if held.answer is not None and not held.answer.done():
            held.answer.set_result(answer)

    async def _run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Send a call, as often as the server wants it again without a question."""
        assert self._client is not None  # noqa: S101 - calls come after the connection
        session, state, responses = self._client.session, order.get("state"), order.get("responses")
        for round_number in range(MAX_STATE_ROUNDS):
            try:
                result: Any = await session.call_tool(
                    order["tool"],
                    order["arguments"],
                    input_responses=_parse_responses(responses),
                    request_state=state,
                    allow_input_required=True,
                    allow_claimed=True,
                )
            except MCPError as error:
                kind = "lost" if error.code == types.CONNECTION_CLOSED else "server"
                raise CallFailed(kind, error.message[:2_000]) from error
            except RuntimeError as error:  # structured content that does not fit its schema
                raise CallFailed("server", str(error)[:2_000]) from error
            if isinstance(result, types.CallToolResult):
                return convert_reply(result)
            if not isinstance(result, types.InputRequiredResult):
                raise CallFailed("server", "it gave a kind of result that was not asked for")
            if result.input_requests:
                return {"input": {"requests": _dump_requests(result), "state": result.request_state}}
            state, responses = result.request_state, None
            # The pause grows, because a server that wants the call again at once would keep both sides busy.
            await asyncio.sleep(min(0.05 * 2**round_number, 1.0))
        raise CallFailed("server", f"it wanted the call again {MAX_STATE_ROUNDS} times without a question")

    async def _on_asked(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Put a question of a handshake-era server to the call that it came in."""
        # Such a request does not say which call it belongs to. The oldest call that asks nothing yet takes
        # it: the person's answer reaches the question in any case.
        taking = next((each for each in self._running if each.asked.empty()), None)
        if taking is None:
            return types.ElicitResult(action="cancel")
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        request = {"method": "elicitation/create", "params": _to_plain(params)}
        taking.asked.put_nowait((request, answer))
        return types.ElicitResult.model_validate(await answer)

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._has_changed.set()

    async def _list_again(self) -> None:
        """Tell the parent the tools each time that the server says that they have changed."""
        while True:
            await self._has_changed.wait()
            # Cleared before the listing: a change that comes while it runs needs another one.
            self._has_changed.clear()
            try:
                rows = await self._list()
            except MCPError:
                continue
            await self._tell({"tools": rows})
            await asyncio.sleep(1.0)  # a server that says so all the time is asked once a second

    async def _list(self) -> list[dict[str, Any]]:
        assert self._client is not None  # noqa: S101 - as above
        rows: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
            page = await self._client.session.list_tools(params=params)
            rows += [build_row(tool) for tool in page.tools[: MAX_LISTED - len(rows)]]
            cursor = page.next_cursor
            if cursor is None or len(rows) >= MAX_LISTED:
                break
        return rows


def _to_plain(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def _dump_requests(result: types.InputRequiredResult) -> dict[str, Any]:
    return {key: _to_plain(request) for key, request in (result.input_requests or {}).items()}


def _parse_responses(responses: dict[str, Any] | None) -> types.InputResponses | None:
    if not responses:
        return None
    return {key: types.ElicitResult.model_validate(each) for key, each in responses.items()}
