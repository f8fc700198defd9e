"""Ctrl-C ends the waiting, and nothing else: no message, no request and no tree is lost."""

from __future__ import annotations

import threading

import pytest

from sessiontree import (
    ApprovalRequest,
    ExecutionError,
    Limits,
    PermissionTier,
    ScriptedModel,
    script_call,
    tool,
)
from sessiontree.sync import SessionTree
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.system.sync.model_fakes import Gated
from tests.system.sync.tree_fixtures import PATIENCE_S, Caller, Opener, blocked_in, interrupted_when

PATIENT = Limits(approval_patience_s=None)


def test_message_survives_the_interrupt_of_its_send(open_tree: Opener, gated: Gated) -> None:
    """The session answers it, and the tree is as usable as before."""
    with open_tree(gated.model) as tree:
        with interrupted_when(gated.is_asked):
            tree.main.send("hello")
        gated.gate.release(2)
        assert tree.main.send("again") == "heard again"
        texts = [message.text for message in tree.main.history()]
        assert texts == ["hello", "heard hello", "again", "heard again"]


def test_stream_can_be_asked_on_after_an_interrupt(open_tree: Opener, gated: Gated) -> None:
    """The reply is still the stream's."""
    with open_tree(gated.model) as tree:
        reply = tree.main.stream("hello")
        with interrupted_when(blocked_in(tree)):
            list(reply)
        with interrupted_when(blocked_in(tree)):
            reply.result()
        gated.gate.release()
        assert list(reply) == ["heard hello"]
        assert reply.result() == "heard hello"


def test_other_waits_end_and_leave_the_tree(open_tree: Opener, gated: Gated) -> None:
    """Waiting for a result, for events, for progress: each ends, and can be begun again."""
    with open_tree(gated.model) as tree:
        branch = tree.main.spawn("branch", "think")
        with interrupted_when(blocked_in(tree)):
            branch.result()
        with interrupted_when(blocked_in(tree)):
            list(tree.events())
        with tree.progress() as progress, interrupted_when(blocked_in(tree)):
            for _ in progress:
                pass
        gated.gate.release()
        assert branch.result().summary == "heard think"
        assert len(list(zip(range(3), tree.events(), strict=False))) == 3


def test_interrupted_map_cancels_its_children(open_tree: Opener, gated: Gated) -> None:
    """As with a cancelled task: nobody waits for them any more."""
    with open_tree(gated.model) as tree:
        with interrupted_when(gated.is_asked):
            tree.main.map("worker", ["a", "b"])
        for child in tree.main.status().children:
            assert str(tree.session(child).result().status) == "cancelled"
        assert [str(line.status) for line in tree.receipt()[1:]] == ["cancelled", "cancelled"]


def test_interrupted_call_runs_on(open_tree: Opener, gated: Gated) -> None:
    """The waiting ends; the call of the session does not."""
    with open_tree(gated.model, tools=TOOLS, approvals="auto") as tree:
        sent = tree.main.stream("hello")
        assert gated.is_asked()
        with interrupted_when(blocked_in(tree)):
            tree.main.call("append", {"text": "x"})  # waits for the end of the turn
        gated.gate.release()
        sent.result()
        tree.main.call("append", {"text": "y"})
    assert [text for _, text in effects(open_tree.workspace)] == ["x", "y"]


def test_interrupt_at_the_question_leaves_the_request_open(open_tree: Opener) -> None:
    """It is no answer: the next call that waits is asked again."""
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.request_id)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return True

    with open_tree(
        ScriptedModel([script_call("launch"), "done"]), tools=TOOLS, approver=approve, limits=PATIENT
    ) as tree:
        reply = tree.main.stream("go")
        with pytest.raises(KeyboardInterrupt):
            reply.result()
        assert [each.request.request_id for each in tree.approvals.pending()] == asked
        assert effects(open_tree.workspace) == []
        assert reply.result() == "done"
        assert asked == [asked[0]] * 2
    assert len(effects(open_tree.workspace)) == 1


def test_real_interrupt_of_an_approver_reaches_the_program(open_tree: Opener) -> None:
    """The signal arrives while the approver runs on the main thread, as it does during ``input()``."""
    inside = threading.Event()

    def approve(request: ApprovalRequest) -> bool:
        inside.set()
        pause = threading.Event()
        for _ in range(int(PATIENCE_S * 20)):  # a signal just before a wait is noticed after it
            pause.wait(0.05)
        return True

    with open_tree(
        ScriptedModel([script_call("launch"), "done"]), tools=TOOLS, approver=approve, limits=PATIENT
    ) as tree:
        with interrupted_when(lambda: inside.wait(PATIENCE_S)):
            tree.main.send("go")
        (pending,) = tree.approvals.pending()
        pending.deny()
        assert tree.main.send("well?") == "done"


def test_exit_in_an_approver_ends_its_program_and_not_the_loop(open_tree: Opener) -> None:
    """``sys.exit()`` leaves by the call that waited, on the thread that made it."""

    def approve(request: ApprovalRequest) -> bool:
        raise SystemExit(3)

    with open_tree(
        ScriptedModel([script_call("launch"), "done"]), tools=TOOLS, approver=approve, limits=PATIENT
    ) as tree:
        sending = Caller(lambda: tree.main.send("go"))
        with pytest.raises(SystemExit):
            sending.outcome()
        assert len(tree.approvals.pending()) == 1


def test_what_one_thread_leaves_open_another_is_asked(open_tree: Opener) -> None:
    """A question interrupted on one blocked thread goes to the next one that blocks."""
    asked: list[int] = []
    both = threading.Event()

    def approve(request: ApprovalRequest) -> bool:
        both.wait(PATIENCE_S)
        asked.append(threading.get_ident())
        if len(asked) == 1:
            raise KeyboardInterrupt
        return True

    with open_tree(
        ScriptedModel([script_call("launch"), "done"]), tools=TOOLS, approver=approve, limits=PATIENT
    ) as tree:
        branch = tree.main.spawn("branch", "go")
        callers = [Caller(lambda: branch.result().summary) for _ in range(2)]
        both.set()
        outcomes = []
        for caller in callers:
            try:
                outcomes.append(caller.outcome())
            except KeyboardInterrupt:
                outcomes.append("interrupted")
        assert sorted(outcomes) == ["done", "interrupted"]
    assert len(set(asked)) == 2


def test_interrupted_program_closes_its_tree(open_tree: Opener, gated: Gated) -> None:
    """Ctrl-C through the block: the tree is closed, and can be taken up by this very process."""
    trees: list[SessionTree] = []
    with interrupted_when(gated.is_asked), open_tree(gated.model) as tree:
        trees.append(tree)
        tree.main.send("hello")
    gated.gate.release(3)
    with open_tree.resume(trees[0].tree_id, gated.model) as again:
        assert again.main.send("back") == "heard back"
        assert again.main.history()[0].text == "hello"


@tool(tier=PermissionTier.READ_ONLY)
async def interrupt_loop() -> str:
    """Raise on the loop what ends a program; nobody pressed anything."""
    raise KeyboardInterrupt


def test_tool_that_raises_keyboard_interrupt_beside_the_main_thread_fails_alone(open_tree: Opener) -> None:
    """A real one comes to the main thread alone; what a tool raises elsewhere is its own failure."""
    with open_tree(ScriptedModel([script_call("interrupt_loop"), "went on"]), tools=[interrupt_loop]) as tree:
        assert tree.main.send("go") == "went on"
        with pytest.raises(ExecutionError, match="KeyboardInterrupt"):
            tree.main.call("interrupt_loop")
