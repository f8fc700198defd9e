"""Questions to one provider's model: sent through pydantic-ai, with replies as pieces and typed failures.

Loading this loads pydantic-ai; making :class:`ProviderCalls` loads the provider's own library.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from ssl import SSLContext
from typing import Any, Final
from urllib.parse import urlsplit

from httpx2 import AsyncClient, AsyncHTTPTransport, Limits, Timeout, create_ssl_context
from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import ConnectPoolTimeoutCap, ModelRequestParameters, get_user_agent
from pydantic_ai.tools import ToolDefinition

from sessiontree.contracts.errors import ModelError, ModelUnreachable
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.values.messages import StopReason, Usage
from sessiontree.contracts.values.request_names import REQUEST_HEADER, request_name
from sessiontree.models.port import CallPiece, ModelPiece, ModelRequest, Piece, StopPiece, ThinkingPiece
from sessiontree.models.providers.call_limits import Ended, get_queue
from sessiontree.models.providers.conversation import build_model_messages, keep_provider_form
from sessiontree.models.providers.prices import reply_cost
from sessiontree.models.providers.provider_failures import check_size, convert_failure
from sessiontree.models.providers.provider_model import CallTimeouts, Provider, ProviderModel, load

IDLE_S: Final = 30.0
"""Seconds for which unused connections are kept."""
_CONNECTIONS: Final = Limits(max_connections=1_000, max_keepalive_connections=100)
"""As many as the providers' own libraries keep."""
_STOPS: Final[dict[str, StopReason]] = {
    "stop": "stop",
    "tool_call": "toolUse",
    "length": "length",
    "content_filter": "refusal",
}
"""Finish reasons in pydantic-ai's terms; all others are looked up as the server spells them."""
_SPELT: Final[dict[str, StopReason]] = {
    **dict.fromkeys(("stop", "end_turn", "eos", "eos_token", "end_of_text", "endoftext", "end"), "stop"),
    **dict.fromkeys(("stop_sequence", "stop_token", "complete", "completed", "done", "finished"), "stop"),
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use", "tooluse", "function_call"), "toolUse"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length"), "length"),
    **dict.fromkeys(("model_context_window_exceeded", "token_limit"), "length"),
    **dict.fromkeys(("content_filter", "content_filtered", "guardrail_intervened", "refusal"), "refusal"),
    **dict.fromkeys(("safety", "recitation", "prohibited_content", "blocklist", "sensitive"), "refusal"),
}
"""Finish reasons in lower case, as servers send them; all others are failures.

Sources: the references of OpenAI, Anthropic, Cohere, Google, Mistral and Z.ai; Amazon Bedrock's StopReason;
the finish reasons of text-generation-inference (``eos_token``, ``stop_sequence``) and of Together (``eos``).
"""

_LOW_TOKENS: Final = 2_048
_MEDIUM_TOKENS: Final = 8_192
"""Up to this number, tokens for thoughts mean ``low`` or ``medium`` to a provider that knows levels."""
_CHOICES: Final = frozenset({"auto", "none", "required"})


_OF_PROVIDERS: Final = ("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_", "MISTRAL_", "OLLAMA_")
"""How the names of variables begin that providers' libraries read."""
_OF_HTTP: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host"}
)
"""Headers that a request needs, whatever variables hold."""


class ProviderCalls:
    """The connections to one provider's model on one event loop.

    Args:
        model: Which model, where and how.
        key: The secret; None if its server needs no key.
    """

    def __init__(self, model: ProviderModel, key: str | None) -> None:
        provider = model.provider
        self._of = model
        self._http = _make_client(model)
        self._http.event_hooks["response"].append(self._note)
        if not model.is_priced and model.base_url:
            self._http.event_hooks["request"].append(_make_header_filter(key))
        client = load(provider.client)(
            api_key=key or "none", http_client=self._http, **_build_address(model.base_url)
        )
        # Schemas arrive in the provider's dialect and are sent unchanged.
        profile = {"json_schema_transformer": None, "openai_chat_streaming_requires_finish_reason": True}
        self._model: Any = load(provider.model)(model.model, provider=client, profile=profile)
        self._responses: dict[asyncio.Task[Any] | None, list[Any]] = {}
        self._queue = get_queue(model.system, key, model.limits, model.window_s)
        self._users = 0
        self._running = 0
        self._idle: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether its connections are closed permanently."""
        return bool(self._http.is_closed)

    async def pieces(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        """Yield the reply's pieces as they arrive.

        Raises:
            ModelError: it failed; ``retryable`` says whether asking again may help.
        """
        failure: ModelError
        # Before the queue: a question that is refused for certain must not take a turn from another one.
        check_size(request, self._of)
        # Kept now, because a generator may be closed from another task than the one that asked.
        task = asyncio.current_task()
        self._begin()
        try:
            tries = await self._queue.enter()
        except BaseException:
            await self._end()
            raise
        # Until something is known: a caller that stops reading says nothing about the provider.
        ended: Ended = "unknown"
        try:
            async with self._stream(request) as stream:
                async for event in stream:
                    for piece in _convert_event(event):
                        yield piece
                for piece in self._yield_end(stream.get()):
                    yield piece
            ended = "answered"
            return
        except ModelError as error:
            ended = _classify_failure(error)
            raise
        except Exception as error:  # noqa: BLE001 - a provider's library may raise anything
            failure = convert_failure(error, self._of)
            ended = _classify_failure(failure)
            if failure.retry_after_s is not None:
                self._queue.pause(failure.retry_after_s)
        finally:
            # Before anything is awaited: a cancelled caller must give its turn back even if closing is
            # interrupted.
            self._queue.leave(ended, tries=tries)
            try:
                # Not every library closes the connection of a reply that is not read to its end.
                for response in self._responses.pop(task, ()):
                    await response.aclose()
            finally:
                await self._end()
        raise failure  # outside, so that no object with a key is attached to it

    def hold(self) -> None:
        """Count another model that asks over these connections."""
        self._users += 1

    async def release(self) -> None:
        """Count one model less; the last one closes the connections."""
        self._users -= 1
        if self._users <= 0:
            await self.close()

    async def close(self) -> None:
        """Close the connections; if a question is in progress, the end of it does so."""
        if self._idle is not None:
            self._idle.cancel()
        # A question in progress reads from these connections; its own end closes them.
        if not self._running:
            await self._http.aclose()

    def _begin(self) -> None:
        self._running += 1
        # A question that begins while the timer is due must find its connections open.
        if self._idle is not None:
            self._idle.cancel()

    async def _end(self) -> None:
        self._running -= 1
        if self._running:
            return
        if self._users <= 0:  # all models were closed meanwhile: nobody else closes the connections
            await self.close()
        else:
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._let_go)

    def _let_go(self) -> None:
        # Kept, because a loop holds only a weak reference to a task, and a collected one would close nothing.
        self._closing = asyncio.ensure_future(self.close())

    async def _note(self, response: Any) -> None:
        """Remember the owner of a response: a library asks in the task that wants the reply."""
        self._responses.setdefault(asyncio.current_task(), []).append(response)

    def _stream(self, request: ModelRequest) -> Any:
        provider = self._of.provider
        tools = [
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=dict(tool.parameters),
                strict=None,
            )
            for tool in request.tools
        ]
        instructions = [theirs.InstructionPart(request.system_prompt)] if request.system_prompt else []
        return model_request_stream(
            self._model,
            build_model_messages(
                request.messages, self._of.system, has_errors=provider.system == "anthropic"
            ),
            model_settings={
                **build_provider_settings(
                    request.settings, provider, self._of.timeouts, self._model.unsupported_settings
                ),
                **_build_response_format(request, is_constrained=self._of.is_constrained),
                **self._name(request),
            },
            model_request_parameters=ModelRequestParameters(
                function_tools=tools, instruction_parts=instructions
            ),
        )

    def _name(self, request: ModelRequest) -> dict[str, Any]:
        """Return what says to another address than the provider's own which request this is."""
        if self._of.is_priced or "extra_headers" in self._model.unsupported_settings:
            return {}
        return {"extra_headers": {REQUEST_HEADER: request_name(request.session_id, request.turn)}}

    def _yield_end(self, response: Any) -> Iterator[Piece]:
        """Yield what is known about a reply once it is complete.

        Raises:
            ModelUnreachable: it broke off.
        """
        provider, used = self._of.provider, response.usage
        name, of = response.model_name or self._of.model, self._of
        cost = reply_cost(used, name, provider.system, price=of.price, is_listed=of.is_priced)
        yield Usage(
            used.input_tokens,
            used.output_tokens,
            cost or 0.0,
            cache_read_tokens=used.cache_read_tokens,
            cache_write_tokens=used.cache_write_tokens,
            reasoning_tokens=used.output_reasoning_tokens,
            unpriced_tokens=used.input_tokens + used.output_tokens if cost is None else 0,
        )
        if response.model_name:
            yield ModelPiece(f"{provider.name}:{response.model_name}")
        spelt = (response.provider_details or {}).get("finish_reason")
        reason = _STOPS.get(response.finish_reason) or _SPELT.get(str(spelt).lower())
        # A library may call a reply incomplete that was cut on purpose; those two reasons are an end of their
        # own.
        is_whole = response.state == "complete" or reason in {"length", "refusal"}
        if reason is None or not is_whole:
            end = response.finish_reason or spelt or response.state
            raise ModelUnreachable(f"{self._of.name}: the reply broke off ({end})")
        detail = _extract_detail(response) if reason == "refusal" else ""
        yield StopPiece(reason, detail if self._of.key is None else self._of.key.hide_in(detail))
        replay = keep_provider_form(response, provider.name, self._of.system)
        if replay is not None:
            yield replay


_SHARED: Final[dict[asyncio.AbstractEventLoop, dict[Any, ProviderCalls]]] = {}
"""Open connections of each loop, by the model's settings and the digest of its key."""


def share_calls(model: ProviderModel, key: str | None) -> ProviderCalls:
    """Return the connections of a model on this loop; the caller holds them.

    Each tree has its own copy of a model. Equal copies share connections: one of its own would cost each tree
    the round trips of its handshake.
    """
    loop = asyncio.get_running_loop()
    # The digest in place of the key, so that no table of this process shows the key.
    place = (model.identity, None if key is None else sha256(key.encode()).hexdigest())
    calls = _SHARED.get(loop, {}).get(place)
    if calls is None or calls.is_closed:
        _forget_closed()
        calls = _SHARED.setdefault(loop, {})[place] = ProviderCalls(model, key)
    calls.hold()
    return calls


def _forget_closed() -> None:
    """Drop loops that have ended, and connections that are closed."""
    # A copy, because entries of loops that have ended are removed on the way.
    for loop, here in list(_SHARED.items()):
        if loop.is_closed():
            del _SHARED[loop]
        else:
            _SHARED[loop] = {place: calls for place, calls in here.items() if not calls.is_closed}


def _classify_failure(failure: ModelError) -> Ended:
    """Return what a failure says about the provider; who rejects a question, or says when to ask, works."""
    return "failed" if failure.retryable and failure.retry_after_s is None else "answered"


def _build_response_format(request: ModelRequest, *, is_constrained: bool) -> dict[str, Any]:
    """Return the setting that holds a reply to its schema; the schema is sent unchanged."""
    if not is_constrained or request.result_schema is None:
        return {}
    schema = {"name": "reply", "schema": dict(request.result_schema), "strict": True}
    return {"extra_body": {"response_format": {"type": "json_schema", "json_schema": schema}}}


def build_provider_settings(
    settings: ModelSettings, provider: Provider, timeouts: CallTimeouts, unsupported: Collection[str]
) -> dict[str, Any]:
    """Return the settings of one question in pydantic-ai's form.

    Args:
        settings: The merged settings of agent, session and message.
        provider: Who is asked.
        timeouts: How long the question may take.
        unsupported: Settings that the provider does not support.
    """
    limits = [each for each in (settings.deadline_s, timeouts.total_s) if each is not None]
    choice = settings.tool_choice
    wanted = {
        "max_retries": 0,  # the caller decides whether to ask again
        "cache": True,
        "timeout": timeouts.between_s,
        "first_event_timeout": timeouts.first_s,
        "request_timeout": min(limits, default=None),
        "max_tokens": settings.max_output_tokens,
        "temperature": settings.temperature,
        "stop_sequences": None if settings.stop is None else list(settings.stop),
        "seed": settings.seed,
        "tool_choice": choice if choice is None or choice in _CHOICES else [choice],
        **_build_thinking(settings.thinking, provider),
    }
    return {name: value for name, value in wanted.items() if value is not None and name not in unsupported}


def _build_thinking(wanted: str | int | None, provider: Provider) -> dict[str, Any]:
    if wanted is None:
        return {}
    if isinstance(wanted, int):
        if provider.system == "anthropic":
            return {"anthropic_thinking": {"type": "enabled", "budget_tokens": wanted}}
        if provider.system == "google":
            return {"google_thinking_config": {"thinking_budget": wanted, "include_thoughts": True}}
        wanted = "low" if wanted <= _LOW_TOKENS else "medium" if wanted <= _MEDIUM_TOKENS else "high"
    shown = {"openai_reasoning_summary": "auto"} if provider.name == "openai-responses" else {}
    return {"thinking": False} if wanted == "off" else {"thinking": wanted, **shown}


def _make_client(model: ProviderModel) -> AsyncClient:
    """Return a client as pydantic-ai makes it, with certificates that are read once.

    Questions to this machine take no proxy of the environment.
    """
    timeout = Timeout(model.timeouts.between_s, connect=model.timeouts.connect_s)
    certificates = _read_certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    # A proxy of the environment would resolve this address on its own machine and get the conversation.
    is_here = _is_of_this_machine(model.base_url)
    return AsyncClient(
        verify=certificates,
        timeout=timeout,
        limits=_CONNECTIONS,
        transport=AsyncHTTPTransport(verify=certificates, limits=_CONNECTIONS) if is_here else None,
        headers={"User-Agent": get_user_agent()},
        event_hooks={"request": [ConnectPoolTimeoutCap(connect=timeout.connect, pool=timeout.pool)]},
    )


@lru_cache(maxsize=4)
def _read_certificates(file: str | None, folder: str | None) -> SSLContext:
    """Return the trusted certificates; reading those of a system takes 40 ms."""
    return create_ssl_context()


def _make_header_filter(key: str | None) -> Callable[[Any], Awaitable[None]]:
    """Return a hook that removes headers that a provider's library took from the environment.

    Another address than the provider's own gets the key it was given, and neither tokens nor headers that the
    user's variables hold for the provider, such as ``ANTHROPIC_AUTH_TOKEN`` or ``OPENAI_CUSTOM_HEADERS``.
    """
    values = [
        value
        for name, value in os.environ.items()
        if name.startswith(_OF_PROVIDERS) and not name.endswith("_URL")
    ]

    async def remove(request: Any) -> None:
        for name, value in list(request.headers.items()):
            given = value.removeprefix("Bearer ")
            if name not in _OF_HTTP and given and given != key and any(given in each for each in values):
                del request.headers[name]

    return remove


def _is_of_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _build_address(url: str) -> dict[str, str]:
    return {"base_url": url} if url else {}


def _convert_event(event: Any) -> Iterator[Piece]:
    """Yield the pieces that an event of the stream adds to the reply."""
    if isinstance(event, theirs.PartStartEvent):
        part = event.part
        if isinstance(part, theirs.TextPart):
            yield part.content
        elif isinstance(part, theirs.ThinkingPart):
            yield ThinkingPiece(part.content)
        elif isinstance(part, theirs.ToolCallPart):
            yield CallPiece(_normalize_arguments(part.args), event.index, part.tool_call_id, part.tool_name)
    elif isinstance(event, theirs.PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, theirs.TextPartDelta):
            yield delta.content_delta
        elif isinstance(delta, theirs.ThinkingPartDelta):
            yield ThinkingPiece(delta.content_delta or "")
        elif isinstance(delta, theirs.ToolCallPartDelta):
            yield CallPiece(
                _normalize_arguments(delta.args_delta),
                event.index,
                delta.tool_call_id or "",
                delta.tool_name_delta or "",
            )
    elif isinstance(event, theirs.PartEndEvent) and isinstance(event.part, theirs.ThinkingPart):
        # A new signature replaces the earlier one; only the last one counts.
        yield ThinkingPiece(signature=event.part.signature or "")


def _normalize_arguments(given: Any) -> Any:
    return "" if given is None else given


def _extract_detail(response: Any) -> str:
    """Return a provider's explanation of a refusal."""
    details = response.provider_details or {}
    found = (details.get(name) for name in ("refusal", "finish_message", "finish_reason"))
    return next((str(each) for each in found if each), "")
