"""What children changed in workspaces of their own: kept once, then merged or discarded once."""

from __future__ import annotations

from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.tree.state.evolve import Draft
from sessiontree.tree.state.protocol import ChangesFound, SettleAsked
from sessiontree.tree.state.state import TreeState


def keep_changes(draft: Draft, found: ChangesFound) -> None:
    """Keep what an ended session changed in its copy; a repeated report changes nothing."""
    session = draft.state.sessions.get(found.kept.session)
    has_ended_copy = session is not None and session.spec.copy is not None and not session.is_live
    if has_ended_copy and found.kept.session not in draft.state.changes:
        draft.write(found.kept)


def settle_changes(draft: Draft, asked: SettleAsked) -> None:
    """Record that kept changes were merged or discarded; the first answer counts."""
    name = asked.settled.session
    if name in draft.state.changes and name not in draft.state.settled:
        draft.write(asked.settled)


def find_unfinished_copies(state: TreeState) -> list[SessionSpec]:
    """Return the ended sessions whose changes are not kept yet, in the order of their spawns."""
    return [
        each.spec
        for _, each in state.sessions.items()
        if each.spec.copy is not None and not each.is_live and each.spec.session_id not in state.changes
    ]


def find_copies_in_use(state: TreeState) -> frozenset[str]:
    """Return the names of the copies whose files or changes may still be asked for."""
    return frozenset(
        each.spec.copy.name
        for name, each in state.sessions.items()
        if each.spec.copy is not None and state.settled.get(name) != "discarded"
    )
