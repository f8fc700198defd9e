"""The controller of one tree: takes in what happens, decides, commits, and then lets the effects begin.

It is the only writer of its tree's facts. What is decided takes effect only once its facts are durable.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sessiontree.contracts import stimuli
from sessiontree.contracts.codec import pack
from sessiontree.contracts.errors import JournalError, SessionClosed, SessionTreeError, words_of
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.session_ids import session_key
from sessiontree.contracts.stimuli import Stimulus
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.journal.record import Packed
from sessiontree.runtime.effects import TO_TREE, ControllerDeps, EffectRunner, intended_with
from sessiontree.runtime.frames import Adopt, Outcome, Watch
from sessiontree.runtime.future_map import FutureMap
from sessiontree.runtime.inbox_events import InboxNotifier
from sessiontree.runtime.live_session import Input, LiveSession
from sessiontree.runtime.replies import CallReply, Reply
from sessiontree.session import instructions as session_todo
from sessiontree.tree import stimuli as tree_stimuli
from sessiontree.tree.budgets import remaining
from sessiontree.tree.channel import has_channel
from sessiontree.tree.decide import decide
from sessiontree.tree.evolve import evolve
from sessiontree.tree.instructions import TreeInstruction
from sessiontree.tree.state import TreeState
from sessiontree.tree.stimuli import TreeStimulus


class CommitSequencer:
    """Runs each action once the commit it was given with is durable and every earlier action has run.

    Args:
        on_failure: Told once, when a commit fails; nothing is run from then on.
    """

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._queue: deque[tuple[asyncio.Future[None] | None, Callable[[], None]]] = deque()
        self._running = False
        self._failed = False

    def after(self, commit: asyncio.Future[None] | None, action: Callable[[], None]) -> None:
        """Run an action after a commit; None = after what was given before."""
        self._queue.append((commit, action))
        if commit is not None and not commit.done():
            commit.add_done_callback(self._on_done)
        else:
            self._run()

    def _on_done(self, commit: asyncio.Future[None]) -> None:
        if not commit.cancelled():
            commit.exception()  # after a failure nobody else asks the commits behind it how they ended
        self._run()

    def _run(self) -> None:
        if self._running:
            return
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


LEFT_WITHIN_S = 10.0
"""How long a receipt waits to hear what ended sessions left behind."""
METERED = frozenset({"tokens", "cost_usd", "tool_calls"})
"""Members of a budget that a reply uses up."""
BOOKED_AFTER_S = 0.05
"""How long after its first adoption a session's time to live begins."""


class TreeController:
    """Keeps one tree."""

    def __init__(
        self, config: TreeConfig, state: TreeState, around: ControllerDeps, booked_ms: int = 0
    ) -> None:
        """Take charge of a tree's state; ``booked_ms`` is the time of its newest fact."""
        self.config = config
        self.state = state
        self.live_sessions: dict[str, LiveSession] = {}
        self.replies: FutureMap[Reply] = FutureMap()
        self.calls: FutureMap[CallReply] = FutureMap()
        self.results: FutureMap[SessionResult[Any]] = FutureMap()
        self.failure: Exception | None = None
        self.equipment = config.tree_id
        """Names the tools and model it was opened with."""
        self.watched = 0
        """How many watch the tree's progress."""
        self.news = asyncio.Event()
        """Set whenever facts became durable; who waits clears it first."""
        self.bell = InboxNotifier(name for name, request in state.requests.items() if request.how == "show")
        self.settling: FutureMap[None] = FutureMap()
        self._settled = 0
        self._around = around
        self._order = CommitSequencer(self._fail)
        self.expected: dict[str, set[str]] = {}
        """Ids of messages and calls that a session has not answered."""
        self._carrier = EffectRunner(self, around)
        self._leaving: Counter[str] = Counter()
        """Sessions on their way off a host, and off how many."""
        self._has_left = asyncio.Event()
        self.now_ms = around.clock.now_ms
        """The tree's time."""
        self._booked_ms = booked_ms
        self._embodied: list[str] = []
        self._booking: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Stop all timers and tell everybody who waits that the tree is closed here."""
        self._book_embodied()
        self._carrier.close()
        self._fail(SessionClosed("main", "the tree was closed in this process; resume it to go on"))

    # Changing the tree.

    def stimulate(self, stimulus: TreeStimulus, cause: str) -> list[TreeInstruction]:
        """Decide on a stimulus; its instructions are carried out after the commit."""
        return self._commit(None, (), (stimulus,), cause, ())

    def afterwards(self, action: Callable[[], None]) -> None:
        """Do something once everything decided so far is durable and carried out."""
        self._order.after(None, action)

    async def settle(self, stimulus: TreeStimulus, cause: str) -> list[TreeInstruction]:
        """Decide on a stimulus and return its instructions once they are durable and carried out.

        Raises:
            SessionTreeError: the facts could not be made durable, or the tree was closed.
        """
        self.check_open()
        instructions = self.stimulate(stimulus, cause)
        await self.caught_up()
        return instructions

    async def caught_up(self) -> None:
        """Wait until everything decided so far is durable and carried out.

        Raises:
            SessionTreeError: as :meth:`settle`.
        """
        self.check_open()
        self._settled += 1
        done = self.settling.wait(key := str(self._settled))
        self._order.after(None, partial(self.settling.settle, key, None))
        await done

    def leaves(self, session: str) -> None:
        """A session begins to leave a host; :meth:`left` is to follow."""
        self._leaving[session] += 1

    def left(self, session: str, ended: int) -> None:
        """A session has left a host, and so many processes that it had left there were ended."""
        self._leaving[session] -= 1
        if not self._leaving[session]:
            del self._leaving[session]
        if ended and self.failure is None:
            at_ms = self._around.clock.now_ms()
            self.stimulate(tree_stimuli.LeftoversFound(at_ms, session, ended), f"left:{session}")
        self._has_left.set()

    async def all_left(self, session: str) -> None:
        """Wait, for a limited time, until a session and those below it have left their hosts.

        What they left there is durable then. Where the tree is closed meanwhile, it may not be known.
        """
        with contextlib.suppress(TimeoutError, SessionTreeError):
            async with asyncio.timeout(LEFT_WITHIN_S):
                while self.failure is None and self._is_leaving(session):
                    self._has_left.clear()
                    await self._has_left.wait()
                await self.caught_up()

    def _is_leaving(self, session: str) -> bool:
        return any(name == session or name.startswith(f"{session}/") for name in self._leaving)

    def check_open(self) -> None:
        """Raise what ended the tree in this process, if anything did."""
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
            instructions, intents = intended_with(instructions, self.live_sessions, cause)
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
            chunks = [(session, self._in_time(facts)) for session, facts in chunks]
            try:
                seq, commit = self._around.journal.append(self.config.tree_id, chunks)
            except JournalError as error:
                # Another tree's commit broke the journal: this one ends here too, and its host goes on.
                self._fail(error)
                return instructions
            for each in counted:
                each.commits += 1
                each.journaled = True
        self._order.after(
            commit, partial(self._carry_out, counted, instructions, live, local, seq if tell else 0)
        )
        self._carrier.begin_children(instructions)
        return instructions

    def _in_time(self, facts: Sequence[Packed]) -> Sequence[Packed]:
        """Return facts whose times never step back in the tree: what a host reports late is booked late."""
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
        """Decide on stimuli in turn; a session whose stimulus can't be decided on has crashed.

        Returns:
            The facts as they are to be written, what follows from them, and whether they are news for people.

        Raises:
            Exception: a stimulus of the creating program can't be decided on; nothing has changed.
        """
        facts: list[Packed] = []
        instructions: list[TreeInstruction] = []
        tell = False
        for stimulus in given:
            try:
                tell = self._decide(stimulus, cause, facts, instructions) or tell
            except Exception as error:
                if live is None:
                    raise
                lost = tree_stimuli.SessionLost(stimulus.at_ms, live.session, words_of(error))
                self._decide(lost, cause, facts, instructions)
                return facts, instructions, True
        return facts, instructions, tell

    def _decide(
        self,
        stimulus: TreeStimulus,
        cause: str,
        facts: list[Packed],
        instructions: list[TreeInstruction],
    ) -> bool:
        new_facts, new_instructions = decide(self.state, stimulus)
        # Packed before any of them counts: the state must never know what the journal can't.
        facts.extend([Packed(cause, stimulus.at_ms, pack(fact)) for fact in new_facts])
        for fact in new_facts:
            evolve(self.state, fact)
        instructions.extend(new_instructions)
        return self.bell.concerns(new_facts)

    def _carry_out(
        self,
        counted: Sequence[LiveSession],
        instructions: Sequence[TreeInstruction],
        live: LiveSession | None,
        local: Sequence[Any],
        told_seq: int,
    ) -> None:
        if self.failure is None:
            self._do(live, local, instructions, counted)
        else:
            self._count_off(counted)
        # Else closed here since: what follows is owed, and done by whoever resumes the tree.
        self.news.set()
        if told_seq:
            self.bell.ring(told_seq)

    def _do(
        self,
        live: LiveSession | None,
        local: Sequence[Any],
        instructions: Sequence[TreeInstruction],
        counted: Sequence[LiveSession],
    ) -> None:
        if live is not None:
            for each in local:
                self._carrier.for_session(live, each)
        for instruction in instructions:
            self._carrier.for_tree(instruction)
        # Not before: while one of them is given a host, none may give way that is owed something here, too.
        self._count_off(counted)
        for each in counted:
            if not each.over:
                if each.link is None and (each.waiting or each.recovered):
                    self._around.scheduler.want(each)
                self._around.scheduler.settle(each)

    @staticmethod
    def _count_off(counted: Sequence[LiveSession]) -> None:
        for each in counted:
            each.commits -= 1

    def _fail(self, error: Exception) -> None:
        """The journal takes no more, or the tree is closed: nothing goes on, everybody is told."""
        if self.failure is None:
            self.failure = error
        for live in list(self.live_sessions.values()):
            live.over = True
            self._around.scheduler.vacate(live, force=True)
            self._around.gateway.forget(self.config.tree_id, live.session)
        self.live_sessions.clear()
        for waiters in (self.replies, self.calls, self.results, self.settling):
            waiters.fail_all(self.failure)
        self.news.set()
        self._has_left.set()
        self.bell.close()

    def watch(self, change: int) -> None:
        """Count those who watch the tree; hosts hear when the first comes and when the last goes."""
        before = self.watched > 0
        self.watched = max(0, self.watched + change)
        watched = self.watched > 0
        if watched != before:
            self._around.gateway.watch(self.config.tree_id, watched=watched)
            for live in self.live_sessions.values():
                if live.link is not None:
                    live.link.send(Watch(self.config.tree_id, watched))

    def embodied(self, live: LiveSession) -> None:
        """A host embodies a session; where that begins its time to live, it is booked, soon and with others.

        A session that has ended by then, as most small ones have, leaves no fact of it.
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
        """A session brought its host down, or every host it was given: it ends, typed."""
        lost = tree_stimuli.SessionLost(self.now_ms(), live.session, reason)
        self.stimulate(lost, "host")

    def on_outcome(self, live: LiveSession, outcome: Outcome) -> None:
        """Take in what became of a session's step."""
        at_ms = self.now_ms()
        before = live.taken
        posts = self._note_taken(live, outcome.taken)
        live.idle = outcome.idle and not live.sent
        given: list[TreeStimulus] = []
        offers = any(type(each) is session_todo.OfferResult for each in outcome.instructions)
        if live.taken - before > len(posts) and not offers:
            given.append(tree_stimuli.Stirred(at_ms, live.session))
        live.quiet = offers and self._has_all(live, posts)
        if posts:
            given.append(tree_stimuli.PostsConsumed(at_ms, live.session, posts))
        if outcome.usage is not None:
            live.losses = 0
            given.append(tree_stimuli.UsageReported(at_ms, live.session, outcome.usage))
        local: list[Any] = []
        for instruction in outcome.instructions:
            translate = TO_TREE.get(type(instruction))
            if translate is None:
                local.append(instruction)
            else:
                given.append(translate(live, instruction, at_ms))
        if outcome.crash is not None:
            given.append(tree_stimuli.SessionLost(at_ms, live.session, outcome.crash))
        cause = outcome.facts[0].cause if outcome.facts else "outcome"
        if outcome.facts or given or local:
            self._commit(live, outcome.facts, given, cause, local)
        if not live.over:
            if live.waiting:
                self._around.scheduler.want(live)
            self._around.scheduler.settle(live)

    def _has_all(self, live: LiveSession, posts: tuple[str, ...]) -> bool:
        """Whether nothing is on its way to a session that took these posts."""
        owed = self.state.owed_to.members(live.session)
        return not live.waiting and not live.sent and all(post in posts for post in owed)

    def _note_taken(self, live: LiveSession, taken: int) -> tuple[str, ...]:
        posts = []
        while live.taken < taken and live.sent:
            live.taken += 1
            post_id = live.sent.popleft().post_id
            if post_id is not None:
                posts.append(post_id)
        return tuple(posts)

    def model_of(self, agent: str) -> str:
        """Return the name of an agent's model."""
        return self._around.agents[agent].model or self.config.model

    def adoption(self, live: LiveSession) -> Adopt:
        """Return the frame that makes a host embody a session."""
        spec = self.state.sessions[live.session].spec
        texts: tuple[str, ...] = ()
        if live.journaled:
            records = self._around.journal.read_session(self.config.tree_id, live.session)
            texts = tuple(record.text for record in records)
        agent = self._around.agents[spec.agent].model_copy(update=spec.strictness)
        return Adopt(
            self.config.tree_id,
            live.session,
            live.epoch,
            spec,
            self.config.limits,
            agent,
            self.config.workspace,
            self.model_of(spec.agent),
            texts,
            live.recovered,
            not METERED.isdisjoint(remaining(self.state, live.session)),
            live.grant,
            self.watched > 0,
            self.equipment,
            session_key(self.config.nonce, live.session),
            self._around.clock.offset_ms,
            has_channel(self.state, live.session),
        )

    # What goes to sessions.

    def live_session_of(self, session: str) -> LiveSession:
        """Return the record of a live session, creating it on first use."""
        live = self.live_sessions.get(session)
        if live is None:
            spec = self.state.sessions[session].spec
            live = self.live_sessions[session] = LiveSession(self, session, spec.kind, spec.dedicated)
        return live

    def deliver(self, session: str, stimulus: Stimulus, cause: str, post_id: str | None = None) -> None:
        """Bring a stimulus to a live session."""
        live = self.live_session_of(session)
        live.waiting.append(Input(cause, stimulus, post_id))
        self._around.scheduler.want(live)

    def say(self, session: str, incoming: stimuli.Incoming) -> asyncio.Future[Reply]:
        """Bring a message to a session; the future gets the last word for it."""
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
        """Withdraw a last word that could end the session before it hears; Main's cannot."""
        if session != "main" and self.state.sessions[session].held is not None:
            self.stimulate(tree_stimuli.Stirred(at_ms, session), cause)

    def carry(self, instructions: Sequence[TreeInstruction]) -> None:
        """Carry out instructions whose facts are durable already, as after recovery."""
        self._carry_out((), instructions, None, (), 0)
