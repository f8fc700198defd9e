"""A provider's model by its name: everything that can be checked before the first question."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.model_settings import ModelPrice
from sessiontree.contracts.settings.settings import suggest_nearest
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.models.api_key import ApiKey
from sessiontree.models.constrained_exchange import stream_constrained
from sessiontree.models.port import ModelRequest, Piece
from sessiontree.models.providers.call_limits import MINUTE_S, CallLimits
from sessiontree.models.providers.late_exports import load_exports_late
from sessiontree.version import explain_installation

CONSTRAINED: Final = "constrained:"
"""Prefix of the name of a model whose server accepts no tools."""
_EXAMPLE: Final = "http://127.0.0.1:8080/v1"
LOCAL: Final = "local:"
"""Prefix of the name of a local model."""
_CALLS: Final = "sessiontree.models.providers.provider_calls:share_calls"
"""What asks a provider; the first question loads its module, which loads the provider's library."""

_HIGHEST_PRICE: Final = "sessiontree.models.providers.prices:highest_price"
"""What knows prices, loaded with the list of them when a tree is made."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider: what must be installed and known to ask it."""

    name: str
    """The part of a model's name before the colon."""
    extra: str
    """The extra that brings its library."""
    library: str
    """The library's module."""
    system: str
    """The system whose signatures it accepts: two names of one system share conversations."""
    model: str
    """``module:class`` of the model in pydantic-ai."""
    client: str
    """``module:name`` of what makes the provider (the client) in pydantic-ai."""
    key_variables: tuple[str, ...]
    """Environment variables that its documentation names for the key; the first one that is set counts."""
    url_variable: str
    """The same for the address; ``""`` = it reads no variable."""
    url: str = ""
    """Its address if no other is given; ``""`` = its library knows it."""
    needs_key: bool = True
    most_tools: int | None = None
    """Number of tools that one request may hold; None = the provider documents no limit.

    OpenAI: "A max of 128 functions are supported" in its reference and library; more are refused with status
    400 ("array too long").
    """
    most_images: int | None = None
    """Number of images that one request may hold; None = no documented limit.

    The highest that a provider documents for any model of its own: what is above it would be refused for
    certain. Anthropic 600, OpenAI 500, Google 3,600; read in autumn 2026.
    """
    most_bytes: int | None = None
    """Size of one request; None = no documented limit. Anthropic 32 MB, OpenAI 50 MB, Google 100 MB."""


_OPENAI: Final = ("openai", "openai", "openai")
_ALL: Final = (
    Provider(
        "openai",
        *_OPENAI,
        "sessiontree.models.providers.server_streams:ServedChatModel",
        "sessiontree.models.providers.openai_client:make_openai_provider",
        ("OPENAI_API_KEY",),
        "OPENAI_BASE_URL",
        most_tools=128,
        most_images=500,
        most_bytes=50_000_000,
    ),
    Provider(
        "openai-responses",
        *_OPENAI,
        "pydantic_ai.models.openai:OpenAIResponsesModel",
        "sessiontree.models.providers.openai_client:make_openai_provider",
        ("OPENAI_API_KEY",),
        "OPENAI_BASE_URL",
        most_tools=128,
        most_images=500,
        most_bytes=50_000_000,
    ),
    Provider(
        "anthropic",
        "anthropic",
        "anthropic",
        "anthropic",
        "pydantic_ai.models.anthropic:AnthropicModel",
        "pydantic_ai.providers.anthropic:AnthropicProvider",
        ("ANTHROPIC_API_KEY",),
        "ANTHROPIC_BASE_URL",
        most_images=600,
        most_bytes=32_000_000,
    ),
    Provider(
        "google",
        "google",
        "google.genai",
        "google",
        "pydantic_ai.models.google:GoogleModel",
        "pydantic_ai.providers.google:GoogleProvider",
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        "",
        most_images=3_600,
        most_bytes=100_000_000,
    ),
    Provider(
        "mistral",
        "mistral",
        "mistralai",
        "mistral",
        "sessiontree.models.providers.mistral_stream:ServedMistralModel",
        "pydantic_ai.providers.mistral:MistralProvider",
        ("MISTRAL_API_KEY",),
        "",
    ),
    Provider(
        "ollama",
        "openai",
        "openai",
        "ollama",
        "sessiontree.models.providers.server_streams:ServedOllamaModel",
        "sessiontree.models.providers.openai_client:make_ollama_provider",
        ("OLLAMA_API_KEY",),
        "OLLAMA_BASE_URL",
        "http://localhost:11434/v1",
        needs_key=False,
    ),
)
PROVIDERS: Final = {provider.name: provider for provider in _ALL}
"""Every provider by its name."""
KEY_VARIABLES: Final = frozenset(name for each in _ALL for name in each.key_variables)
"""Environment variables that hold keys of providers."""


@dataclass(frozen=True, slots=True)
class CallTimeouts:
    """Timeouts of a question, in seconds; None = no limit."""

    connect_s: float = 10.0
    """Until there is a connection."""
    first_s: float | None = 120.0
    """Until the first piece of the reply."""
    between_s: float | None = 60.0
    """Between two pieces."""
    total_s: float | None = 900.0
    """Until the last piece."""


class ProviderModel:
    """A model that a provider serves, asked through the model gateway.

    Args:
        name: ``provider:model``, such as ``anthropic:claude-sonnet-5``. The providers are ``anthropic``,
            ``google``, ``mistral``, ``ollama``, ``openai`` (chat completions, also of compatible servers) and
            ``openai-responses``. ``constrained:openai:model`` is for a compatible server that ignores tools
            but holds a reply to a JSON Schema, such as llama.cpp's or vLLM: tools are called through that.
        api_key: The provider's key; None = the variable that the provider documents, such as
            ``ANTHROPIC_API_KEY``. With ``base_url`` it is taken from a variable only if ``key`` names that.
        key: Instead of ``api_key`` the place of the key, as ``env:VARIABLE`` or ``file:/path``. On a cluster
            it is read on each node that asks the model, so the key travels nowhere.
        base_url: Address of another server with the same protocol; None = the variable that the provider
            documents, else the provider's own address.
        context_tokens: Size of the model's context; results are cut to a share of it.
        timeouts: How long a question may take, from the time it is sent.
        price: What its tokens cost; None = by a list of prices. The list does not apply to ``base_url``.
        limits: How many questions are asked at a time and per minute. All sessions and trees of a gateway
            share them with every other model of the same server and key; the strictest limits apply.
    """

    window_s: ClassVar[float] = MINUTE_S
    """Seconds within which ``limits.per_minute`` questions may begin; tests have shorter minutes."""

    def __init__(  # noqa: PLR0913 - keyword-only settings of one model
        self,
        name: str,
        *,
        api_key: str | None = None,
        key: str | None = None,
        base_url: str | None = None,
        context_tokens: int | None = None,
        timeouts: CallTimeouts | None = None,
        limits: CallLimits | None = None,
        price: ModelPrice | None = None,
    ) -> None:
        """Check everything that can be checked without a request.

        Raises:
            ConfigError: the name, the address or the key is not valid, or the extra is not installed; names
                what is missing.
        """
        self.is_constrained = isinstance(name, str) and name.startswith(CONSTRAINED)
        """Whether tools are called through the schema of a reply."""
        self.provider, self.model = _split_name(
            name.removeprefix(CONSTRAINED) if self.is_constrained else name
        )
        self.name = name
        self.context_tokens = context_tokens
        self.timeouts = timeouts or CallTimeouts()
        self.limits = limits or CallLimits()
        self.price = price
        """What its tokens cost, if that was given."""
        self.is_priced = base_url is None and self.provider.needs_key
        """Whether the provider itself is asked, so that its prices apply."""
        self.base_url = _resolve_address(base_url, self.provider)
        self.key = _find_key(api_key, key, self.provider, named=base_url is not None)
        check_installed(self.provider, name)
        self._calls: tuple[asyncio.AbstractEventLoop, Any] | None = None

    def __repr__(self) -> str:
        """Return the name and address, without the key."""
        return (
            f"ProviderModel({self.name!r})"
            if not self.base_url
            else f"ProviderModel({self.name!r}, base_url={self.base_url!r})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without connections; the key is pickled as a reference."""
        return {**self.__dict__, "_calls": None}

    @property
    def identity(self) -> tuple[Any, ...]:
        """What it has in common with its copies: all of it but the key and the connections."""
        return tuple(value for name, value in self.__dict__.items() if name not in {"key", "_calls"})

    @property
    def libraries(self) -> tuple[str, ...]:
        """What the first question loads: a second of work."""
        return _CALLS, self.provider.model, self.provider.client

    def highest_price(self) -> ModelPrice | None:
        """Return the most that its tokens may cost, or None if that is not known."""
        if self.price is not None or not self.is_priced:
            return self.price
        found: ModelPrice | None = load(_HIGHEST_PRICE)(self.model, self.provider.system)
        return found

    @property
    def system(self) -> str:
        """The owner of a conversation's signatures: the provider, and the server if it is another one."""
        host = urlsplit(self.base_url).netloc if self.base_url else ""
        return f"{self.provider.system}@{host}" if host else self.provider.system

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        """Yield the pieces of the reply to ``request`` as they arrive.

        Raises:
            ModelError: it failed; ``retryable`` says whether asking again may help.
        """
        calls = await self._connect()
        pieces = stream_constrained(calls.pieces, request) if self.is_constrained else calls.pieces(request)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """Let go of its connections; the next question opens new ones.

        They are closed once no equal model holds them and no question is in progress.
        """
        held = self._calls
        # Connections of another loop can't be closed from this one.
        if held is not None and held[0] is asyncio.get_running_loop():
            self._calls = None
            await held[1].release()

    async def _connect(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._calls is None or self._calls[0] is not loop or self._calls[1].is_closed:
            text = None if self.key is None else await self.key.text()
            # In a thread: the loop would stop for a second, and all sessions of this process with it.
            calls = await asyncio.to_thread(load, _CALLS)  # a second of work, once
            # Checked again: two first questions wait here at the same time, and connections of the earlier
            # one must not be lost.
            if self._calls is None or self._calls[0] is not loop or self._calls[1].is_closed:
                self._calls = (loop, calls(self, text))
        return self._calls[1]


def load(place: str) -> Any:
    """Return the object that ``module:name`` names; its module is loaded now."""
    module, _, name = place.partition(":")
    with load_exports_late():
        return getattr(importlib.import_module(module), name)


def _split_name(name: str) -> tuple[Provider, str]:
    if not isinstance(name, str):
        raise ConfigError(f"a model's name is text such as 'openai:gpt-5', not {name!r}")
    first, colon, model = name.partition(":")
    provider = PROVIDERS.get(first)
    if not colon or not model.strip() or provider is None:
        known = ", ".join(PROVIDERS)
        raise ConfigError(
            f"model {name!r}: write provider:model, such as 'openai:gpt-5'; "
            f"the providers are {known}, and 'local:smollm2' needs none{suggest_nearest(first, PROVIDERS)}"
        )
    return provider, model


def _resolve_address(given: str | None, provider: Provider) -> str:
    place = "base_url"
    if given is None:
        place = provider.url_variable
        given = os.environ.get(place, "") if place else ""
    address = given or provider.url
    if not isinstance(address, str):
        raise ConfigError(f"{place} is {address!r}; give an address such as {_EXAMPLE!r}")
    # A password in an address would appear in errors and in the model's `repr`.
    if "@" in address:  # nor is it shown
        raise ConfigError(f"{place} holds a user or a password; give the key as api_key")
    if "?" in address or "#" in address:
        raise ConfigError(f"{place} holds a query or a fragment; leave it out, and give the key as api_key")
    if address and not _is_address(address):
        raise ConfigError(f"{place} is {address!r}; give an address such as {_EXAMPLE!r}")
    return address


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its host or port can't be read
        return False


def _find_key(given: str | None, place: str | None, provider: Provider, *, named: bool) -> ApiKey | None:
    """Return the key, or None if a server is named that may need no key."""
    if given is not None and place is not None:
        raise ConfigError("api_key is a key and key its place; give one of them")
    if given is not None:
        return ApiKey.given(given, "api_key")
    if place is not None:
        return ApiKey.named(place, "key")
    # The variable's key belongs to the provider, and must not be sent to any address that somebody names.
    if named:
        return None
    key = ApiKey.from_environment(*provider.key_variables)
    if key is None and provider.needs_key:
        variables = " or ".join(provider.key_variables)
        raise ConfigError(
            f"{provider.name} needs a key: set {variables}, or give ProviderModel(…, api_key=…)"
        )
    return key


_FAMILIES: Final = {
    "gpt": "openai",
    "chatgpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude": "anthropic",
    "gemini": "google",
    "mistral": "mistral",
    "ministral": "mistral",
    "codestral": "mistral",
    "magistral": "mistral",
    "smollm2": "local",
}
"""How models' names begin, and whose they are."""


def complete_model_name(name: str) -> str:
    """Return a model's name with its provider; empty if the name does not tell whose it is."""
    family = name.lower().partition("-")[0]
    provider = _FAMILIES.get(family)
    return "" if provider is None else f"{provider}:{name}"


def check_installed(provider: Provider, name: str) -> None:
    """Check that the packages that ask a provider are installed.

    Raises:
        ConfigError: they are not; names the extra.
    """
    top = provider.library.partition(".")[0]
    is_here = all(importlib.util.find_spec(each) is not None for each in ("pydantic_ai", top))
    if not is_here or importlib.util.find_spec(provider.library) is None:
        raise ConfigError(
            f"model {name!r} needs the extra {provider.extra!r}; {explain_installation(provider.extra)}"
        )
