"""What a session may hold: its tools by the policy of its tree, its handles by its kind.

A tree's policy is compiled into the first row of its journal, and asked again whenever a host takes a session
up. Each tool gets the handles that it declares; they lead to the supervisor, memory and the web.
Long because each handle has a class here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, cast
from weakref import WeakKeyDictionary, WeakSet

from sessiontree.contracts.errors import ConfigError, ExecutionError, SessionClosed, SessionTreeError
from sessiontree.contracts.facts.stimuli import SendMode
from sessiontree.contracts.facts.tree_config import PolicyRow, RemovedTools, SessionSpec, TreeConfig
from sessiontree.contracts.handles.browser import Browser
from sessiontree.contracts.handles.http_requests import HttpSender
from sessiontree.contracts.handles.image_facts import ImageInspector
from sessiontree.contracts.handles.jobs import Jobs
from sessiontree.contracts.handles.mcp import ServerCall, ServerReply, ServerTools
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
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.canvas import Canvas, CanvasAction, CanvasQuestionKind, CanvasReport
from sessiontree.contracts.recorded.capabilities import BROWSER, SPEECH, VISION
from sessiontree.contracts.recorded.child_workspaces import ChildChanges, ChildWorkspaces
from sessiontree.contracts.recorded.cron import Cron, CronTable, JobChange, JobRow, JobRun
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.settings.settings import get_default_settings
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import SessionRights
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.memory import MemoryHit, MemoryQuery, MemoryRecord, NewRecord, Selection
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.policy.compiled import CompiledPolicy, SessionPolicy, compile_policy
from sessiontree.policy.settings import PolicyConfig
from sessiontree.policy.steps import PROGRAM, TOOL_SEARCH, Standing, WebAccess

if TYPE_CHECKING:  # a program that makes a tree loads nothing of its hosts
    from sessiontree.runtime.memory.memory_api import MemoryApi
    from sessiontree.runtime.rights.host_services import Services

OWNERS: Final = frozenset({SessionKind.MAIN})
"""Kinds whose turns may act for an owner, and no child inherits that; whoever else a turn acts for takes
tools away from it (``SessionPolicy.find_withheld``)."""


def make_policy_row(
    policy: PolicyConfig,
    group: str,
    table: ToolTable,
    models: Mapping[str, str],
    named: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> tuple[PolicyRow, tuple[str, ...]]:
    """Return the policy of a new tree for its journal, and warnings about entries that are probably mistakes.

    Args:
        policy: The owner's lists.
        group: Group of Main's channel.
        table: The tree's tools.
        models: Agent to the name of its model.
        named: Agent to the names in its list of tools, if it has one.

    Raises:
        ConfigError: the policy is strict, and an entry matches nothing.
    """
    judge = compile_policy(table.rows, policy)
    unknown = [agent for agent in policy.agents if agent not in models]
    strangers = tuple(f"agents.{agent}: the tree has no agent of that name" for agent in unknown)
    if policy.strict and strangers:
        raise ConfigError(f"policy (strict): {'; '.join(strangers)}; correct or remove the entry")
    removed = []
    for agent, model in models.items():
        for kind in SessionKind:
            standing = make_tool_standing(kind, agent, model, group, named=named.get(agent, frozenset()))
            kept = judge.decide(standing).kept
            gone = sorted([row.name for row in table.rows if kind in row.kinds and row.name not in kept])
            if gone:
                removed.append(RemovedTools(agent, kind, tuple(gone)))
    return PolicyRow(
        policy.model_dump(mode="json", exclude_defaults=True), group, tuple(removed)
    ), judge.warnings + strangers


def read_journaled_policy(config: TreeConfig) -> tuple[PolicyConfig, str]:
    """Return a journaled tree's policy and group; entries without a match are no longer an error."""
    if config.policy is None:
        return get_default_settings(PolicyConfig), ""
    if not config.policy.config:
        return get_default_settings(PolicyConfig), config.policy.group
    return PolicyConfig.model_validate({**config.policy.config, "strict": False}), config.policy.group


def describe_denial(config: TreeConfig, specs: Iterable[SessionSpec]) -> str:
    """Return each setting that refuses a session its System calls, as an error says it.

    Args:
        config: The tree.
        specs: The session, then each one above it.
    """
    policy, group = read_journaled_policy(config)
    found = []
    if config.system_tier == "deny":
        found.append("in Main's channel")
    if policy.system_tier == "deny":
        found.append("in the tree's policy")
    if policy.system_tier_by_group.get(group) == "deny":
        found.append(f"in the tree's policy for group {group!r}")
    if found:  # these are part of each agent's setting
        return " and ".join(found)
    rows = {row.name: row for row in config.agents}
    for number, spec in enumerate(specs):
        agent = spec.agent
        if rows[agent].system_tier == "deny":
            where = "in the tree's policy for" if policy.system_tier_by_agent.get(agent) == "deny" else "for"
            whose = f", the agent of session {spec.session_id!r} above it" if number else ""
            found.append(f"{where} agent {agent!r}{whose}")
    return " and ".join(found)


def make_session_policy(
    policy: CompiledPolicy,
    group: str,
    spec: SessionSpec,
    model: str,
    *,
    has_channel: bool,
    web: WebAccess = "search",
    missing: Collection[str] = (),
) -> SessionPolicy:
    """Return a tree's policy for one of its sessions.

    ``missing`` are the capabilities whose programs are not installed where it runs, or whose model its agent
    does not have: browser, speech and vision; and ``program`` and ``tool_search`` if it can't use them.
    """
    standing = Standing(
        spec.kind,
        spec.kind in OWNERS,
        spec.agent,
        model,
        group,
        has_channel,
        web,
        frozenset(spec.tools),
        has_browser=BROWSER.name not in missing,
        has_speech=SPEECH.name not in missing,
        has_vision=VISION.name not in missing,
        has_interpreter=PROGRAM not in missing,
        has_tool_search=TOOL_SEARCH not in missing,
        delegates=frozenset(spec.delegates),
    )
    return SessionPolicy(policy, standing)


def make_tool_standing(
    kind: SessionKind,
    agent: str,
    model: str,
    group: str,
    *,
    has_channel: bool = True,
    web: WebAccess = "search",
    named: frozenset[str] = frozenset(),
) -> Standing:
    """Return the properties of a session on which the policy decides about its tools."""
    return Standing(kind, kind in OWNERS, agent, model, group, has_channel, web, named)


P = ParamSpec("P")
PORTS: Final[Mapping[str, type[Any]]] = {
    "status": Status,
    "reader": Reader,
    "memory": Memory,
    "web": Web,
    "writer": Writer,
    "shell": Shell,
    "browser": Browser,
    "jobs": Jobs,
    "channel": Channel,
    "memory_writer": MemoryWriter,
    "sessions": Sessions,
    "subtree": Subtree,
    "runtime": RuntimeControl,
    "canvas": Canvas,
    "http": HttpSender,
    "previews": Previews,
    "images": ImageInspector,
    "vision": Vision,
    "speech": SpeechSynthesizer,
    "child_workspaces": ChildWorkspaces,
    "nodes": Nodes,
    "cron": Cron,
    "mcp": ServerTools,
}
"""Member of a session's rights to the protocol of its handle."""
_BEHIND: Final[WeakKeyDictionary[object, Any]] = WeakKeyDictionary()


class Facades:
    """The facades of one embodied session.

    Args:
        session: Its path.
    """

    __slots__ = ("_made", "_session")

    def __init__(self, session: str) -> None:
        self._session = session
        self._made: WeakSet[object] = WeakSet()

    def rights(self, rights: SessionRights) -> SessionRights:
        """Return the rights with a facade in place of each handle."""
        held = {name: getattr(rights, name) for name in PORTS}
        made: dict[str, Any] = {
            name: self._make_facade(_CLASSES[name], handle)
            for name, handle in held.items()
            if handle is not None
        }
        return replace(rights, **made)

    def reader(self, reader: Reader) -> Reader:
        """Return a facade of another reader, for one call."""
        return cast("Reader", self._make_facade(_CLASSES["reader"], reader))

    def writer(self, writer: Writer) -> Writer:
        """Return a facade of another writer, for one call."""
        return cast("Writer", self._make_facade(_CLASSES["writer"], writer))

    def jobs(self, jobs: Jobs) -> Jobs:
        """Return a facade of other jobs, for one call."""
        return cast("Jobs", self._make_facade(_CLASSES["jobs"], jobs))

    def _make_facade(self, made: type[Facade], handle: object) -> Facade:
        facade = made.__new__(made)
        facade._session = self._session  # noqa: SLF001 - each session has twenty of them
        _BEHIND[facade] = handle
        self._made.add(facade)
        return facade

    def notice(self, told: Callable[P, None]) -> Callable[P, None]:
        """Return a function that calls another one; after the session was let go it does nothing."""
        facade = Notice[P]()
        _BEHIND[facade] = told
        self._made.add(facade)
        return facade

    def close(self) -> None:
        """Disconnect all facades: whoever still holds one gets SessionClosed."""
        for facade in list(self._made):
            _BEHIND.pop(facade, None)
        self._made.clear()


class Facade:
    """Offers the methods of one protocol; a class of its own for each."""

    __slots__ = ("__weakref__", "_session")

    _session: str
    """The session's id, for the error after the facade was disconnected."""


class Notice(Generic[P]):
    """Calls the function behind it until it is disconnected."""

    __slots__ = ("__weakref__",)

    def __call__(self, *given: P.args, **named: P.kwargs) -> None:
        """Call the function."""
        told = _BEHIND.get(self)
        if told is not None:
            told(*given, **named)


def _make_facade_class(port: type[Any]) -> type[Facade]:
    """Return the class of a protocol's facades: it has the protocol's members and no other attribute."""
    members: dict[str, Any] = {}
    for name, member in vars(port).items():
        if isinstance(member, FunctionType) and not name.startswith("_"):
            members[name] = _make_forwarder(name, member)
        elif isinstance(member, property):
            members[name] = property(_read(name), doc=member.__doc__)
    return type(f"{port.__name__}Facade", (Facade,), {"__slots__": (), "__doc__": port.__doc__, **members})


def _read(name: str) -> Callable[[Facade], Any]:
    def read(facade: Facade) -> Any:
        return getattr(_get_handle(facade), name)

    return read


def _get_handle(facade: Facade) -> Any:
    handle = _BEHIND.get(facade)
    if handle is None:
        raise SessionClosed(facade._session, "its host has let it go; nothing more is done for it")  # noqa: SLF001 - a method of its class
    return handle


def _make_forwarder(name: str, declared: FunctionType) -> Callable[..., Any]:
    def forward(facade: Facade, *given: Any, **named: Any) -> Any:
        return getattr(_get_handle(facade), name)(*given, **named)

    forward.__name__, forward.__doc__ = name, declared.__doc__
    return forward


_CLASSES: Final = {name: _make_facade_class(port) for name, port in PORTS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHandles:
    """The handles that a host can give to every kind of session."""

    reader: Reader
    status: Status
    memory: Memory
    web: Web | None
    """None = the owner of the tree does not allow the web."""
    images: ImageInspector
    mcp: ServerTools


@dataclass(frozen=True, slots=True, kw_only=True)
class Handles(WorkerHandles):
    """All handles that a host can give; ``build_rights`` selects those for a kind of session."""

    writer: Writer
    shell: Shell | None
    browser: Browser | None
    """None where what it needs is not installed."""
    jobs: Jobs | None
    channel: Channel | None
    """None = no session at or above this one has a channel."""
    sessions: Sessions
    subtree: Subtree
    child_workspaces: ChildWorkspaces
    cron: Cron
    memory_writer: MemoryWriter
    canvas: Canvas | None
    """None = no session at or above this one has a channel."""
    vision: Vision | None
    """None where the agent has no image model."""
    speech: SpeechSynthesizer
    nodes: Nodes
    http: HttpSender | None
    """None without the web."""
    previews: Previews
    runtime: RuntimeControl


def build_rights(
    session_id: str,
    kind: SessionKind,
    workspace: Path,
    config: AgentConfig,
    handles: WorkerHandles,
    tree_id: str = "",
    refused: str = "",
) -> SessionRights:
    """Return the rights of one session. A Worker gets no handle that can change anything.

    A session gets no writer if its agent, or any session above it, has the workspace read-only.
    """
    observing = SessionRights(
        session_id=session_id,
        agent_id=config.agent_id,
        kind=kind,
        workspace_root=workspace,
        config=config,
        status=handles.status,
        reader=handles.reader,
        web=handles.web,
        memory=handles.memory,
        images=handles.images,
        mcp=handles.mcp,
        tree_id=tree_id,
        denied_in=refused,
    )
    if kind is SessionKind.WORKER or not isinstance(handles, Handles):
        return observing
    return SessionRights(
        session_id=session_id,
        agent_id=config.agent_id,
        kind=kind,
        workspace_root=workspace,
        config=config,
        status=handles.status,
        reader=handles.reader,
        web=handles.web,
        memory=handles.memory,
        memory_writer=handles.memory_writer,
        writer=handles.writer if config.workspace_access == "rw" else None,
        shell=handles.shell,
        browser=handles.browser,
        jobs=handles.jobs,
        channel=handles.channel,
        sessions=handles.sessions,
        subtree=handles.subtree,
        canvas=handles.canvas,
        http=handles.http,
        speech=handles.speech,
        nodes=handles.nodes,
        previews=handles.previews,
        runtime=handles.runtime,
        images=handles.images,
        vision=handles.vision if config.image_model else None,
        child_workspaces=handles.child_workspaces,
        cron=handles.cron if kind is SessionKind.MAIN else None,
        mcp=handles.mcp,
        tree_id=tree_id,
        denied_in=refused,
    )


class Link:
    """One adoption's link to supervisor and memory. It ends when the host lets the session go."""

    __slots__ = ("_alive", "_memory", "_services", "acting_for", "grant", "session")

    def __init__(self, services: Services, memory: MemoryApi, session: str, grant: str) -> None:
        self._services = services
        self._memory = memory
        self.session = session
        self.grant = grant
        self.acting_for: Callable[[], tuple[Principal, ...]] = tuple
        """Returns whom the session acts for now; until it is embodied, only the program."""
        self._alive = True

    def cut(self) -> None:
        """End the link; every later use raises SessionClosed."""
        self._alive = False

    def get_services(self) -> Services:
        """Return the supervisor's services.

        Raises:
            SessionClosed: the host has let the session go.
        """
        self._check()
        return self._services

    async def spawn(self, request: SpawnRequest, key: str, forbidden: str | None = None) -> str:
        """Spawn a child of the session on behalf of those it acts for now; raises as :meth:`services`."""
        return await self.get_services().spawn(self.grant, request, key, forbidden, self.acting_for())

    def memory(self) -> MemoryApi:
        """Return memory; raises as :meth:`services`."""
        self._check()
        return self._memory

    def _check(self) -> None:
        if not self._alive:
            raise SessionClosed(self.session, "its host has let it go; nothing more is done for it")


class ChannelHandle:
    """Says something on the nearest channel at or above the session."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def send(self, text: str) -> None:
        """Deliver a message; durable when this returns."""
        link = self._link
        await link.get_services().say(link.grant, text)


class SessionsHandle:
    """Spawns children of the session, and stops sessions below it."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def spawn(self, request: SpawnRequest, *, key: str) -> str:
        """Start a child and return its id at once; the same key gives the same child."""
        return await self._link.spawn(request, key)

    async def send_to(self, target: str, text: str, *, mode: SendMode, key: str) -> str:
        """Send a message on behalf of those the session acts for now; return the receiver's id."""
        link = self._link
        return await link.get_services().send_from(link.grant, target, text, mode, key, link.acting_for())

    async def stop(self, target: str, *, reason: str) -> tuple[SessionRow, ...]:
        """Stop a session below this one and everything below it; return their rows once they have ended."""
        link = self._link
        return await link.get_services().stop_below(link.grant, target, reason)


class CronHandle:
    """The timed jobs of the tree, for its Main."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def jobs(self) -> CronTable:
        """Return all jobs."""
        link = self._link
        return await link.get_services().timed_jobs(link.grant)

    async def history(self, job_id: str, *, limit: int) -> tuple[JobRun, ...]:
        """Return runs and skips of a job, newest first."""
        link = self._link
        return await link.get_services().list_job_runs(link.grant, job_id, limit)

    async def change(self, change: JobChange, *, key: str) -> JobRow:
        """Carry out a change on behalf of those the session acts for now; the same key changes once."""
        link = self._link
        return await link.get_services().change_job(link.grant, change, key, link.acting_for())


class SubtreeHandle:
    """Looks at the sessions below the session."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def sessions(self, wanted: SessionFilter) -> SessionRows:
        """Return the sessions below this one that fit a filter."""
        link = self._link
        return await link.get_services().list_below(link.grant, wanted)

    async def history(
        self, target: str, *, limit: int, before: int | None = None, results: bool = True
    ) -> Transcript:
        """Return messages of a session below this one."""
        link = self._link
        return await link.get_services().read_child_history(link.grant, target, limit, before, results)

    async def agents(self) -> tuple[AgentInfo, ...]:
        """Return the agents that this session may name when it spawns a child."""
        link = self._link
        return await link.get_services().list_agents_below(link.grant)


class ChildWorkspacesHandle:
    """Reads and settles what children of the session changed in workspaces of their own."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def list(self) -> tuple[ChildChanges, ...]:
        """Return the children that had a workspace of their own, in the order of their spawns."""
        link = self._link
        return await link.get_services().list_child_changes(link.grant, None)

    async def changes(self, target: str) -> ChildChanges:
        """Return what a child changed, once that is kept."""
        link = self._link
        (found,) = await link.get_services().list_child_changes(link.grant, target)
        return found

    async def content(self, target: str, path: str) -> bytes:
        """Return the last content of a changed file."""
        link = self._link
        return await link.get_services().read_changed_content(link.grant, target, path)

    async def patch(self, target: str) -> str:
        """Return a child's changes as a patch in git's format; bytes that are not UTF-8 are escaped."""
        link = self._link
        patch = await link.get_services().read_changed_content(link.grant, target, None)
        return patch.decode("utf-8", "backslashreplace")

    async def settle(self, target: str, state: Literal["merged", "discarded"]) -> None:
        """Record what became of a child's changes."""
        link = self._link
        await link.get_services().settle_changes(link.grant, target, state)


class CanvasHandle:
    """Changes and asks the canvas of the session."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def change(
        self, action: CanvasAction, content: Mapping[str, JsonValue], *, key: str
    ) -> CanvasReport:
        """Change the canvas; durable when this returns."""
        link = self._link
        return await link.get_services().change_canvas(link.grant, action, content, key)

    async def ask(self, kind: CanvasQuestionKind, code: str, *, key: str, timeout_s: float) -> JsonValue:
        """Ask one of the frames that show the canvas, and return its answer.

        Raises:
            ExecutionError: no frame shows it, the answer does not come in time, or it is not JSON.
        """
        link = self._link
        text = await link.get_services().ask_canvas(link.grant, kind, code, key, timeout_s)
        try:
            return cast("JsonValue", json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ExecutionError(f"the frame answered what is not JSON: {error}") from error


class StatusHandle:
    """Reports the session's state to its tools."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def report(self) -> SessionReport:
        """Return the session's state now."""
        link = self._link
        return await link.get_services().report(link.grant)


class PreviewsHandle:
    """Publishes pages of the session."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def publish(self, name: str, files: Mapping[str, bytes], *, entry: str) -> PublishedPage:
        """Publish a page at an address of the supervisor's machine."""
        link = self._link
        return await link.get_services().publish(link.grant, name, files, entry)


class ServerToolsHandle:
    """Calls tools of the tree's MCP servers.

    Args:
        link: Leads to the supervisor.
    """

    __slots__ = ("_dropping", "_link")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._dropping: set[asyncio.Task[None]] = set()

    async def call(self, call: ServerCall) -> ServerReply:
        """Call a tool at its server; a caller that is cancelled drops the call there, too."""
        try:
            return await self._link.get_services().call_server(self._link.grant, call)
        except asyncio.CancelledError:
            dropping = asyncio.create_task(self._drop(call.key))
            self._dropping.add(dropping)
            dropping.add_done_callback(self._dropping.discard)
            raise

    async def _drop(self, key: str) -> None:
        with suppress(SessionTreeError):  # the session is let go: nobody waits for the reply then
            await self._link.get_services().drop_server_call(self._link.grant, key)


class MemoryHandle:
    """Finds records that the session may see."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def search(self, query: MemoryQuery) -> list[MemoryHit]:
        """Return the records that fit a query best, best first."""
        link = self._link
        return await link.memory().search(link.grant, query)

    async def select(self, selection: Selection, *, limit: int) -> list[MemoryRecord]:
        """Return the records a selection names, oldest first."""
        link = self._link
        return await link.memory().select(link.grant, selection, limit)


class MemoryWriterHandle:
    """Stores records for the session, and removes records that it sees."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def store(self, records: Sequence[NewRecord], *, key: str) -> list[str]:
        """Return the new records' ids once they are durable; the same key adds them once."""
        link = self._link
        return await link.memory().store(link.grant, records, key)

    async def forget(self, selection: Selection, *, key: str) -> list[str]:
        """Remove the records a selection names; returns their ids."""
        link = self._link
        return await link.memory().forget(link.grant, selection, key)
