"""Calls the creating program answers: one answer each, taken back when overtaken, else owed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import CallDelegated, CallParked, CallResolved, SessionFact
from sessiontree.contracts.facts.stimuli import ClientCallDelegated, ClientCallWithdrawn, Stimulus
from sessiontree.contracts.recorded import codec
from sessiontree.contracts.recorded.client_calls import ClientAnswer
from sessiontree.contracts.recorded.programs import ProgramCall
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    ToolResultMessage,
    UserMessage,
)
from sessiontree.session import instructions as todo
from sessiontree.session.calls import Decision
from sessiontree.session.decide import decide
from sessiontree.session.evolve import evolve
from sessiontree.session.state import SessionState, make_initial_state
from tests.unit.session.machine_fixtures import REAL, Machine, broken, rebuild
from tests.unit.session.session_fixtures import TOOLS, call, finished, reply, spec, verdict

TIMEOUT_MS = 60_000
ANSWER = ClientAnswer(ToolResult("yes"))


class Desk:
    """A session whose every call is the program's, its host, and a program that answers."""

    def __init__(self, machine: Machine = REAL, *, patience_s: float | None = None, grace: int = 0) -> None:
        """Start with the model asked."""
        self.machine = machine
        self.spec = spec()
        self.limits = Limits(approval_patience_s=patience_s)
        self.state = make_initial_state(self.spec, self.limits)
        self.at_ms = 0
        self.facts: list[SessionFact] = []
        self.told: list[Any] = []
        self.asking = False
        self.open: dict[str, ClientCallDelegated] = {}
        """What the program sees waiting."""
        self.ends: dict[str, str] = {}
        self.taken: Counter[str] = Counter()
        """Answers taken, by call."""
        self.late: list[str] = []
        self.of: dict[str, str] = {}
        """Answer to call."""
        self.minted = 0
        self.give(stimuli.Adopted(0, tuple(TOOLS), "model", "You work."))

    def give(self, stimulus: Stimulus) -> None:
        """Take one step, its host's work included; what the host hears again is heard too."""
        queue = [stimulus]
        while queue:
            facts, told = self.machine.react(self.state, queue.pop(0))
            self.facts += facts
            self.told += told
            for each in told:
                queue += self._carry(each)
        delegated = {each.client_id for each in self.state.calls.values() if each.phase == "delegated"}
        assert delegated == self.open.keys(), "OWED: the program sees other calls than those that wait"
        assert self.taken.total() == len(self.taken), "ONE: a call has two answers"

    def _carry(self, one: Any) -> list[Stimulus]:
        if isinstance(one, todo.PrepareCall):
            checked = verdict(self.at_ms, one.key, one.call)
            return [checked]
        if isinstance(one, todo.AwaitCommit):
            return [stimuli.IntentsCommitted(self.at_ms, one.keys)]
        if isinstance(one, todo.ExecuteCall):
            self.minted += 1
            expires = self.at_ms + TIMEOUT_MS
            name = f"client{self.minted}"
            return [stimuli.CallHandedOver(self.at_ms, name, one.call, expires)]
        if isinstance(one, todo.AbortCalls):
            # A program whose time is over has its result before its process has ended.
            calls = [self.state.calls[key] for key in one.keys if key in self.state.calls]
            return [finished(self.at_ms, each.key, each.call, "skipped") for each in calls]
        if isinstance(one, todo.TakeAnswer):
            asked = self.state.calls[one.key].call
            return [replace(finished(self.at_ms, one.key, asked, "ok"), answer_id=one.answer_id)]
        self._supervise(one)
        return []

    def _supervise(self, one: Any) -> None:
        if isinstance(one, todo.CallModel):
            self.asking = True
        elif isinstance(one, todo.ToTree) and isinstance(one.event, ClientCallDelegated):
            self.open[one.event.client_id] = one.event
        elif isinstance(one, todo.ToTree) and isinstance(one.event, ClientCallWithdrawn):
            ended = one.event.ended
            assert self.open.pop(ended.client_id, None) is not None, "OWED: taken back and was not owed"
            self.ends[ended.client_id] = ended.how
        elif isinstance(one, todo.SettleAnswer):
            client_id = self.of.pop(one.answer_id)
            if one.taken:
                assert self.ends[client_id] == "ok", "ONE: an answer is taken for a call that has another end"
                self.taken[client_id] += 1
            else:
                self.late.append(client_id)

    def replies(self, *tools: str) -> None:
        """Let the model reply with calls of these tools, or a final message."""
        self.asking = False
        calls = [call(tool, number, call_id=f"c{number}") for number, tool in enumerate(tools)]
        message = reply(*calls) if calls else reply(text="word")
        self.give(stimuli.ModelAnswered(self.at_ms, self.state.turn, message))

    def answer(self, client_id: str) -> None:
        """Answer a call."""
        name = f"a{len(self.of)}.{self.minted}.{len(self.late)}.{self.taken.total()}"
        self.of[name] = client_id
        self.give(stimuli.ClientAnswered(self.at_ms, client_id, name, ANSWER))
        assert name not in self.of, "ONE: nobody says what became of an answer"

    def ring(self, passed_ms: int) -> None:
        """Let time pass."""
        self.at_ms += passed_ms
        self.give(stimuli.Rang(self.at_ms))
        overdue = [each for each in self.open.values() if each.expires_at_ms <= self.at_ms]
        assert not overdue, "TIME: calls wait beyond their time"

    def lose(self) -> None:
        """Another host takes the session up."""
        self.check_replay()
        facts = [codec.from_wire(json.loads(codec.pack(fact))) for fact in self.facts]
        self.state = self.machine.rebuild(self.spec, self.limits, facts)
        self.told.clear()
        self.give(stimuli.Recovered(self.at_ms))
        woken = {each.at_ms for each in self.told if isinstance(each, todo.WakeSessionAt)}
        due = {each.expires_at_ms for each in self.open.values()}
        assert due <= woken, "TIME: nobody rings for a call after a loss"

    def check_replay(self) -> None:
        """The facts alone make the state."""
        replayed = rebuild(self.spec, self.limits, self.facts)
        assert replayed == self.state, "S38: replay differs"

    def stop(self) -> None:
        """Tell the session to stop."""
        self.give(stimuli.CancelAsked(self.at_ms, "enough", "cancelled"))
        assert not self.open, "STOP: a call is owed to a session that stops"


class ClientCallRules(RuleBasedStateMachine):
    """Any order of replies, answers, messages, time, losses and a stop."""

    machine: Machine = REAL

    @initialize(patience_s=st.sampled_from([None, 0.0, 30.0]))
    def begin(self, patience_s: float | None) -> None:
        """A session begins."""
        self.desk = Desk(self.machine, patience_s=patience_s)
        self.said = 0

    @precondition(lambda self: self.desk.asking and self.desk.state.stopping is None)
    @rule(tools=st.lists(st.sampled_from(["look", "note", "mark"]), max_size=3))
    def model_replies(self, tools: list[str]) -> None:
        """The model asks for calls, or says a final message."""
        self.desk.replies(*tools)

    @rule(pick=st.integers(0, 5), late=st.booleans())
    def program_answers(self, pick: int, late: bool) -> None:
        """The program answers a call that waits, or one that waits no more."""
        known = [*self.desk.ends, "made up"] if late or not self.desk.open else [*self.desk.open]
        self.desk.answer(known[pick % len(known)])

    @rule(mode=st.sampled_from(["follow_up", "steer", "steer"]))
    def somebody_speaks(self, mode: Any) -> None:
        """A message comes; a steering one takes back what the open reply waits for."""
        self.said += 1
        own = self.desk.state.calls.values()
        stays = {each.client_id for each in own if each.parked or each.outside}
        self.desk.give(stimuli.Incoming(self.desk.at_ms, f"m{self.said}", "hello", mode, "user"))
        if mode == "steer":
            assert self.desk.open.keys() <= stays, "STEER: a call goes on that a message overtook"

    @rule(tool=st.sampled_from(["look", "note"]))
    def program_calls(self, tool: str) -> None:
        """The program itself makes a call."""
        self.said += 1
        self.desk.give(stimuli.CallAsked(self.desk.at_ms, f"o{self.said}", tool, {"n": 1}))

    @rule(passed_ms=st.sampled_from([1, 30_000, 61_000]))
    def time_passes(self, passed_ms: int) -> None:
        """Time passes, sometimes too much of it."""
        self.desk.ring(passed_ms)

    @rule()
    def host_is_lost(self) -> None:
        """The host is lost; the program is owed to as before."""
        before = set(self.desk.open)
        self.desk.lose()
        assert self.desk.open.keys() == before, "OWED: a loss changes what the program is owed"

    @precondition(lambda self: self.said > 1)
    @rule()
    def stop(self) -> None:
        """The session stops."""
        self.desk.stop()

    def teardown(self) -> None:
        """Each call of the transcript has one result, and what was parked is reported."""
        if not hasattr(self, "desk"):
            return
        self.desk.check_replay()
        transcript = self.desk.state.transcript
        asked = [
            each.id for one in transcript if isinstance(one, AssistantMessage) for each in one.tool_calls
        ]
        results = [each.tool_call_id for each in transcript if isinstance(each, ToolResultMessage)]
        shown = len(results) - len(asked)
        assert shown == 0 or self.desk.state.reply_keys, "P33: calls without results, or too many"
        parked = {fact.key for fact in self.desk.facts if isinstance(fact, CallParked)}
        resolved = {fact.key for fact in self.desk.facts if isinstance(fact, CallResolved)}
        notices = {f"{key}:outcome" for key in parked & resolved}
        assert notices <= self.desk.state.heard.keys(), "NOTICE: a late answer is not reported"


SEARCH = settings(
    max_examples=120,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    phases=(Phase.generate,),
)


def check(machine: Machine) -> None:
    """Run the rules over a machine."""
    rules = type("Rules", (ClientCallRules,), {"machine": machine})
    run_state_machine_as_test(rules, settings=SEARCH)


def changed(kind: type[Any], other: Any) -> Machine:
    """Return a machine that decides otherwise on one kind of stimulus."""

    def planted(state: SessionState, stimulus: Stimulus) -> Decision:
        decision = decide(state, stimulus)
        if isinstance(stimulus, kind):
            other(state, stimulus, decision)
        return decision

    return broken(decide=planted)


def _without(*kinds: type[Any]) -> Any:
    def drop(state: SessionState, stimulus: Any, decision: Decision) -> None:
        decision.instructions[:] = [
            each
            for each in decision.instructions
            if not isinstance(each.event if isinstance(each, todo.ToTree) else each, kinds)
        ]

    return drop


def _always_taken(state: SessionState, stimulus: Any, decision: Decision) -> None:
    decision.instructions[:] = [
        replace(each, taken=True) if isinstance(each, todo.SettleAnswer) else each
        for each in decision.instructions
    ]


def _nothing(state: SessionState, stimulus: Any, decision: Decision) -> None:
    decision.facts.clear()
    decision.instructions.clear()


def _forgets_the_call(state: SessionState, fact: SessionFact) -> SessionState:
    evolve(state, fact)
    if isinstance(fact, CallDelegated) and fact.call.key in state.calls:
        state.calls[fact.call.key].expires_at_ms = 2**60
    return state


PLANTED: dict[str, Machine] = {
    "a steering message leaves the program's call": changed(stimuli.Incoming, _without(ClientCallWithdrawn)),
    "a stop leaves the program's calls": changed(stimuli.CancelAsked, _without(ClientCallWithdrawn)),
    "an overdue call waits on": changed(stimuli.Rang, _nothing),
    "a late answer counts": changed(stimuli.ClientAnswered, _always_taken),
    "nobody hears what became of an answer": changed(stimuli.ClientAnswered, _without(todo.SettleAnswer)),
    "an answer is no end": changed(stimuli.CallFinished, _without(ClientCallWithdrawn)),
    "nobody rings after a loss": changed(stimuli.Recovered, _without(todo.WakeSessionAt)),
    "the time of a call is not kept": broken(evolve=_forgets_the_call),
}


@pytest.mark.covers("I32")
@pytest.mark.slow
def test_every_call_has_one_end_and_the_program_sees_what_waits() -> None:
    """Through any order of events, on the real machine."""
    check(REAL)


@pytest.mark.short(4)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found(name: str) -> None:
    """The rules fail on a machine that breaks one of them."""
    with pytest.raises((AssertionError, KeyError)):
        check(PLANTED[name])


def test_answer_whose_call_has_ended_meanwhile_is_late() -> None:
    """Hooks may look at an answer while a message overtakes the call: the answer is reported late."""
    desk = Desk()
    desk.replies("note")
    (client_id,) = desk.open
    (key,) = desk.state.calls
    result = replace(finished(0, key, desk.state.calls[key].call, "ok"), answer_id="a1")
    desk.of["a1"] = client_id
    desk.give(stimuli.Incoming(0, "m1", "stop that", "steer", "user"))
    desk.give(result)
    assert (desk.late, desk.taken.total(), desk.ends) == ([client_id], 0, {client_id: "aborted"})


def test_parked_call_survives_a_steering_message() -> None:
    """The model has its pending envelope and goes on; the answer is reported as a notice, and wakes it."""
    desk = Desk(patience_s=0.0)
    desk.replies("note")
    (client_id,) = desk.open
    desk.give(stimuli.Rang(desk.at_ms))
    message = desk.state.transcript[-1]
    assert isinstance(message, ToolResultMessage)
    assert json.loads(message.text) == {
        "status": "pending",
        "tool": "note",
        "message": "Tool execution delegated to client",
        "requestId": client_id,
    }
    desk.give(stimuli.Incoming(0, "m1", "stop that", "steer", "user"))
    assert desk.open.keys() == {client_id}
    desk.replies()
    desk.replies()
    (key,) = desk.state.calls
    result = finished(0, key, desk.state.calls[key].call, "ok")
    picture = ImageContent("aGk=", "image/png")
    late = replace(result.message, content=(*result.message.content, picture))
    desk.give(replace(result, message=late))
    notices = [each for each in desk.state.transcript if isinstance(each, UserMessage)]
    assert notices[-1].origin == "notice"
    assert "is settled (ok): note" in notices[-1].text
    assert notices[-1].content[1:] == (picture,)
    assert desk.asking


class ProgramDesk(Desk):
    """A desk whose calls of ``look`` are programs of one minute."""

    def _carry(self, one: Any) -> list[Stimulus]:
        if isinstance(one, todo.ExecuteCall) and one.call.tool == "look":
            limited = replace(one.call, arguments={"timeout_s": TIMEOUT_MS / 1000})
            return [stimuli.ProgramBegan(self.at_ms, limited)]
        return super()._carry(one)


@pytest.mark.parametrize("timeout_s", [None, TIMEOUT_MS / 1000])
def test_a_call_has_one_end_if_its_own_time_and_that_of_its_program_end_at_once(
    timeout_s: float | None,
) -> None:
    """One timer rings for the call, for its program, and for how long the program waits for the call."""
    desk = ProgramDesk()
    desk.replies("look")
    (program,) = desk.state.calls
    asked = (ProgramCall("note", {"n": 1}, timeout_s=timeout_s),)
    desk.give(stimuli.ProgramSaid(0, program, 0, asked))
    (client_id,) = desk.open
    desk.ring(TIMEOUT_MS)
    ends = [(fact.key, fact.outcome) for fact in desk.facts if isinstance(fact, CallResolved)]
    assert ends == [(f"{program}/0", "timeout"), (program, "timeout")]
    assert desk.ends == {client_id: "timeout"}
    desk.check_replay()


def test_a_program_has_one_end_if_its_time_and_that_of_the_program_around_it_end_at_once() -> None:
    """The outer one stops it; the call that it handed over has one end as well."""
    desk = ProgramDesk()
    desk.replies("look")
    (outer,) = desk.state.calls
    desk.give(stimuli.ProgramSaid(0, outer, 0, (ProgramCall("look", {"n": 1}),)))
    inner = f"{outer}/0"
    desk.give(stimuli.ProgramSaid(0, inner, 0, (ProgramCall("note", {"n": 1}),)))
    desk.ring(TIMEOUT_MS)
    ends = Counter(fact.key for fact in desk.facts if isinstance(fact, CallResolved))
    assert ends == {outer: 1, inner: 1, f"{inner}/0": 1}
    assert not desk.open
    desk.check_replay()
