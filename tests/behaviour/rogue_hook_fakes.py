"""A hook that misbehaves where and how a test says, and is as good as gold elsewhere."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import fields, is_dataclass
from typing import Any

from sessiontree import Hook, HookContext, HookText, KeptResult, Rewrite
from sessiontree.contracts.tools.hooks import HookPoint, OnError
from sessiontree.contracts.values.messages import TextContent

MISDEEDS = ("hangs", "spoils and raises", "raises", "exits", "is cancelled", "returns junk", "returns a bomb")
BOMB = 3_000_000
"""Characters: more than a hook may give."""


class Junk:
    """Nothing anybody asked for."""


class Rogue(Hook):
    """Does its misdeed at one point, as plain functions in threads.

    Args:
        point: Where.
        guards: Whether it is a guard.
    """

    timeout_s = 0.2

    def __init__(self, point: HookPoint, *, guards: bool) -> None:
        self.point = point
        self.on_error: OnError = "block" if guards else "run"
        self.misdeed: str | None = None
        """What it does next; None = nothing."""
        self.bomb = BOMB
        self.let_go = threading.Event()

    def _hang(self) -> Any:
        self.let_go.wait()

    def _act(self, point: HookPoint, given: Any, good: Any, ctx: HookContext | None = None) -> Any:
        if point != self.point or self.misdeed is None:
            return good
        if point.startswith("message_") and ctx is not None and ctx.session_id != "main":
            return good
        if self.misdeed == "hangs":
            return self._hang()
        if self.misdeed == "exits":
            raise SystemExit(3)
        if self.misdeed == "is cancelled":
            raise asyncio.CancelledError
        if self.misdeed == "returns junk":
            return Junk()
        if self.misdeed == "returns a bomb":
            return _bomb(given, self.bomb)
        if self.misdeed.startswith("spoils"):
            _spoil(given)
            _spoil(ctx)
        raise ValueError(f"over {given}")

    def before_tool_call(self, call: Any, ctx: HookContext) -> Any:
        return self._act("before_tool_call", call, None, ctx)

    def after_tool_call(self, ended: Any, ctx: HookContext) -> Any:
        return self._act("after_tool_call", ended, None, ctx)

    def tool_result_persist(self, result: Any) -> Any:
        return self._act("tool_result_persist", result, result)

    def message_received(self, words: HookText, ctx: HookContext) -> Any:
        return self._act("message_received", words, words, ctx)

    def message_sending(self, words: HookText, ctx: HookContext) -> Any:
        return self._act("message_sending", words, words, ctx)

    def message_sent(self, words: HookText, ctx: HookContext) -> Any:
        return self._act("message_sent", words, None, ctx)

    def subagent_spawning(self, spawning: Any, ctx: HookContext) -> Any:
        return self._act("subagent_spawning", spawning, None, ctx)

    def subagent_spawned(self, child: Any, ctx: HookContext) -> Any:
        return self._act("subagent_spawned", child, None, ctx)

    def subagent_ended(self, child: Any, ctx: HookContext) -> Any:
        return self._act("subagent_ended", child, None, ctx)

    def session_start(self, started: Any, ctx: HookContext) -> Any:
        return self._act("session_start", started, None, ctx)

    def session_end(self, ended: Any, ctx: HookContext) -> Any:
        return self._act("session_end", ended, None, ctx)


class AsyncRogue(Rogue):
    """The same, as coroutines on the loop; hanging, it is deaf to its cancellation once."""

    async def before_tool_call(self, call: Any, ctx: HookContext) -> Any:
        return await self._settled(super().before_tool_call(call, ctx))

    async def after_tool_call(self, ended: Any, ctx: HookContext) -> Any:
        return await self._settled(super().after_tool_call(ended, ctx))

    async def tool_result_persist(self, result: Any) -> Any:
        return await self._settled(super().tool_result_persist(result))

    async def message_received(self, words: HookText, ctx: HookContext) -> Any:
        return await self._settled(super().message_received(words, ctx))

    async def message_sending(self, words: HookText, ctx: HookContext) -> Any:
        return await self._settled(super().message_sending(words, ctx))

    async def message_sent(self, words: HookText, ctx: HookContext) -> Any:
        return await self._settled(super().message_sent(words, ctx))

    async def subagent_spawning(self, spawning: Any, ctx: HookContext) -> Any:
        return await self._settled(super().subagent_spawning(spawning, ctx))

    async def subagent_spawned(self, child: Any, ctx: HookContext) -> Any:
        return await self._settled(super().subagent_spawned(child, ctx))

    async def subagent_ended(self, child: Any, ctx: HookContext) -> Any:
        return await self._settled(super().subagent_ended(child, ctx))

    async def session_start(self, started: Any, ctx: HookContext) -> Any:
        return await self._settled(super().session_start(started, ctx))

    async def session_end(self, ended: Any, ctx: HookContext) -> Any:
        return await self._settled(super().session_end(ended, ctx))

    def _hang(self) -> Any:
        return _for_ever()

    async def _settled(self, answer: Any) -> Any:
        return await answer if asyncio.iscoroutine(answer) else answer


async def _for_ever() -> None:
    never = asyncio.get_running_loop().create_future()
    try:
        await asyncio.shield(never)
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        raise


def _bomb(given: Any, chars: int) -> Any:
    """Return what fits the point, but for its size."""
    if isinstance(given, HookText):
        return HookText("x" * chars, given.speaker)
    if isinstance(given, KeptResult):
        return KeptResult(given.call_id, given.tool, (TextContent("x" * chars),), None, is_error=False)
    return Rewrite("x" * chars)


def _spoil(given: Any) -> None:
    """Change everything in a value that can be, and what can't be all the same."""
    for item in given if isinstance(given, tuple) else ():
        _spoil(item)
    if not is_dataclass(given):
        return
    for member in fields(given):
        value = getattr(given, member.name)
        if isinstance(value, dict):
            value.clear()
            value["spoilt"] = "spoilt"
        elif isinstance(value, list):
            value.append("spoilt")
        _spoil(value)
        object.__setattr__(given, member.name, "spoilt")
