"""How facts about timed jobs change the state; they hold no rule."""

from __future__ import annotations

from sessiontree.contracts.facts.tree_facts import (
    CronJobRemoved,
    CronJobSaved,
    CronSlotClaimed,
    CronSlotsSkipped,
)
from sessiontree.contracts.recorded.cron import KEPT_RUNS
from sessiontree.tree.state.state import JobState, RunNote, TreeState


def save_job(state: TreeState, fact: CronJobSaved) -> None:
    """Book a job that is new, or another one than before."""
    job_id = fact.job.job_id
    known = state.jobs.open(job_id)
    if known is None:
        state.jobs_made += 1
        state.jobs.put(job_id, JobState(fact.job, fact.since_ms))
    else:
        known.job = fact.job
        known.since_ms = fact.since_ms
    if fact.key:
        state.job_keys.put(fact.key, (job_id, ""))


def remove_job(state: TreeState, fact: CronJobRemoved) -> None:
    """Book that a job was removed."""
    state.jobs.drop(fact.job_id)
    if fact.key:
        state.job_keys.put(fact.key, (fact.job_id, ""))


def claim_slot(state: TreeState, fact: CronSlotClaimed) -> None:
    """Book that a slot runs."""
    if fact.key:
        state.job_keys.put(fact.key, (fact.job_id, fact.run_id))
    if not fact.post_id:
        state.job_runs.put(run_key(fact.run_id), fact.announces)
    known = state.jobs.open(fact.job_id)
    if known is not None:
        if fact.how != "manual":
            known.since_ms = fact.slot_ms
        known.runs += 1
        _note_run(known, RunNote(fact.slot_ms, fact.wall_ms, fact.how, fact.run_id, fact.post_id))


def skip_slots(state: TreeState, fact: CronSlotsSkipped) -> None:
    """Book that slots did not run."""
    known = state.jobs.open(fact.job_id)
    if known is not None:
        known.since_ms = fact.last_ms
        known.skipped += fact.count
        reason = f"{fact.reason}: {fact.detail}" if fact.detail else fact.reason
        note = RunNote(
            fact.last_ms, fact.wall_ms, "skipped", reason=reason, slots=fact.count, is_exact=fact.is_exact
        )
        _note_run(known, note)


def _note_run(known: JobState, note: RunNote) -> None:
    known.notes = (*known.notes, note)[-KEPT_RUNS:]


def run_key(run_id: str) -> str:
    """Return the key of the session that a run of a timed job starts."""
    return f"cron:{run_id}"
