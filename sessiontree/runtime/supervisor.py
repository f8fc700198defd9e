"""The supervisor: trees, their journal, their hosts. Single writer of everything it keeps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.codec import from_wire, to_wire
from sessiontree.contracts.errors import (
    JournalCorrupt,
    JournalError,
    SessionClosed,
    SessionNotFound,
    SessionTreeError,
    SpawnRefused,
    TreeNotFound,
)
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.ports import SessionReport, SpawnRequest
from sessiontree.contracts.senders import Principal
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Record
from sessiontree.runtime.clock import TreeClock
from sessiontree.runtime.effects import ControllerDeps
from sessiontree.runtime.frames import Outcome, Unfit
from sessiontree.runtime.grants import Grants
from sessiontree.runtime.host_link import HostLink, Transport
from sessiontree.runtime.live_session import LiveSession
from sessiontree.runtime.memory_protocol import Ended, MemoryPort, MemoryRight, Whose, ended_of, scope_of
from sessiontree.runtime.model_gateway import Gateway
from sessiontree.runtime.progress import Progress, ProgressHub
from sessiontree.runtime.replay import fact_of
from sessiontree.runtime.scheduler import PoolSize, Scheduler
from sessiontree.runtime.session_reports import ActorRow, report_of
from sessiontree.runtime.tree_controller import TreeController
from sessiontree.schema.result import compile_result
from sessiontree.tree import instructions as tree_todo
from sessiontree.tree import stimuli as tree_stimuli
from sessiontree.tree.evolve import evolve
from sessiontree.tree.pending_effects import owed
from sessiontree.tree.state import TreeState, initial_tree


class SupervisorCore:
    """Keeps trees over a journal and pools of hosts.

    Args:
        journal: Opened for writing and started.
        make_transport: Starts a host of a pool, by a name for it, and returns the way to it.
        pools: How many hosts each pool has.
        pool_of: Which pool a kind of session is embodied in.
        gateway: The way to the models that wait.
        memory: The way to memory.
        resend_after_s: When frames not known to be received are sent again.
        most_losses: How many hosts a session may lose in a row, nothing done in between, before it ends.
    """

    def __init__(  # noqa: PLR0913 - what it is made of is handed down, each part by name
        self,
        journal: Journal,
        make_transport: Callable[[str, str], Transport],
        *,
        pools: Mapping[str, PoolSize],
        pool_of: Callable[[SessionKind], str],
        gateway: Gateway,
        memory: MemoryPort,
        hub: ProgressHub,
        clock: TreeClock,
        resend_after_s: float,
        most_losses: float = float("inf"),
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
        self.scheduler = Scheduler(self._make_link, pools, pool_of, self.grants, most_losses)

    async def close(self) -> None:
        """End every host; trees stay as their journal has them."""
        for controller in self.trees.values():
            controller.close()
        self.trees.clear()
        self.scheduler.close()
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
            on_outcome=self._on_outcome,
            on_lost=self.scheduler.lost,
            on_free=self.scheduler.freed,
            on_progress=self._on_progress,
            on_left=self.scheduler.left,
            resend_after_s=self._resend_after_s,
        )

    @staticmethod
    def _on_outcome(link: HostLink, outcome: Outcome | Unfit) -> None:
        live = link.occupant
        if not isinstance(live, LiveSession) or (live.session, live.epoch) != (
            outcome.session,
            outcome.epoch,
        ):
            return
        if isinstance(outcome, Unfit):
            # Started before the workspace was there: a host started now sees it, or nobody does.
            live.misfit_until = asyncio.get_running_loop().time()
            link.condemn(outcome.reason, to_blame=False)
        else:
            live.controller.on_outcome(live, outcome)

    def _on_progress(self, progress: Progress) -> None:
        self.hub.emit(progress.tree_id, progress.session, progress.event)

    def actors(self) -> list[ActorRow]:
        """Return every process this one knows of, itself first, hosts in the order they were started."""
        hosts = [_row_of(link) for link in sorted(self.scheduler.links, key=lambda link: link.born)]
        own = ActorRow("supervisor", "supervisor", os.getpid(), "structural")
        return [own, *self._gateway.actors(), *self._memory.actors(), *hosts]

    # Trees.

    async def create(
        self,
        config: TreeConfig,
        agents: Mapping[str, AgentConfig],
    ) -> TreeController:
        """Create a tree; durable when this returns."""
        await self.journal.create_tree(config.tree_id, to_wire(config))
        controller = self._controller(config, initial_tree(), agents, config.created_at_ms)
        opened = tree_stimuli.TreeOpened(controller.now_ms(), config)
        await controller.settle(opened, "created")
        return controller

    async def resume(
        self,
        tree_id: str,
        agents: Mapping[str, AgentConfig],
    ) -> TreeController:
        """Take up a tree from its journal: facts are replayed, nothing is decided again, owed work is done.

        Raises:
            TreeNotFound: the journal has none of that id.
            JournalCorrupt: not even its first facts can be read.
        """
        config, state, last_ms = load_tree(self.journal, tree_id)
        last_seq = self.journal.last_seq(tree_id)
        newest = self.journal.read(tree_id, after_seq=last_seq - 1)
        controller = self._controller(
            config, state, agents, max([last_ms, *(record.at_ms for record in newest)])
        )
        controller.bell.told_seq = last_seq
        journaled = set(self.journal.sessions(tree_id))
        for session in [name for name, node in state.sessions.items() if node.is_live]:
            live = controller.live_session_of(session)
            live.journaled = session in journaled
            live.recovered = True
        controller.carry(owed(state))
        for live in list(controller.live_sessions.values()):
            if live.journaled or live.session != "main":
                self.scheduler.want(live)
        return controller

    def _controller(
        self,
        config: TreeConfig,
        state: TreeState,
        agents: Mapping[str, AgentConfig],
        last_ms: int,
    ) -> TreeController:
        # A clock of its own: what one journal saw of a clock that was ahead is no other tree's time.
        around = ControllerDeps(
            self.journal,
            self.scheduler,
            self._gateway,
            self._memory,
            self.hub,
            self.clock.not_before(last_ms),
            dict(agents),
        )
        controller = self.trees[config.tree_id] = TreeController(config, state, around, last_ms)
        self._opened += 1
        controller.equipment = f"{config.tree_id}#{self._opened}"
        return controller

    def tree(self, tree_id: str) -> TreeController:
        """Return a tree kept here.

        Raises:
            TreeNotFound: it is not.
        """
        controller = self.trees.get(tree_id)
        if controller is None:
            raise TreeNotFound(tree_id, "is not open in this process; resume it first")
        return controller

    async def read(self, tree_id: str, after_seq: int, max_n: int, wait_s: float) -> list[Record]:
        """Return durable facts after a number, oldest first, waiting up to ``wait_s`` for the first.

        Raises:
            SessionTreeError: there will be none: why the tree goes on no more in this process.
        """
        controller = self.tree(tree_id)
        controller.news.clear()
        records = self.journal.read(tree_id, after_seq=after_seq, max_n=max_n)
        if records or wait_s <= 0:
            return records
        controller.check_open()
        try:
            async with asyncio.timeout(wait_s):
                await controller.news.wait()
        except TimeoutError:
            return []
        return self.journal.read(tree_id, after_seq=after_seq, max_n=max_n)

    async def read_tree(self, tree_id: str, after_seq: int, wait_s: float) -> list[Record]:
        """Return the tree's own durable facts after a number, waiting for one that people should see."""
        controller = self.tree(tree_id)
        try:
            async with asyncio.timeout(wait_s):
                while True:
                    if controller.bell.told_seq > after_seq:
                        records = self.journal.read_session(tree_id, "", after_seq=after_seq)
                        if records:
                            return records
                    await controller.bell.wait()
        except TimeoutError:
            return []
        return self.journal.read_session(tree_id, "", after_seq=after_seq)

    # What the creating program asks.

    async def spawn_child(self, tree_id: str, asked: tree_stimuli.SpawnAsked, cause: str) -> str:
        """Spawn a session and return its id once it is durable.

        Raises:
            SpawnRefused, LimitExceeded: nothing was started.
            ConfigError: the result schema is none.
        """
        if asked.result_schema is not None:
            compile_result(asked.result_schema)
        controller = self.tree(tree_id)
        instructions = await controller.settle(replace(asked, at_ms=controller.now_ms()), cause)
        return _spawned(asked.parent, instructions)

    async def decide(self, tree_id: str, decided: tree_stimuli.Decided) -> None:
        """Answer a request on behalf of a person.

        Raises:
            ApprovalClosed: it was decided before.
        """
        cause = f"decision:{decided.request_id}"
        for instruction in await self.tree(tree_id).settle(decided, cause):
            if isinstance(instruction, tree_todo.RefuseDecision):
                raise instruction.error

    # What tools ask through their handles, each showing its grant.

    async def spawn(
        self,
        grant: str,
        request: SpawnRequest,
        key: str,
        forbidden: str | None = None,
        asked_by: tuple[Principal, ...] = (),
    ) -> str:
        """Spawn a child for a tool call of a session.

        Raises:
            SessionClosed, PermissionDenied: the grant does not count, or not for this.
            SpawnRefused, LimitExceeded: nothing was started.
            ConfigError: the result schema is none.
        """
        live = self.grants.check(grant, "spawn")
        session = live.session
        if request.kind not in set(SessionKind) or not isinstance(request.task, str) or not request.task:
            raise SpawnRefused(session, f"can't spawn a {request.kind!r} to do {request.task!r}")
        asked = tree_stimuli.SpawnAsked(
            live.controller.now_ms(),
            session,
            SessionKind(request.kind),
            request.task,
            "model",
            label=request.label,
            agent=request.agent,
            result_schema=request.result_schema,
            budget=request.budget,
            key=key,
            forbidden=forbidden,
            asked_by=asked_by,
        )
        return await self.spawn_child(live.controller.config.tree_id, asked, f"spawn:{key}")

    async def say(self, grant: str, text: str) -> None:
        """Say something on the nearest channel at or above a session."""
        live = self.grants.check(grant, "say")
        asked = tree_stimuli.SayAsked(live.controller.now_ms(), live.session, text)
        for instruction in await live.controller.settle(asked, f"say:{live.session}"):
            if isinstance(instruction, tree_todo.RefuseSay):
                raise instruction.error

    async def report(self, grant: str) -> SessionReport:
        """Return a session's standing."""
        live = self.grants.check(grant, "report")
        return report_of(live.controller, live.session)

    def last_words(self, grant: str, reason: str) -> None:
        """A host says why its session must end with it.

        Raises:
            SessionClosed: the grant does not count.
        """
        link = self.grants.check(grant, "report").link
        if link is not None:
            link.condemn(reason, to_blame=True)

    # What memory asks.

    async def whose(self, wanted: Sequence[tuple[str, MemoryRight]]) -> list[Whose]:
        """Say for each grant whom it stands for at this moment, or why it does not count for what is wanted.

        This alone says who a session is to memory: nothing that a host sends does.
        """
        found: list[Whose] = []
        for token, right in wanted:
            try:
                live = self.grants.check(token, right)
                found.append(scope_of(live.controller.config, live.session))
            except SessionTreeError as error:
                found.append(error)
        return found

    async def ended_of(self, tree_ids: Sequence[str]) -> list[Ended]:
        """Return those trees of the journal whose Main has completed; others may be of another journal."""
        found = []
        for tree_id in tree_ids:
            try:
                config, state, last_ms = await asyncio.to_thread(load_tree, self.journal, tree_id)
            except JournalError:
                continue
            if state.sessions["main"].status is SessionStatus.COMPLETED:
                found.append(ended_of(config, last_ms))
        return found

    def session_exists(self, tree_id: str, session: str) -> None:
        """Check that a session can take input.

        Raises:
            SessionNotFound, SessionClosed: it cannot.
        """
        controller = self.tree(tree_id)
        controller.check_open()
        node = controller.state.sessions.get(session)
        if node is None:
            raise SessionNotFound(session, "no session of that path was ever spawned in this tree")
        if node.status.is_final:
            raise SessionClosed(session, f"it ended {node.status}; spawn a new one")


def _row_of(link: HostLink) -> ActorRow:
    live, transport = link.occupant, link.transport
    if not isinstance(live, LiveSession):
        return ActorRow(link.name, link.pool, transport.pid, transport.level)
    tree_id = live.controller.config.tree_id
    return ActorRow(link.name, link.pool, transport.pid, transport.level, tree_id, live.session, live.epoch)


def _spawned(parent: str, instructions: list[tree_todo.TreeInstruction]) -> str:
    for instruction in instructions:
        if isinstance(instruction, tree_todo.AcceptSpawn):
            return instruction.session
        if isinstance(instruction, tree_todo.RefuseSpawn):
            raise instruction.error
    raise SessionTreeError(f"the spawn below {parent!r} got no answer")


def load_tree(journal: Journal, tree_id: str) -> tuple[TreeConfig, TreeState, int]:
    """Return a tree's configuration, its state by its durable facts, and the time of the last one.

    Raises:
        TreeNotFound, JournalCorrupt: it cannot be read.
    """
    state = initial_tree()
    last_ms = 0
    for record in journal.read_session(tree_id, ""):
        evolve(state, fact_of(record.text))
        last_ms = max(last_ms, record.at_ms)
    if "main" not in state.sessions:
        raise JournalCorrupt(tree_id, "its first facts are missing or damaged: there is no tree to show")
    config: TreeConfig = from_wire(dict(journal.row0(tree_id)))
    return config, state, last_ms
