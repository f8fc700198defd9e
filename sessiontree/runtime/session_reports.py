"""How sessions stand, read from the tree's state."""

from __future__ import annotations

from dataclasses import dataclass

from sessiontree.contracts.ports import SessionReport
from sessiontree.runtime.live_session import Controller
from sessiontree.runtime.session_policy import policy_in
from sessiontree.tree.budgets import remaining
from sessiontree.tree.rights import end_of_life_ms

NOT_EMBODIED = "none: on no host now"


@dataclass(frozen=True, slots=True)
class ActorRow:
    """One process of a runtime, and the session it embodies now."""

    name: str
    role: str
    """``supervisor``, ``gateway``, or the pool a host belongs to."""
    pid: int
    """0 while it starts."""
    confinement: str
    tree_id: str | None = None
    """None while it embodies nobody."""
    session: str | None = None
    epoch: int = 0


def report_of(controller: Controller, session: str) -> SessionReport:
    """Return one session's standing."""
    state = controller.state
    node = state.sessions[session]
    agent = node.spec.agent
    live = controller.live_sessions.get(session)
    link = None if live is None else live.link
    return SessionReport(
        session_id=session,
        kind=node.spec.kind,
        status=node.status,
        depth=node.spec.depth,
        model=controller.model_of(agent),
        turns=node.usage.turns,
        usage=node.usage,
        children=tuple(state.children.members(session)),
        pending_approvals=node.pending,
        budget_left=remaining(state, session),
        expires_at_ms=end_of_life_ms(state, session),
        confinement=NOT_EMBODIED if link is None else link.transport.level,
        approval_mode=controller.config.mode,
        system_tier=node.spec.system_tier,
        exec_security=node.spec.commands,
        taint=node.taint,
        after_untrusted=policy_in(controller.config)[0].after_untrusted,
    )
