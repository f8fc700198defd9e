"""Answering: a person's lines as decisions in a live runtime, and what else becomes of its requests."""

from __future__ import annotations

from typing import Any

from sessiontree.cli.approval_lines import Answered, Asked
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.errors import ApprovalClosed
from sessiontree.contracts.tree_facts import ApprovalDecided, ApprovalWaiting
from sessiontree.control.client import ControlClient


class Answering:
    """Shows a person what waits in some trees of a runtime, and decides as they answer.

    Args:
        client: The runtime.
        screen: Where it is shown.
        names_trees: Whether to say which tree each request is of.
    """

    def __init__(self, client: ControlClient, screen: RichScreen, *, names_trees: bool = False) -> None:
        self._client = client
        self._screen = screen
        self._asked = Asked(screen.line, names_tree=names_trees)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to ask."""
        return self._asked.is_done

    async def begin(self, tree_id: str) -> int:
        """Ask for what waits in a tree already; return the number after which its facts are to be heeded."""
        after_seq = await self._client.last_seq(tree_id)
        for request in await self._client.pending(tree_id):
            self._asked.add(tree_id, request)
        return after_seq

    async def heed(self, tree_id: str, fact: Any) -> None:
        """Take in a fact of a tree: a request that waits now, or one that was decided."""
        if isinstance(fact, ApprovalWaiting) and fact.how == "show":
            request = await self._client.shown(tree_id, fact.request_id)
            if request is not None:
                self._asked.add(tree_id, request)
        elif isinstance(fact, ApprovalDecided):
            self._asked.withdraw(tree_id, fact.request_id, f"{fact.decision} by {fact.by}")

    async def take(self, line: str) -> bool:
        """Take a line; False where it is no answer to anything asked here."""
        taken = self._asked.take(line)
        if isinstance(taken, Answered):
            try:
                tree_id, request, answer = taken
                said = await decide(self._client, tree_id, request.request_id, answer, request)
                self._screen.line(said)
            except ApprovalClosed as closed:
                self._screen.line(f"too late: {closed}")
            finally:
                self._asked.settle(taken)
        return taken is not None


async def decide(
    client: ControlClient,
    tree_id: str,
    request_id: str,
    answer: ApprovalAnswer,
    request: ApprovalRequest | None,
) -> str:
    """Answer a request and return what was done, in words.

    Raises:
        ApprovalClosed: it was decided before.
    """
    await client.decide(tree_id, request_id, answer)
    what = "denied" if not answer.approve else "approved, from now on always" if answer.always else "approved"
    return what if request is None else f"{what}: {request.tool} for {request.session_id} ({request_id})"
