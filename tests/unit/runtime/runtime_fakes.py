"""Runtimes on which things go wrong on purpose: between supervisor and hosts, or at a chosen point."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from sessiontree import PermissionTier, Runtime, SessionKind, Tool, ToolContext, ToolResult
from sessiontree.backends.local.backend import DEFAULT_SLOTS, Faults, LocalBackend
from sessiontree.contracts.reports.events import ModelEvent
from sessiontree.contracts.values.messages import AssistantMessage
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed
from sessiontree.models.answers import ModelFailure
from tests.behaviour.waiting_fakes import Nothing

Chunks = Sequence[tuple[str, Sequence[Packed]]]


class FaultyRuntime(Runtime):
    """A runtime whose way between supervisor and hosts is as bad as its faults make it."""

    def __init__(self, state_dir: Path, faults: Faults | None = None, slots: int = DEFAULT_SLOTS) -> None:
        super().__init__(state_dir, backend="local", slots=slots)
        assert isinstance(self.backend, LocalBackend)
        self.local = self.backend
        self.local._faults = faults
        self.local._ahead = 16  # as on Ray: what waits at a host must survive its faults too


def faults_of(seed: int, *, deaths: int) -> Faults:
    """Return faults of every sort, as bad as a seed says."""
    source = random.Random(seed)
    return Faults(
        random.Random(seed + 1),
        lose=source.choice([0.0, 0.1, 0.3]),
        repeat=source.choice([0.0, 0.2, 0.5]),
        delay=source.choice([0.0, 0.3, 0.7]),
        delay_s=0.001,
        die=source.choice([0.02, 0.1, 0.3]) if deaths else 0.0,
        deaths_left=deaths,
    )


@dataclass(frozen=True, slots=True)
class HeardAsker:
    """A request to a gateway whose answer is passed to functions."""

    tree_id: str
    session: str
    agent: str
    kind: SessionKind
    answered: Callable[[AssistantMessage], None]
    failed: Callable[[ModelFailure], None]
    resend_prompt: Callable[[], None]
    emit: Callable[[ModelEvent], None]

    def held(self, is_held: bool) -> None:
        """Nobody counts here how long it waits."""


class LongCall(Tool[Nothing]):
    """A call that lasts until the test lets it end."""

    name = "held"
    description = "Wait."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = PermissionTier.READ_ONLY
    kinds = frozenset(SessionKind)

    def __init__(self) -> None:
        self.under_way = 0
        """How many calls have begun."""
        self.began = asyncio.Event()
        self.ending = asyncio.Event()

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        """Wait for the test."""
        self.under_way += 1
        self.began.set()
        await self.ending.wait()
        return ToolResult("held")


class Recorder:
    """Keeps what a journal was given, append by append, and passes it on.

    Args:
        journal: Where it goes.
        on_append: Called before each append with its number, from 1.
    """

    def __init__(self, journal: Journal, on_append: Callable[[int], None] | None = None) -> None:
        self._journal = journal
        self._on_append = on_append
        self.appends: list[Chunks] = []

    def append(self, tree_id: str, chunks: Chunks) -> tuple[int, asyncio.Future[None]]:
        """Keep and pass on."""
        self.appends.append([(session, tuple(facts)) for session, facts in chunks])
        if self._on_append is not None:
            self._on_append(len(self.appends))
        return self._journal.append(tree_id, chunks)

    def __getattr__(self, name: str) -> object:
        """Everything else is the journal's."""
        return getattr(self._journal, name)


def recorded(runtime: FaultyRuntime, on_append: Callable[[int], None] | None = None) -> Recorder:
    """Make a runtime's journal keep its appends; before anything is appended."""
    recorder = Recorder(runtime.local._journal, on_append)
    runtime.local._journal = recorder  # type: ignore[assignment]
    return recorder


class Held(Recorder):
    """A journal whose commits are not known to be durable for as long as it is held."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.waiting: list[tuple[asyncio.Future[None], asyncio.Future[None]]] = []
        """What the journal gave and what was handed on, in order."""
        self._holds = False
        self._more = asyncio.Event()

    def append(self, tree_id: str, chunks: Chunks) -> tuple[int, asyncio.Future[None]]:
        """Keep and pass on; while held, what tells of durability waits."""
        seq, durable = super().append(tree_id, chunks)
        if not self._holds:
            return seq, durable
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((durable, told))
        self._more.set()
        return seq, told

    async def reached(self, count: int) -> None:
        """Wait until so many commits wait."""
        while len(self.waiting) < count:
            self._more.clear()
            await self._more.wait()

    def hold(self) -> None:
        """Let nothing be known to be durable from now on."""
        self._holds = True

    def let_go(self) -> None:
        """Let it be known, of each commit once it is."""
        self._holds = False
        for durable, told in self.waiting:
            durable.add_done_callback(partial(_tell, told))


def _tell(told: asyncio.Future[None], durable: asyncio.Future[None]) -> None:
    durable.result()
    told.set_result(None)


def held(runtime: FaultyRuntime) -> Held:
    """Make a runtime's journal one that can be held; before anything is appended."""
    journal = Held(runtime.local._journal)
    runtime.local._journal = journal  # type: ignore[assignment]
    return journal


async def write_prefix(state_dir: Path, tree_id: str, row0: dict[str, object], appends: list[Chunks]) -> None:
    """Write a journal that holds the first appends of a tree and nothing else; few commits hold them all."""
    journal = Journal.open(state_dir)
    journal.start(asyncio.get_running_loop())
    await journal.create_tree(tree_id, row0)  # type: ignore[arg-type]
    for _, durable in [journal.append(tree_id, chunks) for chunks in appends]:
        await durable
    await journal.close()


class KillAt(Faults):
    """One host dies when the n-th message passes between supervisor and hosts; nothing else goes wrong."""

    __slots__ = ("_left",)

    def __init__(self, point: int) -> None:
        super().__init__(random.Random(point), die=1.0, delay_s=0.001, deaths_left=1)
        self._left = point

    def draw_fault(self, chance: float) -> bool:
        """Whether the point is reached."""
        if chance != self.die:
            return False
        self._left -= 1
        return self._left == 0
