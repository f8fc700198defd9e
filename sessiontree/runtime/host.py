"""A session host: embodies one session at a time, and keeps only what is journaled or on its way there."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from sessiontree.contracts.context import SessionRights
from sessiontree.contracts.errors import words_of
from sessiontree.contracts.ports import Protection, Web, Writer
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.hooks import HookChain
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.models.port import InstantModel
from sessiontree.policy.compiled import CompiledPolicy
from sessiontree.protected import OwnPlaces
from sessiontree.runtime.call_watch import CallWatch
from sessiontree.runtime.clock import TreeClock
from sessiontree.runtime.frames import (
    Adopt,
    Feed,
    Frame,
    Kill,
    Left,
    Outcome,
    PollReply,
    Proceed,
    Reask,
    Release,
    Unfit,
    Watch,
)
from sessiontree.runtime.hook_handles import HookedWatch, context_of, past_hooks
from sessiontree.runtime.hook_runner import HookedRunner
from sessiontree.runtime.mailbox import Mailbox
from sessiontree.runtime.memory_protocol import MemoryService
from sessiontree.runtime.model_requests import ModelRequestBuilder
from sessiontree.runtime.progress import ProgressHub, ProgressRelay
from sessiontree.runtime.services import (
    ChannelHandle,
    Link,
    MemoryHandle,
    MemoryWriterHandle,
    Services,
    SessionsHandle,
    StatusHandle,
    WebHandle,
)
from sessiontree.runtime.session_policy import session_policy
from sessiontree.runtime.session_rights import Facades, Handles, build_rights
from sessiontree.runtime.session_runner import SessionRunner
from sessiontree.sandbox import CommandShell
from sessiontree.sandbox.named_files import named_files
from sessiontree.sandbox.process_tree import ProcessIdentity
from sessiontree.schema.dialect import dialect_of
from sessiontree.workspace import WorkspaceReader, WorkspaceWriter


class HostProcess(Protocol):
    """The process a host has for itself."""

    def begin(self) -> None:
        """A session begins: whatever runs now is the process's own."""
        ...

    def is_busy(self) -> bool:
        """Whether threads run there that no session owns any more."""
        ...

    def end_leftovers(self, ending: Collection[ProcessIdentity]) -> int:
        """End the processes that were started since the session began, but those that end already.

        Returns:
            How many there were.
        """
        ...


@dataclass(frozen=True, slots=True)
class HostEquipment:
    """What a host is given once: the same for every session of a tree it may embody."""

    table: ToolTable
    instant: InstantModel | None
    hidden: tuple[Path, ...]
    """Places no tool may see, such as the state directory."""
    web: Web | None
    """What reads the web for the tree's sessions in this process; None where its owner allows none."""
    policy: CompiledPolicy
    """What the tree's owner says about its tools."""
    group: str
    """Group of Main's channel."""
    model_name: str
    """Of the tree's model, as it is given now."""
    hooks: HookChain | None = None
    """What its owner put around every call; None = nothing."""
    own: OwnPlaces = field(default_factory=OwnPlaces)
    """What the program, and processes of its kind, import from."""


class GuardedFiles:
    """Protected places of one session's workspace, for whoever judges its calls."""

    __slots__ = ("_facades", "_writer")

    def __init__(self, writer: WorkspaceWriter, facades: Facades) -> None:
        """Keep the session's writer, and where facades of others come from."""
        self._writer = writer
        self._facades = facades

    def standings(self, path: str) -> frozenset[str]:
        """Return the names of the protected places that a path stands for right now; empty = none."""
        return self._writer.standings(path)

    def writer(self, standings: frozenset[str] | None) -> Writer:
        """Return a writer for one allowed call, that changes these protected places; None = all."""
        return self._facades.writer(self._writer.allowing(standings))


def tooling_of(
    equipment: HostEquipment,
    adopt: Adopt,
    rights: SessionRights,
    now_ms: Callable[[], int],
    protection: Protection | None = None,
) -> tuple[ModelRequestBuilder, Dispatcher]:
    """Return what shows a session its tools, and what runs them: those the policy leaves it now, to both."""
    model = adopt.config.model or equipment.model_name
    policy = session_policy(
        equipment.policy, equipment.group, adopt.spec, model, has_channel=adopt.has_channel
    )
    held = equipment.table.held_by(adopt.spec.kind, policy.kept.intersection(adopt.spec.tools))
    held -= policy.withheld_from(adopt.spec.asked_by)
    if adopt.config.workspace_access == "ro":
        held -= equipment.table.for_writers
    dispatcher = Dispatcher(
        equipment.table,
        held,
        rights,
        policy,
        tool_timeout_s=adopt.limits.tool_timeout_s,
        now_ms=now_ms,
        standing=partial(named_files, os.path.realpath(rights.workspace_root), hidden=equipment.hidden),
        protection=protection,
    )
    questioner = ModelRequestBuilder(
        equipment.table,
        held,
        adopt.config.prompt,
        equipment.instant,
        dialect_of(model),
        dispatcher.withheld_from,
    )
    return questioner, dispatcher


class HostCore:
    """Embodies one session at a time.

    Args:
        equip: Gives a tree's equipment by its name.
        services: What its sessions may ask of the supervisor.
        memory: What they may ask of memory.
        hub: Where progress goes.
        now_ms: The clock, where a tree does not give its own.
        process: The host's own process, where it has one: then it tells what was left running there, and
            carries progress to the supervisor.
    """

    def __init__(
        self,
        equip: Callable[[str], HostEquipment],
        services: Services,
        memory: MemoryService,
        hub: ProgressHub,
        now_ms: Callable[[], int],
        process: HostProcess | None = None,
    ) -> None:
        self._equip = equip
        self._services = services
        self._memory = memory
        self._hub = hub
        self._now_ms = now_ms
        self._mailbox = Mailbox(self._take)
        self._process = process
        self._relay = None if process is None else ProgressRelay(hub, self._mailbox.wake)
        self._runner: SessionRunner | None = None
        self._watch: CallWatch | None = None
        self._left_behind = 0
        self._leaving: list[SessionRunner] = []
        self._shell: CommandShell | None = None
        self._link: Link | None = None
        self.killed = 0
        """Processes of the session's tools that were ended when the host was closed."""
        self._facades: Facades | None = None

    def receive(self, frames: Sequence[tuple[int, Frame]]) -> None:
        """Take frames in; repeats are dropped, early ones wait for those before them."""
        self._mailbox.receive(frames)

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return outcomes after a number, waiting for the first; those up to it are known and dropped.

        Raises:
            HostLost: the host was closed.
        """
        # What was seen between two polls must not wait for the end of the next.
        holds = self._relay is not None and self._relay.holds
        reply = await self._mailbox.poll(after, 0.0 if holds else wait_s)
        if self._relay is None or self._process is None:
            return reply
        return replace(reply, progress=self._relay.drain(), stained=self._is_stained(self._process))

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
        """End: let go of the session, whatever it is doing; whoever polls learns that the host is gone."""
        self.killed = self._drop()
        self._mailbox.close()

    def _is_stained(self, process: HostProcess) -> bool:
        abandoned = 0 if self._watch is None else self._watch.abandoned
        calling = self._runner is not None and self._runner.is_calling
        self._leaving = [runner for runner in self._leaving if runner.lingers]
        if self._left_behind + abandoned > 0 or self._leaving:
            return True
        return not calling and process.is_busy()

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Adopt):
            self._adopt(frame)
            return
        if isinstance(frame, Watch):
            if self._relay is not None:
                self._relay.watch(frame.tree_id, watched=frame.watched)
            return
        runner = self._runner
        if runner is None or runner.session != frame.session or runner.epoch != frame.epoch:
            return
        if isinstance(frame, Feed):
            runner.feed(frame.causes, frame.stimuli)
        elif isinstance(frame, Reask):
            runner.reask(frame.turn)
        elif isinstance(frame, Proceed):
            runner.proceed(frame.turn)
        else:
            assert isinstance(frame, Release | Kill)  # noqa: S101 - the last frames there are
            self._drop()

    def _drop(self) -> int:
        """Let the session go, if there is one; return how many processes of its tools were ended."""
        ended = 0
        commands: set[ProcessIdentity] = set()
        if self._shell is not None:
            commands = self._shell.end()  # whoever waits for this host waits for no command's last words
            self._shell = None
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop()
            self._leaving.append(runner)
            others = 0 if self._process is None else self._process.end_leftovers(commands)
            # A pool of processes, say, that a tool's module keeps: the next session would find it dead.
            self._left_behind += others
            ended = len(commands) + others
            if ended:
                self._mailbox.put(Left(runner.session, runner.epoch, ended))
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
        if self._process is not None and not os.access(adopt.workspace, os.R_OK | os.X_OK):
            reason = f"this process can't read {adopt.workspace!r}"
            self._mailbox.put(Unfit(adopt.session, adopt.epoch, reason))
            return
        try:
            self._runner = self._embody(adopt)
        except Exception as error:  # noqa: BLE001 - a session that cannot be built ends alone, as a typed outcome
            reason = f"can't be adopted: {words_of(error)}"
            self._mailbox.put(Outcome(adopt.session, adopt.epoch, 0, (), (), True, None, reason))
            return
        if self._link is not None:
            self._link.acting_for = partial(getattr, self._runner.state, "acting_for")
        self._runner.start()

    def _embody(self, adopt: Adopt) -> SessionRunner:
        equipment = self._equip(adopt.equipment)
        workspace = Path(adopt.workspace)
        if self._process is not None:
            self._process.begin()
        if self._relay is not None:
            self._relay.watch(adopt.tree_id, watched=adopt.watched)
        link = Link(self._services, self._memory, adopt.session, adopt.grant)
        self._link = link
        self._facades = facades = Facades(adopt.session)
        writer = WorkspaceWriter(workspace, hidden=equipment.hidden, own=equipment.own)
        self._shell = CommandShell(
            workspace,
            hidden=equipment.hidden,
            own=equipment.own,
            security=adopt.config.exec_security,
            access=adopt.config.workspace_access,
            cleanup_s=adopt.config.exec_cleanup_s,
        )
        rights = build_rights(
            adopt.session,
            adopt.spec.kind,
            workspace,
            adopt.config,
            Handles(
                reader=WorkspaceReader(workspace, hidden=equipment.hidden),
                writer=writer,
                shell=self._shell,
                channel=ChannelHandle(link) if adopt.has_channel else None,
                sessions=SessionsHandle(link),
                status=StatusHandle(link),
                memory=MemoryHandle(link),
                memory_writer=MemoryWriterHandle(link),
                web=None if equipment.web is None else WebHandle(link, equipment.web),
            ),
            adopt.tree_id,
        )
        watch = None
        if equipment.hooks is not None:
            watch = HookedWatch(self._hub, adopt.tree_id, adopt.session, facades, equipment.hooks)
            rights = past_hooks(rights, link, equipment.hooks, context_of(adopt), watch.failed)
        guarded = GuardedFiles(writer, facades)
        put, now_ms = self._mailbox.put, self._now_ms
        if adopt.clock_offset_ms is not None:
            now_ms = TreeClock(adopt.clock_offset_ms).now_ms
        questioner, dispatcher = tooling_of(equipment, adopt, facades.rights(rights), now_ms, guarded)
        if watch is None or equipment.hooks is None:
            self._watch = CallWatch(self._hub, adopt.tree_id, adopt.session, facades)
            return SessionRunner(adopt, dispatcher, questioner, self._watch, put, now_ms)
        self._watch = watch
        return HookedRunner(adopt, dispatcher, questioner, watch, put, now_ms, equipment.hooks)
