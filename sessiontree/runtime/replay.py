"""Facts of any release, read from the journal as the values of this one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sessiontree.contracts import session_facts, tree_facts
from sessiontree.contracts.codec import current_versions, from_wire
from sessiontree.contracts.limits import Limits
from sessiontree.contracts.spec import SessionSpec
from sessiontree.journal.upcast import Upcasters
from sessiontree.session.evolve import evolve
from sessiontree.session.state import SessionState, initial

FACTS = (session_facts, tree_facts)
"""Rooms whose import makes every kind of fact known."""

UPCASTERS = Upcasters({}, current_versions())
"""One pure step per kind and version that ever changed; none has yet."""


def fact_of(text: str) -> Any:
    """Return the fact of a journaled text, brought to this release's version.

    Raises:
        JournalTooNew: a later release wrote it.
        JournalCorrupt: it names nothing any release wrote.
    """
    return from_wire(UPCASTERS.upcast(json.loads(text)))


def session_of(spec: SessionSpec, limits: Limits, texts: Iterable[str], id_key: str = "") -> SessionState:
    """Return a session's state by its facts, oldest first; ``id_key`` where it is to go on."""
    state = initial(spec, limits, id_key)
    for text in texts:
        evolve(state, fact_of(text))
    return state
