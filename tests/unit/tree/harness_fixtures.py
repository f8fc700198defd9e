"""One tree under test: every stimulus goes through decide, evolve, a replay from JSON, and a watcher."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from sessiontree.contracts.facts.tree_facts import ApprovalWaiting, TreeFact
from sessiontree.contracts.recorded import codec
from sessiontree.contracts.recorded.approvals import Precedent
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.tree.decide import decide
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.protocol import (
    AcceptSpawn,
    ClockRang,
    Decided,
    InterruptAsked,
    RefuseSpawn,
    SessionEmbodied,
    SpawnAsked,
    StopAsked,
    TreeInstruction,
    TreeOpened,
    TreeStimulus,
)
from sessiontree.tree.state.state import Session, TreeState, make_initial_tree
from tests.unit.tree.tree_fixtures import approval_asked, checked, config, result, result_offered
from tests.unit.tree.tree_invariant_oracle import check_invariants
from tests.unit.tree.tree_oracle import Watcher
from tests.unit.tree.tree_state_oracle import restore, snapshot

STRANGER = Principal("bob", "Bob", "mail", "", is_owner=False)
"""Whom every call is for that asks here."""

Decide: TypeAlias = Callable[[TreeState, TreeStimulus], tuple[list[TreeFact], list[TreeInstruction]]]
Evolve: TypeAlias = Callable[[TreeState, TreeFact], TreeState]
Restore: TypeAlias = Callable[[Mapping[str, Any]], TreeState]
T = TypeVar("T")


def as_json(state: TreeState) -> Any:
    """Return a state as plain JSON, fit to be compared."""
    return json.loads(json.dumps(snapshot(state)))


@dataclass(frozen=True, slots=True)
class Machine:
    """The functions under test; tests of tests replace one by a broken variant."""

    decide: Decide = decide
    evolve: Evolve = evolve
    restore: Restore = restore


class Harness:
    """A tree, its replay, and the watcher of both; each step fails on whatever must never be."""

    def __init__(self, machine: Machine | None = None) -> None:
        """Start before anything happened."""
        self.machine = machine or Machine()
        self.state = make_initial_tree()
        self.replay = make_initial_tree()
        self.joined = make_initial_tree()
        self.watcher = Watcher()
        self.now_ms = 0
        self.facts: list[TreeFact] = []
        """Of the last step."""
        self.told: list[TreeInstruction] = []
        self.history: list[TreeFact] = []
        self.is_sound = True
        """Whether the last step was judged to its end."""

    def feed(self, stimulus: TreeStimulus) -> None:
        """Take one step."""
        self.is_sound = False
        before = as_json(self.state)
        self.facts, self.told = self.machine.decide(self.state, stimulus)
        assert as_json(self.state) == before, "pure: decide changed the state"
        for fact in self.facts:
            self.machine.evolve(self.state, fact)
            self.machine.evolve(self.replay, codec.from_wire(json.loads(codec.pack(fact))))
            assert as_json(self.state) == as_json(self.replay), f"S38: replay differs after {fact}"
        whole = [codec.from_wire(json.loads(text)) for text in codec.pack_joined(self.facts)]
        assert [part for fact in whole for part in codec.list_parts(fact)] == self.facts
        for fact in whole:
            self.machine.evolve(self.joined, fact)
        assert as_json(self.state) == as_json(self.joined), f"S38: joined facts differ: {whole}"
        self.history += self.facts
        self.watcher.watch(stimulus, self.facts, self.told, self.state)
        check_invariants(self.state)
        self.is_sound = True

    def crash(self) -> None:
        """Go on from a snapshot instead of the live state."""
        self.is_sound = False
        before = as_json(self.state)
        self.state = self.machine.restore(before)
        assert as_json(self.state) == before, "S18: restoring loses something"
        check_invariants(self.state)
        self.is_sound = True

    # Short words for examples.

    def open(self, **settings: Any) -> Harness:
        """Open the tree."""
        self.feed(TreeOpened(self.now_ms, config(**settings)))
        return self

    def spawn(self, parent: str, kind: Any, task: str = "task", via: Any = "handle", **more: Any) -> str:
        """Spawn a child that must be accepted and return its id."""
        self.feed(SpawnAsked(self.now_ms, parent, kind, task, via, **more))
        return self.one(AcceptSpawn).session

    def embody(self, session: str) -> None:
        """Give a session a host."""
        self.feed(SessionEmbodied(self.now_ms, session))

    def refused(self, parent: str, kind: Any, via: Any = "handle", **more: Any) -> Any:
        """Spawn a child that must be refused and return the error."""
        self.feed(SpawnAsked(self.now_ms, parent, kind, "task", via, **more))
        return self.one(RefuseSpawn).error

    def offer(self, session: str, *, quiet: bool = True, word: SessionResult[Any] | None = None) -> None:
        """Let a session say its final message."""
        self.feed(result_offered(self.now_ms, session, word or result(), quiet))

    def ask(
        self,
        session: str,
        request_id: str = "r1",
        tool: str = "deploy",
        digest: str = "d1",
        *,
        precedent: Precedent | None = None,
        **arguments: Any,
    ) -> None:
        """Let a session ask for an approval."""
        call = checked(f"key of {request_id}", tool, arguments, digest)
        self.feed(approval_asked(self.now_ms, session, request_id, call, precedent, (STRANGER,)))

    def answer(self, request_id: str = "r1", *, approve: bool = True, always: bool = False) -> None:
        """Let a person answer."""
        self.feed(Decided(self.now_ms, request_id, approve, always, "ada", "because"))

    def stop(self, session: str = "main", reason: str = "enough", **more: Any) -> None:
        """Ask a session to stop."""
        self.feed(StopAsked(self.now_ms, session, reason, **more))

    def interrupt(self, session: str = "main", reason: str = "enough") -> None:
        """Ask a session to drop what it does."""
        self.feed(InterruptAsked(self.now_ms, session, reason))

    def pass_s(self, seconds: float) -> None:
        """Let time pass and ring."""
        self.now_ms += round(seconds * 1000)
        self.feed(ClockRang(self.now_ms))

    def session(self, name: str) -> Session:
        """Return a session."""
        return self.state.sessions[name]

    def found(self, kind: type[T]) -> list[T]:
        """Return the last step's facts and instructions of a type."""
        both: list[object] = [*self.facts, *self.told]
        return [each for each in both if isinstance(each, kind)]

    def shown(self) -> list[ApprovalWaiting]:
        """Return the last step's facts that have a request shown to a person."""
        return [fact for fact in self.found(ApprovalWaiting) if fact.how == "show"]

    def one(self, kind: type[T]) -> T:
        """Return the last step's only fact or instruction of a type."""
        found = self.found(kind)
        assert len(found) == 1, f"{len(found)} of {kind.__name__} among {self.facts} and {self.told}"
        return found[0]
