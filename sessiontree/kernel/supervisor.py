"""The supervisor: trees, their journal, their hosts. Single writer of everything it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sessiontree.contracts import stimuli
from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.codec import from_wire, to_wire
from sessiontree.contracts.errors import (
    JournalCorrupt,
    SessionClosed,
    SessionNotFound,
    SessionTreeError,
    SpawnRefused,
    TreeNotFound,
)
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.ports import SessionReport, SpawnRequest
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Record
from sessiontree.kernel.clock import KernelClock
from sessiontree.kernel.frames import Outcome
from sessiontree.kernel.gateway import GatewayCore
from sessiontree.kernel.keeper import Surroundings, TreeKeeper
from sessiontree.kernel.link import HostLink, Transport
from sessiontree.kernel.progress import ProgressHub
from sessiontree.kernel.replay import fact_of
from sessiontree.kernel.reports import report_of
from sessiontree.kernel.scheduler import Scheduler
from sessiontree.kernel.seat import Seat
from sessiontree.models.port import WaitingModel
from sessiontree.schema.result import compile_result
from sessiontree.tree import instructions as tree_todo
from sessiontree.tree import stimuli as tree_stimuli
from sessiontree.tree.evolve import evolve
from sessiontree.tree.owed import owed
from sessiontree.tree.state import TreeState, initial_tree


class SupervisorCore:
    """Keeps trees over a journal and a pool of hosts.

    Args:
        journal: Opened for writing and started.
        make_transport: Starts a host and returns the way to it.
        max_hosts: Most hosts at a time.
        resend_after_s: When frames not known to be received are sent again.
    """

    def __init__(
        self,
        journal: Journal,
        make_transport: Callable[[str], Transport],
        *,
        max_hosts: int,
        hub: ProgressHub,
        clock: KernelClock,
        resend_after_s: float,
    ) -> None:
        """Begin without trees and hosts."""
        self.journal = journal
        self.hub = hub
        self.clock = clock
        self.trees: dict[str, TreeKeeper] = {}
        self.gateway = GatewayCore()
        self._make_transport = make_transport
        self._resend_after_s = resend_after_s
        self._hosts = 0
        self.scheduler = Scheduler(self._make_link, max_hosts)

    async def close(self) -> None:
        """End every host; trees stay as their journal has them."""
        for keeper in self.trees.values():
            keeper.close()
        self.trees.clear()
        await self.gateway.close()
        for link in self.scheduler.links:
            await link.close()

    def _make_link(self) -> HostLink:
        self._hosts += 1
        name = f"host{self._hosts}"
        return HostLink(
            name,
            self._make_transport(name),
            self._on_outcome,
            self.scheduler.lost,
            resend_after_s=self._resend_after_s,
        )

    @staticmethod
    def _on_outcome(link: HostLink, outcome: Outcome) -> None:
        seat = link.seat
        if isinstance(seat, Seat) and seat.session == outcome.session and seat.epoch == outcome.epoch:
            seat.keeper.on_outcome(seat, outcome)

    # Trees.

    async def create(
        self,
        config: TreeConfig,
        agents: Mapping[str, AgentConfig],
        model: WaitingModel | None,
    ) -> TreeKeeper:
        """Create a tree; durable when this returns."""
        await self.journal.create_tree(config.tree_id, to_wire(config))
        keeper = self._keeper(config, initial_tree(), agents, model)
        opened = tree_stimuli.TreeOpened(self.clock.now_ms(), config)
        await keeper.settle(opened, "created")
        return keeper

    async def resume(
        self,
        tree_id: str,
        agents: Mapping[str, AgentConfig],
        model: WaitingModel | None,
    ) -> TreeKeeper:
        """Take up a tree from its journal: facts are replayed, nothing is decided again, owed work is done.

        Raises:
            TreeNotFound: the journal has none of that id.
            JournalCorrupt: not even its first facts can be read.
        """
        config, state, last_ms = load_tree(self.journal, tree_id)
        self.clock.note(last_ms)
        keeper = self._keeper(config, state, agents, model)
        journaled = set(self.journal.sessions(tree_id))
        for session in [name for name, node in state.sessions.items() if node.is_live]:
            seat = keeper.seat_of(session)
            seat.journaled = session in journaled
            seat.recovered = True
        keeper.carry(owed(state))
        for seat in list(keeper.seats.values()):
            if seat.journaled or seat.session != "main":
                self.scheduler.want(seat)
        return keeper

    def _keeper(
        self,
        config: TreeConfig,
        state: TreeState,
        agents: Mapping[str, AgentConfig],
        model: WaitingModel | None,
    ) -> TreeKeeper:
        around = Surroundings(
            self.journal, self.scheduler, self.gateway, self.hub, self.clock, model, dict(agents)
        )
        keeper = self.trees[config.tree_id] = TreeKeeper(config, state, around)
        return keeper

    def tree(self, tree_id: str) -> TreeKeeper:
        """Return a tree kept here.

        Raises:
            TreeNotFound: it is not.
        """
        keeper = self.trees.get(tree_id)
        if keeper is None:
            raise TreeNotFound(tree_id, "is not open in this process; resume it first")
        return keeper

    async def read(self, tree_id: str, after_seq: int, max_n: int, wait_s: float) -> list[Record]:
        """Return durable facts after a number, oldest first, waiting up to ``wait_s`` for the first."""
        keeper = self.tree(tree_id)
        keeper.news.clear()
        records = self.journal.read(tree_id, after_seq=after_seq, max_n=max_n)
        if records or wait_s <= 0:
            return records
        try:
            async with asyncio.timeout(wait_s):
                await keeper.news.wait()
        except TimeoutError:
            return []
        return self.journal.read(tree_id, after_seq=after_seq, max_n=max_n)

    async def read_tree(self, tree_id: str, after_seq: int, wait_s: float) -> list[Record]:
        """Return the tree's own durable facts after a number, waiting for one that people should see."""
        keeper = self.tree(tree_id)
        try:
            async with asyncio.timeout(wait_s):
                await keeper.tidings.wait()
        except TimeoutError:
            return []
        keeper.tidings.clear()
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
        asked = replace(asked, at_ms=self.clock.now_ms())
        instructions = await self.tree(tree_id).settle(asked, cause)
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

    # What tools ask through their handles.

    async def spawn(self, tree_id: str, session: str, epoch: int, request: SpawnRequest, key: str) -> str:
        """Spawn a child for a tool call of a session.

        Raises:
            SpawnRefused, LimitExceeded: nothing was started.
            ConfigError: the result schema is none.
        """
        self._check_epoch(tree_id, session, epoch)
        if request.kind not in set(SessionKind) or not isinstance(request.task, str) or not request.task:
            raise SpawnRefused(session, f"can't spawn a {request.kind!r} to do {request.task!r}")
        asked = tree_stimuli.SpawnAsked(
            self.clock.now_ms(),
            session,
            SessionKind(request.kind),
            request.task,
            "model",
            label=request.label,
            agent=request.agent,
            result_schema=request.result_schema,
            budget=request.budget,
            key=key,
        )
        return await self.spawn_child(tree_id, asked, f"spawn:{key}")

    async def say(self, tree_id: str, session: str, epoch: int, text: str) -> None:
        """Say something on the nearest channel at or above a session."""
        keeper = self._check_epoch(tree_id, session, epoch)
        asked = tree_stimuli.SayAsked(self.clock.now_ms(), session, text)
        for instruction in await keeper.settle(asked, f"say:{session}"):
            if isinstance(instruction, tree_todo.RefuseSay):
                raise instruction.error

    async def report(self, tree_id: str, session: str, epoch: int) -> SessionReport:
        """Return a session's standing."""
        keeper = self._check_epoch(tree_id, session, epoch)
        return report_of(keeper, session)

    def _check_epoch(self, tree_id: str, session: str, epoch: int) -> TreeKeeper:
        keeper = self.tree(tree_id)
        seat = keeper.seats.get(session)
        if seat is None or seat.epoch != epoch:
            raise SessionClosed(session, "this host no longer embodies it")
        return keeper

    def session_exists(self, tree_id: str, session: str) -> None:
        """Check that a session can take input.

        Raises:
            SessionNotFound, SessionClosed: it cannot.
        """
        keeper = self.tree(tree_id)
        keeper.check_open()
        node = keeper.state.sessions.get(session)
        if node is None:
            raise SessionNotFound(session, "no session of that path was ever spawned in this tree")
        if node.status.is_final:
            raise SessionClosed(session, f"it ended {node.status}; spawn a new one")

    def message(self, session_text: str, message_id: str, mode: Any) -> stimuli.Incoming:
        """Return a message from the creating program as a stimulus."""
        return stimuli.Incoming(self.clock.now_ms(), message_id, session_text, mode, "user")


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
