"""Hooks around messages, spawns and sessions that do what a test says; they travel to hosts like tools."""

from __future__ import annotations

from dataclasses import replace

from sessiontree import (
    BlockCall,
    EndedSession,
    Hook,
    HookContext,
    HookText,
    Rewrite,
    Spawning,
    StartedSession,
)
from sessiontree.contracts.tools.hooks import OnError, SpawnAnswer
from tests.behaviour.signal_fixtures import Log
from tests.behaviour.waiting_fakes import Held


class Marking(Hook):
    """Puts its mark behind every message that comes in or goes out; blocks those that say a word."""

    def __init__(self, mark: str, *, priority: int = 0, guards: bool = False, forbids: str = "\0") -> None:
        self.mark, self.priority, self.forbids = mark, priority, forbids
        self.name = f"marking-{mark}"  # type: ignore[misc]
        self.on_error: OnError = "block" if guards else "run"

    async def message_received(self, words: HookText, ctx: HookContext) -> HookText:
        return replace(words, text=f"{words.text} {self.mark}<{words.speaker}>")

    def message_sending(self, words: HookText, ctx: HookContext) -> HookText | BlockCall:
        if self.forbids in words.text:
            return BlockCall(f"nobody says {self.forbids}")
        return replace(words, text=f"{words.text} {self.mark}>")


class Overhearing(Hook):
    """Writes down what was said, as it was said."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def message_sent(self, words: HookText, ctx: HookContext) -> None:
        self.log.append(f"{ctx.session_id} {words.speaker}: {words.text}")


class Matching(Hook):
    """Answers each wish for a child with one thing, and writes down what it was shown."""

    def __init__(
        self, answer: SpawnAnswer, log: Log | None = None, *, priority: int = 0, guards: bool = False
    ) -> None:
        self.answer, self.log, self.priority = answer, log, priority
        self.name = f"{'guard' if guards else 'plain'}-{priority}"  # type: ignore[misc]
        self.on_error: OnError = "block" if guards else "run"

    async def subagent_spawning(self, spawning: Spawning, ctx: HookContext) -> SpawnAnswer:
        if self.log is not None:
            wish = f"{spawning.via} {spawning.kind} {spawning.task!r} {spawning.label!r}"
            self.log.append(f"{self.name}: {ctx.session_id} {wish}")
        return self.answer


class Registering(Hook):
    """Writes down every session that begins or ends."""

    def __init__(self, log: Log) -> None:
        self.log = log

    async def session_start(self, started: StartedSession, ctx: HookContext) -> None:
        assert started.session_id == ctx.session_id
        self.log.append(f"{started.session_id} starts: {started.task}")

    def session_end(self, ended: EndedSession, ctx: HookContext) -> None:
        assert ended.session_id == ctx.session_id
        self.log.append(f"{ended.session_id} ends {ended.status}: {ended.summary}")

    async def subagent_spawned(self, child: StartedSession, ctx: HookContext) -> None:
        self.log.append(f"{ctx.session_id} has {child.kind} {child.session_id}")

    def subagent_ended(self, child: EndedSession, ctx: HookContext) -> None:
        self.log.append(f"{ctx.session_id} had {child.session_id}")


class Reading(Hook):
    """Is never done with a message until it is let go."""

    timeout_s = 60.0

    def __init__(self, held: Held) -> None:
        self.held = held

    async def message_received(self, words: HookText, ctx: HookContext) -> HookText:
        if words.text == "slowly":
            self.held.started.set()
            await self.held.let_go.wait()
        return words


REWORDED = Rewrite("count the lines", "counter")
