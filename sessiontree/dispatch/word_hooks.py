"""The hooks around messages: each rewrites what the ones before it left, and may hold back what goes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sessiontree.contracts.hook_sessions import Words
from sessiontree.contracts.hooks import Block, Hook, HookContext
from sessiontree.dispatch.hook_answers import reason_of, text_of
from sessiontree.dispatch.hook_run import HookError, HookFault, HookRun, look_all, runs_at


@dataclass(frozen=True, slots=True)
class Screened:
    """What hooks made of a message."""

    text: str
    """What is left; where it is held back, words that say so."""
    block: str | None
    """Why it is held back."""
    faults: tuple[HookFault, ...]


class WordHooks:
    """The hooks around messages, in order."""

    def __init__(self, ordered: Iterable[Hook]) -> None:
        hooks = tuple(ordered)
        self._received = runs_at(hooks, "message_received")
        self._sending = runs_at(hooks, "message_sending")
        self._sent = runs_at(hooks, "message_sent")

    @property
    def runs(self) -> tuple[HookRun, ...]:
        """All of them."""
        return (*self._received, *self._sending, *self._sent)

    @property
    def hears(self) -> bool:
        """Whether anything rewrites what comes in."""
        return bool(self._received)

    @property
    def screens(self) -> bool:
        """Whether anything rewrites what goes out."""
        return bool(self._sending)

    @property
    def looks(self) -> bool:
        """Whether anything looks at what went out."""
        return bool(self._sent)

    async def received(self, words: Words, ctx: HookContext) -> Screened:
        """Return what a session hears of a message; of one a guard could not look at, words that say so."""
        kept = await _past(self._received, words, ctx, may_block=False)
        if kept.block is None:
            return kept
        return replace(kept, text=f"(A message to you was withheld: {kept.block}.)")

    async def sending(self, words: Words, ctx: HookContext) -> Screened:
        """Return what is said of a message, or that it is not."""
        kept = await _past(self._sending, words, ctx, may_block=True)
        if kept.block is None:
            return kept
        return replace(kept, text=f"(What was said here is withheld: {kept.block}.)")

    async def sent(self, words: Words, ctx: HookContext) -> tuple[HookFault, ...]:
        """Show what was said."""
        return await look_all(self._sent, lambda: (replace(words), ctx))


async def _past(runs: Iterable[HookRun], words: Words, ctx: HookContext, *, may_block: bool) -> Screened:
    faults: list[HookFault] = []
    text = words.text
    for run in runs:
        try:
            answer = await run.run(replace(words, text=text), ctx)
            if may_block and isinstance(answer, Block):
                return Screened("", reason_of(answer), tuple(faults))
            if not isinstance(answer, Words):
                raise HookError(f"it returned {type(answer).__name__} instead of Words")
            text = text_of(answer.text, "text", len(text))
        except HookError as error:
            faults.append(run.fault(error))
            if run.guards:
                return Screened("", f"hook {run.name!r} failed, {error}", tuple(faults))
    return Screened(text, None, tuple(faults))
