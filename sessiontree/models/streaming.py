"""Models that stream: a function that yields pieces, and the one way any model that takes time is asked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError, ModelError, SessionTreeError, words_of
from sessiontree.contracts.messages import AssistantMessage
from sessiontree.models.assembly import Assembly
from sessiontree.models.pieces import Piece
from sessiontree.models.port import EmitEvent, GatewayModel, ModelRequest

PIECES_AT_ONCE: Final = 256
"""After so many pieces others on the gateway have their turn, however fast they come."""


class StreamFunctionModel:
    """Replies what an async generator function yields, piece by piece; asked through the model gateway.

    Args:
        function: Given the request; yields text, :class:`CallPiece`, :class:`ThinkingPiece`, ``Usage`` and
            :class:`StopPiece` in any order.
        name: How the model is called in prompts and journals; ``provider:name`` chooses the dialect of its
            tools and the form of its call ids.
    """

    def __init__(
        self, function: Callable[[ModelRequest], AsyncIterator[Piece]], name: str = "function"
    ) -> None:
        """Keep the function.

        Raises:
            ConfigError: it can't be called, or yields nothing.
        """
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise ConfigError(
                f"StreamFunctionModel takes a function that yields pieces, not {function!r}; "
                "AsyncFunctionModel takes one that returns the whole reply"
            )
        self.name = name
        self._function = function

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Yield what the function yields.

        Raises:
            ModelError: the function raised.
        """
        pieces = self._function(request)
        try:
            async for piece in pieces:
                yield piece
        except SessionTreeError:
            raise
        except Exception as error:
            raise ModelError(f"{self.name} raised {words_of(error)}") from error
        finally:
            await _close(pieces)


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
