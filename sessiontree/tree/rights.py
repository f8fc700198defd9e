"""The ceiling: rights of a child ⊆ rights of its parent ∩ its kind ∩ its agent. Nothing widens it later."""

from __future__ import annotations

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.spec import SessionSpec
from sessiontree.contracts.tiers import ExecSecurity, SystemAnswer, WorkspaceAccess
from sessiontree.tree.state import TreeState

_SECURITIES: tuple[ExecSecurity, ...] = ("full", "safe-bin", "paranoid")
_STRICTNESS: tuple[SystemAnswer, ...] = ("allow", "ask", "deny")


def tools_of_main(state: TreeState, agent: str) -> tuple[str, ...]:
    """Return the names of the tools Main may hold at most, sorted."""
    return tuple(sorted(state.allowed[agent, SessionKind.MAIN]))


def tools_of_child(state: TreeState, parent: SessionSpec, kind: SessionKind, agent: str) -> tuple[str, ...]:
    """Return the names of the tools a child may hold at most, sorted."""
    allowed = state.allowed[agent, kind]
    return tuple([name for name in parent.tools if name in allowed])


def strictest(*tiers: SystemAnswer) -> SystemAnswer:
    """Return the strictest of some answers to System calls."""
    return max(tiers, key=_STRICTNESS.index)


def most_secure(*securities: ExecSecurity) -> ExecSecurity:
    """Return the strictest of what some say about commands."""
    return max(securities, key=_SECURITIES.index)


def narrowest(*accesses: WorkspaceAccess) -> WorkspaceAccess:
    """Return the strictest of what some say about the workspace."""
    return "ro" if "ro" in accesses else "rw"


def deepest_level(kind: SessionKind, max_depth: int) -> int:
    """Return the deepest level of a kind: a Branch leaves room for one below it, a Worker needs none."""
    return max_depth if kind is SessionKind.WORKER else max_depth - 1


def time_to_live_s(default_s: float | None, asked_s: float | None, *, may_lengthen: bool) -> float | None:
    """Return a child's time to live in seconds, None for as long as its parent lives."""
    if asked_s is None:
        return default_s
    if may_lengthen or default_s is None:
        return asked_s
    return min(default_s, asked_s)


def end_of_life_ms(state: TreeState, session: str) -> int | None:
    """Return when the time to live of a session, or of one above it, ends; None = no time is set."""
    ends_ms = (link.expires_at_ms for link in state.chain(session))
    return min((end_ms for end_ms in ends_ms if end_ms is not None), default=None)
