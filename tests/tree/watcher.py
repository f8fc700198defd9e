"""A second opinion on a tree: keeps its own books from facts alone and says what must never be.

Every complaint begins with the name of the invariant it breaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sessiontree.contracts.stimuli import WorkInterrupted
from sessiontree.contracts.tree_facts import (
    CancelBegun,
    InterruptBegun,
    Posted,
    PostsTaken,
    ResultHeld,
    SessionAdopted,
    SessionEnded,
    SessionStirred,
    TreeCreated,
    TreeFact,
)
from sessiontree.tree.instructions import Deliver, ReleaseSession, TreeInstruction, WakeTreeAt
from sessiontree.tree.state import TreeState
from sessiontree.tree.stimuli import InterruptAsked, ResultOffered, SessionLost, SpawnAsked, TreeStimulus
from tests.tree.approval_books import ApprovalBooks
from tests.tree.budget_books import BudgetBooks
from tests.tree.spawn_books import SpawnBooks


class Watcher:
    """Watches one tree from its first step on."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.now_ms = 0
        self.spawns = SpawnBooks()
        self.budgets = BudgetBooks(self.spawns)
        self.approvals = ApprovalBooks(self.spawns)
        self.owed: dict[str, str] = {}
        self.force_at: dict[str, int] = {}
        self.ended: dict[str, SessionEnded] = {}

    def watch(
        self,
        stimulus: TreeStimulus,
        facts: Sequence[TreeFact],
        told: Sequence[TreeInstruction],
        state: TreeState,
    ) -> None:
        """Book one step and judge it."""
        at_ms = max(self.now_ms, stimulus.at_ms)
        if isinstance(stimulus, SpawnAsked):
            self.spawns.expect(stimulus)
        for fact in facts:
            self.now_ms = max(self.now_ms, time_of(fact))
            self._book_life(fact, stimulus)
            self.spawns.book(fact, stimulus, at_ms)
            self.budgets.book(fact)
            self.approvals.book(fact, stimulus, at_ms)
            self._book_posts(fact)
        self._judge_time(at_ms, facts)
        self._judge_orphans()
        self._judge_told(facts, told)
        if isinstance(stimulus, SpawnAsked):
            self.spawns.judge_answer(stimulus, told, self.budgets)
        self.budgets.judge(state, self.stopping(), facts)
        self.approvals.judge(facts, told, self.spawns.live)
        if isinstance(stimulus, InterruptAsked):
            self._judge_interrupt(stimulus.session, facts, state)
        self._judge_state(state)

    def stopping(self) -> set[str]:
        """Return every session that was told to stop."""
        return set(self.force_at)

    def _book_life(self, fact: TreeFact, stimulus: TreeStimulus) -> None:
        live = self.spawns.live
        if isinstance(fact, SessionEnded):
            assert fact.session in live, f"S15: {fact.session} ends though it does not live"
            assert fact.status.is_final, f"S15: {fact.session} ends as {fact.status}"
            below = [name for name in live if name.startswith(fact.session + "/")]
            # Only what cannot go on ends above what lives: a lost session, or Main by its own failure.
            is_alone = isinstance(stimulus, SessionLost) or (
                isinstance(stimulus, ResultOffered) and stimulus.session == fact.session == "main"
            )
            assert not below or is_alone, f"S13: {fact.session} ends above {below}"
            self.ended[fact.session] = fact
        elif isinstance(fact, ResultHeld | SessionStirred):
            assert fact.session in live, f"S15: {fact.session} is heard of after its end"
        elif isinstance(fact, CancelBegun):
            for name in fact.sessions:
                assert name in live, f"S15: {name} is told to stop after its end"
                assert name not in self.force_at, f"S15: {name} is told to stop twice"
                self.force_at[name] = fact.force_at_ms
            depths = [name.count("/") for name in fact.sessions]
            assert depths == sorted(depths), "S13: sessions are not told from the top"

    def _book_posts(self, fact: TreeFact) -> None:
        if isinstance(fact, Posted):
            assert fact.session in self.spawns.live, f"S15: {fact.session} is posted to after its end"
            assert fact.post_id not in self.owed, f"S18: post {fact.post_id} is not new"
            self.owed[fact.post_id] = fact.session
        elif isinstance(fact, PostsTaken):
            for post_id in fact.post_ids:
                assert self.owed.pop(post_id, None) == fact.session, f"S18: {post_id} was not owed"
        elif isinstance(fact, SessionEnded):
            for post_id in [post for post, session in self.owed.items() if session == fact.session]:
                del self.owed[post_id]

    def _judge_interrupt(self, head: str, facts: Sequence[TreeFact], state: TreeState) -> None:
        """Everybody below hears of it, but who rests alone; only what a model spawned is told to stop."""
        kept = [name for fact in facts if isinstance(fact, InterruptBegun) for name in fact.sessions]
        told = [
            fact.session
            for fact in facts
            if isinstance(fact, Posted) and isinstance(fact.stimulus, WorkInterrupted)
        ]
        assert told == kept, f"CUT: {kept} are interrupted, {told} are told"
        for name in self.spawns.live:
            session = state.sessions[name]
            is_alone = not any(each.startswith(f"{name}/") for each in self.spawns.live)
            rests = session.held is not None and is_alone and name != "main"
            reached = name in kept or name in self.force_at or rests
            assert reached or not f"{name}/".startswith(f"{head}/"), f"CUT: {name} is not reached"
        for fact in facts:
            if isinstance(fact, CancelBegun) and head in kept:
                tops = [name for name in fact.sessions if self.spawns.specs[name].parent in kept]
                wrong = [name for name in tops if self.spawns.specs[name].via != "model"]
                assert not wrong, f"CUT: {wrong} are the program's and told to stop"

    def _judge_time(self, at_ms: int, facts: Sequence[TreeFact]) -> None:
        # What this step itself told is forced at the next one, even without any grace.
        told = {name for fact in facts if isinstance(fact, CancelBegun) for name in fact.sessions}
        for name in self.spawns.live:
            force_at_ms = self.force_at.get(name)
            end_ms = self.spawns.expires_at.get(name)
            if force_at_ms is not None:
                assert force_at_ms > at_ms or name in told, f"S13: {name} lives after its grace"
            elif end_ms is not None:
                assert end_ms > at_ms, f"S13: {name} outlives its time"
        self.approvals.judge_time(at_ms)

    def _judge_orphans(self) -> None:
        for name in self.spawns.live:
            parent = self.spawns.specs[name].parent
            if parent is not None and (parent in self.force_at or parent not in self.spawns.live):
                assert name in self.force_at, f"S13: {name} was not told that {parent} does not go on"

    def _judge_told(self, facts: Sequence[TreeFact], told: Sequence[TreeInstruction]) -> None:
        posted = {fact.post_id for fact in facts if isinstance(fact, Posted) and fact.post_id in self.owed}
        delivered = Counter(each.post_id for each in told if isinstance(each, Deliver))
        assert delivered == Counter(posted), f"S20: posted {posted}, delivered {dict(delivered)}"
        ended = Counter(fact.session for fact in facts if isinstance(fact, SessionEnded))
        released = Counter(each.session for each in told if isinstance(each, ReleaseSession))
        assert released == ended, f"S13: ended {ended}, released {released}"
        bells = {each.at_ms for each in told if isinstance(each, WakeTreeAt)}
        for at_ms in self._new_times(facts):
            assert any(bell <= at_ms for bell in bells), f"S13: nothing rings at {at_ms}"

    def _new_times(self, facts: Iterable[TreeFact]) -> Iterable[int]:
        for fact in facts:
            if isinstance(fact, SessionAdopted):
                yield fact.expires_at_ms
            elif isinstance(fact, CancelBegun):
                yield fact.force_at_ms

    def _judge_state(self, state: TreeState) -> None:
        assert state.live == len(self.spawns.live), "S15: who lives is miscounted"
        for name, fact in self.ended.items():
            session = state.sessions[name]
            assert session.status == fact.status, f"S15: {name} ended {fact.status}, now {session.status}"
        assert {post_id for post_id, _ in state.posts.items()} == set(self.owed), "S18: posts differ"


def time_of(fact: TreeFact) -> int:
    """Return the time a fact carries, 0 where it carries none."""
    if isinstance(fact, TreeCreated):
        return fact.config.created_at_ms
    if isinstance(fact, Posted):
        mail: Any = fact.stimulus
        return int(mail.at_ms)
    return int(getattr(fact, "at_ms", 0))
