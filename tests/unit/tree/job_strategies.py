"""Everything that can happen to timed jobs, as a hypothesis state machine, with books of its own.

Every complaint begins with the name of the invariant it breaks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from sessiontree.contracts.facts.tree_facts import (
    CronJobRemoved,
    CronJobSaved,
    CronSlotClaimed,
    CronSlotsSkipped,
    Posted,
    SessionSpawned,
    TreeFact,
)
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded import codec
from sessiontree.contracts.recorded.cron import JobChange, JobWanted
from sessiontree.tree.decide import decide
from sessiontree.tree.report import collect_owed
from sessiontree.tree.rules.cron import ON_TIME_MS, find_next_ring, find_next_slot
from sessiontree.tree.rules.timetable import find_next
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.protocol import (
    Deliver,
    JobAsked,
    JobsRang,
    PostsConsumed,
    TreeInstruction,
    TreeOpened,
    TreeStimulus,
)
from sessiontree.tree.state.state import TreeState, make_initial_tree
from tests.unit.tree.tree_fixtures import config, result, result_offered

Deciding: TypeAlias = Callable[[TreeState, TreeStimulus], tuple[list[TreeFact], list[TreeInstruction]]]
Booking: TypeAlias = Callable[[TreeState, TreeFact], TreeState]
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
BEGIN_MS = 1_774_652_400_000
"""Some hours before Europe's clocks are set ahead: 2026-03-28T00:00+01:00."""


@dataclass(frozen=True, slots=True)
class JobMachine:
    """The functions under test; tests of tests replace one by a broken variant."""

    decide: Deciding = decide
    evolve: Booking = evolve


class JobBooks:
    """What became of each job's slots, from facts alone."""

    def __init__(self) -> None:
        self.settled_ms: dict[str, int] = {}
        """Up to when each job's slots are settled."""
        self.jobs: dict[str, Any] = {}
        self.runs: Counter[str] = Counter()

    def book(self, facts: list[TreeFact], wall_ms: int) -> None:
        """Book one step."""
        claims = Counter(
            fact.job_id for fact in facts if isinstance(fact, CronSlotClaimed) and fact.how != "manual"
        )
        assert all(count == 1 for count in claims.values()), f"BURST: {claims} at one time"
        posted = {fact.post_id for fact in facts if isinstance(fact, Posted)}
        keys = {fact.spec.key for fact in facts if isinstance(fact, SessionSpawned)}
        for fact in facts:
            match fact:
                case CronJobSaved(job=job):
                    known = self.settled_ms.get(job.job_id, 0)
                    assert fact.since_ms >= known, f"ONCE: settled slots of {job.job_id} come again"
                    self.settled_ms[job.job_id] = fact.since_ms
                    self.jobs[job.job_id] = job
                case CronJobRemoved(job_id=job_id):
                    del self.jobs[job_id]
                case CronSlotClaimed():
                    self.runs[fact.run_id] += 1
                    assert self.runs[fact.run_id] == 1, f"ONCE: {fact.run_id} is claimed again"
                    starts = fact.post_id in posted if fact.post_id else f"cron:{fact.run_id}" in keys
                    assert starts, f"LOST: the claim of {fact.run_id} starts nothing"
                    if fact.how != "manual":
                        self._book_claim(fact, wall_ms)
                case CronSlotsSkipped():
                    self._settle(fact.job_id, fact.first_ms, fact.last_ms)
                    self._judge_skip(fact)

    def _book_claim(self, claim: CronSlotClaimed, wall_ms: int) -> None:
        job = self.jobs[claim.job_id]
        assert job.status == "active", f"PAUSE: {claim.job_id} runs though it is {job.status}"
        self._settle(claim.job_id, claim.slot_ms, claim.slot_ms)
        late_ms = wall_ms - claim.slot_ms
        assert late_ms >= 0, f"EARLY: {claim.run_id} runs before its time"
        expected = "due" if late_ms <= ON_TIME_MS else "catch_up"
        assert claim.how == expected, f"LATE: {claim.run_id} is {late_ms} ms late and called {claim.how}"
        assert late_ms <= ON_TIME_MS or job.catch_up == "once", f"LATE: {claim.run_id} is made up for"
        assert job.until_ms is None or claim.slot_ms <= job.until_ms, f"LATE: {claim.run_id} after its end"

    def _settle(self, job_id: str, first_ms: int, last_ms: int) -> None:
        """The next slot is settled, and no other one: none comes twice, none is left out."""
        before_ms = self.settled_ms[job_id]
        assert first_ms > before_ms, f"ONCE: {job_id} settles {first_ms} after {before_ms}"
        expected = find_next(self.jobs[job_id], before_ms)
        assert first_ms == expected or self._is_past_end(job_id, first_ms), f"GAP: {expected} of {job_id}"
        self.settled_ms[job_id] = last_ms

    def _is_past_end(self, job_id: str, slot_ms: int) -> bool:
        until_ms = self.jobs[job_id].until_ms
        return until_ms is not None and slot_ms > until_ms

    def _judge_skip(self, skipped: CronSlotsSkipped) -> None:
        job, at_ms, count = self.jobs[skipped.job_id], skipped.first_ms, 1
        if not skipped.is_exact or skipped.count > 200:
            return
        while at_ms < skipped.last_ms:
            at_ms = find_next(job, at_ms) or skipped.last_ms
            count += 1
        assert (at_ms, count) == (skipped.last_ms, skipped.count), f"GAP: {skipped} miscounts {count}"


class JobRules(RuleBasedStateMachine):
    """One tree with timed jobs; its machine's clock goes ahead, waits, and steps back."""

    machine = JobMachine()

    def __init__(self) -> None:
        """Start before the tree is opened."""
        super().__init__()
        self.state = make_initial_tree()
        self.facts: list[TreeFact] = []
        self.books = JobBooks()
        self.at_ms = 0
        self.wall_ms = BEGIN_MS
        self.changes = 0

    # Steps.

    def feed(self, stimulus: TreeStimulus) -> list[TreeInstruction]:
        """Take one step whose facts become durable."""
        facts, told = self.machine.decide(self.state, stimulus)
        for fact in facts:
            self.machine.evolve(self.state, fact)
        self.facts += facts
        self.books.book(facts, self.wall_ms)
        posts = {each.post_id for each in told if isinstance(each, Deliver)}
        for fact in facts:
            if isinstance(fact, Posted):
                assert fact.post_id in posts, f"LOST: {fact.post_id} is not delivered"
        return told

    def ring(self) -> None:
        """Let the timer ring, if a slot has come; then no active job has one left that has come."""
        next_ms = find_next_ring(self.state)
        if next_ms is not None and next_ms <= self.wall_ms:
            self.feed(JobsRang(self.at_ms, self.wall_ms))
        for job_id, known in self.state.jobs.items():
            slot_ms = find_next_slot(known)
            assert slot_ms is None or slot_ms > self.wall_ms, f"GAP: {job_id} leaves out {slot_ms}"
            if known.job.status == "active":
                expected = find_next(self.books.jobs[job_id], self.books.settled_ms[job_id])
                assert slot_ms == expected, f"EATEN: {job_id} goes on at {slot_ms}, not at {expected}"

    def change(self, action: Any, pick: int, wanted: JobWanted | None = None, again: bool = False) -> None:
        """Ask for a change; with ``again``, as a repeated call does after a crash."""
        names = [name for name, _ in self.state.jobs.items()] or ["c99"]
        self.changes += 1
        job_id = "" if action == "add" else names[pick % len(names)]
        asked = JobAsked(
            self.at_ms, self.wall_ms, JobChange(action, job_id, wanted or JobWanted()), f"k{self.changes}"
        )
        self.feed(asked)
        if again and f"k{self.changes}" in dict(self.state.job_keys.items()):
            before = len(self.facts)
            self.feed(asked)
            assert len(self.facts) == before, f"ONCE: {action} is carried out twice"
        self.ring()

    @initialize()
    def open(self) -> None:
        self.feed(TreeOpened(self.at_ms, config()))

    @rule(
        times=st.sampled_from(
            [
                {"every_s": 60.0}, {"every_s": 600.0}, {"every_s": 5_400.0}, {"at": "90s"}, {"at": "2h"},
                {"expression": "*/20 * * * *"}, {"expression": "30 2 * * *", "zone": "Europe/Vienna"},
                {"expression": "15 2,3 * * *", "zone": "Europe/Vienna"},
                {"expression": "10 * * * *", "zone": "Australia/Lord_Howe"},
            ]
        ),
        into=st.sampled_from(["main", "main", "session"]),
        catch_up=st.sampled_from(["once", "once", "skip"]),
        until=st.sampled_from([None, None, None, "3h"]),
        again=st.booleans(),
    )  # fmt: skip
    def add(self, times: dict[str, Any], into: Any, catch_up: Any, until: Any, again: bool) -> None:
        wanted = JobWanted(
            text="look", target=into, catch_up=catch_up, until=None if "at" in times else until, **times,
            kind=SessionKind.WORKER if into == "session" else None,
        )  # fmt: skip
        self.change("add", 0, wanted, again)

    @rule(
        pick=st.integers(0, 7),
        wanted=st.sampled_from(
            [JobWanted(text="other"), JobWanted(every_s=120.0), JobWanted(at="5m"),
             JobWanted(zone="Asia/Kolkata"),             JobWanted(catch_up="skip"), JobWanted(until="1d")]
        ),
    )  # fmt: skip
    def update(self, pick: int, wanted: JobWanted) -> None:
        self.change("update", pick, wanted)

    @rule(
        pick=st.integers(0, 7), action=st.sampled_from(["pause", "resume", "resume", "remove", "run", "run"])
    )
    def alter(self, pick: int, action: str) -> None:
        self.change(action, pick, again=action == "run")

    @rule(step_ms=st.sampled_from([1_000, MINUTE_MS, 7 * MINUTE_MS, HOUR_MS]))
    def wait(self, step_ms: int) -> None:
        self.wall_ms += step_ms
        self.at_ms += step_ms
        self.ring()

    @rule(step_ms=st.sampled_from([3 * DAY_MS, 40 * DAY_MS, 400 * DAY_MS]))
    def sleep(self, step_ms: int) -> None:
        """The machine sleeps: its own clock goes ahead, the tree's does not."""
        self.wall_ms += step_ms
        self.ring()

    @rule(step_ms=st.sampled_from([1_000, HOUR_MS, HOUR_MS, 2 * DAY_MS]))
    def step_back(self, step_ms: int) -> None:
        self.wall_ms -= step_ms
        self.ring()

    @rule()
    def crash_before_the_commit(self) -> None:
        """What was decided is lost with the process, and decided again."""
        self.wall_ms += 20 * MINUTE_MS
        if find_next_ring(self.state) is not None:
            self.machine.decide(self.state, JobsRang(self.at_ms, self.wall_ms))
        self.restart()

    @rule()
    def crash_after_the_commit(self) -> None:
        """The facts are durable, and none of their instructions was carried out."""
        self.wall_ms += 20 * MINUTE_MS
        self.ring()
        self.restart()

    def restart(self) -> None:
        """Replay the journal: what is owed is exactly what was posted and not taken."""
        before = {post_id for post_id, _ in self.state.posts.items()}
        self.state = make_initial_tree()
        for fact in self.facts:
            self.machine.evolve(self.state, codec.from_wire(json.loads(codec.pack(fact))))
        again = {each.post_id for each in collect_owed(self.state) if isinstance(each, Deliver)}
        assert again == before, f"LOST: {before} are owed, {again} come again"
        self.ring()

    @rule()
    def take(self) -> None:
        """Main takes its messages."""
        posts = tuple(post_id for post_id, post in self.state.posts.items() if post.session == "main")
        self.feed(PostsConsumed(self.at_ms, "main", posts))
        self.ring()

    @rule()
    def finish(self) -> None:
        """The sessions that run come to their end."""
        for name in list(self.state.children.list_members("main")):
            self.feed(result_offered(self.at_ms, name, result()))
        self.ring()


def job_rules_for(machine: JobMachine) -> type[JobRules]:
    """Return the state machine over other functions than the real ones."""
    return type("PlantedJobRules", (JobRules,), {"machine": machine})
