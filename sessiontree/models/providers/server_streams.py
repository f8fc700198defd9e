"""Streams of chat completions as servers send them, for pydantic-ai's models of OpenAI, Ollama and Mistral.

Compatible servers differ from the documented form: usage that counts from the beginning comes with every
chunk, the last chunk has no delta, and pieces of calls have no name or an index that nothing opened.

Loading this loads the libraries of providers; a module's class is looked up by ``provider_model``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import (
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
)
from pydantic_ai.models.ollama import OllamaModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.usage import RequestUsage


class _ChatStream(OpenAIStreamedResponse):  # type: ignore[misc]  # its library is not typed here
    def _add_usage(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        """Record the usage of a chunk: the last one of a stream counts."""
        if reported:
            # Counted as a running total: some servers send the whole usage with every chunk, and a sum would
            # charge it many times.
            super()._add_usage(usage, reported=True, cumulative=True)

    def _validate_response(self) -> AsyncIterator[ChatCompletionChunk]:
        return _repair_chunks(super()._validate_response())


async def _repair_chunks(chunks: Any) -> AsyncIterator[ChatCompletionChunk]:
    calls = _OpenCalls()
    async for chunk in chunks:
        # Only the first choice: pydantic-ai reads no other, and the last chunk of some servers has none.
        for choice in (chunk.choices or ())[:1]:
            if choice.delta is None:
                choice.delta = ChoiceDelta()
            for piece in choice.delta.tool_calls or ():
                calls.place(piece)
        yield chunk


class _OpenCalls:
    """The calls of one reply: which index a piece belongs to, and whether it begins a call."""

    def __init__(self) -> None:
        self._opened: set[int | None] = set()
        self._last: int | None = None

    def place(self, piece: ChoiceDeltaToolCall) -> None:
        """Correct a piece: it continues the open call if it has neither a name nor an id of its own.

        A call that begins without a name gets an empty one, because pydantic-ai drops calls without any.
        """
        function = piece.function
        if function is None:
            function = piece.function = ChoiceDeltaToolCallFunction()
        if piece.index not in self._opened:
            if self._opened and not function.name and not piece.id:
                piece.index = self._last  # type: ignore[assignment]  # a server may leave it out
                return
            self._opened.add(piece.index)
            function.name = function.name or ""
        self._last = piece.index


class ServedChatModel(OpenAIChatModel):  # type: ignore[misc]  # its library is not typed here
    """OpenAI's chat completions, also of compatible servers."""

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _ChatStream


class ServedOllamaModel(OllamaModel):  # type: ignore[misc]  # its library is not typed here
    """Ollama's chat completions."""

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _ChatStream
