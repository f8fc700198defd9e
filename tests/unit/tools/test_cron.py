"""The tool ``cron``: what it asks of the handle, and what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import PermissionDenied, ValidationError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.cron import JobRow, JobRun
from sessiontree.contracts.settings.settings import Budget
from sessiontree.testing.context import RecordingCron, call_tool, make_context
from sessiontree_tools.sessions.cron import CronTool
from tests.unit.tree.tree_fixtures import job

RAN = JobRun(60_000, 60_001, "due", "c1:60000", "main/w1", "completed", "x" * 300)
SKIPPED = JobRun(0, 1, "skipped", reason="missed", count=1_000, is_exact=False)
ROW = JobRow(job(zone="Europe/Vienna"), 120_000, 1, 1_000, False, RAN)


@pytest.mark.covers("S14")
async def test_changes_reach_the_handle_once_for_a_call(tmp_path: Path) -> None:
    """With the call's id as their key; a budget only where one is given; the job comes back in its zone."""
    cron = RecordingCron((ROW,))
    ctx = make_context(tmp_path, cron=cron)
    await call_tool(CronTool(), ctx, action="add", text="look", every_s=60)
    done: Any = (await call_tool(CronTool(), ctx, action="add", text="look", every_s=60)).output
    (change,) = cron.changes.values()
    assert (change.action, change.job_id, change.wanted.text) == ("add", "", "look")
    assert change.wanted.budget is None
    assert (done["status"], done["job"]["next"]) == ("added", "1970-01-01T01:02:00+01:00")
    other = make_context(tmp_path, cron=cron, call_id="call-2")
    await call_tool(CronTool(), other, action="update", job_id="c1", max_tokens=5)
    assert cron.changes["call-2"].wanted.budget == Budget(tokens=5)


@pytest.mark.covers("S14")
async def test_history_and_lists_are_bounded_and_say_why(tmp_path: Path) -> None:
    """A skip has its reason and a lower bound; a long summary is cut; a job must be named."""
    ctx = make_context(tmp_path, cron=RecordingCron((ROW,), (RAN, SKIPPED)))
    shown: Any = (await call_tool(CronTool(), ctx, action="runs", job_id="c1")).output
    ran, skipped = shown["runs"]
    assert (ran["state"], len(ran["summary"])) == ("completed", 201)
    assert (skipped["reason"], skipped["slots"]) == ("missed", "more than 1000")
    status: Any = (await call_tool(CronTool(), ctx, action="status")).output
    assert (status["jobs"], status["active"], status["next"]) == (1, 1, "1970-01-01T00:02:00+00:00")
    for action in ("update", "remove", "pause", "resume", "run", "runs"):
        with pytest.raises(ValidationError, match="needs job_id"):
            await call_tool(CronTool(), ctx, action=action)
    with pytest.raises(PermissionDenied):
        await call_tool(CronTool(), make_context(tmp_path, SessionKind.BRANCH), action="list")
