"""The containers of a supervisor's trees: started with the first command, ended with their session or tree.

The supervisor keeps them, because it lives as long as its trees: sessions leave their hosts and come back,
and find the same container. If the supervisor is killed, its containers end by themselves; what is left of
them in the engine is found by its label and removed before the next one starts for the same journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from sessiontree.contracts.errors import ConfinementUnavailable, PermissionDenied
from sessiontree.contracts.kinds import PermissionTier, WorkspaceAccess
from sessiontree.contracts.settings.sandbox_spec import SandboxSpec
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.runtime.scheduling.live_session import Controller, LiveSession
from sessiontree.sandbox.containers.container import Container, remove_containers
from sessiontree.sandbox.containers.engine import LABEL, TREE_LABEL

LABEL_CHARS: Final = 16
_UNMOUNTABLE: Final = frozenset(":,\0\n")


class _Place(NamedTuple):
    """Whose container it is: equal places share one."""

    tree_id: str
    session: str
    """Empty = the whole tree's."""
    made_of: str
    """The spec, and what the container may do to the workspace."""


class Containers:
    """Starts and ends the containers of one supervisor.

    Args:
        journal_dir: Directory of its journal, whose label its containers have.
    """

    def __init__(self, journal_dir: Path) -> None:
        self._label = make_journal_label(journal_dir)
        self._starting: dict[_Place, asyncio.Task[Container]] = {}
        self._swept: dict[tuple[str, str], asyncio.Task[int]] = {}
        """By engine, the removal of what an earlier supervisor left."""
        self._ending: set[asyncio.Task[None]] = set()

    async def name_for(self, live: LiveSession, protected: Sequence[str]) -> str:
        """Return the name of a session's container; start it if it is not running.

        Args:
            live: The session.
            protected: Paths in its workspace, relative to it, that the container sees read-only.

        Raises:
            ConfinementUnavailable: the session's agent has none, or the engine can't start it.
            ConfinementUnavailable: it ended since it was asked for last; the next call starts another one.
            PermissionDenied: the session may run only programs that are known to be harmless.
        """
        spec, access = self._require_spec(live)
        controller = live.controller
        row = controller.state.sessions[live.session].spec
        session = live.session if spec.scope == "session" or row.workspace else ""
        place = _Place(controller.config.tree_id, session, f"{access} {spec.model_dump_json()}")
        starting = self._starting.get(place)
        if starting is None:
            workspace = Path(controller.locate_workspace(row))
            starting = asyncio.create_task(self._start(place, spec, workspace, access, tuple(protected)))
            self._starting[place] = starting
        try:
            # Race: several commands may wait for one start; the end of one must not cancel it for the others.
            container = await asyncio.shield(starting)
        except BaseException:
            # Race: another command may have begun a new start meanwhile, which stays.
            if starting.done() and self._starting.get(place) is starting:
                del self._starting[place]  # the next command tries again
            raise
        if container.lost:
            if self._starting.get(place) is starting:
                del self._starting[place]
            raise ConfinementUnavailable(
                f"the container of this session's commands was lost ({container.lost})",
                "what commands changed outside the workspace is gone; the next one gets a new container",
            )
        return container.name

    def _require_spec(self, live: LiveSession) -> tuple[SandboxSpec, WorkspaceAccess]:
        controller = live.controller
        row = controller.state.sessions[live.session].spec
        spec = controller.get_agent_config(row.agent).sandbox
        if spec is None:
            raise ConfinementUnavailable(
                f"agent {row.agent!r} has no container", "give it AgentSpec(sandbox=SandboxSpec(…))"
            )
        if row.exec_security != "full":
            raise PermissionDenied(
                PermissionTier.SYSTEM,
                f"this session's exec security is {row.exec_security!r}, and programs of a container are not "
                "known to be harmless: only 'full' runs commands there",
            )
        node = "" if live.link is None else live.link.transport.node
        if node:
            raise ConfinementUnavailable(
                f"the session runs on node {node}, and its container would be on its supervisor's node",
                "keep sessions with a container on that node, or give each node a shard",
            )
        return spec, "ro" if "ro" in (row.workspace_access, spec.workspace) else "rw"

    async def _start(
        self,
        place: _Place,
        spec: SandboxSpec,
        workspace: Path,
        access: WorkspaceAccess,
        protected: tuple[str, ...],
    ) -> Container:
        await self._sweep(spec)
        container = Container(
            spec,
            f"sessiontree-{place.tree_id}-{secrets.token_hex(4)}",
            {LABEL: self._label, TREE_LABEL: place.tree_id},
            () if spec.files == "copy" else _list_mounts(spec, workspace, access, protected),
        )
        await container.start()
        return container

    async def _sweep(self, spec: SandboxSpec) -> None:
        """Remove what an earlier supervisor of this journal left in the engine, once for each engine."""
        engine = spec.engine, spec.program
        if engine not in self._swept:
            self._swept[engine] = asyncio.create_task(remove_containers(spec, {LABEL: self._label}))
        try:
            # Race: several containers may be the first; none starts before the rest of earlier ones is gone.
            await asyncio.shield(self._swept[engine])
        except ConfinementUnavailable:
            self._swept.pop(engine, None)
            raise

    def on_session_over(self, controller: Controller, session: str) -> None:
        """End the containers of a session that has ended, and those of the tree with its Main.

        Each is counted among the processes that were ended when the session left.
        """
        tree_id = controller.config.tree_id
        for place in [each for each in self._starting if each.tree_id == tree_id]:
            if place.session == session or session == MAIN:
                controller.departures.begin(session)
                self._end_later(place, controller, session)

    def on_tree_closed(self, tree_id: str) -> None:
        """End the containers of a tree that is not open here any more."""
        for place in [each for each in self._starting if each.tree_id == tree_id]:
            self._end_later(place, None, "")

    async def close(self) -> None:
        """End all containers; returns when they are gone."""
        for place in list(self._starting):
            self._end_later(place, None, "")
        while self._ending:
            await asyncio.wait(self._ending)

    def _end_later(self, place: _Place, controller: Controller | None, session: str) -> None:
        ending = asyncio.create_task(self._end(self._starting.pop(place), controller, session))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _end(
        self, starting: asyncio.Task[Container], controller: Controller | None, session: str
    ) -> None:
        ended = 0
        with contextlib.suppress(ConfinementUnavailable):  # it was never started
            container = await starting
            ended = 0 if container.lost else 1
            await container.close()
        if controller is not None:
            controller.departures.end(session, ended)


def make_journal_label(journal_dir: Path) -> str:
    """Return what the label of a journal's containers says: it names the directory, and does not show it."""
    return hashlib.sha256(os.fsencode(journal_dir.resolve())).hexdigest()[:LABEL_CHARS]


def _list_mounts(
    spec: SandboxSpec, workspace: Path, access: WorkspaceAccess, protected: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Return the workspace as a container mounts it, and its protected places over it.

    Raises:
        ConfinementUnavailable: a path has a character that divides the words of a mount.
    """
    root = str(workspace.resolve())
    mounts: list[tuple[str, str, str]] = [(root, spec.workdir, access)]
    if access == "rw":
        mounts += [(f"{root}/{path}", f"{spec.workdir}/{path}", "ro") for path in protected]
    for source, _, _ in mounts:
        if _UNMOUNTABLE & set(source):
            raise ConfinementUnavailable(
                f"a container can't mount {source!r}: the path has ':', ',' or a line break",
                "choose another workspace, or SandboxSpec(files='copy')",
            )
    return mounts
