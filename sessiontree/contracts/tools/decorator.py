"""Tools from functions: the signature defines the parameters, and the docstring describes the tool."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from pathlib import PurePath
from types import FrameType, FunctionType
from typing import (
    Annotated,
    Any,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo

from sessiontree.contracts.errors import ConfigError, ExecutionError
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import Capability, list_capability_names
from sessiontree.contracts.recorded.results import ToolResult, Untrusted, json_result
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Retry, Tool, ToolFlag, check_tool
from sessiontree.contracts.values.quick_dataclass import dataclass

_ARGUMENTS = frozenset({"Args:", "Arguments:"})
_SECTIONS = _ARGUMENTS | {"Returns:", "Return:", "Raises:", "Yields:"}
_ENTRY = re.compile(r"(?P<name>[^\W\d]\w*)(?:\s*\(.*?\))?\s*:\s*(?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Docstring:
    """The parts of a docstring."""

    description: str
    """The text before the first section, with its paragraphs."""
    parameters: dict[str, str]
    """Maps each parameter to its one-line description, in the order written."""


def read_docstring(text: str) -> Docstring:
    """Return the parts of a docstring; a text without sections is only a description."""
    before: list[str] = []
    arguments: list[str] = []
    section = ""
    for line in inspect.cleandoc(text).splitlines():
        if line.rstrip() in _SECTIONS:
            section = line.rstrip()
        elif not section:
            before.append(line)
        elif section in _ARGUMENTS:
            if line and not line[0].isspace():
                section = "other text"
            else:
                arguments.append(line)
    return Docstring("\n".join(before).strip(), dict(_read_entries(arguments)))


def _read_entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and description of each entry; more deeply indented lines continue an entry."""
    margin = next((_indent(line) for line in lines if line.strip()), 0)
    name, words = "", list[str]()
    for line in lines:
        entry = _ENTRY.fullmatch(line.strip()) if line.strip() and _indent(line) <= margin else None
        if entry:
            if name:
                yield name, " ".join(words)
            name, words = entry["name"], entry["text"].split()
        else:
            words += line.split()
    if name:
        yield name, " ".join(words)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


ToolFunction: TypeAlias = Callable[..., Any]
"""A function, plain or async, from which :func:`tool` makes a tool."""

CONTEXT = "ctx"
"""Name of the parameter that receives the call's context."""

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def resolve_hints(function: ToolFunction, frame: FrameType | None) -> dict[str, Any]:
    """Return the annotation of every parameter except the context, in signature order; strings are evaluated.

    Args:
        function: A Python function.
        frame: The frame that may have defined it; if it did, its local names are visible.

    Raises:
        ConfigError: a parameter has no annotation, an annotation that can't be evaluated, or no name.
    """
    # Annotations are those of the function as written, so its module's names count and not a wrapper's.
    plain = cast("FunctionType", inspect.unwrap(function))
    names = _collect_names(plain, frame)
    hints: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _BY_NAME:
            raise ConfigError(
                f"parameter {str(parameter)!r} cannot be given by name; write it as an ordinary one"
            )
        if parameter.name != CONTEXT:
            hints[parameter.name] = _hint(parameter, plain, names)
    return hints


def choose_field_names(hints: Mapping[str, Any]) -> dict[str, str]:
    """Return the model's field for each parameter; the names differ if pydantic reserves the name."""
    fields: dict[str, str] = {}
    for name in hints:
        field = name
        if name.startswith("_") or hasattr(BaseModel, name):
            field = f"parameter_{name.strip('_')}"
            while field in hints or field in fields.values():
                field += "_"
        fields[name] = field
    return fields


def build_parameters_model(
    function: ToolFunction, hints: Mapping[str, Any], fields: Mapping[str, str], described: Mapping[str, str]
) -> type[BaseModel]:
    """Return the model of a function's parameters; it refuses unknown parameters.

    Args:
        function: The function, for defaults and the model's name.
        hints: Its resolved annotations.
        fields: Its parameters' fields, from :func:`choose_field_names`.
        described: Descriptions by parameter; a description in ``Annotated`` takes precedence.

    Raises:
        ConfigError: pydantic does not support an annotation.
    """
    parameters = inspect.signature(function).parameters
    definitions: dict[str, Any] = {}
    for name, hint in hints.items():
        marks: dict[str, Any] = {}
        if fields[name] != name:
            # The model that calls it still sees the parameter's own name.
            marks["alias"] = name
        if name in described and not _is_described(hint):
            marks["description"] = described[name]
        default = parameters[name].default
        definitions[fields[name]] = (
            cast("Any", Annotated)[hint, Field(**marks)],
            ... if default is inspect.Parameter.empty else default,
        )
    try:
        return create_model(
            f"{function.__name__}_parameters",
            __config__=ConfigDict(extra="forbid", protected_namespaces=()),
            __module__=function.__module__,
            **definitions,
        )
    except (PydanticUserError, PydanticUndefinedAnnotation, TypeError, AttributeError) as error:
        raise ConfigError(f"its parameters can't form a model: {str(error).partition(chr(10))[0]}") from error


def _hint(parameter: inspect.Parameter, function: FunctionType, names: dict[str, Any]) -> Any:
    if parameter.annotation is parameter.empty:
        raise ConfigError(
            f"parameter {parameter.name!r} has no annotation; write `{parameter.name}: str` or so"
        )

    def hold_annotation() -> None:
        """Carry one annotation, so that an error can be attributed to this parameter."""

    hold_annotation.__annotations__ = {parameter.name: parameter.annotation}
    try:
        hint = get_type_hints(hold_annotation, function.__globals__, names, include_extras=True)[
            parameter.name
        ]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ConfigError(
            f"annotation {parameter.annotation!r} of parameter {parameter.name!r} cannot be read ({error}); "
            "import its names where the function is defined, not only for type checkers"
        ) from error
    if hint is ToolContext:
        raise ConfigError(f"parameter {parameter.name!r} is a ToolContext; call it {CONTEXT!r}")
    return hint


def _collect_names(function: FunctionType, frame: FrameType | None) -> dict[str, Any]:
    """Return the names that a function sees in its enclosing functions."""
    names: dict[str, Any] = {}
    # Only if that code contains the function: a decorator may be applied far from where it is written.
    if frame is not None and function.__code__ in frame.f_code.co_consts:
        names |= frame.f_locals
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # empty until the enclosing function sets it
            names[name] = cell.cell_contents
    return names


def _is_described(hint: Any) -> bool:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(mark, FieldInfo) and mark.description for mark in marks)


Given = ParamSpec("Given")
"""The parameters of a function."""
Got = TypeVar("Got")
"""Its return type; for an ``async def``, the awaitable."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """How to make a tool from a function, here or in another process."""

    function: ToolFunction
    settings: Mapping[str, Any]
    """The tool's class variables."""
    hints: Mapping[str, Any]
    """The resolved annotation of each parameter except the context."""


class FunctionTool(Tool[BaseModel], Generic[Given, Got]):
    """A tool made from a function; :func:`tool` makes a subclass for each. Calling it calls the function.

    It is pickled as the function and its settings, so a tool defined in a notebook cell can be pickled too.
    """

    def __init__(self, plan: _Plan, fields: Mapping[str, str]) -> None:
        self.function: Callable[Given, Got] = plan.function
        """The function as written."""
        self._plan = plan
        self._fields = fields
        self._takes_context = CONTEXT in inspect.signature(plan.function).parameters
        self._call = make_async(plan.function)

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Got:
        """Call the function directly, without checks, a thread or a session."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[[_Plan], FunctionTool[..., Any]], tuple[_Plan]]:
        """Return how to rebuild it: its class exists only in the process that made it."""
        return _make_tool, (self._plan,)

    async def execute(self, params: BaseModel, ctx: ToolContext) -> ToolResult:
        """Call the function, in a thread if it is not ``async``, and convert its return value to JSON."""
        arguments = {name: getattr(params, field) for name, field in self._fields.items()}
        if self._takes_context:
            arguments[CONTEXT] = ctx
        return await self._call(**arguments)


def make_async(function: ToolFunction) -> Callable[..., Awaitable[ToolResult]]:
    """Return an async form of a function that returns JSON; a plain function runs in a thread."""
    is_async = inspect.iscoroutinefunction(function)
    name = getattr(function, "__name__", type(function).__name__)

    async def call_function(*arguments: Any, **named: Any) -> ToolResult:
        if is_async:
            value = await function(*arguments, **named)
        else:
            value = await run_in_thread(function, *arguments, **named)
            if inspect.isawaitable(value):  # a plain wrapper around an async function
                value = await value
        return value if isinstance(value, ToolResult) else json_result(_make_json_ready(value, name))

    return call_function


SETTINGS = ("label", "section", "tier", "untrusted", "timeout_s", "idempotent", "sequential", "retry")
"""Keywords of a decorator that are class variables of its tool as they are given."""


def collect_tool_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class variables of a tool, by the keywords of its decorator."""
    profiles, changes = given["profiles"], given["changes"]
    return {
        **{name: given[name] for name in SETTINGS},
        "profiles": frozenset([profiles] if isinstance(profiles, str) else profiles),
        "kinds": frozenset(given["kinds"]),
        "capabilities": list_capability_names(given["capabilities"]),
        "optional_capabilities": list_capability_names(given["optional_capabilities"]),
        "changes": tuple([changes] if isinstance(changes, str) else changes),
        "aliases": tuple(given["aliases"]),
        "flags": frozenset(given["flags"]),
    }


@overload
def tool(function: Callable[Given, Got], /) -> FunctionTool[Given, Got]: ...


@overload
def tool(
    *,
    name: str | None = None,
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
    flags: Iterable[ToolFlag] = (),
) -> Callable[[Callable[Given, Got]], FunctionTool[Given, Got]]: ...


def tool(  # noqa: PLR0913 - each is one thing a tool declares
    function: ToolFunction | None = None,
    /,
    *,
    name: str | None = None,
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
    flags: Iterable[ToolFlag] = (),
) -> FunctionTool[..., Any] | Callable[[ToolFunction], FunctionTool[..., Any]]:
    """Make a tool from a typed function with a docstring: ``@tool`` or ``@tool(tier=…)``.

    The parameters' types become the schema; unknown parameters are refused. The docstring's ``Args:``
    describe the parameters, and the text before them describes the tool. A parameter named ``ctx`` receives
    the :class:`~sessiontree.contracts.tools.context.ToolContext` and is not part of the schema. A function
    that is not ``async`` runs in a thread. A :class:`ToolResult` is returned unchanged, anything else as
    JSON.

    Args:
        function: The function, if the decorator is used without parentheses.
        name: The tool's name; None = the function's.
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
        flags: Other properties, such as ``owner_only``.

    Returns:
        The tool. Calling it calls the function, which is also its attribute ``function``.

    Raises:
        ConfigError: an annotation or the docstring is missing, or a setting is wrong; the error says the fix.
    """
    settings = {"name": name, **collect_tool_settings(locals())}
    if function is not None:
        return _declare(function, settings, inspect.currentframe())

    def decorate(decorated: ToolFunction) -> FunctionTool[..., Any]:
        return _declare(decorated, settings, inspect.currentframe())

    return decorate


def _declare(
    function: ToolFunction, settings: dict[str, Any], frame: FrameType | None
) -> FunctionTool[..., Any]:
    """Return the tool of a function; ``frame`` is that of the code which applies the decorator."""
    if not inspect.isfunction(inspect.unwrap(function)):
        raise ConfigError(f"@tool takes a function, not {function!r}; derive a class from Tool instead")
    name = settings["name"] or function.__name__
    try:
        hints = resolve_hints(function, frame.f_back if frame else None)
        settings = {**settings, "name": name, "description": _read_description(function, hints)}
        check_returns(function)
        made = _make_tool(_Plan(function, settings, hints))
    except ConfigError as error:
        raise ConfigError(f"tool {name!r}: {error}") from error
    check_tool(made)
    return made


def _make_tool(plan: _Plan) -> FunctionTool[..., Any]:
    """Return the tool of a plan: the only instance of a subclass with the settings as class variables."""
    documented = read_docstring(plan.function.__doc__ or "")
    fields = choose_field_names(plan.hints)
    body = {
        **plan.settings,
        "Params": build_parameters_model(plan.function, plan.hints, fields, documented.parameters),
        "__doc__": documented.description,
        "__module__": plan.function.__module__,
    }
    made: FunctionTool[..., Any] = type(plan.function.__name__, (FunctionTool,), body)(plan, fields)
    return made


def _read_description(function: ToolFunction, hints: Mapping[str, Any]) -> str:
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


def check_returns(function: ToolFunction) -> None:
    """Refuse a generator function.

    Raises:
        ConfigError: says what is wrong and how to fix it.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError("yields; return one value and report progress with ctx.update")


_TEXTUAL = (PurePath, UUID, Decimal)
_TIMES = (datetime.date, datetime.time)


def _make_json_ready(value: object, name: str) -> object:
    """Return a function's return value as JSON; times and paths become text.

    Raises:
        ExecutionError: part of the value has no JSON form; says which, and what to return instead.
    """
    plain = convert_classes(value)
    try:
        return _check_leaves(plain, "")
    except _NoForm as found:
        place, stranger = found.args
        where = f" at {place}" if place else ""
        raise ExecutionError(
            f"{name} returned {_describe_kind(stranger)}{where}, which has no JSON form; return text, "
            "numbers, "
            "lists, mappings, a dataclass or a pydantic model, or build a ToolResult"
        ) from None


class _NoForm(Exception):
    """A value without a JSON form, and its place."""


def _check_leaves(value: object, place: str) -> object:
    if isinstance(value, enum.Enum):
        return _check_leaves(value.value, place)
    if value is None or isinstance(value, str | bool | int | float | bytes | bytearray):
        return value
    if isinstance(value, _TEXTUAL):
        return str(value)
    if isinstance(value, _TIMES):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _check_leaves(item, f"{place}/{key}") for key, item in value.items()}
    if isinstance(value, Sequence | Set):
        # A set has no order; without one, equal results would differ.
        items = value if isinstance(value, Sequence) else sorted(value, key=repr)
        return [_check_leaves(item, f"{place}/{index}") for index, item in enumerate(items)]
    raise _NoForm(place, value)


def _describe_kind(value: object) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"a {module}{kind.__qualname__}"


def convert_classes(value: object) -> object:
    """Return the value with its models and dataclasses converted to plain mappings."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: convert_classes(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: convert_classes(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [convert_classes(item) for item in value]
    return value
