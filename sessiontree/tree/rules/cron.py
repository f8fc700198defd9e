"""Timed jobs: each slot of a job runs once, or is recorded as skipped with the reason.

A slot is claimed in the commit that starts its run. A crash before the commit leaves the slot to come, and a
crash after it leaves the run owed. Slots are settled in their order, and none that is settled comes again: a
clock that is set back makes a job wait. However many slots were missed, at most one run makes up for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from sessiontree.contracts.errors import ExecutionError, ToolError, ValidationError
from sessiontree.contracts.facts.stimuli import Incoming
from sessiontree.contracts.facts.tree_facts import (
    CronJobRemoved,
    CronJobSaved,
    CronSlotClaimed,
    CronSlotsSkipped,
)
from sessiontree.contracts.recorded.cron import MAX_JOBS, CronJob, CronStatus, JobAction, SlotCause, SlotEnd
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.tree.rules.job_fields import has_times, make_job, update_job
from sessiontree.tree.rules.spawn import find_refusal, spawn
from sessiontree.tree.rules.timetable import DueSlots, find_due, find_next, show_time
from sessiontree.tree.state.evolve import Draft, make_next_post_id
from sessiontree.tree.state.job_facts import run_key
from sessiontree.tree.state.protocol import AcceptJob, JobAsked, JobsRang, RefuseJob, SpawnAsked, WatchJobs
from sessiontree.tree.state.state import JobState, TreeState

ON_TIME_MS: Final = 60_000
"""A slot that is settled within this time has not been missed."""


def find_next_ring(state: TreeState) -> int | None:
    """Return the earliest slot of any job that is not settled, by the machine's clock; None = none comes."""
    if not _can_go_on(state):
        return None
    nexts = (find_next_slot(known) for known in state.jobs.values())
    return min((next_ms for next_ms in nexts if next_ms is not None), default=None)


def _can_go_on(state: TreeState) -> bool:
    main = state.find_live_session(MAIN)
    return main is not None and main.stop is None


def find_next_slot(known: JobState) -> int | None:
    """Return the first slot of an active job that is not settled."""
    return find_next(known.job, known.since_ms) if known.job.status == "active" else None


def is_running(state: TreeState, known: JobState, *, manual: bool = True) -> bool:
    """Whether a run of a job is going on: its message waits for Main, or its session lives.

    Args:
        state: The tree.
        known: The job.
        manual: Whether runs count that somebody asked for; they never take a slot away from the job.
    """
    return any(
        note.post_id in state.posts if note.post_id else _is_live(state, note.run_id)
        for note in known.notes
        if note.run_id and (manual or note.how != "manual")
    )


def _is_live(state: TreeState, run_id: str) -> bool:
    session = state.keys.get((MAIN, run_key(run_id)))
    return session is not None and state.find_live_session(session) is not None


def ring_jobs(draft: Draft, rang: JobsRang) -> None:
    """Settle every slot that has come."""
    if _can_go_on(draft.state):
        _settle_all(draft, rang.wall_ms)
    draft.tell(WatchJobs())


def change_job(draft: Draft, asked: JobAsked) -> None:
    """Carry out a change of timed jobs, or refuse it; a key used before changes nothing."""
    state = draft.state
    before = state.job_keys.get(asked.key) if asked.key else None
    # A call that is repeated after a crash must not add a second job, and gets the answer of the first.
    if before is not None:
        draft.tell(AcceptJob(*before))
        return
    try:
        if not _can_go_on(state):
            raise ExecutionError("the tree has ended or is ending, and no job of it runs any more")
        # Slots that have come are settled first: a change must neither take a run away nor give it another
        # text.
        _settle_all(draft, asked.wall_ms)
        _CHANGES[asked.change.action](draft, asked)
    except ToolError as error:
        draft.tell(RefuseJob(error))
    draft.tell(WatchJobs())


def _add(draft: Draft, asked: JobAsked) -> None:
    state = draft.state
    jobs = list(state.jobs.values())
    if len(jobs) >= MAX_JOBS:
        over = next((known.job.job_id for known in jobs if known.job.status == "over"), None)
        hint = "" if over is None else f", such as {over}, which is over"
        raise ExecutionError(f"the tree has {len(jobs)} jobs, which is the most; remove one first{hint}")
    _check_agent(state, asked)
    job = make_job(f"c{state.jobs_made + 1}", asked.change.wanted, asked)
    draft.write(CronJobSaved(job, asked.wall_ms, "added", asked.key, asked.wall_ms))
    draft.tell(AcceptJob(job.job_id))


def _update(draft: Draft, asked: JobAsked) -> None:
    wanted = asked.change.wanted
    known = _find_job(draft, asked)
    _check_agent(draft.state, asked)
    changed = update_job(known.job, wanted, asked)
    # New times count from now on: their slots in the past were not missed.
    since_ms = max(known.since_ms, asked.wall_ms) if has_times(wanted) else known.since_ms
    draft.write(CronJobSaved(changed, since_ms, "updated", asked.key, asked.wall_ms))
    draft.tell(AcceptJob(changed.job_id))


def _check_agent(state: TreeState, asked: JobAsked) -> None:
    agent = asked.change.wanted.agent
    known = sorted({name for name, _ in state.allowed})
    if agent is not None and agent not in known:
        raise ValidationError(f"no agent is called {agent[:64]!r}; there are {', '.join(known)}", "/agent")


def _remove(draft: Draft, asked: JobAsked) -> None:
    job_id = _find_job(draft, asked).job.job_id
    draft.write(CronJobRemoved(job_id, asked.key, asked.wall_ms))
    draft.tell(AcceptJob(job_id))


def _pause(draft: Draft, asked: JobAsked) -> None:
    known = _find_job(draft, asked)
    if known.job.status == "active":
        _save(draft, known, "paused", "paused", asked)
    draft.tell(AcceptJob(known.job.job_id))


def _resume(draft: Draft, asked: JobAsked) -> None:
    known = _find_job(draft, asked)
    if known.job.status == "over":
        raise ExecutionError(f"job {known.job.job_id!r} is over; update it with new times")
    if known.job.status == "paused":
        _save(draft, known, "active", "resumed", asked)
    draft.tell(AcceptJob(known.job.job_id))


def _save(draft: Draft, known: JobState, status: CronStatus, change: str, asked: JobAsked) -> None:
    job = replace(known.job, status=status)
    draft.write(CronJobSaved(job, known.since_ms, change, asked.key, asked.wall_ms))


def _run(draft: Draft, asked: JobAsked) -> None:
    known = _find_job(draft, asked)  # a slot that has come has had its own run before
    job_id = known.job.job_id
    if is_running(draft.state, known):
        raise ExecutionError(f"a run of job {job_id!r} is still going on; no other one was begun")
    claim = _Claim(f"{job_id}:manual:{known.runs + 1}", asked.wall_ms, "manual", asked.key)
    refusal = _begin(draft, known.job, claim, asked.wall_ms)
    if refusal:
        raise ExecutionError(f"job {job_id!r} was not run: {refusal}")
    draft.tell(AcceptJob(job_id, claim.run_id))


_CHANGES: Final[Mapping[JobAction, Callable[[Draft, JobAsked], None]]] = {
    "add": _add,
    "update": _update,
    "remove": _remove,
    "pause": _pause,
    "resume": _resume,
    "run": _run,
}


def _find_job(draft: Draft, asked: JobAsked) -> JobState:
    """Return the job that is named.

    Raises:
        ExecutionError: no job has the id.
    """
    known = draft.state.jobs.get(asked.change.job_id)
    if known is None:
        names = ", ".join(name for name, _ in draft.state.jobs.items()) or "none"
        raise ExecutionError(f"no job is called {asked.change.job_id[:64]!r}; there are: {names}")
    return known


def _settle_all(draft: Draft, wall_ms: int) -> None:
    # A list, because settling a slot changes the table that is walked.
    for job_id, _ in list(draft.state.jobs.items()):
        _settle(draft, job_id, wall_ms)


def _settle(draft: Draft, job_id: str, wall_ms: int) -> None:
    """Settle the slots of one job that have come: at most one runs, the others are recorded as skipped."""
    known = draft.state.jobs[job_id]
    job = known.job
    if job.status == "over":
        return
    end_ms = wall_ms if job.until_ms is None else min(wall_ms, job.until_ms)
    due = find_due(job, known.since_ms, end_ms)
    if due is not None and job.status == "paused":
        _skip(draft, job, due, "paused", "", wall_ms)
    elif due is not None:
        _run_newest(draft, known, due, wall_ms)
    if job.until_ms is not None and job.until_ms < wall_ms:
        _expire(draft, job_id, wall_ms)
    elif due is not None and job.once_ms is not None:
        _end(draft, job_id, wall_ms)


def _run_newest(draft: Draft, known: JobState, due: DueSlots, wall_ms: int) -> None:
    job = known.job
    if due.number > 1:
        missed = due._replace(last_ms=due.previous_ms, number=due.number - 1)
        _skip(draft, job, missed, "missed", "", wall_ms)
    newest = DueSlots(due.last_ms, due.last_ms, due.last_ms, 1, True)
    is_late = wall_ms - due.last_ms > ON_TIME_MS
    if is_late and job.catch_up == "skip":
        _skip(draft, job, newest, "missed", "", wall_ms)
    # Runs of one job never overlap, so that a slow job can't fill the tree with sessions.
    elif is_running(draft.state, known, manual=False):
        _skip(draft, job, newest, "busy", "", wall_ms)
    else:
        how: SlotCause = "catch_up" if is_late else "due"
        refusal = _begin(draft, job, _Claim(f"{job.job_id}:{due.last_ms}", due.last_ms, how), wall_ms)
        if refusal:
            _skip(draft, job, newest, "refused", refusal, wall_ms)


def _skip(draft: Draft, job: CronJob, due: DueSlots, reason: SlotEnd, detail: str, wall_ms: int) -> None:
    draft.write(
        CronSlotsSkipped(
            job.job_id, due.first_ms, due.last_ms, due.number, due.is_exact, reason, detail, wall_ms
        )
    )


def _expire(draft: Draft, job_id: str, wall_ms: int) -> None:
    """End a job whose last day has passed, once the first slot after it has come."""
    known = draft.state.jobs[job_id]
    after_ms = max(known.since_ms, known.job.until_ms or 0)
    slot_ms = find_next(known.job, after_ms)
    if slot_ms is not None and slot_ms <= wall_ms:
        _skip(draft, known.job, DueSlots(slot_ms, slot_ms, slot_ms, 1, True), "expired", "", wall_ms)
    if slot_ms is None or slot_ms <= wall_ms:
        _end(draft, job_id, wall_ms)


def _end(draft: Draft, job_id: str, wall_ms: int) -> None:
    known = draft.state.jobs[job_id]
    draft.write(CronJobSaved(replace(known.job, status="over"), known.since_ms, "over", "", wall_ms))


class _Claim(NamedTuple):
    """What is claimed for a run."""

    run_id: str
    slot_ms: int
    how: SlotCause
    key: str = ""


def _begin(draft: Draft, job: CronJob, claim: _Claim, wall_ms: int) -> str:
    """Claim a slot and start its run in one commit; return why it can't be started, or nothing.

    The claim is the first of their facts: a tree that is forked between them loses the run, and never
    doubles it.
    """
    to_main = job.target == "main"
    post_id = make_next_post_id(draft.state.sessions[MAIN]) if to_main else ""
    claimed = CronSlotClaimed(
        job.job_id,
        claim.run_id,
        claim.slot_ms,
        claim.how,
        job.target,
        job.announces,
        post_id,
        claim.key,
        wall_ms,
    )
    if to_main:
        draft.write(claimed)
        draft.post(MAIN, lambda post_id: _make_message(draft.now_ms, post_id, job, claim))
        return ""
    asked = SpawnAsked(
        draft.now_ms,
        MAIN,
        job.kind,
        job.text,
        "cron",
        agent=job.agent,
        budget=job.budget,
        key=run_key(claim.run_id),
        ttl_s=job.ttl_s,
        asked_by=job.asked_by,
        wait="each",
    )
    refusal = find_refusal(draft.state, asked)
    if refusal is not None:
        return str(refusal)
    draft.write(claimed)
    spawn(draft, asked)
    return ""


def _make_message(at_ms: int, post_id: str, job: CronJob, claim: _Claim) -> Incoming:
    said: dict[str, JsonValue] = {
        "cron": job.job_id,
        "name": job.name,
        "time": show_time(claim.slot_ms, job.zone),
        "how": claim.how,
        "message": job.text,
    }
    text = dump_readable(said)
    return Incoming(
        at_ms, post_id, text, mode="follow_up", origin="cron", asked_by=job.asked_by, taint=job.taint
    )


def pause_forked(draft: Draft) -> None:
    """Pause the jobs of a tree that was just forked: the other tree runs them."""
    for _, known in list(draft.state.jobs.items()):
        if known.job.status == "active":
            job = replace(known.job, status="paused")
            draft.write(CronJobSaved(job, known.since_ms, "paused", "", known.since_ms))
