"""Contexts for running one tool, and handles that record their calls.

::

    ctx = make_context(tmp_path, SessionKind.WORKER)
    result = await call_tool(MyTool(), ctx, path="notes.md")

The reader and writer are the real ones; a context has only the handles that its kind may have. Its memory
compares words, not meanings, and sees every record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import pydantic

from sessiontree.contracts.errors import ExecutionError, SessionNotFound, SessionTreeError, ValidationError
from sessiontree.contracts.handles.browser import Browser
from sessiontree.contracts.handles.http_requests import HttpSender
from sessiontree.contracts.handles.image_facts import ImageInspector
from sessiontree.contracts.handles.jobs import Jobs
from sessiontree.contracts.handles.mcp import ServerTools
from sessiontree.contracts.handles.nodes import Nodes
from sessiontree.contracts.handles.ports import (
    AgentInfo,
    Channel,
    Memory,
    MemoryWriter,
    Reader,
    SessionFilter,
    SessionReport,
    SessionRow,
    SessionRows,
    Sessions,
    Shell,
    SpawnRequest,
    Status,
    Subtree,
    Transcript,
    Web,
    Writer,
)
from sessiontree.contracts.handles.previews import Previews, PublishedPage
from sessiontree.contracts.handles.runtime_control import RuntimeControl
from sessiontree.contracts.handles.speech import SpeechSynthesizer
from sessiontree.contracts.handles.vision import Vision
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.canvas import Canvas, CanvasAction, CanvasQuestionKind, CanvasReport
from sessiontree.contracts.recorded.capabilities import (
    BROWSER,
    CANVAS,
    CHANNEL,
    CHILD_WORKSPACES,
    CRON,
    HTTP,
    IMAGES,
    JOBS,
    MCP,
    MEMORY,
    MEMORY_WRITER,
    NODES,
    PREVIEWS,
    READER,
    RUNTIME,
    SESSIONS,
    SHELL,
    SPEECH,
    SUBTREE,
    VISION,
    WEB,
    WRITER,
    Capability,
    list_capabilities,
)
from sessiontree.contracts.recorded.child_workspaces import ChildWorkspaces
from sessiontree.contracts.recorded.cron import Cron, CronTable, JobChange, JobRow, JobRun
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import CallSignals, SessionRights, ToolContext
from sessiontree.contracts.tools.tool import RawTool, Tool, list_declared_handles
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.memory import (
    MemoryHit,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Selection,
    Source,
)
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.images import ImageProcess
from sessiontree.workspace import WorkspaceReader, WorkspaceWriter

SCOPE = MemoryScope("tree", "main", "default", "/workspace")


@dataclass(slots=True)
class PlainMemory:
    """Keeps records in a list; behaves like memory, but without a store.

    Args:
        failure: An error to raise instead of answering, if given.
    """

    failure: Exception | None = None
    records: list[MemoryRecord] = field(default_factory=list)
    """In the order they were stored."""
    stores: dict[str, list[str]] = field(default_factory=dict)
    """Key to ids; a repeated key adds none."""

    async def search(self, query: MemoryQuery) -> list[MemoryHit]:
        """Return records that hold a word of the query, by the share of its words they hold."""
        self._check()
        words = query.text.casefold().split()
        hits = [
            MemoryHit(record, sum(word in record.text.casefold() for word in words) / len(words))
            for record in self.records
            if (not query.types or record.type in query.types) and _is_at(record, query.path)
        ]
        found = [hit for hit in hits if hit.score > 0 and hit.score >= query.min_score]
        return sorted(found, key=lambda hit: -hit.score)[: query.limit]

    async def select(self, selection: Selection, *, limit: int) -> list[MemoryRecord]:
        """Return at most ``limit`` of the records that a selection names, oldest first."""
        self._check()
        return self._select(selection)[:limit]

    async def store(self, records: Sequence[NewRecord], *, key: str) -> list[str]:
        """Keep records once for a key; ids count up."""
        self._check()
        if key not in self.stores:
            first = len(self.records)
            made = [
                MemoryRecord(
                    f"{first + at:032x}", new.type, new.text, new.source, new.trust, SCOPE, first + at
                )
                for at, new in enumerate(records)
            ]
            self.records += made
            self.stores[key] = [record.id for record in made]
        return list(self.stores[key])

    async def forget(self, selection: Selection, *, key: str) -> list[str]:
        """Drop the records a selection names, whatever the ``key``; returns their ids."""
        self._check()
        gone = [record.id for record in self._select(selection)]
        self.records = [record for record in self.records if record.id not in gone]
        return gone

    def _select(self, selection: Selection) -> list[MemoryRecord]:
        first, last = selection.first or 1, selection.last or 10**9
        return [
            record
            for record in self.records
            if (not selection.ids or record.id in selection.ids)
            and _is_at(record, selection.path)
            and (selection.path is None or Source.of(record.source or "-").overlaps(first, last))
        ]

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure


def _is_at(record: MemoryRecord, path: str | None) -> bool:
    if path is None:
        return True
    if record.source is None:
        return False
    found = Source.of(record.source).path
    return found == path or found.startswith(f"{path.rstrip('/')}/")


H = TypeVar("H")

SESSION_IDS: Final = {
    SessionKind.MAIN: "main",
    SessionKind.BRANCH: "main/b1",
    SessionKind.WORKER: "main/w1",
}
"""Which session a context belongs to, by kind."""


@dataclass(slots=True)
class RecordingChannel:
    """A channel without a reader; it keeps the messages."""

    sent: list[str] = field(default_factory=list)

    async def send(self, text: str) -> None:
        """Keep the text."""
        self.sent.append(text)


@dataclass(slots=True)
class RecordingSessions:
    """Starts and stops no session; keeps each request and answers with the id its child would have.

    Args:
        parent: Path of the parent session.
        refusal: An error to raise instead, if given.
        rows: The sessions below it; a stop returns those it names.
    """

    parent: str = "main"
    refusal: SessionTreeError | None = None
    rows: Sequence[SessionRow] = ()
    sent: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Key to target, text and mode, in the order they came; a repeated key adds none."""
    stopped: dict[str, str] = field(default_factory=dict)
    """Target to reason of what was stopped."""
    spawned: dict[str, SpawnRequest] = field(default_factory=dict)
    """Key to request, in the order they came; a repeated key adds none."""

    async def spawn(self, request: SpawnRequest, *, key: str) -> str:
        """Return ``parent/b1``, ``parent/w2`` and so on; the same for the same key.

        Raises:
            SpawnRefused: a refusal was given.
        """
        if self.refusal is not None:
            raise self.refusal
        kept = self.spawned.setdefault(key, request)
        number = list(self.spawned).index(key) + 1
        return f"{self.parent}/{str(kept.kind)[0]}{number}"

    async def send_to(self, target: str, text: str, *, mode: Literal["follow_up", "steer"], key: str) -> str:
        """Keep target, ``text`` and ``mode`` of a message, once for a ``key``; return the target.

        Raises:
            SessionTreeError: a refusal was given.
        """
        if self.refusal is not None:
            raise self.refusal
        return self.sent.setdefault(key, (target, text, mode))[0]

    async def stop(self, target: str, *, reason: str) -> tuple[SessionRow, ...]:
        """Keep the reason; return the given row of the target and those below it.

        Raises:
            SessionNotFound: no row is of that session.
        """
        if self.refusal is not None:
            raise self.refusal
        ended = tuple(row for row in self.rows if f"{row.session_id}/".startswith(f"{target}/"))
        if not ended:
            raise SessionNotFound(target, "no session below you has that id or label")
        self.stopped[target] = reason
        return ended


@dataclass(slots=True)
class RecordingSubtree:
    """Shows the same sessions whenever it is asked.

    Args:
        rows: The sessions below, as lists show them.
        transcripts: Transcripts of some of them.
        known: The agents of the tree.
    """

    rows: Sequence[SessionRow] = ()
    transcripts: Sequence[Transcript] = ()
    known: Sequence[AgentInfo] = ()

    async def history(
        self, target: str, *, limit: int, before: int | None = None, results: bool = True
    ) -> Transcript:
        """Return the given transcript of ``target``, with at most ``limit`` entries.

        They are those with a lower number than ``before``, without those of tools unless ``results``.

        Raises:
            SessionNotFound: no transcript is of that session.
        """
        for each in self.transcripts:
            if each.session_id == target:
                fit = [
                    entry
                    for entry in each.entries
                    if (before is None or entry.number < before) and (results or entry.role != "tool")
                ]
                return replace(each, entries=tuple(fit[-limit:]), has_earlier=len(fit) > limit)
        raise SessionNotFound(target, "no session below you has that id or label")

    async def agents(self) -> tuple[AgentInfo, ...]:
        """Return the given agents."""
        return tuple(self.known)

    async def sessions(self, wanted: SessionFilter) -> SessionRows:
        """Return the given rows that fit the filter ``wanted``, in the given order."""
        fit = [
            row
            for row in self.rows
            if wanted.kind in {None, row.kind} and wanted.is_live in {None, not row.status.is_final}
        ]
        return SessionRows(tuple(fit[: wanted.limit]), max(0, len(fit) - wanted.limit))


@dataclass(slots=True)
class RecordingCanvas:
    """Shows nothing; it keeps what it is asked, and answers questions with what it was given.

    Args:
        refusal: An error to raise instead, if given.
        answer: What a frame answers.
    """

    refusal: SessionTreeError | None = None
    answer: JsonValue = None
    changes: dict[str, tuple[str, dict[str, JsonValue]]] = field(default_factory=dict)
    """Key to the action and its content; a repeated key changes nothing."""
    asked: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Key to the kind of question and its script."""

    async def change(
        self, action: CanvasAction, content: Mapping[str, JsonValue], *, key: str
    ) -> CanvasReport:
        """Keep the ``content`` of an ``action`` by its ``key``.

        Raises:
            SessionTreeError: a refusal was given.
        """
        if self.refusal is not None:
            raise self.refusal
        self.changes.setdefault(key, (action, dict(content)))
        return CanvasReport(action != "hide", "html", {}, 0)

    async def ask(self, kind: CanvasQuestionKind, code: str, *, key: str, timeout_s: float) -> JsonValue:
        """Keep the ``kind`` and ``code`` by their ``key``; return the answer at once, within ``timeout_s``.

        Raises:
            SessionTreeError: a refusal was given.
        """
        if self.refusal is not None:
            raise self.refusal
        self.asked[key] = (kind, code)
        return self.answer


@dataclass(slots=True)
class RecordingPreviews:
    """Serves nothing; it keeps the pages.

    Args:
        refusal: An error to raise instead, if given.
    """

    refusal: SessionTreeError | None = None
    published: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Name to the files of the page."""

    async def publish(self, name: str, files: Mapping[str, bytes], *, entry: str) -> PublishedPage:
        """Keep the ``files``; return an address made of ``name`` and ``entry``.

        Raises:
            SessionTreeError: a refusal was given.
        """
        if self.refusal is not None:
            raise self.refusal
        replaced = name in self.published
        self.published[name] = dict(files)
        return PublishedPage(f"http://127.0.0.1:1/{name}/{entry}", replaced)


@dataclass(slots=True)
class RecordingCron:
    """Runs no job; keeps each change and answers with the given job.

    Args:
        rows: The tree's jobs; a change answers with the one that it names, or the first.
        runs: The history of each of them, newest first.
        refusal: An error to raise instead of carrying out a change, if given.
    """

    rows: Sequence[JobRow] = ()
    runs: Sequence[JobRun] = ()
    refusal: SessionTreeError | None = None
    changes: dict[str, JobChange] = field(default_factory=dict)
    """Key to change, in the order they came; a repeated key adds none."""

    async def jobs(self) -> CronTable:
        """Return the given jobs, at the beginning of 1970."""
        return CronTable(0, tuple(self.rows))

    async def history(self, job_id: str, *, limit: int) -> tuple[JobRun, ...]:
        """Return at most ``limit`` of the given runs.

        Raises:
            ExecutionError: no given job is called ``job_id``.
        """
        self._find_row(job_id)
        return tuple(self.runs[:limit])

    async def change(self, change: JobChange, *, key: str) -> JobRow:
        """Keep a ``change`` once for a ``key``; return the job.

        Raises:
            SessionTreeError: a refusal was given.
            ExecutionError: no given job has the id.
        """
        if self.refusal is not None:
            raise self.refusal
        self.changes.setdefault(key, change)
        return self._find_row(change.job_id)

    def _find_row(self, job_id: str) -> JobRow:
        for row in self.rows:
            if job_id in {"", row.job.job_id}:
                return row
        raise ExecutionError(f"no job is called {job_id!r}")


@dataclass(frozen=True, slots=True)
class FixedStatus:
    """Always reports the same status."""

    fixed: SessionReport

    async def report(self) -> SessionReport:
        """Return the report it was made with."""
        return self.fixed


class ByKind:
    """Stands for a handle that is not given: the session's kind decides."""


BY_KIND: Final = ByKind()
"""The handle that a session of the kind has in a tree, or none."""


def make_context(  # noqa: PLR0913 - one keyword per handle, as a context has them
    root: Path,
    kind: SessionKind = SessionKind.MAIN,
    *,
    reader: Reader | ByKind | None = BY_KIND,
    writer: Writer | ByKind | None = BY_KIND,
    channel: Channel | ByKind | None = BY_KIND,
    sessions: Sessions | ByKind | None = BY_KIND,
    subtree: Subtree | ByKind | None = BY_KIND,
    child_workspaces: ChildWorkspaces | None = None,
    cron: Cron | None = None,
    memory: Memory | None = None,
    memory_writer: MemoryWriter | None = None,
    web: Web | None = None,
    http: HttpSender | None = None,
    images: ImageInspector | ByKind | None = BY_KIND,
    vision: Vision | None = None,
    speech: SpeechSynthesizer | None = None,
    nodes: Nodes | None = None,
    runtime: RuntimeControl | None = None,
    shell: Shell | None = None,
    browser: Browser | None = None,
    previews: Previews | None = None,
    jobs: Jobs | None = None,
    canvas: Canvas | None = None,
    mcp: ServerTools | None = None,
    status: Status | None = None,
    config: AgentConfig | None = None,
    call_id: str = "call-1",
    tree_id: str = "t-1",
    signals: CallSignals | None = None,
) -> ToolContext:
    """Return the context of one call in a session of the given kind.

    Args:
        root: The workspace, an existing directory.
        kind: Decides the session's id, and its default for each of the first five handles.
        reader: By default reads beneath ``root``; None removes it.
        writer: By default writes beneath ``root``; None removes it.
        channel: By default a :class:`RecordingChannel`; None removes it.
        sessions: By default a :class:`RecordingSessions`; None removes it.
        subtree: By default a :class:`RecordingSubtree` without sessions; None removes it.
        child_workspaces: Leads to what children changed in workspaces of their own.
        cron: The tree's timed jobs.
        memory: Searches memory.
        memory_writer: Adds to memory.
        web: Reads the web.
        http: Sends HTTP requests.
        images: By default the real process for images; None removes it.
        vision: Asks a model about images.
        speech: Speaks texts.
        nodes: Knows the machines of the runtime.
        runtime: The runtime itself.
        shell: Runs commands.
        browser: Opens pages.
        previews: Publishes pages.
        jobs: Runs commands in the background.
        canvas: Shows pages and surfaces.
        mcp: Calls tools of MCP servers.
        status: By default a :class:`FixedStatus` of an active session that used nothing.
        config: The agent's configuration; its id is the context's agent.
        call_id: Names the call.
        tree_id: Names the tree.
        signals: The call's signals, to cancel it or to watch it; by default the call has one minute.
    """
    rights = replace(_rights_without_handles(kind, root, config or AgentConfig(), status, tree_id),
        reader=_handle(READER, kind, reader, lambda: WorkspaceReader(root)),
        memory=_handle(MEMORY, kind, memory), web=_handle(WEB, kind, web), http=_handle(HTTP, kind, http),
        images=_handle(IMAGES, kind, images, ImageProcess), vision=_handle(VISION, kind, vision),
        speech=_handle(SPEECH, kind, speech), nodes=_handle(NODES, kind, nodes),
        runtime=_handle(RUNTIME, kind, runtime), shell=_handle(SHELL, kind, shell),
        writer=_handle(WRITER, kind, writer, lambda: WorkspaceWriter(root)),
        channel=_handle(CHANNEL, kind, channel, RecordingChannel), browser=_handle(BROWSER, kind, browser),
        memory_writer=_handle(MEMORY_WRITER, kind, memory_writer),
        sessions=_handle(SESSIONS, kind, sessions, lambda: RecordingSessions(SESSION_IDS[kind])),
        subtree=_handle(SUBTREE, kind, subtree, RecordingSubtree), previews=_handle(PREVIEWS, kind, previews),
        jobs=_handle(JOBS, kind, jobs), child_workspaces=_handle(CHILD_WORKSPACES, kind, child_workspaces),
        canvas=_handle(CANVAS, kind, canvas), cron=_handle(CRON, kind, cron), mcp=_handle(MCP, kind, mcp),
    )  # fmt: skip
    return ToolContext(rights, call_id, signals or CallSignals(time.monotonic() + 60))


def _rights_without_handles(
    kind: SessionKind, root: Path, config: AgentConfig, status: Status | None, tree_id: str
) -> SessionRights:
    return SessionRights(
        session_id=SESSION_IDS[kind],
        agent_id=config.agent_id,
        kind=kind,
        workspace_root=root,
        config=config,
        status=status or FixedStatus(fresh_report(kind)),
        tree_id=tree_id,
    )


async def call_tool(tool: Tool[Any], ctx: ToolContext, /, **arguments: Any) -> ToolResult:
    """Validate the arguments against the tool's own model and run it with ``ctx``.

    Names are not normalised, no policy applies, and the result is not cut. As in a tree, the tool gets only
    those handles of the context that its class declares.

    Raises:
        ValidationError: an argument is not valid; names the first such argument.
        ToolError: raised by the tool.
    """
    # As in a tree: a tool that uses a handle which it does not declare must fail in its tests, too.
    rights = ctx._rights.narrowed(tool.name, list_declared_handles(tool))  # noqa: SLF001 - what a dispatcher does
    ctx = ToolContext(rights, ctx.call_id, ctx._signals)  # noqa: SLF001 - as above
    if isinstance(tool, RawTool):
        return await tool.execute(arguments, ctx)
    try:
        params = tool.Params.model_validate(arguments)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        pointer = "".join(f"/{part}" for part in first["loc"])
        raise ValidationError(first["msg"], pointer or None) from error
    return await tool.execute(params, ctx)


def fresh_report(kind: SessionKind) -> SessionReport:
    """Return the status of a session of this ``kind`` that has done nothing yet."""
    return SessionReport(
        session_id=SESSION_IDS[kind],
        kind=kind,
        status=SessionStatus.ACTIVE,
        depth=SESSION_IDS[kind].count("/"),
        model="scripted",
        turns=0,
        usage=Usage(),
        children=(),
        pending_approvals=0,
        budget_left={},
        expires_at_ms=None,
        confinement="structural",
        approval_mode="always",
        system_tier="allow",
        exec_security="full" if SHELL.name in list_capabilities(kind) else None,
    )


def _handle(
    capability: Capability[H],
    kind: SessionKind,
    given: H | ByKind | None,
    make: Callable[[], H] | None = None,
) -> H | None:
    may = capability.name in list_capabilities(kind)
    if isinstance(given, ByKind):
        return make() if may and make is not None else None
    if given is not None and not may:
        raise ValueError(f"a {kind} never holds a {capability.name}")
    return given
