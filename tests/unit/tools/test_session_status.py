"""``session_status``: a session's own standing, as JSON."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.values.messages import Usage
from sessiontree.testing.context import FixedStatus, call_tool, fresh_report, make_context
from sessiontree_tools.sessions.sessions import SessionStatusTool

FULL = SessionReport(
    session_id="main/b2",
    kind=SessionKind.BRANCH,
    status=SessionStatus.ACTIVE,
    depth=1,
    model="scripted",
    turns=3,
    usage=Usage(100, 20, 0.5, 3, 7),
    children=("main/b2/w1", "main/b2/w4"),
    pending_approvals=1,
    budget_left=MappingProxyType({"tokens": 880.0}),
    expires_at_ms=1_700_000_000_000,
    confinement="landlock-7+seccomp",
    approval_mode="smart",
    system_tier="ask",
    exec_security="safe-bin",
)


async def test_report_is_told_whole(tmp_path: Path) -> None:
    """Every member of the report is there, as JSON has it."""
    result = await call_tool(
        SessionStatusTool(), make_context(tmp_path, SessionKind.BRANCH, status=FixedStatus(FULL))
    )
    output = json.loads(result.text_for_model())
    assert set(output) == {field.name for field in fields(SessionReport)}
    assert set(output["usage"]) == {field.name for field in fields(Usage)}
    assert output["kind"] == "branch"
    assert output["status"] == "active"
    assert output["children"] == ["main/b2/w1", "main/b2/w4"]
    assert output["budget_left"] == {"tokens": 880.0}
    assert output["usage"]["output_tokens"] == 20
    assert [output[name] for name in ("approval_mode", "system_tier", "exec_security")] == [
        "smart",
        "ask",
        "safe-bin",
    ]
    assert result.display == "main/b2: active, 3 turns, 120 tokens"


@pytest.mark.parametrize("kind", list(SessionKind))
async def test_every_kind_may_ask(tmp_path: Path, kind: SessionKind) -> None:
    """A Worker too knows who it is."""
    result = await call_tool(SessionStatusTool(), make_context(tmp_path, kind))
    assert isinstance(result.output, dict)
    assert result.output["kind"] == str(kind)


async def test_answer_is_of_this_moment(tmp_path: Path) -> None:
    """Two questions, two reports: nothing is kept between calls."""
    tool = SessionStatusTool()
    reports = [replace(fresh_report(SessionKind.MAIN), turns=turns) for turns in (1, 2)]
    outputs = [
        (await call_tool(tool, make_context(tmp_path, status=FixedStatus(report)))).output
        for report in reports
    ]
    assert [output["turns"] for output in outputs if isinstance(output, dict)] == [1, 2]


@pytest.mark.parametrize(
    "arguments", [{"session": "main"}, {"sessionKey": "main/b1"}, {"model": "x"}, {"verbose": True}, {"": 1}]
)
async def test_question_takes_no_argument(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """A session asks about itself alone, and changes nothing by asking."""
    with pytest.raises(ValidationError, match="not permitted"):
        await call_tool(SessionStatusTool(), make_context(tmp_path), **arguments)
