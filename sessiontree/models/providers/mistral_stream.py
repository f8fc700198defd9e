"""Streams of Mistral's chat completions: the last usage counts, and no call is dropped for want of a name.

Loading this loads pydantic-ai and Mistral's library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.mistral import MistralModel, MistralStreamedResponse
from pydantic_ai.usage import RequestUsage


class _MistralStream(MistralStreamedResponse):  # type: ignore[misc]  # its library is not typed here
    def _add_usage(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        """Record the usage of a chunk: the last one of a stream counts."""
        if reported:
            super()._add_usage(usage, reported=True, cumulative=True)

    def _handle_tool_call_deltas(self, tool_calls: list[Any]) -> Iterator[ModelResponseStreamEvent]:
        """Begin a call also where it has no name; a piece without one continues a call that is open."""
        opened: set[Any] = self.__dict__.setdefault("_opened", set())
        for piece in tool_calls:
            if piece.index in opened or piece.function.name:
                yield from super()._handle_tool_call_deltas([piece])
            else:
                yield from self._parts_manager.handle_tool_call_delta_events(
                    vendor_part_id=piece.index,
                    tool_name="",
                    args=piece.function.arguments,
                    tool_call_id=None if piece.id == "null" else piece.id,
                )
            opened.add(piece.index)


class ServedMistralModel(MistralModel):  # type: ignore[misc]  # its library is not typed here
    """Mistral's chat completions."""

    async def _process_streamed_response(self, *given: Any, **named: Any) -> StreamedResponse:
        stream = await super()._process_streamed_response(*given, **named)
        members = {each.name: getattr(stream, each.name) for each in fields(stream) if each.init}
        return _MistralStream(**members)
