"""Tools: what a tool declares about itself and its parameters, and how it runs.

A marker such as :class:`Stripped` declares a property of a parameter that its type can't express. It is given
in ``Annotated`` and becomes a keyword of the parameter's JSON Schema, so a tool that declares its parameters
as a schema may write the keyword itself. Models never see these keywords.
Source: ADR-0004, Tool trait.
"""

from __future__ import annotations

import inspect
import operator
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar, cast
from weakref import WeakKeyDictionary

from pydantic import BaseModel, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import CAPABILITIES, OBSERVING, find_highest
from sessiontree.contracts.recorded.results import ToolResult, Untrusted
from sessiontree.contracts.settings.given_values import Choice, Give, Instance, Parts, Text, take_members
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

TRIMMED_KEYWORD = "x-trimmed"
"""``true`` if strings are trimmed."""
ALLOW_EMPTY_KEYWORD = "x-allow-empty"
"""``true`` if an empty string counts as a value."""


@dataclass(frozen=True, slots=True)
class Stripped:
    """Strings are stripped of surrounding white space before the call's digest is computed.

    Use it for names, ids, addresses and queries: ``Annotated[str, Stripped()]``. Never use it for text,
    patches, commands or paths, where white space is significant.
    """

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the type's schema with the keyword added."""
        return {**handler(core_schema), TRIMMED_KEYWORD: True}


@dataclass(frozen=True, slots=True)
class AllowEmpty:
    """An empty string is a value of this required parameter: ``Annotated[str, AllowEmpty()]``.

    Without it, a required parameter given as ``""`` counts as missing.
    """

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the type's schema with the keyword added."""
        return {**handler(core_schema), ALLOW_EMPTY_KEYWORD: True}


def string_enum(values: Iterable[str]) -> Any:
    """Return the type of a parameter that accepts one of several texts, which are known at run time.

    If they are known in advance, ``Literal["markdown", "text"]`` is equivalent. In every dialect the type is
    one flat ``enum``, never a union.

    Raises:
        ConfigError: the values are missing, or one is not text.

    Source: seed 001, section 4.2, ``stringEnum``.
    """
    listed = tuple(dict.fromkeys(values))
    if isinstance(values, str) or not listed or not all(isinstance(each, str) for each in listed):
        raise ConfigError(f"string_enum({values!r}): give a list of at least one text")
    return Literal[listed]


def optional_string_enum(values: Iterable[str]) -> Any:
    """Return the type of an optional parameter with these ``values``; give the parameter the default None.

    Models do not see null: they can only omit the parameter.

    Raises:
        ConfigError: as :func:`string_enum`.

    Source: seed 001, section 4.2, ``optionalStringEnum``.
    """
    return string_enum(values) | None


class ToolFlag(StrEnum):
    """A property that a tool declares; it can restrict the tool's use, but never grants a right."""

    OWNER_ONLY = "owner_only"
    """Only owners may use it: turns for others do not hold it, and their calls are refused."""
    OPTIONAL = "optional"
    """Excluded unless asked for: a plugin's tool by an allow list that names it, its plugin or
    ``group:plugins``; another one by a profile or list that includes it, or by its agent's list."""
    BACKGROUND = "background"
    """Can leave work running after its result."""
    PTY = "pty"
    """Can give a command a terminal."""
    ELEVATED = "elevated"
    """Can be asked to run outside the confinement; such a call is Elevated."""
    WORKSPACE_ONLY = "workspace_only"
    """Accesses nothing outside the workspace, except a directory that the owner allows it
    (``AgentConfig.outside_roots``); such a call is Elevated."""


MAX_RETRY_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class Retry:
    """How a tool's calls are retried after a time-out, or after an error that is marked as retryable.

    It applies to calls that change nothing, and to all calls of an ``idempotent`` tool. Each attempt has the
    tool's full time-out.

    Args:
        attempts: Maximum runs of one call, including the first; 1 to 10. 1 = no retry.
        first_delay_s: Maximum pause after the first failure, in seconds.
        max_delay_s: Maximum of every pause, in seconds.

    Raises:
        ConfigError: a number is outside its limits.
    """

    attempts: int = 3
    first_delay_s: float = 0.5
    max_delay_s: float = 10.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= MAX_RETRY_ATTEMPTS:
            raise ConfigError(f"Retry(attempts={self.attempts}): it must be 1 to {MAX_RETRY_ATTEMPTS}")
        if not 0 <= self.first_delay_s <= self.max_delay_s <= 3_600:
            raise ConfigError(
                f"Retry(first_delay_s={self.first_delay_s}, max_delay_s={self.max_delay_s}): "
                "they must be seconds, the first no longer than the longest, and none above 3600"
            )

    def delay_s(self, failures: int, draw: float) -> float:
        """Return the pause after a number of failures, in seconds: half is fixed, half is random.

        Args:
            failures: Failed attempts so far, at least 1.
            draw: Random number from 0 to 1.
        """
        # Half is random, so that calls which failed together do not come again together.
        longest: float = min(self.max_delay_s, self.first_delay_s * 2 ** (failures - 1))
        return longest * (1 + draw) / 2


OF_TIMEOUTS: Final = Retry(attempts=2)
"""How time-outs are retried if a tool declares no retry."""


P = TypeVar("P", bound=BaseModel)

ALL_KINDS: frozenset[SessionKind] = frozenset(SessionKind)
MAIN_AND_BRANCH: frozenset[SessionKind] = frozenset({SessionKind.MAIN, SessionKind.BRANCH})


class Tool(ABC, Generic[P]):
    """Base of every tool; it keeps declaration and execution in one place.

    A subclass sets the class variables and implements :meth:`execute`. The defaults are cautious: the tier is
    Elevated and Workers do not get the tool.
    """

    name: ClassVar[str]
    """Unique identifier, such as ``read``."""
    description: ClassVar[str]
    """What it does, for the model."""
    Params: ClassVar[type[BaseModel]]
    """The parameters' model; arguments arrive as an instance of it."""
    brief: ClassVar[bool] = False
    """Whether a model sees the parameters without bounds (lengths, ranges, patterns) and defaults; every call
    is still checked against the whole schema."""
    label: ClassVar[str] = ""
    """Short name for people; empty = the name."""
    section: ClassVar[str] = "user"
    """The group it belongs to, such as ``fs``."""
    profiles: ClassVar[frozenset[str]] = frozenset()
    """Policy profiles that include it, such as ``coding``; ``full`` includes every tool."""
    flags: ClassVar[frozenset[ToolFlag]] = frozenset()
    """Other properties, such as ``owner_only``."""
    tier: ClassVar[PermissionTier] = PermissionTier.ELEVATED
    """Minimum tier of every call."""
    kinds: ClassVar[frozenset[SessionKind]] = MAIN_AND_BRANCH
    """Kinds of session that may hold it."""
    capabilities: ClassVar[frozenset[str]] = frozenset()
    """Names of the handles that it requires; its context has only these and the optional ones."""
    optional_capabilities: ClassVar[frozenset[str]] = frozenset()
    """Names of the handles that it uses if the session has them."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names that a model may use for it."""
    param_aliases: ClassVar[Mapping[str, str]] = {}
    """Other spellings of parameters, alias to name; camelCase and snake_case need no entry."""
    timeout_s: ClassVar[float | None] = None
    """Time limit of one call, in seconds; None = the tree's limit."""
    idempotent: ClassVar[bool] = False
    """Whether repeating a call with the same ``ctx.call_id`` has no further effect."""
    sequential: ClassVar[bool] = False
    """Whether each call runs alone, without other calls of its session."""
    retry: ClassVar[Retry | None] = None
    """How a call that changes nothing is retried; None = once, and only after a time-out.
    ``Retry(attempts=1)`` = not at all."""
    command_in: ClassVar[str] = ""
    """Its parameter with a command line for the sandbox's shell; empty = it runs no command. Approvals
    examine such a command: mode ``smart`` approves commands known to be harmless, and an owner's *always*
    covers the same programs with arguments of the same shape."""
    untrusted: ClassVar[Untrusted] = False
    """Whether its output and errors are text from outside. Such text is put between marks, and its session
    counts as having read untrusted text. A single result may declare this too."""
    changes: ClassVar[tuple[str, ...]] = ()
    """Its parameters that name files it changes, relative to the workspace. A call is Elevated if one of them
    is protected (:class:`~sessiontree.contracts.handles.ports.Writer`), and is bound to the approved place. A
    tool that names no parameters can't change protected places unless its calls are Elevated anyway. Where a
    parameter holds more than paths, override :meth:`list_changed_paths`."""

    reads: ClassVar[tuple[str, ...]] = ()
    """Its parameters that name files or directories it reads, in addition to those of ``changes``. By these
    alone a call of a tool with the flag ``workspace_only`` reaches a directory outside the workspace."""

    def tier_for(self, params: P) -> PermissionTier:
        """Return the tier of the final arguments ``params``; a tier below ``tier`` has no effect."""
        return self.tier

    def node_for(self, params: P) -> str | None:
        """Return the name or id of the node on which a call would run a command; None = on none; pure.

        A call is refused before anybody is asked about it if no node of the runtime has that name.

        Args:
            params: The final arguments.
        """
        return None

    def check_allowed(self, params: P, config: AgentConfig) -> None:
        """Refuse a call that no approval makes possible, before anybody is asked; pure.

        Args:
            params: The final arguments.
            config: The agent's configuration, as strict as the sessions above make it.

        Raises:
            PermissionDenied: the owner does not allow such a call to the agent.
        """
        return

    def list_changed_paths(self, arguments: Mapping[str, JsonValue]) -> Collection[str]:
        """Return the paths of the files that a call would change: the values of ``changes``.

        Args:
            arguments: The final, validated arguments.

        Contract: pure, and complete: a call can't change a protected file that is not among them.
        """
        given = (arguments.get(name) for name in self.changes)
        paths = (path for each in given for path in (each if isinstance(each, list) else [each]))
        return [path for path in paths if isinstance(path, str)]

    def list_read_paths(self, arguments: Mapping[str, JsonValue]) -> Collection[str]:
        """Return the paths that a call would read: the values of ``reads``; pure.

        Args:
            arguments: The final, validated arguments.
        """
        return [path for name in self.reads if isinstance(path := arguments.get(name), str)]

    @abstractmethod
    async def execute(self, params: P, ctx: ToolContext) -> ToolResult:
        """Run the call.

        Args:
            params: Validated arguments.
            ctx: The session's rights and this call's signals.

        Returns:
            The result; its output goes to the model.

        Raises:
            ToolError: an error for the model to read. Any other exception is wrapped in ExecutionError.

        Contract: it must not block the event loop; cancellation arrives as ``asyncio.CancelledError``.
        """


class RawTool(Tool[Any], ABC):
    """A tool whose parameters are a JSON Schema instead of a model; ``params`` arrives as a plain dict."""

    parameters: Mapping[str, JsonValue]
    """JSON Schema of an object."""


def list_declared_handles(tool: Tool[Any]) -> frozenset[str]:
    """Return the names of all handles that a tool declares."""
    return frozenset(tool.capabilities) | frozenset(tool.optional_capabilities)


def check_is_tool(value: object) -> None:
    """Refuse a value that is not a tool.

    Raises:
        ConfigError: says what to write instead.
    """
    if isinstance(value, Tool):
        return
    name = getattr(value, "__name__", type(value).__name__)
    if isinstance(value, type) and issubclass(value, Tool):
        why = f"{name} is a class; give an instance of it: {name}()"
    elif isinstance(value, str):
        why = f"{value!r} is a name; give the tool itself. Which tools an agent holds: AgentSpec(tools=…)"
    elif callable(value):
        why = (
            f"{name} is a function; write @tool above it (from sessiontree import tool), or give tool({name})"
        )
    else:
        why = (
            f"{value!r} is not a tool; give a function with @tool above it, or an instance of a class of Tool"
        )
    raise ConfigError(f"tools: {why}")


_Handles: TypeAlias = Annotated[
    Collection[Annotated[str, Give("a name")]], Parts("a set of names, such as frozenset({'reader'})")
]


class _ToolMembers(TypedDict, total=False):
    """What a tool declares and its type checks."""

    name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"),
        Give("1 to 64 letters, digits, '_' or '-', starting with a letter"),
    ]
    description: Annotated[Text, Give("text with something in it: the model chooses tools by it")]
    Params: Annotated[type[BaseModel], Give("a pydantic model of its parameters")]
    retry: Annotated[Retry | None, Instance("Retry(attempts=…), or None")]
    timeout_s: Annotated[
        Annotated[float, Field(gt=0)] | None, Give("seconds above 0, or None for the tree's limit")
    ]
    label: Annotated[
        str, Field(max_length=80, pattern=r"^[^\x00-\x1f\x7f]*$"), Give("one line of at most 80 characters")
    ]
    section: Annotated[
        str,
        Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"),
        Give("1 to 64 letters, digits, '_' or '-', starting with a letter"),
    ]
    profiles: Annotated[
        Collection[Annotated[str, Give("the name of a profile")]],
        Parts("a set of names, such as {'coding'}"),
    ]
    flags: Annotated[Collection[Annotated[ToolFlag, Choice()]], Parts("a set of ToolFlag")]
    untrusted: Annotated[Untrusted, Give("True, False or 'marked'")]
    changes: Annotated[Sequence[Text], Parts("names of its parameters in a tuple, such as ('path',)")]
    capabilities: _Handles
    optional_capabilities: _Handles


_CHECKED: Final[WeakKeyDictionary[type[Tool[Any]], tuple[object, ...]]] = WeakKeyDictionary()
"""Classes of tools that passed the check, each with the members that it had then."""
_DECLARED: Final = (
    *("execute", "name", "description", "kinds", "tier", "idempotent", "command_in"),
    *sorted(_ToolMembers.__optional_keys__ - {"description", "Params"}),
)
_CHECKED_MEMBERS: Final = frozenset({*_DECLARED, "Params", "parameters"})
_read_members: Final = operator.attrgetter(*_DECLARED)
"""Returns what a class declares, without ``Params`` or the schema that stands for them."""


def check_tool(tool: Tool[Any]) -> None:
    """Refuse an invalid tool before any session exists.

    Each tree has tools of its own, mostly of the same classes. A class is checked again only if one of its
    members is another object than at its last check.

    Raises:
        ConfigError: says what is wrong and how to fix it.
    """
    check_is_tool(tool)
    kind = type(tool)
    parameters = (
        getattr(kind, "parameters", None) if isinstance(tool, RawTool) else getattr(kind, "Params", None)
    )
    try:
        members = (*_read_members(kind), parameters)
    except AttributeError:  # it declares too little
        _check_members(tool)
        return
    # An instance with such a member of its own may differ from the next one of its class.
    has_own = not _CHECKED_MEMBERS.isdisjoint(getattr(tool, "__dict__", ()))
    before = _CHECKED.get(kind)
    if not has_own and before is not None and all(map(operator.is_, before, members)):
        return
    _check_members(tool)
    if not has_own and not any(hasattr(each, "__get__") for each in members[1:]):  # none is computed
        _CHECKED[kind] = members


def _check_members(tool: Tool[Any]) -> None:
    kind = type(tool).__name__
    name = getattr(tool, "name", None)
    take_members({"name": name}, _ToolMembers, f"tool {kind}: ")
    told = {
        member: getattr(tool, member, None) for member in _ToolMembers.__optional_keys__ if member != "Params"
    }
    if not isinstance(tool, RawTool):
        told["Params"] = getattr(tool, "Params", None)
    take_members(told, _ToolMembers, f"tool {name!r}: ")
    positional = [
        parameter.name
        for parameter in inspect.signature(tool.execute).parameters.values()
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
    ]
    if len(positional) != 2:
        raise ConfigError(
            f"tool {name!r}: execute takes {positional}; write `async def execute(self, params, ctx)`: "
            "call id, progress and cancellation are ctx.call_id, ctx.update and ctx.cancelled"
        )
    if not inspect.iscoroutinefunction(tool.execute):
        raise ConfigError(
            f"tool {name!r}: execute must be `async def`; wrap blocking work in asyncio.to_thread"
        )
    if tool.retry is not None:
        _check_retry(tool)
    _check_named_parameters(tool)
    _check_names(tool)
    if SessionKind.WORKER in tool.kinds:
        _check_worker_tool(tool)
    _check_tier(tool)


def _check_named_parameters(tool: Tool[Any]) -> None:
    """Refuse a tool that names a missing parameter: its commands or paths would not be checked."""
    named = [("command_in", tool.command_in)] if tool.command_in else []
    named += [("changes", each) for each in tool.changes]
    if not named:
        return
    if isinstance(tool, RawTool):
        known: Iterable[str] = cast("Mapping[str, JsonValue]", tool.parameters.get("properties", {}))
    else:
        known = tool.Params.model_fields
    for member, name in named:
        if name not in known:
            raise ConfigError(
                f"tool {tool.name!r}: {member} is {name!r}, which is not one of its parameters: "
                f"{', '.join(known) or 'it has none'}"
            )


def _check_retry(tool: Tool[Any]) -> None:
    if tool.tier is not PermissionTier.READ_ONLY and not tool.idempotent:
        raise ConfigError(
            f"tool {tool.name!r}: declares retry, but its tier is {tool.tier.label}; "
            "what changes things runs once. Make it ReadOnly, or idempotent if a repeat changes nothing more"
        )


def _check_names(tool: Tool[Any]) -> None:
    """Refuse capabilities that do not exist."""
    for member in ("capabilities", "optional_capabilities"):
        if unknown := sorted(set(getattr(tool, member)) - set(CAPABILITIES)):
            raise ConfigError(
                f"tool {tool.name!r}: {member}: no capability is called {', '.join(map(repr, unknown))}; "
                f"there are {', '.join(CAPABILITIES)}"
            )


def _check_tier(tool: Tool[Any]) -> None:
    """Refuse a tool whose capabilities need a higher tier than it declares."""
    highest = find_highest(list_declared_handles(tool))
    if highest is not None and tool.tier < highest.tier:
        label = highest.tier.label
        raise ConfigError(
            f"tool {tool.name!r}: its tier is {tool.tier.label}, but it declares capability "
            f"{highest.name!r}, whose work is {label}; declare tier {label} "
            f"(PermissionTier.{highest.tier.name}), or drop the capability"
        )


def _check_worker_tool(tool: Tool[Any]) -> None:
    excess = list_declared_handles(tool) - OBSERVING
    if tool.tier is not PermissionTier.READ_ONLY or excess:
        needs = f" and needs {', '.join(sorted(excess))}" if excess else ""
        raise ConfigError(
            f"tool {tool.name!r}: declared for Workers but its tier is {tool.tier.label}{needs}; "
            "a Worker only observes: make it ReadOnly or drop SessionKind.WORKER from kinds"
        )
