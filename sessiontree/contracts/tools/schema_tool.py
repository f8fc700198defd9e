"""Tools from functions whose parameters are a JSON Schema, such as one from another system."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, cast

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import Capability
from sessiontree.contracts.recorded.results import ToolResult, Untrusted
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.decorator import (
    CONTEXT,
    Given,
    Got,
    ToolFunction,
    check_returns,
    collect_tool_settings,
    make_async,
    read_docstring,
)
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, RawTool, Retry, ToolFlag, check_tool
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class _Parts:
    """How to make a tool from a function and a schema, here or in another process."""

    function: ToolFunction
    settings: Mapping[str, Any]
    """The tool's class variables, including its parameters."""


class SchemaTool(RawTool, Generic[Given, Got]):
    """A tool made from a function and a schema; :func:`schema_tool` makes a subclass for each.

    Calling it calls the function.

    It is pickled as the function and its settings, so a tool defined in a notebook cell can be pickled too.
    """

    def __init__(self, plan: _Parts) -> None:
        self.function: Callable[Given, Got] = plan.function
        """The function as written."""
        self._plan = plan
        self._takes_context = CONTEXT in inspect.signature(plan.function).parameters
        self._call = make_async(plan.function)

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Got:
        """Call the function directly, without checks, a thread or a session."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[[_Parts], SchemaTool[..., Any]], tuple[_Parts]]:
        """Return how to rebuild it: its class exists only in the process that made it."""
        return _make_tool, (self._plan,)

    async def execute(self, params: Any, ctx: ToolContext) -> ToolResult:
        """Call the function with a separate dict, in a thread if it is not ``async``."""
        context = {CONTEXT: ctx} if self._takes_context else {}
        return await self._call(params, **context)


def schema_tool(  # noqa: PLR0913 - each is one thing a tool declares
    parameters: Mapping[str, JsonValue],
    *,
    name: str | None = None,
    description: str | None = None,
    label: str = "",
    section: str = "user",
    profiles: Iterable[str] = (),
    tier: PermissionTier = PermissionTier.ELEVATED,
    kinds: Iterable[SessionKind] = MAIN_AND_BRANCH,
    capabilities: Iterable[str | Capability[Any]] = (),
    optional_capabilities: Iterable[str | Capability[Any]] = (),
    changes: Iterable[str] = (),
    untrusted: Untrusted = False,
    timeout_s: float | None = None,
    idempotent: bool = False,
    sequential: bool = False,
    retry: Retry | None = None,
    aliases: Iterable[str] = (),
    param_aliases: Mapping[str, str] | None = None,
    flags: Iterable[ToolFlag] = (),
) -> Callable[[Callable[Given, Got]], SchemaTool[Given, Got]]:
    """Make a tool from a function that takes its arguments as one dict: ``@schema_tool({…})``.

    Use it for schemas that are not written in Python, such as those of a server, a file or a generator. Every
    call is checked against the unchanged schema, by the draft that its ``$schema`` names (else 2020-12).
    Spellings, corrections, attempts and dialects work as for any tool. The first parameter receives the dict,
    and one named ``ctx`` receives the :class:`~sessiontree.contracts.tools.context.ToolContext`.

    Args:
        parameters: JSON Schema of an object.
        name: The tool's name; None = the function's.
        description: What it does, for the model; None = the docstring's text.
        label: Short name for people; empty = the name.
        section: The group that lists call ``group:<section>``.
        profiles: Policy profiles that include it, such as ``coding``.
        tier: Minimum tier of every call; Elevated by default.
        kinds: Kinds of session that may hold it.
        capabilities: Handles that it requires, or their names.
        optional_capabilities: Handles that it uses if the session has them, or their names.
        changes: Parameters that name files it changes; a call is Elevated if one of them is protected.
        untrusted: Whether its output is text from outside, such as mail; it is put between marks.
        timeout_s: Time limit of one call, in seconds; None = the tree's limit.
        idempotent: Whether repeating a call with the same ``ctx.call_id`` has no further effect.
        sequential: Whether each call runs alone, without other calls of its session.
        retry: How a call that changes nothing is retried; None = not at all.
        aliases: Other names that a model may use for it.
        param_aliases: Other spellings of parameters, alias to name.
        flags: Other properties, such as ``owner_only``.

    Returns:
        A decorator. Calling the tool calls the function, which is also its attribute ``function``.

    Raises:
        ConfigError: a setting is wrong; the error says the fix. The schema is checked when a tree opens.
    """
    if not isinstance(parameters, Mapping):
        raise ConfigError(f"schema_tool({parameters!r}): give a JSON Schema as a mapping")
    settings = {
        **collect_tool_settings(locals()),
        "parameters": dict(parameters),
        "param_aliases": dict(param_aliases or {}),
    }

    def decorate(function: Callable[Given, Got]) -> SchemaTool[Given, Got]:
        called = name or getattr(function, "__name__", None)
        told = {"description": description or read_docstring(inspect.getdoc(function) or "").description}
        try:
            _check_function(function)
            check_returns(function)
        except ConfigError as error:
            raise ConfigError(f"tool {called!r}: {error}") from error
        return cast(
            "SchemaTool[Given, Got]", _make_tool(_Parts(function, settings | {"name": called} | told))
        )

    return decorate


def _make_tool(plan: _Parts) -> SchemaTool[..., Any]:
    """Return the tool of a plan: the only instance of a subclass with the settings as class variables.

    Raises:
        ConfigError: a setting is wrong.
    """
    body = {**plan.settings, "__doc__": plan.settings["description"], "__module__": plan.function.__module__}
    made: SchemaTool[..., Any] = type(str(plan.settings["name"]), (SchemaTool,), body)(plan)
    check_tool(made)
    return made


def _check_function(function: ToolFunction) -> None:
    if not inspect.isfunction(inspect.unwrap(function)):
        raise ConfigError(
            f"@schema_tool takes a function, not {function!r}; derive a class from RawTool instead"
        )
    taken = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != CONTEXT and parameter.default is parameter.empty
    ]
    if len(taken) != 1 or taken[0].kind not in {taken[0].POSITIONAL_ONLY, taken[0].POSITIONAL_OR_KEYWORD}:
        names = ", ".join(str(parameter) for parameter in taken) or "nothing"
        raise ConfigError(
            f"the function takes {names}; it gets its arguments as one dict: write `(params, {CONTEXT})`"
        )
