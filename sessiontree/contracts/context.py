"""What a tool is given when it runs: the session's rights, and this call's own handles."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.capabilities import CAPABILITIES, Capability
from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.event_display import short_progress
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.ports import (
    Channel,
    Memory,
    MemoryWriter,
    Reader,
    Sessions,
    Shell,
    Status,
    UpdateCallback,
    Web,
    Writer,
)

H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class SessionRights:
    """Everything a session's tools can reach. What is None here does not exist for the session.

    Built once per adoption by kind (``runtime/session_rights.py``); never widened afterwards. A tool is
    given them narrowed to what its class declares.
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
    channel: Channel | None = None
    memory_writer: MemoryWriter | None = None
    sessions: Sessions | None = None
    tree_id: str = ""
    tool: str = ""
    """The tool they were narrowed to; empty = they are the session's own."""
    declared: frozenset[str] = frozenset(CAPABILITIES)
    """Names of the capabilities that the tool declares."""

    def narrowed(self, tool: str, declared: Collection[str]) -> SessionRights:
        """Return what a tool is given: of these handles those it declares, and no other."""
        gone: dict[str, Any] = dict.fromkeys(name for name in CAPABILITIES if name not in declared)
        return replace(self, tool=tool, declared=self.declared.intersection(declared), **gone)


class CallSignals:
    """The moving part of one attempt at a call: its deadline, whether it was cancelled, and its progress."""

    __slots__ = ("attempt", "cancelled", "deadline", "on_update", "over", "partial")

    def __init__(self, deadline: float, on_update: UpdateCallback | None = None, *, attempt: int = 1) -> None:
        """Keep the monotonic deadline, the progress callback, and which attempt it is, from 1."""
        self.deadline = deadline
        self.cancelled = False
        self.on_update = on_update
        self.attempt = attempt
        self.partial: JsonValue = None
        """What was reported last."""
        self.over = False
        """Whether the attempt has its outcome: what is reported from then on nobody is shown."""


class ToolContext:
    """The context of one tool call: of the session's handles those that the tool's class declares.

    ``call_id`` names the call among those of all trees, and stays the same when the call is repeated after a
    crash: it can be given away as an idempotency key. (In a tree of a release before nonces it names the call
    within the tree alone; see ``tree_id``.)
    """

    __slots__ = ("_rights", "_signals", "call_id")

    def __init__(self, rights: SessionRights, call_id: str, signals: CallSignals) -> None:
        """Join the rights of a session, narrowed to the call's tool, with the call's signals."""
        self._rights = rights
        self._signals = signals
        self.call_id = call_id

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
        """The directory all file tools work beneath."""
        return self._rights.workspace_root

    @property
    def config(self) -> AgentConfig:
        """The agent's configuration."""
        return self._rights.config

    @property
    def status(self) -> Status:
        """The session's own standing."""
        return self._rights.status

    @property
    def reader(self) -> Reader | None:
        """Reads beneath the workspace; None where the tool does not declare it."""
        return self._rights.reader

    @property
    def memory(self) -> Memory | None:
        """Searches memory; None where the tool does not declare it."""
        return self._rights.memory

    @property
    def web(self) -> Web | None:
        """Reads the web; None where the owner allows none, or the tool does not declare it."""
        return self._rights.web

    @property
    def writer(self) -> Writer | None:
        """Writes beneath the workspace; None for a Worker, or where the tool does not declare it."""
        return self._rights.writer

    @property
    def shell(self) -> Shell | None:
        """Runs confined commands; None for a Worker, or where the tool does not declare it."""
        return self._rights.shell

    @property
    def channel(self) -> Channel | None:
        """Says something to the human.

        None for a Worker, where no session at or above this one has a channel, or where the tool does not
        declare it.
        """
        return self._rights.channel

    @property
    def memory_writer(self) -> MemoryWriter | None:
        """Adds to memory; None for a Worker, or where the tool does not declare it."""
        return self._rights.memory_writer

    @property
    def sessions(self) -> Sessions | None:
        """Spawns children; None for a Worker, or where the tool does not declare it."""
        return self._rights.sessions

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled or its deadline passed; long loops in threads look at it."""
        return self._signals.cancelled or time.monotonic() > self._signals.deadline

    @property
    def deadline(self) -> float:
        """When the call times out, on ``time.monotonic``'s scale, in seconds."""
        return self._signals.deadline

    @property
    def attempt(self) -> int:
        """Which attempt at the call this is, from 1; more than 1 only where the tool declares ``retry``."""
        return self._signals.attempt

    def update(self, progress: JsonValue) -> None:
        """Report progress to whoever watches; lossy, callable from any thread.

        It is the call's result so far: of about 8,000 characters at most, shown to those who watch, and of a
        call that is cut short the last one stands in its result as ``partial``.
        """
        signals = self._signals
        if signals.over:
            return
        signals.partial = short_progress(progress)
        if signals.on_update is not None:
            signals.on_update(signals.partial)

    def require(self, capability: Capability[H]) -> H:
        """Return the handle behind a capability.

        Raises:
            PermissionDenied: the tool does not declare it, or the session has none.
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
