"""Every kind and shape that older journals hold is read as what it means now."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sessiontree.contracts.approvals import ApprovalQuestion, CheckedCall, Precedent
from sessiontree.contracts.client_tool import ClientCall
from sessiontree.contracts.codec import FORMER_KINDS, kind_of, recorded_classes, to_wire
from sessiontree.contracts.errors import JournalCorrupt
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.messages import AssistantMessage, TextContent, ToolResultMessage, UserMessage
from sessiontree.contracts.older_facts import STEPS
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.senders import Principal
from sessiontree.contracts.session_facts import (
    ActsFor,
    ApprovalWanted,
    ApproverConsulted,
    ApproverReplied,
    CallDelegated,
    CallIntended,
    CallOpened,
    CallResolved,
    ChildTroubleNoted,
    MessageReceived,
    Opened,
    RunFinished,
    ToolGivenUp,
    TurnReplied,
)
from sessiontree.contracts.stimuli import ApproverAsked, ChildTroubled
from sessiontree.contracts.tree_facts import (
    ApprovalRequested,
    ApprovalStepRecorded,
    ClientCallEnded,
    ClientCallOpened,
    Posted,
    SessionEnded,
    SessionReactivated,
)
from sessiontree.journal.replay import read_fact

BOB = {"kind": "asker", "v": 1, "id": "bob", "name": "", "channel": "", "group": "club", "is_owner": False}
CLUB = Principal("bob", "", "", "club", is_owner=False)
CALL = {"tool": "launch", "arguments": {"n": 1}, "digest": "d", "tier": 3, "repeatable": True}
CHECKED = CheckedCall("1.0", "launch", {"n": 1}, "d", 3, repeatable=True)
UNKNOWN = CheckedCall("", "launch", {"n": 1}, "", 3, repeatable=False)
"""What a question to an approver function did not hold was never looked at."""
MESSAGE = UserMessage((TextContent("go"),), 5, "user")
RESULT = ToolResultMessage("c1", "look", (TextContent("seen"),), timestamp=5)
REPLY = AssistantMessage((TextContent("done"),))
ENDED: SessionResult[Any] = SessionResult(SessionStatus.COMPLETED, "done")
TROUBLE = ToolGivenUp("read", 3, "/path", "is no text")
PRECEDENT = Precedent(False, ("rm x",), "")

OLDER: dict[str, tuple[dict[str, Any], Any]] = {
    "acts_for of an asker": ({"kind": "acts_for", "askers": [BOB]}, ActsFor((CLUB,))),
    "approval_hopped": (
        {"kind": "approval_hopped", "request_id": "r", "session": "main", "answer": "deny"}
        | {"by": "rule", "reason": "no"},
        ApprovalStepRecorded("r", "main", "deny", "rule", "no"),
    ),
    "approval_requested": (
        {"kind": "approval_requested", "request_id": "r", "session": "main", "key": "1.0", "tool": "launch"}
        | {"arguments": {"n": 1}, "digest": "d", "tier": 3, "expires_at_ms": 9, "at_ms": 2}
        | {"precedent": to_wire(PRECEDENT), "asked_by": [BOB]},
        ApprovalRequested(
            ApprovalQuestion("r", "main", CheckedCall("1.0", "launch", {"n": 1}, "d", 3, False), (CLUB,)),
            9,
            2,
            PRECEDENT,
        ),
    ),
    "approval_requested without what came later": (
        {"kind": "approval_requested", "request_id": "r", "session": "main", "key": "1.0", "tool": "launch"}
        | {"arguments": {"n": 1}, "digest": "d", "tier": 3, "expires_at_ms": 9, "at_ms": 2},
        ApprovalRequested(
            ApprovalQuestion("r", "main", CheckedCall("1.0", "launch", {"n": 1}, "d", 3, False)), 9, 2
        ),
    ),
    "approval_wanted": (
        {"kind": "approval_wanted", "key": "1.0", "request_id": "r", **CALL, "at_ms": 7},
        ApprovalWanted("r", CHECKED, 7),
    ),
    "approver_answered": (
        {"kind": "approver_answered", "request_id": "r", "answer": "deny", "reason": "no"},
        ApproverReplied("r", "deny", "no"),
    ),
    "approver_asked, posted": (
        {"kind": "posted", "post_id": "main#1", "session": "main"}
        | {
            "stimulus": {"kind": "approver_asked", "v": 1, "at_ms": 4, "request_id": "r"}
            | {"requester": "main/b1", "tool": "launch", "arguments": {"n": 1}, "tier": "Elevated"}
        },
        Posted("main#1", "main", ApproverAsked(4, ApprovalQuestion("r", "main/b1", UNKNOWN))),  # type: ignore[arg-type]
    ),
    "approver_consulted": (
        {"kind": "approver_consulted", "request_id": "r", "requester": "main/b1", "tool": "launch"}
        | {"arguments": {"n": 1}, "tier": "Elevated", "asked_by": [BOB]},
        ApproverConsulted(ApprovalQuestion("r", "main/b1", UNKNOWN, (CLUB,))),
    ),
    "call_asked": (
        {"kind": "call_asked", "key": "call.x", "call_id": "x", "tool": "look", "arguments": {"kind": "a"}},
        CallOpened("call.x", "x", "look", {"kind": "a"}),
    ),
    "call_delegated": (
        {"kind": "call_delegated", "key": "1.0", "client_id": "c", "tool": "ask", "arguments": {}}
        | {"at_ms": 4, "expires_at_ms": 9},
        CallDelegated("c", CheckedCall("1.0", "ask", {}, "", 0, repeatable=False), 4, 9),
    ),
    "call_resolved": (
        {"kind": "call_resolved", "key": "1.0", "outcome": "ok", "message": RESULT.to_wire()}
        | {"artifacts": [], "resets": None},
        CallResolved("1.0", "ok", RESULT),
    ),
    "call_intended": ({"kind": "call_intended", "key": "1.0", **CALL}, CallIntended(CHECKED)),
    "child_trouble_noted": (
        {"kind": "child_trouble_noted", "child": "main/w1", "tool": "read", "attempts": 3}
        | {"field": "/path", "reason": "is no text"},
        ChildTroubleNoted("main/w1", TROUBLE),
    ),
    "child_troubled, posted": (
        {"kind": "posted", "post_id": "main#1", "session": "main"}
        | {
            "stimulus": {"kind": "child_troubled", "v": 1, "at_ms": 4, "post_id": "main#1"}
            | {"child": "main/w1", "tool": "read", "attempts": 3, "field": "/path", "message": "is no text"}
        },
        Posted("main#1", "main", ChildTroubled(4, "main#1", "main/w1", TROUBLE)),  # type: ignore[arg-type]
    ),
    "client_call_closed": (
        {"kind": "client_call_closed", "client_id": "c", "how": "ok", "answer_id": "a"},
        ClientCallEnded("c", "ok", "a"),
    ),
    "client_call_opened": (
        {"kind": "client_call_opened", "client_id": "c", "session": "main", "tool": "ask", "arguments": {}}
        | {"expires_at_ms": 9},
        ClientCallOpened(ClientCall("c", "main", "ask", {}, 9)),
    ),
    "heard": (
        {"kind": "heard", "message_id": "m", "message": MESSAGE.to_wire(), "steer": False, "wakes": True}
        | {"asked_by": [BOB]},
        MessageReceived("m", MESSAGE, steer=False, wakes=True, asked_by=(CLUB,)),
    ),
    "message_received": (
        {"kind": "message_received", "message_id": "m", "message": MESSAGE.to_wire(), "steer": False}
        | {"wakes": True, "asked_by": []},
        MessageReceived("m", MESSAGE, steer=False, wakes=True),
    ),
    "opened": (
        {"kind": "opened", "system_prompt": "You are one.", "tools": ["look"], "model": "m"},
        Opened("You are one.", ("look",), "m"),
    ),
    "rested": (
        {"kind": "rested", "text": "done", "answers": ["m"], "error": None, "result": None}
        | {"has_result": False},
        RunFinished("done", ("m",), None, None, has_result=False),
    ),
    "session_ended": (
        {"kind": "session_ended", "session": "main/w1", "status": "completed", "result": ENDED.to_wire()}
        | {"at_ms": 9, "forced": False},
        SessionEnded("main/w1", SessionStatus.COMPLETED, ENDED, 9, forced=False),
    ),
    "turn_replied": (
        {"kind": "turn_replied", "turn": 1, "message": REPLY.to_wire()},
        TurnReplied(1, REPLY),
    ),
    "session_stirred": ({"kind": "session_stirred", "session": "main/b1"}, SessionReactivated("main/b1")),
}
"""By what it is about: a fact of version 1 as journaled, and what it means."""


@pytest.mark.parametrize("name", OLDER)
def test_older_fact_is_read_as_what_it_means_now(name: str) -> None:
    """Kind, shape and what is nested in it."""
    wire, meant = OLDER[name]
    before = json.dumps(wire)
    assert read_fact(json.dumps({"kind": wire["kind"], "v": 1, **wire})) == meant
    assert json.dumps(wire) == before


def test_every_older_kind_and_shape_is_among_those_tried() -> None:
    """A step or a former kind without a case here fails."""
    tried = set(re.findall(r'"kind": "(\w+)"', json.dumps([wire for wire, _ in OLDER.values()])))
    assert {kind for kind, _ in STEPS} | set(FORMER_KINDS) <= tried


def test_kind_is_the_class_name_in_snake_case() -> None:
    """Whoever reads a journal finds the class by its kind."""
    for cls, kind in recorded_classes().items():
        if cls.__module__.startswith("sessiontree."):
            assert kind == re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


def test_former_kind_is_no_kind_of_today() -> None:
    """No class may take a name that older journals use for another one."""
    assert not set(FORMER_KINDS) & set(recorded_classes().values())
    assert set(FORMER_KINDS.values()) <= set(recorded_classes().values())


def test_call_of_a_model_is_never_taken_for_a_value_of_ours() -> None:
    """Arguments that look like an older fact stay what they are."""
    given = {"kind": "heard", "v": 1, "stimulus": {"kind": "approver_asked", "v": 1}}
    wire = {"kind": "call_intended", "v": 1, "key": "1.0", **CALL, "arguments": given}
    assert read_fact(json.dumps(wire)).call.arguments == given


def test_version_no_release_wrote_is_refused() -> None:
    """Renamed or not."""
    with pytest.raises(JournalCorrupt):
        read_fact('{"kind":"heard","v":0}')
    assert kind_of(SessionReactivated("main")) == "session_reactivated"
