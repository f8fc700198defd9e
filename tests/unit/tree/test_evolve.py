"""Booking facts: in place, for every fact, without a rule."""

from __future__ import annotations

import typing

import pytest

from sessiontree.contracts.facts.stimuli import CancelAsked
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalRequested,
    ApprovalStepRecorded,
    ApprovalWaiting,
    BudgetSpent,
    CancelBegun,
    CanvasActed,
    CanvasChanged,
    ChangesKept,
    ChangesSettled,
    ChannelSaid,
    ClientCallEnded,
    ClientCallOpened,
    CronJobRemoved,
    CronJobSaved,
    CronSlotClaimed,
    CronSlotsSkipped,
    DecisionRefused,
    DenialLifted,
    DigestDenied,
    InterruptBegun,
    LeftoversEnded,
    MessagePassed,
    OutsideHookFailed,
    Posted,
    PostsTaken,
    ResultAwaited,
    ResultHeld,
    SessionAdopted,
    SessionEnded,
    SessionReactivated,
    SessionSpawned,
    SessionTainted,
    SpawnDenied,
    ToolAlwaysAllowed,
    TreeCreated,
    TreeFact,
    TreeForked,
    UsageCharged,
    VisionAnswered,
)
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.client_calls import ClientCall
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.values.messages import Usage
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.state import make_initial_tree
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import WORKER, config, job, question, result

NOBODY = "main/b7"
STRAY: list[typing.Any] = [
    SessionTainted("main/w9", "web_fetch"),
    TreeCreated(config()),
    SessionAdopted(NOBODY, 2, 5),
    SpawnDenied(NOBODY, WORKER, None, 0, 0, "no"),
    SessionReactivated(NOBODY),
    ResultHeld(NOBODY, result()),
    LeftoversEnded(NOBODY, 2),
    ResultAwaited(NOBODY),
    SessionEnded(NOBODY, SessionStatus.FAILED, result("failed"), 3, True),
    ApprovalRequested(question("r", NOBODY), 9),
    ApprovalStepRecorded("r0", NOBODY, "deny", "rule", ""),
    ApprovalWaiting("r0", NOBODY, "show"),
    ApprovalDecided("r0", "denied", "rule", ""),
    DigestDenied("d", (NOBODY,)),
    DenialLifted("r", "ada"),
    DecisionRefused("r0", Principal("bob", "", "", "", False), True),
    ToolAlwaysAllowed("deploy"),
    ClientCallOpened(ClientCall("c", NOBODY, "ask", {}, 9)),
    ClientCallEnded("c0", "ok", ""),
    Posted("p", NOBODY, typing.cast("typing.Any", CancelAsked(0, "", "cancelled"))),
    PostsTaken(NOBODY, ("p",)),
    UsageCharged(NOBODY, NOBODY, Usage(input_tokens=1)),
    BudgetSpent(NOBODY, "budget.tokens", 1, 1),
    ChannelSaid(NOBODY, "main", "hello"),
    MessagePassed(NOBODY, "main", "key", "follow_up", 0),
    CanvasChanged(NOBODY, "key", "present", {"html": "x"}, 0),
    CanvasActed(NOBODY, "key", 0),
    VisionAnswered(NOBODY, "key", "seer", "a flag", Usage(input_tokens=1), 0),
    ChangesKept(NOBODY, (), "", 0),
    ChangesSettled(NOBODY, "merged", 0),
    OutsideHookFailed(NOBODY, "hook", "session_start", "it raised OSError"),
    CancelBegun((NOBODY,), "", SessionStatus.CANCELLED, 9),
    InterruptBegun((NOBODY,), ""),
    TreeForked(config(), 9, 3),
    CronJobSaved(job(), 0, "added", "key", 0),
    CronJobRemoved("c9", "", 0),
    CronSlotClaimed("c9", "c9:1", 1, "due", "main", True, "main#1", "", 1),
    CronSlotsSkipped("c9", 1, 2, 2, True, "missed", "", 3),
]


def test_every_fact_can_be_booked_without_its_past() -> None:
    """Evolving is total: a fact about what the state does not know is booked as far as it goes."""
    orphan = Harness().open()
    orphan.spawn("main", WORKER)
    spawned = [fact for fact in orphan.history if isinstance(fact, SessionSpawned)][-1]
    for fact in [*STRAY, spawned]:
        state = make_initial_tree()
        assert evolve(state, fact) is state
    assert {type(fact) for fact in [*STRAY, spawned]} == set(typing.get_args(TreeFact))


def test_unknown_fact_is_a_mistake() -> None:
    """What is no fact of a tree is not passed over in silence."""
    with pytest.raises(KeyError):
        evolve(make_initial_tree(), typing.cast("typing.Any", object()))


@pytest.mark.covers("DUR7")
def test_change_of_limits_rewrites_nothing() -> None:
    """Facts that no limit of today allows are booked as they were decided."""
    harness = Harness().open()
    for _ in range(8):
        harness.spawn("main", WORKER)
    state = make_initial_tree()
    for fact in harness.history:
        tight = config(limits=config().limits.model_copy(update={"max_children": 1, "max_total": 2}))
        evolve(state, TreeCreated(tight) if isinstance(fact, TreeCreated) else fact)
    assert (state.live, state.total) == (9, 9)
