"""Several models used as one: if one fails before it has said anything, the next is asked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError, ModelError
from sessiontree.contracts.settings.model_settings import ModelPrice
from sessiontree.models.port import (
    CallPiece,
    ModelPiece,
    ModelRequest,
    Piece,
    StreamingModel,
    ThinkingPiece,
    list_libraries,
)
from sessiontree.schema.dialect import choose_dialect
from sessiontree.schema.provider_schema import clean

REST_S: Final = 30.0
"""Seconds for which a model that failed temporarily is asked only after the others."""


class FallbackModel:
    """Asks models in order until one replies. It has the name of the first.

    A model that fails after the first piece of its reply is not replaced, because half a reply was already
    sent. If all fail, the error says why each failed, and is retryable if one of their errors is. A
    refusal is a reply.

    Args:
        models: In the order in which they are asked; each streams.
    """

    def __init__(self, models: Sequence[StreamingModel]) -> None:
        """Store the models.

        Raises:
            ConfigError: no model is given, or one does not stream.
        """
        if not models:
            raise ConfigError("model: the list is empty; give at least one model")
        for model in models:
            if not callable(getattr(model, "stream", None)):
                raise ConfigError(f"model: {model!r} in a list of models does not stream; give it alone")
        self.name = models[0].name
        sizes = [tokens for model in models if (tokens := getattr(model, "context_tokens", None)) is not None]
        self.context_tokens: int | None = min(sizes, default=None)
        self.models = tuple(models)
        """In the order in which they are asked."""
        self._rests_until_s = dict.fromkeys(range(len(models)), 0.0)

    @property
    def libraries(self) -> tuple[str, ...]:
        """What its first model loads: the others may never be asked."""
        return list_libraries(self.models[0])

    def highest_price(self) -> ModelPrice | None:
        """Return the most that tokens of any of its models may cost, or None if that is not known."""
        prices = [price() for each in self.models if (price := getattr(each, "highest_price", None))]
        known = [price for price in prices if price is not None]
        if len(known) < len(prices):
            return None
        return ModelPrice(
            input_per_million=max((price.input_per_million for price in known), default=0.0),
            output_per_million=max((price.output_per_million for price in known), default=0.0),
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        """Yield the pieces of the first model that replies, and its name.

        Raises:
            ModelError: every model failed, or one in the middle of its reply.
        """
        failures: list[ModelError] = []
        now_s = asyncio.get_running_loop().time
        # A stable sort: models keep the order of their owner, and those that failed lately come last but are
        # still asked.
        for place in sorted(self._rests_until_s, key=lambda each: self._rests_until_s[each] > now_s()):
            has_begun = False
            try:
                pieces = await _stream_pieces(self.models[place], request)
                yield ModelPiece(self.models[place].name)
                async with aclosing(pieces):
                    async for piece in pieces:
                        # A name or a usage is not part of what was said, so another model may still replace
                        # this one.
                        has_begun = has_begun or isinstance(piece, str | ThinkingPiece | CallPiece)
                        yield piece
            except ModelError as error:
                if has_begun:
                    raise
                failures.append(error)
                if error.retryable:
                    self._rests_until_s[place] = now_s() + REST_S
            else:
                return
        raise _join_failures(failures)

    async def close(self) -> None:
        """Close the connections of all models."""
        for model in self.models:
            close = getattr(model, "close", None)
            if close is not None:
                await close()


async def _stream_pieces(model: StreamingModel, request: ModelRequest) -> Any:
    """Return a model's pieces; it sees the tools in its own dialect, converted from the first model's.

    Raises:
        ModelError: the model fails, or a tool has no form in its dialect.
    """
    dialect = choose_dialect(model.name)
    if dialect is not choose_dialect(request.model):
        try:
            tools = [
                replace(tool, parameters=clean(tool.parameters, dialect).schema) for tool in request.tools
            ]
        except ConfigError as error:
            # Another model may still accept the tools: this failure is the model's, not the request's.
            raise ModelError(f"{model.name} can't be given the tools: {error}") from error
        request = replace(request, tools=tools)
    pieces: Any = model.stream(replace(request, model=model.name))
    return await pieces if inspect.isawaitable(pieces) else pieces


def _join_failures(failures: Sequence[ModelError]) -> ModelError:
    """Return one error for all failures, with their type if all have the same."""
    kinds = {type(failure) for failure in failures}
    kind = kinds.pop() if len(kinds) == 1 else ModelError
    waits = [failure.retry_after_s or 0.0 for failure in failures if failure.retryable]
    return kind("; ".join(map(str, failures)), bool(waits), min(waits, default=0.0) or None)
