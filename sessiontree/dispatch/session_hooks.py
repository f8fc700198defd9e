"""The hooks around spawns and sessions: what they make of a spawn, and who looks at what begins and ends."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sessiontree.contracts.hook_sessions import EndedSession, Reword, Spawning, StartedSession
from sessiontree.contracts.hooks import TOLD_POINTS, Block, Hook, HookContext
from sessiontree.dispatch.hook_answers import reason_of, text_of
from sessiontree.dispatch.hook_run import HookError, HookFault, look_all, runs_at

MOST_LABEL_CHARS = 200


@dataclass(slots=True)
class SpawnRuling:
    """What the hooks before a spawn came to."""

    task: str
    label: str | None
    block: str | None = None
    """Why nothing is spawned."""
    faults: list[HookFault] = field(default_factory=list)


class SessionHooks:
    """The hooks around spawns and sessions, in order."""

    def __init__(self, ordered: Iterable[Hook]) -> None:
        hooks = tuple(ordered)
        self._spawning = runs_at(hooks, "subagent_spawning")
        self._told = {point: runs_at(hooks, point) for point in TOLD_POINTS}
        self.runs = (*self._spawning, *(run for runs in self._told.values() for run in runs))
        """All of them."""

    @property
    def judges(self) -> bool:
        """Whether anything decides about spawns."""
        return bool(self._spawning)

    @property
    def looks(self) -> bool:
        """Whether anything looks at sessions that begin and end."""
        return any(self._told.values())

    async def spawning(self, spawning: Spawning, ctx: HookContext) -> SpawnRuling:
        """Ask whether, and with what words, a child may be asked for; ``ctx`` is its parent's."""
        ruling = SpawnRuling(spawning.task, spawning.label)
        for run in self._spawning:
            seen = replace(spawning)
            if run.guards:
                seen = replace(spawning, task=ruling.task, label=ruling.label)
            try:
                _take(ruling, await run.run(seen, ctx), spawning)
            except HookError as error:
                ruling.faults.append(run.fault(error))
                if run.guards:
                    ruling.block = f"hook {run.name!r} has to let this spawn pass, but failed: {error}"
            if ruling.block is not None:
                break
        return ruling

    async def started(
        self, started: StartedSession, ctx: HookContext, parent: HookContext | None
    ) -> tuple[HookFault, ...]:
        """Show a session that exists, then its parent's new child."""
        faults = await look_all(self._told["session_start"], lambda: (replace(started), ctx))
        if parent is None:
            return faults
        told = self._told["subagent_spawned"]
        return faults + await look_all(told, lambda: (replace(started), parent))

    async def ended(
        self, ended: EndedSession, ctx: HookContext, parent: HookContext | None
    ) -> tuple[HookFault, ...]:
        """Show a session that has ended, then its parent's child that has."""

        def own() -> EndedSession:
            return replace(ended, output=copy.deepcopy(ended.output))

        faults = await look_all(self._told["session_end"], lambda: (own(), ctx))
        if parent is None:
            return faults
        return faults + await look_all(self._told["subagent_ended"], lambda: (own(), parent))


def _take(ruling: SpawnRuling, answer: object, asked: Spawning) -> None:
    """Merge one answer in.

    Raises:
        HookError: it is none, or does not fit.
    """
    if answer is None:
        return
    if isinstance(answer, Block):
        ruling.block = reason_of(answer)
    elif isinstance(answer, Reword):
        task, label = ruling.task, ruling.label
        if answer.task is not None:
            task = text_of(answer.task, "task", len(asked.task))
        if answer.label is not None:
            label = text_of(answer.label, "label", 0)
            if len(label) > MOST_LABEL_CHARS:
                raise HookError(f"its label is longer than {MOST_LABEL_CHARS} characters")
        ruling.task, ruling.label = task, label
    else:
        raise HookError(f"it returned {type(answer).__name__} instead of None, Block or Reword")
