"""OpenAI's library without its conversion of conversations, which takes longer than all else of a question.

The library looks through every key of every message for names that it would spell differently on the wire,
about 0.2 ms a message each time the conversation is sent. Messages and tools have their wire form here, so
they are sent as what the library documents for further members of a body: unchanged.

Loading this loads pydantic-ai and OpenAI's library.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from openai import AsyncOpenAI
from openai.resources.chat import AsyncChat, AsyncCompletions
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider

if TYPE_CHECKING:
    from openai.resources.responses import AsyncResponses

_LISTS: Final = ("messages", "input", "tools")
"""Members of a body that grow with the conversation or with the tools."""


def make_openai_provider(**given: Any) -> OpenAIProvider:
    """Return pydantic-ai's provider for OpenAI; ``given`` is for the client of its library."""
    return OpenAIProvider(openai_client=_Client(**given))


def make_ollama_provider(**given: Any) -> OllamaProvider:
    """Return pydantic-ai's provider for Ollama; ``given`` is for the client of OpenAI's library."""
    return OllamaProvider(openai_client=_Client(**given))


def _move_lists(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a question with its lists among the further members of its body."""
    lists = {name: given[name] for name in _LISTS if isinstance(given.get(name), list)}
    body = {**(given.get("extra_body") or {}), **lists}
    return {**given, **{name: [] for name in lists}, "extra_body": body or None}


class _Completions(AsyncCompletions):
    async def create(self, **given: Any) -> Any:
        return await super().create(**_move_lists(given))


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Client(AsyncOpenAI):
    @cached_property
    def chat(self) -> AsyncChat:
        return _Chat(self)

    @cached_property
    def responses(self) -> AsyncResponses:
        # The library loads its class when it is first asked for: a tenth of its whole time to load.
        responses = super().responses
        usual = responses.create

        async def create(**given: Any) -> Any:
            return await usual(**_move_lists(given))

        setattr(responses, "create", create)  # noqa: B010 - a type checker refuses it
        return responses
