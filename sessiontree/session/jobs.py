"""The jobs of a session: which of its commands go on in the background, and how each ended.

A job is never looked for again after its host was lost: it ended with that host, and is reported as lost.
"""

from __future__ import annotations

from dataclasses import replace

from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.session.calls import Decision, notice
from sessiontree.session.state import SessionState


def make_job_message_id(job_id: str) -> str:
    """Return the id of the message about a job's end; a session reads one such message."""
    return f"job.{job_id}"


def on_began(state: SessionState, stimulus: stimuli.JobBegan) -> Decision:
    """Record a job once."""
    decision = Decision()
    job_id = stimulus.started.job_id
    if job_id not in state.jobs and job_id not in state.past_jobs:
        decision.facts.append(replace(stimulus.started, asked_by=state.acting_for))
    return decision


def end_job(state: SessionState, stimulus: stimuli.JobOver) -> Decision:
    """Record the end of a job once."""
    decision = Decision()
    if stimulus.ended.job_id in state.jobs:
        decision.facts.append(stimulus.ended)
    return decision


def lose_jobs(state: SessionState, at_ms: int, reason: str, decision: Decision) -> None:
    """Record that all running jobs are lost, and have the session read about each."""
    for job in state.jobs.values():
        decision.facts.append(facts.JobEnded(job.job_id, "lost", reason=reason))
        message_id = make_job_message_id(job.job_id)
        if state.stopping is None and message_id not in state.heard:
            text = f"{job.job_id} was lost: {reason}. It ran: {job.command}"
            wakes = not state.interrupted
            decision.facts.append(notice(message_id, text, at_ms, wakes=wakes, asked_by=job.asked_by))
