"""The channel of a tree that an editor shows: requests and questions wait until the editor can show them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.questions import QuestionReply, QuestionRequest, Surface


class Asker(Protocol):
    """What shows requests and questions in an editor."""

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Show a request and return the answer; None = it is not answered here."""
        ...

    async def ask_question(self, question: QuestionRequest) -> QuestionReply | None:
        """Show a question and return the answer; None = it is not answered here."""
        ...


class EditorChannel:
    """Asks in the editor that has opened the tree.

    Args:
        owners: Ids of the senders whose answers count.
    """

    surface: Surface = "editor"

    def __init__(self, owners: Sequence[str] = ()) -> None:
        self.owners = owners
        self._asker: asyncio.Future[Asker] = asyncio.get_running_loop().create_future()

    def show_in(self, asker: Asker) -> None:
        """Ask by ``asker`` from now on, and what waits already first."""
        if self._asker.done():
            self._asker = asyncio.get_running_loop().create_future()
        self._asker.set_result(asker)

    async def send(self, text: str) -> None:
        """Do nothing: messages are facts of the tree, which the editor follows."""

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Ask in the editor, once it shows the tree."""
        asker = await asyncio.shield(self._asker)
        return await asker.ask(request)

    async def ask_question(self, question: QuestionRequest) -> QuestionReply | None:
        """Ask in the editor, once it shows the tree."""
        asker = await asyncio.shield(self._asker)
        return await asker.ask_question(question)
