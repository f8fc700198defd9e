"""Progress that is pushed: every event once and in order, whether the way is open or full; slow readers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest

from sessiontree import ModelRequest, SessionKind, StreamFunctionModel
from sessiontree.contracts.reports.events import TextDelta
from sessiontree.models.port import Piece
from sessiontree.runtime.gateway.model_gateway import Ask, GatewayHost, ModelReplied
from sessiontree.runtime.transport.frames import AskModel, ModelPrompt, Watch
from sessiontree.runtime.transport.progress import Progress, ProgressBuffer, ProgressHub

PATIENCE_S = 60.0
MANY = 300
RING = 1_024


def texts(events: Sequence[Progress]) -> list[str]:
    """Return the text deltas among events."""
    return [each.event.delta for each in events if isinstance(each.event, TextDelta)]


@pytest.mark.parametrize("seed", range(20))
async def test_pieces_reach_the_supervisor_in_order_pushed_and_polled(seed: int) -> None:
    """Those that can't be pushed are polled; all of a reply's pieces come before the reply."""
    chance = random.Random(seed)
    pushes = chance.choice([0.0, 0.2, 0.7, 1.0])

    async def speak(request: ModelRequest) -> AsyncIterator[Piece]:
        for number in range(MANY):
            yield f"{number} "
            if chance.random() < 0.4:
                await asyncio.sleep(0)

    came: list[Progress] = []
    before: dict[str, list[str]] = {}

    def push(events: Sequence[Progress]) -> bool:
        if chance.random() >= pushes:
            return False
        came.extend(events)
        return True

    host = GatewayHost(lambda equipment: {"default": StreamFunctionModel(speak)})
    host.push = push
    question = AskModel(1, 0, (), ModelPrompt("", (), None))
    asks = [
        Ask("t", name, "default", ticket, SessionKind.WORKER, question, "t#1")
        for ticket, name in enumerate(("main/w1", "main/w2"), 1)
    ]
    host.receive([(1, Watch("t", True)), *((number, ask) for number, ask in enumerate(asks, 2))])
    after = 0
    async with asyncio.timeout(PATIENCE_S):
        while len(before) < len(asks):
            for number, answer in (await host.poll(after, 1.0)).outcomes:
                after = number
                if isinstance(answer, ModelReplied):
                    session = asks[answer.ticket - 1].session
                    before[session] = texts([each for each in came if each.session == session])
                else:
                    came.append(answer)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
    expected = [f"{number} " for number in range(MANY)]
    assert before == {"main/w1": expected, "main/w2": expected}


class Way:
    """Where events are pushed to; it is full at times."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.dropped = 0
        self._room = asyncio.Event()

    def push(self, events: tuple[Progress, ...], dropped: int) -> bool:
        """Take events if there is room."""
        if not self._room.is_set():
            return False
        self.came += texts(events)
        self.dropped = dropped
        return True

    async def has_room(self) -> None:
        """Wait for room."""
        await self._room.wait()

    def turn(self, *, opens: bool) -> None:
        """Open or close the way."""
        if opens:
            self._room.set()
        else:
            self._room.clear()


def emitted(hub: ProgressHub, first: int, many: int) -> list[str]:
    """Emit deltas that are counted from a number; return them."""
    deltas = [str(number) for number in range(first, first + many)]
    for delta in deltas:
        hub.emit("t", "main", TextDelta(delta))
    return deltas


@pytest.mark.parametrize("seed", range(20))
async def test_followed_events_come_once_and_in_order(seed: int) -> None:
    """However often the way is full, as long as the reader's buffer is not."""
    chance, hub, way = random.Random(seed), ProgressHub(), Way()
    reader = hub.watch("t")
    sent = emitted(hub, 0, 3)
    following = asyncio.create_task(reader.follow(way.push, way.has_room))
    for _ in range(200):
        what = chance.choice(["emit", "emit", "open", "close", "wait"])
        if what == "emit":
            sent += emitted(hub, len(sent), chance.randrange(1, 4))
        elif what == "wait":
            await asyncio.sleep(0)
        else:
            way.turn(opens=what == "open")
    way.turn(opens=True)
    for _ in range(4):
        await asyncio.sleep(0)
    following.cancel()
    assert way.came == sent
    assert reader.dropped == way.dropped == 0
    assert reader.offered == len(sent)


async def test_full_way_holds_nobody_up_and_keeps_the_newest() -> None:
    """Emitting returns at once; what the buffer had no room for is counted."""
    hub, way = ProgressHub(), Way()
    following = asyncio.create_task(hub.watch("t").follow(way.push, way.has_room))
    await asyncio.sleep(0)
    sent = emitted(hub, 0, 5 * RING)
    way.turn(opens=True)
    for _ in range(4):
        await asyncio.sleep(0)
    following.cancel()
    assert way.came == sent[-RING:]
    assert way.dropped == len(sent) - RING


async def test_reader_ends_after_the_events_that_it_holds() -> None:
    """Also if it waits already; others go on."""
    hub = ProgressHub()
    reader, other = hub.watch("t"), hub.watch("t")
    assert emitted(hub, 0, 2) == ["0", "1"]
    reader.end()
    held = [await reader.wait_for_next(), await reader.wait_for_next()]
    assert texts([each for each in held if each is not None]) == ["0", "1"]
    assert await reader.wait_for_next() is None
    waits: ProgressBuffer = hub.watch("t")
    waiting = asyncio.create_task(waits.wait_for_next())
    await asyncio.sleep(0)
    waits.end()
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting is None
    assert texts(other.drain()) == ["0", "1"]
