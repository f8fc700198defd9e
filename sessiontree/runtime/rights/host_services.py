"""What a host asks of its supervisor for the session that it embodies.

A request is declared here alone. Hosts in other processes call it through a proxy that is made from this
interface, and the supervisor answers no request that this interface does not declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

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
from sessiontree.contracts.recorded.canvas import CanvasReport
from sessiontree.contracts.recorded.child_workspaces import ChildChanges
from sessiontree.contracts.recorded.cron import CronTable, JobChange, JobRow, JobRun
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, ImageContent
from sessiontree.runtime.transport.rpc import rpc


class ChildServices(Protocol):
    """What a session asks about the sessions below it."""

    @rpc()
    async def spawn(
        self,
        grant: str,
        request: SpawnRequest,
        key: str,
        forbidden: str | None = None,
        asked_by: tuple[Principal, ...] = (),
    ) -> str:
        """Spawn a child of the session; returns its id. ``forbidden`` says why the tree's hooks refuse it."""
        ...

    @rpc()
    async def list_below(self, grant: str, wanted: SessionFilter) -> SessionRows:
        """Return the sessions below the session that fit a filter."""
        ...

    @rpc()
    async def read_child_history(
        self, grant: str, target: str, limit: int, before: int | None, results: bool
    ) -> Transcript:
        """Return messages of a session below the session."""
        ...

    @rpc()
    async def list_agents_below(self, grant: str) -> tuple[AgentInfo, ...]:
        """Return the agents that the session may name."""
        ...

    @rpc()
    async def send_from(
        self, grant: str, target: str, text: str, mode: SendMode, key: str, asked_by: tuple[Principal, ...]
    ) -> str:
        """Send a message of the session to another one; return the receiver's id."""
        ...

    @rpc()
    async def stop_below(self, grant: str, target: str, reason: str) -> tuple[SessionRow, ...]:
        """Stop a session below the session; return how it and those below it ended."""
        ...

    @rpc()
    async def list_child_changes(self, grant: str, target: str | None) -> tuple[ChildChanges, ...]:
        """Return what the session's children changed in workspaces of their own; None = of all of them."""
        ...

    @rpc()
    async def read_changed_content(self, grant: str, target: str, path: str | None) -> bytes:
        """Return the last content of a file that a child changed, or its patch (None)."""
        ...

    @rpc()
    async def settle_changes(self, grant: str, target: str, state: Literal["merged", "discarded"]) -> None:
        """Record what became of a child's changes."""
        ...


class CallServices(Protocol):
    """What the calls of a session need from outside their host."""

    @rpc()
    async def say(self, grant: str, text: str) -> None:
        """Say something on the nearest channel at or above the session."""
        ...

    @rpc()
    async def report(self, grant: str) -> SessionReport:
        """Return the session's state."""
        ...

    @rpc()
    async def publish(self, grant: str, name: str, files: Mapping[str, bytes], entry: str) -> PublishedPage:
        """Publish a page of the session."""
        ...

    @rpc()
    async def change_canvas(
        self, grant: str, action: str, content: Mapping[str, JsonValue], key: str
    ) -> CanvasReport:
        """Change the session's canvas; a repeat with the same key changes nothing."""
        ...

    @rpc()
    async def ask_canvas(self, grant: str, kind: str, code: str, key: str, timeout_s: float) -> str:
        """Ask a frame that shows the session's canvas; return its answer as JSON text."""
        ...

    @rpc()
    async def ask_image_model(
        self,
        grant: str,
        question: str,
        images: tuple[ImageContent, ...],
        key: str,
        reply: AssistantMessage | None = None,
    ) -> VisionAnswer:
        """Ask the image model of the session's agent, once for each key; return its answer.

        ``reply`` is that of a model that runs with the session: it is kept and charged, and nobody is asked.

        Raises:
            ExecutionError: the model gave no answer.
        """
        ...

    @rpc()
    async def drop_image_question(self, grant: str, key: str) -> None:
        """Drop a question to the image model: nobody waits for its answer."""
        ...

    @rpc()
    async def ensure_container(self, grant: str, protected: tuple[str, ...]) -> str:
        """Return the name of the session's container; start it if it is not running."""
        ...

    @rpc()
    async def call_server(self, grant: str, call: ServerCall) -> ServerReply:
        """Call a tool of an MCP server of the tree, or go on with a call that asked for input."""
        ...

    @rpc()
    async def drop_server_call(self, grant: str, key: str) -> None:
        """Drop a call of an MCP server: nobody waits for its reply."""
        ...


class OwnerServices(Protocol):
    """What a Main asks for its owner: timed jobs, and the runtime."""

    @rpc()
    async def timed_jobs(self, grant: str) -> CronTable:
        """Return the timed jobs of a Main's tree."""
        ...

    @rpc()
    async def list_job_runs(self, grant: str, job_id: str, limit: int) -> tuple[JobRun, ...]:
        """Return runs and skips of a timed job, newest first."""
        ...

    @rpc()
    async def change_job(
        self, grant: str, change: JobChange, key: str, asked_by: tuple[Principal, ...]
    ) -> JobRow:
        """Carry out a change of the timed jobs of a Main's tree; return the job."""
        ...

    @rpc()
    async def report_runtime_status(self, grant: str) -> RuntimeStatus:
        """Return what the runtime does."""
        ...

    @rpc()
    async def replace_hosts(self, grant: str) -> RestartReport:
        """Replace the hosts of the pools."""
        ...


class Services(ChildServices, CallServices, OwnerServices, Protocol):
    """The requests of a host to its supervisor while a call executes; the grant identifies the session.

    Raises (every method):
        SessionClosed: the grant is not valid now.
        PermissionDenied: sessions of its kind may not ask this.
    """
