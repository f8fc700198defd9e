"""The control socket's client: the supervisor's API for another process of the same person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.client_call import ClientAnswer, ClientCall
from sessiontree.contracts.errors import JournalError, SessionTreeError
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.ports import SessionReport
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.stimuli import SendMode
from sessiontree.control import values
from sessiontree.control.rpc_client import Asking
from sessiontree.journal.record import Record
from sessiontree.runtime.replies import CallReply, Reply
from sessiontree.runtime.session_reports import ActorRow
from sessiontree.runtime.supervisor_api import SessionRecord
from sessiontree.tree.receipt import ReceiptLine
from sessiontree.version import VERSION

REACH_TIMEOUT_S = 5.0
T = TypeVar("T")


class ControlClient:
    """A live runtime, asked from another process. Use it as an async context manager.

    Methods are those of :class:`~sessiontree.runtime.supervisor_api.Owner`, each awaited; what cannot be
    asked from afar (creating, resuming, spawning, letting go) is missing. Every method raises the tree's
    typed errors, and JournalError once the runtime is gone.
    """

    def __init__(self, asking: Asking) -> None:
        """Bind a connection; made by :meth:`find` or :meth:`connect`."""
        self._asking = asking

    @classmethod
    async def find(cls, state_dir: Path, *, timeout_s: float = REACH_TIMEOUT_S) -> Self | None:
        """Return a client of the runtime of a state directory, None where none is at work there.

        Raises:
            JournalError: it does not answer in time, or the system refused.
            PermissionDenied: this process may not ask.
        """
        asking = await Asking.reach(state_dir, timeout_s)
        return None if asking is None else cls(asking)

    @classmethod
    async def connect(cls, state_dir: Path, *, timeout_s: float = REACH_TIMEOUT_S) -> Self:
        """Return a client of the runtime of a state directory.

        Raises:
            JournalError: none is at work there, it does not answer in time, or the system refused.
            PermissionDenied: this process may not ask.
        """
        client = await cls.find(state_dir, timeout_s=timeout_s)
        if client is None:
            raise JournalError(str(state_dir), "no runtime is at work here; resume a tree of it first")
        return client

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Hang up; the runtime goes on."""
        await self._asking.close()

    @property
    def is_connected(self) -> bool:
        """Whether the runtime can still be asked."""
        return self._asking.is_open

    @property
    def release(self) -> str:
        """The runtime's release."""
        return self._asking.release

    async def open_trees(self) -> list[str]:
        """Return the ids of all trees open there, the one opened first first."""
        return (await self._asking.ask("open_trees")).items

    async def report(self, tree_id: str, session: str) -> SessionReport:
        """Return a session's standing."""
        heard = await self._asking.ask("report", tree_id=tree_id, session=session)
        return self._made(values.report_from_wire, heard.value)

    async def receipt(self, tree_id: str) -> tuple[ReceiptLine, ...]:
        """Return every session of a tree and how it stands."""
        heard = await self._asking.ask("receipt", tree_id=tree_id)
        return tuple(self._made(values.line_from_wire, line) for line in heard.items)

    async def pending(self, tree_id: str) -> list[ApprovalRequest]:
        """Return the requests that wait for a person, oldest first."""
        heard = await self._asking.ask("pending", tree_id=tree_id)
        return [self._made(values.request_from_wire, request) for request in heard.items]

    async def shown(self, tree_id: str, request_id: str) -> ApprovalRequest | None:
        """Return a request that waits for a person, None where it does not or no more."""
        heard = await self._asking.ask("shown", tree_id=tree_id, request_id=request_id)
        return None if heard.value is None else self._made(values.request_from_wire, heard.value)

    async def decide(self, tree_id: str, request_id: str, answer: ApprovalAnswer, by: str = "person") -> None:
        """Answer an approval request; the runtime names this process as who did, whatever ``by`` says.

        Raises:
            ApprovalClosed: it was decided before.
        """
        await self._asking.ask(
            "decide",
            tree_id=tree_id,
            request_id=request_id,
            approve=answer.approve,
            reason=answer.reason,
            always=answer.always,
        )

    async def client_calls(self, tree_id: str) -> list[ClientCall]:
        """Return the calls that wait for the creating program, in the order they were handed over."""
        heard = await self._asking.ask("client_calls", tree_id=tree_id)
        return [self._made(values.client_call_from_wire, call) for call in heard.items]

    async def answer(self, tree_id: str, client_id: str, answer: ClientAnswer, answer_id: str) -> None:
        """Answer a call of a client tool in the creating program's place.

        Raises:
            ClientCallClosed: it waits for no answer, or not in this tree.
            ClientAnswerRefused: the answer can't be its result; it still waits.
        """
        await self._asking.ask(
            "answer", tree_id=tree_id, client_id=client_id, answer=answer.to_wire(), answer_id=answer_id
        )

    async def send(self, tree_id: str, session: str, text: str, mode: SendMode, message_id: str) -> Reply:
        """Say something to a session; returns its last word for it."""
        heard = await self._asking.ask(
            "send", tree_id=tree_id, session=session, text=text, mode=mode, message_id=message_id
        )
        return self._made(values.reply_from_wire, heard.value)

    async def call(
        self, tree_id: str, session: str, call_id: str, tool: str, arguments: Mapping[str, JsonValue]
    ) -> CallReply:
        """Have a session make one call outside its transcript."""
        heard = await self._asking.ask(
            "call", tree_id=tree_id, session=session, call_id=call_id, tool=tool, arguments=dict(arguments)
        )
        return self._made(values.call_from_wire, heard.value)

    async def result(self, tree_id: str, session: str) -> SessionResult[Any]:
        """Return a session's result, waiting for its end; its output is plain JSON."""
        heard = await self._asking.ask("result", tree_id=tree_id, session=session)
        return self._made(SessionResult.from_wire, heard.value)

    async def stop(
        self, tree_id: str, session: str, reason: str, status: SessionStatus = SessionStatus.CANCELLED
    ) -> tuple[ReceiptLine, ...]:
        """End a session and everything below it; returns how each of them ended."""
        heard = await self._asking.ask(
            "stop", tree_id=tree_id, session=session, reason=reason, status=status.value
        )
        return tuple(self._made(values.line_from_wire, line) for line in heard.items)

    async def interrupt(self, tree_id: str, session: str, reason: str) -> tuple[ReceiptLine, ...]:
        """Have a session and everything below it drop what it does; returns how each of them stands then."""
        heard = await self._asking.ask("interrupt", tree_id=tree_id, session=session, reason=reason)
        return tuple(self._made(values.line_from_wire, line) for line in heard.items)

    async def read(self, tree_id: str, after_seq: int, max_n: int, wait_s: float) -> list[Record]:
        """Return at most 512 durable facts after a number, waiting up to 20 s for the first."""
        heard = await self._asking.ask(
            "read", tree_id=tree_id, after_seq=after_seq, max_n=max_n, wait_s=wait_s
        )
        return [self._made(values.record_from_wire, record) for record in heard.items]

    async def read_tree(self, tree_id: str, after_seq: int, wait_s: float) -> list[Record]:
        """Return the tree's own durable facts after a number, waiting up to 20 s for the first."""
        heard = await self._asking.ask("read_tree", tree_id=tree_id, after_seq=after_seq, wait_s=wait_s)
        return [self._made(values.record_from_wire, record) for record in heard.items]

    async def record_of(
        self, tree_id: str, session: str, after_seq: int = 0, max_n: int = 0
    ) -> SessionRecord:
        """Return a session's durable facts after a number, at most so many; 0 = all of them."""
        value, facts = await self._asking.ask(
            "record_of", tree_id=tree_id, session=session, after_seq=after_seq, max_n=max_n
        )
        return self._made(lambda wire: values.history_from_wire(wire, facts), value)

    async def last_seq(self, tree_id: str) -> int:
        """Return the number of a tree's newest fact."""
        return self._made(int, (await self._asking.ask("last_seq", tree_id=tree_id)).value)

    async def room(self, tree_id: str, session: str) -> int:
        """Return how many more children a session may have now."""
        return self._made(int, (await self._asking.ask("room", tree_id=tree_id, session=session)).value)

    async def is_over(self, tree_id: str) -> bool:
        """Whether Main has ended."""
        return bool((await self._asking.ask("is_over", tree_id=tree_id)).value)

    async def is_open(self, tree_id: str) -> bool:
        """Whether a tree is kept there."""
        return bool((await self._asking.ask("is_open", tree_id=tree_id)).value)

    async def actors(self) -> list[ActorRow]:
        """Return every process of the runtime, and the session it embodies."""
        return [
            self._made(values.actor_from_wire, actor) for actor in (await self._asking.ask("actors")).items
        ]

    async def security(self) -> dict[str, JsonValue] | None:
        """Return what protects the engine the runtime runs on, now; None where it has none."""
        return self._made(values.security_from_wire, (await self._asking.ask("security")).value)

    def _made(self, make: Callable[[Any], T], wire: Any) -> T:
        try:
            return make(wire)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            release = self._asking.release
            raise SessionTreeError(
                f"the runtime, of release {release}, answered what release {VERSION} does not know: {error}"
            ) from error
