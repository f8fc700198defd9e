"""Short histories that lead to places chance seldom finds; the state machine goes on from there."""

from __future__ import annotations

from collections.abc import Callable

from sessiontree.contracts.facts.tree_facts import ChangesKept, ChangesSettled, VisionAnswered
from sessiontree.contracts.recorded.approvals import Rule
from sessiontree.contracts.recorded.child_workspaces import ChangedFile, WorkspaceCopy
from sessiontree.contracts.settings.settings import Budget, Limits
from sessiontree.contracts.values.messages import Usage
from sessiontree.tree.state.protocol import (
    CanvasActionSent,
    CanvasAsked,
    ChangesFound,
    SendAsked,
    SessionLost,
    SettleAsked,
    SpawnAsked,
    UsageReported,
    VisionReported,
)
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import BRANCH, IN_DOUBT, LOOKS, REMOVES, WORKER, approver_returned

LIMITS = Limits(
    max_depth=3,
    max_children=3,
    max_live=9,
    max_total=20,
    approval_expiry_s=2,
    branch_ttl_s=20,
    worker_ttl_s=6,
    cancel_grace_s=3,
)


def delegate(harness: Harness) -> None:
    """Agents that delegate are spawned below a narrow parent and below each other."""
    harness.open(limits=LIMITS)
    harness.spawn(harness.spawn("main", BRANCH, agent="reader"), BRANCH, agent="lead")
    lead = harness.spawn("main", BRANCH, agent="lead")
    harness.spawn(lead, BRANCH, agent="middle")
    harness.spawn(lead, WORKER, agent="lead")


def spend_a_budget(harness: Harness) -> None:
    """A branch uses up what was set aside for it and stops; its parent gets the rest of another back."""
    harness.open(limits=LIMITS, budget=Budget(tokens=20, sessions=8))
    thrifty = harness.spawn("main", BRANCH, budget=Budget(tokens=9, sessions=2))
    harness.spawn(thrifty, WORKER)
    spender = harness.spawn("main", BRANCH, budget=Budget(tokens=5))
    harness.feed(UsageReported(0, spender, Usage(input_tokens=4, output_tokens=1)))
    harness.offer(spender)


def say_no(harness: Harness) -> None:
    """A person says no, the supervisor crashes, and somebody else tries the same call."""
    harness.open(limits=LIMITS)
    first, second = harness.spawn("main", BRANCH), harness.spawn("main", BRANCH)
    harness.ask(first, "r0")
    harness.answer("r0", approve=False)
    harness.crash()
    harness.ask(second, "r1")


def allow_for_good(harness: Harness) -> None:
    """An owner always allows a tool that two sessions wait for."""
    harness.open(limits=LIMITS)
    first, second = harness.spawn("main", BRANCH), harness.spawn("main", BRANCH)
    harness.ask(first, "r0", digest="d0")
    harness.ask(second, "r1", digest="d1")
    harness.answer("r0", always=True)


def allow_a_command_for_good(harness: Harness) -> None:
    """A person allows a command; one of the same shape, another, and one in doubt follow."""
    harness.open(limits=LIMITS)
    asker = harness.spawn("main", BRANCH)
    harness.ask(asker, "r0", precedent=LOOKS)
    harness.answer("r0", always=True)
    harness.ask(asker, "r1", digest="d1", precedent=LOOKS)
    harness.ask(asker, "r2", digest="d2", precedent=REMOVES)
    harness.ask(asker, "r3", digest="d3", precedent=IN_DOUBT)


def allow_a_command_while_another_waits(harness: Harness) -> None:
    """What runs more than was allowed goes on waiting."""
    harness.open(limits=LIMITS)
    asker = harness.spawn("main", BRANCH)
    harness.ask(asker, "r0", precedent=LOOKS)
    harness.ask(asker, "r1", digest="d1", precedent=REMOVES)
    harness.answer("r0", always=True)


def know_what_is_harmless(harness: Harness) -> None:
    """The tree's mode answers for what is known, and for nothing else."""
    harness.open(limits=LIMITS, mode="smart")
    asker = harness.spawn("main", BRANCH)
    for name, precedent in {"r0": LOOKS, "r1": REMOVES, "r2": IN_DOUBT}.items():
        harness.ask(asker, name, digest=name, precedent=precedent)


def consult(harness: Harness) -> None:
    """A request rests at a function; another session's function answers in its stead, then the right one."""
    harness.open(limits=LIMITS)
    wise = harness.spawn("main", BRANCH, approver="house:rules")
    asker = harness.spawn(wise, BRANCH, approver="house:rules")
    harness.ask(asker, "r0")
    harness.feed(approver_returned(0, "main", "r0", "approve", "not mine"))
    harness.feed(approver_returned(0, wise, "r0", "escalate", "too much for me"))


def have_nobody(harness: Harness) -> None:
    """A request finds nobody on its way."""
    harness.open(limits=LIMITS, owns_channel=False, rules=(Rule(tool="write", answer="approve"),))
    harness.ask(harness.spawn("main", BRANCH), "r0")


def fill_the_tree(harness: Harness) -> None:
    """As many live, then as many ever were, as may."""
    harness.open(limits=LIMITS.model_copy(update={"max_live": 3, "max_total": 4}))
    first = harness.spawn("main", WORKER)
    harness.spawn("main", WORKER)
    harness.refused("main", WORKER)
    harness.offer(first)
    harness.offer(harness.spawn("main", WORKER))
    harness.refused("main", WORKER)


def repeat_a_key(harness: Harness) -> None:
    """A spawn is repeated after its child ended."""
    harness.open(limits=LIMITS)
    child = harness.spawn("main", WORKER, key="k1")
    harness.offer(child)
    assert harness.spawn("main", WORKER, key="k1") == child, "S18: the key names another child"


def lose_who_asked(harness: Harness) -> None:
    """A session crashes while its request is on the screen and a child of it runs."""
    harness.open(limits=LIMITS)
    asker = harness.spawn("main", BRANCH)
    harness.spawn(asker, WORKER, via="model")
    harness.ask(asker, "r0")
    harness.feed(SessionLost(0, asker, "no more memory"))


def hold_a_word(harness: Harness) -> None:
    """A branch says its final message before its child does."""
    harness.open(limits=LIMITS)
    branch = harness.spawn("main", BRANCH, via="model")
    harness.spawn(branch, WORKER)
    harness.offer(branch)


def grow_careful(harness: Harness) -> None:
    """A careful branch has a child whose agent is not."""
    harness.open(limits=LIMITS)
    harness.spawn(harness.spawn("main", BRANCH, agent="careful"), BRANCH, agent="default")


def send_a_message_twice(harness: Harness) -> None:
    """A branch repeats a message to its child, and a worker writes to its parent."""
    harness.open(limits=LIMITS)
    branch = harness.spawn("main", BRANCH)
    worker = harness.spawn(branch, WORKER)
    for _ in range(2):
        harness.feed(SendAsked(0, branch, worker, "hello", "follow_up", "m1"))
    harness.feed(SendAsked(0, worker, "parent", "hello", "follow_up", "m2"))
    harness.feed(SendAsked(0, branch, "parent", "hello", "steer", "m3"))
    harness.feed(SendAsked(0, branch, harness.spawn("main", BRANCH), "hello", "follow_up", "m4"))


def spawn_too_many(harness: Harness) -> None:
    """One child more than a session may have, and one level more than a tree may have."""
    harness.open(limits=LIMITS)
    deepest = harness.spawn("main", BRANCH)
    for _ in range(LIMITS.max_children - 1):
        harness.spawn("main", BRANCH)
    harness.feed(SpawnAsked(0, "main", BRANCH, "one more", "handle"))
    for _ in range(LIMITS.max_depth - 2):
        deepest = harness.spawn(deepest, BRANCH)
    harness.feed(SpawnAsked(0, deepest, BRANCH, "one deeper", "handle"))


def show_a_canvas(harness: Harness) -> None:
    """A call and an action come twice, also after a crash; then nothing is shown."""
    harness.open(limits=LIMITS)
    worker = harness.spawn("main", WORKER)
    harness.feed(CanvasAsked(0, worker, "c0", "present", {"html": "x"}))
    for _ in range(2):
        harness.feed(CanvasAsked(0, "main", "c1", "present", {"html": "x"}))
        harness.feed(CanvasActionSent(0, "main", "c2", "approve everything"))
        harness.crash()
    harness.feed(CanvasAsked(0, "main", "c3", "hide", {}))
    harness.feed(CanvasActionSent(0, "main", "c4", "approve everything"))


def ask_an_image_model(harness: Harness) -> None:
    """An answer is reported twice, also after a crash; the last one spends the budget."""
    harness.open(limits=LIMITS, budget=Budget(tokens=9))
    asker = harness.spawn("main", BRANCH)
    for number in range(3):
        answered = VisionAnswered(asker, f"v{number // 2}", "seer", "a flag", Usage(input_tokens=5), 0)
        harness.feed(VisionReported(0, answered))
        harness.crash()


def take_in_a_copy(harness: Harness) -> None:
    """A child fails in a workspace of its own; its changes are kept and settled once, whoever asks again."""
    harness.open(limits=LIMITS)
    copy = WorkspaceCopy("0" * 32, "all", "", "0" * 64, 1, 1)
    child = harness.spawn("main", BRANCH, workspace="own", copy=copy)
    harness.spawn(child, WORKER)
    kept = ChangesKept(child, (ChangedFile("a", "", "0" * 64, 1),), "", 0)
    harness.feed(ChangesFound(0, kept))
    harness.feed(SessionLost(0, child, "no more memory"))
    for state in ("merged", "discarded"):
        harness.feed(ChangesFound(0, kept))
        harness.feed(SettleAsked(0, ChangesSettled(child, state, 0)))
        harness.crash()


STORIES: tuple[Callable[[Harness], None], ...] = (
    delegate,
    spend_a_budget,
    say_no,
    allow_for_good,
    allow_a_command_for_good,
    allow_a_command_while_another_waits,
    know_what_is_harmless,
    consult,
    have_nobody,
    fill_the_tree,
    repeat_a_key,
    lose_who_asked,
    hold_a_word,
    grow_careful,
    send_a_message_twice,
    spawn_too_many,
    show_a_canvas,
    take_in_a_copy,
    ask_an_image_model,
)
