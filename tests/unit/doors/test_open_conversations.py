"""Conversations that nobody uses: their trees are closed, unless a turn goes on there."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sessiontree import AsyncFunctionModel, ConfigError, FunctionModel, ModelRequest, Runtime, SessionTree
from sessiontree.doors import conversations
from sessiontree.doors.conversations import Conversation, Conversations
from sessiontree.doors.exchanges import DoorExchange, DoorExchanges
from sessiontree.doors.mcp.work import find_work
from sessiontree.doors.principals import DoorPrincipal, DoorRights
from sessiontree.doors.response_log import ResponseFold, ResponseLog
from sessiontree.doors.turns import HeardTurn, TurnLog


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


def _hold_conversations(tmp_path: Path, max_open: int = 1) -> tuple[Conversations, DoorPrincipal]:
    """Return conversations that are all answered at once, and a principal that may have so many open."""
    work = tmp_path / "work"
    work.mkdir()
    held = Conversations(
        lambda: Runtime(tmp_path / "state", backend="local"),
        lambda workspace, agent: {"model": FunctionModel(lambda request: "fine"), "agents_md": None},
    )
    return held, DoorPrincipal("token:1", "one", DoorRights(workspace=str(work), max_open=max_open))


def _act_while_asked(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]], *, is_at_work: bool = False
) -> None:
    """Act once, when somebody looks whether a conversation is at work."""

    async def look(conversation: Conversation) -> bool:
        monkeypatch.undo()
        await act()
        return is_at_work

    monkeypatch.setattr(Conversation, "is_at_work", look)


@pytest.mark.parametrize("stays", [True, False])
async def test_conversation_that_is_entered_meanwhile_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stays: bool
) -> None:
    """Whoever needs room for another one is refused; the request that entered it is answered."""
    held, principal = _hold_conversations(tmp_path)
    begun = await held.begin(principal)

    async def enter() -> None:
        with begun:
            begun.send("go")
        if stays:
            begun.__enter__()

    _act_while_asked(monkeypatch, enter)
    with pytest.raises(ConfigError, match="open and at work"):
        await held.begin(principal)
    assert await held.find(principal, begun.conversation_id) is begun
    assert await begun.tree.main.send("go") == "fine"
    await held.close()


async def test_conversation_that_is_resumed_meanwhile_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was closed and opened again while somebody looked whether another one can be closed."""
    held, principal = _hold_conversations(tmp_path, max_open=2)
    await held.begin(principal)
    second = await held.begin(principal)
    found: list[Conversation] = []

    async def reopen() -> None:
        await held.release(second)
        found.append((await held.find(principal, second.conversation_id)).__enter__())

    _act_while_asked(monkeypatch, reopen, is_at_work=True)
    with pytest.raises(ConfigError, match="open and at work"):
        await held.begin(principal)
    assert await held.find(principal, second.conversation_id) is found[0]
    assert await found[0].tree.main.send("go") == "fine"
    await held.close()


async def test_requests_that_come_at_once_do_not_take_the_same_room(tmp_path: Path) -> None:
    """Each of them sees that there is room for one; one of them gets it."""
    held, principal = _hold_conversations(tmp_path)

    async def begin() -> Conversation:
        return (await held.begin(principal)).__enter__()

    tasks = [asyncio.create_task(begin()) for _ in range(2)]
    await asyncio.wait(tasks)
    assert sorted(type(each.exception()) is ConfigError for each in tasks) == [False, True]
    await held.close()


async def test_request_that_is_cancelled_while_it_makes_room_leaves_nothing_half_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has gone; the conversation that was to be closed for it is closed, and can be resumed."""
    held, principal = _hold_conversations(tmp_path)
    begun = await held.begin(principal)
    close, is_closing, may_close = SessionTree.close, asyncio.Event(), asyncio.Event()

    async def close_late(tree: SessionTree) -> None:
        is_closing.set()
        await may_close.wait()
        await close(tree)

    monkeypatch.setattr(SessionTree, "close", close_late)
    asking = asyncio.create_task(held.begin(principal))
    await is_closing.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    may_close.set()
    found = await held.find(principal, begun.conversation_id)
    assert await found.tree.main.send("go") == "fine"
    await held.close()


async def test_tree_whose_request_is_cancelled_while_it_opens_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree was open, and nobody knew it yet: it is closed again."""
    held, principal = _hold_conversations(tmp_path)
    begun = await held.begin(principal)
    await held.release(begun)
    is_open = asyncio.Event()

    async def wait(*_: object) -> None:
        is_open.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Conversations, "_load_spending", wait)
    asking = asyncio.create_task(held.find(principal, begun.conversation_id))
    await is_open.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    monkeypatch.undo()
    found = await held.find(principal, begun.conversation_id)
    assert await found.tree.main.send("go") == "fine"
    await held.close()


async def test_conversation_is_not_closed_to_make_room_for_its_own_fork(tmp_path: Path) -> None:
    """The fork is refused if it is the only one that may be open; the conversation goes on."""
    held, principal = _hold_conversations(tmp_path)
    begun = await held.begin(principal)
    assert await begun.tree.main.send("go") == "fine"
    with pytest.raises(ConfigError, match="open and at work"):
        await held.fork(begun, 1)
    assert await begun.tree.main.send("go") == "fine"
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
    with ExitStack() as entered:
        found = await DoorExchanges(held).find(principal, turn_id, entered)
        assert found.log.fold.list_texts(await found.find(turn_id)) == ["fine"]
    await held.close()


async def test_response_that_is_found_is_not_closed_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that comes while the journal is read gets no room; the one that reads can continue there."""
    held, principal = _hold_conversations(tmp_path)
    exchanges = DoorExchanges(held)
    begun = await held.begin(principal)
    with begun:
        turn = begun.send("go")
        await begun.log.wait_until_ended(turn.turn_id)
    read, refused = ResponseLog.read, asyncio.Event()

    async def read_late(log: ResponseLog) -> ResponseFold:
        with pytest.raises(ConfigError, match="open and at work"):
            await held.begin(principal)
        refused.set()
        return await read(log)

    monkeypatch.setattr(ResponseLog, "read", read_late)
    with ExitStack() as entered:
        found = await exchanges.find(principal, turn.turn_id, entered)
        assert refused.is_set()
        monkeypatch.undo()
        assert await found.conversation.tree.main.send("go") == "fine"
    await held.close()


async def test_work_that_is_found_is_not_closed_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for a task of the protocol of tool servers."""
    held, principal = _hold_conversations(tmp_path)
    begun = await held.begin(principal)
    with begun:
        turn = begun.send("go")
        await begun.log.wait_until_ended(turn.turn_id)
    read, refused = TurnLog.read, asyncio.Event()

    async def read_late(log: TurnLog) -> Mapping[str, HeardTurn]:
        monkeypatch.undo()
        with pytest.raises(ConfigError, match="open and at work"):
            await held.begin(principal)
        refused.set()
        return await read(log)

    monkeypatch.setattr(TurnLog, "read", read_late)
    work = await find_work(held, principal, turn.turn_id)
    assert refused.is_set()
    assert (await work.report()).status == "completed"
    await held.close()
