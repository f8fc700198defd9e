"""Everything that can happen to a session, as a hypothesis state machine over a host and a supervisor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import ToolGivenUp
from sessiontree.contracts.handles.jobs import JobStatus
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.messages import AssistantMessage, ToolCall
from tests.unit.session.machine_fixtures import REAL, Machine
from tests.unit.session.session_fixtures import RESULT_SCHEMA, TOOLS, call, question, reply, spec
from tests.unit.session.world_fakes import World

Moves: TypeAlias = Sequence[int | str | AssistantMessage]

OLGA = Principal("olga", "", "", "", is_owner=True)
BOB = Principal("bob", "olga", "", "club", is_owner=False)
SPEAKERS = ((), (BOB,), (OLGA,), (BOB, OLGA))
picks = st.integers(0, 11)
kinds = st.sampled_from([SessionKind.BRANCH, SessionKind.BRANCH, SessionKind.MAIN])
outcomes = st.sampled_from(["ok", "ok", "ok", "error", "denied", "blocked", "timeout"])
decisions = st.sampled_from(["approved", "approved", "approved", "denied", "expired", "cancelled"])
ticks = st.sampled_from([0, 1, 5_000, 30_000, -7_000])
tools = st.sampled_from([*TOOLS, *TOOLS, "wipe", "gone"])
seldom = st.sampled_from([False, False, False, True])
mostly = st.sampled_from([True, True, True, False])
texts = st.sampled_from(['{"n": 1}', "done", '{"n": "one"}', ""])


def calls(bad: st.SearchStrategy[bool], named: st.SearchStrategy[str] = tools) -> st.SearchStrategy[ToolCall]:
    """Return calls; few arguments and ids, so that they repeat."""
    ids = st.sampled_from(["c1", "c1", "c2", "\udce9"])
    return st.builds(
        lambda tool, n, bad, name: call(tool, n, bad=bad, call_id=name), named, st.integers(0, 1), bad, ids
    )


def replies_of(strategy: st.SearchStrategy[ToolCall], most: int) -> st.SearchStrategy[AssistantMessage]:
    """Return replies with one to ``most`` calls."""
    return st.lists(strategy, min_size=1, max_size=most).map(lambda made: reply(*made))


replies: st.SearchStrategy[AssistantMessage] = st.one_of(
    replies_of(calls(seldom), 4),
    replies_of(calls(st.just(False), st.sampled_from(["wipe", "seal", "look"])), 3),
    replies_of(calls(st.just(False), st.sampled_from(["note", "mark", "look"])), 3),
    texts.map(lambda text: reply(text=text)),
)
mistakes: st.SearchStrategy[AssistantMessage] = st.one_of(
    replies_of(calls(mostly, st.just("look")), 2),
    replies_of(calls(mostly, st.just("note")), 2),
    replies_of(calls(mostly, st.just("wipe")), 2),
    st.just(reply(text="no JSON")),
)
moves = st.lists(st.one_of(picks, picks, replies, st.sampled_from(["report", "lose"])), max_size=6)
"""What goes on by itself: numbers choose chores, replies are given where the model is asked."""


class SessionRules(RuleBasedStateMachine):
    """One session through any order of events; clocks step back, hosts are lost, all may come twice."""

    machine: Machine = REAL
    only: tuple[str, ...] = ()
    patience: tuple[float | None, ...] = (0.0, 0.0, 30.0, None)
    """How long a turn may wait for an approval, in seconds."""

    @initialize(
        kind=kinds,
        typed=st.booleans(),
        pick=picks,
        max_turns=st.sampled_from([3, 5, 50]),
        task=st.sampled_from(["compare", "compare", ""]),
    )
    def adopt(self, kind: SessionKind, typed: bool, pick: int, max_turns: int, task: str) -> None:
        """A host takes the session."""
        patience_s = self.patience[pick % len(self.patience)]
        limits = Limits(approval_patience_s=patience_s, max_turns=max_turns)
        made = spec(kind, task=task, result_schema=RESULT_SCHEMA if typed else None)
        self.world = World(made, limits, self.machine, self.only)
        self.said = 0
        self.world.adopt()

    def teardown(self) -> None:
        """Whatever happened, the session comes to rest, with one result for every call."""
        if hasattr(self, "world") and self.world.is_whole:
            self.world.settle()

    # What goes on by itself.

    def go_on(self, moves: Moves) -> None:
        """Host, supervisor and model do some of what they have to do, in any order."""
        for move in moves:
            if isinstance(move, AssistantMessage):
                self.reply(move)
            elif move == "report":
                self.world.report()
            elif isinstance(move, str):
                self.lose()
            elif chores := self.world.chores():
                chores[move % len(chores)]()

    def reply(self, message: AssistantMessage) -> None:
        """Let the model reply, if it is asked."""
        if self.world.live.asking:
            self.world.report()
            self.world.answer(message, -1)

    @property
    def speaker(self) -> tuple[Principal, ...]:
        """Who says the newest message: several people and the program take turns."""
        return SPEAKERS[self.said % len(SPEAKERS)]

    def make_it_ask(self) -> None:
        """See to it that the session asks its model, if it can."""
        if not self.world.live.asking:
            self.world.work()
        if not self.world.live.asking:
            self.said += 1
            self.world.hear(f"m{self.said}", by=self.speaker)

    @rule(messages=st.lists(replies, min_size=1, max_size=3), moves=moves)
    def turns_go_on(self, messages: list[AssistantMessage], moves: Moves) -> None:
        """The model answers, and some of what it asked for is done; a few times where it may."""
        for message in messages:
            self.reply(message)
            self.go_on(moves)

    @rule(
        messages=st.lists(mistakes, min_size=2, max_size=4) | mistakes.map(lambda one: [one] * 5),
        between=st.sampled_from(["", "", "lose", "call"]),
    )
    def model_makes_mistakes(self, messages: list[AssistantMessage], between: str) -> None:
        """The model cannot spell one tool's arguments, whatever happens meanwhile."""
        self.make_it_ask()
        for message in messages:
            self.reply(message)
            self.world.work()
            if between == "lose":
                self.world.lose_host()
            elif between == "call" and message.tool_calls:
                self.program_asks(call(message.tool_calls[0].name), new=True)
                self.world.work()

    @precondition(lambda self: self.world.questions)
    @rule(message=replies, pick=picks, fails=st.booleans(), again=st.booleans())
    def old_question_is_answered(
        self, message: AssistantMessage, pick: int, fails: bool, again: bool
    ) -> None:
        """The model answers any question that is out, maybe one asked before a loss; or it cannot."""
        world = self.world
        if fails:
            turn = world.questions.pop(pick % len(world.questions))
            world.give(stimuli.ModelFailed(world.at_ms, turn, "busy", retryable=again))
        else:
            world.answer(message, pick % len(world.questions))

    @rule(times=st.integers(1, 4), passed_ms=st.sampled_from([0, 60_000]))
    def model_fails_again(self, times: int, passed_ms: int) -> None:
        """The model fails though asking again may help, and time passes."""
        self.make_it_ask()
        for _ in range(times):
            self.world.report()
            if self.world.questions:
                turn = self.world.questions.pop()
                self.world.give(stimuli.ModelFailed(self.world.at_ms, turn, "busy", retryable=True))
                self.world.report()
                self.world.ring(passed_ms)

    @rule()
    def everything_is_done(self) -> None:
        """Host and supervisor do all they have to do."""
        self.world.work()

    # Calls.

    @precondition(lambda self: self.world.running)
    @rule(pick=picks, outcome=outcomes)
    def call_finishes(self, pick: int, outcome: Any) -> None:
        """A running call ends somehow."""
        running = [*self.world.running]
        self.world.finish(running[pick % len(running)], outcome)

    @rule(pick=picks, decision=decisions, at_once=st.booleans(), twice=seldom, moves=moves)
    def approval_is_decided(self, pick: int, decision: str, at_once: bool, twice: bool, moves: Moves) -> None:
        """A request reaches its end, its intent durable with it or not; sometimes that is reported twice."""
        self.world.report()
        if self.world.requests:
            request_id = self.world.requests[pick % len(self.world.requests)]
            self.world.decide(request_id, decision, at_once=at_once)
            if twice:
                self.world.again(0)
        self.go_on(moves)

    @rule(n=st.integers(0, 1), passed_ms=ticks)
    def model_waits_for_an_approval(self, n: int, passed_ms: int) -> None:
        """The session waits for nothing but an approval, and time passes."""
        self.make_it_ask()
        self.reply(reply(call("seal" if n else "wipe", n)))
        self.world.work()
        self.world.ring(passed_ms)

    @rule(asked=calls(seldom), old=seldom, moves=moves)
    def program_calls(self, asked: ToolCall, old: bool, moves: Moves) -> None:
        """The creating program wants a call made outside the transcript; a few ids come twice."""
        self.program_asks(asked, new=not old)
        self.go_on(moves)

    @rule(n=st.integers(0, 1), says=st.booleans(), decision=decisions, cuts=st.booleans())
    def program_calls_what_needs_approval(self, n: int, says: bool, decision: str, cuts: bool) -> None:
        """The creating program waits for an approval, whatever the session does meanwhile."""
        self.program_asks(call("seal" if n else "wipe", n), new=True)
        self.world.work()
        if says:
            self.make_it_ask()
        if self.world.requests:
            self.world.decide(self.world.requests[-1], decision)
        if cuts:
            self.world.report()
            self.lose()

    def program_asks(self, asked: ToolCall, *, new: bool) -> None:
        """Bring a call of the creating program."""
        self.said += new
        self.world.give(stimuli.CallAsked(self.world.at_ms, f"o{self.said}", asked.name, asked.arguments))

    @rule(
        ends=st.sampled_from(["", "", "exited", "exited", "killed", "cut"]),
        pick=picks,
        before=moves,
        moves=moves,
    )
    def job_goes_on_or_ends(self, ends: Any, pick: int, before: Moves, moves: Moves) -> None:
        """A command goes on in the background, or one that does ends; its host may be lost at either."""
        self.go_on(before)
        if not ends or not self.world.jobs:
            self.world.begin_job()
        else:
            status: JobStatus = "failed" if ends == "cut" else ends
            self.world.end_job(status, pick, is_known=ends == "killed")
        if ends == "cut":
            self.lose()
        self.go_on(moves)

    # Messages and the family.

    @rule(
        mode=st.sampled_from(["follow_up", "steer"]),
        origin=st.sampled_from(["user", "parent", "child"]),
        old=seldom,
        moves=moves,
    )
    def hear(self, mode: Any, origin: Any, old: bool, moves: Moves) -> None:
        """Somebody says something; a few ids come twice."""
        self.said += not old
        self.world.hear(f"m{self.said}", f"words {self.said}", mode, origin, self.speaker)
        self.go_on(moves)

    @rule(count=st.integers(2, 4), old=seldom, moves=moves)
    def hear_reports(self, count: int, old: bool, moves: Moves) -> None:
        """Several children report at once; the first report may be one that came before."""
        for number in range(count):
            self.said += not (old and number == 0)
            self.world.hear_report(f"m{self.said}", f"report {self.said}", followed=number + 1 < count)
        self.go_on(moves)

    @rule(pick=picks, answer=st.sampled_from(["approve", "deny", "escalate"]))
    def somebody_below_needs_something(self, pick: int, answer: str) -> None:
        """A child gave a tool up, or a request of somebody below rests here; or the function answered one."""
        world = self.world
        if world.consulting:
            world.consult(world.consulting[0], answer)
        elif pick % 2:
            trouble = ToolGivenUp("look", 3, "/bad", "no")
            world.give(stimuli.ChildTroubled(world.at_ms, f"p{pick}", "main/b1/w1", trouble))
        else:
            asked = question(f"r{pick}", "main/b1/b1", n=1)
            world.give(stimuli.ApproverAsked(world.at_ms, asked))

    # Time, losses, repeats, the end.

    @rule(passed_ms=ticks)
    def time_passes(self, passed_ms: int) -> None:
        """Time passes, or steps back."""
        self.world.ring(passed_ms)

    @rule(before=moves, pick=st.one_of(st.integers(0, 2), st.integers(0, 30)))
    def something_comes_again(self, before: Moves, pick: int) -> None:
        """Anything that reached the session reaches it once more, at once or late."""
        self.go_on(before)
        self.world.again(pick)

    @rule(before=moves, reports=st.booleans(), moves=moves)
    def host_is_lost(self, before: Moves, reports: bool, moves: Moves) -> None:
        """The host is lost, just after a report or long after; or the session rests and moves."""
        self.go_on(before)
        if reports:
            self.world.report()
        self.lose()
        self.go_on(moves)

    @rule(message=replies, most=st.integers(1, 9), steered=seldom)
    def reply_is_cut_short(self, message: AssistantMessage, most: int, steered: bool) -> None:
        """The host is lost somewhere on the way of a reply's calls, maybe as they are to stop."""
        self.make_it_ask()
        self.reply(message)
        self.world.work(most)
        if steered:
            self.said += 1
            self.world.hear(f"m{self.said}", "stop that", "steer", by=self.speaker)
            self.world.report()
        self.lose()

    def lose(self) -> None:
        """Lose the host, or let a session that rests move to another."""
        if self.world.is_restful:
            self.world.passivate()
        else:
            self.world.lose_host()

    @rule(loses=st.booleans(), before=moves)
    def interrupt(self, loses: bool, before: Moves) -> None:
        """The session is asked to drop what it does; its host may be lost then."""
        self.go_on(before)
        self.said += 1
        self.world.interrupts(f"p{self.said}")
        if loses:
            self.world.report()
            self.lose()

    @rule(
        status=st.sampled_from(["completed", "cancelled", "expired", "failed"]),
        stops=seldom,
        loses=st.booleans(),
        before=moves,
    )
    def stop(self, status: Any, stops: bool, loses: bool, before: Moves) -> None:
        """The session is asked to stop, but not often; its host may be lost then."""
        self.go_on(before)
        if stops:
            self.world.give(stimuli.CancelAsked(self.world.at_ms, f"enough, {status}", status))
            if loses:
                self.world.report()
                self.lose()
