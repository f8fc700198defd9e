"""What an exported journal replays to, as plain JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sessiontree.journal.export import load_export
from sessiontree.journal.replay import read_fact
from sessiontree.session.evolve import evolve as evolve_session
from sessiontree.session.state import SessionState, make_initial_state
from sessiontree.tree.state.evolve import evolve as evolve_tree
from sessiontree.tree.state.state import make_initial_tree
from tests.unit.tree.tree_state_oracle import snapshot


def summary_of(lines: Iterable[str]) -> dict[str, Any]:
    """Replay an export and return the tree's state and every session's transcript and ledgers."""
    export = load_export(lines)
    assert export.complete, export.reason
    tree = make_initial_tree()
    sessions: dict[str, SessionState] = {}
    kinds: set[str] = set()
    for record in export.records:
        kinds.update(fact["kind"] for fact in record.to_json_parts())
        fact = read_fact(record.text)
        if record.session:
            state = sessions.get(record.session)
            if state is None:
                spec = tree.sessions[record.session].spec
                state = sessions[record.session] = make_initial_state(spec, tree.limits)
            evolve_session(state, fact)
        else:
            evolve_tree(tree, fact)
    return {
        "kinds": sorted(kinds),
        "tree": snapshot(tree),
        "sessions": {name: _session(state) for name, state in sorted(sessions.items())},
    }


def _session(state: SessionState) -> dict[str, Any]:
    return {
        "turn": state.turn,
        "stopping": state.stopping,
        "offer": None if state.offer is None else list(state.offer),
        "tools": list(state.tools),
        "usage": state.usage.to_wire(),
        "transcript": [message.to_wire() for message in state.transcript],
        "unresolved": sorted(state.calls),
    }
