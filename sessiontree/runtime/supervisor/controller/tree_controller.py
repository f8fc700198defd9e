"""The controller of one tree: takes stimuli in, decides, commits the facts, and then starts the effects.

It is the only writer of its tree's facts. A decision takes effect only when its facts are durable. The
decider makes the facts, the committer makes them durable, and the effects follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sessiontree.contracts.errors import SessionClosed
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.stimuli import Stimulus
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.runtime.scheduling.departures import Departures
from sessiontree.runtime.scheduling.live_session import Input, LiveSession
from sessiontree.runtime.scheduling.tree_waiters import TreeWaiters
from sessiontree.runtime.supervisor.controller.effects import ControllerDeps, EffectRunner, from_session
from sessiontree.runtime.supervisor.controller.inbox_notifier import InboxNotifier
from sessiontree.runtime.supervisor.controller.tree_adoptions import TreeAdoptions
from sessiontree.runtime.supervisor.controller.tree_committer import TreeCommitter
from sessiontree.runtime.supervisor.controller.tree_decider import TreeDecider
from sessiontree.runtime.timing.wait_times import WaitTimes
from sessiontree.runtime.transport.frames import Outcome, Watch
from sessiontree.runtime.transport.supervisor_api import CallReply, Reply
from sessiontree.session.instructions import ToTree
from sessiontree.session.turns import is_offer
from sessiontree.tree.state import protocol as tree_stimuli
from sessiontree.tree.state.protocol import TreeInstruction, TreeStimulus
from sessiontree.tree.state.state import TreeState


class TreeController:
    """Runs one tree."""

    def __init__(
        self, config: TreeConfig, state: TreeState, deps: ControllerDeps, last_fact_ms: int = 0
    ) -> None:
        """Take charge of a tree's state; ``last_fact_ms`` is the time of its newest fact."""
        self.config = config
        self.state = state
        self.live_sessions: dict[str, LiveSession] = {}
        self.failure: Exception | None = None
        self.equipment = config.tree_id
        """Name of the resources that it was opened with."""
        self.watched = 0
        """How many watchers the tree's progress has."""
        self.now_ms = deps.clock.now_ms
        """The tree's time."""
        self.wall_ms = deps.clock.wall_ms
        """The machine's time."""
        self.waits = WaitTimes(self.live_sessions)
        self.waiters = TreeWaiters()
        self.departures = Departures(
            lambda: self.failure is not None, self._on_leftovers, self.wait_until_durable
        )
        self.inbox_notifier = InboxNotifier(
            name for name, request in state.requests.items() if request.how == "show"
        )
        self._deps = deps
        self._settled = 0
        self._effects = EffectRunner(self, deps)
        self.image_questions = self._effects.image_questions
        self.adoptions = TreeAdoptions(self, deps)
        decider = TreeDecider(state, self.inbox_notifier)
        self._committer = TreeCommitter(
            self, decider, self._effects, deps, self.inbox_notifier, self._fail, last_fact_ms
        )

    def close(self) -> None:
        """Stop all timers; all waiters get the error that the tree is closed here."""
        self.adoptions.close()
        self._effects.close()
        self._fail(SessionClosed("main", "the tree was closed in this process; resume it to go on"))

    # Changing the tree.

    def stimulate(self, stimulus: TreeStimulus, cause: str) -> list[TreeInstruction]:
        """Decide on a stimulus; its instructions are carried out after the commit."""
        return self._committer.commit(None, (), (stimulus,), cause, ())

    def stimulate_all(self, given: Sequence[TreeStimulus], cause: str) -> None:
        """Decide on several stimuli, as one commit."""
        self._committer.commit(None, (), given, cause, ())

    def run_afterwards(self, action: Callable[[], None]) -> None:
        """Run an action once everything decided so far is durable and carried out."""
        self._committer.run_afterwards(action)

    async def settle(self, stimulus: TreeStimulus, cause: str) -> list[TreeInstruction]:
        """Decide on a stimulus and return its instructions once they are durable and carried out.

        Raises:
            SessionTreeError: the facts could not be made durable, or the tree was closed.
        """
        self.check_open()
        instructions = self.stimulate(stimulus, cause)
        await self.wait_until_durable()
        return instructions

    async def wait_until_durable(self) -> None:
        """Wait until everything decided so far is durable and carried out.

        Raises:
            SessionTreeError: as :meth:`settle`.
        """
        self.check_open()
        self._settled += 1
        settling = self.waiters.settling
        done = settling.wait(key := str(self._settled))
        self._committer.run_afterwards(partial(settling.settle, key, None))
        await done

    def _on_leftovers(self, session: str, ended: int) -> None:
        at_ms = self._deps.clock.now_ms()
        self.stimulate(tree_stimuli.LeftoversFound(at_ms, session, ended), f"left:{session}")

    def check_open(self) -> None:
        """Raise the error that ended the tree in this process, if any."""
        if self.failure is not None:
            raise self.failure

    def _fail(self, error: Exception) -> None:
        """End the tree in this process after a failure of the journal or a close; waiters get the error."""
        if self.failure is None:
            self.failure = error
        for live in list(self.live_sessions.values()):
            live.over = True
            self._deps.scheduler.evict(live, force=True)
            self._deps.gateway.forget(self.config.tree_id, live.session)
        self.live_sessions.clear()
        self.waiters.fail_all(self.failure)
        self.departures.close()
        self.inbox_notifier.close()

    def watch(self, change: int) -> None:
        """Count the watchers of the tree; hosts are notified of the first and after the last."""
        before = self.watched > 0
        self.watched = max(0, self.watched + change)
        watched = self.watched > 0
        if watched != before:
            self._deps.gateway.watch(self.config.tree_id, watched=watched)
            for live in self.live_sessions.values():
                if live.link is not None:
                    live.link.send(Watch(self.config.tree_id, watched))

    # What hosts report.

    def on_crash(self, live: LiveSession, reason: str) -> None:
        """End a session that brought down its host, or every host it was given, as failed."""
        lost = tree_stimuli.SessionLost(self.now_ms(), live.session, reason)
        self.stimulate(lost, "host")

    def on_outcome(self, live: LiveSession, outcome: Outcome) -> None:
        """Take in the result of a session's step."""
        at_ms = self.now_ms()
        live.kept, before = None, live.taken
        live.repeats = live.prompt_owed = False
        posts = _note_taken(live, outcome.taken)
        live.idle, live.jobs = outcome.idle and not live.sent, outcome.jobs
        self.waits.on_stirred(live.session)
        given: list[TreeStimulus] = []
        offers = any(is_offer(each) for each in outcome.instructions)
        if live.taken - before > len(posts) and not offers:
            given.append(tree_stimuli.Stirred(at_ms, live.session))
        live.quiet = offers and self._has_taken_all(live, posts)
        if posts:
            given.append(tree_stimuli.PostsConsumed(at_ms, live.session, posts))
        if outcome.usage is not None:
            live.losses = 0
            live.alone = False
            given.append(tree_stimuli.UsageReported(at_ms, live.session, outcome.usage))
        local: list[Any] = []
        for instruction in outcome.instructions:
            if type(instruction) is ToTree:
                given.append(from_session(live, instruction.event, at_ms))
            else:
                local.append(instruction)
        if outcome.crash is not None:
            given.append(tree_stimuli.SessionLost(at_ms, live.session, outcome.crash))
        cause = outcome.facts[0].cause if outcome.facts else "outcome"
        if outcome.facts or given or local:
            self._committer.commit(live, outcome.facts, given, cause, local)
        if outcome.usage is not None:
            self._effects.charged(live.session)
        self._go_on(live)

    def _go_on(self, live: LiveSession) -> None:
        """Keep a session's host, or let it go, as its work demands."""
        if not live.over:
            if live.waiting:
                self._deps.scheduler.want(live)
            self._deps.scheduler.settle(live)

    def get_agent_config(self, agent: str) -> AgentConfig:
        """Return an agent's configuration, with the names of its models."""
        return self._deps.agents[agent]

    def locate_workspace(self, spec: SessionSpec) -> str:
        """Return the path of a session's workspace."""
        return (
            self._deps.copies.locate_workspace(self.config, spec) if spec.workspace else self.config.workspace
        )

    def _has_taken_all(self, live: LiveSession, posts: tuple[str, ...]) -> bool:
        """Whether nothing else is on its way to a session that took these posts."""
        owed = self.state.owed_to.list_members(live.session)
        return not live.waiting and not live.sent and all(post in posts for post in owed)

    # What goes to sessions.

    def ensure_live_session(self, session: str) -> LiveSession:
        """Return the record of a live session, creating it on first use."""
        live = self.live_sessions.get(session)
        if live is None:
            spec = self.state.sessions[session].spec
            live = self.live_sessions[session] = LiveSession(self, session, spec.kind, spec.dedicated)
        return live

    def deliver(self, session: str, stimulus: Stimulus, cause: str, post_id: str | None = None) -> None:
        """Deliver a stimulus to a live session."""
        live = self.ensure_live_session(session)
        live.waiting.append(Input(cause, stimulus, post_id))
        self._deps.scheduler.want(live)

    def say(self, session: str, incoming: stimuli.Incoming) -> asyncio.Future[Reply]:
        """Deliver a message to a session; the future gets the final message that answers it."""
        future = self.waiters.expect_reply(session, incoming.message_id)
        self._stir(session, incoming.at_ms, f"message:{incoming.message_id}")
        self.deliver(session, incoming, f"message:{incoming.message_id}")
        return future

    def call(self, session: str, asked: stimuli.CallAsked) -> asyncio.Future[CallReply]:
        """Have a session make one call outside its transcript."""
        future = self.waiters.expect_call(session, asked.call_id)
        self._stir(session, asked.at_ms, f"call:{asked.call_id}")
        self.deliver(session, asked, f"call:{asked.call_id}")
        return future

    def _stir(self, session: str, at_ms: int, cause: str) -> None:
        """Withdraw a final message that could end the session before it gets this; Main's can't end it."""
        if session != "main" and self.state.sessions[session].held is not None:
            self.stimulate(tree_stimuli.Stirred(at_ms, session), cause)

    def carry(self, instructions: Sequence[TreeInstruction]) -> None:
        """Carry out instructions whose facts are durable already, as after recovery."""
        self._committer.carry_out((), instructions, None, (), 0)


def _note_taken(live: LiveSession, taken: int) -> tuple[str, ...]:
    """Remove the inputs that a session took from those on their way; return the posts among them."""
    count = min(taken - live.taken, len(live.sent))
    if count <= 0:
        return ()
    done = live.sent[:count]
    del live.sent[:count]
    live.taken += count
    return tuple([each.post_id for each in done if each.post_id is not None])
