"""The rules of a ledger, whatever programs do, die and say, and however their clocks step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sessiontree.bench.ledger.ledger_rules import (
    BEAT_S,
    LEASE_S,
    CostCap,
    Ending,
    HeartbeatMonitor,
    LedgerRules,
    SampleRow,
)
from tests.system.bench.run.ledger_oracle import MemoryLedger

KEYS = ("a", "b")
RETRIES = 1
ENDINGS: tuple[Ending, ...] = ("error", "shared", "run", "cancelled")
PLANTED = 3_000
PROGRAMS = ("p", "q")
PROGRAM = st.sampled_from(PROGRAMS)
SEARCH = settings(
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    report_multiple_bugs=False,
    phases=[Phase.generate],
)


@dataclass
class Program:
    """One program: what it believes to hold, and its clocks."""

    held: list[str] = field(default_factory=list)
    watch: HeartbeatMonitor = field(default_factory=HeartbeatMonitor)
    wall_s: float = 0.0
    """How far its wall clock is ahead."""
    beaten_s: float = 0.0
    """When its beats were last raised, in real time."""
    is_suspended: bool = False


class LedgerMachine(RuleBasedStateMachine):
    """Programs over one ledger in memory."""

    judge: ClassVar[LedgerRules] = LedgerRules()
    is_wall_clock: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.ledger = MemoryLedger(KEYS, RETRIES, self.judge)
        self.programs = {name: Program() for name in PROGRAMS}
        self.now_s = 0.0
        self.ended: set[str] = set()
        """Leases that ended without a score."""
        self.read: dict[str, int] = {}
        """Which score of each sample somebody is judging again."""

    @rule(name=PROGRAM)
    def lease(self, name: str) -> None:
        """A program takes a sample; nobody else may hold it."""
        program = self.programs[name]
        lease_id = self.ledger.lease(name)
        assert lease_id is None or not self.ledger.is_paused, "a lease began while the run was paused"
        if lease_id is not None:
            key = self.ledger.keys[lease_id]
            others = [each for each, held in self.ledger.open.items() if held.key == key and each != lease_id]
            assert not others, f"{key} is leased twice"
            program.held.append(lease_id)
            program.beaten_s = self.now_s

    @rule(name=PROGRAM)
    def beat(self, name: str) -> None:
        """A program raises its beats; only leases that count are held after that."""
        program = self.programs[name]
        if program.held and not program.is_suspended:
            held = self.ledger.beat(name, program.held)
            assert not held & self.ended, "the beat of a lease that somebody took over was accepted"
            program.beaten_s = self.now_s

    @rule(name=PROGRAM, at=st.integers(0, 5))
    def commit(self, name: str, at: int) -> None:
        """A program commits a score, perhaps long after it lost the lease."""
        program = self.programs[name]
        if program.held:
            lease_id = program.held[at % len(program.held)]
            counts = self.ledger.rows[self.ledger.keys[lease_id]].lease_id == lease_id
            committed = self.ledger.commit(lease_id)
            assert committed == (counts and lease_id not in self.ended)
            if committed:
                program.held.remove(lease_id)

    @rule(name=PROGRAM, at=st.integers(0, 5), ending=st.sampled_from(ENDINGS))
    def give_back(self, name: str, at: int, ending: Ending) -> None:
        """A program ends an attempt without a score; only what is the sample's own is charged to it."""
        program = self.programs[name]
        if program.held:
            lease_id = program.held.pop(at % len(program.held))
            key = self.ledger.keys[lease_id]
            before, was_alone = self.ledger.rows[key], self.is_trial(lease_id)
            if self.ledger.give_back(lease_id, ending):
                self.judge_loss(key, before, ending, was_alone=was_alone)
            self.ended.add(lease_id)

    @rule(key=st.sampled_from(KEYS))
    def retry(self, key: str) -> None:
        """Somebody lets a sample be solved again; one that waits or is worked on is left alone."""
        before = self.ledger.rows[key]
        retried = self.ledger.retry(key)
        assert retried == (before.state in {"scored", "undecided", "failed"})

    @rule(key=st.sampled_from(KEYS))
    def look_at_score(self, key: str) -> None:
        """Somebody reads a score, to judge it again later."""
        self.read[key] = self.ledger.rows[key].revision

    @rule(key=st.sampled_from(KEYS))
    def rescore(self, key: str) -> None:
        """Somebody writes another score for what was read, perhaps long ago."""
        before, read = self.ledger.rows[key], self.read.get(key)
        if read is not None:
            rescored = self.ledger.rescore(key, read)
            assert rescored == (before.state in {"scored", "undecided"} and before.revision == read)

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        """Somebody pauses the run, or lets it go on."""
        self.ledger.is_paused = paused

    def is_trial(self, lease_id: str) -> bool:
        """Whether a lease is that of a suspect, without neighbours."""
        held = self.ledger.open.get(lease_id)
        if held is None or not self.ledger.rows[held.key].suspect:
            return False
        return [each for each in self.ledger.open.values() if each.owner == held.owner] == [held]

    def judge_loss(self, key: str, before: SampleRow, ending: Ending, *, was_alone: bool) -> None:
        """Check what a loss means for a sample."""
        row = self.ledger.rows[key]
        is_own = ending == "error" or (ending in {"shared", "lost"} and was_alone)
        charged = row.failures - before.failures
        assert charged == is_own, f"{key} was charged {charged} for {ending}, alone: {was_alone}"
        if ending in {"shared", "lost"} and not was_alone:
            assert row.suspect, f"{key} was lost with others and is not a suspect"

    @rule(name=PROGRAM, seconds=st.sampled_from([0.0, 1.0, -3600.0, 3600.0]))
    def look(self, name: str, seconds: float) -> None:
        """A program's wall clock is set; it takes over leases whose beats have not changed for too long."""
        self.programs[name].wall_s += seconds
        self.take_over(name)

    @rule(name=PROGRAM, is_late=st.booleans())
    def outlive(self, name: str, is_late: bool) -> None:
        """A program is stopped for longer than a lease lasts; another one looks meanwhile, and it goes on.

        If the look is late, the stopped program raises its beats between what the other saw and what it does.
        """
        other = next(each for each in PROGRAMS if each != name)
        self.programs[name].is_suspended, self.programs[other].is_suspended = True, False
        self.take_over(other)
        self.wait(LEASE_S)
        seen = self.expired(other)
        if is_late:
            self.programs[name].is_suspended = False
            self.beat(name)
        self.lose(seen)
        self.programs[name].is_suspended = False

    @rule(seconds=st.sampled_from([0.5, BEAT_S, LEASE_S, 3 * LEASE_S]))
    def wait(self, seconds: float) -> None:
        """Time passes; programs that are not suspended raise their beats meanwhile."""
        for _ in range(int(seconds / BEAT_S)):
            self.now_s += BEAT_S
            for name in PROGRAMS:
                self.beat(name)
        self.now_s += seconds % BEAT_S

    def take_over(self, name: str) -> None:
        """Let a program look, and check whose leases it ended."""
        self.lose(self.expired(name))

    def lose(self, seen: dict[str, int]) -> None:
        """Let leases be taken over, all of them at once: their holder is gone."""
        before = {
            lease_id: (self.ledger.rows[self.ledger.keys[lease_id]], self.is_trial(lease_id))
            for lease_id in seen
        }
        taken = self.ledger.take_over(seen)
        for lease_id in taken:
            row, was_alone = before[lease_id]
            self.judge_loss(self.ledger.keys[lease_id], row, "lost", was_alone=was_alone)
        self.end(taken)

    def expired(self, name: str) -> dict[str, int]:
        """Return what a program holds to be expired."""
        program = self.programs[name]
        clock_s = self.now_s + (program.wall_s if self.is_wall_clock else 0.0)
        return program.watch.find_expired(self.ledger.others(name), clock_s)

    def end(self, taken: list[str]) -> None:
        """Note leases that were taken over: none of a program whose beat is young."""
        for lease_id in taken:
            owner = lease_id.split(" ")[0]
            silent_s = self.now_s - self.programs[owner].beaten_s
            assert silent_s >= LEASE_S - BEAT_S, f"{owner} raised its beat {silent_s} s ago and lost a lease"
            self.ended.add(lease_id)

    @invariant()
    def every_sample_has_one_fate(self) -> None:
        """At most one score, of a lease that never ended otherwise; what failed or waits has none."""
        for key, row in self.ledger.rows.items():
            scores = self.ledger.scores[key]
            is_over = row.state in {"scored", "undecided"}
            assert len(scores) == is_over, f"{key} is {row.state} with {len(scores)} scores"
            assert not self.ended & set(scores), f"{key} is scored by an attempt that ended without a score"
            open_leases = [each for each, held in self.ledger.open.items() if held.key == key]
            assert open_leases == ([row.lease_id] if row.state == "leased" else [])
            assert row.state != "failed" or row.failures > RETRIES

    @invariant()
    def no_score_is_lost(self) -> None:
        """Each score that ever was counts, or is among the past ones, each once and in its order."""
        for key, row in self.ledger.rows.items():
            known = [number for number, _ in self.ledger.past[key]]
            known += [row.revision] * len(self.ledger.scores[key])
            assert known == list(range(1, row.revision + 1)), f"{key} had {row.revision} scores, kept {known}"

    @invariant()
    def a_suspect_has_no_neighbours(self) -> None:
        """A program that works on one works on nothing else."""
        for name in PROGRAMS:
            held = [suspect for owner, suspect in self.ledger.believed.values() if owner == name]
            assert len(held) <= 1 or not any(held), f"{name} tries a suspect among others"

    def teardown(self) -> None:
        """Every program dies; one more comes, and every sample is scored or has failed."""
        for program in self.programs.values():
            program.is_suspended = True
        self.ledger.is_paused = False
        last = self.programs["last"] = Program(wall_s=-1e6)
        self.take_over("last")
        self.now_s += LEASE_S
        self.take_over("last")
        for at in range(len(KEYS)):
            lease_id = self.ledger.lease("last")
            if lease_id is not None:
                assert self.ledger.commit(lease_id, decided=at > 0)
        assert last.held == []
        assert {row.state for row in self.ledger.rows.values()} <= {"scored", "undecided", "failed"}


def search(machine: type[LedgerMachine], examples: int = 200) -> None:
    """Run a machine of programs; a planted fault ends it as soon as it is found."""
    run_state_machine_as_test(machine, settings=settings(SEARCH, max_examples=examples))


@pytest.mark.slow
@pytest.mark.covers("C14", "SUI1")
def test_every_sample_is_scored_once() -> None:
    """Whatever programs do, and whatever their wall clocks say."""
    search(LedgerMachine)


class LostLease(LedgerRules):
    """Forgets that a sample whose holder is gone must wait again."""

    def take_over(
        self, row: SampleRow, lease_id: str, beat: int, seen_beat: int, retries: int
    ) -> SampleRow | None:
        """Leave the sample leased to nobody."""
        found = super().take_over(row, lease_id, beat, seen_beat, retries)
        return None if found is None else replace(found, state="leased")


class DoubleScore(LedgerRules):
    """Accepts a score of any lease."""

    def commit(self, row: SampleRow, lease_id: str, *, decided: bool = True) -> SampleRow | None:
        """Write it."""
        return replace(row, state="scored")


class LateScore(LedgerRules):
    """Accepts a score of a lease that somebody else has taken over, if none is there yet."""

    def commit(self, row: SampleRow, lease_id: str, *, decided: bool = True) -> SampleRow | None:
        """Write it."""
        return None if row.state == "scored" else replace(row, state="scored", lease_id=lease_id)


class StaleBeat(LedgerRules):
    """Accepts the beat of a lease that no longer counts."""

    def beat(self, row: SampleRow, lease_id: str, beat: int) -> int | None:
        """Raise it."""
        return beat + 1


class StaleLook(LedgerRules):
    """Takes a lease over although its beat was raised since it was seen."""

    def take_over(
        self, row: SampleRow, lease_id: str, beat: int, seen_beat: int, retries: int
    ) -> SampleRow | None:
        """Compare nothing."""
        return self.give_back(row, lease_id, "lost", retries)


class FailedScore(LedgerRules):
    """Scores a sample that had too many infrastructure errors."""

    def give_back(self, row: SampleRow, lease_id: str, ending: Ending, retries: int) -> SampleRow | None:
        """End it as scored."""
        found = super().give_back(row, lease_id, ending, retries)
        return replace(found, state="scored") if found is not None and found.state == "failed" else found


class SharedLease(LedgerRules):
    """Leases a sample that somebody holds."""

    def lease(self, row: SampleRow, lease_id: str, *, alone: bool = False) -> SampleRow | None:
        """Give it away again."""
        free = replace(row, state="waiting") if row.state == "leased" else row
        return super().lease(free, lease_id, alone=alone)


class ChargedNeighbour(LedgerRules):
    """Charges a loss to every sample that it took."""

    def give_back(self, row: SampleRow, lease_id: str, ending: Ending, retries: int) -> SampleRow | None:
        """Count it."""
        return super().give_back(row, lease_id, "error" if ending in {"shared", "lost"} else ending, retries)


class ChargedSample(LedgerRules):
    """Charges what is the run's to the sample."""

    def give_back(self, row: SampleRow, lease_id: str, ending: Ending, retries: int) -> SampleRow | None:
        """Count it."""
        return super().give_back(row, lease_id, "error" if ending == "run" else ending, retries)


class FreeSuspect(LedgerRules):
    """Forgets who was there when a process died."""

    def give_back(self, row: SampleRow, lease_id: str, ending: Ending, retries: int) -> SampleRow | None:
        """Suspect nobody."""
        found = super().give_back(row, lease_id, ending, retries)
        return None if found is None else replace(found, suspect=False)


class BusyTrial(LedgerRules):
    """Tries a suspect among others."""

    def may_lease(self, row: SampleRow, held: int, trials: int, *, paused: bool = False) -> bool:
        """Refuse nothing but a paused run."""
        return not paused


class BusyPause(LedgerRules):
    """Leases samples of a paused run."""

    def may_lease(self, row: SampleRow, held: int, trials: int, *, paused: bool = False) -> bool:
        """Forget that it is paused."""
        return super().may_lease(row, held, trials)


class StaleRescore(LedgerRules):
    """Writes a score of scorers over one that came since."""

    def rescore(self, row: SampleRow, revision: int, *, decided: bool = True) -> SampleRow | None:
        """Compare nothing."""
        return super().rescore(row, row.revision, decided=decided)


class OverwrittenScore(LedgerRules):
    """Takes a score's place without counting it."""

    def rescore(self, row: SampleRow, revision: int, *, decided: bool = True) -> SampleRow | None:
        """Leave the number as it is."""
        return None if super().rescore(row, revision, decided=decided) is None else row


class StolenRetry(LedgerRules):
    """Lets a sample wait again that somebody works on."""

    def retry(self, row: SampleRow) -> SampleRow | None:
        """Take it away."""
        return replace(row, state="waiting", lease_id=None)


class ForgottenRetry(LedgerRules):
    """Begins to count scores again with each retry."""

    def retry(self, row: SampleRow) -> SampleRow | None:
        """Forget how many there were."""
        found = super().retry(row)
        return None if found is None else replace(found, revision=0)


class EternalSuspect(LedgerRules):
    """Never charges a suspect, so that one that kills its program is tried for ever."""

    def lease(self, row: SampleRow, lease_id: str, *, alone: bool = False) -> SampleRow | None:
        """Forget that it is alone."""
        return super().lease(row, lease_id)


@pytest.mark.parametrize(
    "rules",
    [
        *(LostLease, DoubleScore, LateScore, StaleBeat, StaleLook, FailedScore, SharedLease),
        *(ChargedNeighbour, ChargedSample, FreeSuspect, BusyTrial, EternalSuspect),
        *(BusyPause, StaleRescore, OverwrittenScore, StolenRetry, ForgottenRetry),
    ],
)
def test_planted_rule_is_found(rules: type[LedgerRules]) -> None:
    """Each wrong rule breaks what the machine checks."""

    class Planted(LedgerMachine):
        pass

    Planted.judge = rules()
    with pytest.raises(AssertionError):
        search(Planted, PLANTED)


@pytest.mark.slow
def test_planted_wall_clock_is_found() -> None:
    """An observer that counts on its wall clock takes a lease from a live program when the clock steps."""

    class Planted(LedgerMachine):
        is_wall_clock = True

    with pytest.raises(AssertionError):
        search(Planted, PLANTED)


@pytest.mark.parametrize(
    ("cap", "spent", "reserved", "stopped", "found"),
    [
        (CostCap(10, None, 5), 0, 0, 0, 1.0),
        (CostCap(10, None, 5), 9, 0, 0, 0.1),
        (CostCap(10, None, 5), 10, 0, 0, "reached"),
        (CostCap(10, None, 5), 9.9, 0.2, 0, "wait"),
        (CostCap(10, None, 5), 0, 0, 3, 6.0),
        (CostCap(10, None, 5), 0, 0, 7, 10.0),
        (CostCap(10, None, 5), 5, 0, 7, "reached"),
        (CostCap(10, None, 5), 0, 9.5, 0, "wait"),
        (CostCap(10, 2, 5), 0, 0, 0, 2),
        (CostCap(10, 2, 5), 8.5, 0, 0, "reached"),
        (CostCap(10, 2, 5), 4, 5, 0, "wait"),
    ],
)
def test_lease_reserves_its_part(
    cap: CostCap, spent: float, reserved: float, stopped: float, found: float | str
) -> None:
    """The suite's budget for a sample, or a share of what is left; never more than that."""
    answer = cap.reserve(spent, reserved, stopped)
    assert answer == pytest.approx(found) if isinstance(found, float) else answer == found
