"""The spans that facts of a tree begin, change and end: its own, and those of its sessions."""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalStepRecorded,
    ApprovalWaiting,
    BudgetSpent,
    CancelBegun,
    InterruptBegun,
    SessionAdopted,
    SessionEnded,
    SessionSpawned,
    SessionTainted,
    SpawnDenied,
    TreeCreated,
)
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.runtime.telemetry.session_reducer import SessionWork, TraceState
from sessiontree.runtime.telemetry.span_writer import ROOT, SpanWriter, make_session_key
from sessiontree.runtime.telemetry.spans import Attribute, build_model_attributes, name_decider

ROOT_NAME: Final = "session tree"
"""Name of the span of a whole tree."""
_SETTLED: Final = frozenset({SessionStatus.COMPLETED, SessionStatus.CANCELLED})
_LifeFact: TypeAlias = (
    TreeCreated | SessionSpawned | SessionAdopted | SessionTainted | SpawnDenied | SessionEnded
)
_RuleFact: TypeAlias = (
    ApprovalStepRecorded | ApprovalWaiting | ApprovalDecided | BudgetSpent | CancelBegun | InterruptBegun
)
TreeSpanFact: TypeAlias = _LifeFact | _RuleFact
"""The facts of a tree that spans show."""


class TreeReducer:
    """Follows the facts of a tree.

    Args:
        config: The tree's configuration.
        writer: Writes the spans.
        trace: What is known about the tree; shared with the reducer of its sessions.
    """

    def __init__(self, config: TreeConfig, writer: SpanWriter, trace: TraceState) -> None:
        self._config = config
        self._writer = writer
        self._trace = trace

    def take(self, fact: TreeSpanFact) -> None:
        """Take in a fact."""
        if isinstance(fact, _LifeFact):
            self._take_life(fact)
        else:
            self._take_rule(fact)

    def _take_life(self, fact: _LifeFact) -> None:
        match fact:
            case TreeCreated():
                self._begin_tree()
            case SessionSpawned():
                self._begin_session(fact.spec)
            case SessionAdopted():
                self._writer.add_event(make_session_key(fact.session), "adopted")
            case SessionTainted():
                self._writer.add_event(make_session_key(fact.session), "tainted")
            case SpawnDenied():
                what = {"limit": fact.limit} if fact.limit else {}
                self._writer.add_event(
                    make_session_key(fact.parent), "spawn.denied", session__kind=fact.kind.value, **what
                )
            case SessionEnded():
                self._end_session(fact)
            case _:
                assert_never(fact)

    def _take_rule(self, fact: _RuleFact) -> None:
        match fact:
            case ApprovalStepRecorded():
                self._writer.add_event(
                    self._trace.asked.get(fact.request_id, ""),
                    "approval.step",
                    session__id=fact.session,
                    approval__answer=fact.answer,
                    approval__by=name_decider(fact.by),
                )
            case ApprovalWaiting():
                what = self._trace.asked.get(fact.request_id, "")
                self._writer.add_event(
                    what, "approval.waiting", session__id=fact.session, approval__how=fact.how
                )
            case ApprovalDecided():
                self._writer.add_event(
                    self._trace.asked.pop(fact.request_id, ""),
                    "approval.decided",
                    approval__decision=fact.decision,
                    approval__by=name_decider(fact.by),
                )
            case BudgetSpent():
                self._writer.add_event(
                    make_session_key(fact.account),
                    "budget.spent",
                    limit=fact.limit,
                    used=fact.used,
                    allowed=fact.allowed,
                )
            case CancelBegun():
                self._add_event_to_each(fact.sessions, "cancel.begun", session__status=fact.status.value)
            case InterruptBegun():
                self._add_event_to_each(fact.sessions, "interrupt.begun")
            case _:
                assert_never(fact)

    def _add_event_to_each(self, sessions: tuple[str, ...], name: str, **attributes: Attribute) -> None:
        for session in sessions:
            self._writer.add_event(make_session_key(session), name, **attributes)

    def _begin_tree(self) -> None:
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "invoke_workflow",
            "sessiontree.version": self._config.package_version,
            "sessiontree.approvals": self._config.mode,
        }
        self._writer.begin(ROOT, ROOT_NAME, "", "", attributes)
        if self._config.purpose:
            self._writer.note_content(ROOT, "gen_ai.workflow.name", self._config.purpose)

    def _begin_session(self, spec: SessionSpec) -> None:
        name = spec.session_id
        self._trace.spawned += 1
        self._trace.sessions[name] = SessionWork(model=self._find_model(spec))
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": spec.agent,
            "gen_ai.agent.id": name,
            "sessiontree.session.id": name,
            "sessiontree.session.kind": spec.kind.value,
            "sessiontree.session.depth": spec.depth,
            "sessiontree.session.via": spec.via,
        }
        attributes |= build_model_attributes(self._trace.sessions[name].model)
        above = ROOT if spec.parent is None else make_session_key(spec.parent)
        self._writer.begin(make_session_key(name), f"invoke_agent {spec.agent}", name, above, attributes)
        if spec.label:
            self._writer.note_content(make_session_key(name), "sessiontree.session.label", spec.label)
        self._writer.note(ROOT, {"sessiontree.sessions": self._trace.spawned})

    def _find_model(self, spec: SessionSpec) -> str:
        named = [row.model for row in self._config.agents if row.name == spec.agent and row.model]
        return named[0] if named else self._config.model

    def _end_session(self, fact: SessionEnded) -> None:
        session = fact.session
        self._trace.sessions.pop(session, None)
        own, status = make_session_key(session), fact.status
        self._writer.spans.abandon(session, keep=own)
        ending: dict[str, Attribute] = {"sessiontree.session.status": status.value}
        self._writer.note(own, {**ending, "sessiontree.session.forced": fact.forced})
        good = status in _SETTLED
        self._writer.end(own, None if good else status.value, "" if good else fact.result.summary)
        if session == "main":  # with it ends the tree
            self._writer.spans.abandon(None, keep=ROOT)
            self._trace.sessions.clear()
            self._writer.note(ROOT, ending)
            self._writer.end(ROOT, None if good else status.value)
