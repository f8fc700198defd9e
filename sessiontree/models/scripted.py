"""Models without a provider: a script, and functions that return or stream a reply."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from sessiontree.contracts.errors import ConfigError, ModelError, SessionTreeError, describe_error
from sessiontree.contracts.reports.events import Done, TextDelta
from sessiontree.contracts.tools.author_errors import report_error
from sessiontree.contracts.values.messages import AssistantMessage
from sessiontree.models.answers import Answer, to_message
from sessiontree.models.port import EmitEvent, ModelRequest, Piece

Script = Sequence[Answer]
"""Answers for one turn after another."""


class ScriptedModel:
    """Replies according to a script, one answer per turn.

    Args:
        script: Answers for every session, or a mapping from session id to its answers (``*`` for all others).
        name: The model's name in prompts and journals.
        context_tokens: Size of its context; results are cut to a share of it.

    When a session's script is used up, the last answer is repeated if it is text; otherwise a ModelError is
    raised.
    """

    def __init__(
        self,
        script: Script | Mapping[str, Script],
        name: str = "scripted",
        *,
        context_tokens: int | None = None,
    ) -> None:
        """Store the script.

        Raises:
            ConfigError: the script is empty.
        """
        if not script:
            raise ConfigError("a scripted model needs at least one answer")
        self.name = name
        self.context_tokens = context_tokens
        self._scripts = dict(script) if isinstance(script, Mapping) else {"*": list(script)}

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the answer of the request's turn."""
        script = self._scripts.get(request.session_id)
        if script is None:
            script = self._scripts.get("*")
        if not script:
            raise ModelError(f"no script for session {request.session_id!r}")
        index = request.turn - 1
        if index >= len(script):
            if not isinstance(script[-1], str):
                raise ModelError(f"the script of {request.session_id!r} ends after {len(script)} answers")
            index = -1
        return to_message(script[index], request.turn)


class FunctionModel:
    """Replies with the result of a plain function; it must be quick and depend only on the request.

    Args:
        function: Gets the request and returns the answer.
        name: The model's name in prompts and journals.
        context_tokens: Size of the model's context in tokens; None = not known.
    """

    def __init__(
        self,
        function: Callable[[ModelRequest], Answer],
        name: str = "function",
        *,
        context_tokens: int | None = None,
    ) -> None:
        """Store the function.

        Raises:
            ConfigError: the function is a coroutine function; use AsyncFunctionModel.
        """
        if not callable(function):
            raise ConfigError(f"FunctionModel takes a function that returns an answer, not {function!r}")
        if _is_async(function):
            raise ConfigError(
                "FunctionModel takes a plain function; use AsyncFunctionModel for one that waits"
            )
        if inspect.isasyncgenfunction(function):
            raise ConfigError(
                "FunctionModel takes a plain function; use StreamFunctionModel for one that yields pieces"
            )
        self.name = name
        self.context_tokens = context_tokens
        self._function = function

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the function's answer.

        Raises:
            ModelError: the function raised, or returned no answer.
        """
        try:
            answer = self._function(request)
        except SessionTreeError:
            raise
        except Exception as error:
            raise _convert_error(self.name, request, error) from error
        return to_message(answer, request.turn)


class AsyncFunctionModel:
    """Replies with the result of a coroutine function; asked through the model gateway, so it may wait.

    Args:
        function: Gets the request and returns the answer.
        name: The model's name in prompts and journals.
        context_tokens: Size of the model's context in tokens; None = not known.
    """

    def __init__(
        self,
        function: Callable[[ModelRequest], Awaitable[Answer]],
        name: str = "function",
        *,
        context_tokens: int | None = None,
    ) -> None:
        """Store the function.

        Raises:
            ConfigError: it is not a coroutine function; use FunctionModel for one that replies at once.
        """
        if inspect.isasyncgenfunction(function):
            raise ConfigError(
                "AsyncFunctionModel takes an `async def` that returns; use StreamFunctionModel for one that "
                "yields pieces"
            )
        if not callable(function) or not _is_async(function):
            raise ConfigError(
                f"AsyncFunctionModel takes an `async def` function, not {function!r}; use FunctionModel for "
                "one that replies at once"
            )
        self.name = name
        self.context_tokens = context_tokens
        self._function = function

    async def complete(self, request: ModelRequest, emit: EmitEvent) -> AssistantMessage:
        """Return the function's answer to ``request``; ``emit`` gets its text as one piece.

        Raises:
            ModelError: the function raised, or returned no answer.
        """
        try:
            answer = await self._function(request)
        except SessionTreeError:
            raise
        except Exception as error:
            raise _convert_error(self.name, request, error) from error
        message = to_message(answer, request.turn)
        if message.text:
            emit(TextDelta(message.text))
        emit(Done(message.stop_reason))
        return message


class StreamFunctionModel:
    """Replies with the pieces that an async generator function yields; asked through the model gateway.

    Args:
        function: Gets the request; yields text, :class:`CallPiece`, :class:`ThinkingPiece`, ``Usage`` and
            :class:`StopPiece` in any order. A coroutine function that returns such an iterator also works.
        name: The model's name in prompts and journals; ``provider:name`` selects the dialect of its tools and
            the form of its call ids.
        context_tokens: Size of the model's context in tokens; None = not known.
    """

    def __init__(
        self,
        function: Callable[[ModelRequest], AsyncIterator[Piece]],
        name: str = "function",
        *,
        context_tokens: int | None = None,
    ) -> None:
        """Store the function.

        Raises:
            ConfigError: it can't be called.
        """
        if not callable(function):
            raise ConfigError(f"StreamFunctionModel takes a function that yields pieces, not {function!r}")
        self.name = name
        self.context_tokens = context_tokens
        self._function = function

    def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Return the iterator of the pieces of the reply to ``request``."""
        return self._function(request)


def _convert_error(name: str, request: ModelRequest, error: Exception) -> ModelError:
    """Return what a session gets for an exception of a model function; its author gets the traceback."""
    text = f"{name} raised {describe_error(error)}"
    failed = ModelError(text)
    what = f"model {name!r}, asked by session {request.session_id},"
    failed.raised = "\n".join(report_error(what, error, text))
    return failed


def _is_async(function: Callable[..., object]) -> bool:
    """Whether a function, a method, or an object's ``__call__`` is an ``async def``, possibly wrapped."""
    plain = inspect.unwrap(function)
    called = plain if inspect.isroutine(plain) else getattr(type(plain), "__call__", plain)  # noqa: B004
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(called)
