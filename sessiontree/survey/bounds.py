"""Bounds: the limits and the agent a survey runs with, made from what there is to survey."""

from __future__ import annotations

from collections.abc import Sequence

from sessiontree.contracts.agent import AgentConfig, AgentSpec
from sessiontree.contracts.approvals import Rule
from sessiontree.contracts.limits import Limits
from sessiontree.survey.ignored import REPORT_NAME
from sessiontree.survey.plan import FolderPlan
from sessiontree.survey.planning import PAGE_ITEMS

MAX_RESULT_CHARS = 400_000
"""Longest text of one tool result: a page of the plan, or a group's findings."""
MAX_LIVE = 1 + PAGE_ITEMS + PAGE_ITEMS**2
"""Main, a page of Branches, and a page of Workers each."""
_TOOL_TIMEOUT_S = 6 * 3600.0
"""A call's time begins while it waits for its thread, behind as many others as sessions may live."""
_APPROVAL_EXPIRY_S = 7 * 24 * 3600.0
_SPARE_SESSIONS = 1000
"""For files that appear while the survey runs."""

AGENTS = {
    "default": AgentSpec(
        config=AgentConfig(
            prompt="You are one session of a survey: share work out, or do it, and hand up what was found.",
            max_result_chars=MAX_RESULT_CHARS,
        )
    )
}
"""The one agent of a survey's sessions."""

SMART_RULES = (Rule(tool="remove_survey", where={"/path": REPORT_NAME}, answer="approve"),)
"""What mode ``smart`` allows: removing the survey's own earlier report from its usual place."""


def limits_for(folders: Sequence[FolderPlan]) -> Limits:
    """Return limits that let a survey of these folders through.

    Sessions of a survey have no time to live: an interrupted one may be taken up days later. The turn waits
    for a person as long as a request may stay open.
    """
    sessions = 1 + len(folders) + sum(len(folder.groups) for folder in folders)
    return Limits(
        max_depth=2,
        max_children=PAGE_ITEMS,
        max_live=MAX_LIVE,
        max_total=2 * sessions + _SPARE_SESSIONS,
        tool_timeout_s=_TOOL_TIMEOUT_S,
        approval_expiry_s=_APPROVAL_EXPIRY_S,
        approval_patience_s=None,
        branch_ttl_s=None,
        worker_ttl_s=None,
    )
