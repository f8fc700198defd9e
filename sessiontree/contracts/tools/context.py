"""The context of a tool call: the session's rights, and the call's signals."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sessiontree.contracts.errors import PermissionDenied
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
    Status,
    Subtree,
    UpdateCallback,
    Web,
    Writer,
)
from sessiontree.contracts.handles.previews import Previews
from sessiontree.contracts.handles.runtime_control import RuntimeControl
from sessiontree.contracts.handles.speech import SpeechSynthesizer
from sessiontree.contracts.handles.vision import Vision
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.canvas import Canvas
from sessiontree.contracts.recorded.capabilities import CAPABILITIES, Capability
from sessiontree.contracts.recorded.child_workspaces import ChildWorkspaces
from sessiontree.contracts.recorded.cron import Cron
from sessiontree.contracts.recorded.tool_inputs import AnsweredInput
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.short_values import shorten_progress

H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class SessionRights:
    """Everything that a session's tools can reach. A handle that is None does not exist for the session.

    The rights are built once per adoption, by kind (``runtime/rights/session_rights.py``), and are never
    widened. Each tool gets only the handles that its class declares.
    """

    session_id: str
    agent_id: str
    kind: SessionKind
    workspace_root: Path
    config: AgentConfig
    status: Status
    reader: Reader | None = None
    memory: Memory | None = None
    web: Web | None = None
    writer: Writer | None = None
    shell: Shell | None = None
    browser: Browser | None = None
    jobs: Jobs | None = None
    channel: Channel | None = None
    memory_writer: MemoryWriter | None = None
    sessions: Sessions | None = None
    subtree: Subtree | None = None
    http: HttpSender | None = None
    previews: Previews | None = None
    images: ImageInspector | None = None
    vision: Vision | None = None
    speech: SpeechSynthesizer | None = None
    child_workspaces: ChildWorkspaces | None = None
    canvas: Canvas | None = None
    nodes: Nodes | None = None
    cron: Cron | None = None
    mcp: ServerTools | None = None
    runtime: RuntimeControl | None = None
    tree_id: str = ""
    tool: str = ""
    """The tool to which the rights are narrowed; empty = the session's own rights."""
    declared: frozenset[str] = frozenset(CAPABILITIES)
    """Names of the capabilities that the tool declares."""
    denied_in: str = ""
    """Where it is said that its System calls are refused, as an error says it; empty = nowhere."""

    def narrowed(self, tool: str, declared: Collection[str]) -> SessionRights:
        """Return the rights of one tool: only the handles that it declares."""
        handles: dict[str, Any] = {name: getattr(self, name) for name in CAPABILITIES if name in declared}
        return SessionRights(
            self.session_id,
            self.agent_id,
            self.kind,
            self.workspace_root,
            self.config,
            self.status,
            tree_id=self.tree_id,
            tool=tool,
            declared=self.declared.intersection(declared),
            denied_in=self.denied_in,
            **handles,
        )


class ReportCallback(Protocol):
    """Receives the progress of a running call."""

    def __call__(self, progress: JsonValue, images: tuple[ImageContent, ...] = ()) -> None:
        """Take a ``progress`` value, and the ``images`` that come with it."""
        ...


class CallSignals:
    """The state of one attempt at a call: its deadline, cancellation and progress."""

    __slots__ = ("attempt", "cancelled", "deadline", "on_images", "on_update", "over", "partial")

    def __init__(self, deadline: float, on_update: UpdateCallback | None = None, *, attempt: int = 1) -> None:
        """Take the monotonic deadline, the progress callback, and the attempt's number, from 1."""
        self.deadline = deadline
        self.cancelled = False
        self.on_update = on_update
        self.on_images: ReportCallback | None = None
        """Receives reports with images, in place of ``on_update``."""
        self.attempt = attempt
        self.partial: JsonValue = None
        """The most recent progress report."""
        self.over = False
        """Whether the attempt has ended; later progress reports are dropped."""


class CallHandles:
    """The handles of a tool call: what its tool declares and its session holds. Others are None."""

    __slots__ = ("_rights",)

    _rights: SessionRights

    @property
    def reader(self) -> Reader | None:
        """Reads beneath the workspace; None if the tool does not declare it."""
        return self._rights.reader

    @property
    def memory(self) -> Memory | None:
        """Searches memory; None if the tool does not declare it."""
        return self._rights.memory

    @property
    def web(self) -> Web | None:
        """Reads the web; None if the owner does not allow it, or the tool does not declare it."""
        return self._rights.web

    @property
    def writer(self) -> Writer | None:
        """Writes beneath the workspace; None for a Worker, or if the tool does not declare it."""
        return self._rights.writer

    @property
    def shell(self) -> Shell | None:
        """Runs confined commands; None for a Worker, or if the tool does not declare it."""
        return self._rights.shell

    @property
    def browser(self) -> Browser | None:
        """Opens pages; None for a Worker, where none is installed, or if the tool does not declare it."""
        return self._rights.browser

    @property
    def jobs(self) -> Jobs | None:
        """Runs commands in the background; None for a Worker, or if the tool does not declare it."""
        return self._rights.jobs

    @property
    def channel(self) -> Channel | None:
        """Sends messages to the person.

        None for a Worker, if neither this session nor one above it has a channel, or if the tool does not
        declare it.
        """
        return self._rights.channel

    @property
    def memory_writer(self) -> MemoryWriter | None:
        """Adds to memory; None for a Worker, or if the tool does not declare it."""
        return self._rights.memory_writer

    @property
    def sessions(self) -> Sessions | None:
        """Spawns children and stops them; None for a Worker, or if the tool does not declare it."""
        return self._rights.sessions

    @property
    def subtree(self) -> Subtree | None:
        """Looks at the sessions below; None for a Worker, or if the tool does not declare it."""
        return self._rights.subtree

    @property
    def http(self) -> HttpSender | None:
        """Sends HTTP requests; None for a Worker, without the web, or if the tool does not declare it."""
        return self._rights.http

    @property
    def previews(self) -> Previews | None:
        """Publishes pages on this machine; None for a Worker, or if the tool does not declare it."""
        return self._rights.previews

    @property
    def canvas(self) -> Canvas | None:
        """Shows pages and surfaces to the person.

        None for a Worker, if neither this session nor one above it has a channel, or if the tool does not
        declare it.
        """
        return self._rights.canvas

    @property
    def images(self) -> ImageInspector | None:
        """Finds out what an image is; None if the tool does not declare it."""
        return self._rights.images

    @property
    def vision(self) -> Vision | None:
        """Asks a model about images.

        None for a Worker, for an agent without ``image_model``, or if the tool does not declare it.
        """
        return self._rights.vision

    @property
    def speech(self) -> SpeechSynthesizer | None:
        """Speaks texts; None for a Worker, or if the tool does not declare it."""
        return self._rights.speech

    @property
    def child_workspaces(self) -> ChildWorkspaces | None:
        """Reads and settles what children changed; None for a Worker, or if the tool does not declare it."""
        return self._rights.child_workspaces

    @property
    def nodes(self) -> Nodes | None:
        """Knows the machines of the runtime; None for a Worker, or if the tool does not declare it."""
        return self._rights.nodes

    @property
    def cron(self) -> Cron | None:
        """The tree's timed jobs; None except for Main, or if the tool does not declare it."""
        return self._rights.cron

    @property
    def mcp(self) -> ServerTools | None:
        """Calls tools of MCP servers; None if the tool does not declare it."""
        return self._rights.mcp

    @property
    def runtime(self) -> RuntimeControl | None:
        """The runtime itself; None for a Worker, or if the tool does not declare it."""
        return self._rights.runtime

    def require(self, capability: Capability[H]) -> H:
        """Return the handle of a capability.

        Raises:
            PermissionDenied: the tool does not declare the capability, or the session has no such handle.
        """
        rights, name = self._rights, capability.name
        if name not in rights.declared:
            reason = f"tool {rights.tool!r} does not declare capability {name!r}; add it to capabilities"
            raise PermissionDenied(capability.tier, reason)
        handle: H | None = getattr(rights, name)
        if handle is None:
            reason = f"session {rights.session_id!r} is a {rights.kind} and holds no {name}"
            raise PermissionDenied(capability.tier, reason)
        return handle


class ToolContext(CallHandles):
    """The context of one tool call, with those handles of the session that the tool's class declares.

    ``call_id`` is unique among the calls of all trees and stays the same when the call is repeated after a
    crash, so it can serve as an idempotency key.
    """

    __slots__ = ("_signals", "answered", "call_id")

    def __init__(
        self,
        rights: SessionRights,
        call_id: str,
        signals: CallSignals,
        answered: AnsweredInput | None = None,
    ) -> None:
        self._rights = rights
        self._signals = signals
        self.call_id = call_id
        self.answered = answered
        """What a person answered since the tool raised InputNeeded; None = it has not raised it."""

    @property
    def tree_id(self) -> str:
        """Id of the session's tree."""
        return self._rights.tree_id

    @property
    def session_id(self) -> str:
        """Path of the session, such as ``main/b2/w7``."""
        return self._rights.session_id

    @property
    def agent_id(self) -> str:
        """Name of the session's agent."""
        return self._rights.agent_id

    @property
    def kind(self) -> SessionKind:
        """Kind of the session."""
        return self._rights.kind

    @property
    def workspace_root(self) -> Path:
        """The root directory of all file tools."""
        return self._rights.workspace_root

    @property
    def config(self) -> AgentConfig:
        """The agent's configuration."""
        return self._rights.config

    @property
    def status(self) -> Status:
        """The session's own status."""
        return self._rights.status

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled or its deadline passed; long loops in threads should check it."""
        return self._signals.cancelled or time.monotonic() > self._signals.deadline

    @property
    def deadline(self) -> float:
        """When the call times out, in seconds on the clock of ``time.monotonic``."""
        return self._signals.deadline

    @property
    def attempt(self) -> int:
        """Number of this attempt at the call, from 1; greater than 1 only if the tool declares ``retry``."""
        return self._signals.attempt

    def update(self, progress: JsonValue, images: Sequence[ImageContent] = ()) -> None:
        """Report progress to watchers; lossy, callable from any thread.

        ``progress`` is the call's result so far, at most about 8,000 characters. If the call is cut short,
        its result has the most recent report as ``partial``, without images.

        ``images`` are shown to watchers, and to no model: at most 4, fitted as those of a result. While one
        update's images are being fitted, only the newest of the updates behind it keeps its images. A note
        says how many were left out.
        """
        signals = self._signals
        # A thread of the call may go on after its end.
        if signals.over:
            return
        # A copy, because the tool may go on changing the value.
        signals.partial = shorten_progress(progress)
        if images and signals.on_images is not None:
            pictures = tuple(
                each for each in images if isinstance(each, ImageContent) and isinstance(each.data, str)
            )
            signals.on_images(signals.partial, pictures)
        elif signals.on_update is not None:
            signals.on_update(signals.partial)
