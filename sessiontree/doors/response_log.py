"""The response log of a conversation: what each response is, as a pure function of the journal.

A response begins with a message to Main, or with the output of a call that a client hosts. It ends where
Main's run ends, or where a session's reply waits for the client alone. Its items are in the order of the
journal; what happens while Main's model writes comes after what the model wrote.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar, TypeAlias

from sessiontree.contracts.facts import session_facts as session
from sessiontree.contracts.facts import tree_facts as tree
from sessiontree.contracts.recorded.approvals import ApprovalQuestion
from sessiontree.contracts.recorded.codec import list_recorded_classes
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.doors.journal_feed import JournalFeed
from sessiontree.journal.record import JournalRecord, read_kind


@dataclass(frozen=True, slots=True)
class SaidText:
    """Text of Main's model."""

    turn: int
    text: str
    is_final: bool
    """Whether it answers the message."""


@dataclass(frozen=True, slots=True)
class OwnCall:
    """A call of Main that the tree ran itself."""

    key: str
    tool: str
    arguments: Mapping[str, JsonValue]
    outcome: str


@dataclass(frozen=True, slots=True)
class StartedChild:
    """A session that the tree started."""

    session: str
    kind: str
    agent: str
    task: str


@dataclass(slots=True)
class AskedApproval:
    """A request that a person is asked to allow, of any session of the tree."""

    question: ApprovalQuestion
    decision: str = ""
    """How it was decided; empty = it waits."""


OutputItem: TypeAlias = SaidText | OwnCall | StartedChild | AskedApproval


@dataclass(slots=True)
class HostedCall:
    """A call that was handed over to the client."""

    call_id: str
    session: str
    key: str
    tool: str
    arguments: Mapping[str, JsonValue]
    resolved: ResponseStart | None = None
    """Where it got its result; None = it waits."""
    answer_id: str = ""
    """Names the output that became its result; empty = none did."""


@dataclass(frozen=True, slots=True)
class ResponseStart:
    """A place in the journal where a response may begin."""

    seq: int
    at_ms: int
    items: int
    """How many items there were."""
    used: Usage
    written: int
    """How many replies of Main's model were over."""


@dataclass(frozen=True, slots=True)
class ResponseEnd:
    """A place in the journal where responses end."""

    seq: int
    at_ms: int
    items: int
    used: Usage
    waiting: tuple[HostedCall, ...]
    """The calls that wait for the client, in the order in which they were handed over."""
    is_run: bool
    """Whether Main's run ended."""
    error: str | None = None
    """Why the run failed."""


@dataclass(slots=True)
class LoggedResponse:
    """One response."""

    response_id: str
    turn_id: str
    """Id of the message of its turn."""
    previous: str | None
    """Id of the response before it."""
    start: ResponseStart
    ended: ResponseEnd | None = None
    """How it ended; None = it goes on."""


def make_continuation_id(turn_id: str, seq: int) -> str:
    """Return the id of the response that begins with an output.

    Args:
        turn_id: The turn.
        seq: Number of the fact at which the newest of the outputs was accepted.
    """
    return f"{turn_id}-{seq}"


class ResponseLog:
    """The responses of one tree, by id, oldest first.

    Args:
        feed: Reads the journal of the tree.
    """

    def __init__(self, feed: JournalFeed) -> None:
        self._feed = feed
        self.fold = ResponseFold()

    async def read(self) -> ResponseFold:
        """Return what is known until now; facts that were read before are not read again.

        Raises:
            JournalError: the journal can't be read.
        """
        await self._feed.read(self.fold.take)
        return self.fold

    async def wait(self) -> None:
        """Wait for facts that were not read yet, and take them in; or until a while has passed.

        Raises:
            JournalError: the journal can't be read.
        """
        await self._feed.wait()


_TreeItem: TypeAlias = (
    tree.SessionSpawned | tree.ApprovalRequested | tree.ApprovalWaiting | tree.ApprovalDecided
)


@dataclass(slots=True)
class ResponseFold:
    """What the facts of a tree say about its responses. It reads nothing and decides nothing."""

    responses: dict[str, LoggedResponse] = field(default_factory=dict)
    calls: dict[str, HostedCall] = field(default_factory=dict)
    """Calls that were handed over to the client, by id."""
    items: list[OutputItem] = field(default_factory=list)
    is_writing: bool = False
    """Whether Main's model writes."""
    written: int = 0
    """How many replies of Main's model are over."""
    _held: list[OutputItem] = field(default_factory=list)
    _waiting: dict[tuple[str, str], HostedCall] = field(default_factory=dict)
    _running: dict[str, dict[str, tuple[str, Mapping[str, JsonValue]]]] = field(default_factory=dict)
    """Calls of the newest reply of each session that go on, by key: tool and arguments."""
    _paused: dict[str, tuple[str, Mapping[str, JsonValue]]] = field(default_factory=dict)
    """Calls of Main that go on, though its reply does not wait for them, by key."""
    _asked: dict[str, AskedApproval] = field(default_factory=dict)
    _used: Usage = field(default_factory=Usage)
    _by_start: dict[int, LoggedResponse] = field(default_factory=dict)
    _open: list[LoggedResponse] = field(default_factory=list)
    """The responses that go on."""
    _ends: list[ResponseEnd] = field(default_factory=list)
    _told: frozenset[str] = frozenset()
    """Ids of the calls that waited at the newest end."""
    _turn_id: str = ""

    def take(self, record: JournalRecord) -> None:
        """Take in one entry of the journal; entries come in their order."""
        if read_kind(record.text) not in self.kinds:
            return
        for fact in record.facts:
            step = self._steps.get(type(fact))
            if step is not None:
                step(self, record, fact)
        self._end_at_calls(record)

    def list_items(self, response: LoggedResponse) -> list[OutputItem]:
        """Return the items of a response, so far if it goes on."""
        end = len(self.items) if response.ended is None else response.ended.items
        return self.items[response.start.items : end]

    def list_texts(self, response: LoggedResponse) -> list[str]:
        """Return the texts of a response, in their order; empty ones are left out."""
        return [each.text for each in self.list_items(response) if isinstance(each, SaidText) and each.text]

    def sum_usage(self, response: LoggedResponse) -> Usage:
        """Return what a response used, children included; so far if it goes on."""
        used = self._used if response.ended is None else response.ended.used
        return used - response.start.used

    @property
    def newest(self) -> LoggedResponse | None:
        """The newest response."""
        return next(reversed(self.responses.values()), None)

    @property
    def waiting(self) -> tuple[HostedCall, ...]:
        """The calls that wait for the client, in the order in which they were handed over."""
        return tuple(self._waiting.values())

    def find_outputs(self, call_ids: list[str]) -> LoggedResponse | None:
        """Return the response that begins with the newest output of these calls; None = none was accepted."""
        starts = [self.calls[each].resolved for each in call_ids]
        seqs = [start.seq for start in starts if start is not None]
        if not seqs:
            return None
        return self._by_start.get(max(seqs))

    def _place(self, item: OutputItem) -> None:
        (self._held if self.is_writing else self.items).append(item)

    def _stop_writing(self) -> None:
        if self.is_writing:
            self.is_writing = False
            self.written += 1
            self.items += self._held
            self._held.clear()

    def _begin(self, response_id: str, start: ResponseStart) -> None:
        newest = self.newest
        made = LoggedResponse(
            response_id, self._turn_id, None if newest is None else newest.response_id, start
        )
        # A response to an output begins where the result was recorded, which may be before an end that is
        # known.
        place = bisect_left(self._ends, start.seq, key=lambda end: end.seq)
        made.ended = self._ends[place] if place < len(self._ends) else None
        self.responses[response_id] = self._by_start[start.seq] = made
        if made.ended is None:
            self._open.append(made)

    def _start(self, record: JournalRecord) -> ResponseStart:
        return ResponseStart(record.seq, record.at_ms, len(self.items), self._used, self.written)

    def _end(
        self,
        record: JournalRecord,
        *,
        is_run: bool,
        error: str | None = None,
        answers: tuple[str, ...] | None = None,
    ) -> None:
        """End the responses that go on; of messages only those in ``answers``, if it is given."""
        where = (record.seq, record.at_ms, len(self.items), self._used)
        end = ResponseEnd(*where, self.waiting, is_run, error)
        self._ends.append(end)
        self._told = frozenset(each.call_id for each in end.waiting)
        for each in self._open:
            if answers is None or each.response_id != each.turn_id or each.turn_id in answers:
                each.ended = end
        self._open = [each for each in self._open if each.ended is None]

    def _end_at_calls(self, record: JournalRecord) -> None:
        """End the responses that go on if a session's reply waits for the client alone, and that is news."""
        now = frozenset(each.call_id for each in self._waiting.values())
        if not now or now == self._told or self.is_writing:
            return
        if any(not self._running.get(each.session) for each in self._waiting.values()):
            self._end(record, is_run=False)

    def _take_message(self, record: JournalRecord, fact: session.MessageReceived) -> None:
        if record.session == MAIN and fact.message.origin == "user":
            self._turn_id = fact.message_id
            self._begin(fact.message_id, self._start(record))

    def _take_turn(self, record: JournalRecord, fact: session.TurnStarted) -> None:
        if record.session == MAIN:
            self._stop_writing()
            self.is_writing = True

    def _take_reply(self, record: JournalRecord, fact: session.TurnReplied) -> None:
        message = fact.message
        self._used += message.usage
        calls = {f"{fact.turn}.{index}": call for index, call in enumerate(message.tool_calls)}
        self._running[record.session] = {key: (each.name, each.arguments) for key, each in calls.items()}
        if record.session == MAIN and calls:
            if message.text:
                self.items.append(SaidText(fact.turn, message.text, False))
            self._stop_writing()

    def _take_stop(self, record: JournalRecord, fact: session.TurnFailed | session.TurnCut) -> None:
        is_over = isinstance(fact, session.TurnCut) or fact.retry_at_ms is None
        if record.session == MAIN and is_over:
            self._stop_writing()

    def _take_run(self, record: JournalRecord, fact: session.RunFinished) -> None:
        if record.session != MAIN:
            return
        if fact.error is None:
            self.items.append(SaidText(-1, fact.text, True))
        self._stop_writing()
        self._end(record, is_run=True, error=fact.error, answers=fact.answers)

    def _take_summary(self, record: JournalRecord, fact: session.ContextCompacted) -> None:
        self._used += fact.usage

    def _take_handover(self, record: JournalRecord, fact: session.CallDelegated) -> None:
        self._running.get(record.session, {}).pop(fact.call.key, None)
        if not fact.to_person:
            call = fact.call
            made = HostedCall(fact.client_id, record.session, call.key, call.tool, call.arguments)
            self.calls[fact.client_id] = self._waiting[record.session, call.key] = made

    def _take_result(self, record: JournalRecord, fact: session.CallResolved) -> None:
        waited = self._waiting.pop((record.session, fact.key), None)
        ran = self._running.get(record.session, {}).pop(fact.key, None)
        if waited is not None:
            waited.resolved = self._start(record)
        elif record.session == MAIN and (ran := ran or self._paused.pop(fact.key, None)) is not None:
            self._place(OwnCall(fact.key, *ran, fact.outcome))

    def _take_pause(self, record: JournalRecord, fact: session.CallParked | session.ProgramStarted) -> None:
        """Note that the reply waits for a call no more, or that a program waits for its own calls."""
        key = fact.call.key if isinstance(fact, session.ProgramStarted) else fact.key
        ran = self._running.get(record.session, {}).pop(key, None)
        if ran is not None and record.session == MAIN:
            self._paused[key] = ran

    def _take_call_end(self, record: JournalRecord, fact: tree.ClientCallEnded) -> None:
        call = self.calls.get(fact.client_id)
        if call is None:
            return
        self._waiting.pop((call.session, call.key), None)
        call.answer_id = fact.answer_id
        call.resolved = call.resolved or self._start(record)
        if fact.answer_id:
            self._begin(make_continuation_id(self._turn_id, call.resolved.seq), call.resolved)

    def _take_tree_item(self, record: JournalRecord, fact: _TreeItem) -> None:
        match fact:
            case tree.SessionSpawned(spec):
                if spec.parent is not None:
                    self._place(StartedChild(spec.session_id, spec.kind.value, spec.agent, spec.task))
            case tree.ApprovalRequested(question):
                self._asked[question.request_id] = AskedApproval(question)
            case tree.ApprovalWaiting(request_id, how="show") if request_id in self._asked:
                self._place(self._asked[request_id])
            case tree.ApprovalDecided(request_id) if request_id in self._asked:
                self._asked.pop(request_id).decision = fact.decision

    def _take_end(self, record: JournalRecord, fact: tree.SessionEnded) -> None:
        if fact.session == MAIN:
            self._stop_writing()
            self._end(record, is_run=True, error=f"the conversation has ended: {fact.result.summary}")

    _steps: ClassVar[Mapping[type[Any], Callable[[Any, JournalRecord, Any], None]]] = {
        session.MessageReceived: _take_message,
        session.TurnStarted: _take_turn,
        session.TurnReplied: _take_reply,
        session.TurnFailed: _take_stop,
        session.TurnCut: _take_stop,
        session.RunFinished: _take_run,
        session.ContextCompacted: _take_summary,
        session.CallDelegated: _take_handover,
        session.CallResolved: _take_result,
        session.CallParked: _take_pause,
        session.ProgramStarted: _take_pause,
        tree.ClientCallEnded: _take_call_end,
        tree.SessionSpawned: _take_tree_item,
        tree.ApprovalRequested: _take_tree_item,
        tree.ApprovalWaiting: _take_tree_item,
        tree.ApprovalDecided: _take_tree_item,
        tree.SessionEnded: _take_end,
    }
    """What each fact changes."""
    kinds: ClassVar[frozenset[str]] = frozenset(
        list_recorded_classes()[each] for each in (*_steps, session.Opened)
    )
    """Kinds of entries that hold such a fact."""
