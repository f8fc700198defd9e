"""What sessions say to people: on the nearest channel at or above them."""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tree_facts import ChannelSaid
from sessiontree.tree.draft import Draft
from sessiontree.tree.instructions import RefuseSay
from sessiontree.tree.state import Session, TreeState
from sessiontree.tree.stimuli import SayAsked


def has_channel(state: TreeState, session: str) -> bool:
    """Return whether a session, or one above it, has a channel that lives."""
    return any(_channels(state, session))


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
        for link in _channels(draft.state, asked.session):
            draft.write(ChannelSaid(asked.session, link.spec.session_id, asked.text))
            return
        why = "no session at or above it owns a channel; give the tree one with channel=…"
    reason = f"session {asked.session!r} can't say anything to people: {why}"
    draft.tell(RefuseSay(PermissionDenied(PermissionTier.SYSTEM, reason)))
