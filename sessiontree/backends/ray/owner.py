"""What may be asked about open trees, each by one call to the supervisor's actor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessiontree.backends.ray.supervisor_client import SupervisorClient
from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.client_call import ClientAnswer, ClientCall
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.ports import SessionReport
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.senders import Sender
from sessiontree.contracts.stimuli import SendMode
from sessiontree.journal.record import Record
from sessiontree.runtime.inbox_events import InboxEvent
from sessiontree.runtime.replies import CallReply, Reply
from sessiontree.runtime.supervisor_api import SessionRecord
from sessiontree.tree.receipt import ReceiptLine
from sessiontree.tree.stimuli import SpawnAsked


class RemoteOwner:
    """As :class:`~sessiontree.runtime.supervisor_api.Owner`; plain methods wait for the reply, 1 ms."""

    def __init__(self, line: SupervisorClient) -> None:
        self._line = line

    async def send(
        self,
        tree_id: str,
        session: str,
        text: str,
        mode: SendMode,
        message_id: str,
        sender: Sender | None = None,
    ) -> Reply:
        """Say something to a session; returns its last word for it."""
        reply: Reply = await self._line.ask("send", tree_id, session, text, mode, message_id, sender)
        return reply

    async def call(
        self, tree_id: str, session: str, call_id: str, tool: str, arguments: Mapping[str, JsonValue]
    ) -> CallReply:
        """Have a session make one call outside its transcript."""
        reply: CallReply = await self._line.ask("call", tree_id, session, call_id, tool, arguments)
        return reply

    async def spawn(self, tree_id: str, asked: SpawnAsked) -> str:
        """Spawn a session; returns its id once it is durable."""
        session: str = await self._line.ask("spawn", tree_id, asked)
        return session

    async def result(self, tree_id: str, session: str) -> SessionResult[Any]:
        """Return a session's result, waiting for its end."""
        result: SessionResult[Any] = await self._line.ask("result", tree_id, session)
        return result

    async def stop(
        self, tree_id: str, session: str, reason: str, status: SessionStatus
    ) -> tuple[ReceiptLine, ...]:
        """End a session and everything below it; returns how each of them ended."""
        lines: tuple[ReceiptLine, ...] = await self._line.ask(
            "stop", tree_id, session, reason, status, plain=True
        )
        return lines

    async def interrupt(self, tree_id: str, session: str, reason: str) -> tuple[ReceiptLine, ...]:
        """Have a session and everything below it drop what it does; returns how each of them stands then."""
        lines: tuple[ReceiptLine, ...] = await self._line.ask(
            "interrupt", tree_id, session, reason, plain=True
        )
        return lines

    async def decide(self, tree_id: str, request_id: str, answer: ApprovalAnswer, by: str) -> None:
        """Answer an approval request."""
        await self._line.ask("decide", tree_id, request_id, answer, by, plain=True)

    async def hook_failed(self, tree_id: str, session: str, hook: str, point: str, reason: str) -> None:
        """Note that a hook failed in the creating program; durable when this returns."""
        await self._line.ask("hook_failed", tree_id, session, hook, point, reason, plain=True)

    async def answer(self, tree_id: str, client_id: str, answer: ClientAnswer, answer_id: str) -> None:
        """Answer a call of a client tool."""
        await self._line.ask("answer", tree_id, client_id, answer, answer_id, plain=True)

    async def read(self, tree_id: str, after_seq: int, max_n: int, wait_s: float) -> list[Record]:
        """Return durable facts after a number, waiting for the first."""
        records: list[Record] = await self._line.ask("read", tree_id, after_seq, max_n, wait_s)
        return records

    async def tidings(self, tree_id: str, after_seq: int, wait_s: float) -> tuple[int, list[InboxEvent]]:
        """Return what concerns a desk in facts after a number, waiting for it, and the last fact's number."""
        found: tuple[int, list[InboxEvent]] = await self._line.ask("tidings", tree_id, after_seq, wait_s)
        return found

    def record_of(self, tree_id: str, session: str, after_seq: int = 0, max_n: int = 0) -> SessionRecord:
        """Return a session's durable facts after a number, at most so many; 0 = all of them."""
        record: SessionRecord = self._line.ask_now("record_of", tree_id, session, after_seq, max_n)
        return record

    def last_seq(self, tree_id: str) -> int:
        """Return the number of a tree's newest fact."""
        seq: int = self._line.ask_now("last_seq", tree_id)
        return seq

    def report(self, tree_id: str, session: str) -> SessionReport:
        """Return a session's standing."""
        report: SessionReport = self._line.ask_now("report", tree_id, session)
        return report

    def room(self, tree_id: str, session: str) -> int:
        """Return how many more children a session may have now."""
        room: int = self._line.ask_now("room", tree_id, session)
        return room

    def pending(self, tree_id: str) -> list[ApprovalRequest]:
        """Return the requests that wait for a person, oldest first."""
        requests: list[ApprovalRequest] = self._line.ask_now("pending", tree_id)
        return requests

    def client_calls(self, tree_id: str) -> list[ClientCall]:
        """Return the calls that wait for the creating program, in the order they were handed over."""
        calls: list[ClientCall] = self._line.ask_now("client_calls", tree_id)
        return calls

    def receipt(self, tree_id: str) -> tuple[ReceiptLine, ...]:
        """Return every session of a tree and how it stands."""
        lines: tuple[ReceiptLine, ...] = self._line.ask_now("receipt", tree_id)
        return lines

    def is_over(self, tree_id: str) -> bool:
        """Whether Main has ended."""
        over: bool = self._line.ask_now("is_over", tree_id)
        return over

    def is_ending(self, tree_id: str) -> bool:
        """Whether Main has ended, or was told to."""
        ending: bool = self._line.ask_now("is_ending", tree_id)
        return ending

    def is_open(self, tree_id: str) -> bool:
        """Whether a tree is kept there."""
        return self._line.holds(tree_id)
