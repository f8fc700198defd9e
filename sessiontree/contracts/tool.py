"""Tools: what a tool declares about itself, and how it runs.

Source: ADR-0004, Tool trait.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import BaseModel

from sessiontree.contracts.capabilities import CAPABILITIES, OBSERVING, highest_of
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.flags import ToolFlag
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.results import ToolResult, Untrusted
from sessiontree.contracts.retry import Retry
from sessiontree.contracts.tiers import PermissionTier

P = TypeVar("P", bound=BaseModel)

ALL_KINDS: frozenset[SessionKind] = frozenset(SessionKind)
MAIN_AND_BRANCH: frozenset[SessionKind] = frozenset({SessionKind.MAIN, SessionKind.BRANCH})


class Tool(ABC, Generic[P]):
    """Base of every tool: declaration and execution in one place, so that neither drifts.

    A subclass sets the class variables and implements :meth:`execute`. What it does not declare is
    taken to be dangerous: the tier is Elevated and Workers do not get it.
    """

    name: ClassVar[str]
    """Unique identifier, such as ``read``."""
    description: ClassVar[str]
    """What it does, for the model."""
    Params: ClassVar[type[BaseModel]]
    """The parameters' model; arguments arrive as an instance of it."""
    label: ClassVar[str] = ""
    """Short name for people; empty = the name."""
    section: ClassVar[str] = "user"
    """The group it belongs to, such as ``fs``."""
    profiles: ClassVar[frozenset[str]] = frozenset()
    """Policy profiles that include it, such as ``coding``; ``full`` includes every tool."""
    flags: ClassVar[frozenset[ToolFlag]] = frozenset()
    """What else is to be known of it, such as ``owner_only``."""
    tier: ClassVar[PermissionTier] = PermissionTier.ELEVATED
    """Tier every call needs at least."""
    kinds: ClassVar[frozenset[SessionKind]] = MAIN_AND_BRANCH
    """Kinds of session that may hold it."""
    capabilities: ClassVar[frozenset[str]] = frozenset()
    """Names of the handles it cannot work without; its context holds these and the optional ones alone."""
    optional_capabilities: ClassVar[frozenset[str]] = frozenset()
    """Names of the handles it uses where the session has them."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names a model may call it by."""
    param_aliases: ClassVar[Mapping[str, str]] = {}
    """Other spellings of parameters, alias to name; camelCase and snake_case need no entry."""
    timeout_s: ClassVar[float | None] = None
    """Longest run of one call; None = the tree's limit."""
    idempotent: ClassVar[bool] = False
    """Whether repeating a call with the same ``ctx.call_id`` changes nothing more."""
    sequential: ClassVar[bool] = False
    """Whether its calls run alone: beside no other call of their session."""
    retry: ClassVar[Retry | None] = None
    """How a call that changes nothing is tried again; None = once more after a time-out, and after nothing
    else. ``Retry(attempts=1)`` = not at all."""
    command_in: ClassVar[str] = ""
    """Its parameter that holds a command line for the sandbox's shell; empty = it runs none. Approvals look
    at what such a command runs: mode ``smart`` says yes to what is known to be harmless, and an owner's
    *always* covers the same programs with arguments of the same shape."""
    untrusted: ClassVar[Untrusted] = False
    """Whether what it answers is text from outside, its errors too: then it is put between marks, and its
    session has taken in untrusted text. A result may say so for itself."""
    changes: ClassVar[tuple[str, ...]] = ()
    """Its parameters that name files it changes, relative to the workspace: a call is Elevated where one of
    them is protected (:class:`~sessiontree.contracts.ports.Writer`), and bound to the place it was asked
    about. A tool that names none is refused there, unless its calls are Elevated anyway."""

    def tier_for(self, params: P) -> PermissionTier:
        """Return the tier of these final arguments; a lower one than ``tier`` has no effect."""
        return self.tier

    @abstractmethod
    async def execute(self, params: P, ctx: ToolContext) -> ToolResult:
        """Run the call.

        Args:
            params: Validated arguments.
            ctx: The session's rights and this call's signals.

        Returns:
            The result; its output goes to the model.

        Raises:
            ToolError: what the model should read. Any other exception is wrapped into ExecutionError.

        Contract: must not block the event loop; cancellation arrives as ``asyncio.CancelledError``.
        """


class RawTool(Tool[Any], ABC):
    """A tool whose parameters are a JSON Schema instead of a model; ``params`` arrives as a plain dict."""

    parameters: Mapping[str, JsonValue]
    """JSON Schema of an object."""


def declared_by(tool: Tool[Any]) -> frozenset[str]:
    """Return the names of all handles a tool may be given."""
    return frozenset(tool.capabilities) | frozenset(tool.optional_capabilities)


def check_is_tool(value: object) -> None:
    """Refuse what is given as a tool and is none.

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
        why = f"{value!r} is no tool; give a function with @tool above it, or an instance of a class of Tool"
    raise ConfigError(f"tools: {why}")


def check_tool(tool: Tool[Any]) -> None:
    """Refuse a tool that is not well declared, before any session exists.

    Raises:
        ConfigError: says what is wrong and how to mend it.
    """
    check_is_tool(tool)
    kind = type(tool).__name__
    name = getattr(tool, "name", None)
    if not isinstance(name, str) or not _is_name(name):
        raise ConfigError(
            f"tool {kind}: name {name!r} must be 1 to 64 letters, digits, '_' or '-', starting with a letter"
        )
    if not getattr(tool, "description", ""):
        raise ConfigError(f"tool {name!r}: has no description; the model chooses tools by it")
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
    unknown = sorted(tool.flags - frozenset(ToolFlag))
    if unknown:
        raise ConfigError(f"tool {name!r}: no flag is called {unknown}; there are {', '.join(ToolFlag)}")
    if not isinstance(tool, RawTool) and not _is_model(getattr(tool, "Params", None)):
        raise ConfigError(f"tool {name!r}: Params must be a pydantic model of its parameters")
    if tool.untrusted not in {True, False, "marked"}:
        raise ConfigError(
            f"tool {tool.name!r}: untrusted is {tool.untrusted!r}; give True, False or 'marked'"
        )
    _check_named_parameters(tool)
    _check_names(tool)
    if SessionKind.WORKER in tool.kinds:
        _check_worker_tool(tool)
    _check_tier(tool)


def _check_named_parameters(tool: Tool[Any]) -> None:
    """Refuse a tool that names a parameter it has not: its commands or paths would go by unjudged."""
    if isinstance(tool.changes, str):
        raise ConfigError(f"tool {tool.name!r}: changes is {tool.changes!r}; write ({tool.changes!r},)")
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
                f"tool {tool.name!r}: {member} is {name!r}, which is none of its parameters: "
                f"{', '.join(known) or 'it has none'}"
            )


def _check_retry(tool: Tool[Any]) -> None:
    if not isinstance(tool.retry, Retry):
        raise ConfigError(f"tool {tool.name!r}: retry is {tool.retry!r}; write Retry(attempts=…), or None")
    if tool.tier is not PermissionTier.READ_ONLY and not tool.idempotent:
        raise ConfigError(
            f"tool {tool.name!r}: declares retry, but its tier is {tool.tier.label}; "
            "what changes things runs once. Make it ReadOnly, or idempotent if a repeat changes nothing more"
        )


def _check_names(tool: Tool[Any]) -> None:
    """Refuse capabilities that are none, or are not given as a set of names."""
    for member in ("capabilities", "optional_capabilities"):
        given: object = getattr(tool, member)
        names = None if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
        if names is None or not all(isinstance(each, str) for each in names):
            raise ConfigError(
                f"tool {tool.name!r}: {member} is {given!r}; give a set of names, such as "
                "frozenset({'reader'})"
            )
        if unknown := sorted(set(names) - set(CAPABILITIES)):
            raise ConfigError(
                f"tool {tool.name!r}: {member}: no capability is called {', '.join(map(repr, unknown))}; "
                f"there are {', '.join(CAPABILITIES)}"
            )


def _check_tier(tool: Tool[Any]) -> None:
    """Refuse a tool that does the work of a higher tier than it says: its calls would pass unasked."""
    highest = highest_of(declared_by(tool))
    if highest is not None and tool.tier < highest.tier:
        label = highest.tier.label
        raise ConfigError(
            f"tool {tool.name!r}: its tier is {tool.tier.label}, but it declares capability "
            f"{highest.name!r}, whose work is {label}; declare tier {label} "
            f"(PermissionTier.{highest.tier.name}), or drop the capability"
        )


def _check_worker_tool(tool: Tool[Any]) -> None:
    excess = declared_by(tool) - OBSERVING
    if tool.tier is not PermissionTier.READ_ONLY or excess:
        needs = f" and needs {', '.join(sorted(excess))}" if excess else ""
        raise ConfigError(
            f"tool {tool.name!r}: declared for Workers but its tier is {tool.tier.label}{needs}; "
            "a Worker only observes: make it ReadOnly or drop SessionKind.WORKER from kinds"
        )


def _is_model(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def _is_name(name: str) -> bool:
    body = name.replace("_", "").replace("-", "")
    return 0 < len(name) <= 64 and name[0].isalpha() and name.isascii() and (not body or body.isalnum())
