"""Replay of timed jobs: which stimulus led to a fact about them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TypeAlias

from sessiontree.contracts.facts.tree_facts import (
    CronJobRemoved,
    CronJobSaved,
    CronSlotClaimed,
    CronSlotsSkipped,
)
from sessiontree.contracts.recorded.cron import CronJob, JobAction, JobChange, JobWanted
from sessiontree.tree.state.protocol import JobAsked, JobsRang, TreeStimulus
from sessiontree.tree.state.state import JobState, TreeState

JobFact: TypeAlias = CronJobSaved | CronJobRemoved | CronSlotClaimed | CronSlotsSkipped
_ACTIONS: dict[str, JobAction] = {
    "added": "add",
    "updated": "update",
    "paused": "pause",
    "resumed": "resume",
}


def propose_job_stimuli(state: TreeState, at_ms: int, head: JobFact) -> Iterator[TreeStimulus]:
    """Yield the stimuli that may have led to a fact about a timed job.

    Every change settles first what has come, exactly as a timer does. So the facts of one change are those of
    a timer, followed by those of a change that finds nothing to settle.
    """
    match head:
        case CronJobSaved(change=change) if change in _ACTIONS:
            yield _rebuild_request(state, at_ms, head)
        case CronJobRemoved(job_id, key, wall_ms):
            yield JobAsked(at_ms, wall_ms, JobChange("remove", job_id), key)
        case CronSlotClaimed(how="manual"):
            yield JobAsked(at_ms, head.wall_ms, JobChange("run", head.job_id), head.key)
        case _:
            yield JobsRang(at_ms, head.wall_ms)


def _rebuild_request(state: TreeState, at_ms: int, head: CronJobSaved) -> TreeStimulus:
    job, action = head.job, _ACTIONS[head.change]
    wanted, job_id = JobWanted(), job.job_id
    if action == "add":
        wanted, job_id = _build_wanted(job, None), ""
    elif action == "update":
        wanted = _build_wanted(job, state.jobs.get(job_id), head.since_ms)
    return JobAsked(at_ms, head.wall_ms, JobChange(action, job_id, wanted), head.key, job.asked_by, job.taint)


def _build_wanted(job: CronJob, known: JobState | None, since_ms: int = 0) -> JobWanted:
    """Return what makes a job of another one, or of nothing."""
    before = None if known is None else known.job

    def changed(name: str) -> bool:
        return before is None or getattr(before, name) != getattr(job, name)

    to_session = job.target == "session"
    has_new_times = changed("anchor_ms") or (changed("once_ms") and job.once_ms is not None)
    has_later_start = known is not None and since_ms != known.since_ms
    return JobWanted(
        name=job.name if changed("name") else None,
        text=job.text if changed("text") else None,
        at=_time(job.once_ms) if has_new_times else None,
        every_s=job.every_ms / 1000 if has_new_times and job.every_ms is not None else None,
        expression=job.expression if has_new_times and job.expression else None,
        zone=job.zone if changed("zone") or has_later_start else None,
        target=job.target if changed("target") else None,
        kind=job.kind if to_session and changed("kind") else None,
        agent=job.agent if to_session and changed("agent") else None,
        budget=job.budget if to_session and changed("budget") else None,
        ttl_s=job.ttl_s if to_session and changed("ttl_s") else None,
        announces=job.announces if to_session and changed("announces") else None,
        catch_up=job.catch_up if changed("catch_up") else None,
        until=_time(job.until_ms) if changed("until_ms") else None,
    )


def _time(at_ms: int | None) -> str | None:
    """Return a time to the millisecond, as a job's times may be given."""
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
