"""The shell of an embodied session, confined here or in a container, and its jobs.

A call that was allowed as Elevated gets more than the usual handles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from sessiontree.contracts.handles.jobs import CommandRequest, ExecHost, Jobs
from sessiontree.contracts.handles.nodes import Nodes
from sessiontree.contracts.handles.ports import Reader, Writer
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.skills import Skill
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.protected import OwnPlaces
from sessiontree.runtime.host.node_shell import HostNodes, NodeCheck, NodeShell
from sessiontree.runtime.rights.session_rights import Facades, Link
from sessiontree.runtime.runner.interceptors import Interceptor
from sessiontree.runtime.transport.frames import Adopt
from sessiontree.sandbox import (
    CommandShell,
    ContainerShell,
    JobShell,
    JobTable,
    SessionJobs,
    SessionTurns,
    UnconfinedShell,
)
from sessiontree.workspace import OutsideReader, OutsideRoots, OutsideWriter, WorkspaceWriter

SessionShell: TypeAlias = "CommandShell | ContainerShell"


NOT_GIVEN = "the owner did not allow it to this agent (AgentConfig.exec_hosts)"
NOT_APPROVED = "this call was not approved for it"
UNCONFINED: Final[tuple[ExecHost, ...]] = ("host", "node")


def make_session_jobs(
    config: AgentConfig, shell: SessionShell, table: JobTable, root: Path, nodes: HostNodes
) -> tuple[SessionJobs, SessionJobs]:
    """Return the jobs of a session: for its usual calls, and for its allowed Elevated calls.

    Only the second can leave the confinement, and only where the owner and the session's rights allow it.
    """
    hosts: dict[ExecHost, Callable[[CommandRequest], JobShell]] = {"gateway": lambda request: shell}
    confined = SessionJobs(table, hosts, dict.fromkeys(UNCONFINED, NOT_APPROVED))
    may_leave = config.exec_security == "full" and config.workspace_access == "rw"
    allowed = config.exec_hosts if may_leave else frozenset()
    outside = dict(hosts)
    if "host" in allowed:
        unconfined = UnconfinedShell(root, shell)
        outside["host"] = lambda request: unconfined
    if "node" in allowed:
        outside["node"] = lambda request: NodeShell(nodes, request.node, root, shell)
    return confined, SessionJobs(table, outside, dict.fromkeys(UNCONFINED, NOT_GIVEN))


def make_node_checks(config: AgentConfig, dispatcher: Dispatcher, nodes: Nodes) -> tuple[Interceptor, ...]:
    """Return the check of a session's calls on nodes; none where its commands may not run there."""
    return (NodeCheck(dispatcher, nodes),) if "node" in config.exec_hosts else ()


def make_session_shell(
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
            lambda protected: link.get_services().ensure_container(link.grant, protected),
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
        reader: Reads the workspace, and what else the session may read.
        outside: The directories outside the workspace that the owner allows.
        facades: Those of the session.
        jobs: Runs commands also without confinement; None = the session runs none.
    """

    __slots__ = ("_facades", "_jobs", "_outside", "_reader", "_writer")

    def __init__(
        self,
        writer: WorkspaceWriter,
        reader: Reader,
        outside: OutsideRoots,
        facades: Facades,
        jobs: Jobs | None,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._outside = outside
        self._facades = facades
        self._jobs = jobs

    def find_places(self, path: str) -> frozenset[str]:
        """Return the names of the protected places that a path leads to now; empty = none."""
        return self._writer.find_places(path) | self._outside.find_protected(path)

    def find_outside(self, path: str) -> frozenset[str]:
        """Return the name of the allowed place outside the workspace that a path leads to; empty = none."""
        return self._outside.place_at(path)

    def reader(self, outside: frozenset[str]) -> Reader:
        """Return a reader for one allowed call, which also reads in the directories of these places."""
        return self._facades.reader(OutsideReader(self._reader, self._outside.lead_to(outside)))

    def writer(self, places: frozenset[str] | None, outside: frozenset[str]) -> Writer:
        """Return a writer for one allowed call.

        Args:
            places: The protected places that it may change; None = all of the workspace.
            outside: The places outside the workspace whose directories it may also change.
        """
        usual = self._writer.allow_places(places)
        if not outside:
            return self._facades.writer(usual)
        return self._facades.writer(OutsideWriter(usual, self._outside.lead_to(outside).allow_places(places)))

    def jobs(self) -> Jobs | None:
        """Return the jobs of one allowed Elevated call, which may leave the confinement; None = none."""
        return None if self._jobs is None else self._facades.jobs(self._jobs)
