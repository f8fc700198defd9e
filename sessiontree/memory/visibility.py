"""Which rows a request may see and means: scope and filters as a mask over the mirror.

A session sees what its own path and its ancestors stored in its own tree, and all that trees left whose Main
has finished and had the same agent and workspace. No scope is the owner: everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from sessiontree.contracts.memory import MemoryScope, RecordType
from sessiontree.memory.columns import Texts
from sessiontree.memory.row_index import WHOLE, Mask, Mirror


def ancestry(session: str) -> list[str]:
    """Return a session's path and those of its ancestors, itself first."""
    parts = session.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def visible(mirror: Mirror, scope: MemoryScope | None, finished: Collection[str]) -> Mask:
    """Return which rows are alive and may be seen; a new mask.

    Args:
        mirror: The rows.
        scope: Who asks; None = the owner.
        finished: Ids of the trees whose Main has finished.
    """
    rows = mirror.rows
    alive = mirror.alive()[:rows].copy()
    if scope is None:
        return alive
    trees, known = mirror.trees.all()[:rows], mirror.trees.known()
    own = _any_of(mirror.sessions, ancestry(scope.session), rows) & _is(mirror.trees, scope.tree_id, rows)
    left = np.zeros(len(known), np.bool_)
    left[[code for tree, code in known.items() if tree in finished]] = True
    left_behind = (
        left[trees] & _is(mirror.agents, scope.agent_id, rows) & _is(mirror.workspaces, scope.workspace, rows)
    )
    mask: Mask = alive & (own | left_behind)
    return mask


def of_types(mirror: Mirror, types: Collection[RecordType], rows: int) -> Mask:
    """Return which of the first rows are of one of the types; all where none is named."""
    return _any_of(mirror.types, types, rows) if types else np.ones(rows, np.bool_)


def at_path(mirror: Mirror, path: str, rows: int) -> Mask:
    """Return which rows have a source of this path, or of a file below it."""
    start = path.rstrip("/")
    below = f"{start}/"
    return _any_of(
        mirror.paths,
        [known for known in mirror.paths.known() if known == start or known.startswith(below)],
        rows,
    )


def overlapping(mirror: Mirror, first: int | None, last: int | None, rows: int) -> Mask:
    """Return which rows' lines overlap a range; a whole file overlaps every range, None is no bound."""
    firsts, lasts = mirror.firsts.all()[:rows], mirror.lasts.all()[:rows]
    mask: Mask = firsts == WHOLE
    inside = np.ones(rows, np.bool_)
    if first is not None:
        inside &= lasts >= first
    if last is not None:
        inside &= firsts <= last
    mask |= inside
    return mask


def of_tree(mirror: Mirror, tree_id: str, rows: int) -> Mask:
    """Return which rows a tree stored."""
    return _is(mirror.trees, tree_id, rows)


def _is(texts: Texts, text: str, rows: int) -> Mask:
    return _any_of(texts, (text,), rows)


def _any_of(texts: Texts, wanted: Iterable[str], rows: int) -> Mask:
    codes = [code for text in wanted if (code := texts.code(text)) is not None]
    cells = texts.all()[:rows]
    if len(codes) == 1:
        mask: Mask = cells == codes[0]
        return mask
    return np.isin(cells, codes)
