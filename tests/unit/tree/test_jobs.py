"""Timed jobs: each slot runs once or is recorded as skipped, whatever happens; and planted bugs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from sessiontree.contracts.facts.tree_facts import CronSlotClaimed, CronSlotsSkipped, Posted, TreeFact
from sessiontree.tree.decide import decide
from sessiontree.tree.rules.timetable import find_next
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.protocol import JobsRang, TreeInstruction, TreeStimulus
from sessiontree.tree.state.state import TreeState
from tests.unit.tree.job_strategies import HOUR_MS, JobMachine, JobRules, job_rules_for

SEARCH = settings(
    max_examples=300,
    stateful_step_count=30,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.covers("S14")
@pytest.mark.parametrize("examples", [30, pytest.param(400, marks=pytest.mark.long)])
def test_each_slot_runs_once_or_is_recorded_as_skipped(examples: int) -> None:
    """Over changes, pauses, crashes, restarts, sleep, clocks that step back, and a change to summer time."""
    run_state_machine_as_test(JobRules, settings=settings(SEARCH, max_examples=examples))


def claims_start_nothing(
    state: TreeState, stimulus: TreeStimulus
) -> tuple[list[TreeFact], list[TreeInstruction]]:
    """Claim a slot in one commit and start its run in another, which a crash loses."""
    facts, told = decide(state, stimulus)
    claimed = any(isinstance(fact, CronSlotClaimed) and fact.post_id for fact in facts)
    return [fact for fact in facts if not (claimed and isinstance(fact, Posted))], told


def claims_settle_nothing(state: TreeState, fact: TreeFact) -> TreeState:
    """Forget that a slot was claimed, so that it comes again."""
    if isinstance(fact, CronSlotClaimed) and fact.how != "manual":
        known = state.jobs.open(fact.job_id)
        before = known.since_ms if known is not None else 0
        evolve(state, fact)
        if known is not None:
            known.since_ms = before
        return state
    return evolve(state, fact)


def every_missed_slot_runs(
    state: TreeState, stimulus: TreeStimulus
) -> tuple[list[TreeFact], list[TreeInstruction]]:
    """Run each missed slot, one after the other."""
    facts, told = decide(state, stimulus)
    claims = [fact for fact in facts if isinstance(fact, CronSlotClaimed)]
    missed = [fact for fact in facts if isinstance(fact, CronSlotsSkipped) and fact.reason == "missed"]
    if not isinstance(stimulus, JobsRang) or not claims or not missed:
        return facts, told
    claim, skip = claims[0], missed[0]
    job = state.jobs[claim.job_id].job
    if claim.job_id != skip.job_id:
        return facts, told
    early = replace(claim, slot_ms=skip.first_ms, run_id=f"{claim.job_id}:{skip.first_ms}")
    at = facts.index(skip)
    rest = [replace(skip, first_ms=find_next(job, skip.first_ms) or 0, count=skip.count - 1)]
    return [*facts[:at], early, *(rest if skip.count > 1 else []), *facts[at + 1 :]], told


def the_clock_decides_what_is_settled(
    state: TreeState, stimulus: TreeStimulus
) -> tuple[list[TreeFact], list[TreeInstruction]]:
    """Look for the next slot after the present time, also when the clock was set back an hour."""
    wall_ms = getattr(stimulus, "wall_ms", None)
    if wall_ms is not None:
        for job_id, known in list(state.jobs.items()):
            opened = state.jobs.open(job_id)
            if opened is not None and known.since_ms > wall_ms:
                opened.since_ms = wall_ms - HOUR_MS
    return decide(state, stimulus)


def skips_are_not_recorded(
    state: TreeState, stimulus: TreeStimulus
) -> tuple[list[TreeFact], list[TreeInstruction]]:
    """Leave out slots without a record."""
    facts, told = decide(state, stimulus)
    return [fact for fact in facts if not isinstance(fact, CronSlotsSkipped)], told


def a_manual_run_takes_a_slot(state: TreeState, fact: TreeFact) -> TreeState:
    """Count a run that was asked for as the run of the next slot."""
    evolve(state, fact)
    if isinstance(fact, CronSlotClaimed) and fact.how == "manual":
        known = state.jobs.open(fact.job_id)
        if known is not None:
            known.since_ms = find_next(known.job, known.since_ms) or known.since_ms
    return state


def a_pause_stops_nothing(
    state: TreeState, stimulus: TreeStimulus
) -> tuple[list[TreeFact], list[TreeInstruction]]:
    """Run the slots of paused jobs."""
    facts, told = decide(state, stimulus)
    return [_run_of(fact) if isinstance(fact, CronSlotsSkipped) else fact for fact in facts], told


def _run_of(skipped: CronSlotsSkipped) -> TreeFact:
    if skipped.reason != "paused":
        return skipped
    job_id, slot_ms = skipped.job_id, skipped.last_ms
    return CronSlotClaimed(
        job_id, f"{job_id}:{slot_ms}", slot_ms, "due", "session", True, "", "", skipped.wall_ms
    )


PLANTED = {
    "a claim is lost": (JobMachine(decide=claims_start_nothing), "LOST"),
    "a slot runs twice": (JobMachine(evolve=claims_settle_nothing), "ONCE|GAP|EATEN"),
    "a burst after sleep": (JobMachine(decide=every_missed_slot_runs), "BURST"),
    "the clock is back an hour": (JobMachine(decide=the_clock_decides_what_is_settled), "ONCE|EATEN"),
    "skips are not recorded": (JobMachine(decide=skips_are_not_recorded), "GAP"),
    "a manual run takes a slot": (JobMachine(evolve=a_manual_run_takes_a_slot), "EATEN"),
    "a pause stops nothing": (JobMachine(decide=a_pause_stops_nothing), "LOST|PAUSE"),
}
"""Each bug with the invariant that must find it."""


@pytest.mark.covers("S14")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if name == "a pause stops nothing" else name
        for name in PLANTED
    ],
)
def test_planted_bug_of_jobs_is_found(name: str) -> None:
    """The invariant named alongside a bug, and no accident, fails on it."""
    machine, invariants = PLANTED[name]
    with pytest.raises(AssertionError, match=f"^({invariants}): "):
        run_state_machine_as_test(job_rules_for(machine), settings=SEARCH)
