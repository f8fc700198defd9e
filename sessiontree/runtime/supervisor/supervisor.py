"""The supervisor: the open trees, their journal and their hosts. Nothing else writes them.

Long because it has a method for each request of a host.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from sessiontree.contracts.errors import (
    ExecutionError,
    JournalError,
    SessionClosed,
    SessionNotFound,
    SessionTreeError,
    SpawnRefused,
    TreeNotFound,
)
from sessiontree.contracts.facts.stimuli import SendMode
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.handles.mcp import ServerCall, ServerReply
from sessiontree.contracts.handles.ports import (
    AgentInfo,
    SessionFilter,
    SessionReport,
    SessionRow,
    SessionRows,
    SpawnRequest,
    Transcript,
)
from sessiontree.contracts.handles.previews import PublishedPage
from sessiontree.contracts.handles.runtime_control import RestartReport, RuntimeStatus
from sessiontree.contracts.handles.vision import VisionAnswer
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.canvas import CanvasReport
from sessiontree.contracts.recorded.child_workspaces import ChildChanges
from sessiontree.contracts.recorded.codec import to_wire
from sessiontree.contracts.recorded.cron import CronTable, JobChange, JobRow, JobRun
from sessiontree.contracts.recorded.programs import make_first_call
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, ImageContent
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord
from sessiontree.mcp.server_pool import ServerPool
from sessiontree.runtime.gateway.model_gateway import Gateway
from sessiontree.runtime.host.host_process import measure_resident_bytes
from sessiontree.runtime.memory.memory_api import (
    Ended,
    MemoryPort,
    MemoryRight,
    Whose,
    make_end_notice,
    make_memory_scope,
)
from sessiontree.runtime.replay.stored_trees import load_tree, read_stored_facts
from sessiontree.runtime.replay.tree_fork import Identity, fork_facts
from sessiontree.runtime.scheduling.grants import Grants
from sessiontree.runtime.scheduling.live_session import LiveSession, build_session_report
from sessiontree.runtime.scheduling.pool import PoolSize
from sessiontree.runtime.scheduling.scheduler import Scheduler
from sessiontree.runtime.supervisor.canvas_viewers import CanvasViewers
from sessiontree.runtime.supervisor.child_copies import ChildCopies
from sessiontree.runtime.supervisor.containers import Containers
from sessiontree.runtime.supervisor.controller.effects import ControllerDeps
from sessiontree.runtime.supervisor.controller.tree_controller import TreeController
from sessiontree.runtime.supervisor.previews import TreePreviews
from sessiontree.runtime.supervisor.subtree import (
    list_agents,
    list_rows_below,
    read_transcript_below,
    send_message_from,
    stop_subtree,
)
from sessiontree.runtime.supervisor.timed_jobs import change_job, list_history, list_jobs
from sessiontree.runtime.timing.clock import TreeClock
from sessiontree.runtime.transport.link import HostLink, Transport
from sessiontree.runtime.transport.progress import Progress, ProgressHub
from sessiontree.runtime.transport.supervisor_api import ActorRow
from sessiontree.schema.result import check_model_schema, compile_result
from sessiontree.tree.report import collect_owed
from sessiontree.tree.rules.spawn import needs_copy
from sessiontree.tree.state import protocol as tree_stimuli
from sessiontree.tree.state import protocol as tree_todo
from sessiontree.tree.state.canvas_state import CanvasState
from sessiontree.tree.state.state import TreeState, make_initial_tree
from sessiontree.version import VERSION


class SupervisorCore:
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
        await self.journal.create_tree(config.tree_id, to_wire(config))
        controller = self._make_controller(config, make_initial_tree(), agents, config.created_at_ms)
        opened = tree_stimuli.TreeOpened(controller.now_ms(), config)
        await controller.settle(opened, "created")
        return controller

    async def resume(
        self,
        tree_id: str,
        agents: Mapping[str, AgentConfig],
    ) -> TreeController:
        """Resume a tree from its journal: replay its facts, decide nothing again, and do work that is owed.

        Raises:
            TreeNotFound: the journal has no tree of that id.
            JournalCorrupt: its first facts can't be read.
        """
        config, state, last_ms = load_tree(self.journal, tree_id)
        last_seq = self.journal.last_seq(tree_id)
        newest = self.journal.read(tree_id, after_seq=last_seq - 1)
        controller = self._make_controller(
            config, state, agents, max([last_ms, *(record.at_ms for record in newest)])
        )
        controller.inbox_notifier.notified_seq = last_seq
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
        await asyncio.shield(forking)  # other requests may wait for it

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
        around = ControllerDeps(
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
        controller = self.trees[config.tree_id] = TreeController(config, state, around, last_ms)
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

    async def read(self, tree_id: str, after_seq: int, max_n: int, wait_s: float) -> list[JournalRecord]:
        """Return durable facts after a number, oldest first, waiting up to ``wait_s`` for the first.

        Raises:
            SessionTreeError: the tree can't go on in this process, so no fact will follow.
        """
        controller = self.tree(tree_id)
        controller.waiters.news.clear()
        records = self.journal.read(tree_id, after_seq=after_seq, max_n=max_n)
        if records or wait_s <= 0:
            return records
        controller.check_open()
        try:
            async with asyncio.timeout(wait_s):
                await controller.waiters.news.wait()
        except TimeoutError:
            return []
        return self.journal.read(tree_id, after_seq=after_seq, max_n=max_n)

    async def read_tree(self, tree_id: str, after_seq: int, wait_s: float) -> list[JournalRecord]:
        """Return the tree's own durable facts after a number, waiting for one that an inbox acts on.

        Raises:
            SessionTreeError: the tree can't go on in this process, so no fact will follow.
        """
        controller = self.tree(tree_id)
        try:
            async with asyncio.timeout(wait_s):
                while True:
                    if controller.inbox_notifier.notified_seq > after_seq:
                        records = self.journal.read_session(tree_id, "", after_seq=after_seq)
                        if records:
                            return records
                    if controller.inbox_notifier.reports:
                        return []
                    controller.check_open()
                    await controller.inbox_notifier.wait()
        except TimeoutError:
            return []
        return self.journal.read_session(tree_id, "", after_seq=after_seq)

    # What the creating program asks.

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

    async def decide(self, tree_id: str, decided: tree_stimuli.Decided) -> None:
        """Answer a request on behalf of a person.

        Raises:
            AnswerTooLate: it was decided before.
        """
        cause = f"decision:{decided.request_id}"
        for instruction in await self.tree(tree_id).settle(decided, cause):
            if isinstance(instruction, tree_todo.RefuseDecision):
                raise instruction.error

    # What tools ask through their handles, with their grant.

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
            SessionClosed: the grant is not valid now.
            PermissionDenied: sessions of its kind may not spawn.
            SpawnRefused, LimitExceeded: nothing was started.
            ConfigError: the result schema is not valid, or too large.
        """
        live = self.grants.check(grant, "spawn")
        session = live.session
        if request.kind not in set(SessionKind) or not isinstance(request.task, str) or not request.task:
            raise SpawnRefused(
                session,
                f"can't spawn a {request.kind!r} for the task {request.task!r}; give one of "
                f"{', '.join(SessionKind)} and a task that is not empty",
            )
        if request.result_schema is not None:
            check_model_schema(request.result_schema)
        program = request.program
        first = None if program is None else make_first_call(program, request.inputs or {})
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
            wait=request.wait,
            workspace=request.workspace,
            first_call=first,
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
        """Return a session's state."""
        live = self.grants.check(grant, "report")
        return build_session_report(live.controller, live.session)

    async def list_below(self, grant: str, wanted: SessionFilter) -> SessionRows:
        """Return the sessions below a session that fit a filter."""
        live = self.grants.check(grant, "look")
        return list_rows_below(live.controller, self.journal, live.session, wanted)

    async def read_child_history(
        self, grant: str, target: str, limit: int, before: int | None, results: bool
    ) -> Transcript:
        """Return messages of a session below the session."""
        live = self.grants.check(grant, "look")
        controller, journal = live.controller, self.journal
        return read_transcript_below(
            controller, journal, live.session, target, limit, before, results=results
        )

    async def list_agents_below(self, grant: str) -> tuple[AgentInfo, ...]:
        """Return the agents that the session may name."""
        return list_agents(self.grants.check(grant, "look").controller)

    async def send_from(
        self, grant: str, target: str, text: str, mode: SendMode, key: str, asked_by: tuple[Principal, ...]
    ) -> str:
        """Send a message of the session to another one; return the receiver's id."""
        live = self.grants.check(grant, "direct")
        return await send_message_from(live.controller, live.session, target, text, mode, key, asked_by)

    async def stop_below(self, grant: str, target: str, reason: str) -> tuple[SessionRow, ...]:
        """Stop a session below a session; return how it and those below it ended.

        Raises:
            SessionNotFound: it does not name a session below it.
        """
        live = self.grants.check(grant, "direct")
        return await stop_subtree(live.controller, self.journal, live.session, target, reason)

    async def change_canvas(
        self, grant: str, action: str, content: Mapping[str, JsonValue], key: str
    ) -> CanvasReport:
        """Change a session's canvas."""
        live = self.grants.check(grant, "show")
        controller = live.controller
        spec = controller.state.sessions[live.session].spec
        if "path" in content and controller.locate_workspace(spec) != controller.config.workspace:
            raise ExecutionError(
                "a page of a child's own workspace can't be shown from its file: present its text as html"
            )
        asked = tree_stimuli.CanvasAsked(controller.now_ms(), live.session, key, action, content)
        for instruction in await controller.settle(asked, f"canvas:{key}"):
            if isinstance(instruction, tree_todo.RefuseSay):
                raise instruction.error
        canvas = controller.state.canvases.get(live.session) or CanvasState()
        counts = {name: len(surface.components) for name, surface in canvas.surfaces.items()}
        viewers = self.canvas_viewers.count(controller.config.tree_id, live.session)
        return CanvasReport(canvas.is_shown, canvas.shows, counts, viewers)

    async def ask_image_model(
        self,
        grant: str,
        question: str,
        images: tuple[ImageContent, ...],
        key: str,
        reply: AssistantMessage | None = None,
    ) -> VisionAnswer:
        """Return the answer of the image model of a session's agent; a known key asks nothing."""
        live = self.grants.check(grant, "see")
        controller = self.tree(live.controller.config.tree_id)
        return await controller.image_questions.ask(live, question, images, key, reply)

    async def drop_image_question(self, grant: str, key: str) -> None:
        """Drop a question to the image model: nobody waits for its answer."""
        live = self.grants.check(grant, "see")
        self.tree(live.controller.config.tree_id).image_questions.drop(live.session, key)

    async def ask_canvas(self, grant: str, kind: str, code: str, key: str, timeout_s: float) -> str:
        """Ask a frame that shows a session's canvas, once for each key."""
        live = self.grants.check(grant, "show")
        tree_id = live.controller.config.tree_id
        return await self.canvas_viewers.ask(tree_id, live.session, kind, code, key, timeout_s)

    async def timed_jobs(self, grant: str) -> CronTable:
        """Return the timed jobs of a Main's tree."""
        return list_jobs(self.grants.check(grant, "schedule").controller)

    async def list_job_runs(self, grant: str, job_id: str, limit: int) -> tuple[JobRun, ...]:
        """Return runs and skips of a timed job, newest first."""
        return list_history(self.grants.check(grant, "schedule").controller, job_id, limit)

    async def change_job(
        self, grant: str, change: JobChange, key: str, asked_by: tuple[Principal, ...]
    ) -> JobRow:
        """Carry out a change of the timed jobs of a Main's tree; return the job.

        Raises:
            ExecutionError, ValidationError: it is refused.
        """
        return await change_job(self.grants.check(grant, "schedule").controller, change, key, asked_by)

    async def report_runtime_status(self, grant: str) -> RuntimeStatus:
        """Return what the runtime does, in counts over all open trees."""
        self.grants.check(grant, "operate")
        return RuntimeStatus(
            VERSION,
            len(self.trees),
            sum(node.is_live for tree in self.trees.values() for node in tree.state.sessions.values()),
            sum(1 for tree in self.trees.values() for _ in tree.state.jobs.values()),
            self._gateway.pending,
            measure_resident_bytes(),
            self.scheduler.list_pools(),
        )

    async def replace_hosts(self, grant: str) -> RestartReport:
        """Replace the hosts of the pools; one that works does so until its session is at rest."""
        self.grants.check(grant, "operate")
        return self.scheduler.replace_hosts()

    async def ensure_container(self, grant: str, protected: tuple[str, ...]) -> str:
        """Return the name of a session's container; start it if it is not running."""
        return await self.containers.name_for(self.grants.check(grant, "command"), protected)

    async def publish(self, grant: str, name: str, files: Mapping[str, bytes], entry: str) -> PublishedPage:
        """Publish a page of a session, until the session ends."""
        return self.previews.publish(self.grants.check(grant, "publish"), name, files, entry)

    async def call_server(self, grant: str, call: ServerCall) -> ServerReply:
        """Call a tool of an MCP server for a session; a Worker may call only what changes nothing."""
        live = self.grants.check(grant, "call")
        return await self.servers.call(live.controller.config.tree_id, live.kind, call)

    async def drop_server_call(self, grant: str, key: str) -> None:
        """Drop a call of an MCP server: nobody waits for its reply."""
        live = self.grants.check(grant, "call")
        self.servers.drop(live.controller.config.tree_id, key)

    async def list_child_changes(self, grant: str, target: str | None) -> tuple[ChildChanges, ...]:
        """Return what children of a session changed in workspaces of their own; see ``ChildCopies``."""
        live = self.grants.check(grant, "look")
        return await self.copies.changes(live.controller, live.session, target)

    async def read_changed_content(self, grant: str, target: str, path: str | None) -> bytes:
        """Return the content of a file that a child changed, or its patch (None)."""
        live = self.grants.check(grant, "look")
        return await self.copies.content(live.controller, live.session, target, path)

    async def settle_changes(self, grant: str, target: str, state: Literal["merged", "discarded"]) -> None:
        """Record what became of a child's changes."""
        live = self.grants.check(grant, "direct")
        await self.copies.settle(live.controller, live.session, target, state)

    def last_words(self, grant: str, reason: str) -> None:
        """End a host and its session, for the reason that the host gives.

        Raises:
            SessionClosed: the grant is not valid now.
        """
        live = self.grants.check(grant, "report")
        link = live.link
        if link is not None:
            link.blamed = live
            link.declare_lost(reason, to_blame=True)

    # What memory asks.

    async def resolve_grants(self, wanted: Sequence[tuple[str, MemoryRight]]) -> list[Whose]:
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
        return found

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


def _get_spawned(parent: str, instructions: list[tree_todo.TreeInstruction]) -> str:
    for instruction in instructions:
        if isinstance(instruction, tree_todo.AcceptSpawn):
            return instruction.session
        if isinstance(instruction, tree_todo.RefuseSpawn):
            raise instruction.error
    raise SessionTreeError(f"the spawn below {parent!r} was neither accepted nor refused")
