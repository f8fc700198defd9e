"""Approval requests as requests for a permission, and how the client's choice answers them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from acp.schema import AllowedOutcome, PermissionOption, RequestPermissionResponse, ToolCallUpdate

from sessiontree.channels.safe_text import format_approval, make_visible
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.senders import Sender
from sessiontree.contracts.values.truncation import cut_line
from sessiontree.doors.acp.tool_calls import (
    KINDS,
    MAX_TITLE_CHARS,
    find_locations,
    make_diffs,
    make_text_content,
    make_title,
    shorten_raw,
)

ALLOW_ONCE: Final = "allow_once"
ALLOW_ALWAYS: Final = "allow_always"
REJECT: Final = "reject_once"
MAX_ASKED_CHARS: Final = 2_000_000
"""Longest text that a person decides on: it has all arguments, also those of a long file."""


def list_options(request: ApprovalRequest) -> list[PermissionOption]:
    """Return the choices for a request: *always* only where it would cover a later call."""
    options = [PermissionOption(option_id=ALLOW_ONCE, name="Allow once", kind="allow_once")]
    if request.covers != ():
        what = request.tool if request.covers is None else ", ".join(request.covers)
        name = cut_line(make_visible(f"Always allow {what} in this session"), MAX_TITLE_CHARS)
        options.append(PermissionOption(option_id=ALLOW_ALWAYS, name=name, kind="allow_always"))
    return [*options, PermissionOption(option_id=REJECT, name="Reject", kind="reject_once")]


def render_call(request: ApprovalRequest, call_id: str, root: Path) -> ToolCallUpdate:
    """Return what a person decides on: the call with all its arguments, and the path of its session.

    Args:
        request: The request.
        call_id: The call's id for the editor.
        root: The workspace.
    """
    return ToolCallUpdate(
        tool_call_id=call_id,
        title=make_title(request.tool, request.arguments, request.session_id),
        kind=KINDS.get(request.tool, "other"),
        status="pending",
        raw_input=shorten_raw(request.arguments),
        locations=find_locations(request.arguments, root),
        content=[
            make_text_content(format_approval(request), MAX_ASKED_CHARS),
            *make_diffs(request.tool, request.arguments, root),
        ],
        field_meta={
            "sessiontree": {
                "session": request.session_id,
                "tool": request.tool,
                "tier": request.tier,
                "request": request.request_id,
                "expiresAtMs": request.expires_at_ms,
            }
        },
    )


def parse_answer(
    request: ApprovalRequest, response: RequestPermissionResponse, sender: Sender
) -> ApprovalAnswer | None:
    """Return what a client's choice means; None = it has not decided, and the request still waits.

    A choice that was not offered is a no: nothing is allowed by mistake.
    """
    outcome = response.outcome
    if not isinstance(outcome, AllowedOutcome):
        return None
    chosen = outcome.option_id
    offered = {option.option_id for option in list_options(request)}
    if chosen not in offered:
        return ApprovalAnswer(False, "the editor chose an option that was not offered", sender=sender)
    if chosen == REJECT:
        return ApprovalAnswer(False, "rejected in the editor", sender=sender)
    return ApprovalAnswer(True, always=chosen == ALLOW_ALWAYS, sender=sender)
