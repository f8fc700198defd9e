"""The routes of the protocol Open Responses: a turn as JSON, or as a stream of events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.doors.client_tools import find_declared
from sessiontree.doors.exchanges import Begun, DoorExchange, DoorExchanges
from sessiontree.doors.live_response import LiveResponse, NewItems, News, TextPiece
from sessiontree.doors.response_log import LoggedResponse
from sessiontree.doors.responses.asked import ClientRequest, note_end, open_response
from sessiontree.doors.responses.response_request import ResponseRequest, read_request, request_in
from sessiontree.doors.responses.responses import ResponseEvents, ResponseFrame, make_response
from sessiontree.doors.tokens import DoorToken
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.serve.routes.door_guard import find_key, read_json
from sessiontree.serve.routes.door_stream import DONE, DoorStream, encode_events


@dataclass(frozen=True, slots=True)
class _ResponseStream:
    """One stream of a response."""

    frame: ResponseFrame
    begun: Begun
    live: LiveResponse
    previous: str | None
    at_s: int
    after: int = -1
    """Number of the last event that the client has."""


class ResponseRoutes:
    """What clients of the protocol ask.

    Args:
        exchanges: Their conversations.
    """

    def __init__(self, exchanges: DoorExchanges) -> None:
        self._exchanges = exchanges

    async def answer(self, request: Request, token: DoorToken) -> Response:
        """Answer a message, or the outputs of calls."""
        body = await read_json(request)
        given = read_request(body)
        asked = replace(request_in(given), key=find_key(request, token, body))
        with ExitStack() as held:
            opened = await open_response(self._exchanges, token.principal, asked, held, listens=given.stream)
            begun, exchange = opened.begun, opened.begun.exchange
            frame = _make_frame(exchange, begun.response_id, given)
            if given.stream:
                streamed = _ResponseStream(
                    frame, begun, opened.live, opened.previous, read_machine_ms() // 1000
                )
                return DoorStream(self._stream(streamed, asked), held.pop_all())
            if given.background:
                return JSONResponse(make_response(frame, exchange.log.fold, await exchange.heard(begun)))
            logged = await exchange.wait_for_end(begun.response_id, begun.turn)
            note_end(self._exchanges, exchange, asked, logged)
            return JSONResponse(make_response(frame, exchange.log.fold, logged))

    async def show(self, request: Request, token: DoorToken) -> Response:
        """Show a response as it is now, or its events from one on."""
        response_id = request.path_params["response_id"]
        with ExitStack() as held:
            exchange = await self._exchanges.find(token.principal, response_id, held)
            logged = await exchange.find(response_id)
            frame = _make_frame(exchange, response_id, None)
            if request.query_params.get("stream") != "true":
                return JSONResponse(make_response(frame, exchange.log.fold, logged))
            live = LiveResponse(exchange, listens=False)
            begun = Begun(exchange, response_id, None)
            after = _number_in(request.query_params.get("starting_after"))
            at_s = logged.start.at_ms // 1000
            streamed = _ResponseStream(frame, begun, live, logged.previous, at_s, after)
            return DoorStream(self._stream(streamed, None), held.pop_all())

    async def cancel(self, request: Request, token: DoorToken) -> Response:
        """Interrupt the turn of a response, and show the response."""
        response_id = request.path_params["response_id"]
        with ExitStack() as held:
            exchange = await self._exchanges.find(token.principal, response_id, held)
            logged = await exchange.find(response_id)
            if (await exchange.conversation.find_turn(logged.turn_id)).ended is None:
                await exchange.conversation.interrupt()
        return await self.show(request, token)

    async def _stream(self, streamed: _ResponseStream, asked: ClientRequest | None) -> AsyncIterator[bytes]:
        events = ResponseEvents(streamed.frame, streamed.after)
        yield encode_events(events.begin(streamed.previous, streamed.at_s))
        piece = b""
        try:
            async for news in streamed.live.follow(streamed.begun.response_id, streamed.begun.turn):
                for each in news:
                    if isinstance(each, LoggedResponse) and asked is not None:
                        note_end(self._exchanges, streamed.begun.exchange, asked, each)
                    piece += encode_events(_make_events(events, streamed, each))
                if piece and not isinstance(news[-1], LoggedResponse):
                    yield piece
                    piece = b""
        except SessionTreeError as error:
            piece += encode_events(events.fail(streamed.previous, str(error)))
        yield piece + DONE


def _number_in(given: str | None) -> int:
    """Return the number of the last event that a client has; -1 = it has none.

    Raises:
        ConfigError: what was given is not a number.
    """
    if given is None:
        return -1
    if not given.isascii() or not given.isdigit() or len(given) > 15:
        raise ConfigError("starting_after: give the sequence_number of the last event that you have")
    return int(given)


def _make_frame(exchange: DoorExchange, response_id: str, given: ResponseRequest | None) -> ResponseFrame:
    conversation = exchange.conversation
    tools = find_declared(conversation.config)
    frame = ResponseFrame(response_id, conversation.agent, tools, is_kept=conversation.is_kept)
    if given is None:
        return frame
    return replace(
        frame, metadata=given.metadata, tool_choice=given.tool_choice, is_background=given.background
    )


def _make_events(events: ResponseEvents, streamed: _ResponseStream, news: News) -> Any:
    if isinstance(news, TextPiece):
        return events.emit_piece(news.text)
    if isinstance(news, NewItems):
        return events.items(news.items)
    waiting = () if news.ended is None else news.ended.waiting
    fold = streamed.begun.exchange.log.fold
    return events.end(make_response(streamed.frame, fold, news), waiting)
