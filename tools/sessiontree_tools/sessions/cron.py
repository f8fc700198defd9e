"""The tool ``cron``: timed jobs of the tree. At its times a job gives Main a message, or starts a session."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, assert_never
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import CRON
from sessiontree.contracts.recorded.cron import (
    KEPT_RUNS,
    MAX_JOB_CHARS,
    MAX_NAME_CHARS,
    Cron,
    CronJob,
    CronTable,
    JobAction,
    JobChange,
    JobRow,
    JobRun,
    JobWanted,
)
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import Stripped, Tool, ToolFlag
from sessiontree.contracts.values.jsonable import JsonValue

SHOWN_CHARS = 200
"""Most characters of a text or a summary in lists."""


class CronParams(BaseModel):
    """What to do with which job, and what the job is."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["status", "list", "add", "update", "remove", "pause", "resume", "run", "runs"]
    job_id: Annotated[str, Stripped()] | None = Field(
        default=None, max_length=64, description="Of all but status, list and add."
    )
    text: str | None = Field(default=None, max_length=MAX_JOB_CHARS)
    name: Annotated[str, Stripped()] | None = Field(default=None, max_length=MAX_NAME_CHARS)
    at: Annotated[str, Stripped()] | None = Field(
        default=None, max_length=64, description="Once: 2031-05-04T09:30, or 20m, 2h, 1d from now."
    )
    every_s: float | None = Field(default=None, description="At least 60.")
    expression: Annotated[str, Stripped()] | None = Field(
        default=None, max_length=200, description="Five fields of cron."
    )
    zone: Annotated[str, Stripped()] | None = Field(
        default=None, max_length=64, description="Time zone; else UTC."
    )
    until: Annotated[str, Stripped()] | None = Field(default=None, max_length=64, description="Like at.")
    target: Literal["main", "session"] | None = Field(
        default=None, description="A message to you (default), or a new session."
    )
    kind: Literal["branch", "worker"] | None = None
    agent: Annotated[str, Stripped()] | None = Field(default=None, max_length=64)
    max_tokens: int | None = Field(default=None, ge=0, description="Budget of each session.")
    max_cost_usd: float | None = Field(default=None, ge=0, description="The same.")
    ttl_s: float | None = Field(default=None, gt=0, description="Longest life of each session.")
    announce: bool | None = Field(default=None, description="Whether you get each session's result.")
    catch_up: Literal["once", "skip"] | None = Field(default=None, description="After missed times.")
    limit: int = Field(default=10, ge=1, le=KEPT_RUNS)


class CronTool(Tool[CronParams]):
    """Timed jobs of the tree, for its Main."""

    name = "cron"
    description = "Timed jobs. Each of their times runs once, or is recorded as skipped with the reason."
    brief = True
    Params: ClassVar[type[BaseModel]] = CronParams
    label = "Timed jobs"
    section = "automation"
    flags = frozenset({ToolFlag.OWNER_ONLY, ToolFlag.OPTIONAL})
    tier = PermissionTier.SYSTEM
    kinds = frozenset({SessionKind.MAIN})
    capabilities = frozenset({"cron"})
    param_aliases: ClassVar[Mapping[str, str]] = {
        "jobId": "job_id",
        "id": "job_id",
        "message": "text",
        "tz": "zone",
        "cron": "expression",
    }
    idempotent = True

    async def execute(self, params: CronParams, ctx: ToolContext) -> ToolResult:
        """Carry out the action.

        The output of ``status`` is ``{now, jobs, active, next}``, of ``list`` ``{now, jobs: […]}``, of
        ``runs`` ``{job_id, runs: […]}``, newest first; of the others ``{status, job}``.

        Raises:
            ValidationError: a parameter is missing, not valid, or of another action.
            ExecutionError: no job has the id, the tree has too many, or it can't be done to it now.
            PermissionDenied: the session is not a Main.
        """
        cron = ctx.require(CRON)
        match params.action:
            case "status" | "list":
                return _list_jobs(await cron.jobs(), whole=params.action == "list")
            case "runs":
                return await _show_runs(cron, params)
            case "add" | "update":
                return await _change_job(cron, params.action, params, ctx, read_wanted_job(params))
            case "remove" | "pause" | "resume" | "run":
                return await _change_job(cron, params.action, params, ctx, JobWanted())
            case _:
                assert_never(params.action)


def read_wanted_job(params: CronParams) -> JobWanted:
    """Return what a call wants a job to be."""
    has_budget = params.max_tokens is not None or params.max_cost_usd is not None
    return JobWanted(
        name=params.name,
        text=params.text,
        at=params.at,
        every_s=params.every_s,
        expression=params.expression,
        zone=params.zone,
        target=params.target,
        kind=None if params.kind is None else SessionKind(params.kind),
        agent=params.agent,
        budget=Budget(tokens=params.max_tokens, cost_usd=params.max_cost_usd) if has_budget else None,
        ttl_s=params.ttl_s,
        announces=params.announce,
        catch_up=params.catch_up,
        until=params.until,
    )


async def _change_job(
    cron: Cron, action: JobAction, params: CronParams, ctx: ToolContext, wanted: JobWanted
) -> ToolResult:
    job_id = "" if action == "add" else _require_job_id(params)
    # By the id of the call, so that a call that is repeated after a loss makes no second job.
    row = await cron.change(JobChange(action, job_id, wanted), key=ctx.call_id)
    done = _DONE[action]
    return ToolResult(
        output={"status": done, "job": _build_row(row)},
        display=f"{done} {row.job.job_id}{f' ({row.job.name})' if row.job.name else ''}: {row.job.schedule}",
    )


_DONE: Mapping[JobAction, str] = {
    "add": "added",
    "update": "updated",
    "remove": "removed",
    "pause": "paused",
    "resume": "resumed",
    "run": "started",
}


def _require_job_id(params: CronParams) -> str:
    if not params.job_id:
        raise ValidationError(f"{params.action} needs job_id; list shows the ids", "/job_id")
    return params.job_id


def _list_jobs(table: CronTable, *, whole: bool) -> ToolResult:
    active = [row for row in table.jobs if row.job.status == "active"]
    nexts = [row.next_ms for row in active if row.next_ms is not None]
    next_time = min(nexts, default=None)
    display = f"{len(active)} of {len(table.jobs)} jobs are active"
    if whole:
        rows: list[JsonValue] = [_build_row(row) for row in table.jobs]
        return ToolResult(output={"now": _time(table.now_ms), "jobs": rows}, display=display)
    status: JsonValue = {
        "now": _time(table.now_ms),
        "jobs": len(table.jobs),
        "active": len(active),
        "next": None if next_time is None else _time(next_time),
    }
    return ToolResult(output=status, display=display)


async def _show_runs(cron: Cron, params: CronParams) -> ToolResult:
    job_id = _require_job_id(params)
    runs = await cron.history(job_id, limit=params.limit)
    rows: list[JsonValue] = [_run(run, "UTC") for run in runs]
    return ToolResult(output={"job_id": job_id, "runs": rows}, display=f"{len(rows)} entries of {job_id}")


def _build_row(row: JobRow) -> JsonValue:
    job = row.job
    shown: dict[str, Any] = {
        "job_id": job.job_id,
        "name": job.name,
        "text": _shorten(job.text),
        "schedule": job.schedule,
        "status": job.status,
        "next": None if row.next_ms is None else _time(row.next_ms, job.zone),
        "target": job.target,
        "catch_up": job.catch_up,
        "runs": row.runs,
        "skipped": row.skipped,
        "is_running": row.is_running,
        "last": None if row.last is None else _run(row.last, job.zone),
    }
    if job.until_ms is not None:
        shown["until"] = _time(job.until_ms, job.zone)
    if job.target == "session":
        shown |= _describe_session(job)
    return shown


def _describe_session(job: CronJob) -> dict[str, Any]:
    caps = {} if job.budget is None else job.budget.model_dump(exclude_none=True)
    found = {"kind": str(job.kind), "agent": job.agent, "budget": caps, "ttl_s": job.ttl_s}
    return {"announce": job.announces, **{name: value for name, value in found.items() if value}}


def _run(run: JobRun, zone: str) -> JsonValue:
    shown: dict[str, Any] = {"time": _time(run.slot_ms, zone), "how": run.how}
    if run.run_id:
        shown |= {"run_id": run.run_id, "session": run.session, "state": run.state}
        if run.summary:
            shown["summary"] = _shorten(run.summary)
        return shown
    return {**shown, "reason": run.reason, "slots": run.count if run.is_exact else f"more than {run.count}"}


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _time(at_ms: int, zone: str = "UTC") -> str:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(ZoneInfo(zone))
    return moment.isoformat(timespec="seconds")
