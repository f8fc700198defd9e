"""Which sessions a session's tools reach: those below it, and for messages also its parent.

A name of any other session is answered exactly as a name of no session, so that a session learns nothing
about the rest of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree.contracts.errors import SessionNotFound
from sessiontree.tree.state.state import Session, TreeState


def find_session_below(state: TreeState, asker: str, name: str) -> Session | None:
    """Return a session below ``asker``, live or ended, by its id, or a live child of it by its label."""
    if name.startswith(f"{asker}/"):
        found = state.sessions.get(name)
        if found is not None:
            return found
    labelled = state.labels.get((asker, name))
    return None if labelled is None else state.sessions.get(labelled)


def make_not_below_error(name: str) -> SessionNotFound:
    """Return the error for a name that is not one of a session below: the same, whatever else it names."""
    return SessionNotFound(name, "no session below you has that id or label; list them to see which")


def walk_below(state: TreeState, head: str) -> Iterator[Session]:
    """Yield every session below another, live or ended: parents before their children, in path order."""
    ahead = _list_children(state, head)
    while ahead:
        found = state.sessions[ahead.pop()]
        yield found
        ahead += _list_children(state, found.spec.session_id)


def _list_children(state: TreeState, name: str) -> list[str]:
    """Return the ids of all children that a session ever had, in reverse path order."""
    parent = state.sessions[name]
    workers = [f"{name}/w{number}" for number in range(parent.workers, 0, -1)]
    return workers + [f"{name}/b{number}" for number in range(parent.branches, 0, -1)]
