"""Budgets: what a session may spend, which account pays, what is reserved at a spawn, and what remains.

A session with a budget has an account; a session without one uses its parent's. A member that an account does
not cap counts against the first account above that caps it. Amounts are integers, so reserving and returning
them is exact: tokens, calls and sessions are counted one by one, cost is in picodollars.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import BaseModel

from sessiontree.contracts.errors import LimitExceeded
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.values.messages import Usage
from sessiontree.tree.state.protocol import SpawnAsked
from sessiontree.tree.state.state import Account, TreeState
from sessiontree.tree.state.table import Table

SCALE = {"tokens": 1, "cost_usd": 10**12, "tool_calls": 1, "sessions": 1}
"""Account units per budget unit, for every counted member. Wall time is not counted."""


def convert_caps(budget: Budget | None) -> dict[str, int]:
    """Return the counted members that a budget sets, in account units."""
    if budget is None:
        return {}
    given = {name: getattr(budget, name) for name in SCALE}
    return {name: round(value * SCALE[name]) for name, value in given.items() if value is not None}


def convert_usage(usage: Usage) -> dict[str, int]:
    """Return what a usage counts against budgets, in account units, without zeros."""
    amounts = {
        "tokens": usage.tokens,
        "cost_usd": round(usage.cost_usd * SCALE["cost_usd"]),
        "tool_calls": usage.tool_calls,
    }
    return {name: amount for name, amount in amounts.items() if amount}


def to_budget_units(name: str, amount: int) -> float:
    """Return an amount in the units of a budget."""
    scale = SCALE[name]
    return amount if scale == 1 else amount / scale


def open_account(session: str, budget: Budget, above: Account | None, spawned_at_ms: int) -> Account:
    """Return the account of a session that was just spawned with a budget."""
    caps = convert_caps(budget)
    inherited = {} if above is None else above.payers
    wall_s = budget.wall_s
    return Account(
        session=session,
        above=None if above is None else above.session,
        caps=caps,
        payers={**inherited, **dict.fromkeys(caps, session)},
        used=dict.fromkeys(caps, 0),
        wall_at_ms=None if wall_s is None else add_seconds(spawned_at_ms, wall_s),
    )


def add_seconds(at_ms: int, seconds: float) -> int:
    """Return a time plus a number of seconds, in milliseconds."""
    return at_ms + round(seconds * 1000)


def find_endless(numbers: BaseModel | None) -> str | None:
    """Return the first member of limits or a budget that is not a finite number, or None."""
    given = {} if numbers is None else dict(numbers)
    return next(
        (name for name, value in given.items() if value is not None and not math.isfinite(value)), None
    )


def find_payers(accounts: Table[str, Account], account: str, name: str) -> Iterator[str]:
    """Yield the accounts that an amount drawn on ``account`` counts against, lowest first.

    These are the first account that caps the member and, while the session of the last one yielded has ended,
    the next account above it.
    """
    drawn_on = accounts.get(account)
    while drawn_on is not None:
        payer = accounts.get(drawn_on.payers.get(name, ""))
        if payer is None:
            return
        yield payer.session
        # A closed account has given back what it reserved, so what comes late counts above it, too.
        if not payer.is_closed or payer.above is None:
            return
        drawn_on = accounts.get(payer.above)


def count(accounts: Table[str, Account], account: str, name: str, amount: int) -> None:
    """Count an amount against every account that pays for it; a negative amount is returned."""
    for payer in list(find_payers(accounts, account, name)):
        paid = accounts.open(payer)
        if paid is not None:
            paid.used[name] += amount


def find_shortage(state: TreeState, asked: SpawnAsked) -> LimitExceeded | None:
    """Return the member of the parent's account that is too low for the child, or None if none is.

    The child itself counts as one session, and its whole budget is reserved. Wall time is not reserved,
    because sessions run in parallel and end when their parent ends.
    """
    account = state.sessions[asked.parent].account
    wanted = convert_caps(asked.budget)
    wanted["sessions"] = wanted.get("sessions", 0) + 1
    for name, amount in wanted.items():
        for payer in find_payers(state.accounts, account, name):
            paying = state.accounts[payer]
            needs = paying.used[name] + amount
            if needs > paying.caps[name]:
                limit = f"budget.{name}"
                return LimitExceeded(
                    asked.parent,
                    limit,
                    to_budget_units(name, needs),
                    to_budget_units(name, paying.caps[name]),
                )
    return None


def compute_remaining(state: TreeState, session: str) -> dict[str, float]:
    """Return what a session has left, by member, in budget units, for every capped member.

    Amounts reserved for children count as spent. No value is below 0. ``wall_s`` is measured at the latest
    time the tree knows. An unknown session has no entry.
    """
    found = state.sessions.get(session)
    account = None if found is None else state.accounts.get(found.account)
    if account is None:
        return {}
    left = {}
    for name, payer in account.payers.items():
        paying = state.accounts[payer]
        left[name] = to_budget_units(name, max(0, paying.caps[name] - paying.used[name]))
    ends = [
        own.wall_at_ms
        for link in state.list_chain(session)
        if (own := state.accounts.get(link.spec.session_id))
    ]
    wall_at_ms = min((end for end in ends if end is not None), default=None)
    if wall_at_ms is not None:
        left["wall_s"] = max(0, wall_at_ms - state.now_ms) / 1000
    return left
