"""What sessions say to people: on the nearest channel at or above them."""

from __future__ import annotations

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tree_facts import ChannelSaid
from sessiontree.tree.draft import Draft
from sessiontree.tree.instructions import RefuseSay
from sessiontree.tree.stimuli import SayAsked


def say(draft: Draft, asked: SayAsked) -> None:
    """Let a session's words go to the first channel on its way up; a Branch speaks on its parent's."""
    for above in draft.state.chain(asked.session):
        if above.spec.owns_channel:
            draft.write(ChannelSaid(asked.session, above.spec.session_id, asked.text))
            return
    reason = f"no session at or above {asked.session!r} owns a channel; give the tree one with channel=…"
    draft.tell(RefuseSay(PermissionDenied(PermissionTier.SYSTEM, reason)))
