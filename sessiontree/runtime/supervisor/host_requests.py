"""The supervisor's answers to hosts: each request is for the session of a grant, which is checked first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sessiontree.contracts.errors import ExecutionError, SpawnRefused
from sessiontree.contracts.facts.stimuli import SendMode
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
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.canvas import CanvasReport
from sessiontree.contracts.recorded.child_workspaces import ChildChanges
from sessiontree.contracts.recorded.cron import CronTable, JobChange, JobRow, JobRun
from sessiontree.contracts.recorded.programs import make_first_call
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, ImageContent
from sessiontree.runtime.rights.host_services import CallServices, ChildServices, OwnerServices
from sessiontree.runtime.scheduling.live_session import build_session_report
from sessiontree.runtime.supervisor.subtree import (
    list_agents,
    list_rows_below,
    read_transcript_below,
    send_message_from,
    stop_subtree,
)
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.supervisor.timed_jobs import change_job, list_history, list_jobs
from sessiontree.runtime.transport.rpc import RpcAnswers
from sessiontree.schema.result import check_model_schema
from sessiontree.tree.state import protocol as tree_stimuli
from sessiontree.tree.state.canvas_state import CanvasState


def answer_hosts(supervisor: Supervisor) -> RpcAnswers:
    """Return the answers of a supervisor to the requests of its hosts."""
    return RpcAnswers(ChildRequests(supervisor), CallRequests(supervisor), OwnerRequests(supervisor))


class ChildRequests(ChildServices):
    """Answers what sessions ask about the sessions below them."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

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
        live = self._supervisor.grants.check(grant, "spawn")
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
        return await self._supervisor.spawn_child(live.controller.config.tree_id, asked, f"spawn:{key}")

    async def list_below(self, grant: str, wanted: SessionFilter) -> SessionRows:
        """Return the sessions below a session that fit a filter."""
        live = self._supervisor.grants.check(grant, "look")
        return list_rows_below(live.controller, self._supervisor.journal, live.session, wanted)

    async def read_child_history(
        self, grant: str, target: str, limit: int, before: int | None, results: bool
    ) -> Transcript:
        """Return messages of a session below the session."""
        live = self._supervisor.grants.check(grant, "look")
        controller, journal = live.controller, self._supervisor.journal
        return read_transcript_below(
            controller, journal, live.session, target, limit, before, results=results
        )

    async def list_agents_below(self, grant: str) -> tuple[AgentInfo, ...]:
        """Return the agents that the session may name."""
        return list_agents(self._supervisor.grants.check(grant, "look").controller)

    async def send_from(
        self, grant: str, target: str, text: str, mode: SendMode, key: str, asked_by: tuple[Principal, ...]
    ) -> str:
        """Send a message of the session to another one; return the receiver's id."""
        live = self._supervisor.grants.check(grant, "direct")
        return await send_message_from(live.controller, live.session, target, text, mode, key, asked_by)

    async def stop_below(self, grant: str, target: str, reason: str) -> tuple[SessionRow, ...]:
        """Stop a session below a session; return how it and those below it ended.

        Raises:
            SessionNotFound: it does not name a session below it.
        """
        live = self._supervisor.grants.check(grant, "direct")
        return await stop_subtree(live.controller, self._supervisor.journal, live.session, target, reason)

    async def list_child_changes(self, grant: str, target: str | None) -> tuple[ChildChanges, ...]:
        """Return what children of a session changed in workspaces of their own; see ``ChildCopies``."""
        live = self._supervisor.grants.check(grant, "look")
        return await self._supervisor.copies.changes(live.controller, live.session, target)

    async def read_changed_content(self, grant: str, target: str, path: str | None) -> bytes:
        """Return the content of a file that a child changed, or its patch (None)."""
        live = self._supervisor.grants.check(grant, "look")
        return await self._supervisor.copies.content(live.controller, live.session, target, path)

    async def settle_changes(self, grant: str, target: str, state: Literal["merged", "discarded"]) -> None:
        """Record what became of a child's changes."""
        live = self._supervisor.grants.check(grant, "direct")
        await self._supervisor.copies.settle(live.controller, live.session, target, state)


class CallRequests(CallServices):
    """Answers what the calls of sessions need from outside their hosts."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def say(self, grant: str, text: str) -> None:
        """Say something on the nearest channel at or above a session."""
        live = self._supervisor.grants.check(grant, "say")
        asked = tree_stimuli.ChannelMessageAsked(live.controller.now_ms(), live.session, text)
        for instruction in await live.controller.settle(asked, f"say:{live.session}"):
            if isinstance(instruction, tree_stimuli.RefuseChannelMessage):
                raise instruction.error

    async def report(self, grant: str) -> SessionReport:
        """Return a session's state."""
        live = self._supervisor.grants.check(grant, "report")
        return build_session_report(live.controller, live.session)

    async def publish(self, grant: str, name: str, files: Mapping[str, bytes], entry: str) -> PublishedPage:
        """Publish a page of a session, until the session ends."""
        return self._supervisor.previews.publish(
            self._supervisor.grants.check(grant, "publish"), name, files, entry
        )

    async def change_canvas(
        self, grant: str, action: str, content: Mapping[str, JsonValue], key: str
    ) -> CanvasReport:
        """Change a session's canvas."""
        live = self._supervisor.grants.check(grant, "show")
        controller = live.controller
        spec = controller.state.sessions[live.session].spec
        if "path" in content and controller.locate_workspace(spec) != controller.config.workspace:
            raise ExecutionError(
                "a page of a child's own workspace can't be shown from its file: present its text as html"
            )
        asked = tree_stimuli.CanvasAsked(controller.now_ms(), live.session, key, action, content)
        for instruction in await controller.settle(asked, f"canvas:{key}"):
            if isinstance(instruction, tree_stimuli.RefuseChannelMessage):
                raise instruction.error
        canvas = controller.state.canvases.get(live.session) or CanvasState()
        counts = {name: len(surface.components) for name, surface in canvas.surfaces.items()}
        viewers = self._supervisor.canvas_viewers.count(controller.config.tree_id, live.session)
        return CanvasReport(canvas.is_shown, canvas.shows, counts, viewers)

    async def ask_canvas(self, grant: str, kind: str, code: str, key: str, timeout_s: float) -> str:
        """Ask a frame that shows a session's canvas, once for each key."""
        live = self._supervisor.grants.check(grant, "show")
        tree_id = live.controller.config.tree_id
        return await self._supervisor.canvas_viewers.ask(tree_id, live.session, kind, code, key, timeout_s)

    async def ask_image_model(
        self,
        grant: str,
        question: str,
        images: tuple[ImageContent, ...],
        key: str,
        reply: AssistantMessage | None = None,
    ) -> VisionAnswer:
        """Return the answer of the image model of a session's agent; a known key asks nothing."""
        live = self._supervisor.grants.check(grant, "see")
        controller = self._supervisor.tree(live.controller.config.tree_id)
        return await controller.image_questions.ask(live, question, images, key, reply)

    async def drop_image_question(self, grant: str, key: str) -> None:
        """Drop a question to the image model: nobody waits for its answer."""
        live = self._supervisor.grants.check(grant, "see")
        self._supervisor.tree(live.controller.config.tree_id).image_questions.drop(live.session, key)

    async def ensure_container(self, grant: str, protected: tuple[str, ...]) -> str:
        """Return the name of a session's container; start it if it is not running."""
        return await self._supervisor.containers.name_for(
            self._supervisor.grants.check(grant, "command"), protected
        )

    async def call_server(self, grant: str, call: ServerCall) -> ServerReply:
        """Call a tool of an MCP server for a session; a Worker may call only what changes nothing."""
        live = self._supervisor.grants.check(grant, "call")
        return await self._supervisor.servers.call(live.controller.config.tree_id, live.kind, call)

    async def drop_server_call(self, grant: str, key: str) -> None:
        """Drop a call of an MCP server: nobody waits for its reply."""
        live = self._supervisor.grants.check(grant, "call")
        self._supervisor.servers.drop(live.controller.config.tree_id, key)


class OwnerRequests(OwnerServices):
    """Answers what a Main asks for its owner."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def timed_jobs(self, grant: str) -> CronTable:
        """Return the timed jobs of a Main's tree."""
        return list_jobs(self._supervisor.grants.check(grant, "schedule").controller)

    async def list_job_runs(self, grant: str, job_id: str, limit: int) -> tuple[JobRun, ...]:
        """Return runs and skips of a timed job, newest first."""
        return list_history(self._supervisor.grants.check(grant, "schedule").controller, job_id, limit)

    async def change_job(
        self, grant: str, change: JobChange, key: str, asked_by: tuple[Principal, ...]
    ) -> JobRow:
        """Carry out a change of the timed jobs of a Main's tree; return the job.

        Raises:
            ExecutionError, ValidationError: it is refused.
        """
        return await change_job(
            self._supervisor.grants.check(grant, "schedule").controller, change, key, asked_by
        )

    async def report_runtime_status(self, grant: str) -> RuntimeStatus:
        """Return what the runtime does, in counts over all open trees."""
        self._supervisor.grants.check(grant, "operate")
        return self._supervisor.describe()

    async def replace_hosts(self, grant: str) -> RestartReport:
        """Replace the hosts of the pools; one that works does so until its session is at rest."""
        self._supervisor.grants.check(grant, "operate")
        return self._supervisor.scheduler.replace_hosts()
