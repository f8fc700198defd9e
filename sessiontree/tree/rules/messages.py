"""What sessions say: to people on a channel, and to the sessions below them and their parent."""

from __future__ import annotations

from sessiontree.contracts.errors import PermissionDenied, SessionClosed, SessionTreeError
from sessiontree.contracts.facts.stimuli import Incoming
from sessiontree.contracts.facts.tree_facts import ChannelSaid, MessagePassed
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.senders import join_principals
from sessiontree.contracts.settings.settings import MINUTE_MS
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable
from sessiontree.tree.rules.lifecycle import find_taint_source
from sessiontree.tree.rules.spawn import explain_left_out, find_channels
from sessiontree.tree.state.evolve import Draft
from sessiontree.tree.state.protocol import (
    AcceptSessionMessage,
    ChannelMessageAsked,
    RefuseChannelMessage,
    SendAsked,
)
from sessiontree.tree.state.reach import find_session_below, make_not_below_error
from sessiontree.tree.state.state import Session, TreeState


def say(draft: Draft, asked: ChannelMessageAsked) -> None:
    """Send a message of a live Main or Branch to the nearest channel at or above it, or refuse it."""
    session = draft.state.find_live_session(asked.session)
    if session is None:
        why = "it does not live"
    elif session.spec.kind is SessionKind.WORKER:
        why = "a worker does not talk to people; its result goes to its parent"
    else:
        channel = next(find_channels(draft.state, asked.session), None)
        broken = explain_left_out(draft.state, session) or _find_exceeded_limit(draft, session, asked.text)
        if channel is None:
            why = "no session at or above it owns a channel; give the tree one with channel=…"
        elif broken is not None:
            why = broken
        else:
            draft.write(ChannelSaid(asked.session, channel.spec.session_id, asked.text, draft.now_ms))
            return
    reason = f"session {asked.session!r} can't say anything to people: {why}"
    draft.tell(RefuseChannelMessage(PermissionDenied(PermissionTier.SYSTEM, reason)))


_PARENT = "parent"


def send(draft: Draft, asked: SendAsked) -> None:
    """Post a message of a Main or Branch to a session below it or to its parent, or refuse it.

    A key used before changes nothing: the message was sent then.
    """
    state = draft.state
    # Looked up before any check: a message that was sent stays sent, also if its receiver has ended since.
    sent_to = state.sent.get((asked.session, asked.key))
    if sent_to is not None:
        draft.tell(AcceptSessionMessage(sent_to))
        return
    found = _find_receiver(state, asked)
    if isinstance(found, SessionTreeError):
        draft.tell(RefuseChannelMessage(found))
        return
    sender, to = state.sessions[asked.session], found.spec.session_id
    broken = explain_left_out(state, sender) or _find_exceeded_limit(draft, sender, asked.text)
    if broken is not None:
        reason = f"session {asked.session!r} can't send a message to {to!r}: {broken}"
        draft.tell(RefuseChannelMessage(PermissionDenied(PermissionTier.WORKSPACE, reason)))
        return
    draft.write(MessagePassed(asked.session, to, asked.key, asked.mode, draft.now_ms))
    said: dict[str, JsonValue] = {"session": asked.session, "message": asked.text}
    if sender.spec.label is not None:
        said["label"] = sender.spec.label
    text = dump_readable(said)
    draft.post(
        to,
        lambda post_id: Incoming(
            draft.now_ms,
            post_id,
            text,
            mode=asked.mode,
            origin="child" if to == sender.spec.parent else "parent",
            asked_by=join_principals(sender.spec.asked_by, asked.asked_by),
            taint=find_taint_source(sender),
        ),
    )
    draft.tell(AcceptSessionMessage(to))


def _find_receiver(state: TreeState, asked: SendAsked) -> Session | SessionTreeError:
    """Return the live session that a message reaches, or why it reaches none."""
    sender = state.find_live_session(asked.session)
    if sender is None or sender.spec.kind is SessionKind.WORKER:
        reason = f"session {asked.session!r} sends no messages: only a live Main or Branch does"
        return PermissionDenied(PermissionTier.WORKSPACE, reason)
    parent = sender.spec.parent
    if parent is not None and asked.to in {_PARENT, parent}:
        # A child that could steer would cut its parent's turn whenever it liked.
        if asked.mode == "steer":
            return SessionClosed(asked.to, "your parent is not steered from below; send it a follow_up")
        found = state.sessions.get(parent)
    else:
        found = find_session_below(state, asked.session, asked.to)
    if found is None:
        return make_not_below_error(asked.to)
    if not found.is_live:
        return SessionClosed(asked.to, f"it ended {found.status} and takes no more messages")
    if found.stop is not None:
        return SessionClosed(asked.to, "it is stopping and takes no more messages")
    return found


def _find_exceeded_limit(draft: Draft, session: Session, text: str) -> str | None:
    """Return the limit of the message policies that a Branch's message would exceed, or None."""
    if session.spec.kind is SessionKind.MAIN:
        return None
    for policy in draft.state.charter.messages:
        if policy.max_chars is not None and len(text) > policy.max_chars:
            return (
                f"its message has {len(text):,} characters, and the message policy lets a Branch send "
                f"{policy.max_chars:,} at once; send a shorter one, or put it into the result"
            )
        if policy.per_minute is None:
            continue
        recent = [at_ms for at_ms in session.said_at_ms if at_ms > draft.now_ms - MINUTE_MS]
        if len(recent) >= policy.per_minute:
            wait_s = (recent[-policy.per_minute] + MINUTE_MS - draft.now_ms) / 1000
            return (
                f"it sent {len(recent)} messages within the last minute, and the message policy lets "
                f"a Branch send {policy.per_minute}; send it in {wait_s:.0f} s, or put it into the result"
            )
    return None
