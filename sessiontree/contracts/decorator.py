"""Tools from functions: the signature becomes the parameters, the docstring what a model reads."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from decimal import Decimal
from pathlib import PurePath
from types import FrameType
from typing import Any, Generic, ParamSpec, TypeVar, overload
from uuid import UUID

from pydantic import BaseModel

from sessiontree.contracts.capabilities import Capability, capability_names
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.docstring import read_docstring
from sessiontree.contracts.errors import ConfigError, ExecutionError
from sessiontree.contracts.flags import ToolFlag
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.results import ToolResult, Untrusted, json_result
from sessiontree.contracts.retry import Retry
from sessiontree.contracts.signature import CONTEXT, Function, field_names, parameters_model, resolved_hints
from sessiontree.contracts.thread_calls import in_thread
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool, check_tool

Given = ParamSpec("Given")
"""What a function is called with."""
Got = TypeVar("Got")
"""What it returns; of an ``async def``, what is awaited."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """How to make a tool of a function, here or in another process."""

    function: Function
    settings: Mapping[str, Any]
    """The tool's class variables."""
    hints: Mapping[str, Any]
    """Parameter to resolved annotation, the context left out."""


class FunctionTool(Tool[BaseModel], Generic[Given, Got]):
    """A tool made of a function; :func:`tool` makes a subclass for each. Calling it calls the function.

    It travels between processes as the function and its settings, so a tool defined in a notebook cell may.
    """

    def __init__(self, plan: _Plan, fields: Mapping[str, str]) -> None:
        """Keep the function and how to call it: parameter to field of the model."""
        self.function: Callable[Given, Got] = plan.function
        """The function as written."""
        self._plan = plan
        self._fields = fields
        self._takes_context = CONTEXT in inspect.signature(plan.function).parameters
        self._call = calling(plan.function)

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Got:
        """Call the function itself, as a test or other code does: no checks, no thread, no session."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[[_Plan], FunctionTool[..., Any]], tuple[_Plan]]:
        """Return how to make it again: its class exists only in the process that made it."""
        return _made, (self._plan,)

    async def execute(self, params: BaseModel, ctx: ToolContext) -> ToolResult:
        """Call the function, in a thread where it is not ``async``; what it returns becomes JSON."""
        arguments = {name: getattr(params, field) for name, field in self._fields.items()}
        if self._takes_context:
            arguments[CONTEXT] = ctx
        return await self._call(**arguments)


def calling(function: Function) -> Callable[..., Awaitable[ToolResult]]:
    """Return what calls a function, in a thread where it is not ``async``, and makes JSON of its value."""
    is_async = inspect.iscoroutinefunction(function)
    name = getattr(function, "__name__", type(function).__name__)

    async def called(*arguments: Any, **named: Any) -> ToolResult:
        if is_async:
            value = await function(*arguments, **named)
        else:
            value = await in_thread(function, *arguments, **named)
            if inspect.isawaitable(value):  # a plain wrapper around an async function
                value = await value
        return value if isinstance(value, ToolResult) else json_result(_json_ready(value, name))

    return called


@overload
def tool(function: Callable[Given, Got], /) -> FunctionTool[Given, Got]: ...


@overload
def tool(
    *,
    name: str | None = None,
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
    flags: Iterable[ToolFlag] = (),
) -> Callable[[Callable[Given, Got]], FunctionTool[Given, Got]]: ...


def tool(  # noqa: PLR0913 - each is one thing a tool declares
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
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
    flags: Iterable[ToolFlag] = (),
) -> FunctionTool[..., Any] | Callable[[Function], FunctionTool[..., Any]]:
    """Make a tool of a typed function with a docstring: ``@tool`` or ``@tool(tier=…)``.

    The parameters' types become the schema and unknown parameters are refused; descriptions come from the
    docstring's ``Args:``, the tool's own from the text before. A parameter named ``ctx`` receives the
    :class:`~sessiontree.contracts.context.ToolContext` and is no part of the schema. A function that is not
    ``async`` runs in a thread. A :class:`ToolResult` is returned as it is, anything else as JSON.

    Args:
        function: The function, where the decorator stands without brackets.
        name: The tool's name; None = the function's.
        tier: Tier every call needs at least; a tool that says nothing is Elevated.
        kinds: Kinds of session that may hold it.
        capabilities: Handles it cannot work without, or their names; its context holds no other.
        optional_capabilities: Handles it uses where the session has them, or their names.
        changes: Parameters that name files it changes; a call is Elevated where one of them is protected.
        untrusted: Whether what it answers is text from outside, such as mail: it is put between marks.
        timeout_s: Longest run of one call; None = the tree's limit.
        idempotent: Whether repeating a call with the same ``ctx.call_id`` changes nothing more.
        sequential: Whether its calls run alone: beside no other call of their session.
        retry: How a call that changes nothing is tried again; None = not at all.
        aliases: Other names a model may call it by.
        flags: What else is to be known of it, such as ``owner_only``.

    Returns:
        The tool. Calling it calls the function, which is its ``function``, too.

    Raises:
        ConfigError: an annotation or the docstring is missing, or a setting is wrong; says the fix.
    """
    settings = {
        "name": name,
        "tier": tier,
        "kinds": frozenset(kinds),
        "capabilities": capability_names(capabilities),
        "optional_capabilities": capability_names(optional_capabilities),
        "untrusted": untrusted,
        "changes": tuple([changes] if isinstance(changes, str) else changes),
        "timeout_s": timeout_s,
        "idempotent": idempotent,
        "sequential": sequential,
        "retry": retry,
        "aliases": tuple(aliases),
        "flags": frozenset(flags),
    }
    if function is not None:
        return _declared(function, settings, inspect.currentframe())

    def decorate(decorated: Function) -> FunctionTool[..., Any]:
        return _declared(decorated, settings, inspect.currentframe())

    return decorate


def _declared(
    function: Function, settings: dict[str, Any], frame: FrameType | None
) -> FunctionTool[..., Any]:
    """Return the tool of a function; ``frame`` is the decorator's, called from where the function stands."""
    if not inspect.isfunction(inspect.unwrap(function)):
        raise ConfigError(f"@tool takes a function, not {function!r}; derive a class from Tool instead")
    name = settings["name"] or function.__name__
    try:
        hints = resolved_hints(function, frame.f_back if frame else None)
        settings = {**settings, "name": name, "description": _description(function, hints)}
        check_settings(function, settings)
        made = _made(_Plan(function, settings, hints))
    except ConfigError as error:
        raise ConfigError(f"tool {name!r}: {error}") from error
    check_tool(made)
    return made


def _made(plan: _Plan) -> FunctionTool[..., Any]:
    """Return the tool of a plan: the one instance of a subclass with the settings as class variables."""
    documented = read_docstring(plan.function.__doc__ or "")
    fields = field_names(plan.hints)
    body = {
        **plan.settings,
        "Params": parameters_model(plan.function, plan.hints, fields, documented.parameters),
        "__doc__": documented.description,
        "__module__": plan.function.__module__,
    }
    made: FunctionTool[..., Any] = type(plan.function.__name__, (FunctionTool,), body)(plan, fields)
    return made


def _description(function: Function, hints: Mapping[str, Any]) -> str:
    documented = read_docstring(function.__doc__ or "")
    if not documented.description:
        raise ConfigError("has no docstring; its first lines tell the model what the tool does")
    unknown = documented.parameters.keys() - hints.keys() - {CONTEXT}
    if unknown:
        raise ConfigError(
            f"the docstring describes {', '.join(sorted(unknown))}, but the function takes "
            f"{', '.join(hints) or 'nothing'}; make the names agree"
        )
    return documented.description


def check_settings(function: Function, settings: Mapping[str, Any]) -> None:
    """Refuse a function that yields, and settings no tool can have.

    Raises:
        ConfigError: says what is wrong and how to mend it.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError("yields; return one value and report progress with ctx.update")
    timeout_s = settings["timeout_s"]
    if timeout_s is not None and not timeout_s > 0:
        raise ConfigError(
            f"timeout_s is {timeout_s}; it must be above 0 seconds, or None for the tree's limit"
        )


_TEXTUAL = (PurePath, UUID, Decimal)
_TIMES = (datetime.date, datetime.time)


def _json_ready(value: object, name: str) -> object:
    """Return what a function gave with everything in it as JSON, times and paths as text.

    Raises:
        ExecutionError: something in it has no JSON form; says where, and what to return instead.
    """
    plain = without_classes(value)
    try:
        return _leaves_checked(plain, "")
    except _NoForm as found:
        place, stranger = found.args
        where = f" at {place}" if place else ""
        raise ExecutionError(
            f"{name} returned {_kind_of(stranger)}{where}, which has no JSON form; return text, numbers, "
            "lists, mappings, a dataclass or a pydantic model, or build a ToolResult"
        ) from None


class _NoForm(Exception):
    """Place and value of something without a JSON form."""


def _leaves_checked(value: object, place: str) -> object:
    if isinstance(value, enum.Enum):
        return _leaves_checked(value.value, place)
    if value is None or isinstance(value, str | bool | int | float | bytes | bytearray):
        return value
    if isinstance(value, _TEXTUAL):
        return str(value)
    if isinstance(value, _TIMES):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _leaves_checked(item, f"{place}/{key}") for key, item in value.items()}
    if isinstance(value, Sequence | Set):
        items = value if isinstance(value, Sequence) else sorted(value, key=repr)
        return [_leaves_checked(item, f"{place}/{index}") for index, item in enumerate(items)]
    raise _NoForm(place, value)


def _kind_of(value: object) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"a {module}{kind.__qualname__}"


def without_classes(value: object) -> object:
    """Return the value with models and dataclasses inside it as plain mappings."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: without_classes(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: without_classes(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_classes(item) for item in value]
    return value
