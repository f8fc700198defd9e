"""Canvases: which changes a session may make to its own, and what of a person's actions reaches it."""

from __future__ import annotations

from typing import Final

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, SessionTreeError, ValidationError
from sessiontree.contracts.facts.stimuli import Incoming
from sessiontree.contracts.facts.tree_facts import CanvasActed, CanvasChanged
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.canvas import CANVAS_USER, MAX_CANVASES, ON_CANVAS
from sessiontree.contracts.recorded.senders import join_principals
from sessiontree.tree.rules.spawn import has_channel
from sessiontree.tree.state.canvas_state import CanvasState, find_fault
from sessiontree.tree.state.evolve import Draft
from sessiontree.tree.state.protocol import CanvasActionSent, CanvasAsked, RefuseChannelMessage

MAX_UNREAD: Final = 16
"""How many posts a session may not have taken before actions on its canvas are refused."""


def change_canvas(draft: Draft, asked: CanvasAsked) -> None:
    """Change the canvas of a live Main or Branch with a channel, or refuse it; a repeat changes nothing."""
    state = draft.state
    canvas = state.canvases.get(asked.session)
    # A call that is repeated after a crash gets the same key.
    if canvas is not None and asked.key in canvas.keys:
        return
    error = _find_refusal(draft, asked, canvas)
    if error is not None:
        draft.tell(RefuseChannelMessage(error))
        return
    draft.write(CanvasChanged(asked.session, asked.key, asked.action, asked.content, draft.now_ms))


def _find_refusal(draft: Draft, asked: CanvasAsked, canvas: CanvasState | None) -> SessionTreeError | None:
    state = draft.state
    session = state.find_live_session(asked.session)
    if session is None or session.spec.kind is SessionKind.WORKER or not has_channel(state, asked.session):
        reason = f"session {asked.session!r} has no canvas: only a live Main or Branch with a channel has one"
        return PermissionDenied(PermissionTier.SYSTEM, reason)
    if canvas is None and sum(1 for _ in state.canvases.items()) >= MAX_CANVASES:
        return ExecutionError(f"{MAX_CANVASES} sessions of this tree have a canvas; wait until one has ended")
    fault = find_fault(canvas or CanvasState(), asked.action, asked.content)
    return ValidationError(fault) if fault else None


def act_on_canvas(draft: Draft, sent: CanvasActionSent) -> None:
    """Post an action on a session's canvas to the session, as text from outside; a repeat posts nothing."""
    state = draft.state
    canvas, session = state.canvases.get(sent.session), state.find_live_session(sent.session)
    if canvas is not None and sent.key in canvas.keys:
        return
    if session is None or session.stop is not None:
        error = f"session {sent.session!r} takes no more messages"
    elif canvas is None or not canvas.is_shown:
        error = f"session {sent.session!r} shows no canvas"
    # A page can send actions in a loop, and each of them would cost the session a turn.
    elif session.owed >= MAX_UNREAD:
        error = f"session {sent.session!r} has not read {session.owed} messages yet; try again later"
    else:
        draft.write(CanvasActed(sent.session, sent.key, draft.now_ms))
        asked_by = join_principals(session.spec.asked_by, (CANVAS_USER,))
        draft.post(
            sent.session,
            lambda post_id: Incoming(
                draft.now_ms, post_id, sent.text, "follow_up", "canvas", asked_by, taint=ON_CANVAS
            ),
        )
        return
    draft.tell(RefuseChannelMessage(ExecutionError(error)))
