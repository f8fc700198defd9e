"""Reading a tree's facts, and waiting for what is to happen by reading on: no test sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from sessiontree import SessionTree, ToolCall
from sessiontree.api.tree.inbox import PendingApproval
from sessiontree.contracts.facts.tree_facts import ApprovalWaiting
from sessiontree.contracts.values.messages import AssistantMessage, ToolResultMessage
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_facts

F = TypeVar("F")
PATIENCE_S = 120.0
"""How long a test waits for something that must happen."""
ALL = 1_000_000


async def read_on(tree: SessionTree, after_seq: int, max_n: int) -> list[JournalRecord]:
    """Return so many durable records after a number, without waiting for any."""
    return await tree._backend.supervisor.read(tree.tree_id, after_seq, max_n, 0.0)


async def records(tree: SessionTree, session: str | None = None) -> list[JournalRecord]:
    """Return the durable records so far, of one session (empty: the tree itself) or of all."""
    found = await read_on(tree, 0, ALL)
    return [record for record in found if session is None or record.session == session]


async def facts(tree: SessionTree, session: str | None = None) -> list[Any]:
    """Return the durable facts so far, of one session (empty: the tree itself) or of all."""
    return [fact for record in await records(tree, session) for fact in read_facts(record.text)]


async def facts_of(tree: SessionTree, kind: type[F], session: str | None = None) -> list[F]:
    """Return the durable facts of one type so far."""
    return [fact for fact in await facts(tree, session) if isinstance(fact, kind)]


async def until(
    tree: SessionTree,
    kind: type[F],
    *,
    count: int = 1,
    session: str | None = None,
    where: Callable[[F], bool] = lambda fact: True,
    within_s: float = PATIENCE_S,
) -> list[F]:
    """Wait until so many facts of a type are durable, and return them, oldest first."""
    found: list[F] = []
    async with asyncio.timeout(within_s):
        async for record in tree.events():
            for fact in read_facts(record.text):
                if isinstance(fact, kind) and session in {None, record.session} and where(fact):
                    found.append(fact)
                if len(found) == count:
                    return found
    raise AssertionError(f"the tree ended after {len(found)} of {count} {kind.__name__}")


async def asked(tree: SessionTree, count: int = 1) -> list[PendingApproval]:
    """Wait until so many requests were ever shown to people, and return those that wait now."""
    await until(tree, ApprovalWaiting, count=count, where=lambda fact: fact.how == "show")
    return tree.approvals.pending()


def results(tree: SessionTree, session: str) -> list[ToolResultMessage]:
    """Return the tool results in a session's transcript, oldest first."""
    history = tree.session(session).history()
    return [message for message in history if isinstance(message, ToolResultMessage)]


def calls(tree: SessionTree, session: str) -> list[ToolCall]:
    """Return the tool calls in a session's transcript, oldest first."""
    history = tree.session(session).history()
    return [
        call for message in history if isinstance(message, AssistantMessage) for call in message.tool_calls
    ]
