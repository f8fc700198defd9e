"""Points a hook takes no part in are as if it were not there."""

from __future__ import annotations

import pytest

from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.tools.hooks import (
    POINTS,
    TOLD_POINTS,
    CalledTool,
    EndedCall,
    EndedSession,
    Hook,
    HookContext,
    HookPoint,
    HookText,
    KeptResult,
    Spawning,
    StartedSession,
    can_handle,
    check_hook,
)
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.dispatch.hook_chain import HookChain
from sessiontree.hooks.redact import Redact

CONTEXT = HookContext("main", "default", SessionKind.MAIN)
MESSAGE = ToolResultMessage("c", "look", ())
STARTED = StartedSession("main/w1", SessionKind.WORKER, "default", "look", None, "model")
ENDED = EndedSession("main/w1", SessionStatus.COMPLETED, "seen", None, forced=False)


def hook_at(point: HookPoint) -> Hook:
    """Return a hook that takes part in one point."""

    def answer(self: Hook, *given: object) -> None:
        """Do nothing."""

    made: Hook = type("Only", (Hook,), {point: answer})()
    return made


def test_what_a_hook_does_not_define_changes_nothing() -> None:
    """Each point of the class all hooks come from lets what it is around be."""
    hook, words = Hook(), HookText("hello", "user")
    kept = KeptResult("c", "look", (), None, is_error=False)
    assert hook.before_tool_call(CalledTool("c", "look", {}), CONTEXT) is None
    assert hook.after_tool_call(EndedCall("look", {}, MESSAGE, False, "ok", 0.0), CONTEXT) is None
    assert hook.tool_result_persist(kept) is kept
    assert hook.message_received(words, CONTEXT) is words
    assert hook.message_sending(words, CONTEXT) is words
    assert hook.message_sent(words, CONTEXT) is None
    assert hook.subagent_spawning(Spawning(SessionKind.WORKER, "look", None, None, "model"), CONTEXT) is None
    assert hook.subagent_spawned(STARTED, CONTEXT) is None
    assert hook.subagent_ended(ENDED, CONTEXT) is None
    assert hook.session_start(STARTED, CONTEXT) is None
    assert hook.session_end(ENDED, CONTEXT) is None


@pytest.mark.parametrize("point", POINTS)
def test_hosts_are_given_hooks_they_have_to_do_with(point: HookPoint) -> None:
    """One that only reads the journal leaves a tree's hosts as they are without hooks."""
    hook = hook_at(point)
    check_hook(hook)
    assert [each for each in POINTS if can_handle(hook, each)] == [point]
    assert (HookChain.for_hosts([hook]) is None) is (point in TOLD_POINTS)
    assert HookChain([hook]).sessions.looks is (point in TOLD_POINTS)


def test_redactor_stands_wherever_words_are_kept() -> None:
    """Results, messages both ways, and spawns; what is only looked at is clean by then."""
    stands = {point for point in POINTS if can_handle(Redact(), point)}
    assert stands == {
        "tool_result_persist",
        "message_received",
        "message_sending",
        "subagent_spawning",
    }
