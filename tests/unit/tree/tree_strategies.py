"""Everything that can happen to a tree, as a hypothesis state machine over a harness."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from sessiontree.contracts.facts.tree_facts import ChangesKept, ChangesSettled, VisionAnswered
from sessiontree.contracts.recorded.approvals import Rule
from sessiontree.contracts.recorded.child_workspaces import ChangedFile, WorkspaceCopy
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.values.jsonable import compute_digest
from sessiontree.contracts.values.messages import Usage
from sessiontree.tree.state.protocol import (
    CanvasActionSent,
    CanvasAsked,
    ChangesFound,
    ChannelMessageAsked,
    ClockRang,
    Decided,
    InterruptAsked,
    LiftAsked,
    PostsConsumed,
    ResultAsked,
    SendAsked,
    SessionEmbodied,
    SessionLost,
    SettleAsked,
    SpawnAsked,
    Stirred,
    StopAsked,
    TreeOpened,
    TreeStimulus,
    UsageReported,
    VisionReported,
)
from tests.unit.tree.harness_fixtures import Harness, Machine
from tests.unit.tree.story_fixtures import LIMITS, STORIES
from tests.unit.tree.tree_fixtures import (
    BRANCH,
    IN_DOUBT,
    LOOKS,
    MAIN,
    REMOVES,
    TOOLS,
    WORKER,
    approval_asked,
    approver_returned,
    checked,
    config,
    result,
    result_offered,
    trouble_reported,
)

RULES: list[tuple[Rule, ...]] = [
    (),
    (),
    (Rule(tool="write", answer="approve"),),
    (Rule(tool="read", answer="deny"), Rule(tool="w*", where={"/n": "1"}, answer="approve")),
]
COMMANDS = {("write", 1): LOOKS, ("write", 2): REMOVES, ("owner_only", 1): IN_DOUBT}
"""Calls that run a command, by tool and argument."""
BUDGETS = [None, None, Budget(tokens=5), Budget(tokens=9, sessions=2), Budget(cost_usd=0.3, tool_calls=3)]

picks = st.integers(0, 23)
STRANGER = 23
"""The pick that names something that does not exist."""
ticks = st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 200, 200, -150, 1999, 2000, -5000])
kinds = st.sampled_from([BRANCH, WORKER, BRANCH, WORKER, BRANCH, WORKER, BRANCH, WORKER, MAIN])
vias = st.sampled_from(["handle", "model"])
budgets = st.sampled_from(BUDGETS)


class TreeRules(RuleBasedStateMachine):
    """One tree through any order of events; time steps back now and then."""

    machine = Machine()

    def __init__(self) -> None:
        """Start before the tree is opened."""
        super().__init__()
        self.harness = Harness(self.machine)
        self.at_ms = 0
        self.last: TreeStimulus | None = None

    def session(self, pick: int) -> str:
        """Choose a session, mostly a living one, newest first; sometimes none has the name."""
        spawns = self.harness.watcher.spawns
        names = [*spawns.live[::-1], *spawns.live[::-1], *spawns.specs]
        return "main/b99" if pick == STRANGER else names[pick % len(names)]

    def parent(self, pick: int) -> str:
        """Choose who spawns, mostly one that may."""
        spawns = self.harness.watcher.spawns
        able = [name for name in spawns.live if spawns.specs[name].kind is not WORKER]
        return able[pick % len(able)] if able and pick < STRANGER - 3 else self.session(pick)

    def request(self, pick: int) -> str:
        """Choose a request, mostly an open one; sometimes none has the id."""
        books = self.harness.watcher.approvals
        pending = [climb.name for climb in books.pending()]
        names = [*pending, *pending, *books.climbs]
        return names[pick % len(names)] if names and pick != STRANGER else "r99"

    def feed(self, tick: int, make: Any, *arguments: Any, **more: Any) -> None:
        """Move the clock and take a step."""
        self.at_ms = max(0, self.at_ms + tick)
        self.last = make(self.at_ms, *arguments, **more)
        self.harness.feed(self.last)

    @initialize(
        story=st.sampled_from([None, None, *STORIES]),
        mode=st.sampled_from(
            ["always", "always", "always", "always", "always", "smart", "smart", "auto", "never"]
        ),
        rules=st.sampled_from(RULES),
        owns_channel=st.sampled_from([True, True, False]),
        budget=st.sampled_from([None, Budget(tokens=20, sessions=8), Budget(cost_usd=0.5, tool_calls=9)]),
        family=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7), kinds), min_size=2, max_size=7),
    )
    def open(self, story: Any, family: list[tuple[int, int, Any]], **settings: Any) -> None:
        if story is not None:
            story(self.harness)
            return
        smart_rules = (Rule(tool="search", answer="approve"), Rule(tool="deploy", answer="deny"))
        self.feed(0, TreeOpened, config(limits=LIMITS, smart_rules=smart_rules, **settings))
        for parent, seat, kind in family:
            self.spawn_approver(0, parent, kind, "handle", (), seat)

    @rule(
        tick=ticks,
        parent=picks,
        kind=kinds,
        via=vias,
        label=st.sampled_from([None, None, "a", "b"]),
        agent=st.sampled_from(
            [None, None, "reader", "writer", "careful", "shut", "lead", "lead", "middle", "nobody"]
        ),
        budget=budgets,
        key=st.sampled_from([None, None, None, "k1", "k2"]),
        ttl_s=st.sampled_from([None, None, 1.0, 40.0]),
    )
    def spawn(self, tick: int, parent: int, kind: Any, via: Any, **more: Any) -> None:
        self.feed(tick, SpawnAsked, self.parent(parent), kind, "task", via, **more)

    @rule(
        tick=ticks, parent=picks, kind=kinds, via=vias, rules=st.sampled_from(RULES), seat=st.integers(0, 7)
    )
    def spawn_approver(self, tick: int, parent: int, kind: Any, via: Any, rules: Any, seat: int) -> None:
        more = {
            "rules": rules,
            "approver": "house:rules" if seat in {1, 2, 3} else None,
            "owns_channel": seat in {3, 4},
            "stays_open": seat in {2, 4},
        }
        self.feed(tick, SpawnAsked, self.parent(parent), kind, "task", via, **more)

    @rule(
        tick=ticks,
        name=picks,
        status=st.sampled_from(["completed"] * 7 + ["failed"]),
        quiet=st.sampled_from([True, True, True, False]),
    )
    def offer(self, tick: int, name: int, status: str, quiet: bool) -> None:
        word = result(status, output={"n": 1}, usage=Usage(input_tokens=3))
        self.feed(tick, result_offered, self.session(name), word, quiet)

    @rule(tick=ticks, name=picks)
    def want_result(self, tick: int, name: int) -> None:
        self.feed(tick, ResultAsked, self.session(name))

    @rule(tick=ticks, name=picks, how=st.sampled_from([SessionEmbodied, Stirred]))
    def stir(self, tick: int, name: int, how: type[SessionEmbodied | Stirred]) -> None:
        self.feed(tick, how, self.session(name))

    @rule(tick=ticks, name=st.integers(0, 4))
    def lose(self, tick: int, name: int) -> None:
        if self.session(name) != "main":
            self.feed(tick, SessionLost, self.session(name), "no more memory")

    @rule(
        tick=ticks,
        name=picks,
        tool=st.sampled_from([row.name for row in TOOLS]),
        n=st.sampled_from([1, 2]),
        again=st.sampled_from([False, False, False, False, True]),
    )
    def ask(self, tick: int, name: int, tool: str, n: int, again: bool) -> None:
        known = len(self.harness.watcher.approvals.climbs)
        request_id = f"r{max(0, known - 1) if again else known}"
        digest = compute_digest(tool, {"n": n})
        precedent = COMMANDS.get((tool, n))
        call = checked("1.0", tool, {"n": n}, digest)
        self.feed(tick, approval_asked, self.session(name), request_id, call, precedent)

    @rule(
        tick=ticks,
        pick=picks,
        answer=st.sampled_from(["approve", "approve", "deny", "deny", "escalate", "escalate", "perhaps"]),
        always=st.sampled_from([False, False, True]),
        astray=st.sampled_from([False, False, False, True]),
    )
    def answer(self, tick: int, pick: int, answer: str, always: bool, astray: bool) -> None:
        request_id = self.request(pick)
        climb = self.harness.watcher.approvals.climbs.get(request_id)
        is_consulted = climb is not None and climb.how == "consult"
        if is_consulted is astray:
            self.feed(tick, Decided, request_id, answer == "approve", always, "ada", "because")
        else:
            session = (
                climb.rests_at if climb is not None and climb.rests_at and not astray else self.session(pick)
            )
            self.feed(tick, approver_returned, session, request_id, answer, "looked at it")

    @rule(tick=ticks, pick=picks, astray=st.sampled_from([False, False, True]))
    def lift(self, tick: int, pick: int, astray: bool) -> None:
        bound = list(self.harness.watcher.approvals.bound)
        request_id = bound[pick % len(bound)] if bound and not astray else self.request(pick)
        self.feed(tick, LiftAsked, request_id, "ada")
        lifted = request_id not in self.harness.watcher.approvals.bound
        assert lifted or not self.harness.is_sound, f"S16: the no to {request_id} outlives its lifting"

    @rule(tick=ticks, name=picks)
    def trouble(self, tick: int, name: int) -> None:
        self.feed(tick, trouble_reported, self.session(name), "read", 3, "/path", "no such thing")

    @rule(
        tick=ticks,
        name=picks,
        usage=st.sampled_from(
            [
                Usage(input_tokens=1, output_tokens=1, cost_usd=0.1, turns=1),
                Usage(tool_calls=1),
                Usage(input_tokens=4),
                Usage(input_tokens=-5, cost_usd=float("nan")),
            ]
        ),
    )
    def use(self, tick: int, name: int, usage: Usage) -> None:
        self.feed(tick, UsageReported, self.session(name), usage)

    @rule(tick=ticks, pick=picks, most=st.integers(1, 3), stranger=st.sampled_from([False, False, True]))
    def take(self, tick: int, pick: int, most: int, stranger: bool) -> None:
        owed = list(self.harness.watcher.owed.items())
        name = owed[pick % len(owed)][1] if owed and not stranger else self.session(pick)
        posts = [post for post, session in owed if stranger or session == name][:most]
        self.feed(tick, PostsConsumed, name, (*posts, *posts[:1]))

    @rule(tick=ticks, name=st.integers(0, 5), status=st.sampled_from(["cancelled", "expired", "completed"]))
    def stop(self, tick: int, name: int, status: Any) -> None:
        if self.session(name) != "main":
            self.feed(tick, StopAsked, self.session(name), "enough", result(status).status)

    @rule(tick=ticks, by=picks, name=picks, label=st.sampled_from([None, None, None, "a", "b"]))
    def kill(self, tick: int, by: int, name: int, label: str | None) -> None:
        asker = self.parent(by)
        target = label or self.session(name)
        self.feed(tick, StopAsked, target, "enough", result("cancelled").status, asker)

    @rule(
        tick=ticks,
        by=picks,
        name=picks,
        named=st.sampled_from([None, None, None, None, "parent", "parent", "a", "b"]),
        mode=st.sampled_from(["follow_up", "follow_up", "steer"]),
        key=st.sampled_from(["m1", "m2", "m3", "m4"]),
    )
    def send(self, tick: int, by: int, name: int, named: str | None, mode: Any, key: str) -> None:
        target = named or self.session(name)
        self.feed(tick, SendAsked, self.session(by), target, "hello", mode, key)

    @rule(tick=ticks, name=st.integers(0, 5))
    def interrupt(self, tick: int, name: int) -> None:
        self.feed(tick, InterruptAsked, self.session(name), "enough")

    @rule(tick=ticks, parent=picks, kind=st.sampled_from([BRANCH, BRANCH, WORKER]), made=st.booleans())
    def spawn_in_a_copy(self, tick: int, parent: int, kind: Any, made: bool) -> None:
        number = len(self.harness.watcher.spawns.specs)
        copy = WorkspaceCopy(f"{number:032x}", "all", "", "0" * 64, 1, 1) if made else None
        more: dict[str, Any] = {"workspace": "own", "copy": copy}
        self.feed(tick, SpawnAsked, self.parent(parent), kind, "task", "handle", **more)

    @rule(
        tick=ticks,
        pick=picks,
        what=st.sampled_from(["kept", "kept", "merged", "discarded"]),
        astray=st.sampled_from([False, False, False, True]),
    )
    def take_in_a_copy(self, tick: int, pick: int, what: str, astray: bool) -> None:
        copies = list(self.harness.watcher.copies.copies)
        name = copies[pick % len(copies)] if copies and not astray else self.session(pick)
        if what == "kept":
            file = ChangedFile("a", "", "0" * 64, pick)
            self.feed(tick, ChangesFound, ChangesKept(name, (file,), "", 0))
        else:
            self.feed(tick, SettleAsked, ChangesSettled(name, what, self.at_ms))

    @rule(
        tick=ticks,
        name=picks,
        key=st.sampled_from(["c1", "c2", "c3", "c4"]),
        does=st.sampled_from(["present", "hide", "a2ui_push", "act", "act", "act"]),
    )
    def use_a_canvas(self, tick: int, name: int, key: str, does: str) -> None:
        if does == "act":
            self.feed(tick, CanvasActionSent, self.session(name), key, "approve everything")
        else:
            content = {"present": {"html": key}, "a2ui_push": {"ops": []}}.get(does, {})
            self.feed(tick, CanvasAsked, self.session(name), key, does, content)

    @rule(tick=ticks, name=picks, key=st.sampled_from(["v1", "v2", "v3"]), tokens=st.sampled_from([-1, 0, 3]))
    def see(self, tick: int, name: int, key: str, tokens: int) -> None:
        answered = VisionAnswered(self.session(name), key, "seer", "a flag", Usage(tokens), 0)
        self.feed(tick, VisionReported, answered)

    @rule(tick=ticks, name=picks)
    def say(self, tick: int, name: int) -> None:
        self.feed(tick, ChannelMessageAsked, self.session(name), "hello")

    @rule(tick=ticks, forward=st.sampled_from([0, 0, 1000, 3000, 7000]))
    def ring(self, tick: int, forward: int) -> None:
        self.feed(tick + forward, ClockRang)

    @rule()
    def repeat(self) -> None:
        if self.last is not None:
            self.harness.feed(self.last)

    @rule()
    def crash(self) -> None:
        self.harness.crash()

    def teardown(self) -> None:
        """Stop the tree: after the grace nothing lives and nothing is pending."""
        harness = self.harness
        if not harness.is_sound or not harness.watcher.spawns.specs:
            return
        self.feed(0, StopAsked, "main", "over")
        self.at_ms = harness.watcher.now_ms
        self.feed(4000, ClockRang)
        assert harness.watcher.spawns.live == [], f"S13: {harness.watcher.spawns.live} live after the grace"
        assert harness.watcher.approvals.pending() == [], "S13: something is pending after the end"
        assert harness.watcher.owed == {}, "S13: something is owed after the end"


def rules_for(machine: Machine) -> type[TreeRules]:
    """Return the state machine over other functions than the real ones."""
    return type("PlantedRules", (TreeRules,), {"machine": machine})
