"""A session host: embodies one session at a time, and keeps only what is journaled or about to be.

Others may wait at it for their turn. It then lets a session go by itself when it is idle, and may keep its
state, without any rights, for its next adoption. Long because a session is put together here from every part.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from sessiontree.browser.found import find_browser
from sessiontree.browser.session_browser import SessionBrowser
from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.handles.jobs import Jobs
from sessiontree.contracts.handles.ports import Reader
from sessiontree.contracts.handles.protection import Protection
from sessiontree.contracts.handles.runtime_control import OwnerConfiguration
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.capabilities import BROWSER, JOBS, READER, SHELL, SPEECH, VISION
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import SessionRights
from sessiontree.contracts.tools.hooks import HookContext
from sessiontree.contracts.tools.skills import Skill, format_skills_prompt
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.hook_chain import HookChain
from sessiontree.dispatch.images import ImageProcess
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.models.port import InProcessModel, make_image_key, make_summary_key
from sessiontree.models.program_model import ProgramModel
from sessiontree.policy.compiled import CompiledPolicy
from sessiontree.policy.steps import PROGRAM, TOOL_SEARCH, WebAccess
from sessiontree.programs.found import find_interpreter
from sessiontree.programs.interpreter_process import InterpreterProcess
from sessiontree.protected import OwnPlaces
from sessiontree.runtime.host.host_process import UnseenPlaceError, check_seen
from sessiontree.runtime.host.node_shell import HostNodes
from sessiontree.runtime.host.outside_handles import (
    HostWeb,
    HttpHandle,
    LocalNode,
    SessionNodes,
    SessionRuntime,
    SessionSpeech,
    WebHandle,
    can_speak,
)
from sessiontree.runtime.host.session_shell import (
    AllowedHandles,
    SessionShell,
    make_node_checks,
    make_session_jobs,
    make_session_shell,
)
from sessiontree.runtime.host.vision import SessionVision
from sessiontree.runtime.memory.memory_api import MemoryApi
from sessiontree.runtime.rights.host_services import Services
from sessiontree.runtime.rights.session_rights import (
    CanvasHandle,
    ChannelHandle,
    ChildWorkspacesHandle,
    CronHandle,
    Facades,
    Handles,
    Link,
    MemoryHandle,
    MemoryWriterHandle,
    PreviewsHandle,
    ServerToolsHandle,
    SessionsHandle,
    StatusHandle,
    SubtreeHandle,
    WorkerHandles,
    build_rights,
    make_session_policy,
)
from sessiontree.runtime.runner.call_watch import CallWatch
from sessiontree.runtime.runner.interceptors import HookInterceptor, ScreenedWatch, route_through_hooks
from sessiontree.runtime.runner.model_requests import ModelRequestBuilder
from sessiontree.runtime.runner.session_runner import RunnerState, SessionRunner
from sessiontree.runtime.timing.clock import TreeClock, read_monotonic_ms
from sessiontree.runtime.transport.frames import (
    Adopt,
    ContinueTurn,
    Feed,
    Frame,
    HostUnsuitable,
    Kill,
    Outcome,
    PollReply,
    Release,
    ResendPrompt,
    SessionFrame,
    SessionLeft,
    SessionReturned,
    Watch,
)
from sessiontree.runtime.transport.link import Mailbox
from sessiontree.runtime.transport.progress import ProgressHub, ProgressRelay
from sessiontree.sandbox import CommandTurns, JobTable
from sessiontree.sandbox.commands.named_files import fingerprint_named_files
from sessiontree.sandbox.process_tree import ProcessIdentity
from sessiontree.workspace import OutsideRoots, SkillReader, WorkspaceWriter


class HostProcess(Protocol):
    """The process that a host has for itself."""

    def begin(self) -> None:
        """Begin a session: all threads and processes that run now belong to the process itself."""
        ...

    def is_busy(self) -> bool:
        """Whether threads of an earlier session still run there."""
        ...

    def end_leftovers(self, ending: Collection[ProcessIdentity]) -> int:
        """End the processes that were started since the session began, except those in ``ending``.

        Returns:
            How many processes were ended.
        """
        ...


@dataclass(frozen=True, slots=True)
class HostResources:
    """A host's equipment for a tree: the same for every session of the tree."""

    table: ToolTable
    instant: Mapping[str, InProcessModel]
    """In-process models by agent, and by the summary key; others are in the gateway."""
    hidden: tuple[Path, ...]
    """Paths that no tool may see, such as the state directory."""
    web: HostWeb | None
    """Reads the web for the tree's sessions in this process; None if the owner allows no web access."""
    policy: CompiledPolicy
    """The owner's policy for the tree's tools."""
    group: str
    """Group of Main's channel."""
    hooks: HookChain | None = None
    """The owner's hooks; None = none."""
    own: OwnPlaces = field(default_factory=OwnPlaces)
    """The places that the program and its processes import from."""
    skills: Mapping[str, Skill] = field(default_factory=dict)
    """The owner's skills by name."""
    nodes: HostNodes = field(default_factory=LocalNode)
    """The machines of the runtime."""
    backend: Literal["local", "ray"] = "local"
    open_configuration: Callable[[], OwnerConfiguration] | None = None
    """Returns the owner's configuration; None = the tree was opened without one."""
    _hidden_to: tuple[str, ...] = field(init=False, repr=False)
    """Where the hidden paths lead, in their order, each with a slash at its end."""

    def __post_init__(self) -> None:
        """Follow the hidden paths once: every session of the tree asks for them."""
        led = tuple(os.path.realpath(each).rstrip("/") + "/" for each in self.hidden)
        object.__setattr__(self, "_hidden_to", led)

    @property
    def web_access(self) -> WebAccess:
        """The web access of sessions with this equipment."""
        if self.web is None:
            return "none"
        return "search" if self.web.has_search else "pages"

    def select_hidden(self, workspace: str) -> tuple[Path, ...]:
        """Return what is hidden from sessions of a workspace.

        A copy of a workspace is in the state directory, which is hidden: its session's tools have the copy as
        their root, and its commands see nothing else of that directory.
        """
        place = f"{workspace}/"
        if not place.startswith(self._hidden_to):
            return self.hidden
        led = zip(self.hidden, self._hidden_to, strict=True)
        return tuple(each for each, to in led if not place.startswith(to))

    def select_skills(self, spec: SessionSpec) -> dict[str, Skill]:
        """Return the skills that a session may read, by name; those not given again on resume are missing."""
        return {name: self.skills[name] for name in spec.skills if name in self.skills}


_COMMANDS = frozenset({JOBS.name, SHELL.name})
"""The handles that run commands."""


def _find_missing(equipment: HostResources, config: AgentConfig, tools: Collection[str]) -> frozenset[str]:
    """Return the capabilities and tools whose needs are not installed here, or not given to the agent."""
    found = {
        BROWSER.name: find_browser().is_ready,
        SPEECH.name: can_speak(equipment.web),
        VISION.name: bool(config.image_model),
        PROGRAM: PROGRAM not in tools or find_interpreter().is_ready,
        TOOL_SEARCH: config.tools_offered == "program",
    }
    return frozenset(name for name, is_ready in found.items() if not is_ready)


def build_tooling(
    equipment: HostResources,
    adopt: Adopt,
    rights: SessionRights,
    now_ms: Callable[[], int],
    protection: Protection | None = None,
) -> tuple[ModelRequestBuilder, Dispatcher]:
    """Return a session's request builder and dispatcher, with the tools that the policy leaves it now."""
    policy = make_session_policy(
        equipment.policy,
        equipment.group,
        adopt.spec,
        adopt.model,
        has_channel=adopt.has_channel,
        web=equipment.web_access,
        missing=_find_missing(equipment, adopt.config, adopt.spec.tools),
    )
    held = equipment.table.select_held(adopt.spec.kind, policy.kept.intersection(adopt.spec.tools))
    held -= policy.find_withheld(adopt.spec.asked_by)
    if adopt.config.workspace_access == "ro":
        held -= equipment.table.for_writers
    dispatcher = Dispatcher(
        equipment.table,
        held,
        rights,
        policy,
        tool_timeout_s=adopt.limits.tool_timeout_s,
        approval_expiry_s=adopt.limits.approval_expiry_s,
        now_ms=now_ms,
        command_fingerprint=partial(
            fingerprint_named_files,
            str(rights.workspace_root),
            hidden=equipment.select_hidden(adopt.workspace),
        ),
        protection=protection,
    )
    has_writer = adopt.config.compaction_model
    summariser = equipment.instant.get(make_summary_key(adopt.spec.agent)) if has_writer else None
    # A program stands in for the model, here and not in the machine: the session is like any other, so its
    # turns, rights, budget, result and recovery need no second set of rules. Its call is in the spec, which
    # is journaled with the spawn, so a resume asks no provider and no gateway.
    first = adopt.spec.first_call
    questioner = ModelRequestBuilder(
        equipment.table,
        held,
        adopt.config,
        adopt.model,
        equipment.instant.get(adopt.spec.agent) if first is None else ProgramModel(first),
        dispatcher.find_withheld,
        summariser,
    )
    skills = equipment.select_skills(adopt.spec).values()
    if skills or adopt.guidance:
        used = {name for entry in equipment.table if entry.name in held for name in entry.tool.capabilities}
        if READER.name in used:
            listed = format_skills_prompt(skills, runs_commands=not used.isdisjoint(_COMMANDS))
            questioner.further = "\n\n".join(part for part in (listed, adopt.guidance) if part)
    return questioner, dispatcher


STOP_TURNS = 3
"""How many turns of the event loop the work of a session that left gets to end. Until then nobody can know
whether it heeds its cancellation, and the host need not be replaced."""
MAX_KEPT_CHARS = 4_000_000
"""How long the facts of all states that a host keeps may be together."""


@dataclass(slots=True)
class KeptSessions:
    """States of sessions of one tree that this host let go, up to a size; the oldest are dropped first.

    A state is current for as long as nothing else embodies the session, which the supervisor knows.
    """

    most_chars: int = MAX_KEPT_CHARS
    """Their size at most, in characters."""
    equipment: str = ""
    """Name of the tree's equipment."""
    size: int = 0
    states: OrderedDict[tuple[str, int], RunnerState] = field(default_factory=OrderedDict)
    """By session and the epoch that ended."""

    def only(self, equipment: str) -> None:
        """Drop the states of every other tree."""
        if equipment != self.equipment:
            self.equipment = equipment
            self.states.clear()
            self.size = 0

    def keep(self, session: str, epoch: int, state: RunnerState) -> None:
        """Keep a state."""
        state.state.release_empty()
        self.states[session, epoch] = state
        self.size += state.chars
        while self.size > self.most_chars:
            self.size -= self.states.popitem(last=False)[1].chars

    def take(self, session: str, epoch: int) -> RunnerState | None:
        """Remove and return a state, or return None."""
        state = self.states.pop((session, epoch), None)
        if state is not None:
            self.size -= state.chars
        return state


class SharedSessions(KeptSessions):
    """The same for several hosts of one process, with states of all their trees; epochs tell them apart."""

    __slots__ = ()

    def only(self, equipment: str) -> None:
        """Keep the states of other trees: other hosts serve them."""


@dataclass(slots=True)
class Lease:
    """A session that waits at the host for its turn, and what it is given meanwhile."""

    adopt: Adopt
    feeds: list[Feed] = field(default_factory=list)


class HostCore:
    """Embodies one session at a time.

    Args:
        equip: Returns a tree's equipment by its name.
        services: The supervisor's services for its sessions.
        memory: The memory's services for its sessions.
        hub: Receives progress.
        now_ms: The clock of trees without their own clock offset.
        process: The host's own process, or None if it shares one. With its own process, the host ends what
            sessions leave running there, and sends progress to the supervisor.
        passed_ms: The time that clocks of trees count from. On another machine than the supervisor's it is
            the supervisor's time, because each machine counts from its own start.
        turns: The turns of commands in this process; None = this host is the only one in it.
        kept: Where it keeps states; None = for itself.
    """

    def __init__(  # noqa: PLR0913 - what it shares with others, by name
        self,
        equip: Callable[[str], HostResources],
        services: Services,
        memory: MemoryApi,
        hub: ProgressHub,
        now_ms: Callable[[], int],
        process: HostProcess | None = None,
        passed_ms: Callable[[], int] = read_monotonic_ms,
        turns: CommandTurns | None = None,
        kept: KeptSessions | None = None,
    ) -> None:
        self._equip = equip
        self._services = services
        self._memory = memory
        self._hub = hub
        self._now_ms = now_ms
        self._mailbox = Mailbox(self._take)
        self._process = process
        self._passed_ms = passed_ms
        self._turns = turns or CommandTurns()
        self._relay = None if process is None else ProgressRelay(hub, self._mailbox.wake)
        self._runner: SessionRunner | None = None
        self._watch: CallWatch | None = None
        self._left_behind = 0
        self._leaving: list[SessionRunner] = []
        self._leases: OrderedDict[int, Lease] = OrderedDict()
        """By epoch, the sessions that wait."""
        self._kept = kept or KeptSessions()
        self._opened: tuple[tuple[str, str], WorkspaceWriter] | None = None
        """The workspace of the last session, by its tree's equipment and path."""
        self._shell: SessionShell | None = None
        self._browser: SessionBrowser | None = None
        self._jobs = JobTable()
        self._link: Link | None = None
        self.killed = 0
        """Number of processes of the session's tools that were ended when the host was closed."""
        self._facades: Facades | None = None
        self._ending: list[SessionShell | SessionBrowser | InterpreterProcess] = []
        """Shells, browsers and interpreters of sessions that left; their killed processes may still exist."""

    def receive(self, frames: Sequence[tuple[int, Frame]]) -> None:
        """Accept frames; repeats are dropped, early ones wait for those before them."""
        self._mailbox.receive(frames)

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return the outcomes after a number, waiting for the first; those up to the number are dropped.

        A session is not reported to have left while a command of it exists.

        Raises:
            HostLost: the host was closed.
        """
        # Progress that arrived between two polls must not wait for the end of the next one.
        holds = self._relay is not None and self._relay.holds
        reply = await self._mailbox.poll(after, 0.0 if holds else wait_s)
        await self.wait_for_commands()
        if self._relay is None or self._process is None:
            return reply
        for _ in range(STOP_TURNS):
            if not self._has_stopping_work():
                break
            await asyncio.sleep(0)
        return replace(reply, progress=self._relay.drain(), unusable=self._is_stained(self._process))

    @property
    def embodied(self) -> tuple[str, int] | None:
        """The session embodied now and its epoch."""
        runner = self._runner
        return None if runner is None else (runner.session, runner.epoch)

    @property
    def grant(self) -> str:
        """The grant held now; empty while no session is embodied."""
        return "" if self._link is None else self._link.grant

    def close(self) -> None:
        """Close the host: stop the session, whatever it does; a waiting poll raises ``HostLost``."""
        self._leases.clear()
        self.killed = self._drop()
        self._opened = None
        self._mailbox.close()

    async def wait_for_commands(self) -> None:
        """Wait until no command of a session that left exists."""
        for shell in tuple(self._ending):
            await shell.ended()
            if shell in self._ending:
                self._ending.remove(shell)

    def _is_stained(self, process: HostProcess) -> bool:
        abandoned = 0 if self._watch is None else self._watch.abandoned
        calling = self._runner is not None and self._runner.is_calling
        if self._left_behind + abandoned > 0 or self._has_stopping_work():
            return True
        return not calling and process.is_busy()

    def _has_stopping_work(self) -> bool:
        """Whether work of a session that left still runs here; most ends with its next turn of the loop."""
        self._leaving = [runner for runner in self._leaving if runner.has_leftover_work]
        return bool(self._leaving)

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Adopt):
            for session, epoch in frame.stale:
                self._kept.take(session, epoch)
            if self._runner is None and not self._leases:
                self._adopt(frame)
            else:
                self._leases[frame.epoch] = Lease(frame)
                self._go_on_soon()
            return
        if isinstance(frame, Watch):
            self._note_watch(frame)
            return
        lease, runner = self._leases.get(frame.epoch), self._runner
        if lease is not None:
            if isinstance(frame, Feed):
                lease.feeds.append(frame)
            elif isinstance(frame, Release | Kill):
                del self._leases[frame.epoch]
        elif runner is not None and runner.session == frame.session and runner.epoch == frame.epoch:
            self._pass_on(runner, frame)

    def _pass_on(self, runner: SessionRunner, frame: SessionFrame) -> None:
        """Carry out a frame for the session that runs."""
        if isinstance(frame, Feed):
            runner.feed(frame.causes, frame.stimuli)
        elif isinstance(frame, ResendPrompt):
            runner.resend_prompt(frame.turn)
        elif isinstance(frame, ContinueTurn):
            runner.proceed(frame.turn)
        else:
            assert isinstance(frame, Release | Kill)  # noqa: S101 - the last frames there are
            if isinstance(frame, Release) and frame.keep:
                self._keep(runner)
            if ended := self._drop():
                self._mailbox.put(SessionLeft(runner.session, runner.epoch, ended))
            if isinstance(frame, Kill):
                self._give_back()  # its work may not have stopped
            self._embody_next()

    def _note_watch(self, frame: Watch) -> None:
        if self._relay is not None:
            self._relay.watch(frame.tree_id, watched=frame.watched)
        for lease in self._leases.values():
            if lease.adopt.tree_id == frame.tree_id:
                lease.adopt = replace(lease.adopt, watched=frame.watched)

    def _go_on_soon(self) -> None:
        """If others wait, let the session go soon, in case it is idle then."""
        if self._leases:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        runner = self._runner
        if self._leases and runner is not None and runner.may_leave:
            kept = self._keep(runner)
            ended = self._drop()
            self._mailbox.put(SessionReturned(runner.session, runner.epoch, ended, kept))
            self._embody_next()

    def _embody_next(self, turns: int = STOP_TURNS) -> None:
        """Embody the session that has waited longest, unless earlier work runs here for some turns more."""
        while self._leases and self._runner is None:
            if self._process is not None and self._is_stained(self._process):
                if turns:
                    asyncio.get_running_loop().call_soon(self._embody_next, turns - 1)
                else:
                    self._give_back()
                return
            _, lease = self._leases.popitem(last=False)
            self._adopt(lease.adopt)
            for feed in lease.feeds:
                self._take(feed)

    def _give_back(self) -> None:
        """Let those go that wait here."""
        while self._leases:
            epoch, lease = self._leases.popitem(last=False)
            self._mailbox.put(SessionReturned(lease.adopt.session, epoch, 0, kept=False, has_begun=False))

    def _keep(self, runner: SessionRunner) -> bool:
        """Keep a session's state if everything in it was reported and it may be needed again."""
        state = runner.kept_state
        if state is None:
            return False
        self._kept.keep(runner.session, runner.epoch, state)
        return True

    def _end_interpreters(self, runner: SessionRunner) -> set[ProcessIdentity]:
        process, ending = runner.leave_programs()
        if process is not None and ending:
            self._ending.append(process)
        return ending

    def _drop(self) -> int:
        """Stop the session, if there is one; return how many processes of its tools were ended."""
        ended = 0
        commands: set[ProcessIdentity] = set()
        self._jobs.close()
        if self._shell is not None:
            is_running = self._shell.is_running
            commands = self._shell.end()  # nothing on this host waits for a command's output any more
            if is_running:
                self._ending.append(self._shell)
            self._shell = None
        if self._browser is not None:
            if self._browser.is_running:
                self._ending.append(self._browser)
            commands |= self._browser.end()
            self._browser = None
        runner, self._runner = self._runner, None
        if runner is not None:
            commands |= self._end_interpreters(runner)
            runner.stop()
            others = 0
            if self._process is not None:
                self._leaving.append(runner)
                others = self._process.end_leftovers(commands)
            # For example a process pool that a tool's module keeps: the next session would find it dead.
            self._left_behind += others
            ended = len(commands) + others
        if self._link is not None:
            self._link.cut()
            self._link = None
        if self._facades is not None:
            self._facades.close()
            self._facades = None
        if self._watch is not None:
            self._left_behind += self._watch.abandoned
            self._watch = None
        return ended

    def _adopt(self, adopt: Adopt) -> None:
        self._drop()
        self._kept.only(adopt.equipment)
        state = self._kept.take(adopt.session, adopt.kept)
        if adopt.kept and state is None:
            self._mailbox.put(SessionReturned(adopt.session, adopt.epoch, 0, kept=False, has_begun=False))
            return
        try:
            self._runner = self._embody(adopt, state)
        except UnseenPlaceError as error:
            self._mailbox.put(HostUnsuitable(adopt.session, adopt.epoch, str(error)))
            return
        except Exception as error:  # noqa: BLE001 - only the session that can't be built ends, with a typed outcome
            reason = f"can't be adopted: {describe_error(error)}"
            self._mailbox.put(Outcome(adopt.session, adopt.epoch, 0, (), (), True, None, reason))
            return
        if self._link is not None:
            self._link.acting_for = partial(getattr, self._runner.state, "acting_for")
        self._runner.reporter.on_rest = self._go_on_soon
        self._runner.start()

    def _open_writer(self, adopt: Adopt, equipment: HostResources) -> WorkspaceWriter:
        """Return a writer of the session's workspace; the last session's, if nothing of it has changed."""
        place = (adopt.equipment, adopt.workspace)
        workspace = Path(adopt.workspace)
        if self._opened is None or self._opened[0] != place or not self._opened[1].is_at(workspace):
            hidden = equipment.select_hidden(adopt.workspace)
            writer = WorkspaceWriter(workspace, hidden=hidden, own=equipment.own)
            self._opened = place, writer
        return self._opened[1]

    def _make_vision(self, adopt: Adopt, link: Link, equipment: HostResources) -> SessionVision | None:
        if not adopt.config.image_model:
            return None
        instant = equipment.instant.get(make_image_key(adopt.spec.agent))
        return SessionVision(link, adopt.spec, adopt.config, instant)

    def _collect_handles(
        self,
        adopt: Adopt,
        equipment: HostResources,
        link: Link,
        reader: Reader,
        writer: WorkspaceWriter,
        jobs: Jobs | None,
    ) -> WorkerHandles:
        observing = WorkerHandles(
            reader=reader,
            status=StatusHandle(link),
            memory=MemoryHandle(link),
            web=None if equipment.web is None else WebHandle(link, equipment.web),
            images=ImageProcess(),
            mcp=ServerToolsHandle(link),
        )
        if adopt.spec.kind is SessionKind.WORKER:
            return observing
        return Handles(
            reader=reader,
            status=observing.status,
            memory=observing.memory,
            web=observing.web,
            images=observing.images,
            mcp=observing.mcp,
            writer=writer,
            shell=self._shell,
            browser=self._browser,
            jobs=jobs,
            channel=ChannelHandle(link) if adopt.has_channel else None,
            sessions=SessionsHandle(link),
            subtree=SubtreeHandle(link),
            child_workspaces=ChildWorkspacesHandle(link),
            cron=CronHandle(link),
            memory_writer=MemoryWriterHandle(link),
            vision=self._make_vision(adopt, link, equipment),
            nodes=SessionNodes(link, equipment.nodes),
            speech=SessionSpeech(link, equipment.web, Path(adopt.workspace), equipment.hidden),
            http=None if equipment.web is None else HttpHandle(link, equipment.web),
            previews=PreviewsHandle(link),
            runtime=SessionRuntime(link, equipment.backend, equipment.open_configuration),
            canvas=CanvasHandle(link) if adopt.has_channel else None,
        )

    def _embody(self, adopt: Adopt, state: RunnerState | None) -> SessionRunner:
        equipment = self._equip(adopt.equipment)
        workspace, skills = Path(adopt.workspace), equipment.select_skills(adopt.spec)
        if self._process is not None:
            check_seen(adopt.workspace, *(skill.folder for skill in skills.values()))
            self._process.begin()
        if self._relay is not None:
            self._relay.watch(adopt.tree_id, watched=adopt.watched)
        self._link = link = Link(self._services, self._memory, adopt.session, adopt.grant)
        self._facades = facades = Facades(adopt.session)
        writer = self._open_writer(adopt, equipment)
        jobs = allowed_jobs = None
        table = JobTable()
        if adopt.spec.kind is not SessionKind.WORKER:
            commands = self._turns.commands.make_session_turns(adopt.limits.max_commands)
            hidden, own = equipment.select_hidden(adopt.workspace), equipment.own
            self._shell = make_session_shell(
                adopt, writer, link, commands, hidden=hidden, own=own, skills=skills
            )
            self._browser = SessionBrowser(equipment.web) if find_browser().is_ready else None
            jobs, allowed_jobs = make_session_jobs(
                adopt.config, self._shell, table, workspace, equipment.nodes
            )
        reader: Reader = writer.reader()
        if skills:
            reader = SkillReader(reader, skills, equipment.hidden)
        rights = build_rights(
            adopt.session,
            adopt.spec.kind,
            workspace,
            adopt.config,
            self._collect_handles(adopt, equipment, link, reader, writer, jobs),
            adopt.tree_id,
            adopt.denied_in,
        )
        hooks, screened = equipment.hooks, None
        context = HookContext(adopt.session, adopt.config.agent_id, adopt.spec.kind)
        if hooks is not None:
            screened = ScreenedWatch(self._hub, adopt.tree_id, adopt.session, facades, adopt.config, hooks)
            rights = route_through_hooks(rights, link, hooks, context, screened.failed)
        outside = OutsideRoots(writer, adopt.config.outside_roots, hidden=equipment.hidden, own=equipment.own)
        guarded = AllowedHandles(writer, reader, outside, facades, allowed_jobs)
        put, now_ms = self._mailbox.put, self._now_ms
        if adopt.clock_offset_ms is not None:
            now_ms = TreeClock(adopt.clock_offset_ms, self._passed_ms).now_ms
        questioner, dispatcher = build_tooling(equipment, adopt, facades.rights(rights), now_ms, guarded)
        interceptors = make_node_checks(adopt.config, dispatcher, equipment.nodes)
        if hooks is not None and screened is not None:
            questioner.unseen = hooks.words.screens
            is_remote = questioner.instant is None
            first = HookInterceptor(hooks, context, dispatcher, screened, shows_replies=is_remote)
            interceptors = (first, *interceptors)  # hooks may name another node
        self._watch = watch = screened or CallWatch(
            self._hub, adopt.tree_id, adopt.session, facades, adopt.config
        )
        turns = self._turns.calls.make_session_turns(adopt.limits.max_commands)
        runner = SessionRunner(adopt, dispatcher, questioner, watch, put, now_ms, interceptors, state, turns)
        runner.jobs.attach(table)
        self._jobs = table
        return runner
