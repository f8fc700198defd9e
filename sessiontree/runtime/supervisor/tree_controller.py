"""The controller of one tree: takes stimuli in, decides, commits the facts, and then starts the effects.

It is the only writer of its tree's facts. A decision takes effect only when its facts are durable.
Long because each event of a tree, of its sessions and of its waiters passes here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from sessiontree.contracts.errors import JournalError, SessionClosed, SessionTreeError, describe_error
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.stimuli import Stimulus
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalWaiting,
    ChannelSaid,
    ClientCallEnded,
    ClientCallOpened,
    SessionEnded,
    TreeFact,
)
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.session_ids import compute_session_key
from sessiontree.journal.record import Packed
from sessiontree.runtime.rights.session_rights import describe_denial
from sessiontree.runtime.scheduling.live_session import FutureMap, Input, LiveSession
from sessiontree.runtime.supervisor.effects import (
    CommitSequencer,
    ControllerDeps,
    EffectRunner,
    TreeFacts,
    collect_intents,
    from_session,
)
from sessiontree.runtime.timing.wait_times import WaitTimes
from sessiontree.runtime.transport.frames import Adopt, Outcome, Watch
from sessiontree.runtime.transport.supervisor_api import CallReply, CodeRaised, Reply
from sessiontree.session.instructions import ToTree
from sessiontree.session.turns import is_offer
from sessiontree.tree.decide import decide
from sessiontree.tree.rules.spawn import has_channel
from sessiontree.tree.state import protocol as tree_stimuli
from sessiontree.tree.state.budgets import compute_remaining
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.protocol import TreeInstruction, TreeStimulus
from sessiontree.tree.state.state import TreeState

LEFT_WITHIN_S = 10.0
"""How long a receipt waits for ended sessions to leave their hosts."""
METERED = frozenset({"tokens", "cost_usd", "tool_calls"})
"""Members of a budget that replies use up."""
BOOKED_AFTER_S = 0.05
"""How long after a session's first adoption its time to live is recorded."""
LATER_S = 0.05
"""How long an inbox may still show a request that was decided elsewhere, in seconds."""


MAX_REPORTS: Final = 64
"""Most reports of raised exceptions that wait for a reader; the oldest are dropped."""


class InboxNotifier:
    """Wakes inboxes: knows which requests are shown, and the newest fact on which an inbox acts.

    Args:
        shown: Ids of the requests that wait for a person already.
    """

    def __init__(self, shown: Iterable[str]) -> None:
        self.notified_seq = 0
        """Number of the newest fact that an inbox acts on."""
        self.reports: deque[CodeRaised] = deque(maxlen=MAX_REPORTS)
        """What code of the program's author raised; the next reader takes it."""
        self._shown = set(shown)
        self._rang = asyncio.Event()
        self._is_urgent = False
        self._later: asyncio.TimerHandle | None = None

    def take_facts(self, facts: Iterable[TreeFact]) -> bool:
        """Take facts in, each once and in order; return whether an inbox acts on any."""
        found = [self._take_fact(fact) for fact in facts]
        return any(found)

    def _take_fact(self, fact: TreeFact) -> bool:
        if isinstance(fact, ApprovalWaiting) and fact.how == "show":
            self._shown.add(fact.request_id)
            self._is_urgent = True
            return True
        if isinstance(fact, ApprovalDecided) and fact.request_id in self._shown:
            self._shown.remove(fact.request_id)
            return True
        if isinstance(fact, ClientCallEnded):
            return True
        is_last = (
            isinstance(fact, SessionEnded) and fact.session == "main"
        )  # the reader then learns that the tree has ended
        told = is_last or isinstance(fact, ChannelSaid | ClientCallOpened)
        self._is_urgent = self._is_urgent or told
        return told

    def ring(self, seq: int) -> None:
        """Wake all waiters: facts up to a number are durable.

        Without anything new to show, wake them a little later: the removal of a decided request must not
        take the processor from the call that was approved.
        """
        self.notified_seq = max(self.notified_seq, seq)
        if self._is_urgent:
            self._is_urgent = False
            self._rang.set()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(LATER_S, self._ring_later)

    def report(self, raised: CodeRaised) -> None:
        """Pass on what code of the program's author raised."""
        self.reports.append(raised)
        self._rang.set()

    def close(self) -> None:
        """Wake all waiters for the last time."""
        if self._later is not None:
            self._later.cancel()
        self._rang.set()

    def _ring_later(self) -> None:
        self._later = None
        self._rang.set()

    async def wait(self) -> None:
        """Wait for the next wake-up. Compare ``notified_seq`` first, without an ``await`` in between."""
        self._rang.clear()
        await self._rang.wait()


class TreeController:
    """Runs one tree."""

    def __init__(
        self, config: TreeConfig, state: TreeState, deps: ControllerDeps, booked_ms: int = 0
    ) -> None:
        """Take charge of a tree's state; ``booked_ms`` is the time of its newest fact."""
        self.config = config
        self.state = state
        self.live_sessions: dict[str, LiveSession] = {}
        self.waits = WaitTimes(self.live_sessions)
        self.replies: FutureMap[Reply] = FutureMap()
        self.calls: FutureMap[CallReply] = FutureMap()
        self.results: FutureMap[SessionResult[Any]] = FutureMap()
        self.failure: Exception | None = None
        self.equipment = config.tree_id
        """Name of the resources that it was opened with."""
        self.watched = 0
        """How many watchers the tree's progress has."""
        self.news = asyncio.Event()
        """Set whenever facts become durable; a waiter clears it first."""
        self.inbox_notifier = InboxNotifier(
            name for name, request in state.requests.items() if request.how == "show"
        )
        self.settling: FutureMap[None] = FutureMap()
        self._settled = 0
        self._deps = deps
        self._sequencer = CommitSequencer(self._fail)
        self.expected: dict[str, set[str]] = {}
        """Ids of messages and calls that a session has not answered."""
        self._effects = EffectRunner(self, deps)
        self.image_questions = self._effects.image_questions
        self._leaving: Counter[str] = Counter()
        """Sessions that are leaving hosts, with the number of hosts."""
        self._has_left = asyncio.Event()
        self.now_ms = deps.clock.now_ms
        """The tree's time."""
        self.wall_ms = deps.clock.wall_ms
        """The machine's time."""
        self._booked_ms = booked_ms
        self._agents: dict[tuple[object, ...], AgentConfig] = {}
        """By agent and strictness, the configurations that sessions were adopted with."""
        self._embodied: list[str] = []
        self._booking: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Stop all timers; all waiters get the error that the tree is closed here."""
        self._book_embodied()
        self._effects.close()
        self._fail(SessionClosed("main", "the tree was closed in this process; resume it to go on"))

    # Changing the tree.

    def stimulate(self, stimulus: TreeStimulus, cause: str) -> list[TreeInstruction]:
        """Decide on a stimulus; its instructions are carried out after the commit."""
        return self._commit(None, (), (stimulus,), cause, ())

    def run_afterwards(self, action: Callable[[], None]) -> None:
        """Run an action once everything decided so far is durable and carried out."""
        self._sequencer.after(None, action)

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
        done = self.settling.wait(key := str(self._settled))
        self._sequencer.after(None, partial(self.settling.settle, key, None))
        await done

    def on_session_leaving(self, session: str) -> None:
        """A session begins to leave a host; :meth:`left` is to follow."""
        self._leaving[session] += 1

    def on_session_left(self, session: str, ended: int) -> None:
        """Note that a session has left a host, where ``ended`` of its processes were ended."""
        self._leaving[session] -= 1
        if not self._leaving[session]:
            del self._leaving[session]
        if ended and self.failure is None:
            at_ms = self._deps.clock.now_ms()
            self.stimulate(tree_stimuli.LeftoversFound(at_ms, session, ended), f"left:{session}")
        self._has_left.set()

    async def wait_until_left(self, session: str, besides: str = "") -> None:
        """Wait for a limited time until a session and those below it have left; ``besides`` may stay.

        The number of processes that were ended there is durable then, unless the tree is closed meanwhile.
        """
        with contextlib.suppress(TimeoutError, SessionTreeError):
            async with asyncio.timeout(LEFT_WITHIN_S):
                while self.failure is None and self._is_leaving(session, besides):
                    self._has_left.clear()
                    await self._has_left.wait()
                await self.wait_until_durable()

    def _is_leaving(self, session: str, besides: str) -> bool:
        below = f"{session}/"
        return any(f"{name}/".startswith(below) for name in self._leaving if name != besides)

    def check_open(self) -> None:
        """Raise the error that ended the tree in this process, if any."""
        if self.failure is not None:
            raise self.failure

    def _commit(
        self,
        live: LiveSession | None,
        session_facts: Sequence[Packed],
        given: Sequence[TreeStimulus],
        cause: str,
        local: Sequence[Any],
    ) -> list[TreeInstruction]:
        """Append session facts and what the tree machine makes of them as one commit."""
        tree_facts, instructions, tell = self._decide_all(live, given, cause)
        intents: list[tuple[LiveSession, Packed]] = []
        if instructions:
            instructions, intents = collect_intents(instructions, self.live_sessions, cause)
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
                seq, commit = self._deps.journal.append(self.config.tree_id, chunks)
            except JournalError as error:
                # A commit of another tree broke the journal: this tree ends here too, but its hosts go on.
                self._fail(error)
                return instructions
            for each in counted:
                each.commits += 1
                each.journaled = True
        self._sequencer.after(
            commit, partial(self._carry_out, counted, instructions, live, local, seq if tell else 0)
        )
        self._effects.begin_children(instructions)
        return instructions

    def _keep_time_order(self, facts: Sequence[Packed]) -> Sequence[Packed]:
        """Return facts whose times never step back in the tree; a late fact gets the newest time."""
        booked_ms, is_in_order = self._booked_ms, True
        for _, at_ms, _ in facts:
            if at_ms < booked_ms:
                is_in_order = False
            else:
                booked_ms = at_ms
        latest_ms, self._booked_ms = self._booked_ms, booked_ms
        if is_in_order:
            return facts
        ordered = []
        for cause, at_ms, text in facts:
            latest_ms = max(latest_ms, at_ms)
            ordered.append(Packed(cause, latest_ms, text))
        return ordered

    def _decide_all(
        self, live: LiveSession | None, given: Sequence[TreeStimulus], cause: str
    ) -> tuple[list[Packed], list[TreeInstruction], bool]:
        """Decide on stimuli in turn. If ``decide`` raises for a session's stimulus, the session has crashed.

        Returns:
            The facts to write, the instructions, and whether an inbox acts on any of the facts.

        Raises:
            Exception: ``decide`` raised for a stimulus of the creating program; nothing has changed.
        """
        facts = TreeFacts(cause)
        instructions: list[TreeInstruction] = []
        tell = False
        for stimulus in given:
            try:
                tell = self._decide(stimulus, facts, instructions) or tell
            except Exception as error:
                if live is None:
                    raise
                lost = tree_stimuli.SessionLost(stimulus.at_ms, live.session, describe_error(error))
                self._decide(lost, facts, instructions)
                return facts.packed, instructions, True
        return facts.packed, instructions, tell

    def _decide(
        self,
        stimulus: TreeStimulus,
        facts: TreeFacts,
        instructions: list[TreeInstruction],
    ) -> bool:
        new_facts, new_instructions = decide(self.state, stimulus)
        # Packed before the state changes: the state must never hold a fact that the journal can't store.
        facts.add(new_facts, stimulus.at_ms)
        for fact in new_facts:
            evolve(self.state, fact)
        instructions.extend(new_instructions)
        return self.inbox_notifier.take_facts(new_facts)

    def _carry_out(
        self,
        counted: Sequence[LiveSession],
        instructions: Sequence[TreeInstruction],
        live: LiveSession | None,
        local: Sequence[Any],
        notified_seq: int,
    ) -> None:
        if self.failure is None:
            self._do(live, local, instructions, counted)
        else:
            self._release_commits(counted)
        # Otherwise the tree was closed meanwhile; the instructions are owed, and follow when it is resumed.
        self.news.set()
        if notified_seq:
            self.inbox_notifier.ring(notified_seq)

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
        # Not before: while one session gets a host, no other with instructions here may lose its host.
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

    def _fail(self, error: Exception) -> None:
        """End the tree in this process after a failure of the journal or a close; waiters get the error."""
        if self.failure is None:
            self.failure = error
        for live in list(self.live_sessions.values()):
            live.over = True
            self._deps.scheduler.evict(live, force=True)
            self._deps.gateway.forget(self.config.tree_id, live.session)
        self.live_sessions.clear()
        for waiters in (self.replies, self.calls, self.results, self.settling):
            waiters.fail_all(self.failure)
        self.news.set()
        self._has_left.set()
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

    def embodied(self, live: LiveSession) -> None:
        """Note that a host embodies a session. If its time to live begins now, a fact of it is written soon.

        The facts of several sessions are written together; a session that has ended by then gets none.
        """
        node = self.state.sessions[live.session]
        if node.spec.ttl_s is not None and node.expires_at_ms is None:
            self._embodied.append(live.session)
            if self._booking is None:
                self._booking = asyncio.get_running_loop().call_later(BOOKED_AFTER_S, self._book_embodied)

    def _book_embodied(self) -> None:
        if self._booking is not None:
            self._booking.cancel()
            self._booking = None
        names, self._embodied = self._embodied, []
        if names and self.failure is None:
            at_ms = self.now_ms()
            self._commit(
                None, (), [tree_stimuli.SessionEmbodied(at_ms, name) for name in names], "adopted", ()
            )

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
        posts = self._note_taken(live, outcome.taken)
        live.idle, live.jobs = outcome.idle and not live.sent, outcome.jobs
        self.waits.on_stirred(live.session)
        given: list[TreeStimulus] = []
        offers = any(is_offer(each) for each in outcome.instructions)
        if live.taken - before > len(posts) and not offers:
            given.append(tree_stimuli.Stirred(at_ms, live.session))
        live.quiet = offers and self._has_all(live, posts)
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
            self._commit(live, outcome.facts, given, cause, local)
        if outcome.usage is not None:
            self._effects.charged(live.session)
        self._go_on(live)

    def _go_on(self, live: LiveSession) -> None:
        """Keep a session's host, or let it go, as its work demands."""
        if not live.over:
            if live.waiting:
                self._deps.scheduler.want(live)
            self._deps.scheduler.settle(live)

    def _has_all(self, live: LiveSession, posts: tuple[str, ...]) -> bool:
        """Whether nothing else is on its way to a session that took these posts."""
        owed = self.state.owed_to.members(live.session)
        return not live.waiting and not live.sent and all(post in posts for post in owed)

    def _note_taken(self, live: LiveSession, taken: int) -> tuple[str, ...]:
        count = min(taken - live.taken, len(live.sent))
        if count <= 0:
            return ()
        done = live.sent[:count]
        del live.sent[:count]
        live.taken += count
        return tuple([each.post_id for each in done if each.post_id is not None])

    def get_agent_config(self, agent: str) -> AgentConfig:
        """Return an agent's configuration, with the names of its models."""
        return self._deps.agents[agent]

    def build_adoption(self, live: LiveSession) -> Adopt:
        """Return the frame that makes a host embody a session."""
        spec = self.state.sessions[live.session].spec
        texts: tuple[str, ...] = ()
        if live.journaled and not live.resumes:
            records = self._deps.journal.read_session(self.config.tree_id, live.session)
            texts = tuple(record.text for record in records)
        agent = self._configure_agent(spec)
        return Adopt(
            self.config.tree_id,
            live.session,
            live.epoch,
            spec,
            self.config.limits,
            agent,
            self.locate_workspace(spec),
            agent.model,
            texts,
            live.recovered,
            not METERED.isdisjoint(compute_remaining(self.state, live.session)),
            live.grant,
            self.watched > 0,
            self.equipment,
            compute_session_key(self.config.nonce, live.session),
            self._deps.clock.offset_ms,
            has_channel(self.state, live.session),
            "" if texts or live.resumes else self.config.guidance,
            live.resumes,
            self._explain_denial(spec),
        )

    def locate_workspace(self, spec: SessionSpec) -> str:
        """Return the path of a session's workspace."""
        return (
            self._deps.copies.locate_workspace(self.config, spec) if spec.workspace else self.config.workspace
        )

    def _explain_denial(self, spec: SessionSpec) -> str:
        if spec.system_tier != "deny":
            return ""
        return describe_denial(self.config, [each.spec for each in self.state.chain(spec.session_id)])

    def _configure_agent(self, spec: SessionSpec) -> AgentConfig:
        """Return the configuration of a session's agent, as strict as the sessions above it make it."""
        name = spec.agent, *spec.strictness.values()
        agent = self._agents.get(name)
        if agent is None:
            agent = self._deps.agents[spec.agent].model_copy(update=spec.strictness)
            self._agents[name] = agent
        return agent

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
        future = self.replies.wait(incoming.message_id)
        self.expected.setdefault(session, set()).add(incoming.message_id)
        self._stir(session, incoming.at_ms, f"message:{incoming.message_id}")
        self.deliver(session, incoming, f"message:{incoming.message_id}")
        return future

    def call(self, session: str, asked: stimuli.CallAsked) -> asyncio.Future[CallReply]:
        """Have a session make one call outside its transcript."""
        future = self.calls.wait(asked.call_id)
        self.expected.setdefault(session, set()).add(asked.call_id)
        self._stir(session, asked.at_ms, f"call:{asked.call_id}")
        self.deliver(session, asked, f"call:{asked.call_id}")
        return future

    def _stir(self, session: str, at_ms: int, cause: str) -> None:
        """Withdraw a final message that could end the session before it gets this; Main's can't end it."""
        if session != "main" and self.state.sessions[session].held is not None:
            self.stimulate(tree_stimuli.Stirred(at_ms, session), cause)

    def carry(self, instructions: Sequence[TreeInstruction]) -> None:
        """Carry out instructions whose facts are durable already, as after recovery."""
        self._carry_out((), instructions, None, (), 0)
