"""The state of one session: exactly what its rules read.

Only ``evolve`` changes it. Members of a call or a ledger entry have the same names as in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, Final, Literal, TypeAlias

from sessiontree.contracts.facts.rewind import RecordedCalls
from sessiontree.contracts.facts.session_facts import (
    CallResolved,
    CompactionBegun,
    JobEnded,
    JobStarted,
    MessageReceived,
)
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.recorded.approvals import ApprovalQuestion, CheckedCall
from sessiontree.contracts.recorded.codec import Outcome
from sessiontree.contracts.recorded.programs import ProgramSource
from sessiontree.contracts.recorded.results import Artifact, ResultCause
from sessiontree.contracts.recorded.senders import Principal, join_principals
from sessiontree.contracts.recorded.tool_inputs import AnsweredInput, ToolInput
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import Message, ToolCall, Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.session_ids import SessionIds

DecidedPhase: TypeAlias = Literal[
    "open", "held", "asking", "approved", "intended", "delegated", "program", "child"
]
"""``program`` = it is a program that runs or waits; ``child`` = it has started a child and waits for it."""
IDLE_PHASES: Final[frozenset[DecidedPhase]] = frozenset({"asking", "held", "approved", "delegated", "child"})
"""Phases of a call of which nothing runs on a host."""
CUT_SHORT: Final[frozenset[Outcome]] = frozenset({"aborted", "skipped", "timeout"})
"""Outcomes of a call that was ended before its work was done."""


@dataclass(slots=True)
class ProgramState:
    """A program that has no result yet."""

    began_at_ms: int
    """The time that it reads from its clock."""
    expires_at_ms: int | None = None
    """When it is ended; None = never."""
    source: ProgramSource | None = None
    """The text of a saved program; None = its call holds the text."""
    asked: list[str] = field(default_factory=list)
    """Digests of the calls that it asked for, in the order of their numbers."""
    answers: list[CallResolved] = field(default_factory=list)
    """The results of its calls, in the order in which they came."""
    notes: int = 0
    """How many notes it has made."""
    untrusted: bool = False
    """Whether any of its answers is text from outside."""
    recorded: RecordedCalls = field(default_factory=RecordedCalls)
    """Calls of a run before it: equal calls get their answers, or wait for the same children."""
    early: dict[str, str] = field(default_factory=dict)
    """Reports of such children that came before their calls, by the calls' ids."""


@dataclass(slots=True)
class CallState:
    """One tool call that has no final result yet."""

    key: str
    """``<turn>.<index>``, or ``call.<id>`` outside the transcript; unique in the session."""
    call: ToolCall
    phase: DecidedPhase = "open"
    outside: bool = False
    """Whether the creating program made it; its result goes there and not into the transcript."""
    parked: bool = False
    """Whether the model has a pending message as its result; the outcome comes later as a notice."""
    checked: CheckedCall | None = None
    """The checked call; None until it has been checked."""
    request_id: str = ""
    asked_at_ms: int = 0
    """When it began to wait for an approval or for the program's answer."""
    client_id: str = ""
    """Its id for the creating program, which answers it; empty = the program does not run it."""
    expires_at_ms: int = 0
    """When the time to answer it ends."""
    to_person: bool = False
    """Whether a person answers it instead of the program."""
    needs: ToolInput | None = None
    """The input that it waits for while it runs; None = it waits for none."""
    answered: AnsweredInput | None = None
    """The input that a person gave it last."""
    rounds: int = 0
    """How many times it asked for input."""
    asked_by: tuple[Principal, ...] = ()
    """The principals it is made for; empty = the creating program."""
    program: ProgramState | None = None
    """What is known of it if it is a program that runs."""
    part_of: str = ""
    """Key of the program that made it; empty = no program did."""
    asked_after: int = 0
    """How many calls its program had asked for before those that it was asked for with."""
    line: int = 0
    """Line of its program that waits for it; 0 = not known."""
    awaits: str = ""
    """Key of the child whose report is its answer; empty = its own result is its answer."""
    timeout_s: float = 0.0
    """How long its program waits for it; 0 = as long as it takes."""
    ends_at_ms: int | None = None
    """When its program gives it up for that reason."""
    withdrawn: bool = False
    """Whether its program has given it up."""
    report: str = ""
    """That report, if it came before the call's own result."""
    cut: bool = False
    """Whether the session was interrupted since the call began: it is not started again, and its end wakes
    no session."""

    @property
    def tool(self) -> str:
        """Canonical name of its tool, or the name the model wrote if the tool is not known yet."""
        return self.call.name if self.checked is None else self.checked.tool

    @property
    def final(self) -> CheckedCall:
        """The checked call.

        Raises:
            LookupError: it has not been checked yet.
        """
        if self.checked is None:
            raise LookupError(f"call {self.key} was not checked yet")
        return self.checked


@dataclass(slots=True)
class Attempts:
    """The retry ledger's entry for one tool: failed attempts since its last valid call."""

    count: int
    turn: int
    digest: str
    refused: bool
    asked: int = 0
    """How many calls the program had asked for whose call failed last; 0 = no program made it."""
    is_program: bool = False
    """Whether a program's text was refused: arguments that fit are then no proof of a valid call."""


@dataclass(slots=True)
class SessionState:
    """One session. ``calls`` holds the open reply's calls in reply order, and also late and outside calls."""

    spec: SessionSpec
    limits: Limits
    ids: SessionIds
    """Makes the ids that leave the tree."""
    system_prompt: str | None = None
    tools: tuple[str, ...] = ()
    model: str = ""
    compaction_model: str = ""
    """Name of the model that writes summaries; empty = ``model``."""
    transcript: list[Message] = field(default_factory=list)
    """The conversation as the model sees it: after a compaction, a summary replaces its older part."""
    inbox: list[MessageReceived] = field(default_factory=list)
    """Messages that wait for the next turn."""
    turn: int = 0
    """Number of model calls so far."""
    run_turns: int = 0
    """Number of model calls since the last new message."""
    asking: bool = False
    """Whether the model was asked and has not replied."""
    retry_at_ms: int | None = None
    """When the model is asked again after a failure; None = it did not fail, or is not asked again."""
    model_failures: int = 0
    """How often the model failed at this turn."""
    failure_cause: ResultCause = ""
    """Why its run failed, if the reason is not in its task."""
    owes_turn: bool = False
    """Whether the transcript ends with something the model has not seen."""
    reply_keys: tuple[str, ...] = ()
    """Keys of the last reply's calls, until all of them have a result in the transcript."""
    results: dict[str, Message] = field(default_factory=dict)
    """Results of the open reply that are not in the transcript yet."""
    calls: dict[str, CallState] = field(default_factory=dict)
    ledger: dict[str, Attempts] = field(default_factory=dict)
    result_attempts: int = 0
    cut_text: str = ""
    """The part of its final message that the model wrote before its tokens ran out."""
    asked_again: bool = False
    """Whether the model was asked once more in this run because its final message was empty."""
    unanswered: list[str] = field(default_factory=list)
    """Ids of messages that the next final message answers."""
    heard: dict[str, None] = field(default_factory=dict)
    """Ids of messages and keys of outside calls received, newest last; only a bounded number is kept."""
    awaited: dict[str, str] = field(default_factory=dict)
    """The calls of programs that wait for a child: their keys, by the ids that their tools get."""
    unwanted: dict[str, None] = field(default_factory=dict)
    """Keys of children whose reports nobody waits for, newest last; only a bounded number is kept."""
    consultations: dict[str, ApprovalQuestion] = field(default_factory=dict)
    """Requests that this session's approver function is asked about, by id."""
    jobs: dict[str, JobStarted] = field(default_factory=dict)
    """Commands that go on in the background, by id."""
    past_jobs: dict[str, tuple[JobStarted, JobEnded]] = field(default_factory=dict)
    """Those that have ended, oldest first; only a bounded number is kept."""
    artifacts: list[Artifact] = field(default_factory=list)
    given_up: dict[str, str] = field(default_factory=dict)
    """What its result lists as not finished: by tool if the model gave it up, by key if a call was cut."""
    reported: Usage = Usage()
    """The usage that the model reported."""
    replies: int = 0
    calls_made: int = 0
    is_crowded: bool = False
    """Whether the conversation is to be compacted before the next turn, though it still fits."""
    overflow: str = ""
    """What the model said about a conversation longer than its context; empty = nothing."""
    shared_context: int | None = None
    """Size of the model's context in tokens, which the results of the last reply share; None = not known."""
    compacting: CompactionBegun | None = None
    """The compaction in progress; ``asking`` is then the question for its summary."""
    compactions: int = 0
    """Number of compactions begun since the last reply."""
    compaction_failures: int = 0
    """Number of compactions that failed since the last one that did not, in this run."""
    compaction_problem: str = ""
    """Why the last compaction failed; empty = it did not."""
    avoids_compaction_model: bool = False
    """Whether the compaction model failed since the last reply, so that the session's model is asked."""
    summary_limit: int | None = None
    """Index at which the part to summarise ends at the latest; None = no limit."""
    summary_at: int | None = None
    """Index of the summary in the transcript; None = it was never compacted."""
    interrupted: bool = False
    """Whether it was interrupted and has not received a message since."""
    stopping: str | None = None
    """The status the session is to end with; None = it was not asked to stop."""
    stop_reason: str = ""
    asked_by: tuple[Principal, ...] = ()
    """The principals the newest turn acts for; empty = the creating program."""
    settings: ModelSettings | None = None
    """Model settings that the messages of this run ask for; None = they set none."""
    taint: str = ""
    """Source of the first untrusted text that it has taken in; empty = it took in none."""
    offer: tuple[str, str, JsonValue] | None = None
    """The final message that ends the session: status, summary, output; None while there is work to do."""

    def __getattr__(self, name: str) -> Any:
        """Return a list or table whose room was given back, empty."""
        kind = _CONTAINERS.get(name)
        if kind is None:
            raise AttributeError(name)
        made = kind()
        setattr(self, name, made)
        return made

    def release_empty(self) -> None:
        """Give back the room of empty lists and tables: thousands of sessions may be kept while they wait."""
        for name in _CONTAINERS:
            if not getattr(self, name):
                delattr(self, name)

    @property
    def steered(self) -> bool:
        """Whether a steering message waits."""
        return any(waiting.steer for waiting in self.inbox)

    @property
    def usage(self) -> Usage:
        """The session's usage so far."""
        reported = self.reported
        return Usage(  # ``replace`` takes four times as long
            reported.input_tokens,
            reported.output_tokens,
            reported.cost_usd,
            self.replies,
            self.calls_made,
            reported.cache_read_tokens,
            reported.cache_write_tokens,
            reported.reasoning_tokens,
            reported.unpriced_tokens,
        )

    @property
    def in_turn(self) -> bool:
        """Whether the model is being asked, or calls of its reply are not settled."""
        return self.is_waiting_for_model or self.owes_turn or bool(self.reply_keys)

    @property
    def is_waiting_for_model(self) -> bool:
        """Whether a reply is on its way, or will be requested again."""
        return self.asking or self.retry_at_ms is not None

    @property
    def acting_for(self) -> tuple[Principal, ...]:
        """All principals that current work is done for, including calls that wait."""
        own = self.asked_by if self.in_turn else ()
        return join_principals(own, *(call.asked_by for call in self.calls.values()))


_CONTAINERS: Final[Mapping[str, Callable[[], Any]]] = {
    each.name: each.default_factory
    for each in fields(SessionState)
    if each.default_factory is list or each.default_factory is dict
}
"""The lists and tables of a state, by name."""


def make_initial_state(spec: SessionSpec, limits: Limits, id_key: str = "") -> SessionState:
    """Return the initial state of a session; ``id_key`` comes from its tree's nonce."""
    return SessionState(spec, limits, SessionIds(spec.session_id, id_key), taint=spec.taint)
