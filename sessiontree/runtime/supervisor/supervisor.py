"""The supervisor: the open trees, their journal and their hosts. Nothing else writes them.

Hosts reach it through ``host_requests.py``, the program and other processes through ``local_supervisor.py``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sessiontree.contracts.errors import (
    ConfigError,
    JournalError,
    SessionClosed,
    SessionNotFound,
    SessionTreeError,
    TreeNotFound,
)
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.handles.runtime_control import RuntimeStatus
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.codec import pack
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.journal.journal import Journal
from sessiontree.mcp.server_pool import ServerPool
from sessiontree.runtime.gateway.model_gateway import Gateway
from sessiontree.runtime.host.host_process import measure_resident_bytes
from sessiontree.runtime.memory.memory_api import (
    Ended,
    MemoryPort,
    MemoryRight,
    ScopeAnswer,
    Whose,
    make_end_notice,
    make_memory_scope,
)
from sessiontree.runtime.replay.stored_trees import load_tree, read_stored_facts
from sessiontree.runtime.replay.tree_fork import Identity, fork_facts
from sessiontree.runtime.scheduling.grants import Grants
from sessiontree.runtime.scheduling.live_session import LiveSession
from sessiontree.runtime.scheduling.pool import PoolSize
from sessiontree.runtime.scheduling.scheduler import Scheduler
from sessiontree.runtime.supervisor.canvas_viewers import CanvasViewers
from sessiontree.runtime.supervisor.child_copies import ChildCopies
from sessiontree.runtime.supervisor.containers import Containers
from sessiontree.runtime.supervisor.controller.effects import ControllerDeps
from sessiontree.runtime.supervisor.controller.tree_controller import TreeController
from sessiontree.runtime.supervisor.previews import TreePreviews
from sessiontree.runtime.timing.clock import TreeClock
from sessiontree.runtime.transport.link import HostLink, Transport
from sessiontree.runtime.transport.progress import Progress, ProgressHub
from sessiontree.runtime.transport.supervisor_api import ActorRow
from sessiontree.schema.result import compile_result
from sessiontree.tree.report import collect_owed
from sessiontree.tree.rules.spawn import needs_copy
from sessiontree.tree.state import protocol as tree_stimuli
from sessiontree.tree.state.state import TreeState, make_initial_tree
from sessiontree.version import VERSION


class Supervisor:
    """Runs trees with a journal and pools of hosts.

    Args:
        journal: Opened for writing and started.
        make_transport: Takes a pool and a name, starts a host there and returns the transport to it.
        pools: How many hosts each pool has.
        pool_of: The pool whose hosts run the sessions of each kind.
        gateway: Asks the models that wait.
        memory: Reaches memory.
        hub: Hands out progress.
        clock: The runtime's clock.
        resend_after_s: After this time, frames that are not known to be received are sent again.
        most_losses: How many hosts a session may lose in a row without progress before it ends.
        hidden: What no copy of a workspace may hold.
    """

    def __init__(  # noqa: PLR0913 - its parts are given by name
        self,
        journal: Journal,
        make_transport: Callable[[str, str], Transport],
        *,
        pools: Mapping[str, PoolSize],
        pool_of: Mapping[SessionKind, str],
        gateway: Gateway,
        memory: MemoryPort,
        hub: ProgressHub,
        clock: TreeClock,
        resend_after_s: float,
        most_losses: float = float("inf"),
        hidden: Sequence[Path] = (),
    ) -> None:
        self.journal = journal
        self.hub = hub
        self.clock = clock
        self.trees: dict[str, TreeController] = {}
        self.grants = Grants(memory.revoked)
        self._gateway = gateway
        self._memory = memory
        self._make_transport = make_transport
        self._resend_after_s = resend_after_s
        self._hosts = 0
        self._opened = 0
        self._forks: dict[str, asyncio.Task[None]] = {}
        """Forks under way, by the id of the new tree."""
        self.containers = Containers(journal.directory)
        self.previews = TreePreviews()
        self.servers = ServerPool()
        self.copies = ChildCopies(journal.directory, hidden)
        self.canvas_viewers = CanvasViewers()
        self.scheduler = Scheduler(self._make_link, pools, pool_of, self.grants, most_losses)

    async def close(self) -> None:
        """End every host. Trees stay in the journal."""
        for controller in self.trees.values():
            controller.close()
        self.trees.clear()
        self.scheduler.close()
        await self.containers.close()
        await self.previews.close()
        await self.servers.close()
        await self.copies.close()
        await self._gateway.close()
        await self._memory.close()
        for link in self.scheduler.links:
            await link.close()

    def _make_link(self, pool: str) -> HostLink:
        self._hosts += 1
        name = f"{pool}{self._hosts}"
        return HostLink(
            name,
            self._make_transport(pool, name),
            on_outcome=self.scheduler.reported,
            on_lost=self.scheduler.lost,
            on_free=self.scheduler.on_freed,
            on_progress=self._on_progress,
            on_left=self.scheduler.on_session_left,
            resend_after_s=self._resend_after_s,
        )

    def _on_progress(self, progress: Progress) -> None:
        self.hub.emit(progress.tree_id, progress.session, progress.event)

    def actors(self) -> list[ActorRow]:
        """Return all known processes: this one, the gateway, memory, then the hosts by start time."""
        hosts = [_build_actor_row(link) for link in sorted(self.scheduler.links, key=lambda link: link.born)]
        own = ActorRow("supervisor", "supervisor", os.getpid(), "structural")
        return [own, *self._gateway.actors(), *self._memory.actors(), *hosts]

    # Trees.

    async def create(
        self,
        config: TreeConfig,
        agents: Mapping[str, AgentConfig],
    ) -> TreeController:
        """Create a tree; durable when this returns."""
        created = self.journal.create_tree(config.tree_id, pack(config))
        controller = self._make_controller(config, make_initial_tree(), agents, config.created_at_ms)
        opened = tree_stimuli.TreeOpened(controller.now_ms(), config)
        # Its first facts are appended before it is awaited, so that one commit may hold both.
        controller.stimulate(opened, "created")
        await created
        await controller.wait_until_durable()
        return controller

    async def wait_until_written(self, tree_id: str) -> None:
        """Wait until what was decided here on a tree is durable; a tree that was let go may have such facts.

        Raises:
            TreeNotFound: the journal has no tree of that id.
        """
        with suppress(JournalError):  # the journal is unusable: nothing more becomes durable
            _, done = self.journal.append(tree_id, ())
            await done

    async def resume(
        self,
        tree_id: str,
        agents: Mapping[str, AgentConfig],
    ) -> TreeController:
        """Resume a tree from its journal: replay its facts, decide nothing again, and do work that is owed.

        What was decided here on it before must be durable: await :meth:`wait_until_written` first.

        Raises:
            ConfigError: it is open.
            TreeNotFound: the journal has no tree of that id.
            JournalCorrupt: its first facts can't be read.
        """
        if tree_id in self.trees:
            raise ConfigError(f"tree {tree_id} is open in this runtime; close it before you resume it")
        config, state, last_ms = load_tree(self.journal, tree_id)
        last_seq = self.journal.last_seq(tree_id)
        newest = self.journal.read(tree_id, after_seq=last_seq - 1)
        controller = self._make_controller(
            config, state, agents, max([last_ms, *(record.at_ms for record in newest)])
        )
        controller.inbox_notifier.notified_seq = last_seq
        controller.inbox_notifier.holds_news = True  # what is among its earlier facts was not looked at
        journaled = set(self.journal.sessions(tree_id))
        for session in [name for name, node in state.sessions.items() if node.is_live]:
            live = controller.ensure_live_session(session)
            live.journaled = session in journaled
            live.recovered = True
        controller.carry(collect_owed(state))
        self.copies.resumed(controller)
        for live in list(controller.live_sessions.values()):
            if live.journaled or live.session != "main":
                self.scheduler.want(live)
        return controller

    async def fork(
        self, tree_id: str, at: int | None, new: Identity, replaced: Mapping[str, str] | None = None
    ) -> None:
        """Write a new tree that shares the first facts of another one; durable when this returns.

        A request for a new tree that exists, or is being written, is a repeated one: it writes nothing.

        Raises:
            TreeNotFound: the journal has no tree of that id.
            ConfigError: no tree can be forked there.
            JournalError: it can't be read or written.
        """
        forking = self._forks.get(new.tree_id)
        if forking is None:
            if any(row.tree_id == new.tree_id for row in self.journal.trees()):
                return
            forking = self._forks[new.tree_id] = asyncio.create_task(
                self._write_fork(tree_id, at, new, replaced)
            )
            forking.add_done_callback(lambda _: self._forks.pop(new.tree_id))
        # Race: another request for the same fork may wait for it when this one is cancelled.
        await asyncio.shield(forking)

    async def _write_fork(
        self, tree_id: str, at: int | None, new: Identity, replaced: Mapping[str, str] | None
    ) -> None:
        config, records, _ = await asyncio.to_thread(read_stored_facts, self.journal, tree_id)
        manifest, own = await asyncio.to_thread(fork_facts, config, records, at, new, replaced)
        await asyncio.to_thread(self.journal.import_tree, manifest, own)

    def _make_controller(
        self,
        config: TreeConfig,
        state: TreeState,
        agents: Mapping[str, AgentConfig],
        last_ms: int,
    ) -> TreeController:
        # A clock for each tree: if the clock was ahead while one was written, others must not follow it.
        deps = ControllerDeps(
            self.journal,
            self.scheduler,
            self._gateway,
            self._memory,
            self.hub,
            self.clock.not_before(last_ms),
            dict(agents),
            self.containers,
            self.previews,
            self.copies,
        )
        controller = self.trees[config.tree_id] = TreeController(config, state, deps, last_ms)
        self._opened += 1
        controller.equipment = f"{config.tree_id}#{self._opened}"
        return controller

    def let_go(self, tree_id: str) -> None:
        """Close a tree if it is open; it stays in the journal."""
        controller = self.trees.pop(tree_id, None)
        self.servers.on_tree_closed(tree_id)
        if controller is not None:
            controller.close()
            self.containers.on_tree_closed(tree_id)
            self.previews.on_tree_closed(tree_id)
            self.canvas_viewers.let_go(tree_id)

    def tree(self, tree_id: str) -> TreeController:
        """Return an open tree.

        Raises:
            TreeNotFound: the tree is not open here.
        """
        controller = self.trees.get(tree_id)
        if controller is None:
            raise TreeNotFound(tree_id, "is not open in this process; resume it first")
        return controller

    async def spawn_child(self, tree_id: str, asked: tree_stimuli.SpawnAsked, cause: str) -> str:
        """Spawn a session and return its id once it is durable.

        Raises:
            SpawnRefused, LimitExceeded: nothing was started.
            ConfigError: the result schema is not valid.
        """
        if asked.result_schema is not None:
            compile_result(asked.result_schema)
        controller = self.tree(tree_id)
        copy = await self.copies.make(controller, asked) if needs_copy(controller.state, asked) else None
        spawned = None
        try:
            given = replace(asked, at_ms=controller.now_ms(), copy=copy)
            spawned = _get_spawned(asked.parent, await controller.settle(given, cause))
        finally:
            if copy is not None:
                await self.copies.drop_unused(controller, copy, spawned)
        return spawned

    def describe(self) -> RuntimeStatus:
        """Return what the runtime does, in counts over all open trees."""
        return RuntimeStatus(
            VERSION,
            len(self.trees),
            sum(node.is_live for tree in self.trees.values() for node in tree.state.sessions.values()),
            sum(1 for tree in self.trees.values() for _ in tree.state.jobs.values()),
            self._gateway.pending,
            measure_resident_bytes(),
            self.scheduler.list_pools(),
        )

    def last_words(self, grant: str, reason: str) -> None:
        """End a host and its session, for the reason that the host gives.

        Raises:
            SessionClosed: the grant is not valid now.
        """
        live = self.grants.check(grant, "report")
        link = live.link  # Race: the host may be lost already; then its loss is known without its words
        if link is not None:
            link.blamed = live
            link.declare_lost(reason, to_blame=True)

    # What memory asks.

    async def resolve_grants(self, wanted: Sequence[tuple[str, MemoryRight]]) -> ScopeAnswer:
        """Return for each grant whose it is now, or the error for a right that it does not give.

        Memory identifies a session by this answer alone, never by anything that a host sends.
        """
        found: list[Whose] = []
        for token, right in wanted:
            try:
                live = self.grants.check(token, right)
                found.append(make_memory_scope(live.controller.config, live.session))
            except SessionTreeError as error:
                found.append(error)
        return ScopeAnswer(found)

    async def list_completed_trees(self, tree_ids: Sequence[str]) -> list[Ended]:
        """Return those of the trees whose Main has completed; trees of other journals are left out."""
        found = []
        for tree_id in tree_ids:
            try:
                config, state, last_ms = await asyncio.to_thread(load_tree, self.journal, tree_id)
            except JournalError:
                continue
            if state.sessions["main"].status is SessionStatus.COMPLETED:
                found.append(make_end_notice(config, last_ms))
        return found

    def check_session(self, tree_id: str, session: str) -> None:
        """Check that a session can take input.

        Raises:
            SessionNotFound: the tree has no such session.
            SessionClosed: it has ended.
        """
        controller = self.tree(tree_id)
        controller.check_open()
        node = controller.state.sessions.get(session)
        if node is None:
            raise SessionNotFound(
                session, "this tree has no session of that path; tree.receipt() lists its sessions"
            )
        if node.status.is_final:
            raise SessionClosed(session, f"it ended {node.status}; spawn a new one")


def _build_actor_row(link: HostLink) -> ActorRow:
    live, transport = link.running, link.transport
    row = ActorRow(link.name, link.pool, transport.pid, transport.level, node=transport.node)
    if not isinstance(live, LiveSession):
        return row
    return replace(row, tree_id=live.controller.config.tree_id, session=live.session, epoch=live.epoch)


def _get_spawned(parent: str, instructions: list[tree_stimuli.TreeInstruction]) -> str:
    for instruction in instructions:
        if isinstance(instruction, tree_stimuli.AcceptSpawn):
            return instruction.session
        if isinstance(instruction, tree_stimuli.RefuseSpawn):
            raise instruction.error
    raise SessionTreeError(f"the spawn below {parent!r} was neither accepted nor refused")
