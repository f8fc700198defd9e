"""``sessions_list`` and ``subagents``: what a session sees of those below it, and how it stops them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, SessionClosed, ValidationError
from sessiontree.contracts.handles.ports import AgentInfo, SessionRow, Transcript, TranscriptEntry
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.testing.context import RecordingSessions, RecordingSubtree, call_tool, make_context
from sessiontree_tools.sessions.sessions_below import (
    MAX_STOPPED,
    MAX_SUMMARY_CHARS,
    AgentsList,
    SessionsHistory,
    SessionsList,
    SessionsSend,
    Subagents,
)


def row(session_id: str, status: SessionStatus = SessionStatus.ACTIVE, **more: Any) -> SessionRow:
    """Return the row of a session that has done nothing yet."""
    members: dict[str, Any] = {
        "kind": SessionKind.WORKER if "/w" in session_id else SessionKind.BRANCH,
        "label": None,
        "agent": "default",
        "is_stopping": False,
        "turns": 0,
        "tokens": 0,
        "cost_usd": 0.0,
        "tool": "",
        "pending_approvals": 0,
        "age_s": 0.0,
        "summary": "",
    }
    return SessionRow(session_id=session_id, status=status, **{**members, **more})


BUSY = row(
    "main/b1", label="one", turns=2, tokens=7, cost_usd=0.25, tool="exec", pending_approvals=1, age_s=3.21
)
ENDED = row("main/b1/w1", SessionStatus.COMPLETED, turns=1, summary="found it")


@pytest.mark.covers("S9")
async def test_rows_say_what_each_session_does(tmp_path: Path) -> None:
    """Members that say nothing are left out; the list says how many more there are."""
    ctx = make_context(tmp_path, subtree=RecordingSubtree((BUSY, ENDED, row("main/b2"))))
    result = await call_tool(SessionsList(), ctx, limit=2)
    assert result.output == {
        "sessions": [
            {
                "id": "main/b1",
                "kind": "branch",
                "label": "one",
                "agent": "default",
                "status": "active",
                "turns": 2,
                "tokens": 7,
                "cost_usd": 0.25,
                "age_s": 3.2,
                "tool": "exec",
                "pending_approvals": 1,
            },
            {
                "id": "main/b1/w1",
                "kind": "worker",
                "agent": "default",
                "status": "completed",
                "turns": 1,
                "tokens": 0,
                "summary": "found it",
            },
        ],
        "left_out": 1,
    }
    assert result.display == "2 sessions, 1 of them live"
    assert result.untrusted is False


@pytest.mark.covers("S9")
@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        ({}, ["main/b1", "main/b1/w1"]),
        ({"kind": "worker"}, ["main/b1/w1"]),
        ({"status": "live"}, ["main/b1"]),
        ({"status": "ended"}, ["main/b1/w1"]),
        ({"kind": "branch", "status": "ended"}, []),
    ],
)
async def test_list_is_filtered(tmp_path: Path, arguments: dict[str, Any], ids: list[str]) -> None:
    """By kind, and by whether a session lives."""
    ctx = make_context(tmp_path, subtree=RecordingSubtree((BUSY, ENDED)))
    output: Any = (await call_tool(SessionsList(), ctx, **arguments)).output
    assert [each["id"] for each in output["sessions"]] == ids


@pytest.mark.covers("S9")
async def test_message_of_a_tainted_session_is_marked_and_cut(tmp_path: Path) -> None:
    """It is text from outside for whoever reads it; a long one is cut before it is marked."""
    tainted = row("main/w1", SessionStatus.COMPLETED, summary="x" * 9_000, taint="web_fetch")
    result = await call_tool(SessionsList(), make_context(tmp_path, subtree=RecordingSubtree((tainted,))))
    output: Any = result.output
    summary = output["sessions"][0]["summary"]
    assert result.untrusted == "marked"
    assert "EXTERNAL_UNTRUSTED_CONTENT" in summary
    assert len(summary) < MAX_SUMMARY_CHARS + 400


@pytest.mark.covers("S10")
async def test_kill_returns_how_everything_ended(tmp_path: Path) -> None:
    """The reason names who asked; the rows are those of the session and of all below it."""
    ended = [row(f"main/b1/w{n}", SessionStatus.CANCELLED) for n in range(1, MAX_STOPPED + 5)]
    sessions = RecordingSessions(rows=[row("main/b1", SessionStatus.CANCELLED), *ended, row("main/b2")])
    result = await call_tool(
        Subagents(), make_context(tmp_path, sessions=sessions), action="kill", target="main/b1"
    )
    output: Any = result.output
    assert sessions.stopped == {"main/b1": "main stopped it"}
    assert output["status"] == "killed"
    assert len(output["sessions"]) == MAX_STOPPED
    assert output["left_out"] == 5
    assert result.display == f"stopped main/b1 and {MAX_STOPPED + 4} below it"


@pytest.mark.covers("S10")
async def test_subagents_lists_what_sessions_list_does(tmp_path: Path) -> None:
    """One tool is enough to look and to act."""
    ctx = make_context(tmp_path, subtree=RecordingSubtree((BUSY, ENDED)))
    assert await call_tool(Subagents(), ctx, action="list") == await call_tool(SessionsList(), ctx)


def entry(number: int, role: Any, text: str, **more: Any) -> TranscriptEntry:
    """Return one message of a transcript."""
    return TranscriptEntry(number, role, text, 0, **more)


@pytest.mark.covers("S9")
async def test_history_shows_messages_with_numbers(tmp_path: Path) -> None:
    """Members that say nothing are left out; reading goes on before a number; results may be left out."""
    entries = (
        entry(3, "user", "look", origin="parent"),
        entry(5, "assistant", "[call read {}]"),
        entry(6, "tool", "no such file", tool="read", is_error=True),
        entry(8, "assistant", "not there"),
    )
    subtree = RecordingSubtree(transcripts=(Transcript("main/b1", entries, has_earlier=False),))
    ctx = make_context(tmp_path, subtree=subtree)
    output: Any = (await call_tool(SessionsHistory(), ctx, target="main/b1", limit=3)).output
    assert output == {
        "session": "main/b1",
        "messages": [
            {"number": 5, "role": "assistant", "text": "[call read {}]"},
            {"number": 6, "role": "tool", "text": "no such file", "tool": "read", "is_error": True},
            {"number": 8, "role": "assistant", "text": "not there"},
        ],
        "has_earlier": True,
    }
    result = await call_tool(SessionsHistory(), ctx, target="main/b1", before=8, include_tools=False)
    earlier: Any = result.output
    assert [each["number"] for each in earlier["messages"]] == [3, 5]
    assert earlier["messages"][0]["origin"] == "parent"
    assert result.untrusted is False


@pytest.mark.covers("S9")
@pytest.mark.parametrize("taint", ["", "web_fetch"])
async def test_history_of_a_tainted_session_taints(tmp_path: Path, taint: str) -> None:
    """The session that reads it has then read text from outside too."""
    transcript = Transcript("main/b1", (entry(1, "user", "look"),), has_earlier=False, taint=taint)
    ctx = make_context(tmp_path, subtree=RecordingSubtree(transcripts=(transcript,)))
    result = await call_tool(SessionsHistory(), ctx, target="main/b1")
    assert result.untrusted == ("marked" if taint else False)


@pytest.mark.covers("S9")
async def test_message_is_sent_once_per_call(tmp_path: Path) -> None:
    """The call id is the key; steering is a message that cuts the receiver's turn."""
    sessions = RecordingSessions()
    for call_id, tool, arguments in (
        ("one", SessionsSend(), {"target": "parent", "message": " hello "}),
        ("one", SessionsSend(), {"target": "parent", "message": " hello "}),
        ("two", SessionsSend(), {"target": "main/b1", "message": "stop that", "mode": "steer"}),
        ("three", Subagents(), {"action": "steer", "target": "main/b2", "message": "look here"}),
    ):
        ctx = make_context(tmp_path, sessions=sessions, call_id=call_id)
        result = await call_tool(tool, ctx, **arguments)
        assert result.output == {"status": "sent", "session_id": arguments["target"]}
    assert sessions.sent == {
        "one": ("parent", " hello ", "follow_up"),
        "two": ("main/b1", "stop that", "steer"),
        "three": ("main/b2", "look here", "steer"),
    }


@pytest.mark.covers("S9")
async def test_refused_message_is_an_error_for_the_model(tmp_path: Path) -> None:
    """It says why nothing was sent."""
    sessions = RecordingSessions(refusal=SessionClosed("main/b1", "it is stopping"))
    ctx = make_context(tmp_path, sessions=sessions)
    with pytest.raises(ExecutionError, match=r"nothing was sent: .*it is stopping"):
        await call_tool(SessionsSend(), ctx, target="main/b1", message="hello")
    with pytest.raises(ExecutionError, match=r"nothing was read: .*no session below you"):
        await call_tool(SessionsHistory(), ctx, target="main/b1")


@pytest.mark.covers("S15")
async def test_agents_are_listed_with_their_models(tmp_path: Path) -> None:
    """And which of them the session is."""
    subtree = RecordingSubtree(known=(AgentInfo("default", "m"), AgentInfo("clerk", "n", "It counts.")))
    result = await call_tool(AgentsList(), make_context(tmp_path, subtree=subtree))
    agents = [{"name": "default", "model": "m"}, {"name": "clerk", "model": "n", "description": "It counts."}]
    assert result.output == {"agents": agents, "yours": "default"}


@pytest.mark.covers("S10")
async def test_unknown_target_stops_nothing(tmp_path: Path) -> None:
    """The error names what was asked for."""
    sessions = RecordingSessions(rows=[BUSY])
    ctx = make_context(tmp_path, sessions=sessions)
    with pytest.raises(ExecutionError, match=r"nothing was stopped: .*'main/b7'.*no session"):
        await call_tool(Subagents(), ctx, action="kill", target="main/b7")
    with pytest.raises(ValidationError, match="needs the id or label") as caught:
        await call_tool(Subagents(), ctx, action="kill")
    assert caught.value.field == "/target"
    assert sessions.stopped == {}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"action": "stop"},
        {"action": "kill", "target": "x" * 201},
        {"action": "steer", "target": "main/b1"},
        {"action": "steer", "target": "main/b1", "message": " "},
        {"action": "steer", "message": "hello"},
    ],
)
async def test_bad_request_is_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """An action that does not exist, and a name longer than any."""
    with pytest.raises(ValidationError):
        await call_tool(Subagents(), make_context(tmp_path), **arguments)


async def test_session_without_children_is_refused(tmp_path: Path) -> None:
    """A Worker has neither handle."""
    ctx = make_context(tmp_path, SessionKind.WORKER)
    with pytest.raises(PermissionDenied, match="holds no subtree"):
        await call_tool(SessionsList(), ctx)
    with pytest.raises(PermissionDenied, match="holds no sessions"):
        await call_tool(Subagents(), ctx, action="kill", target="main")
