"""The shell of an embodied session, confined here or in a container, and its jobs.

A call that was allowed as Elevated gets more than the usual handles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.jobs import CommandRequest, ExecHost, Jobs
from sessiontree.contracts.ports import Writer
from sessiontree.contracts.skills import Skill
from sessiontree.protected import OwnPlaces
from sessiontree.runtime.frames import Adopt
from sessiontree.runtime.session_rights import Facades, Link
from sessiontree.sandbox import (
    CommandShell,
    ContainerShell,
    JobShell,
    JobTable,
    SessionJobs,
    SessionTurns,
    UnconfinedShell,
)
from sessiontree.workspace import WorkspaceWriter

SessionShell: TypeAlias = "CommandShell | ContainerShell"


NOT_GIVEN = "the owner did not allow it to this agent (AgentConfig.exec_hosts)"
NOT_APPROVED = "this call was not approved for it"
NO_NODE = "commands on other nodes are not supported; run it on host 'host' of a session there"


def session_jobs(
    config: AgentConfig, shell: SessionShell, table: JobTable, root: Path
) -> tuple[SessionJobs, SessionJobs]:
    """Return the jobs of a session: for its usual calls, and for its allowed Elevated calls.

    Only the second can leave the confinement, and only where the owner and the session's rights allow it.
    """
    hosts: dict[ExecHost, Callable[[CommandRequest], JobShell]] = {"gateway": lambda request: shell}
    confined = SessionJobs(table, hosts, {"host": NOT_APPROVED, "node": NO_NODE})
    may_leave = config.exec_security == "full" and config.workspace_access == "rw"
    if not may_leave or "host" not in config.exec_hosts:
        return confined, SessionJobs(table, hosts, {"host": NOT_GIVEN, "node": NO_NODE})
    unconfined = UnconfinedShell(root, shell)
    return confined, SessionJobs(table, {**hosts, "host": lambda request: unconfined}, {"node": NO_NODE})


def session_shell(
    adopt: Adopt,
    writer: WorkspaceWriter,
    link: Link,
    turns: SessionTurns,
    *,
    hidden: tuple[Path, ...],
    own: OwnPlaces,
    skills: Mapping[str, Skill],
) -> SessionShell:
    """Return the shell of a session.

    Args:
        adopt: Which session, and its agent.
        writer: Changes its workspace.
        link: Leads to the supervisor, which keeps containers.
        turns: The turns of its commands.
        hidden: Places that no confined command sees.
        own: Where processes of the runtime import from.
        skills: What confined commands see of the owner's skills.
    """
    root = Path(writer.root)
    config = adopt.config
    if config.sandbox is not None:
        return ContainerShell(
            config.sandbox,
            root,
            lambda protected: link.services().container(link.grant, protected),
            (writer.reader(), writer),
            own=own,
            access=config.workspace_access,
            cleanup_s=config.exec_cleanup_s,
            turns=turns,
        )
    return CommandShell(
        root,
        hidden=hidden,
        own=own,
        security=config.exec_security,
        access=config.workspace_access,
        cleanup_s=config.exec_cleanup_s,
        skills=skills,
        turns=turns,
    )


class AllowedHandles:
    """The protected places of one session's workspace, and what its allowed calls get.

    Args:
        writer: Changes the workspace.
        facades: Those of the session.
        jobs: Runs commands also without confinement; None = the session runs none.
    """

    __slots__ = ("_facades", "_jobs", "_writer")

    def __init__(self, writer: WorkspaceWriter, facades: Facades, jobs: Jobs | None) -> None:
        self._writer = writer
        self._facades = facades
        self._jobs = jobs

    def places_at(self, path: str) -> frozenset[str]:
        """Return the names of the protected places that a path leads to now; empty = none."""
        return self._writer.places_at(path)

    def writer(self, places: frozenset[str] | None) -> Writer:
        """Return a writer for one allowed call, which may change these protected places; None = all."""
        return self._facades.writer(self._writer.allowing(places))

    def jobs(self) -> Jobs | None:
        """Return the jobs of one allowed Elevated call, which may leave the confinement; None = none."""
        return None if self._jobs is None else self._facades.jobs(self._jobs)
