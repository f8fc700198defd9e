"""A session host: embodies one session at a time, and keeps only what is journaled or on its way there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sessiontree.contracts.errors import words_of
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.kernel.errors import HostLost
from sessiontree.kernel.frames import Adopt, Feed, Frame, Kill, Outcome, PollReply, Proceed, Reask, Release
from sessiontree.kernel.progress import ProgressHub
from sessiontree.kernel.questions import Questioner
from sessiontree.kernel.rights import Handles, build_rights
from sessiontree.kernel.runner import SessionRunner
from sessiontree.kernel.services import (
    ChannelHandle,
    Link,
    Services,
    SessionsHandle,
    StatusHandle,
)
from sessiontree.kernel.watching import CallWatch
from sessiontree.models.port import InstantModel
from sessiontree.workspace import WorkspaceReader, WorkspaceWriter


@dataclass(frozen=True, slots=True)
class HostEquipment:
    """What a host is given once: the same for every session of a tree it may embody."""

    table: ToolTable
    instant: InstantModel | None
    hidden: tuple[Path, ...]
    """Places no tool may see, such as the state directory."""


class HostCore:
    """Takes numbered frames in, in order and once each, and keeps outcomes until they are known."""

    def __init__(
        self,
        equip: Callable[[str], HostEquipment],
        services: Services,
        hub: ProgressHub,
        now_ms: Callable[[], int],
    ) -> None:
        """Bind what the host needs; ``equip`` gives a tree's equipment by its id."""
        self._equip = equip
        self._services = services
        self._hub = hub
        self._now_ms = now_ms
        self._received = 0
        self._early: dict[int, Frame] = {}
        self._outbox: deque[tuple[int, Outcome]] = deque()
        self._sent = 0
        self._news = asyncio.Event()
        self._closed = False
        self._runner: SessionRunner | None = None
        self._link: Link | None = None

    def receive(self, frames: Sequence[tuple[int, Frame]]) -> None:
        """Take frames in; repeats are dropped, early ones wait for those before them."""
        if self._closed:
            return
        for number, frame in frames:
            if number > self._received:
                self._early[number] = frame
        while self._received + 1 in self._early:
            self._received += 1
            self._take(self._early.pop(self._received))

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return outcomes after a number, waiting for the first; those up to it are known and dropped.

        Raises:
            HostLost: the host was closed.
        """
        outbox = self._outbox
        while outbox and outbox[0][0] <= after:
            outbox.popleft()
        if not outbox and not self._closed:
            self._news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                return PollReply(self._received, ())
        if self._closed:
            raise HostLost("the host was closed")
        return PollReply(self._received, tuple(outbox))

    def close(self) -> None:
        """End: let go of the session, whatever it is doing; whoever polls learns that the host is gone."""
        self._closed = True
        self._drop()
        self._news.set()

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Adopt):
            self._adopt(frame)
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

    def _drop(self) -> None:
        if self._runner is not None:
            self._runner.stop()
            self._runner = None
        if self._link is not None:
            self._link.cut()
            self._link = None

    def _adopt(self, adopt: Adopt) -> None:
        self._drop()
        try:
            self._runner = self._embody(adopt)
        except Exception as error:  # noqa: BLE001 - a session that cannot be built ends alone, as a typed outcome
            reason = f"can't be adopted: {words_of(error)}"
            self._report(Outcome(adopt.session, adopt.epoch, 0, (), (), True, None, reason))
            return
        self._runner.start()

    def _embody(self, adopt: Adopt) -> SessionRunner:
        equipment = self._equip(adopt.tree_id)
        workspace = Path(adopt.workspace)
        link = Link(self._services, adopt.tree_id, adopt.session, adopt.epoch)
        self._link = link
        rights = build_rights(
            adopt.session,
            adopt.spec.kind,
            workspace,
            adopt.config,
            Handles(
                reader=WorkspaceReader(workspace, hidden=equipment.hidden),
                writer=WorkspaceWriter(workspace, hidden=equipment.hidden),
                channel=ChannelHandle(link),
                sessions=SessionsHandle(link),
                status=StatusHandle(link),
            ),
        )
        held = equipment.table.held_by(adopt.spec.kind, adopt.spec.tools)
        dispatcher = Dispatcher(
            equipment.table,
            held,
            rights,
            tool_timeout_s=adopt.limits.tool_timeout_s,
            now_ms=self._now_ms,
        )
        questioner = Questioner(equipment.table, held, adopt.config.prompt, equipment.instant)
        watch = CallWatch(self._hub, adopt.tree_id, adopt.session)
        return SessionRunner(adopt, dispatcher, questioner, watch, self._report, self._now_ms)

    def _report(self, outcome: Outcome) -> None:
        self._sent += 1
        self._outbox.append((self._sent, outcome))
        self._news.set()
