"""Conversations that nobody uses: their trees are closed, unless a turn goes on there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessiontree import AsyncFunctionModel, ModelRequest, Runtime
from sessiontree.doors import conversations
from sessiontree.doors.conversations import Conversation, Conversations
from sessiontree.doors.principals import DoorPrincipal, DoorRights


async def test_a_tree_stays_open_while_its_turn_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that nobody waits for is finished, and its tree is closed afterwards."""
    monkeypatch.setattr(conversations, "IDLE_S", 0.001)
    answers: asyncio.Queue[bool] = asyncio.Queue()
    asked = Conversation.is_at_work

    async def look(conversation: Conversation) -> bool:
        is_at_work = await asked(conversation)
        answers.put_nowait(is_at_work)
        return is_at_work

    monkeypatch.setattr(Conversation, "is_at_work", look)
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(request: ModelRequest) -> str:
        is_asked.set()
        await may_answer.wait()
        return f"heard {request.messages[-1].text}"

    def options_for(workspace: str, agent: str | None) -> dict[str, Any]:
        return {"model": AsyncFunctionModel(slow), "agents_md": None}

    work = tmp_path / "work"
    work.mkdir()
    held = Conversations(lambda: Runtime(tmp_path / "state", backend="local"), options_for)
    principal = DoorPrincipal("token:1", "one", DoorRights(workspace=str(work)))
    begun = await held.begin(principal)
    with begun:
        turn = begun.send("go")
        await is_asked.wait()
    assert await answers.get(), "somebody looked whether it may be closed"
    assert await held.find(principal, begun.conversation_id) is begun
    may_answer.set()
    heard = await begun.log.until_ended(turn.turn_id)
    assert heard is not None
    assert heard.ended is not None
    assert heard.ended.text == "heard go"
    while await answers.get():
        pass
    assert await held.find(principal, begun.conversation_id) is not begun
    await held.close()
