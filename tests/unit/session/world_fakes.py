"""A host and a supervisor for one session, without tools or disk; they do as real ones do.

The host answers in its own time and is lost now and then, with everything it had not reported. The supervisor
makes reported facts durable, only then carries out what came with them, and brings again what a lost host
had not reported as taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import (
    ApproverReplied,
    CallIntended,
    JobEnded,
    JobStarted,
    SessionFact,
)
from sessiontree.contracts.facts.stimuli import (
    ApprovalAsked,
    ApproverReturned,
    ResultOffered,
    Stimulus,
    TroubleReported,
)
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.handles.jobs import JobStatus
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.approvals import CheckedCall, RejectedCall
from sessiontree.contracts.recorded.codec import Outcome
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from sessiontree.session import instructions as todo
from sessiontree.session.instructions import SessionInstruction
from sessiontree.session.jobs import make_job_message_id
from sessiontree.session.state import make_initial_state
from tests.unit.session.machine_fixtures import REAL, Machine
from tests.unit.session.session_fixtures import TOOLS, digest, finished, reply, sent, spec, verdict
from tests.unit.session.session_oracle import Watcher

T = TypeVar("T")

MAX_CHORES = 400


def opened(
    kind: SessionKind = SessionKind.BRANCH,
    *,
    patience_s: float | None = 30.0,
    max_turns: int = 50,
    task: str = "compare the two",
    result_schema: Mapping[str, JsonValue] | None = None,
) -> World:
    """Return a world whose session was adopted and, where it has a task, asks its model."""
    limits = Limits(approval_patience_s=patience_s, max_turns=max_turns)
    world = World(spec(kind, task=task, result_schema=result_schema), limits)
    world.adopt()
    world.report()
    return world


class World:
    """One session, its host and its supervisor; every step is judged by a watcher."""

    def __init__(
        self, spec: SessionSpec, limits: Limits, machine: Machine = REAL, only: Iterable[str] = ()
    ) -> None:
        """Start before the session is adopted; ``only`` names the rules to watch, if not all."""
        self.machine = machine
        self.watcher = Watcher(machine, spec, limits, only)
        self.spec = spec
        self.limits = limits
        self.at_ms = 0
        self.writer = ""
        """The compaction model that the next host is given, if any."""
        self.live = make_initial_state(spec, limits)
        self.facts: list[SessionFact] = []
        """Of what the world did last."""
        self.told: list[SessionInstruction] = []
        """Of what the world did last."""
        self.is_whole = True
        """False from the begin of a step until it was judged."""
        self.begun: list[str] = []
        """Every call that was begun, in order, whatever was lost since."""
        # On the host, lost with it.
        self.preparing: dict[str, todo.PrepareCall] = {}
        self.running: dict[str, ToolCall] = {}
        self._cancelled: set[str] = set()
        self.consulting: list[str] = []
        self.jobs: list[JobStarted] = []
        self.programs = dict[str, None]()  # those that an interpreter is to go on with
        self.unreported, self.held_back = list[SessionFact](), list[SessionInstruction]()
        self._due: deque[Stimulus] = deque()
        # At the supervisor.
        self.durable: list[SessionFact] = []
        self.untaken: list[Stimulus] = []
        self.questions: list[int] = []
        self.committing: list[tuple[str, ...]] = []
        self.requests, self.troubles = list[str](), list[str]()
        self.alarms: set[int] = set()
        self.results: list[SessionResult[Any]] = []
        self.answers: dict[str, Outcome] = {}
        self.words: dict[str, str | None] = {}
        """Last words by message, None where the run stopped short."""
        self.decided: dict[str, str] = {}
        self.intents: dict[str, CallIntended] = {}
        """Approval requests that reached their end."""
        self.returned: dict[str, str] = {}
        """Answers of approver functions."""
        self._past: list[tuple[Stimulus, bool]] = []
        """What reached the session, and whether it outlives its host."""
        self._supervise: dict[type[Any], Callable[[Any], None]] = {
            todo.AwaitCommit: lambda each: self.committing.append(each.keys),
            todo.ToTree: lambda each: self._bring[type(each.event)](each.event),
            todo.CallModel: lambda each: self.questions.append(each.turn),
            todo.WithdrawQuestion: lambda each: None,
            todo.AnswerCall: lambda each: self.answers.update({each.call_id: each.outcome}),
            todo.AnswerMessages: self._last_word,
            todo.WakeSessionAt: lambda each: self.alarms.add(each.at_ms),
        }
        self._bring: dict[type[Any], Callable[[Any], None]] = {
            ApprovalAsked: self._ask,
            ApproverReturned: lambda each: self.returned.update({each.reply.request_id: each.reply.answer}),
            TroubleReported: lambda each: self.troubles.append(each.trouble.tool),
            ResultOffered: lambda each: self.results.append(each.result),
        }
        self._host: dict[type[Any], Callable[[Any], None]] = {
            todo.PrepareCall: lambda each: self.preparing.update({each.key: each}),
            todo.ExecuteCall: self._begin,
            todo.AbortCalls: self._abort,
            todo.AdvanceProgram: lambda each: self.programs.update({each.key: None}),
            todo.RunApprover: lambda each: self.consulting.append(each.question.request_id),
        }

    # One step.

    def give(self, stimulus: Stimulus, *, repeats: bool = False) -> None:
        """Bring a stimulus from the supervisor, maybe one that a lost host had been given already."""
        self.untaken.append(stimulus)
        self._past.append((stimulus, True))
        self._take(stimulus, repeats=repeats)

    def say(self, stimulus: Stimulus) -> None:
        """Let the host tell the session what became of its work."""
        self._past.append((stimulus, False))
        self._take(stimulus)

    def again(self, pick: int) -> None:
        """Bring something once more that reached the session before: repeated, late, or stale."""
        if self._past:
            stimulus, _ = self._past[-1 - pick % len(self._past)]
            self._take(stimulus, repeats=True)

    def _take(self, stimulus: Stimulus, *, repeats: bool = False) -> None:
        self.facts, self.told = [], []
        self._step(stimulus, repeats=repeats)
        while self._due:
            skipped = self._due.popleft()
            self._past.append((skipped, False))
            self._step(skipped)

    def _step(self, stimulus: Stimulus, *, repeats: bool = False) -> None:
        self.is_whole = False
        self.watcher.begin(stimulus, repeats=repeats)
        new_facts, told = self.machine.react(self.live, stimulus)
        self.watcher.end(self.live, stimulus, new_facts, told)
        came_with_it = isinstance(stimulus, stimuli.ApprovalAnswered) and stimulus.intended
        self.unreported += [
            fact for fact in new_facts if not (came_with_it and isinstance(fact, CallIntended))
        ]
        for instruction in told:
            carry = self._host.get(type(instruction))
            if carry is None:
                self.held_back.append(instruction)
            else:
                carry(instruction)
        self.watcher.judge_care(self._cared_for())
        self.facts += new_facts
        self.told += told
        self.is_whole = True

    def _cared_for(self) -> set[str]:
        """Return the keys of the calls that host or supervisor are at."""
        waits = (each.keys for each in self.held_back if isinstance(each, todo.AwaitCommit))
        skipped = (each.key for each in self._due if isinstance(each, stimuli.CallFinished))
        return {*self.preparing, *self.running, *self.programs, *skipped}.union(*self.committing, *waits)

    # The host.

    def adopt(self) -> None:
        """Let a host take the session."""
        adopted = stimuli.Adopted(self.at_ms, tuple(TOOLS), "model", "You work.")
        self.say(replace(adopted, compaction_model=self.writer))

    def prepare(self, key: str) -> None:
        """Check a call; one that only reads begins at once where it may."""
        asked = self.preparing.pop(key)
        checked = verdict(self.at_ms, key, asked.call)
        if (
            isinstance(checked, stimuli.CallPrepared)
            and not checked.call.digest
            and asked.run_unless is not None
            and asked.call.name not in asked.run_unless
        ):
            run = todo.ExecuteCall(f"{self.spec.session_id}#{key}", checked.call)
            self.watcher.runs(run)
            self._begin(run)
        else:
            self.say(checked)

    def finish(self, key: str, outcome: Outcome = "ok") -> None:
        """End a running call; one that was asked to stop has been aborted."""
        asked = self.running.pop(key)
        if key in self._cancelled:
            self._cancelled.discard(key)
            outcome = "aborted"
        self.say(finished(self.at_ms, key, asked, outcome))

    def begin_program(self, key: str) -> None:
        """Let a running call be a program that is about to be checked."""
        asked = self.running.pop(key)
        checked = CheckedCall(key, asked.name, asked.arguments, "", 0, True)
        self.say(stimuli.ProgramBegan(self.at_ms, checked))

    def refuse_program(self, key: str) -> None:
        """Let the checker refuse the text of a program."""
        del self.programs[key]
        asked = self.live.calls[key].call
        bad = RejectedCall(key, asked.name, "it was not run", "/code", digest(asked), {})
        self.say(stimuli.CallRejected(self.at_ms, bad))

    def end_program(self, key: str, outcome: Outcome = "ok") -> None:
        """Let a program end."""
        del self.programs[key]
        self.say(finished(self.at_ms, key, self.live.calls[key].call, outcome))

    def consult(self, request_id: str, answer: str = "escalate") -> None:
        """Let an approver function return."""
        self.consulting.remove(request_id)
        self.say(stimuli.ApproverAnswered(self.at_ms, ApproverReplied(request_id, answer, "so")))

    def begin_job(self) -> None:
        """Let a command go on in the background."""
        number = len(self.watcher.jobs.begun) + 1
        self.jobs.append(JobStarted(f"job-{number}", "make", 100 + number, 7))
        self.say(stimuli.JobBegan(self.at_ms, self.jobs[-1]))

    def end_job(self, status: JobStatus, pick: int = 0, *, is_known: bool = False) -> None:
        """End a job; the message about it comes before the record, unless the session knows already."""
        job = self.jobs.pop(pick % len(self.jobs))
        job_id = job.job_id
        news: list[Stimulus] = [stimuli.JobOver(self.at_ms, JobEnded(job_id, status, total_bytes=3))]
        if not is_known:
            text, by = f"{job_id} ended", job.asked_by
            joins = self.live.interrupted
            name = make_job_message_id(job_id)
            news.insert(0, stimuli.Incoming(self.at_ms, name, text, "follow_up", "notice", by, joins=joins))
        for each in news:
            self.say(each)

    def _begin(self, execute: todo.ExecuteCall) -> None:
        key = execute.call.key
        call = self.live.calls.get(key)
        if call is not None and key not in self.running:
            self.running[key] = call.call
            self.begun.append(key)

    def _abort(self, abort: todo.AbortCalls) -> None:
        for key in abort.keys:
            self.preparing.pop(key, None)
            call = self.live.calls.get(key)
            if key in self.running:
                self._cancelled.add(key)
            elif call is not None:
                self._due.append(finished(self.at_ms, key, call.call, "skipped"))

    # The supervisor.

    def report(self) -> None:
        """Make what the host reports durable, then carry out what came with it."""
        self.durable += self.unreported
        held_back = self.held_back
        self.unreported, self.held_back, self.untaken = [], [], []
        self.watcher.effects.reported(self.durable)
        for instruction in held_back:
            self._supervise[type(instruction)](instruction)
        if any(at_ms <= self.at_ms for at_ms in self.alarms):
            self.ring()

    def lose_host(self) -> None:
        """Lose the host; another adopts the session and gets what the first had not confirmed."""
        untaken = self._leave()
        self.watcher.rolled_back(self.durable, self.live)
        steps: list[Callable[[], None]] = [partial(self._take, stimuli.Recovered(self.at_ms)), self.adopt]
        steps += [partial(self.give, stimulus, repeats=True) for stimulus in untaken]
        new_facts: list[SessionFact] = []
        told: list[SessionInstruction] = []
        for step in steps:
            step()
            new_facts += self.facts
            told += self.told
        self.facts, self.told = new_facts, told

    @property
    def is_restful(self) -> bool:
        """Whether the session may be passivated: nothing runs and nothing is on its way."""
        on_host = (self.preparing, self.running, self.consulting, self.jobs, self.unreported, self.held_back)
        return not any((*on_host, self.untaken, self.committing))

    def passivate(self) -> None:
        """Take the session off its host and wake it on another one."""
        self._leave()
        self.watcher.woken(self.durable, self.live)
        self.adopt()

    def _leave(self) -> list[Stimulus]:
        untaken = self.untaken
        self.preparing, self.running, self.consulting, self.jobs = {}, {}, [], []
        self.programs = {}
        self.unreported, self.held_back, self.untaken = [], [], []
        self._cancelled.clear()
        self._due.clear()
        self._past = [each for each in self._past if each[1]]
        self.live = self.machine.rebuild(self.spec, self.limits, self.durable)
        return untaken

    def _ask(self, ask: ApprovalAsked) -> None:
        if ask.request_id not in self.requests and ask.request_id not in self.decided:
            self.requests.append(ask.request_id)
        if ask.runs_at_once:
            self.intents[ask.request_id] = CallIntended(ask.call)

    def _last_word(self, answer: todo.AnswerMessages) -> None:
        for message_id in answer.message_ids:
            self.words[message_id] = None if answer.error is not None else answer.text

    def commit(self, index: int = 0) -> None:
        """Tell that intents are durable."""
        self.give(stimuli.IntentsCommitted(self.at_ms, self.committing.pop(index)))

    def decide(self, request_id: str, decision: str, by: str = "ada", *, at_once: bool = False) -> None:
        """Answer an approval request; ``at_once``: the intent is made durable with it."""
        self.requests.remove(request_id)
        self.decided[request_id] = decision
        intent = self.intents.pop(request_id, None)
        intended = at_once and decision == "approved" and intent is not None
        if intent is not None and intended:
            self.durable.append(intent)
            self.watcher.effects.reported(self.durable)
            self.watcher.effects.read_committed([intent.call.key])
            self.watcher.effects.approved.add(intent.call.key)
        self.give(stimuli.ApprovalAnswered(self.at_ms, request_id, decision, by, "because", intended))

    def hear(
        self,
        message_id: str,
        text: str = "hello",
        mode: Any = "follow_up",
        origin: Any = "user",
        by: Any = (),
    ) -> None:
        """Bring a message of somebody."""
        self.give(stimuli.Incoming(self.at_ms, message_id, text, mode, origin, by))

    def hear_report(self, message_id: str, text: str, *, followed: bool) -> None:
        """Bring a child's report, maybe with the next one behind it."""
        incoming = stimuli.Incoming(self.at_ms, message_id, text, "follow_up", "child")
        self.untaken.append(incoming)
        self._past.append((incoming, True))
        self._take(replace(incoming, followed=followed))  # only its host sees what is behind it

    def answer(self, message: AssistantMessage, index: int = 0, *, context_tokens: int | None = None) -> None:
        """Let the model reply to a question that is out."""
        turn = self.questions.pop(index)
        self.give(
            stimuli.ModelAnswered(self.at_ms, turn, message, "fail", context_tokens),
        )

    def overflows(self, index: int = -1) -> None:
        """Let the model say that a question that is out is longer than its context."""
        turn = self.questions.pop(index)
        self.give(stimuli.ModelFailed(self.at_ms, turn, "9 tokens > 8", overflow=True))

    def ring(self, passed_ms: int = 0) -> None:
        """Let time pass; whoever wanted to be woken by now is."""
        self.at_ms += passed_ms
        self.alarms = {at_ms for at_ms in self.alarms if at_ms > self.at_ms}
        self.give(stimuli.Rang(self.at_ms))

    # Short words for examples.

    def replies(self, *calls: ToolCall, text: str = "") -> None:
        """Let the model reply to the newest question once everything before is reported."""
        self.report()
        self.answer(reply(*calls, text=text), -1)

    def runs(self, *calls: ToolCall) -> None:
        """Let the model reply with calls that are checked, and begun where nobody is asked."""
        self.replies(*calls)
        while self.preparing or self.committing or self.held_back:
            self.report()
            if self.committing:
                self.commit()
            elif self.preparing:
                self.prepare(next(iter(self.preparing)))

    def work_on(self, key: str) -> None:
        """Make a call's intent durable and tell the session."""
        self.report()
        self.commit(next(index for index, keys in enumerate(self.committing) if key in keys))

    def asks_outside(self, call_id: str, asked: ToolCall) -> None:
        """Let the creating program ask for a call, and its check be done."""
        self.give(stimuli.CallAsked(self.at_ms, call_id, asked.name, asked.arguments))
        for key in list(self.preparing):
            self.prepare(key)
        self.report()

    def stops(self, status: Any = "cancelled", reason: str = "enough") -> None:
        """Tell the session to stop."""
        self.give(stimuli.CancelAsked(self.at_ms, reason, status))

    def interrupts(self, name: str = "p1", reason: str = "enough") -> None:
        """Tell the session to drop what it does."""
        self.give(stimuli.WorkInterrupted(self.at_ms, name, reason))

    def found(self, kind: type[T]) -> list[T]:
        """Return the facts, instructions and events for the tree of a type that came last."""
        both: list[object] = [*self.facts, *self.told]
        return [each for each in both if isinstance(each, kind)] + sent(self.told, kind)

    def result_of(self, key: str) -> str:
        """Return a call's outcome."""
        resolved = self.watcher.calls.calls[key].resolved
        assert resolved is not None, f"{key} has no result"
        return resolved.outcome

    def shown(self) -> list[str]:
        """Return the transcript in short: who says what."""
        names = {UserMessage: "user", AssistantMessage: "model", ToolResultMessage: "result"}
        return [f"{names[type(message)]}: {message.text}" for message in self.live.transcript]

    # Both together.

    def chores(self) -> list[Callable[[], None]]:
        """Return everything host and supervisor could do next without anybody saying anything new."""
        found: list[Callable[[], None]] = []
        if self.unreported or self.held_back or self.untaken:
            found.append(self.report)
        found += [partial(self.commit, index) for index in range(len(self.committing))]
        found += [partial(self.prepare, key) for key in self.preparing]
        found += [partial(self.finish, key) for key in self.running]
        return found

    def work(self, most: int = MAX_CHORES) -> None:
        """Do chores, as many as said, or until none is left."""
        for _ in range(most):
            chores = self.chores()
            if not chores:
                return
            chores[0]()
        assert most < MAX_CHORES, "S20: host and supervisor never run out of work"

    def settle(self, text: str = '{"n": 1}') -> None:
        """Answer everything: approvals with no, the model with a final message, until nothing waits."""
        for _ in range(MAX_CHORES):
            self.work()
            if self.requests:
                self.decide(self.requests[0], "denied")
            elif self.consulting:
                self.consult(self.consulting[0])
            elif self.questions:
                self.answer(reply(text=text))
            elif self.alarms:
                self.ring(max(0, min(self.alarms) - self.at_ms))
            else:
                break
        else:
            raise AssertionError("S20: the session never comes to rest")
        self.ring()
        self.watcher.settled(self.live, self.told)
