"""A real runner in a pretended world: the supervisor, the tools and the hooks do as a script says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from sessiontree import ClientTool, PermissionTier, PolicyConfig, SessionKind, Tool, ToolContext, ToolResult
from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import CallResolved, SessionFact
from sessiontree.contracts.facts.stimuli import ApprovalAsked, ClientCallDelegated, Stimulus
from sessiontree.contracts.recorded.approvals import RejectedCall
from sessiontree.contracts.recorded.client_calls import ClientAnswer
from sessiontree.contracts.recorded.questions import QuestionItem
from sessiontree.contracts.recorded.tool_inputs import InputNeeded
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import SessionRights
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, ToolCall, Usage
from sessiontree.dispatch.results import ImmediateOutcome, PreparedCall
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.policy.compiled import compile_policy
from sessiontree.runtime.host.host import HostResources, build_tooling
from sessiontree.runtime.rights.session_rights import Facades
from sessiontree.runtime.runner.call_watch import CallWatch
from sessiontree.runtime.runner.calls.call_book import ALLOWED, CallBook, CallEntry, CallPhase
from sessiontree.runtime.runner.interceptors import Blame, CallChecked
from sessiontree.runtime.runner.session_runner import SessionRunner
from sessiontree.runtime.transport.frames import Adopt, AskModel, Outcome
from sessiontree.runtime.transport.progress import ProgressHub
from sessiontree.session.instructions import AwaitCommit, PrepareCall, ToTree
from sessiontree.session.state import SessionState
from sessiontree.testing.context import FixedStatus, fresh_report
from tests.unit.session.session_fixtures import spec

Move = tuple[CallPhase, CallPhase]


class Recorded(CallBook):
    """Notes each move, and judges it by the table itself: a planted book may have stopped to."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[Move] = []

    def move(self, call: CallEntry, phase: CallPhase) -> None:
        """Note a move."""
        assert phase in ALLOWED[call.phase], f"{call.phase.name} to {phase.name}"
        self.moves.append((call.phase, phase))
        super().move(call, phase)


class RecordedRunner(SessionRunner):
    """A runner whose book notes its moves."""

    make_book: ClassVar[type[CallBook]] = Recorded


class Number(BaseModel):
    """Parameters of every tool here."""

    n: int = 0


@dataclass
class Gate:
    """Something that goes on until the script lets it."""

    name: str
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    stubborn: bool = False
    """Whether it ignores a cancellation."""

    async def wait(self) -> None:
        """Wait for the script."""
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise


@dataclass
class Gates:
    """Everything that goes on now."""

    open: list[Gate] = field(default_factory=list)
    stubborn: bool = False
    """Whether what begins from now on ignores a cancellation."""
    denied: bool = False
    """Whether no call may be made from now on."""
    begun: set[str] = field(default_factory=set)
    """Ids of the calls whose tools have run on this host."""

    def open_all(self) -> None:
        """Open every gate; nothing ignores a cancellation from now on."""
        self.stubborn = False
        for gate in self.open:
            gate.let_go.set()

    async def wait(self, name: str) -> None:
        """Wait at a new gate."""
        gate = Gate(name, stubborn=self.stubborn)
        self.open.append(gate)
        try:
            await gate.wait()
        finally:
            self.open.remove(gate)


class GatedTool(Tool[Number]):
    """Waits at a gate; with an odd number it first asks a person."""

    description = "Wait."
    Params: ClassVar[type[BaseModel]] = Number

    def __init__(self, gates: Gates) -> None:
        self._gates = gates

    def check_allowed(self, params: Number, config: AgentConfig) -> None:
        """Refuse if the script says so."""
        if self._gates.denied:
            raise PermissionDenied(self.tier, "not any more")

    async def execute(self, params: Number, ctx: ToolContext) -> ToolResult:
        """Wait; a host runs no call twice."""
        if params.n % 2 and ctx.answered is None:
            raise InputNeeded([QuestionItem(question="Really?", options=())], None)
        begun = self._gates.begun
        assert ctx.call_id not in begun, "a call runs twice"
        begun.add(ctx.call_id)
        await self._gates.wait(self.name)
        return ToolResult("done")


class Look(GatedTool):
    """Changes nothing."""

    name = "look"
    tier = PermissionTier.READ_ONLY


class Mark(GatedTool):
    """May be repeated after a loss."""

    name = "mark"
    tier = PermissionTier.WORKSPACE
    idempotent = True


class Solo(GatedTool):
    """Runs alone."""

    name = "solo"
    tier = PermissionTier.WORKSPACE
    idempotent = True
    sequential = True


class Wipe(GatedTool):
    """Needs an approval."""

    name = "wipe"
    tier = PermissionTier.ELEVATED


class Ask(ClientTool):
    """The program answers it."""

    def __init__(self, gates: Gates) -> None:
        super().__init__("ask", "Ask.", Number, tier=PermissionTier.WORKSPACE)
        self._gates = gates

    def check_allowed(self, params: Number, config: AgentConfig) -> None:
        """Refuse if the script says so."""
        if self._gates.denied:
            raise PermissionDenied(self.tier, "not any more")


NAMES = ("look", "mark", "solo", "wipe", "ask", "unheard_of", "look")
"""What a call may name; the last one is called with arguments that do not fit."""


class GatedHooks:
    """An interceptor that waits at a gate wherever it may."""

    has_leftover_work = False

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._settled: set[str] = set()

    def attach(self, state: SessionState, blame: Blame) -> None:
        """Take the session."""

    def must_admit(self, stimulus: Stimulus) -> bool:
        """Messages are admitted."""
        return isinstance(stimulus, stimuli.Incoming)

    async def admit(self, stimulus: Stimulus) -> Stimulus:
        """Wait, and leave it as it is."""
        await self._gates.wait("admit")
        return stimulus

    async def prepare(self, asked: PrepareCall, checked: CallChecked, taint: str) -> CallChecked:
        """Wait, and leave it as it is."""
        assert isinstance(checked, PreparedCall | RejectedCall | ImmediateOutcome)
        await self._gates.wait("prepare")
        return checked

    async def settle(self, outcome: ImmediateOutcome, ran_s: float) -> ImmediateOutcome:
        """Wait, and leave it as it is."""
        await self._gates.wait("settle")
        self._settled.add(outcome.key)
        return outcome

    def observe(self, fact: SessionFact) -> None:
        """See no result twice."""
        if isinstance(fact, CallResolved):
            assert fact.key not in self._settled, "a result is seen twice"


class RunnerWorld:
    """One session on one host after the other.

    Args:
        has_hooks: Whether an interceptor waits wherever it may.
        runner: The runner under test.
    """

    def __init__(self, runner: type[SessionRunner] = RecordedRunner, *, has_hooks: bool) -> None:
        self._make = runner
        self.gates = Gates()
        gated = [each(self.gates) for each in (Look, Mark, Solo, Wipe)]
        self._table = ToolTable((*gated, Ask(self.gates)))
        policy = compile_policy(self._table.rows, PolicyConfig())
        self._equipment = HostResources(self._table, {}, (), None, policy, "", None)
        self._has_hooks = has_hooks
        self._spec = replace(spec(SessionKind.MAIN), tools=tuple(entry.name for entry in self._table))
        self.moves: list[Move] = []
        self._facts: list[str] = []
        self._fed: list[tuple[str, Stimulus]] = []
        """What the supervisor fed to the session and does not know to be taken yet."""
        self._said = self._epoch = 0
        self.commits: list[tuple[str, ...]] = []
        self.approvals: list[str] = []
        self.clients: list[str] = []
        self.asked: int | None = None
        """The turn whose model was asked and has not replied."""
        self.is_idle = False
        self.adopt()

    def adopt(self) -> None:
        """Let a host take the session, with what its supervisor knows of it."""
        self._epoch += 1
        self._taken = 0
        frame = Adopt(
            "t",
            "main",
            self._epoch,
            self._spec,
            Limits(),
            AgentConfig(),
            "/",
            "scripted",
            tuple(self._facts),
            recovered=self._epoch > 1,
        )
        kind = SessionKind.MAIN
        status = FixedStatus(fresh_report(kind))
        rights = SessionRights("main", "default", kind, Path("/"), frame.config, status)
        builder, dispatcher = build_tooling(self._equipment, frame, rights, lambda: 5)
        hooks = (GatedHooks(self.gates),) if self._has_hooks else ()
        watch = CallWatch(ProgressHub(), "t", "main", Facades("main"))
        self.runner = self._make(frame, dispatcher, builder, watch, self._hear, lambda: 5, hooks)
        self.runner.start()
        again, self._fed = self._fed, []
        for cause, stimulus in again:
            self.feed(stimulus, cause)

    def lose(self) -> None:
        """Lose the host with all that it did not report, and let another one take the session."""
        self._leave()
        self.adopt()

    def _leave(self) -> None:
        self.runner.stop()
        self.gates.begun.clear()
        self.moves += getattr(self.runner.book, "moves", ())

    def feed(self, stimulus: Stimulus, cause: str = "") -> None:
        """Feed a stimulus."""
        self._said += 1
        cause = cause or f"s{self._said}"
        self._fed.append((cause, stimulus))
        self.runner.feed((cause,), (stimulus,))

    def _hear(self, outcome: Outcome) -> None:
        """Take what the runner reports, as the supervisor does."""
        assert outcome.crash is None, outcome.crash
        if outcome.epoch != self._epoch:
            return
        self.is_idle = outcome.idle
        del self._fed[: outcome.taken - self._taken]
        self._taken = outcome.taken
        self._facts += [fact.text for fact in outcome.facts]
        for instruction in outcome.instructions:
            match instruction:
                case AwaitCommit(keys):
                    self.commits.append(keys)
                case ToTree(ApprovalAsked(request_id)):
                    self.approvals.append(request_id)
                case ToTree(ClientCallDelegated(client_id)):
                    self.clients.append(client_id)
                case AskModel(turn):
                    self.asked = turn

    async def rest(self) -> None:
        """Let everybody go as far as they come; nothing here waits for anything but the loop."""
        for _ in range(12):
            await asyncio.sleep(0)

    def let_pass(self, number: int) -> None:
        """Open one of the gates."""
        if self.gates.open:
            self.gates.open[number % len(self.gates.open)].let_go.set()

    def give_up(self) -> None:
        """Let the time pass after which calls that were asked to stop are abandoned."""
        running = self.runner._calls.running
        for _, each in self.runner.book.list_running():
            if each.give_up_at < float("inf"):
                each.give_up_at = 0.0
        running._look()

    def check(self) -> None:
        """At rest, what is in the book is what goes on."""
        book = self.runner.book
        calls = list(book._calls.values())
        assert all(call.phase is not CallPhase.ABSENT for call in calls)
        running = [call for call in calls if call.phase is CallPhase.RUNNING]
        assert book.running == len(running)
        assert all((call.running is not None) == (call in running) for call in calls)
        known = self.runner.state.calls
        for call in calls:
            assert call.phase is not CallPhase.READY, "a call waits though nothing is in its way"
            assert call.phase is not CallPhase.PREPARED or call.key in known, "a call is kept for nothing"

    async def close(self) -> None:
        """Let everything pass: the session comes to rest, and its book holds what waits for others."""
        for _ in range(200):
            for keys in self.commits:
                self.feed(stimuli.IntentsCommitted(5, keys))
            self.commits.clear()
            self.gates.open_all()
            await self.rest()
            self.runner.reporter.flush()  # it may leave facts alone for a moment
            if not (self.gates.open or self.commits or self.runner.is_calling):
                break
        self.check()
        phases = {call.phase for call in self.runner.book._calls.values()}
        assert phases <= {CallPhase.PREPARED}, phases
        assert self.is_idle
        self._leave()
        await self.rest()


def make_reply(turn: int, calls: Sequence[ToolCall]) -> stimuli.ModelAnswered:
    """Return the model's reply to a turn."""
    usage = Usage(3, 2, 0.5, 1, 0)
    content = calls or (TextContent("done"),)
    return stimuli.ModelAnswered(
        5, turn, AssistantMessage(tuple(content), "toolUse" if calls else "stop", usage, 7)
    )


def make_answer(client_id: str, number: int) -> stimuli.ClientAnswered:
    """Return the program's answer to a call."""
    return stimuli.ClientAnswered(5, client_id, f"a{number}", ClientAnswer(ToolResult("here")))
