"""Commits: what was decided becomes durable, and is carried out then, in the order of the decisions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sessiontree.contracts.errors import JournalError
from sessiontree.contracts.facts.session_facts import CallIntended
from sessiontree.contracts.facts.stimuli import ApprovalAnswered
from sessiontree.contracts.recorded.codec import pack
from sessiontree.journal.record import Packed
from sessiontree.runtime.scheduling.live_session import Controller, LiveSession
from sessiontree.runtime.supervisor.controller.effects import ControllerDeps, EffectRunner
from sessiontree.runtime.supervisor.controller.inbox_notifier import InboxNotifier
from sessiontree.runtime.supervisor.controller.tree_decider import TreeDecider
from sessiontree.tree.state.protocol import Deliver, TreeInstruction, TreeStimulus


class CommitSequencer:
    """Runs each action once its commit is durable and every earlier action has run.

    Args:
        on_failure: Called once, if a commit fails; no action runs afterwards.
    """

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._queue: deque[tuple[asyncio.Future[None] | None, Callable[[], None]]] = deque()
        self._running = False
        self._failed = False

    def after(self, commit: asyncio.Future[None] | None, action: Callable[[], None]) -> None:
        """Run an action after a commit; None = after all earlier actions."""
        self._queue.append((commit, action))
        if commit is not None and not commit.done():
            commit.add_done_callback(self._on_done)
        else:
            self._run()

    def _on_done(self, commit: asyncio.Future[None]) -> None:
        if not commit.cancelled():
            commit.exception()  # after a failure, nothing else retrieves the exceptions of later commits
        self._run()

    def _run(self) -> None:
        if self._running:
            return  # Race: an action that commits comes here again; what it adds follows when it has returned
        self._running = True
        try:
            while self._queue and not self._failed:
                commit, action = self._queue[0]
                if commit is not None:
                    if not commit.done():
                        return
                    error = None if commit.cancelled() else commit.exception()
                    if commit.cancelled() or error is not None:
                        self._fail(error)
                        return
                self._queue.popleft()
                action()
        finally:
            self._running = False

    def _fail(self, error: BaseException | None) -> None:
        self._failed = True
        self._queue.clear()
        self._on_failure(error if isinstance(error, Exception) else RuntimeError("the commit was cancelled"))


class TreeCommitter:
    """Appends the facts of one tree to the journal, and carries out what follows once they are durable.

    Args:
        controller: The tree's controller.
        decider: Decides for the tree.
        effects: Carries out instructions.
        deps: The journal and the scheduler.
        inbox_notifier: Wakes the readers of the inbox.
        fail: Called with the error of the journal if facts can't become durable.
        last_fact_ms: The time of the tree's newest fact.
    """

    def __init__(
        self,
        controller: Controller,
        decider: TreeDecider,
        effects: EffectRunner,
        deps: ControllerDeps,
        inbox_notifier: InboxNotifier,
        fail: Callable[[Exception], None],
        last_fact_ms: int,
    ) -> None:
        self._controller = controller
        self._decider = decider
        self._effects = effects
        self._deps = deps
        self._inbox_notifier = inbox_notifier
        self._fail = fail
        self._sequencer = CommitSequencer(fail)
        self._last_fact_ms = last_fact_ms

    def run_afterwards(self, action: Callable[[], None]) -> None:
        """Run an action once everything decided so far is durable and carried out."""
        self._sequencer.after(None, action)

    def commit(
        self,
        live: LiveSession | None,
        session_facts: Sequence[Packed],
        given: Sequence[TreeStimulus],
        cause: str,
        local: Sequence[Any],
    ) -> list[TreeInstruction]:
        """Append session facts and what the tree machine makes of them as one commit."""
        tree_facts, instructions, tell = self._decider.decide_all(live, given, cause)
        intents: list[tuple[LiveSession, Packed]] = []
        if instructions:
            instructions, intents = collect_intents(instructions, self._controller.live_sessions, cause)
        commit, seq = None, 0
        own = list(session_facts)
        chunks: list[tuple[str, Sequence[Packed]]] = []
        counted: list[LiveSession] = []
        if live is not None and own:
            chunks.append((live.session, own))
            counted.append(live)
        for asker, intent in intents:
            if asker is live and own:
                own.append(intent)
            else:
                chunks.append((asker.session, (intent,)))
                counted.append(asker)
        if tree_facts:
            chunks.append(("", tree_facts))
        if chunks:
            chunks = [(session, self._keep_time_order(facts)) for session, facts in chunks]
            try:
                seq, commit = self._deps.journal.append(self._controller.config.tree_id, chunks)
            except JournalError as error:
                # Race: a commit of another tree broke the journal meanwhile. This tree ends here too, but its
                # hosts go on.
                self._fail(error)
                return instructions
            # Race: until the commit is durable, another host would read old facts of these sessions.
            for each in counted:
                each.commits += 1
                each.journaled = True
        self._sequencer.after(
            commit, partial(self.carry_out, counted, instructions, live, local, seq if tell else 0)
        )
        self._effects.begin_children(instructions)
        return instructions

    def _keep_time_order(self, facts: Sequence[Packed]) -> Sequence[Packed]:
        """Return facts whose times never step back in the tree; a late fact gets the newest time."""
        last_fact_ms, is_in_order = self._last_fact_ms, True
        for _, at_ms, _ in facts:
            if at_ms < last_fact_ms:
                is_in_order = False
            else:
                last_fact_ms = at_ms
        latest_ms, self._last_fact_ms = self._last_fact_ms, last_fact_ms
        if is_in_order:
            return facts
        ordered = []
        for cause, at_ms, text in facts:
            latest_ms = max(latest_ms, at_ms)
            ordered.append(Packed(cause, latest_ms, text))
        return ordered

    def carry_out(
        self,
        counted: Sequence[LiveSession],
        instructions: Sequence[TreeInstruction],
        live: LiveSession | None,
        local: Sequence[Any],
        notified_seq: int,
    ) -> None:
        """Carry out instructions whose facts are durable, and go on with the sessions of the commit.

        Args:
            counted: The sessions with facts in the commit.
            instructions: What the tree machine wants done.
            live: The session whose own instructions are carried out first, if any.
            local: These instructions.
            notified_seq: The number of the commit's newest fact if an inbox acts on it, else 0.
        """
        if self._controller.failure is None:
            self._do(live, local, instructions, counted)
        else:
            # Race: the tree was closed before its facts were durable. The instructions are owed, and follow
            # when it is resumed.
            self._release_commits(counted)
        self._controller.waiters.news.set()
        if notified_seq:
            self._inbox_notifier.ring(notified_seq)

    def _do(
        self,
        live: LiveSession | None,
        local: Sequence[Any],
        instructions: Sequence[TreeInstruction],
        counted: Sequence[LiveSession],
    ) -> None:
        if live is not None:
            for each in local:
                self._effects.run_for_session(live, each)
        for instruction in instructions:
            self._effects.run_for_tree(instruction)
        # Race: not before. One session that gets a host could take it from another with instructions here.
        self._release_commits(counted)
        for each in counted:
            if not each.over:
                if each.link is None and (each.waiting or each.recovered):
                    self._deps.scheduler.want(each)
                self._deps.scheduler.settle(each)

    @staticmethod
    def _release_commits(counted: Sequence[LiveSession]) -> None:
        for each in counted:
            each.commits -= 1


def collect_intents(
    instructions: Sequence[TreeInstruction], live_sessions: Mapping[str, LiveSession], cause: str
) -> tuple[list[TreeInstruction], list[tuple[LiveSession, Packed]]]:
    """Return the instructions, with approvals marked whose intents are committed too, and these intents."""
    told: list[TreeInstruction] = []
    intents: list[tuple[LiveSession, Packed]] = []
    for instruction in instructions:
        answer = instruction.stimulus if isinstance(instruction, Deliver) else None
        if isinstance(instruction, Deliver) and isinstance(answer, ApprovalAnswered):
            live = live_sessions.get(instruction.session)
            call = None if live is None or not live.asked else live.asked.pop(answer.request_id, None)
            listens = live is not None and live.link is not None and not live.over
            if live is not None and listens and call is not None and answer.decision == "approved":
                intents.append((live, Packed(cause, answer.at_ms, pack(CallIntended(call)))))
                answer = replace(answer, intended=True)
            told.append(replace(instruction, stimulus=answer))
        else:
            told.append(instruction)
    return told, intents
