"""What a timed job is made of: the checks of what somebody wants, and the job that follows from it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.cron import (
    MAX_AHEAD_S,
    MAX_JOB_CHARS,
    MAX_NAME_CHARS,
    MIN_EVERY_S,
    CronJob,
    JobWanted,
)
from sessiontree.contracts.recorded.senders import join_principals
from sessiontree.tree.rules.timetable import check_expression, check_zone, read_time
from sessiontree.tree.state.budgets import find_endless
from sessiontree.tree.state.protocol import JobAsked

_TIMES = ("at", "every_s", "expression")


def make_job(job_id: str, wanted: JobWanted, asked: JobAsked) -> CronJob:
    """Return a new job.

    Raises:
        ValidationError: what is wanted is not valid.
    """
    if wanted.text is None:
        raise ValidationError("a job needs a text: what is to be done", "/text")
    if not _list_times(wanted):
        raise ValidationError("a job needs its times: give one of at, every_s and expression", "/at")
    empty = CronJob(
        job_id=job_id,
        name="",
        text="",
        once_ms=None,
        every_ms=None,
        anchor_ms=asked.wall_ms,
        expression="",
        zone="UTC",
        target="main",
        kind=SessionKind.BRANCH,
        agent=None,
        budget=None,
        ttl_s=None,
        announces=True,
        catch_up="once",
        until_ms=None,
        status="active",
        asked_by=(),
        taint="",
        created_ms=asked.wall_ms,
    )
    return update_job(empty, wanted, asked)


def update_job(job: CronJob, wanted: JobWanted, asked: JobAsked) -> CronJob:
    """Return a job with what is wanted; new times make a job that is over active again.

    Raises:
        ValidationError: what is wanted is not valid.
    """
    changed = replace(
        job,
        **_check_texts(wanted),
        **_build_session_fields(job, wanted),
        **_read_times(job, wanted, asked.wall_ms),
        # Both only grow: what an earlier change brought in may still be in the job, with its author and its
        # taint.
        asked_by=join_principals(job.asked_by, asked.asked_by),
        taint=asked.taint or job.taint,
    )
    if changed.once_ms is not None and changed.until_ms is not None:
        raise ValidationError("a job with a single time has no until", "/until")
    return changed


def has_times(wanted: JobWanted) -> bool:
    """Whether a change brings other times."""
    return bool(_list_times(wanted)) or wanted.zone is not None or wanted.until is not None


def _list_times(wanted: JobWanted) -> list[str]:
    return [name for name in _TIMES if getattr(wanted, name) is not None]


def _check_texts(wanted: JobWanted) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if wanted.text is not None:
        if not wanted.text.strip() or len(wanted.text) > MAX_JOB_CHARS:
            raise ValidationError(
                f"the text has {len(wanted.text):,} characters; give 1 to {MAX_JOB_CHARS:,}, "
                "not only white space",
                "/text",
            )
        found["text"] = wanted.text
    if wanted.name is not None:
        if len(wanted.name) > MAX_NAME_CHARS:
            raise ValidationError(f"the name is longer than {MAX_NAME_CHARS} characters", "/name")
        found["name"] = wanted.name
    if wanted.catch_up is not None:
        found["catch_up"] = wanted.catch_up
    return found


def _build_session_fields(job: CronJob, wanted: JobWanted) -> dict[str, Any]:
    """Return the fields about the session that a job starts; a job for Main has none of them."""
    given = {
        name: value
        for name in ("kind", "agent", "budget", "ttl_s", "announces")
        if (value := getattr(wanted, name)) is not None
    }
    target = wanted.target or job.target
    if given and target == "main":
        first = next(iter(given))
        raise ValidationError(f"{first} is for a job with target session; this one is for main", f"/{first}")
    if wanted.kind is SessionKind.MAIN:
        raise ValidationError("a job starts a branch or a worker", "/kind")
    if wanted.ttl_s is not None and not 0 < wanted.ttl_s < math.inf:
        raise ValidationError(f"ttl_s is {wanted.ttl_s!r}; give seconds above 0", "/ttl_s")
    cap = find_endless(wanted.budget)
    if cap is not None:
        raise ValidationError(f"{cap} of its budget is not finite", "/budget")
    return {**given, "target": target}


def _read_times(job: CronJob, wanted: JobWanted, wall_ms: int) -> dict[str, Any]:
    if not has_times(wanted):
        return {}
    given = _list_times(wanted)
    if len(given) > 1:
        raise ValidationError(f"give one of {', '.join(given)}, not several", f"/{given[1]}")
    if job.status == "over" and not given:
        raise ValidationError(f"job {job.job_id!r} is over; give it at, every_s or expression", "/at")
    zone = job.zone if wanted.zone is None else check_zone(wanted.zone)
    found: dict[str, Any] = {"zone": zone, **_schedule(job, wanted, zone, wall_ms)}
    if job.status == "over":
        found |= {"status": "active", "until_ms": None}
    if wanted.until is not None:
        found["until_ms"] = read_time(wanted.until, zone, wall_ms, "until")
    return found


def _schedule(job: CronJob, wanted: JobWanted, zone: str, wall_ms: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if _list_times(wanted):
        found = {"once_ms": None, "every_ms": None, "expression": "", "anchor_ms": wall_ms}
    if wanted.at is not None:
        found["once_ms"] = read_time(wanted.at, zone, wall_ms, "at")
    elif wanted.every_s is not None:
        found["every_ms"] = _to_interval_ms(wanted.every_s)
    elif wanted.expression is not None:
        found["expression"] = check_expression(wanted.expression, zone, wall_ms)
    elif job.expression:
        found["expression"] = check_expression(job.expression, zone, wall_ms)
    return found


def _to_interval_ms(every_s: float) -> int:
    if not MIN_EVERY_S <= every_s <= MAX_AHEAD_S:
        raise ValidationError(
            f"every_s is {every_s!r}; give seconds from {MIN_EVERY_S:g} to {MAX_AHEAD_S:.0f}", "/every_s"
        )
    return round(every_s * 1000)
