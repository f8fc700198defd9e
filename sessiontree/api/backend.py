"""What a backend is to programs: the way to a supervisor, wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest
    from sessiontree.contracts.client_call import ClientAnswer, ClientCall
    from sessiontree.contracts.jsonable import JsonValue
    from sessiontree.contracts.kinds import SessionStatus
    from sessiontree.contracts.ports import SessionReport
    from sessiontree.contracts.results import SessionResult
    from sessiontree.contracts.senders import Sender
    from sessiontree.contracts.stimuli import SendMode
    from sessiontree.contracts.tree_config import TreeConfig
    from sessiontree.journal.record import Record
    from sessiontree.runtime.inbox_events import InboxEvent
    from sessiontree.runtime.progress import ProgressReader
    from sessiontree.runtime.replies import CallReply, Reply
    from sessiontree.runtime.supervisor_api import SessionRecord
    from sessiontree.runtime.tree_resources import TreeSetup
    from sessiontree.tree.receipt import ReceiptLine
    from sessiontree.tree.stimuli import SpawnAsked


class OwnerPort(Protocol):
    """What may be asked about open trees: the methods of :class:`~sessiontree.runtime.supervisor_api.Owner`.

    Plain methods answer at once; where the supervisor is another process they wait for its answer, about a
    millisecond.
    """

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
        ...

    async def call(
        self, tree_id: str, session: str, call_id: str, tool: str, arguments: Mapping[str, JsonValue]
    ) -> CallReply:
        """Have a session make one call outside its transcript."""
        ...

    async def spawn(self, tree_id: str, asked: SpawnAsked) -> str:
        """Spawn a session; returns its id once it is durable."""
        ...

    async def result(self, tree_id: str, session: str) -> SessionResult[Any]:
        """Return a session's result, waiting for its end."""
        ...

    async def stop(
        self, tree_id: str, session: str, reason: str, status: SessionStatus
    ) -> tuple[ReceiptLine, ...]:
        """End a session and everything below it; returns how each of them ended."""
        ...

    async def interrupt(self, tree_id: str, session: str, reason: str) -> tuple[ReceiptLine, ...]:
        """Have a session and everything below it drop what it does; returns how each of them stands then."""
        ...

    async def decide(self, tree_id: str, request_id: str, answer: ApprovalAnswer, by: str) -> None:
        """Answer an approval request."""
        ...

    async def hook_failed(self, tree_id: str, session: str, hook: str, point: str, reason: str) -> None:
        """Note that a hook failed in the creating program; durable when this returns."""
        ...

    async def answer(self, tree_id: str, client_id: str, answer: ClientAnswer, answer_id: str) -> None:
        """Answer a call of a client tool."""
        ...

    async def read(self, tree_id: str, after_seq: int, max_n: int, wait_s: float) -> list[Record]:
        """Return durable facts after a number, waiting for the first."""
        ...

    async def tidings(self, tree_id: str, after_seq: int, wait_s: float) -> tuple[int, list[InboxEvent]]:
        """Return what concerns a desk in facts after a number, waiting for it, and the last fact's number."""
        ...

    def record_of(self, tree_id: str, session: str, after_seq: int = 0, max_n: int = 0) -> SessionRecord:
        """Return a session's durable facts after a number, at most so many; 0 = all of them."""
        ...

    def last_seq(self, tree_id: str) -> int:
        """Return the number of a tree's newest fact."""
        ...

    def report(self, tree_id: str, session: str) -> SessionReport:
        """Return a session's standing."""
        ...

    def room(self, tree_id: str, session: str) -> int:
        """Return how many more children a session may have now."""
        ...

    def pending(self, tree_id: str) -> list[ApprovalRequest]:
        """Return the requests that wait for a person, oldest first."""
        ...

    def client_calls(self, tree_id: str) -> list[ClientCall]:
        """Return the calls that wait for the creating program, in the order they were handed over."""
        ...

    def receipt(self, tree_id: str) -> tuple[ReceiptLine, ...]:
        """Return every session of a tree and how it stands."""
        ...

    def is_over(self, tree_id: str) -> bool:
        """Whether Main has ended."""
        ...

    def is_ending(self, tree_id: str) -> bool:
        """Whether Main has ended, or was told to."""
        ...

    def is_open(self, tree_id: str) -> bool:
        """Whether a tree is kept there."""
        ...


class Backend(Protocol):
    """Runs trees over one state directory. Errors are the tree's typed ones."""

    @property
    def owner(self) -> OwnerPort:
        """What may be asked about trees that are open."""
        ...

    async def config_of(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration."""
        ...

    async def create(self, config: TreeConfig, setup: TreeSetup) -> None:
        """Create a tree; durable when this returns."""
        ...

    async def resume(self, tree_id: str, setup: TreeSetup) -> None:
        """Take up a tree from the journal."""
        ...

    def release(self, tree_id: str) -> None:
        """Let a tree go; it stays in the journal."""
        ...

    def watch(self, tree_id: str, session: str | None) -> ProgressReader:
        """Return a reader of progress."""
        ...

    async def close(self) -> None:
        """End hosts and supervisor and let the journal go."""
        ...
