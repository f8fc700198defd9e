"""Contexts to run one tool in, and handles that write down what was asked of them.

::

    ctx = make_context(tmp_path, SessionKind.WORKER)
    result = await call_tool(MyTool(), ctx, path="notes.md")

The reader and writer are the real ones; a context holds only what its kind may hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pydantic

from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.capabilities import (
    CHANNEL,
    MEMORY,
    MEMORY_WRITER,
    READER,
    SESSIONS,
    SHELL,
    WEB,
    WRITER,
    Capability,
    capabilities_of,
)
from sessiontree.contracts.context import CallSignals, SessionRights, ToolContext
from sessiontree.contracts.errors import SpawnRefused, ValidationError
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.ports import (
    Channel,
    Memory,
    MemoryWriter,
    Reader,
    SessionReport,
    Sessions,
    Shell,
    SpawnRequest,
    Status,
    Web,
    Writer,
)
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tool import RawTool, Tool, declared_by
from sessiontree.contracts.usage import Usage
from sessiontree.workspace import WorkspaceReader, WorkspaceWriter

H = TypeVar("H")

SESSION_IDS: Final = {
    SessionKind.MAIN: "main",
    SessionKind.BRANCH: "main/b1",
    SessionKind.WORKER: "main/w1",
}
"""Which session a context belongs to, by kind."""


@dataclass(slots=True)
class RecordingChannel:
    """A channel nobody reads; keeps what was sent."""

    sent: list[str] = field(default_factory=list)

    async def send(self, text: str) -> None:
        """Keep the text."""
        self.sent.append(text)


@dataclass(slots=True)
class RecordingSessions:
    """Starts no session; keeps each request and answers with the id its child would have.

    Args:
        parent: Whose children are asked for.
        refusal: Raised instead, where given.
    """

    parent: str = "main"
    refusal: SpawnRefused | None = None
    spawned: dict[str, SpawnRequest] = field(default_factory=dict)
    """Key to request, in the order they came; a repeated key adds none."""

    async def spawn(self, request: SpawnRequest, *, key: str) -> str:
        """Return ``parent/b1``, ``parent/w2`` and so on; the same for the same key.

        Raises:
            SpawnRefused: a refusal was given.
        """
        if self.refusal is not None:
            raise self.refusal
        kept = self.spawned.setdefault(key, request)
        number = list(self.spawned).index(key) + 1
        return f"{self.parent}/{str(kept.kind)[0]}{number}"


@dataclass(frozen=True, slots=True)
class FixedStatus:
    """Always tells the same."""

    fixed: SessionReport

    async def report(self) -> SessionReport:
        """Return the report it was made with."""
        return self.fixed


class ByKind:
    """Stands for a handle nobody gave: the session's kind decides."""


BY_KIND: Final = ByKind()


def make_context(  # noqa: PLR0913 - one keyword per handle, as a context has them
    root: Path,
    kind: SessionKind = SessionKind.MAIN,
    *,
    reader: Reader | ByKind | None = BY_KIND,
    writer: Writer | ByKind | None = BY_KIND,
    channel: Channel | ByKind | None = BY_KIND,
    sessions: Sessions | ByKind | None = BY_KIND,
    memory: Memory | None = None,
    memory_writer: MemoryWriter | None = None,
    web: Web | None = None,
    shell: Shell | None = None,
    status: Status | None = None,
    config: AgentConfig | None = None,
    call_id: str = "call-1",
    tree_id: str = "t-1",
    signals: CallSignals | None = None,
) -> ToolContext:
    """Return the context of one call in a session of the given kind.

    Args:
        root: The workspace, an existing directory.
        kind: Decides the session's id, and which of the first four handles it has where none is given.
        reader: Left out, reads beneath ``root``; None takes it away.
        writer: Left out, writes beneath ``root``; None takes it away.
        channel: Left out, a :class:`RecordingChannel`; None takes it away.
        sessions: Left out, a :class:`RecordingSessions`; None takes it away.
        memory: Searches memory.
        memory_writer: Adds to memory.
        web: Reads the web.
        shell: Runs commands.
        status: Left out, a :class:`FixedStatus` of an active session that used nothing.
        config: The agent's configuration; its id is the context's agent.
        call_id: Names the call.
        tree_id: Names the tree.
        signals: The call's own, for a test that cancels it or watches its progress; left out, the call has
            a minute.

    Raises:
        ValueError: a handle was given that this kind never holds.
    """
    session_id = SESSION_IDS[kind]
    config = config or AgentConfig()
    rights = SessionRights(
        session_id=session_id,
        agent_id=config.agent_id,
        kind=kind,
        workspace_root=root,
        config=config,
        status=status or FixedStatus(fresh_report(kind)),
        reader=_handle(READER, kind, reader, lambda: WorkspaceReader(root)),
        memory=_handle(MEMORY, kind, memory),
        web=_handle(WEB, kind, web),
        writer=_handle(WRITER, kind, writer, lambda: WorkspaceWriter(root)),
        shell=_handle(SHELL, kind, shell),
        channel=_handle(CHANNEL, kind, channel, RecordingChannel),
        memory_writer=_handle(MEMORY_WRITER, kind, memory_writer),
        sessions=_handle(SESSIONS, kind, sessions, lambda: RecordingSessions(session_id)),
        tree_id=tree_id,
    )
    return ToolContext(rights, call_id, signals or CallSignals(time.monotonic() + 60))


async def call_tool(tool: Tool[Any], ctx: ToolContext, /, **arguments: Any) -> ToolResult:
    """Validate the arguments against the tool's own model and run it.

    No name is normalised, no policy asked and no result cut: this is the tool alone. It is given of the
    context what its class declares, as in a tree.

    Raises:
        ValidationError: an argument does not fit; names the first that does not.
        ToolError: what the tool raised.
    """
    rights = ctx._rights.narrowed(tool.name, declared_by(tool))  # noqa: SLF001 - what a dispatcher does
    ctx = ToolContext(rights, ctx.call_id, ctx._signals)  # noqa: SLF001 - as above
    if isinstance(tool, RawTool):
        return await tool.execute(arguments, ctx)
    try:
        params = tool.Params.model_validate(arguments)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        pointer = "".join(f"/{part}" for part in first["loc"])
        raise ValidationError(first["msg"], pointer or None) from error
    return await tool.execute(params, ctx)


def fresh_report(kind: SessionKind) -> SessionReport:
    """Return the standing of a session that has done nothing yet."""
    return SessionReport(
        session_id=SESSION_IDS[kind],
        kind=kind,
        status=SessionStatus.ACTIVE,
        depth=SESSION_IDS[kind].count("/"),
        model="scripted",
        turns=0,
        usage=Usage(),
        children=(),
        pending_approvals=0,
        budget_left={},
        expires_at_ms=None,
        confinement="structural",
        approval_mode="always",
        system_tier="allow",
        exec_security="full" if SHELL.name in capabilities_of(kind) else None,
    )


def _handle(
    capability: Capability[H],
    kind: SessionKind,
    given: H | ByKind | None,
    make: Callable[[], H] | None = None,
) -> H | None:
    may = capability.name in capabilities_of(kind)
    if isinstance(given, ByKind):
        return make() if may and make is not None else None
    if given is not None and not may:
        raise ValueError(f"a {kind} never holds a {capability.name}")
    return given
