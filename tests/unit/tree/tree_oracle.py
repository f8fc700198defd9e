"""A second opinion on a tree: keeps its own books from facts alone and says what must never be.

Every complaint begins with the name of the invariant it breaks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sessiontree.contracts.facts.stimuli import Incoming, ResultOffered, WorkInterrupted
from sessiontree.contracts.facts.tree_facts import (
    CancelBegun,
    InterruptBegun,
    MessagePassed,
    Posted,
    PostsTaken,
    ResultHeld,
    SessionAdopted,
    SessionEnded,
    SessionReactivated,
    TreeCreated,
    TreeFact,
)
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.tree.state.protocol import (
    AcceptSessionMessage,
    Deliver,
    InterruptAsked,
    RefuseChannelMessage,
    RefuseStop,
    ReleaseSession,
    SendAsked,
    SessionLost,
    SpawnAsked,
    StopAsked,
    TreeInstruction,
    TreeStimulus,
    WakeTreeAt,
)
from sessiontree.tree.state.reach import make_not_below_error
from sessiontree.tree.state.state import TreeState
from tests.unit.tree.approval_oracle import ApprovalBooks
from tests.unit.tree.budget_oracle import BudgetBooks
from tests.unit.tree.copy_oracle import CopyBooks
from tests.unit.tree.spawn_oracle import SpawnBooks
from tests.unit.tree.tree_fixtures import is_event


class Watcher:
    """Watches one tree from its first step on."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.now_ms = 0
        self.spawns = SpawnBooks()
        self.budgets = BudgetBooks(self.spawns)
        self.approvals = ApprovalBooks(self.spawns)
        self.copies = CopyBooks(self.spawns)
        self.owed: dict[str, str] = {}
        self.force_at: dict[str, int] = {}
        self.ended: dict[str, SessionEnded] = {}
        self.sent: set[tuple[str, str]] = set()

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
            self.copies.book(fact)
            self._book_posts(fact)
        self._judge_time(at_ms, facts)
        self._judge_orphans()
        self._judge_told(facts, told)
        if isinstance(stimulus, SpawnAsked):
            self.spawns.judge_answer(stimulus, told, self.budgets)
        self.budgets.judge(state, self.stopping(), facts)
        self.approvals.judge(facts, told, self.spawns.live)
        if isinstance(stimulus, StopAsked) and stimulus.by is not None:
            self._judge_reach(stimulus, facts, told)
        if isinstance(stimulus, SendAsked):
            self._judge_send(stimulus, facts, told)
        if isinstance(stimulus, InterruptAsked):
            self._judge_interrupt(stimulus.session, facts, state)
        self._judge_state(state)
        self.copies.judge(stimulus, facts, state)

    def stopping(self) -> set[str]:
        """Return every session that was asked to stop."""
        return set(self.force_at)

    def _book_life(self, fact: TreeFact, stimulus: TreeStimulus) -> None:
        live = self.spawns.live
        if isinstance(fact, SessionEnded):
            assert fact.session in live, f"S15: {fact.session} ends though it does not live"
            assert fact.status.is_final, f"S15: {fact.session} ends as {fact.status}"
            below = [name for name in live if name.startswith(fact.session + "/")]
            # Only what cannot go on ends above what lives: a lost session, or Main by its own failure.
            is_alone = isinstance(stimulus, SessionLost) or (
                is_event(stimulus, ResultOffered) and stimulus.session == fact.session == "main"
            )
            assert not below or is_alone, f"S13: {fact.session} ends above {below}"
            self.ended[fact.session] = fact
        elif isinstance(fact, ResultHeld | SessionReactivated):
            assert fact.session in live, f"S15: {fact.session} is heard of after its end"
        elif isinstance(fact, CancelBegun):
            for name in fact.sessions:
                assert name in live, f"S15: {name} is asked to stop after its end"
                assert name not in self.force_at, f"S15: {name} is asked to stop twice"
                self.force_at[name] = fact.force_at_ms
            depths = [name.count("/") for name in fact.sessions]
            assert depths == sorted(depths), "S13: sessions are not informed from the top"

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
        """Everybody below hears of it, but who rests alone; only what a model spawned is asked to stop."""
        kept = [name for fact in facts if isinstance(fact, InterruptBegun) for name in fact.sessions]
        told = [
            fact.session
            for fact in facts
            if isinstance(fact, Posted) and isinstance(fact.stimulus, WorkInterrupted)
        ]
        assert told == kept, f"CUT: {kept} are interrupted, {told} are informed"
        for name in self.spawns.live:
            session = state.sessions[name]
            is_alone = not any(each.startswith(f"{name}/") for each in self.spawns.live)
            rests = session.held is not None and is_alone and name != "main"
            reached = name in kept or name in self.force_at or rests
            assert reached or not f"{name}/".startswith(f"{head}/"), f"CUT: {name} is not reached"
        for fact in facts:
            # what expires at the same time is asked to stop for that
            if isinstance(fact, CancelBegun) and head in kept and fact.status is not SessionStatus.EXPIRED:
                tops = [name for name in fact.sessions if self.spawns.specs[name].parent in kept]
                wrong = [name for name in tops if self.spawns.specs[name].via != "model"]
                assert not wrong, f"CUT: {wrong} are the program's and asked to stop"

    def _judge_reach(
        self, asked: StopAsked, facts: Sequence[TreeFact], told: Sequence[TreeInstruction]
    ) -> None:
        """A session's stop reaches sessions below it, and whatever else it names is no session."""
        refused = [each.error for each in told if isinstance(each, RefuseStop)]
        stopped = [
            name
            for fact in facts
            if isinstance(fact, CancelBegun) and fact.reason == asked.reason
            for name in fact.sessions
        ]
        astray = [name for name in stopped if not name.startswith(f"{asked.by}/")]
        assert not astray, f"REACH: {asked.by} stops {astray}"
        known = asked.session in self.spawns.specs and asked.session.startswith(f"{asked.by}/")
        labelled = any(
            spec.parent == asked.by and spec.label == asked.session for spec in self.spawns.specs.values()
        )
        assert known or labelled or refused, f"REACH: {asked.by} reaches {asked.session}"
        nobody = [str(make_not_below_error(asked.session))] * len(refused)
        assert [str(error) for error in refused] == nobody, f"REACH: {asked.by} learns of {asked.session}"
        assert not (known and refused), f"REACH: {asked.by} does not reach {asked.session} below it"

    def _judge_send(
        self, asked: SendAsked, facts: Sequence[TreeFact], told: Sequence[TreeInstruction]
    ) -> None:
        """A message goes down, or one step up; a Worker sends none; one key is one message."""
        sender, name = self.spawns.specs.get(asked.session), asked.session
        refused = [each.error for each in told if isinstance(each, RefuseChannelMessage)]
        accepted = [each.session for each in told if isinstance(each, AcceptSessionMessage)]
        assert len(refused) + len(accepted) == 1, f"REACH: {name} hears {refused} and {accepted}"
        for fact in facts:
            if not isinstance(fact, MessagePassed):
                continue
            assert sender is not None, f"REACH: {name} is no session and writes"
            assert sender.kind is not SessionKind.WORKER, f"REACH: {name} is a worker and writes"
            is_up = fact.to == sender.parent
            assert is_up or fact.to.startswith(f"{name}/"), f"REACH: {name} writes to {fact.to}"
            assert not (is_up and fact.mode == "steer"), f"REACH: {name} steers {fact.to}"
            assert (name, fact.key) not in self.sent, f"SENT: {name} sends {fact.key} again"
            self.sent.add((name, fact.key))
        said = [
            (fact.session, fact.stimulus.origin)
            for fact in facts
            if isinstance(fact, Posted)
            and isinstance(fact.stimulus, Incoming)
            and json.loads(fact.stimulus.text).get("message") == asked.text
        ]
        for to, origin in said:
            from_above = to.startswith(f"{name}/")
            assert origin == ("parent" if from_above else "child"), f"REACH: {to} hears {name} as {origin}"
        assert len(said) == sum(isinstance(fact, MessagePassed) for fact in facts), f"SENT: {said}"
        astray = asked.to not in {"parent", sender and sender.parent} and not asked.to.startswith(f"{name}/")
        labelled = any(spec.parent == name and spec.label == asked.to for spec in self.spawns.specs.values())
        able = sender is not None and sender.kind is not SessionKind.WORKER and name in self.spawns.live
        if able and astray and not labelled and (name, asked.key) not in self.sent:
            nobody = str(make_not_below_error(asked.to))
            assert [str(error) for error in refused] == [nobody], f"REACH: {name} learns of {asked.to}"

    def _judge_time(self, at_ms: int, facts: Sequence[TreeFact]) -> None:
        # What this step itself reported is forced at the next one, even without any grace.
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
                assert name in self.force_at, f"S13: {name} was not informed that {parent} does not go on"

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
