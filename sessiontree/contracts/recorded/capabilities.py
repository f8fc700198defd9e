"""Capabilities: the typed names of the handles that a tool may need, and which kinds of session have them.

``ctx.require(WRITER)`` returns a :class:`~sessiontree.contracts.handles.ports.Writer`, or raises an error if
the kind of session has no such handle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

from sessiontree.contracts.handles.browser import Browser
from sessiontree.contracts.handles.http_requests import HttpSender
from sessiontree.contracts.handles.image_facts import ImageInspector
from sessiontree.contracts.handles.jobs import Jobs
from sessiontree.contracts.handles.mcp import ServerTools
from sessiontree.contracts.handles.nodes import Nodes
from sessiontree.contracts.handles.ports import (
    Channel,
    Memory,
    MemoryWriter,
    Reader,
    Sessions,
    Shell,
    Subtree,
    Web,
    Writer,
)
from sessiontree.contracts.handles.previews import Previews
from sessiontree.contracts.handles.runtime_control import RuntimeControl
from sessiontree.contracts.handles.speech import SpeechSynthesizer
from sessiontree.contracts.handles.vision import Vision
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.canvas import Canvas
from sessiontree.contracts.recorded.child_workspaces import ChildWorkspaces
from sessiontree.contracts.recorded.cron import Cron
from sessiontree.contracts.values.quick_dataclass import dataclass

H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class Capability(Generic[H]):
    """The name of a handle, its type, and the tier of the work it does."""

    name: str
    tier: PermissionTier
    for_leaves: bool = True
    """Whether a kind without children may hold it."""
    for_branches: bool = True
    """Whether a Branch may hold it; False: only Main."""


READER: Capability[Reader] = Capability("reader", PermissionTier.READ_ONLY)
"""Reads files of the workspace."""
MEMORY: Capability[Memory] = Capability("memory", PermissionTier.READ_ONLY)
"""Finds records in memory."""
WEB: Capability[Web] = Capability("web", PermissionTier.READ_ONLY)
"""Reads pages, and searches the web."""
HTTP: Capability[HttpSender] = Capability("http", PermissionTier.SYSTEM)
"""Sends HTTP requests that may change something."""
IMAGES: Capability[ImageInspector] = Capability("images", PermissionTier.READ_ONLY)
"""Finds out what an image is."""
VISION: Capability[Vision] = Capability("vision", PermissionTier.READ_ONLY, for_leaves=False)
"""Asks the agent's image model about images."""
SPEECH: Capability[SpeechSynthesizer] = Capability("speech", PermissionTier.WORKSPACE)
"""Speaks texts."""
NODES: Capability[Nodes] = Capability("nodes", PermissionTier.SYSTEM)
"""Knows the machines of the runtime."""
WRITER: Capability[Writer] = Capability("writer", PermissionTier.WORKSPACE)
"""Changes files of the workspace."""
SHELL: Capability[Shell] = Capability("shell", PermissionTier.SYSTEM)
"""Runs commands."""
BROWSER: Capability[Browser] = Capability("browser", PermissionTier.SYSTEM)
"""Opens pages in the session's own browser."""
JOBS: Capability[Jobs] = Capability("jobs", PermissionTier.SYSTEM)
"""Runs commands that may go on in the background."""
CHANNEL: Capability[Channel] = Capability("channel", PermissionTier.SYSTEM)
"""Sends messages to a person."""
MEMORY_WRITER: Capability[MemoryWriter] = Capability("memory_writer", PermissionTier.WORKSPACE)
"""Adds records to memory and removes them."""
SESSIONS: Capability[Sessions] = Capability("sessions", PermissionTier.WORKSPACE)
"""Spawns children, sends to them and stops them."""
SUBTREE: Capability[Subtree] = Capability("subtree", PermissionTier.READ_ONLY, for_leaves=False)
"""Reads the state and the messages of the sessions below."""
PREVIEWS: Capability[Previews] = Capability("previews", PermissionTier.SYSTEM)
"""Publishes pages on this machine."""
CHILD_WORKSPACES: Capability[ChildWorkspaces] = Capability("child_workspaces", PermissionTier.WORKSPACE)
"""Reads and settles what children changed in workspaces of their own."""
CANVAS: Capability[Canvas] = Capability("canvas", PermissionTier.SYSTEM)
"""Shows pages and surfaces to a person."""
CRON: Capability[Cron] = Capability("cron", PermissionTier.SYSTEM, for_branches=False)
"""Looks at timed jobs and changes them."""
MCP: Capability[ServerTools] = Capability("mcp", PermissionTier.READ_ONLY)
"""Calls tools of the MCP servers that the owner configured; each has a tier of its own."""
RUNTIME: Capability[RuntimeControl] = Capability("runtime", PermissionTier.ELEVATED)
"""Looks at the runtime, changes the owner's configuration, and replaces hosts."""


_ALL: Final[tuple[Capability[Any], ...]] = (
    READER,
    MEMORY,
    WEB,
    WRITER,
    SHELL,
    BROWSER,
    JOBS,
    CHANNEL,
    MEMORY_WRITER,
    SESSIONS,
    SUBTREE,
    HTTP,
    PREVIEWS,
    IMAGES,
    VISION,
    SPEECH,
    CHILD_WORKSPACES,
    CANVAS,
    NODES,
    CRON,
    MCP,
    RUNTIME,
)


_BY_NAME: Final = {each.name: each for each in _ALL}


CAPABILITIES: Final = tuple(_BY_NAME)
"""Every capability's name."""


OBSERVING: Final = frozenset(
    each.name for each in _ALL if each.tier is PermissionTier.READ_ONLY and each.for_leaves
)
"""The capabilities of a kind that may change nothing and has no children."""


def list_capability_names(given: Iterable[str | Capability[Any]] | Capability[Any]) -> frozenset[str]:
    """Return the names of capabilities given by value or by name; a single capability needs no list."""
    if isinstance(given, str | Capability):
        given = (given,)
    return frozenset(each.name if isinstance(each, Capability) else each for each in given)


_OF_MAIN: Final = frozenset(each.name for each in _ALL)
_OF_BRANCHES: Final = frozenset(each.name for each in _ALL if each.for_branches)


def list_capabilities(kind: SessionKind) -> frozenset[str]:
    """Return the names of all handles that a kind may hold.

    Source: ADR-0004, tool availability per session kind.
    """
    if kind is SessionKind.WORKER:
        return OBSERVING
    return _OF_MAIN if kind is SessionKind.MAIN else _OF_BRANCHES


def find_highest(names: Iterable[str]) -> Capability[Any] | None:
    """Return the named capability with the highest tier; None if no capability is named."""
    found = [_BY_NAME[name] for name in sorted(names)]
    return max(found, key=lambda capability: capability.tier, default=None)
