"""The route of chat completions: a turn as JSON, or as a stream of chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.doors.exchanges import Begun, DoorExchange, DoorExchanges
from sessiontree.doors.live_response import LiveResponse, NewItems, News, TextPiece
from sessiontree.doors.response_log import LoggedResponse
from sessiontree.doors.responses.asked import ClientRequest, note_end, open_response
from sessiontree.doors.responses.chat_completions import (
    ChatChunks,
    convert_chat_request,
    make_completion,
    read_chat,
)
from sessiontree.doors.tokens import DoorToken
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.serve.routes.door_guard import find_key, read_json
from sessiontree.serve.routes.door_stream import DONE, DoorStream, encode_events


class ChatRoutes:
    """What clients of chat completions ask.

    Args:
        exchanges: Their conversations.
    """

    def __init__(self, exchanges: DoorExchanges) -> None:
        self._exchanges = exchanges

    async def answer(self, request: Request, token: DoorToken) -> Response:
        """Answer the newest message of a conversation, or the outputs of calls."""
        body = await read_json(request)
        given = read_chat(body)
        asked = replace(convert_chat_request(given), key=find_key(request, token, body))
        with ExitStack() as held:
            opened = await open_response(self._exchanges, token.principal, asked, held, listens=given.stream)
            begun, exchange = opened.begun, opened.begun.exchange
            if given.stream:
                has_usage, at_s = given.stream_options.include_usage, read_machine_ms() // 1000
                chunks = ChatChunks(begun.response_id, given.model, at_s, has_usage=has_usage)
                return DoorStream(self._stream(chunks, begun, opened.live, asked), held.pop_all())
            ended = await exchange.wait_for_end(begun.response_id, begun.turn)
            if ended.ended is not None and ended.ended.error is not None:
                raise SessionTreeError(ended.ended.error)
            note_end(self._exchanges, exchange, asked, ended)
            return JSONResponse(make_completion(given.model, exchange.log.fold, ended))

    async def _stream(
        self, chunks: ChatChunks, begun: Begun, live: LiveResponse, asked: ClientRequest
    ) -> AsyncIterator[bytes]:
        yield encode_events(chunks.begin())
        piece = b""
        try:
            async for news in live.follow(begun.response_id, begun.turn):
                for each in news:
                    if isinstance(each, LoggedResponse):
                        note_end(self._exchanges, begun.exchange, asked, each)
                    piece += encode_events(_make_chunks(chunks, begun.exchange, each))
                if piece and not isinstance(news[-1], LoggedResponse):
                    yield piece
                    piece = b""
        except SessionTreeError as error:
            failure = {"message": str(error), "type": "server_error", "param": None, "code": "server_error"}
            piece += encode_events([{"error": failure}])
        yield piece + DONE


def _make_chunks(chunks: ChatChunks, exchange: DoorExchange, news: News) -> Iterator[dict[str, Any]]:
    """Return the chunks of what is new.

    Raises:
        SessionTreeError: the response has failed.
    """
    if isinstance(news, TextPiece):
        return chunks.emit_piece(news.text)
    if isinstance(news, NewItems):
        return chunks.items(news.items)
    ended = news.ended
    if ended is not None and ended.error is not None:
        raise SessionTreeError(ended.error)
    waiting = () if ended is None else ended.waiting
    return chunks.end(waiting, exchange.log.fold.sum_usage(news))
