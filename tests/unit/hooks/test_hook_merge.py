"""What hooks around messages and spawns come to is what their rules say, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tools.hooks import (
    BlockCall,
    Hook,
    HookContext,
    HookText,
    OnError,
    Rewrite,
    Spawning,
)
from sessiontree.dispatch.hook_chain import HookChain, Screened, WordHooks

CONTEXT = HookContext("main", "default", SessionKind.MAIN)
FAILS = "fails"


@dataclass(frozen=True)
class Plan:
    """What one hook does."""

    mark: str
    """Put behind what it is shown; ``fails``: it raises; ``!`` before it: it blocks with that reason."""
    priority: int
    guards: bool
    rewords_label: bool


class Planned(Hook):
    """Does what its plan says, and writes down what it was shown."""

    def __init__(self, number: int, plan: Plan, seen: list[str]) -> None:
        self.name = f"h{number}"  # type: ignore[misc]
        self.plan, self.seen, self.priority = plan, seen, plan.priority
        self.on_error: OnError = "block" if plan.guards else "run"

    def _on_decided(self, text: str) -> BlockCall | None:
        self.seen.append(f"{self.name}: {text}")
        if self.plan.mark == FAILS:
            raise ValueError(text)
        return BlockCall(self.plan.mark[1:]) if self.plan.mark.startswith("!") else None

    async def message_sending(self, words: HookText, ctx: HookContext) -> HookText | BlockCall:
        return self._on_decided(words.text) or replace(words, text=words.text + self.plan.mark)

    async def message_received(self, words: HookText, ctx: HookContext) -> HookText:
        self._on_decided(words.text)
        return replace(words, text=words.text + self.plan.mark)

    async def subagent_spawning(self, spawning: Spawning, ctx: HookContext) -> BlockCall | Rewrite:
        decided = self._on_decided(f"{spawning.task}/{spawning.label}")
        label = f"L{self.plan.mark}" if self.plan.rewords_label else None
        return decided or Rewrite(spawning.task + self.plan.mark, label)


plans = st.builds(
    Plan, st.sampled_from(["a", "b", FAILS, "!no"]), st.integers(-1, 1), st.booleans(), st.booleans()
)
Ended: TypeAlias = tuple[Any, list[str], list[str]]
"""What came of it, what the hooks were shown, and who failed."""


def in_order(plans: Sequence[Plan]) -> list[tuple[str, Plan]]:
    """Return plans as they have their turn: plain ones first, higher priorities first, else as given."""
    named = [(f"h{number}", plan) for number, plan in enumerate(plans)]
    return [
        each
        for guards in (False, True)
        for priority in (1, 0, -1)
        for each in named
        if each[1].guards is guards and each[1].priority == priority
    ]


def said(plans: Sequence[Plan], *, may_block: bool) -> Ended:
    """Say what becomes of the message ``t``: its text, or None where it is held back."""
    text, seen, failed = "t", [], []
    for name, plan in in_order(plans):
        seen.append(f"{name}: {text}")
        if plan.mark == FAILS:
            failed.append(name)
            if plan.guards:
                return None, seen, failed
        elif plan.mark.startswith("!") and may_block:
            return None, seen, failed
        else:
            text += plan.mark
    return text, seen, failed


def spawned(plans: Sequence[Plan]) -> Ended:
    """Say what becomes of the task ``t`` with the label ``l``, or None where it is refused."""
    task, label, seen, failed = "t", "l", [], []
    for name, plan in in_order(plans):
        shown = (task, label) if plan.guards else ("t", "l")
        seen.append(f"{name}: {shown[0]}/{shown[1]}")
        if plan.mark == FAILS:
            failed.append(name)
            if plan.guards:
                return None, seen, failed
        elif plan.mark.startswith("!"):
            return None, seen, failed
        else:
            task = shown[0] + plan.mark
            label = f"L{plan.mark}" if plan.rewords_label else label
    return (task, label), seen, failed


def agree(chain_of: Callable[[list[Hook]], HookChain]) -> None:
    """Hooks and rules come to the same."""

    @settings(max_examples=80, database=None, derandomize=True, deadline=None)
    @given(st.lists(plans, max_size=5))
    def check(plans: list[Plan]) -> None:
        seen: list[str] = []
        chain = chain_of([Planned(number, plan, seen) for number, plan in enumerate(plans)])

        async def all_three() -> None:
            words = HookText("t", "model")
            for pass_by, may_block in ((chain.words.screen_outgoing, True), (chain.words.received, False)):
                kept = await pass_by(words, CONTEXT)
                got = (None if kept.block is not None else kept.text, seen[:], [f.hook for f in kept.faults])
                assert got == said(plans, may_block=may_block)
                assert kept.block is None or "withheld" in kept.text
                seen.clear()
            asked = Spawning(SessionKind.WORKER, "t", "l", None, "model")
            ruling = await chain.sessions.screen_spawn(asked, CONTEXT)
            task = None if ruling.block is not None else (ruling.task, ruling.label)
            assert (task, seen, [fault.hook for fault in ruling.faults]) == spawned(plans)

        asyncio.run(all_three())

    check()


@pytest.mark.covers("REL-L58")
def test_hooks_come_to_what_their_rules_say() -> None:
    """Order, what each is shown, what is left, who failed; guards hold back, plain ones do not."""
    agree(HookChain)


def unordered(hooks: list[Hook]) -> HookChain:
    """Priorities count for nothing."""
    for hook in hooks:
        hook.priority = 0
    return HookChain(hooks)


def unguarded(hooks: list[Hook]) -> HookChain:
    """Guards stay last, and are plain."""
    for hook in hooks:
        hook.priority -= 10 * (hook.on_error == "block")
        hook.on_error = "run"
    return HookChain(hooks)


def hurried(hooks: list[Hook]) -> HookChain:
    """The last one is left out."""
    return HookChain(hooks[:-1])


class Forgetful(WordHooks):
    """Shows each hook what was said at first."""

    def __init__(self, hooks: list[Hook]) -> None:
        ordered = sorted(hooks, key=lambda hook: (hook.on_error == "block", -hook.priority))
        super().__init__(ordered)
        self._each = [WordHooks([hook]) for hook in ordered]

    async def screen_outgoing(self, words: HookText, ctx: HookContext) -> Screened:
        kept = Screened(words.text, None, ())
        for alone in self._each:
            kept = await alone.screen_outgoing(words, ctx)
            if kept.block is not None:
                break
        return kept


def forgetful(hooks: list[Hook]) -> HookChain:
    """What a hook left is lost upon the next."""
    chain = HookChain(hooks)
    chain.words = Forgetful(hooks)
    return chain


@pytest.mark.short(2)
@pytest.mark.covers("REL-L58")
@pytest.mark.slow
@pytest.mark.parametrize("bug", [unordered, unguarded, hurried, forgetful])
def test_planted_merging_is_found(bug: Callable[[list[Hook]], HookChain]) -> None:
    """Each breaks a rule."""
    with pytest.raises((AssertionError, ExceptionGroup)):
        agree(bug)
