"""Building a session's rights: the one place that decides which handles a kind of session holds.

Source: ADR-0004, "Enforcement mechanism": rights are what a context contains.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.context import SessionRights
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.ports import (
    Channel,
    Memory,
    MemoryWriter,
    Reader,
    Sessions,
    Shell,
    Status,
    Web,
    Writer,
)


@dataclass(frozen=True, slots=True)
class Handles:
    """Everything a host could hand out; ``build_rights`` picks what a kind may hold."""

    reader: Reader
    writer: Writer
    shell: Shell
    channel: Channel | None
    """None where no session at or above this one has one."""
    sessions: Sessions
    status: Status
    memory: Memory
    memory_writer: MemoryWriter
    web: Web | None
    """None where the owner of the tree allows none."""


def build_rights(
    session_id: str,
    kind: SessionKind,
    workspace: Path,
    config: AgentConfig,
    handles: Handles,
    tree_id: str = "",
) -> SessionRights:
    """Return the rights of one session. A Worker gets nothing that could change anything.

    Nobody gets a writer whose agent, or any session above it, has the workspace read-only.
    """
    observing = SessionRights(
        session_id=session_id,
        agent_id=config.agent_id,
        kind=kind,
        workspace_root=workspace,
        config=config,
        status=handles.status,
        reader=handles.reader,
        web=handles.web,
        memory=handles.memory,
        tree_id=tree_id,
    )
    if kind is SessionKind.WORKER:
        return observing
    return SessionRights(
        session_id=session_id,
        agent_id=config.agent_id,
        kind=kind,
        workspace_root=workspace,
        config=config,
        status=handles.status,
        reader=handles.reader,
        web=handles.web,
        memory=handles.memory,
        memory_writer=handles.memory_writer,
        writer=handles.writer if config.workspace_access == "rw" else None,
        shell=handles.shell,
        channel=handles.channel,
        sessions=handles.sessions,
        tree_id=tree_id,
    )
