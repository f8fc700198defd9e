"""Books of one session's turns, messages and final message, kept from facts alone.

TURN: numbers are dense and a turn begins when the one before is through. MAX: ``max_turns`` holds. S45, S46:
messages in the order heard, each once. RESULT: three attempts at a typed result. EMPTY: a model that says
nothing is asked once more in each run, and its end says so. STOP: nothing new begins.
CUT: an interrupted session begins nothing before the next message.
"""

from __future__ import annotations

from dataclasses import replace

from sessiontree.contracts.facts.session_facts import (
    ApprovalWanted,
    CallIntended,
    CallOpened,
    CallParked,
    CallResolved,
    CompactionBegun,
    CompactionFailed,
    ContextCompacted,
    Interrupted,
    MessageReceived,
    MessagesShortened,
    ReplyEmpty,
    ResultRejected,
    RunFinished,
    SessionFact,
    Stopping,
    TurnCut,
    TurnFailed,
    TurnReplied,
    TurnRetried,
    TurnStarted,
)
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, Message
from tests.unit.session.call_oracle import CallBooks
from tests.unit.session.compaction_oracle import CompactionBooks
from tests.unit.session.judge_oracle import Judge
from tests.unit.session.session_fixtures import is_n

BLANKS = " \t\n\u3000\u200b\ufeff"
"""Characters that models of the tests say, and that show nothing."""


class TurnBooks:
    """Turns so far, and the transcript they make."""

    def __init__(self, judge: Judge, calls: CallBooks, spec: SessionSpec, limits: Limits) -> None:
        """Know of no turn."""
        self.judge = judge
        self.calls = calls
        self.spec = spec
        self.limits = limits
        self.turn = 0
        self.run_turns = 0
        self.replies = 0
        self.is_asking = False
        self.retry_at_ms: int | None = None
        """When the model is to be asked again after a failure."""
        self.failures = 0
        """How often it failed at this turn."""
        self.in_turn = False
        """From a turn's begin to the final message of its run."""
        self.reply: AssistantMessage | None = None
        """The last reply with calls, until all of them have a result in the transcript."""
        self.compactions = CompactionBooks(judge, calls)
        self.transcript: list[Message] = []
        """As the model sees it: compacted."""
        self.waiting: list[MessageReceived] = []
        self.heard: set[str] = set()
        self.taken: list[str] = []
        """Messages of others than the runtime itself, taken and without a final message."""
        self.attempts = 0
        self.asked_again = False
        """Whether the model said nothing in this run, and was asked once more."""
        self.rested: RunFinished | None = None
        """The final message that holds."""
        self.stopping: Stopping | None = None
        self.interrupted = False
        """Whether it was interrupted, and nobody has said anything since."""

    @property
    def open_keys(self) -> list[str]:
        """Keys of the open reply's calls, in order."""
        if self.reply is None:
            return []
        return [f"{self.turn}.{index}" for index in range(len(self.reply.tool_calls))]

    @property
    def is_steered(self) -> bool:
        """Whether a steering message waits."""
        return any(heard.steer for heard in self.waiting)

    @property
    def has_news(self) -> bool:
        """Whether a message waits that starts a turn."""
        return any(heard.wakes for heard in self.waiting)

    def book(self, fact: SessionFact) -> None:
        """Book one fact, after the call books did."""
        self._compact(fact)
        if self.stopping is not None:
            begins = isinstance(fact, TurnStarted | CallOpened | CallIntended | ApprovalWanted | Stopping)
            self.judge.require(
                not begins, "STOP", f"{type(fact).__name__} after the session was asked to stop"
            )
        if isinstance(fact, MessageReceived):
            self._hear(fact)
        elif isinstance(fact, TurnStarted):
            self._start(fact)
        elif isinstance(fact, TurnReplied | TurnFailed | TurnCut | TurnRetried):
            self._reply(fact)
        elif isinstance(fact, Interrupted):
            self._interrupt()
        elif isinstance(fact, CallParked | CallResolved):
            self._place()
        elif isinstance(fact, ResultRejected | ReplyEmpty):
            self._ask_again(fact)
        elif isinstance(fact, RunFinished):
            self._rest(fact)
        elif isinstance(fact, Stopping):
            self.stopping = fact
            self.is_asking = self.in_turn = False
            self.retry_at_ms = None

    def _ask_again(self, fact: ResultRejected | ReplyEmpty) -> None:
        if isinstance(fact, ReplyEmpty):
            self.judge.require(not self.asked_again, "EMPTY", f"turn {fact.turn} is asked again twice")
            self.asked_again = True
            return
        self.attempts += 1
        right = fact.attempt == self.attempts <= 3
        self.judge.require(right, "RESULT", f"attempt {self.attempts} counts as {fact.attempt}")

    @property
    def is_compacting(self) -> bool:
        """Whether the model is asked for a summary."""
        waits = self.is_asking or self.retry_at_ms is not None
        return waits and self.compactions.begun is not None and self.compactions.begun.turn == self.turn

    def _compact(self, fact: SessionFact) -> None:
        self.compactions.book(fact)
        if isinstance(fact, CompactionBegun):
            self._ask_for_summary(fact)
        elif isinstance(fact, ContextCompacted | CompactionFailed):
            self.judge.require(self.is_asking, "COMPACT", f"{fact} without a question")
            self.is_asking, self.retry_at_ms = False, None
            self.replies += isinstance(fact, ContextCompacted) or fact.usage is not None
            if isinstance(fact, ContextCompacted):
                self.transcript = self.compactions.after(self.transcript, fact)
        elif isinstance(fact, MessagesShortened):
            self.transcript = self.compactions.cut(self.transcript, fact)

    def _ask_for_summary(self, fact: CompactionBegun) -> None:
        self.judge.require(self.stopping is None, "STOP", "a compaction begins in a session that is to stop")
        self.judge.require(not self.interrupted, "CUT", "a compaction begins, and nobody said anything")
        free = not self.is_asking and self.retry_at_ms is None and self.reply is None
        self.judge.require(free, "TURN", f"a compaction begins before turn {self.turn} is through")
        self.judge.require(fact.turn == self.turn + 1, "TURN", f"turn {fact.turn} follows {self.turn}")
        self.turn, self.is_asking, self.in_turn, self.failures = fact.turn, True, True, 0

    def _hear(self, fact: MessageReceived) -> None:
        self.judge.require(fact.message_id not in self.heard, "S46", f"{fact.message_id} is heard twice")
        self.heard.add(fact.message_id)
        self.waiting.append(fact)
        if self.interrupted:
            told = fact.message.origin in {"user", "parent"}
            self.judge.require(fact.wakes is told, "CUT", f"{fact.message_id} says {fact.wakes=}")
        if fact.wakes:
            self.rested = None
            self.interrupted = False

    def _interrupt(self) -> None:
        waits = self.is_asking or self.retry_at_ms is not None
        self.judge.require(not waits, "CUT", "the model is still waited for")
        self.interrupted = True
        self.in_turn = self.reply is not None
        self.waiting = [replace(heard, steer=False, wakes=False) for heard in self.waiting]

    def _reply(self, fact: TurnReplied | TurnFailed | TurnCut | TurnRetried) -> None:
        if isinstance(fact, TurnRetried):
            due = self.retry_at_ms is not None and fact.turn == self.turn and self.stopping is None
            self.judge.require(due, "RETRY", f"turn {fact.turn} is tried again, and was not to be")
            self.is_asking, self.retry_at_ms = True, None
            return
        waits = self.is_asking or (isinstance(fact, TurnCut) and self.retry_at_ms is not None)
        open_turn = waits and fact.turn == self.turn
        self.judge.require(open_turn, "TURN", f"a reply to turn {fact.turn}, which is not open")
        self.is_asking, self.retry_at_ms = False, None
        if isinstance(fact, TurnFailed):
            self.run_turns -= fact.overflow
            self.retry_at_ms = fact.retry_at_ms
            self.failures += 1
            few = fact.retry_at_ms is None or self.failures <= self.limits.model_retries
            self.judge.require(few, "RETRY", f"turn {fact.turn} failed {self.failures} times, and is retried")
        if isinstance(fact, TurnReplied):
            self.replies += 1
            self.transcript.append(fact.message)
            self.reply = fact.message if fact.message.tool_calls else None

    def _start(self, fact: TurnStarted) -> None:
        self.judge.require(not self.interrupted, "CUT", f"turn {fact.turn} begins, and nobody said anything")
        free = not self.is_asking and self.retry_at_ms is None and self.reply is None
        self.failures = 0
        self.judge.require(free, "TURN", f"turn {fact.turn} begins before turn {self.turn} is through")
        self.judge.require(fact.turn == self.turn + 1, "TURN", f"turn {fact.turn} follows {self.turn}")
        takes, self.waiting = self.waiting[: fact.took], self.waiting[fact.took :]
        fresh = any(heard.wakes and heard.message.origin != "notice" for heard in takes)
        self.judge.require(fact.fresh_run == fresh, "MAX", f"turn {fact.turn} says {fact.fresh_run=}")
        self.run_turns = 1 if fresh else self.run_turns + 1
        self.judge.require(
            self.run_turns <= self.limits.max_turns, "MAX", f"turn {self.run_turns} for one message"
        )
        stays = any(heard.steer for heard in self.waiting)
        self.judge.require(not stays, "STEER", f"turn {fact.turn} leaves a steering message behind")
        if fresh:
            self.attempts = 0
            self.asked_again = False
        self.turn, self.is_asking, self.in_turn, self.rested = fact.turn, True, True, None
        self.transcript += [heard.message for heard in takes]
        others = [heard for heard in takes if heard.wakes and heard.message.origin != "notice"]
        self.taken += [heard.message_id for heard in others]

    def _place(self) -> None:
        shown = [self.calls.calls[key].shown for key in self.open_keys]
        if self.reply is not None and all(message is not None for message in shown):
            self.transcript += [message for message in shown if message is not None]
            self.reply = None
            self.in_turn = self.in_turn and not self.interrupted

    def _rest(self, fact: RunFinished) -> None:
        waits = self.is_asking or self.retry_at_ms is not None
        right = not waits and (self.reply is None or fact.interrupted)
        self.judge.require(right, "TURN", "a final message while a turn is open")
        missing = [each for each in self.taken if each not in fact.answers]
        self.judge.require(not missing, "ANSWER", f"a final message leaves {missing} without an answer")
        self.taken = []
        typed = self.spec.result_schema is not None
        if typed and fact.error is None:
            good = fact.has_result and is_n(fact.result) and self.attempts < 3
            self.judge.require(good, "RESULT", f"{fact.result!r} is accepted")
        says_nothing = not typed and fact.error is None and not fact.text.strip(BLANKS)
        asked = self.asked_again or self.run_turns >= self.limits.max_turns
        self.judge.require(fact.is_empty == says_nothing, "EMPTY", f"{fact.text!r} says {fact.is_empty=}")
        self.judge.require(asked or not says_nothing, "EMPTY", "an empty reply is taken at once")
        self.rested = fact
        self.in_turn = self.reply is not None

    def expected_offer(self) -> tuple[str, str, JsonValue]:
        """Return status, summary and output of the result that is to be offered."""
        assert self.rested is not None
        summary = self.rested.text if self.rested.error is None else self.rested.error
        if self.rested.is_empty:
            summary = "(the model said nothing)"
        if self.spec.kind is SessionKind.MAIN:
            return "completed", summary, None
        return ("completed" if self.rested.error is None else "failed"), summary, self.rested.result
