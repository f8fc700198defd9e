"""A lost gateway is asked anew, and a question that ends every gateway fails alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.messages import AssistantMessage, TextContent
from sessiontree.runtime.frames import AskModel, ModelPrompt, PollReply
from sessiontree.runtime.host_link import HostLost
from sessiontree.runtime.mailbox import Mailbox
from sessiontree.runtime.model_gateway import MOST_LOSSES, Ask, Asker, GatewayLink, ModelReplied
from sessiontree.runtime.progress import ProgressHub

PATIENCE_S = 60.0
DEADLY = "deadly"


class GatewayTransport:
    """A gateway that answers at once, and ends with a question of the deadly tree."""

    pid = os.getpid()
    level = "structural"
    is_ready = True

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

    def _failed(self, reason: str, said: str) -> None:
        self.failures.append(reason)
        self.has_failed.set()

    def ask(self, tree_id: str, *, for_ever: bool = False) -> None:
        """Ask for a tree's Main, and again whenever the gateway was lost; for ever: after each answer too."""
        question = AskModel(1, 0, (), ModelPrompt("", (), None))

        def answered(message: AssistantMessage) -> None:
            self.answers += 1
            if for_ever and not self.failures:
                asyncio.get_running_loop().call_soon(self.link.ask, question, asker)

        asker = Asker(
            tree_id,
            "main",
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


async def test_a_question_that_ends_every_gateway_fails_though_others_are_answered() -> None:
    """Answers to others in between do not make it harmless: gateways are not started for ever."""
    async with gateways() as made:
        made.ask("harmless", for_ever=True)
        await asyncio.sleep(0)
        made.ask(DEADLY)
        await failed(made)
        assert made.answers > 0
        assert made.started <= MOST_LOSSES + 2
        (reason,) = made.failures
        assert str(HostLost("the host was closed")) in reason
