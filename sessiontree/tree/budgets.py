"""Budgets: what is set aside at spawn, what is charged, and the stop at the cap."""

from __future__ import annotations

import math

from sessiontree.contracts.errors import LimitExceeded
from sessiontree.contracts.tree_facts import UsageCharged
from sessiontree.contracts.usage import NOTHING_USED, Usage
from sessiontree.tree.accounts import amounts_of, caps_of, natural, payers_of
from sessiontree.tree.lifecycle import stop_overdrawn
from sessiontree.tree.state import TreeState
from sessiontree.tree.stimuli import SpawnAsked, UsageReported
from sessiontree.tree.transaction import Draft


def shortage(state: TreeState, asked: SpawnAsked) -> LimitExceeded | None:
    """Return which member of the parent's account has too little left for the child, if one has.

    The child itself counts as one session; its budget is set aside whole. Wall time is not set aside:
    sessions run side by side, and a parent's own end ends them.
    """
    account = state.sessions[asked.parent].account
    wanted = caps_of(asked.budget)
    wanted["sessions"] = wanted.get("sessions", 0) + 1
    for name, amount in wanted.items():
        for payer in payers_of(state.accounts, account, name):
            paying = state.accounts[payer]
            needs = paying.used[name] + amount
            if needs > paying.caps[name]:
                limit = f"budget.{name}"
                return LimitExceeded(
                    asked.parent, limit, natural(name, needs), natural(name, paying.caps[name])
                )
    return None


def charge(draft: Draft, reported: UsageReported) -> None:
    """Charge what a session used, even after its end: it is gone. At a cap those drawing on it stop."""
    session = draft.state.sessions.get(reported.session)
    usage = _sane(reported.usage)
    if session is None or usage == NOTHING_USED:
        return
    draft.write(UsageCharged(reported.session, session.account, usage))
    stop_overdrawn(draft, session.account, amounts_of(usage))


def remaining(state: TreeState, session: str) -> dict[str, float]:
    """Return what a session has left by member, in a budget's units, for every member that is capped.

    What is set aside for children counts as gone; nothing is below 0. ``wall_s`` is seen from the latest
    time the tree knows of. An unknown session has no entry.
    """
    found = state.sessions.get(session)
    account = None if found is None else state.accounts.get(found.account)
    if account is None:
        return {}
    left = {}
    for name, payer in account.payers.items():
        paying = state.accounts[payer]
        left[name] = natural(name, max(0, paying.caps[name] - paying.used[name]))
    ends = [
        own.wall_at_ms for link in state.chain(session) if (own := state.accounts.get(link.spec.session_id))
    ]
    wall_at_ms = min((end for end in ends if end is not None), default=None)
    if wall_at_ms is not None:
        left["wall_s"] = max(0, wall_at_ms - state.now_ms) / 1000
    return left


def _sane(usage: Usage) -> Usage:
    # A provider that reports nonsense must neither give budget back nor break the record.
    cost_usd = usage.cost_usd
    return Usage(
        max(0, usage.input_tokens),
        max(0, usage.output_tokens),
        cost_usd if math.isfinite(cost_usd) and cost_usd > 0 else 0.0,
        max(0, usage.turns),
        max(0, usage.tool_calls),
    )
