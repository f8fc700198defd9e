"""A small real model on this machine, ``local:smollm2``: no key, no network, no account.

It proves that everything works together; its answers are simple. Not here: its process (``local_server``),
how it calls tools (``constrained_exchange``), and HTTP (``providers``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError, ModelError
from sessiontree.contracts.settings.model_settings import ModelPrice
from sessiontree.contracts.settings.settings import suggest_nearest
from sessiontree.contracts.values.messages import Usage
from sessiontree.models.local.local_server import WEIGHTS, LocalServer, ServerPlace, find_weights_file
from sessiontree.models.port import ModelPiece, ModelRequest, Piece, StopPiece
from sessiontree.models.providers.provider_model import (
    CONSTRAINED,
    LOCAL,
    PROVIDERS,
    CallTimeouts,
    ProviderModel,
    check_installed,
)

_TIMES: Final = CallTimeouts(first_s=600.0, between_s=120.0, total_s=1_800.0)
"""A question waits for its turn, and a long one is read at about a hundred tokens a second."""
TALK_TOKENS: Final = 200
"""Length at which a text ends for which no length is set: so small a model goes on until it is stopped."""


class LocalModel:
    """A model served by a process on this machine, which starts with the first question.

    All local models of one kind share one server in each process that asks: the program on the local backend,
    the gateway on Ray. The server ends when the last tree that used it is closed, and with that process.

    Args:
        name: ``local:smollm2``.
    """

    def __init__(self, name: str = "local:smollm2") -> None:
        """Check that everything is installed.

        Raises:
            ConfigError: no local model has this name, or it is not installed; says how to install it.
        """
        weights = WEIGHTS.get(name.removeprefix(LOCAL))
        if weights is None or not name.startswith(LOCAL):
            known = ", ".join(f"local:{each}" for each in WEIGHTS)
            raise ConfigError(
                f"model {name!r}: the local models are {known}{suggest_nearest(name, list(WEIGHTS))}"
            )
        find_weights_file(weights)
        check_installed(PROVIDERS["openai"], name)
        self.name = name
        self.context_tokens = weights.context_tokens
        self._model: tuple[ServerPlace, ProviderModel] | None = None

    def __repr__(self) -> str:
        """Return the name."""
        return f"LocalModel({self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without connections."""
        return {**self.__dict__, "_model": None}

    def highest_price(self) -> ModelPrice:
        """Return a price of nothing."""
        return ModelPrice(input_per_million=0.0, output_per_million=0.0)

    @property
    def server(self) -> LocalServer:
        """The server of this process for this model; it may not be running."""
        return _SERVERS[self.name.removeprefix(LOCAL)]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        """Yield the reply's pieces as they arrive.

        Raises:
            ModelError: it failed; ``retryable`` says whether asking again may help.
        """
        # In a thread, because a start takes a second, and the lock may be held by another start.
        model = await self._ensure_model(await asyncio.to_thread(self.server.place, self))
        try:
            async with aclosing(model.stream(_make_repeatable(request))) as pieces:
                async for piece in pieces:
                    yield self._own(_accept_end(piece) if _is_unbounded(request) else piece)
        except ModelError as error:
            # Only a failure that may pass says something about the server; a refused question does not.
            if error.retryable:
                self.server.suspect()
            raise

    def _own(self, piece: Piece) -> Piece:
        """Return a piece with this model's name and a cost of zero."""
        if isinstance(piece, Usage):
            return replace(piece, cost_usd=0.0, unpriced_tokens=0)
        return ModelPiece(self.name) if isinstance(piece, ModelPiece) else piece

    async def close(self) -> None:
        """Stop using the server; it ends with its last user. The next question starts it again."""
        held, self._model = self._model, None
        if held is not None:
            await held[1].close()
        await asyncio.to_thread(self.server.leave, self)

    async def _ensure_model(self, place: ServerPlace) -> ProviderModel:
        """Return the model that asks a server; a new one if the server has changed."""
        if self._model is not None and self._model[0] == place:
            return self._model[1]
        held = self._model
        weights = self.server.weights
        model = ProviderModel(
            f"{CONSTRAINED}openai:{weights.name}",
            api_key=place.key,
            base_url=f"{place.address}/v1",
            context_tokens=weights.context_tokens,
            timeouts=_TIMES,
        )
        model.name = self.name  # the name in its failures
        self._model = (place, model)
        # Closed after the new model is set: another question that comes while this one waits must not get the
        # old connections.
        if held is not None:
            await held[1].close()
        return model


def _make_repeatable(request: ModelRequest) -> ModelRequest:
    """Return a request with temperature 0 and a short reply unless others are set: it rambles otherwise."""
    given: dict[str, Any] = {}
    if request.settings.temperature is None:
        given["temperature"] = 0.0
    if _is_unbounded(request):
        given["max_output_tokens"] = TALK_TOKENS
    return replace(request, settings=request.settings.model_copy(update=given)) if given else request


def _is_unbounded(request: ModelRequest) -> bool:
    """Whether nobody set how long the reply to a request for plain text may be, and what happens then."""
    settings = request.settings
    return not request.tools and settings.max_output_tokens is None and settings.on_length is None


def _accept_end(piece: Piece) -> Piece:
    """Return a piece of a reply whose end at the default length is accepted."""
    return StopPiece("stop") if isinstance(piece, StopPiece) and piece.reason == "length" else piece


_SERVERS: Final = {name: LocalServer(weights) for name, weights in WEIGHTS.items()}
"""The servers of this process, by the model's name."""
