"""Conversations that nobody uses: their trees are closed, unless a turn goes on there."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sessiontree import AsyncFunctionModel, ConfigError, FunctionModel, ModelRequest, Runtime
from sessiontree.doors import conversations
from sessiontree.doors.conversations import Conversation, Conversations
from sessiontree.doors.exchanges import DoorExchange, DoorExchanges
from sessiontree.doors.principals import DoorPrincipal, DoorRights


async def test_tree_stays_open_while_its_turn_goes_on(
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
    heard = await begun.log.wait_until_ended(turn.turn_id)
    assert heard is not None
    assert heard.ended is not None
    assert heard.ended.text == "heard go"
    while await answers.get():
        pass
    assert await held.find(principal, begun.conversation_id) is not begun
    await held.close()


def _hold_conversations(tmp_path: Path) -> tuple[Conversations, DoorPrincipal]:
    """Return conversations that are all answered at once, and a principal that may have one open."""
    work = tmp_path / "work"
    work.mkdir()
    held = Conversations(
        lambda: Runtime(tmp_path / "state", backend="local"),
        lambda workspace, agent: {"model": FunctionModel(lambda request: "fine"), "agents_md": None},
    )
    return held, DoorPrincipal("token:1", "one", DoorRights(workspace=str(work), max_open=1))


def _act_while_asked(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
    """Act once, when somebody looks whether a conversation is at work; it is not."""

    async def look(conversation: Conversation) -> bool:
        monkeypatch.undo()
        await act()
        return False

    monkeypatch.setattr(Conversation, "is_at_work", look)


async def test_conversation_that_is_entered_meanwhile_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever needs room for another one is refused; the request that entered it is answered."""
    held, principal = _hold_conversations(tmp_path)
    begun = await held.begin(principal)

    async def enter() -> None:
        (await held.find(principal, begun.conversation_id)).__enter__()

    _act_while_asked(monkeypatch, enter)
    with pytest.raises(ConfigError, match="open and at work"):
        await held.begin(principal)
    assert await held.find(principal, begun.conversation_id) is begun
    assert await begun.tree.main.send("go") == "fine"
    begun.__exit__()
    await held.close()


async def test_conversation_that_is_resumed_meanwhile_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was closed and opened again while somebody looked whether it can be closed."""
    held, principal = _hold_conversations(tmp_path)
    begun = await held.begin(principal)
    found: list[Conversation] = []

    async def reopen() -> None:
        await held.release(begun)
        found.append(await held.find(principal, begun.conversation_id))

    _act_while_asked(monkeypatch, reopen)
    await held.begin(principal)
    assert await held.find(principal, begun.conversation_id) is found[0]
    assert await found[0].tree.main.send("go") == "fine"
    await held.close()


async def test_closed_conversation_is_forgotten(tmp_path: Path) -> None:
    """What was known of it is in its journal, so a server that goes on for months does not grow."""
    held, principal = _hold_conversations(tmp_path)

    async def talk() -> tuple[weakref.ref[Conversation], str]:
        exchange: DoorExchange = await DoorExchanges(held).begin(principal, "default", {})
        with exchange.conversation as begun:
            turn = await exchange.send(None, "go")
            assert (await exchange.wait_for_end(turn.turn_id, turn)).ended is not None
        await held.release(begun)
        return weakref.ref(begun), turn.turn_id

    known, turn_id = await talk()
    await asyncio.sleep(0)
    gc.collect()
    assert known() is None
    found = await DoorExchanges(held).find(principal, turn_id)
    assert found.log.fold.list_texts(await found.find(turn_id)) == ["fine"]
    await held.close()
