"""Handing a call over, where another host had prepared it: it is checked again, and is what was allowed."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from sessiontree import ClientTool, PermissionTier, PolicyConfig, SessionKind, ToolCall, ToolFlag
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import SessionRights
from sessiontree.contracts.values.jsonable import compute_digest
from sessiontree.contracts.values.session_ids import SessionIds, compute_session_key
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.policy.compiled import compile_policy
from sessiontree.runtime.rights.session_rights import make_session_policy
from sessiontree.runtime.runner.calls.call_book import CallBook
from sessiontree.runtime.runner.calls.tool_calls import Delegation
from sessiontree.session import instructions as todo
from sessiontree.session.state import CallState
from sessiontree.testing.context import FixedStatus, fresh_report
from tests.unit.session.session_fixtures import spec


class Question(BaseModel):
    """What to ask."""

    text: str


TOOLS = (
    ClientTool("ask", "Ask.", Question, tier=PermissionTier.WORKSPACE),
    ClientTool("vault", "Open.", Question, tier=PermissionTier.WORKSPACE, flags=[ToolFlag.OWNER_ONLY]),
)
STRANGER = Principal("bob", "Bob", "the control socket", "", is_owner=False)
OWNER = Principal("ada", "Ada", "the control socket", "", is_owner=True)


def handed(
    tool: str, digest: str, asked_by: tuple[Principal, ...] = (), nonce: str = "00" * 16
) -> tuple[list[Any], list[Any]]:
    """Hand a call over that this host did not prepare; return what the session hears, and what is over."""
    table = ToolTable(TOOLS)
    policy = make_session_policy(
        compile_policy(table.rows, PolicyConfig()), "", spec(SessionKind.MAIN), "scripted", has_channel=True
    )
    kind = SessionKind.MAIN
    rights = SessionRights("main", "default", kind, Path("/"), AgentConfig(), FixedStatus(fresh_report(kind)))
    dispatcher = Dispatcher(
        table,
        frozenset({"ask", "vault"}),
        rights,
        policy,
        tool_timeout_s=60.0,
        approval_expiry_s=900.0,
        now_ms=lambda: 5,
        command_fingerprint=lambda arguments, member: "",
    )
    due: deque[Any] = deque()
    ids = SessionIds("main", compute_session_key(nonce, "main"))
    delegation = Delegation(dispatcher, lambda: 5, CallBook(), lambda *given: due.append(given), [], ids)
    call = CallState("1.0", ToolCall("c1", tool, {"text": "x"}), asked_by=asked_by)
    checked = CheckedCall("1.0", tool, {"text": "x"}, digest, int(PermissionTier.WORKSPACE), False)
    over = delegation.hand_over(todo.ExecuteCall("main#1.0", checked), None, call)
    return [stimulus for _, stimulus in due], [] if over is None else [over]


def allowed(tool: str) -> str:
    """Return what a call was allowed as."""
    return compute_digest(tool, {"text": "x"}, "/")


def test_call_is_handed_over_as_it_was_allowed() -> None:
    """With the id that the tree has for it, the final arguments and the time the program has."""
    (heard,), over = handed("ask", allowed("ask"), nonce="ab" * 16)
    assert over == []
    assert isinstance(heard, stimuli.CallHandedOver)
    assert (heard.call.tool, heard.call.arguments, heard.expires_at_ms) == ("ask", {"text": "x"}, 60_005)
    ((again,), _) = handed("ask", allowed("ask"), nonce="ab" * 16)
    assert len(heard.client_id) == 32
    assert again.client_id == heard.client_id


def test_call_that_is_another_than_was_allowed_reaches_nobody() -> None:
    """What is about to run is compared once more with what was approved or intended."""
    heard, (over,) = handed("ask", compute_digest("ask", {"text": "y"}, "/"))
    assert heard == []
    assert over.outcome == "blocked"


@pytest.mark.parametrize("asker", [OWNER, STRANGER])
def test_owners_tools_stay_theirs_after_a_loss(asker: Principal) -> None:
    """Whom the turn acts for counts on every host."""
    heard, over = handed("vault", allowed("vault"), (asker,))
    assert bool(heard) is asker.is_owner
    assert [each.outcome for each in over] == ([] if asker.is_owner else ["denied"])
