"""A lost gateway is asked again, and a question that ends every gateway fails alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.values.messages import AssistantMessage, TextContent
from sessiontree.models.answers import ModelFailure
from sessiontree.runtime.gateway.model_gateway import MAX_LOSSES, Ask, Asker, GatewayLink, ModelReplied
from sessiontree.runtime.transport.frames import AskModel, ModelPrompt, PollReply
from sessiontree.runtime.transport.link import HostLink, HostLost, Mailbox
from sessiontree.runtime.transport.progress import ProgressHub
from tests.unit.runtime.runtime_fakes import HeardAsker

PATIENCE_S = 60.0
DEADLY = "deadly"


class GatewayTransport:
    """A gateway that answers at once, and ends with a question of the deadly tree."""

    pid = os.getpid()
    level = "structural"
    node = ""
    is_ready = True
    embodied: tuple[str, int] | None = None

    def __init__(self) -> None:
        self._mailbox = Mailbox(self._take)

    async def ready(self) -> None:
        """Return at once."""

    def submit(self, frames: Sequence[tuple[int, Any]]) -> None:
        """Hand frames over."""
        self._mailbox.receive(frames)

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return answers."""
        return await self._mailbox.poll(after, wait_s)

    async def lag_s(self) -> float:
        """Return 0."""
        return 0.0

    def close(self) -> None:
        """End."""
        self._mailbox.close()

    async def ended(self) -> int:
        """Nothing is left behind."""
        return 0

    def _take(self, frame: Any) -> None:
        if isinstance(frame, Ask) and frame.tree_id == DEADLY:
            asyncio.get_running_loop().call_soon(self._mailbox.close)
        elif isinstance(frame, Ask):
            self._mailbox.put(ModelReplied(frame.ticket, AssistantMessage((TextContent("here"),))))


class Gateways:
    """Starts gateways and counts them."""

    def __init__(self) -> None:
        self.started = 0
        self.failures: list[str] = []
        self.has_failed = asyncio.Event()
        self.answers = 0
        self.link = GatewayLink(self._start, ProgressHub(), lambda tree_id: tree_id, resend_after_s=5.0)

    def _start(self, name: str) -> GatewayTransport:
        self.started += 1
        return GatewayTransport()

    def _failed(self, failure: ModelFailure) -> None:
        self.failures.append(failure.reason)
        self.has_failed.set()

    def ask(self, tree_id: str, *, for_ever: bool = False) -> None:
        """Ask for a tree's Main, and again whenever the gateway was lost; for ever: after each answer too."""
        question = AskModel(1, 0, (), ModelPrompt("", (), None))

        def answered(message: AssistantMessage) -> None:
            self.answers += 1
            if for_ever and not self.failures:
                asyncio.get_running_loop().call_soon(self.link.ask, question, asker)

        asker = HeardAsker(
            tree_id,
            "main",
            "default",
            SessionKind.MAIN,
            answered,
            self._failed,
            lambda: self.link.ask(question, asker),
            lambda event: None,
        )
        self.link.ask(question, asker)


@asynccontextmanager
async def gateways() -> AsyncIterator[Gateways]:
    """Return gateways, ended afterwards."""
    made = Gateways()
    try:
        yield made
    finally:
        await made.link.close()


async def failed(made: Gateways) -> None:
    """Wait until a question failed."""
    async with asyncio.timeout(PATIENCE_S):
        await made.has_failed.wait()


async def test_question_that_ends_every_gateway_fails_though_others_are_answered() -> None:
    """Answers to others in between do not make it harmless: gateways are not started for ever."""
    async with gateways() as made:
        made.ask("harmless", for_ever=True)
        await asyncio.sleep(0)
        made.ask(DEADLY)
        await failed(made)
        assert made.answers > 0
        assert made.started <= MAX_LOSSES + 2
        (reason,) = made.failures
        assert str(HostLost("the host was closed")) in reason


class SilentTransport(GatewayTransport):
    """A gateway that never answers by itself; notes which sessions asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Ask] = []

    def answer(self) -> None:
        """Answer everything that was asked."""
        for frame in self.asked:
            self._mailbox.put(ModelReplied(frame.ticket, AssistantMessage((TextContent("here"),))))

    def _take(self, frame: Any) -> None:
        if isinstance(frame, Ask):
            self.asked.append(frame)


SESSIONS = ("main", "main/b1", "main/b2")


async def killed_in_the_middle(make: type[GatewayLink]) -> None:
    """Kill a gateway that was asked by three sessions; each asks the next one once, and hears once."""
    started: list[SilentTransport] = []
    answers: list[str] = []
    told, all_told = asyncio.Event(), asyncio.Event()

    class Watched(make):  # type: ignore[misc, valid-type]  # whichever is tested
        def _on_lost(self, link: HostLink, lost: HostLost) -> None:
            super()._on_lost(link, lost)
            told.set()

        def _on_answer(self, link: HostLink, answer: Any) -> None:
            super()._on_answer(link, answer)
            if answer.ticket == last_ticket:
                all_told.set()

    def start(name: str) -> SilentTransport:
        started.append(SilentTransport())
        return started[-1]

    def asker(session: str) -> Asker:
        def answered(message: AssistantMessage) -> None:
            answers.append(session)

        def failed(failure: ModelFailure) -> None:
            answers.append(failure.reason)

        def again() -> None:
            link.ask(QUESTION, one)

        one = HeardAsker(
            "t", session, "default", SessionKind.MAIN, answered, failed, again, lambda event: None
        )
        return one

    link = Watched(start, ProgressHub(), lambda tree_id: tree_id, resend_after_s=5.0)
    try:
        for session in SESSIONS:
            link.ask(QUESTION, asker(session))
        started[0].close()
        async with asyncio.timeout(PATIENCE_S):
            await told.wait()
        link.ask(QUESTION, asker("main/b9"))  # whatever was asked before has arrived with it
        last_ticket = started[-1].asked[-1].ticket
        assert len(started) == 2
        assert [frame.session for frame in started[1].asked] == [*SESSIONS, "main/b9"]
        started[1].answer()
        async with asyncio.timeout(PATIENCE_S):
            await all_told.wait()
        assert answers == [*SESSIONS, "main/b9"]
    finally:
        await link.close()


QUESTION = AskModel(1, 0, (), ModelPrompt("", (), None))


async def test_each_question_of_a_lost_gateway_is_asked_once_more() -> None:
    """In the order in which they were asked, and each is answered once."""
    await killed_in_the_middle(GatewayLink)


class Insistent(GatewayLink):
    """Planted bug: what a lost gateway was asked is asked twice."""

    def _on_lost(self, link: HostLink, lost: HostLost) -> None:
        """Ask again, and again."""
        asked = list(self._asked.values())
        super()._on_lost(link, lost)
        for asker in asked:
            asker.resend_prompt()


class Forgetful(GatewayLink):
    """Planted bug: what a lost gateway was asked is asked by nobody any more."""

    def _on_lost(self, link: HostLink, lost: HostLost) -> None:
        """Drop the questions."""
        self._asked.clear()
        super()._on_lost(link, lost)


class Partial(GatewayLink):
    """Planted bug: only the last session that asked asks again."""

    def _on_lost(self, link: HostLink, lost: HostLost) -> None:
        """Keep one."""
        for ticket in list(self._asked)[:-1]:
            del self._asked[ticket]
        super()._on_lost(link, lost)


@pytest.mark.parametrize("make", [Insistent, Forgetful, Partial])
async def test_planted_bug_at_a_lost_gateway_is_found(make: type[GatewayLink]) -> None:
    """A gateway that is asked twice, or not at all, fails the same story."""
    with pytest.raises(AssertionError):
        await killed_in_the_middle(make)
