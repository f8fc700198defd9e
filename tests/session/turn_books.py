"""Books of one session's turns, messages and last words, kept from facts alone.

TURN: numbers are dense and a turn begins when the one before is through. MAX: ``max_turns`` holds. S45, S46:
messages in the order heard, each once. RESULT: three attempts at a typed result. STOP: nothing new begins.
CUT: an interrupted session begins nothing before the next message.
"""

from __future__ import annotations

from dataclasses import replace

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.limits import Limits
from sessiontree.contracts.messages import AssistantMessage, Message
from sessiontree.contracts.session_facts import (
    ApprovalWanted,
    CallIntended,
    CallOpened,
    CallParked,
    CallResolved,
    Heard,
    Interrupted,
    Rested,
    ResultRejected,
    SessionFact,
    Stopping,
    TurnCut,
    TurnFailed,
    TurnReplied,
    TurnStarted,
)
from sessiontree.contracts.spec import SessionSpec
from tests.session.call_books import CallBooks
from tests.session.judge import Judge
from tests.session.words import is_n


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
        self.in_turn = False
        """From a turn's begin to the last word of its run."""
        self.reply: AssistantMessage | None = None
        """The last reply with calls, until all of them have a result in the transcript."""
        self.transcript: list[Message] = []
        self.waiting: list[Heard] = []
        self.heard: set[str] = set()
        self.taken: list[str] = []
        """Messages of others than the runtime itself, taken and without a last word."""
        self.attempts = 0
        self.rested: Rested | None = None
        """The last word that stands."""
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
        if self.stopping is not None:
            begins = isinstance(fact, TurnStarted | CallOpened | CallIntended | ApprovalWanted | Stopping)
            self.judge.require(
                not begins, "STOP", f"{type(fact).__name__} after the session was told to stop"
            )
        if isinstance(fact, Heard):
            self._hear(fact)
        elif isinstance(fact, TurnStarted):
            self._start(fact)
        elif isinstance(fact, TurnReplied | TurnFailed | TurnCut):
            self._reply(fact)
        elif isinstance(fact, Interrupted):
            self._interrupt()
        elif isinstance(fact, CallParked | CallResolved):
            self._place()
        elif isinstance(fact, ResultRejected):
            self.attempts += 1
            right = fact.attempt == self.attempts <= 3
            self.judge.require(right, "RESULT", f"attempt {self.attempts} counts as {fact.attempt}")
        elif isinstance(fact, Rested):
            self._rest(fact)
        elif isinstance(fact, Stopping):
            self.stopping = fact
            self.is_asking = self.in_turn = False

    def _hear(self, fact: Heard) -> None:
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
        self.judge.require(not self.is_asking, "CUT", "the model is still waited for")
        self.interrupted = True
        self.in_turn = self.reply is not None
        self.waiting = [replace(heard, steer=False, wakes=False) for heard in self.waiting]

    def _reply(self, fact: TurnReplied | TurnFailed | TurnCut) -> None:
        open_turn = self.is_asking and fact.turn == self.turn
        self.judge.require(open_turn, "TURN", f"a reply to turn {fact.turn}, which is not open")
        self.is_asking = False
        if isinstance(fact, TurnReplied):
            self.replies += 1
            self.transcript.append(fact.message)
            self.reply = fact.message if fact.message.tool_calls else None

    def _start(self, fact: TurnStarted) -> None:
        self.judge.require(not self.interrupted, "CUT", f"turn {fact.turn} begins, and nobody said anything")
        free = not self.is_asking and self.reply is None
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

    def _rest(self, fact: Rested) -> None:
        right = not self.is_asking and (self.reply is None or fact.interrupted)
        self.judge.require(right, "TURN", "a last word while a turn is open")
        missing = [each for each in self.taken if each not in fact.answers]
        self.judge.require(not missing, "ANSWER", f"a last word leaves {missing} without an answer")
        self.taken = []
        typed = self.spec.result_schema is not None
        if typed and fact.error is None:
            good = fact.has_result and is_n(fact.result) and self.attempts < 3
            self.judge.require(good, "RESULT", f"{fact.result!r} is accepted")
        self.rested = fact
        self.in_turn = self.reply is not None

    def expected_offer(self) -> tuple[str, str, JsonValue]:
        """Return status, summary and output of the result that is to be offered."""
        assert self.rested is not None
        summary = self.rested.text if self.rested.error is None else self.rested.error
        if self.spec.kind is SessionKind.MAIN:
            return "completed", summary, None
        return ("completed" if self.rested.error is None else "failed"), summary, self.rested.result
