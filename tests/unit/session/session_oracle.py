"""A second opinion on one session: keeps books from facts alone and says, step by step, what must never be.

STEER: what a steering message overtakes is stopped. S20: nothing waits without need. HELD: calls from outside
wait for the end of a turn, and no longer. The books say the rest; ``endings`` says what is offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.facts.stimuli import (
    ApprovalAsked,
    Incoming,
    ResultOffered,
    Stimulus,
    TroubleReported,
)
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.messages import UserMessage
from sessiontree.session import instructions as todo
from sessiontree.session.instructions import SessionInstruction
from sessiontree.session.state import SessionState, make_initial_state
from tests.unit.session.asker_oracle import AskerBooks
from tests.unit.session.call_oracle import CallBook, CallBooks
from tests.unit.session.effect_oracle import EffectBooks
from tests.unit.session.ending_oracle import judge_ending
from tests.unit.session.job_oracle import BackgroundJobBooks
from tests.unit.session.judge_oracle import Judge
from tests.unit.session.machine_fixtures import Machine
from tests.unit.session.replay_oracle import Replay
from tests.unit.session.retry_oracle import RetryBooks
from tests.unit.session.session_fixtures import sent
from tests.unit.session.turn_oracle import TurnBooks


class Watcher:
    """Watches one session from its first step on, through every loss of its host."""

    def __init__(self, machine: Machine, spec: SessionSpec, limits: Limits, only: Iterable[str] = ()) -> None:
        """Know nothing yet; watch the rules named, or all."""
        self.judge = Judge(only)
        self.spec = spec
        self.limits = limits
        self.at_ms = 0
        self.effects = EffectBooks(self.judge)
        self.replay = Replay(self.judge, machine, make_initial_state(spec, limits))
        self.aborted: set[str] = set()
        self._asked: set[int] = set()
        """Turns the model was asked for since the last recovery."""
        self._alarms: set[int] = set()
        self._repeats = False
        self._given_up: set[str] = set()
        self._had_news = False
        self._fresh: CallBook | None = None
        self._jobs_before: tuple[facts.JobStarted, ...] = ()
        self._begun_jobs: set[str] = set()
        self._open_books()

    def _open_books(self) -> None:
        self.calls = CallBooks(self.judge)
        self.retries = RetryBooks(self.judge, self.calls)
        self.turns = TurnBooks(self.judge, self.calls, self.spec, self.limits)
        self.askers = AskerBooks(self.judge, self.spec)
        self.jobs = BackgroundJobBooks(self.judge, self.askers, self.turns, self._begun_jobs)

    def begin(self, stimulus: Stimulus, *, repeats: bool) -> None:
        """Note what is about to happen; ``repeats``: it happened before."""
        self.at_ms = stimulus.at_ms
        self._repeats = repeats
        self._given_up = set(self.retries.given_up)
        self._had_news = self.turns.has_news
        self._fresh = None
        self._jobs_before = tuple(self.jobs.running.values())
        if isinstance(stimulus, stimuli.IntentsCommitted):
            self.effects.read_committed(stimulus.keys)
        elif isinstance(stimulus, stimuli.Recovered):
            self._asked.clear()
        elif isinstance(stimulus, stimuli.CallPrepared | stimuli.CallRejected):
            self._fresh = self._still_unchecked(stimulus.call.key)

    def _book(self, fact: SessionFact) -> None:
        self.retries.book(fact)
        self.calls.book(fact, in_turn=self.turns.in_turn)
        self.turns.book(fact)
        self.askers.book(fact)
        self.jobs.book(fact)

    def rolled_back(self, durable: Sequence[SessionFact], live: SessionState) -> None:
        """Forget everything that is not durable."""
        self.aborted.clear()
        self._alarms.clear()
        self._asked.clear()
        self.effects.rolled_back()
        self._open_books()
        self.judge.looks_away = True
        for fact in durable:
            self._book(fact)
        self.judge.looks_away = False
        self.replay.rebuilt(durable, live)

    def woken(self, durable: Sequence[SessionFact], live: SessionState) -> None:
        """Another host has a session that rested; the model is still being asked."""
        asked, alarms = set(self._asked), set(self._alarms)
        self.rolled_back(durable, live)
        self._asked, self._alarms = asked, alarms

    # Judging a step.

    def end(
        self,
        live: SessionState,
        stimulus: Stimulus,
        new_facts: list[SessionFact],
        told: list[SessionInstruction],
    ) -> None:
        """Judge what a step said and left behind."""
        self.replay.step(live, stimulus, new_facts)
        for fact in new_facts:
            self._book(fact)
            if isinstance(fact, facts.TurnFailed):
                self._asked.discard(fact.turn)
        for instruction in told:
            self._judge_instruction(instruction)
        self._judge_check(stimulus, new_facts, told)
        self._judge_gaps(stimulus, new_facts, told)
        self._judge_parking(new_facts)
        self._judge_interrupt(new_facts, told)
        self._judge_steering()
        self._judge_retry(stimulus)
        self._judge_waiting(stimulus)
        judge_ending(
            self.judge, self.turns, self.calls, told, is_nothing=self._is_nothing(stimulus, new_facts)
        )
        stops = self.turns.stopping is not None
        self.jobs.judge_step(stimulus, self._jobs_before, new_facts, live, stops=stops)
        self._judge_transcript(live)

    @staticmethod
    def _is_nothing(stimulus: Stimulus, new_facts: list[SessionFact]) -> bool:
        """Whether nothing follows: a check that only lets a reading call run, or a report before others."""
        followed = isinstance(stimulus, Incoming) and stimulus.followed
        return followed or (isinstance(stimulus, stimuli.CallPrepared) and not new_facts)

    def _judge_instruction(self, instruction: SessionInstruction) -> None:
        begins = (todo.CallModel, todo.PrepareCall, todo.ExecuteCall, todo.RunApprover)
        begun = isinstance(instruction, begins) or bool(sent([instruction], ApprovalAsked))
        stopped = self.turns.stopping is not None
        self.judge.require(
            not (stopped and begun),
            "STOP",
            f"{instruction} though it is to stop",
        )
        if isinstance(instruction, todo.ExecuteCall):
            self.runs(instruction)
        elif isinstance(instruction, todo.PrepareCall):
            self.askers.prepared(instruction)
        elif isinstance(instruction, todo.AbortCalls):
            self.aborted.update(instruction.keys)
            own = stopped or self.turns.interrupted or set(instruction.keys) <= set(self.turns.open_keys)
            self.judge.require(own, "STEER", f"{instruction.keys} are aborted and not of the open reply")
        elif isinstance(instruction, todo.CallModel):
            turn = instruction.turn
            right = turn == self.turns.turn and turn not in self._asked and self.turns.is_asking
            self.judge.require(right, "TURN", f"the model is asked again for turn {turn}")
            self._asked.add(turn)
        elif isinstance(instruction, todo.WakeSessionAt):
            self._alarms.add(instruction.at_ms)

    def runs(self, execute: todo.ExecuteCall) -> None:
        """Judge a call that is to run."""
        key = execute.call.key
        again = self._repeats or key in self.effects.inherited
        self.effects.told(self.calls.calls.get(key), execute, again=again)
        overtaken = key in self.aborted and not again
        self.judge.require(not overtaken, "STEER", f"{key} runs after it was to be aborted")

    def _still_unchecked(self, key: str) -> CallBook | None:
        call = self.calls.calls.get(key)
        if call is None or call.resolved is not None or call.wanted is not None or call.intended is not None:
            return None
        return None if call.is_held or key in self.effects.here else call

    def _judge_check(
        self, stimulus: Stimulus, new_facts: list[SessionFact], told: list[SessionInstruction]
    ) -> None:
        """What follows from the check of a call that nothing was known of yet."""
        call = self._fresh
        if call is None or self.turns.stopping is not None:
            return
        resolved = [fact.outcome for fact in new_facts if isinstance(fact, facts.CallResolved)]
        if call.asked.name in self._given_up and not call.outside:
            self.judge.require(resolved == ["denied"], "P24", f"{call.key} is not refused")
        elif isinstance(stimulus, stimuli.CallRejected):
            counted = any(isinstance(fact, facts.ArgumentsRejected) for fact in new_facts)
            right = resolved == ["invalid"] and counted is not call.outside
            self.judge.require(right, "P21", f"{call.key} does not fit and is {resolved}")
        else:
            goes_on = call.wanted is not None or call.intended is not None or call.is_held
            joins = resolved == ["pending"] and call.needs_approval
            runs = any(isinstance(each, todo.ExecuteCall) and each.call.key == call.key for each in told)
            self.judge.require(goes_on or joins or runs, "P25", f"{call.key} fits and nothing follows")

    def _judge_gaps(
        self, stimulus: Stimulus, new_facts: list[SessionFact], told: list[SessionInstruction]
    ) -> None:
        """What has to come together comes together."""
        stops = [fact for fact in new_facts if isinstance(fact, facts.Stopping)]
        if isinstance(stimulus, stimuli.CancelAsked):
            told_to = facts.Stopping(stimulus.reason, stimulus.status)
            right = stops in ([told_to], []) and self.turns.stopping is not None
            self.judge.require(right, "STOP", f"{stops} follow {stimulus}")
        given_up = [fact.tool for fact in new_facts if isinstance(fact, facts.ToolGivenUp)]
        reported = [each.trouble.tool for each in sent(told, TroubleReported)]
        right = not self.retries.owed and given_up == reported
        self.judge.require(
            right, "P24", f"{given_up} given up, {reported} reported, {self.retries.owed} owed"
        )
        self.judge.require(not self.calls.untold, "NOTICE", f"{self.calls.untold} is not reported")
        rested = [each for fact in new_facts if isinstance(fact, facts.RunFinished) for each in fact.answers]
        answered = [each for one in told if isinstance(one, todo.AnswerMessages) for each in one.message_ids]
        self.judge.require(
            bool(stops) or rested == answered, "ANSWER", f"{rested} rested, {answered} answered"
        )
        outside = [
            self.calls.calls[fact.key].asked.id
            for fact in new_facts
            if isinstance(fact, facts.CallResolved) and fact.key.startswith("call.")
        ]
        replied = [each.call_id for each in told if isinstance(each, todo.AnswerCall)]
        self.judge.require(outside == replied, "HELD", f"{outside} have results, {replied} are answered")
        asked = not self.turns.is_asking or self.turns.turn in self._asked
        self.judge.require(asked, "TURN", f"nobody asks the model for turn {self.turns.turn}")

    def _judge_interrupt(self, new_facts: list[SessionFact], told: list[SessionInstruction]) -> None:
        """Of what was under way nothing goes on, and who waited for it hears so."""
        if not any(isinstance(fact, facts.Interrupted) for fact in new_facts):
            return
        for call in self.calls.unresolved():
            self.judge.require(call.key in self.aborted, "CUT", f"{call.key} goes on")
        cut = [fact.turn for fact in new_facts if isinstance(fact, facts.TurnCut)]
        withdrawn = [each.turn for each in told if isinstance(each, todo.WithdrawQuestion)]
        self.judge.require(cut == withdrawn, "CUT", f"{withdrawn} are withdrawn, {cut} are cut")
        words = [each for each in told if isinstance(each, todo.AnswerMessages)]
        right = all(each.interrupted and each.error is not None for each in words)
        self.judge.require(right and not self.turns.taken, "CUT", f"{words} answer {self.turns.taken}")

    def _judge_retry(self, stimulus: Stimulus) -> None:
        """A model that is to be asked again is, by a bell."""
        at_ms = self.turns.retry_at_ms
        if at_ms is not None:
            self.judge.require(
                at_ms in self._alarms, "RETRY", "no bell rings for the model to be asked again"
            )
            rang = isinstance(stimulus, stimuli.Rang) and stimulus.at_ms >= at_ms
            self.judge.require(not rang, "RETRY", "the model is not asked again in time")

    def _judge_steering(self) -> None:
        if not self.turns.is_steered and self.turns.stopping is None:
            return
        if self.turns.is_compacting and self.turns.stopping is None:
            return  # the next turn takes the message, and needs the summary
        waits = (self.turns.is_asking or self.turns.retry_at_ms is not None) and self.turns.stopping is None
        self.judge.require(not waits, "STEER", "the model is still waited for")
        keys = self.turns.open_keys if self.turns.stopping is None else list(self.calls.calls)
        rule = "STEER" if self.turns.stopping is None else "STOP"
        for key in keys:
            call = self.calls.calls[key]
            parked = call.parked is not None and self.turns.stopping is None
            through = call.resolved is not None or parked or key in self.aborted
            self.judge.require(through, rule, f"{key} is not overtaken")

    def _judge_waiting(self, stimulus: Stimulus) -> None:
        if isinstance(stimulus, stimuli.ApprovalAnswered):
            asking = [
                call.key
                for call in self.calls.calls.values()
                if call.is_asking and call.wanted is not None
                if call.wanted.request_id == stimulus.request_id
            ]
            self.judge.require(not asking, "S20", f"{asking} wait though they are decided")
        if self.turns.stopping is not None or (isinstance(stimulus, Incoming) and stimulus.followed):
            return  # the next report, which is there already, ends the waiting
        self._judge_patience(rang=isinstance(stimulus, stimuli.Rang))
        blocked = any(each.outside and each.intended is not None for each in self.calls.unresolved())
        spent = self.turns.run_turns >= self.limits.max_turns
        news = [each for each in self.turns.waiting if each.wakes]
        started = all(each.message.origin == "notice" for each in news) if spent else not news
        self.judge.require(self.turns.in_turn or blocked or started, "S20", "messages wait for nothing")
        held = [call.key for call in self.calls.unresolved() if call.is_held]
        self.judge.require(self.turns.in_turn or blocked or not held, "HELD", f"{held} wait for nothing")

    def _judge_patience(self, *, rang: bool) -> None:
        """When only approvals are out, the model goes on by a bell after a while, or when there is news."""
        waits = [self.calls.calls[key] for key in self.turns.open_keys]
        waits = [call for call in waits if call.shown is None]
        asked_at = [call.wanted.at_ms for call in waits if call.is_asking and call.wanted is not None]
        if not waits or len(asked_at) < len(waits):
            return
        keys = [call.key for call in waits]
        self.judge.require(not self.turns.has_news, "S20", f"{keys} are waited for though there is news")
        patience_s = self.limits.approval_patience_s
        if patience_s is not None:
            deadline_ms = max(asked_at) + int(patience_s * 1000)
            in_time = deadline_ms > self.at_ms or not rang
            self.judge.require(in_time, "S20", f"{keys} are waited for beyond patience")
            self.judge.require(
                deadline_ms in self._alarms, "S20", f"nobody wakes the session that waits for {keys}"
            )

    def _judge_parking(self, new_facts: list[SessionFact]) -> None:
        """The model goes on without an approval only when it has to."""
        parked = [self.calls.calls[fact.key] for fact in new_facts if isinstance(fact, facts.CallParked)]
        news = self._had_news or any(
            isinstance(fact, facts.MessageReceived) and fact.wakes for fact in new_facts
        )
        if not parked or news:
            return
        patience_s = self.limits.approval_patience_s
        asked_at = max(call.wanted.at_ms for call in parked if call.wanted is not None)
        due = patience_s is not None and asked_at + int(patience_s * 1000) <= self.at_ms
        self.judge.require(due, "S20", f"{[call.key for call in parked]} are not waited for")

    def _judge_transcript(self, live: SessionState) -> None:
        heard = [message for message in live.transcript if isinstance(message, UserMessage)]
        expected = [message for message in self.turns.transcript if isinstance(message, UserMessage)]
        self.judge.require(heard == expected, "S45", "messages stand in another order than heard")
        self.judge.require(
            live.transcript == self.turns.transcript, "P33", "results do not stand with their calls, in order"
        )

    def judge_care(self, keys: set[str]) -> None:
        """Judge what is left to itself, given the calls that somebody is at."""
        left = [call for call in self.calls.unresolved() if call.key not in keys and not call.is_asking]
        left = [call for call in left if not (call.is_held or call.is_approved)]
        self.judge.require(not left, "P33", f"nobody is at {[call.key for call in left]}")

    def settled(self, live: SessionState, told: list[SessionInstruction]) -> None:
        """Judge a session that everybody has answered."""
        left = [call.key for call in self.calls.unresolved()]
        self.judge.require(not left, "P33", f"{left} never get a result")
        idle = not self.turns.is_asking and self.turns.reply is None
        self.judge.require(idle, "S20", "the session never comes to rest")
        offers = sent(told, ResultOffered)
        ended = bool(offers) or not (self.turns.turn or self.turns.stopping)
        self.judge.require(ended, "OFFER", "nothing is offered at the end")
        self.replay.settled(live)
