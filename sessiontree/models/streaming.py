"""Asking a model that takes time: one that streams is assembled while it speaks."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Final

from sessiontree.contracts.errors import ModelError
from sessiontree.contracts.messages import AssistantMessage
from sessiontree.models.port import EmitEvent, GatewayModel, ModelRequest
from sessiontree.models.stream_assembler import Assembly

PIECES_AT_ONCE: Final = 256
"""After so many pieces others on the gateway have their turn, however fast they come."""


async def reply_of(
    model: GatewayModel, request: ModelRequest, assembly: Assembly, emit: EmitEvent
) -> AssistantMessage:
    """Return a model's reply; one that streams is assembled, and heard while it speaks.

    Raises:
        ModelError: a piece is none, or too many.
        Exception: whatever the model raised; what came before stays in the assembly.
    """
    stream = getattr(model, "stream", None)
    if stream is None:
        return await model.complete(request, emit)  # type: ignore[union-attr]
    pieces: Any = stream(request)
    if inspect.isawaitable(pieces):
        pieces = await pieces
    if not hasattr(pieces, "__aiter__"):
        raise ModelError(f"a model's stream is {type(pieces).__name__}; it must yield pieces")
    taken = 0
    try:
        async for piece in pieces:
            assembly.take(piece)
            taken += 1
            if taken % PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
    finally:
        await _close(pieces)
    return assembly.message()


async def _close(pieces: object) -> None:
    """End a stream that was left early: a provider's connection may hang on it."""
    close = getattr(pieces, "aclose", None)
    if close is not None:
        await close()
