"""The routes of the protocol Open Responses: a turn as JSON, or as a stream of events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.doors.client_tools import check_repeated, declare, declared_in
from sessiontree.doors.exchanges import DoorExchange, DoorExchanges
from sessiontree.doors.live_response import LiveResponse, NewItems, TextPiece
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.doors.response_request import ResponseRequest, read_request
from sessiontree.doors.responses import ResponseEvents, ResponseFrame, response_of
from sessiontree.doors.tokens import DoorToken
from sessiontree.doors.turns import Turn
from sessiontree.runtime.clock import machine_ms
from sessiontree.serve.door_guard import read_json
from sessiontree.serve.door_stream import DoorStream, sent


class ResponseRoutes:
    """What clients of the protocol ask.

    Args:
        exchanges: Their conversations.
    """

    def __init__(self, exchanges: DoorExchanges) -> None:
        self._exchanges = exchanges

    async def answer(self, request: Request, token: DoorToken) -> Response:
        """Answer a message, or the outputs of calls."""
        asked = read_request(await read_json(request))
        exchange = await self._find_exchange(asked, token.principal)
        with ExitStack() as held:
            held.enter_context(exchange.conversation)
            live = LiveResponse(exchange, listens=asked.stream)
            held.callback(live.close)
            turn: Turn | None = None
            if asked.outputs:
                response_id = (await exchange.answer(asked.outputs)).response_id
            else:
                turn = await exchange.send(asked.previous_response_id, asked.text, settings=asked.settings)
                response_id = turn.turn_id
            frame = _frame_of(exchange, response_id, asked)
            if asked.stream:
                events = _stream(frame, exchange, live, turn, asked.previous_response_id)
                return DoorStream(events, held.pop_all())
            logged = await exchange.end_of(response_id, turn)
            return JSONResponse(response_of(frame, exchange.log.fold, logged))

    async def _find_exchange(self, asked: ResponseRequest, principal: DoorPrincipal) -> DoorExchange:
        """Return the conversation that a request begins, or the one that it continues."""
        declared, previous = declare(asked.tools), asked.previous_response_id
        if previous is None:
            begin = self._exchanges.conversations.begin
            return self._exchanges.of(await begin(principal, asked.model, hosted=declared))
        exchange = await self._exchanges.find(principal, previous)
        check_repeated(exchange.conversation.config, declared)
        return exchange

    async def show(self, request: Request, token: DoorToken) -> Response:
        """Show a response as it is now."""
        response_id = request.path_params["response_id"]
        exchange = await self._exchanges.find(token.principal, response_id)
        logged = await exchange.find(response_id)
        frame = _frame_of(exchange, response_id, None)
        return JSONResponse(response_of(frame, exchange.log.fold, logged))

    async def cancel(self, request: Request, token: DoorToken) -> Response:
        """Interrupt the turn of a response, and show the response."""
        response_id = request.path_params["response_id"]
        exchange = await self._exchanges.find(token.principal, response_id)
        logged = await exchange.find(response_id)
        if (await exchange.conversation.find_turn(logged.turn_id)).ended is None:
            await exchange.conversation.interrupt()
        return await self.show(request, token)


def _frame_of(exchange: DoorExchange, response_id: str, asked: ResponseRequest | None) -> ResponseFrame:
    conversation = exchange.conversation
    tools = declared_in(conversation.config)
    if asked is None:
        return ResponseFrame(response_id, conversation.agent, tools)
    return ResponseFrame(response_id, conversation.agent, tools, asked.metadata, asked.tool_choice)


async def _stream(
    frame: ResponseFrame, exchange: DoorExchange, live: LiveResponse, turn: Turn | None, previous: str | None
) -> AsyncIterator[dict[str, str]]:
    events = ResponseEvents(frame)
    for event in events.begin(previous, machine_ms() // 1000):
        yield sent(event)
    try:
        async for news in live.follow(frame.response_id, turn):
            for event in _events_of(events, frame, exchange, news):
                yield sent(event)
    except SessionTreeError as error:
        for event in events.fail(previous, str(error)):
            yield sent(event)
    yield {"data": "[DONE]"}


def _events_of(events: ResponseEvents, frame: ResponseFrame, exchange: DoorExchange, news: Any) -> Any:
    if isinstance(news, TextPiece):
        return events.piece(news.text)
    if isinstance(news, NewItems):
        return events.items(news.items)
    waiting = () if news.ended is None else news.ended.waiting
    return events.end(response_of(frame, exchange.log.fold, news), waiting)
