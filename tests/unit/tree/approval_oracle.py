"""The watcher's own books of approvals: how each request climbed, and who answered it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sessiontree.contracts.facts.stimuli import ApprovalAnswered, ApproverReturned
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalRequested,
    ApprovalStepRecorded,
    ApprovalWaiting,
    DenialLifted,
    Posted,
    ToolAlwaysAllowed,
    TreeFact,
)
from sessiontree.contracts.recorded.approvals import CheckedCall, answer_by_rules
from sessiontree.tree.state.protocol import Decided, LiftAsked, TreeInstruction, TreeStimulus, WakeTreeAt
from tests.unit.tree.spawn_oracle import SpawnBooks
from tests.unit.tree.tree_fixtures import is_event


@dataclass(slots=True)
class Climb:
    """One request's way."""

    asked: ApprovalRequested
    stations: list[str] = field(default_factory=list)
    """Every session it hopped over or rested at, in order."""
    rests_at: str | None = None
    how: str | None = None
    decision: str | None = None
    answers: int = 0

    @property
    def name(self) -> str:
        """The request's id."""
        return self.asked.question.request_id

    @property
    def asker(self) -> str:
        """The session that wants to make the call."""
        return self.asked.question.session

    @property
    def call(self) -> CheckedCall:
        """What it wants to call."""
        return self.asked.question.call


class ApprovalBooks:
    """Every request there ever was."""

    def __init__(self, spawns: SpawnBooks) -> None:
        """Share the books of sessions."""
        self.spawns = spawns
        self.climbs: dict[str, Climb] = {}
        self.denied: set[tuple[str, str]] = set()
        self.bound: dict[str, set[tuple[str, str]]] = {}
        """What a person's no binds now, by the request to which it was said."""
        self.always: set[str] = set()
        self.shapes: set[tuple[str, str]] = set()

    def pending(self) -> list[Climb]:
        """Return the requests without a decision."""
        return [climb for climb in self.climbs.values() if climb.decision is None]

    def book(self, fact: TreeFact, stimulus: TreeStimulus, at_ms: int) -> None:
        """Take a fact in and judge it."""
        if isinstance(fact, ApprovalRequested):
            name, asker = fact.question.request_id, fact.question.session
            assert name not in self.climbs, f"S14: {name} is asked twice"
            assert asker in self.spawns.live, f"S17: {asker} asks after its end"
            self.climbs[name] = Climb(fact)
        elif isinstance(fact, ApprovalStepRecorded):
            self._hopped(self.climbs[fact.request_id], fact, stimulus)
        elif isinstance(fact, ApprovalWaiting):
            climb = self.climbs[fact.request_id]
            self._judge_step(climb, fact.session)
            climb.rests_at, climb.how = fact.session, fact.how
            self._judge_rest(climb)
        elif isinstance(fact, ApprovalDecided):
            self._on_decided(self.climbs[fact.request_id], fact, at_ms)
        elif isinstance(fact, DenialLifted):
            asked = isinstance(stimulus, LiftAsked) and stimulus.request_id == fact.request_id
            assert asked, f"S16: nobody lifts the no to {fact.request_id}"
            assert fact.request_id in self.bound, f"S16: no denial of {fact.request_id} holds"
            self.denied -= self.bound.pop(fact.request_id)
        elif isinstance(fact, ToolAlwaysAllowed):
            if fact.covers is None:
                self.always.add(fact.tool)
            self.shapes.update((fact.tool, shape) for shape in fact.covers or ())
        elif isinstance(fact, Posted):
            mail: Any = fact.stimulus
            if isinstance(mail, ApprovalAnswered):
                self._answered(self.climbs[mail.request_id], fact.session, mail)

    def _judge_step(self, climb: Climb, station: str) -> None:
        asker = climb.asker
        path = self.spawns.chain(asker)
        assert station in path, f"S19: {climb.name} left its path at {station}"
        if station == asker and station != "main":
            # Nobody answers for itself; a person at its own channel, or an earlier no, may.
            bound = (climb.call.digest, asker) in self.denied
            assert self.spawns.specs[asker].owns_channel or bound, f"S19: {asker} is asked about itself"
        if climb.stations:
            assert path.index(station) >= path.index(climb.stations[-1]), f"S19: {station} is below"
        climb.stations.append(station)

    def _judge_rest(self, climb: Climb) -> None:
        spec = self.spawns.specs[climb.rests_at or ""]
        if climb.how == "consult":
            assert spec.approver is not None, f"S19: {spec.session_id} has no function"
            assert spec.session_id != climb.asker, f"S19: {spec.session_id} judges itself"
        else:
            owners = [n for n in self.spawns.chain(climb.asker) if self.spawns.specs[n].owns_channel]
            assert owners[:1] == [spec.session_id], f"S19: shown at {spec.session_id}, not at {owners[:1]}"

    def _hopped(self, climb: Climb, fact: ApprovalStepRecorded, stimulus: TreeStimulus) -> None:
        if fact.by != "denial":
            self._judge_step(climb, fact.session)
        spec = self.spawns.specs[fact.session]
        arguments = dict(climb.call.arguments)
        if fact.by == "rule":
            expected = answer_by_rules(spec.rules, climb.call.tool, arguments)
            assert fact.answer == expected, f"S19: the rules of {fact.session} say {expected}"
            assert fact.session == "main" or fact.session != climb.asker, "S19: rules for oneself"
        elif fact.by == "function":
            is_returned = is_event(stimulus, ApproverReturned) and stimulus.session == fact.session
            is_asked = (climb.how, climb.rests_at) == ("consult", fact.session)
            assert is_returned and is_asked, f"S19: no function answered at {fact.session}"
        elif fact.by == "person":
            is_asked = (climb.how, climb.rests_at) == ("show", fact.session)
            assert isinstance(stimulus, Decided) and is_asked, "S16: no person was asked"
            assert (fact.answer == "approve") is stimulus.approve, "S16: a person's answer is turned"
            if fact.answer == "deny":
                self._bind(climb, fact.session)
        elif fact.by == "mode":
            owners = [n for n in self.spawns.chain(climb.asker) if self.spawns.specs[n].owns_channel]
            assert [fact.session] == (owners[:1] or ["main"]), f"S19: smart rules at {fact.session}"
            self._judge_mode(climb, fact)
        elif fact.by == "denial":
            bound = (climb.call.digest, fact.session) in self.denied or self._is_denied(climb)
            assert bound and fact.answer == "deny", f"S16: nobody said no at {fact.session}"
        else:
            assert fact.by == "always" and self._is_covered(climb), f"S16: answered by {fact.by}"

    def _judge_mode(self, climb: Climb, fact: ApprovalStepRecorded) -> None:
        config, precedent = self.spawns.config, climb.asked.precedent
        assert config is not None, "S13: a request before its tree"
        known = answer_by_rules(config.smart_rules, climb.call.tool, dict(climb.call.arguments))
        if known == "escalate" and precedent is not None and precedent.is_harmless:
            known = "approve"
        assert fact.answer == known, f"S16: mode smart says {fact.answer}, known is {known}"

    def _is_covered(self, climb: Climb) -> bool:
        """Whether an owner's always is about this call."""
        tool, precedent = climb.call.tool, climb.asked.precedent
        if tool in self.always:
            return True
        shapes = () if precedent is None else precedent.shapes
        return bool(shapes) and all((tool, shape) in self.shapes for shape in shapes)

    def _bind(self, climb: Climb, shown_at: str) -> None:
        path = self.spawns.chain(climb.asker)
        bound = {(climb.call.digest, name) for name in path[: path.index(shown_at) + 1]}
        self.denied |= bound
        self.bound[climb.name] = bound

    def _is_denied(self, climb: Climb) -> bool:
        path = self.spawns.chain(climb.asker)
        return any((climb.call.digest, name) in self.denied for name in path)

    def _on_decided(self, climb: Climb, fact: ApprovalDecided, at_ms: int) -> None:
        name = fact.request_id
        assert climb.decision is None, f"S14: {name} is decided twice"
        climb.decision = fact.decision
        config = self.spawns.config
        assert config is not None, "S13: a request before its tree"
        if fact.decision == "approved":
            assert at_ms < climb.asked.expires_at_ms, f"S16: {name} is approved after it expired"
            assert not self._is_denied(climb), f"P12: {name} is approved though a person said no"
            assert config.mode != "never", f"S16: {name} is approved in mode never"
            assert fact.by not in {"nobody", "time", "stop"}, f"S16: {name} is approved by {fact.by}"
            assert fact.by != "always" or self._is_covered(climb), f"S16: no always covers {name}"
            assert fact.by != "mode" or config.mode in {"auto", "smart"}, "S16: approved by a mode that asks"
        elif fact.decision == "expired":
            assert at_ms >= climb.asked.expires_at_ms, f"S16: {name} expires too early"
        elif fact.by == "nobody":
            path = self.spawns.chain(climb.asker)
            owners = [each for each in path if self.spawns.specs[each].owns_channel]
            assert not owners, f"S19: {name} has nobody, though {owners} own a channel"

    def _answered(self, climb: Climb, session: str, mail: ApprovalAnswered) -> None:
        assert climb.decision == mail.decision, f"S16: reported {mail.decision}, decided {climb.decision}"
        assert climb.asker == session, f"S16: {session} learns what {climb.asker} asked"
        climb.answers += 1
        assert climb.answers == 1, f"P33: {mail.request_id} is answered twice"

    def judge_time(self, at_ms: int) -> None:
        """Judge that nothing rests longer than it may."""
        for climb in self.pending():
            is_over = climb.asked.expires_at_ms <= at_ms and climb.asked.at_ms < climb.asked.expires_at_ms
            assert not is_over, f"S16: {climb.name} rests after it expired"

    def judge(self, facts: Sequence[TreeFact], told: Sequence[TreeInstruction], live: list[str]) -> None:
        """Judge the step as a whole."""
        for climb in self.pending():
            name = climb.name
            assert climb.asker in live, f"S17: {name} outlives who asked"
            assert climb.rests_at is not None, f"S19: {name} is pending at nobody"
            assert not self._is_covered(climb), f"S14: {name} waits for what is always allowed"
            assert not self._is_denied(climb), f"P12: {name} waits though a person said no"
        decided = [fact for fact in facts if isinstance(fact, ApprovalDecided)]
        for fact in decided:
            climb = self.climbs[fact.request_id]
            if climb.asker in live:
                assert climb.answers == 1, f"S20: {climb.asker} never hears of {fact.request_id}"
        rested = {f.request_id: f for f in facts if isinstance(f, ApprovalWaiting)}
        bells = {each.at_ms for each in told if isinstance(each, WakeTreeAt)}
        for name in rested:
            assert self.climbs[name].asked.expires_at_ms in bells, f"S20: nothing rings for {name}"
