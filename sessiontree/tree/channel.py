"""What sessions say to people: on the nearest channel at or above them, within the bounds of its policies."""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.message_policy import MINUTE_MS
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tree_facts import ChannelSaid
from sessiontree.tree.instructions import RefuseSay
from sessiontree.tree.state import Session, TreeState
from sessiontree.tree.stimuli import SayAsked
from sessiontree.tree.transaction import Draft


def has_channel(state: TreeState, session: str) -> bool:
    """Return whether a session may ever say something to people.

    It, or one above it, must have a channel and live, and no message policy may leave its agent out.
    """
    return any(_channels(state, session)) and _left_out(state, state.sessions[session]) is None


def _channels(state: TreeState, session: str) -> Iterator[Session]:
    """Yield the sessions with a channel on the way up, the nearest first."""
    return (link for link in state.chain(session) if link.is_live and link.spec.owns_channel)


def say(draft: Draft, asked: SayAsked) -> None:
    """Let the words of a live Main or Branch go to the first channel on its way up, or say why not."""
    session = draft.state.live_session(asked.session)
    if session is None:
        why = "it does not live"
    elif session.spec.kind is SessionKind.WORKER:
        why = "a worker does not talk to people; its result goes to its parent"
    else:
        channel = next(_channels(draft.state, asked.session), None)
        broken = _left_out(draft.state, session) or _out_of_bounds(draft, session, asked.text)
        if channel is None:
            why = "no session at or above it owns a channel; give the tree one with channel=…"
        elif broken is not None:
            why = broken
        else:
            draft.write(ChannelSaid(asked.session, channel.spec.session_id, asked.text, draft.now_ms))
            return
    reason = f"session {asked.session!r} can't say anything to people: {why}"
    draft.tell(RefuseSay(PermissionDenied(PermissionTier.SYSTEM, reason)))


def _left_out(state: TreeState, session: Session) -> str | None:
    """Return why a session's agent may not send messages; None where it may."""
    if session.spec.kind is SessionKind.MAIN:
        return None
    for policy in state.charter.messages:
        if policy.agents is not None and session.spec.agent not in policy.agents:
            may = ", ".join(policy.agents) or "none"
            return (
                f"the message policy lets no Branch of agent {session.spec.agent!r} send messages "
                f"(agents that may: {may}); put it into the result"
            )
    return None


def _out_of_bounds(draft: Draft, session: Session, text: str) -> str | None:
    """Return which bound of the message policies a Branch's message would break; None where none."""
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
