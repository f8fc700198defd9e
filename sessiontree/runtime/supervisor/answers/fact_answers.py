"""Durable facts, as they come, and what they mean to an inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalWaiting,
    ChannelSaid,
    ClientCallEnded,
    ClientCallOpened,
)
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_fact
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.transport.supervisor_api import (
    MAX_READ,
    ClientCallArrived,
    FactApi,
    InboxEvent,
    MessageSaid,
    QuestionClosed,
    QuestionOpened,
    RequestClosed,
    RequestOpened,
)
from sessiontree.tree.report import find_question, show_request
from sessiontree.tree.state.state import TreeState


class FactAnswers(FactApi):
    """Answers readers of facts."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def read(self, tree_id: str, after_seq: int, max_n: int, wait_s: float) -> list[JournalRecord]:
        """Return durable facts after a number, waiting for the first."""
        return await read_durable(self._supervisor, tree_id, after_seq, max_n, wait_s)

    async def read_tree(self, tree_id: str, after_seq: int, wait_s: float) -> list[JournalRecord]:
        """Return the tree's own durable facts after a number, waiting for the first."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            records = await self.read(tree_id, after_seq, MAX_READ, max(0.0, deadline - loop.time()))
            own = [record for record in records if not record.session]
            if own or not records:
                return own
            after_seq = records[-1].seq
            await asyncio.sleep(0)  # many facts exist already: let other tasks run

    async def read_inbox_events(
        self, tree_id: str, after_seq: int, wait_s: float
    ) -> tuple[int, list[InboxEvent]]:
        """Return the last fact's number, and what facts after a number mean to an inbox."""
        last_seq, records = await self._read_news(tree_id, after_seq, wait_s)
        controller = self._supervisor.tree(tree_id)
        # Race: there may be several readers; the first takes the reports, without an await in between.
        raised = list(controller.inbox_notifier.reports)
        controller.inbox_notifier.reports.clear()
        return last_seq, [*raised, *collect_inbox_events(records, controller.state)]

    async def last_seq(self, tree_id: str) -> int:
        """Return the number of a tree's newest fact."""
        return self._supervisor.journal.last_seq(tree_id)

    async def _read_news(
        self, tree_id: str, after_seq: int, wait_s: float
    ) -> tuple[int, Sequence[JournalRecord]]:
        """Return the last fact's number, and the tree's own durable facts that an inbox may show.

        It waits for a fact after ``after_seq`` that an inbox acts on.

        Raises:
            SessionTreeError: the tree can't go on in this process, so no fact will follow.
        """
        controller = self._supervisor.tree(tree_id)
        notifier = controller.inbox_notifier
        try:
            async with asyncio.timeout(wait_s):
                # Race: a fact can become durable while this runs; so the notifier only wakes, and the
                # number of its newest fact is compared again each time.
                while True:
                    if notifier.notified_seq > after_seq:
                        if not notifier.holds_news:  # only the tree's end: nothing has to be read
                            return notifier.notified_seq, ()
                        records = self._supervisor.journal.read_session(tree_id, "", after_seq=after_seq)
                        if records:
                            return records[-1].seq, records
                    if notifier.reports:
                        return after_seq, ()
                    controller.check_open()
                    await notifier.wait()
        except TimeoutError:
            return after_seq, ()


async def read_durable(
    supervisor: Supervisor, tree_id: str, after_seq: int, max_n: int, wait_s: float
) -> list[JournalRecord]:
    """Return durable facts after a number, oldest first, waiting up to ``wait_s`` for the first.

    Raises:
        SessionTreeError: the tree can't go on in this process, so no fact will follow.
    """
    controller = supervisor.tree(tree_id)
    # Race: a fact that becomes durable after the reading sets the event again; so it is cleared before.
    controller.waiters.news.clear()
    records = supervisor.journal.read(tree_id, after_seq=after_seq, max_n=max_n)
    if records or wait_s <= 0:
        return records
    controller.check_open()
    try:
        async with asyncio.timeout(wait_s):
            await controller.waiters.news.wait()
    except TimeoutError:
        return []
    return supervisor.journal.read(tree_id, after_seq=after_seq, max_n=max_n)


def collect_inbox_events(records: Iterable[JournalRecord], state: TreeState) -> list[InboxEvent]:
    """Return the inbox events of a tree's facts, in order, without requests that do not wait any more."""
    events: list[InboxEvent] = []
    for record in records:
        fact: Any = read_fact(record.text)
        if isinstance(fact, ApprovalWaiting) and fact.how == "show":
            request = show_request(state, fact.request_id)
            if request is not None:
                events.append(RequestOpened(request))
        elif isinstance(fact, ApprovalDecided):
            events.append(RequestClosed(fact.request_id))
        elif isinstance(fact, ChannelSaid):
            events.append(MessageSaid(fact.channel, fact.text))
        elif isinstance(fact, ClientCallOpened) and fact.call.call_id in state.client_calls:
            question = find_question(state, fact.call.call_id)
            events.append(ClientCallArrived(fact.call) if question is None else QuestionOpened(question))
        elif isinstance(fact, ClientCallEnded):
            events.append(QuestionClosed(fact.client_id))
    return events
