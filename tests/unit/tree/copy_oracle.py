"""The watcher's own books of workspaces of children's own, and of canvases.

COPY: only a Branch works in a copy, and what is below it works there, too. Its changes are kept once, when
it has ended, and settled once, when they have been kept. VISION: an answer is kept once, and charged as it
comes. CANVAS: a key acts once; who has ended has none; what somebody does there is text from outside, and
decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sessiontree.contracts.facts.stimuli import Incoming
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    CanvasActed,
    CanvasChanged,
    ChangesKept,
    ChangesSettled,
    Posted,
    SessionEnded,
    SessionSpawned,
    TreeFact,
    UsageCharged,
    VisionAnswered,
)
from sessiontree.tree.rules.child_changes import find_copies_in_use, find_unfinished_copies
from sessiontree.tree.state.protocol import (
    CanvasActionSent,
    CanvasAsked,
    ChangesFound,
    SettleAsked,
    TreeStimulus,
    VisionReported,
)
from sessiontree.tree.state.state import TreeState
from tests.unit.tree.spawn_oracle import SpawnBooks
from tests.unit.tree.tree_fixtures import BRANCH, WORKER


class CopyBooks:
    """Who has a copy or a canvas, and what became of it."""

    def __init__(self, spawns: SpawnBooks) -> None:
        """Know of none."""
        self.spawns = spawns
        self.copies: dict[str, str] = {}
        """Names of copies, by session."""
        self.kept: dict[str, ChangesKept] = {}
        self.settled: dict[str, str] = {}
        self.keys: set[tuple[str, str]] = set()
        """Sessions and keys of changes and actions of their canvases."""
        self.answered: set[tuple[str, str]] = set()
        """Live sessions and keys of what their image models answered."""
        self.shown: dict[str, bool] = {}
        """Whether the canvas of a live session is shown."""

    def book(self, fact: TreeFact) -> None:
        """Book one fact, after the books of spawns did."""
        live = self.spawns.live
        match fact:
            case SessionSpawned(spec=spec):
                above = "" if spec.parent is None else self.spawns.specs[spec.parent].workspace
                if spec.copy is not None:
                    assert spec.kind is BRANCH, f"COPY: {spec.session_id} is a {spec.kind} with a copy"
                    self.copies[spec.session_id] = above = spec.copy.name
                assert spec.workspace == above, f"COPY: {spec.session_id} works in {spec.workspace!r}"
            case ChangesKept(session=name):
                assert name in self.copies, f"COPY: {name} has no copy, and changes of it are kept"
                assert name not in live, f"COPY: {name} has not ended"
                assert name not in self.kept, f"COPY: changes of {name} are kept twice"
                self.kept[name] = fact
            case ChangesSettled(session=name):
                assert name in self.kept, f"COPY: changes of {name} are settled before they are kept"
                assert name not in self.settled, f"COPY: changes of {name} are settled twice"
                self.settled[name] = fact.state
            case CanvasChanged(session=name) | CanvasActed(session=name):
                assert name in live, f"CANVAS: {name} has ended"
                assert self.spawns.specs[name].kind is not WORKER, f"CANVAS: {name} is a worker"
                assert (name, fact.key) not in self.keys, f"CANVAS: {fact.key} of {name} acts twice"
                self.keys.add((name, fact.key))
                if isinstance(fact, CanvasChanged):
                    self.shown[name] = fact.action != "hide"
                else:
                    assert self.shown.get(name), f"CANVAS: {name} shows nothing, and somebody acts on it"
            case VisionAnswered(session=name):
                assert (name, fact.key) not in self.answered, (
                    f"VISION: {fact.key} of {name} is answered twice"
                )
                if name in live:
                    self.answered.add((name, fact.key))
            case SessionEnded(session=name):
                self.answered = {each for each in self.answered if each[0] != name}
                self.shown.pop(name, None)
                self.keys = {each for each in self.keys if each[0] != name}

    def judge(self, stimulus: TreeStimulus, facts: Sequence[TreeFact], state: TreeState) -> None:
        """Judge one step."""
        acted = [fact.session for fact in facts if isinstance(fact, CanvasActed)]
        heard = [
            (fact.session, bool(fact.stimulus.taint), not all(by.is_owner for by in fact.stimulus.asked_by))
            for fact in facts
            if isinstance(fact, Posted)
            and isinstance(fact.stimulus, Incoming)
            and fact.stimulus.origin == "canvas"
        ]
        assert heard == [(name, True, True) for name in acted], f"CANVAS: {acted} are acted on, {heard} heard"
        if isinstance(stimulus, CanvasAsked | CanvasActionSent):
            decided = [fact for fact in facts if isinstance(fact, ApprovalDecided)]
            overdue = [fact for fact in decided if fact.by not in {"time", "stop", "nobody"}]
            assert not overdue, f"CANVAS: {overdue} is decided by a canvas"
        if isinstance(stimulus, VisionReported):
            self._judge_answer(stimulus, facts)
        if isinstance(stimulus, ChangesFound):
            name = stimulus.kept.session
            due = name in self.copies and name not in self.spawns.live
            assert not due or name in self.kept, f"COPY: what {name} changed is lost"
        if isinstance(stimulus, SettleAsked):
            name = stimulus.settled.session
            assert name not in self.kept or name in self.settled, f"COPY: {name} is not settled"
        assert dict(state.changes.items()) == self.kept, "COPY: other changes are kept"
        assert dict(state.settled.items()) == self.settled, "COPY: others are settled"
        shown = {name: canvas.is_shown for name, canvas in state.canvases.items()}
        assert shown == self.shown, f"CANVAS: {shown} are shown, not {self.shown}"
        ended = [name for name in self.copies if name not in self.spawns.live and name not in self.kept]
        assert [spec.session_id for spec in find_unfinished_copies(state)] == ended, (
            f"COPY: {ended} are not kept"
        )
        used = {copy for name, copy in self.copies.items() if self.settled.get(name) != "discarded"}
        assert find_copies_in_use(state) == used, f"COPY: {used} are in use"

    def _judge_answer(self, reported: VisionReported, facts: Sequence[TreeFact]) -> None:
        name, used = reported.answered.session, max(0, reported.answered.usage.input_tokens)
        kept = [fact for fact in facts if isinstance(fact, VisionAnswered)]
        charged = [
            fact.usage.input_tokens
            for fact in facts
            if isinstance(fact, UsageCharged) and fact.session == name
        ]
        assert charged == [used] * (bool(kept) and used > 0), f"VISION: {charged} are charged to {name}"
        is_known = (name, reported.answered.key) in self.answered
        assert is_known or name not in self.spawns.live, f"VISION: an answer to {name} is lost"
