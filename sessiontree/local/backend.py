"""The local backend: supervisor, hosts, gateway and journal in one asyncio process.

The same kernel as on Ray; only the way between supervisor and host is a direct call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sessiontree.contracts import stimuli
from sessiontree.contracts.approvals import ApprovalAnswer
from sessiontree.contracts.codec import from_wire
from sessiontree.contracts.errors import ConfigError, TreeNotFound
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.ports import SessionReport
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Record
from sessiontree.kernel.clock import KernelClock
from sessiontree.kernel.equipment import TreeSetup
from sessiontree.kernel.host import HostCore, HostEquipment
from sessiontree.kernel.progress import ProgressHub, ProgressReader
from sessiontree.kernel.replies import CallReply, Reply
from sessiontree.kernel.reports import report_of
from sessiontree.kernel.supervisor import SupervisorCore
from sessiontree.local.transport import Faults, LocalTransport
from sessiontree.tree import stimuli as tree_stimuli
from sessiontree.tree.receipt import ReceiptLine, receipt
from sessiontree.tree.state import TreeState

DEFAULT_SLOTS = 64


class LocalBackend:
    """Runs trees in this process.

    Args:
        state_dir: Where the journal lies; locked while the backend is open.
        slots: Most sessions embodied at a time; others are rows in the journal meanwhile.
        faults: What goes wrong between supervisor and hosts, on purpose.
    """

    def __init__(self, state_dir: Path, *, slots: int = DEFAULT_SLOTS, faults: Faults | None = None) -> None:
        """Open the journal.

        Raises:
            JournalError: it cannot be used.
        """
        self._journal = Journal.open(state_dir)
        self._state_dir = state_dir
        self._faults = faults
        self._slots = slots
        self._hub = ProgressHub()
        self._clock = KernelClock()
        self.equipment: dict[str, HostEquipment] = {}
        """What hosts are given, by tree."""
        self.transports: list[LocalTransport] = []
        """Hosts that live."""
        self._supervisor: SupervisorCore | None = None

    @property
    def supervisor(self) -> SupervisorCore:
        """The supervisor, started with the first use on the running loop."""
        if self._supervisor is None:
            self._journal.start(asyncio.get_running_loop())
            self._supervisor = SupervisorCore(
                self._journal,
                self._make_transport,
                max_hosts=self._slots,
                hub=self._hub,
                clock=self._clock,
                resend_after_s=0.5 if self._faults is None else self._faults.delay_s * 10,
            )
        return self._supervisor

    def _make_transport(self, name: str) -> LocalTransport:
        host = HostCore(self._equip, self.supervisor, self._hub, self._clock.now_ms)
        transport = LocalTransport(host, self._faults, self.transports.remove)
        self.transports.append(transport)
        return transport

    def _equip(self, tree_id: str) -> HostEquipment:
        equipment = self.equipment.get(tree_id)
        if equipment is None:
            raise TreeNotFound(tree_id, "is not open in this process")
        return equipment

    async def create(self, config: TreeConfig, setup: TreeSetup) -> None:
        """Create a tree; durable when this returns."""
        self._equip_tree(config.tree_id, setup)
        await self.supervisor.create(config, setup.agents, setup.waiting)

    async def resume(self, tree_id: str, setup: TreeSetup) -> TreeConfig:
        """Take up a tree from the journal."""
        if self.is_open(tree_id):
            raise ConfigError(f"tree {tree_id} is open in this runtime; close it before you resume it")
        self._equip_tree(tree_id, setup)
        try:
            keeper = await self.supervisor.resume(tree_id, setup.agents, setup.waiting)
        except BaseException:
            self.release(tree_id)
            raise
        return keeper.config

    def _equip_tree(self, tree_id: str, setup: TreeSetup) -> None:
        self.equipment[tree_id] = HostEquipment(setup.table, setup.instant, (self._state_dir,))

    async def send(self, tree_id: str, session: str, text: str, mode: Any, message_id: str) -> Reply:
        """Say something to a session; returns its last word for it."""
        supervisor = self.supervisor
        supervisor.session_exists(tree_id, session)
        incoming = supervisor.message(text, message_id, mode)
        return await supervisor.tree(tree_id).say(session, incoming)

    async def call(
        self,
        tree_id: str,
        session: str,
        call_id: str,
        tool: str,
        arguments: Mapping[str, JsonValue],
    ) -> CallReply:
        """Have a session make one call outside its transcript."""
        supervisor = self.supervisor
        supervisor.session_exists(tree_id, session)
        asked = stimuli.CallAsked(self._clock.now_ms(), call_id, tool, arguments)
        return await supervisor.tree(tree_id).call(session, asked)

    async def spawn(self, tree_id: str, asked: tree_stimuli.SpawnAsked) -> str:
        """Spawn a session; returns its id once it is durable."""
        supervisor = self.supervisor
        supervisor.session_exists(tree_id, asked.parent)
        return await supervisor.spawn_child(tree_id, asked, f"handle:{asked.parent}")

    async def result(self, tree_id: str, session: str) -> SessionResult[Any]:
        """Return a session's result, waiting for its end."""
        keeper = self.supervisor.tree(tree_id)
        node = keeper.state.sessions.get(session)
        if node is not None and node.result is not None:
            await keeper.caught_up()
            return node.result
        self.supervisor.session_exists(tree_id, session)
        return await keeper.results.wait(session)

    async def stop(
        self, tree_id: str, session: str, reason: str, status: SessionStatus
    ) -> tuple[ReceiptLine, ...]:
        """End a session and everything below it; returns how each of them ended."""
        keeper = self.supervisor.tree(tree_id)
        node = keeper.state.sessions.get(session)
        if node is None:
            self.supervisor.session_exists(tree_id, session)
        elif node.status.is_final:
            await keeper.caught_up()
        else:
            ended = keeper.results.wait(session)
            asked = tree_stimuli.StopAsked(self._clock.now_ms(), session, reason, status)
            await keeper.settle(asked, f"stop:{session}")
            await ended
        return receipt(keeper.state, session)

    async def decide(self, tree_id: str, request_id: str, answer: ApprovalAnswer, by: str) -> None:
        """Answer an approval request."""
        decided = tree_stimuli.Decided(
            self._clock.now_ms(), request_id, answer.approve, answer.always, by, answer.reason
        )
        await self.supervisor.decide(tree_id, decided)

    async def read(self, tree_id: str, after_seq: int, max_n: int, wait_s: float) -> list[Record]:
        """Return durable facts after a number."""
        return await self.supervisor.read(tree_id, after_seq, max_n, wait_s)

    async def read_tree(self, tree_id: str, after_seq: int, wait_s: float) -> list[Record]:
        """Return the tree's own durable facts after a number, waiting for news that matter to people."""
        return await self.supervisor.read_tree(tree_id, after_seq, wait_s)

    def read_session(self, tree_id: str, session: str) -> list[Record]:
        """Return all durable facts of one session."""
        return self._journal.read_session(tree_id, session)

    def last_seq(self, tree_id: str) -> int:
        """Return the number of a tree's newest fact."""
        return self._journal.last_seq(tree_id)

    def report(self, tree_id: str, session: str) -> SessionReport:
        """Return a session's standing."""
        keeper = self.supervisor.tree(tree_id)
        if keeper.state.sessions.get(session) is None:
            self.supervisor.session_exists(tree_id, session)
        return report_of(keeper, session)

    def state(self, tree_id: str) -> TreeState:
        """Return a tree's state, to be read only."""
        return self.supervisor.tree(tree_id).state

    def config_of(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration.

        Raises:
            TreeNotFound: the journal has none of that id.
        """
        config: TreeConfig = from_wire(dict(self._journal.row0(tree_id)))
        return config

    def receipt(self, tree_id: str) -> tuple[ReceiptLine, ...]:
        """Return every session of a tree and how it stands."""
        return receipt(self.state(tree_id), "main")

    def is_open(self, tree_id: str) -> bool:
        """Whether a tree is kept here."""
        return self._supervisor is not None and tree_id in self._supervisor.trees

    def release(self, tree_id: str) -> None:
        """Let a tree go; it stays in the journal."""
        keeper = self.supervisor.trees.pop(tree_id, None)
        if keeper is not None:
            keeper.close()
        self.equipment.pop(tree_id, None)

    def watch(self, tree_id: str, session: str | None) -> ProgressReader:
        """Return a reader of progress."""
        return self._hub.watch(tree_id, session)

    async def close(self) -> None:
        """End hosts and supervisor and let the journal go."""
        if self._supervisor is not None:
            await self._supervisor.close()
        await self._journal.close()
