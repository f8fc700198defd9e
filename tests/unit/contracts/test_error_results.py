"""The envelopes of the wire, letter by letter, and their bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import (
    ExecutionError,
    ImageRefused,
    PermissionDenied,
    Timeout,
    ToolError,
    ValidationError,
)
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.results import (
    MAX_REASON_CHARS,
    make_blocked_message,
    make_error_message,
    make_pending_message,
    make_unknown_message,
)
from sessiontree.contracts.values.jsonable import dump_readable
from sessiontree.contracts.values.messages import ToolResultMessage

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
ENVELOPES = {
    "error": (
        make_error_message("call_1", "exec", ExecutionError("command required"), 7),
        '{"status":"error","tool":"exec","error":"command required"}',
        {"code": "execution_error", "status": 500},
        True,
    ),
    "invalid": (
        make_error_message("call_1", "read", ValidationError("path required", "/path"), 7, schema=SCHEMA),
        (
            '{"status":"error","tool":"read","error":"path required","field":"/path",'
            '"schema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}'
        ),
        {"code": "validation_error", "status": 400, "field": "/path"},
        True,
    ),
    "denied": (
        make_error_message("call_1", "exec", PermissionDenied(PermissionTier.SYSTEM, "not here"), 7),
        '{"status":"error","tool":"exec","error":"not here","tier":"System"}',
        {"code": "permission_denied", "status": 403, "tier": "System"},
        True,
    ),
    "refused": (
        make_error_message(
            "call_1", "exec", PermissionDenied(PermissionTier.SYSTEM, "by a list", by_policy=True), 7
        ),
        '{"status":"blocked","tool":"exec","reason":"by a list","tier":"System"}',
        {"code": "permission_denied", "status": 403, "tier": "System"},
        True,
    ),
    "timeout": (
        make_error_message("call_1", "exec", Timeout(1.5), 7),
        f'{{"status":"error","tool":"exec","error":"{Timeout(1.5).message}"}}',
        {"code": "timeout", "status": 504, "elapsed": 1.5},
        True,
    ),
    "image": (
        make_error_message("call_1", "read", ImageRefused("'a.png'", "it is damaged"), 7),
        '{"status":"error","tool":"read","error":"can\'t show \'a.png\': it is damaged"}',
        {"code": "image_refused", "status": 500},
        True,
    ),
    "blocked": (
        make_blocked_message("call_1", "exec", "Tool blocked by policy: safe-bin mode", 7),
        '{"status":"blocked","tool":"exec","reason":"Tool blocked by policy: safe-bin mode"}',
        None,
        True,
    ),
    "pending": (
        make_pending_message("call_1", "custom_tool", "waits for a person", "a1", 7),
        '{"status":"pending","tool":"custom_tool","message":"waits for a person","requestId":"a1"}',
        None,
        False,
    ),
    "unknown": (
        make_unknown_message("call_1", "write", 7),
        (
            '{"status":"unknown","tool":"write","may_have_run":true,'
            '"error":"the process running this call was lost; check what it did before you repeat it"}'
        ),
        None,
        True,
    ),
}


@pytest.mark.covers("I5", "I15", "I31", "S36", "U10")
@pytest.mark.parametrize("name", ENVELOPES)
def test_envelope_letter_by_letter(name: str) -> None:
    """Members, their order and spelling; what is the journal's alone; whether the call failed."""
    message, text, details, is_error = ENVELOPES[name]
    assert message.to_wire() == {
        "role": "toolResult",
        "toolCallId": "call_1",
        "toolName": message.tool_name,
        "content": [{"type": "text", "text": text}],
        "details": details,
        "isError": is_error,
        "timestamp": 7,
    }


@given(st.sampled_from('x\n"\u20ac\U0001f469'), st.sampled_from([0, 1, 7_999, 8_000, 8_001, 50_000]))
def test_reason_of_any_size_is_bounded(letter: str, size: int) -> None:
    """Whatever a tool raises, its words are cut; short ones stay as they are."""
    words = letter * size
    for message in (
        make_error_message("c", "t", ExecutionError(words), 0),
        make_error_message("c", "t", ValidationError(words, "/" + words), 0),
        make_blocked_message("c", "t", words, 0),
        make_pending_message("c", "t", words, "a", 0),
    ):
        # Each letter may need two in JSON.
        assert len(message.text) <= 2 * MAX_REASON_CHARS + 1_000
        assert (": 8000 of " in message.text) == (size > MAX_REASON_CHARS)


@given(st.sampled_from('x\n"\0\u20ac\U0001f469\ud800'), st.integers(0, 20_000), st.integers(200, 60_000))
def test_reason_leaves_an_envelope_within_the_limit(letter: str, size: int, max_chars: int) -> None:
    """Whatever its letters become in JSON, and no more is cut than has to be."""
    words = letter * size
    for message in (
        make_error_message("c", "t" * 64, ExecutionError(words), 0, max_chars=max_chars),
        make_blocked_message("c", "t" * 64, words, 0, max_chars=max_chars),
    ):
        assert len(message.text) <= max_chars
        told = json.loads(message.text)
        reason = told.get("error") or told.get("reason") or ""
        is_whole = len(dump_readable({**told, **dict.fromkeys({"error", "reason"} & told.keys(), words)}))
        assert (reason == words) is (is_whole <= max_chars and size <= MAX_REASON_CHARS)


def kinds_of(error: ToolError) -> ToolResultMessage:
    """Return the envelope of an error."""
    return make_error_message("c", "t", error, 0)


def test_schema_goes_with_what_it_explains_alone() -> None:
    """Only an error of arguments carries the schema."""
    assert "schema" not in make_error_message("c", "t", ExecutionError("x"), 0, schema=SCHEMA).text
    assert "schema" not in kinds_of(ValidationError("x")).text
