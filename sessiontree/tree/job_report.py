"""Timed jobs as lists and histories show them."""

from __future__ import annotations

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.recorded.cron import CronTable, JobRow, JobRun
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.tree.rules.cron import find_next_slot, is_running
from sessiontree.tree.state.job_facts import run_key
from sessiontree.tree.state.state import JobState, RunNote, TreeState


def build_job_table(state: TreeState, wall_ms: int) -> CronTable:
    """Return all jobs of a tree; ``wall_ms`` is the machine's time."""
    return CronTable(wall_ms, tuple(_build_row(state, known) for known in state.jobs.values()))


def build_job_row(state: TreeState, job_id: str) -> JobRow:
    """Return one job.

    Raises:
        ExecutionError: no job has this id.
    """
    return _build_row(state, _find_job(state, job_id))


def list_job_runs(state: TreeState, job_id: str, limit: int) -> tuple[JobRun, ...]:
    """Return the newest runs and skips of a job, newest first, at most ``limit``.

    Raises:
        ExecutionError: no job has this id.
    """
    notes = _find_job(state, job_id).notes
    return tuple(_run(state, note) for note in notes[: -limit - 1 : -1])


def _find_job(state: TreeState, job_id: str) -> JobState:
    known = state.jobs.get(job_id)
    if known is None:
        raise ExecutionError(f"no job is called {job_id[:64]!r}")
    return known


def _build_row(state: TreeState, known: JobState) -> JobRow:
    last = _run(state, known.notes[-1]) if known.notes else None
    return JobRow(known.job, find_next_slot(known), known.runs, known.skipped, is_running(state, known), last)


def _run(state: TreeState, note: RunNote) -> JobRun:
    entry = JobRun(
        note.slot_ms,
        note.wall_ms,
        note.how,
        note.run_id,
        reason=note.reason,
        count=note.slots,
        is_exact=note.is_exact,
    )
    if not note.run_id:
        return entry
    if note.post_id:
        entry.session, entry.state = MAIN, "running" if note.post_id in state.posts else "delivered"
        return entry
    session = state.sessions.get(state.keys.get((MAIN, run_key(note.run_id))) or "")
    if session is not None:
        entry.session = session.spec.session_id
        entry.state = "running" if session.result is None else str(session.status)
        entry.summary = "" if session.result is None else session.result.summary
    return entry
