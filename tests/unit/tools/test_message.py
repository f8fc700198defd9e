"""``message``: a word to the human, exactly as written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import PermissionDenied, ValidationError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.testing.context import RecordingChannel, call_tool, make_context
from sessiontree_tools.sessions.message import MAX_CHARS, Message


@pytest.mark.covers("S13")
@pytest.mark.parametrize("kind", [SessionKind.MAIN, SessionKind.BRANCH])
@pytest.mark.parametrize("text", ["hello", "  two\nlines  ", "x" * MAX_CHARS])
async def test_text_reaches_the_channel_unchanged(tmp_path: Path, kind: SessionKind, text: str) -> None:
    """Nothing is trimmed, and it is sent once."""
    channel = RecordingChannel()
    result = await call_tool(Message(), make_context(tmp_path, kind, channel=channel), text=text)
    assert channel.sent == [text]
    assert result.output == {"status": "sent", "chars": len(text)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"text": ""}, "at least 1"),
        ({"text": " \n\t"}, "only white space"),
        ({"text": "x" * (MAX_CHARS + 1)}, "at most 20000"),
        ({"text": None}, "string"),
        ({}, "required"),
        ({"text": "hello", "to": "everyone"}, "not permitted"),
    ],
)
async def test_bad_message_is_refused_and_not_sent(
    tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    """Each mistake is a validation error."""
    channel = RecordingChannel()
    with pytest.raises(ValidationError, match=words):
        await call_tool(Message(), make_context(tmp_path, channel=channel), **arguments)
    assert channel.sent == []


async def test_session_without_channel_is_refused(tmp_path: Path) -> None:
    """Where nobody listens the model is informed."""
    with pytest.raises(PermissionDenied, match="holds no channel"):
        await call_tool(Message(), make_context(tmp_path, channel=None), text="hello")
