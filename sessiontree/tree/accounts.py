"""Accounts: what may be spent, by whom, and how much of it is gone. They hold no rules.

A session with a budget has an account; one without draws on its parent's. A member an account does not cap
goes up to the first account that does. Amounts are integers, so that reserving and returning never drift:
tokens, calls and sessions by the piece, cost in picodollars.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter

from pydantic import BaseModel

from sessiontree.contracts.limits import Budget
from sessiontree.contracts.usage import Usage
from sessiontree.tree.table import Table

SCALE = {"tokens": 1, "cost_usd": 10**12, "tool_calls": 1, "sessions": 1}
"""Units of an account per unit of a budget, for every member that is counted; wall time is not."""


@dataclass(slots=True)
class Account:
    """What one session and those that draw on it may spend."""

    session: str
    """Whose account it is."""
    above: str | None
    """The account of its parent; None for Main's."""
    caps: Mapping[str, int]
    """The members it caps itself."""
    payers: Mapping[str, str]
    """Every member that is capped here or above, and the account that caps it."""
    used: dict[str, int]
    """Spent, or set aside for a live account below, by member it caps."""
    wall_at_ms: int | None
    """When its wall time is used up."""
    is_closed: bool = False
    """Whether its session ended: what still comes in counts above as well."""

    def copy(self) -> Account:
        """Return a copy with its own counts."""
        copy = Account(*_VALUES(self))
        copy.used = dict(self.used)
        return copy


_VALUES = attrgetter(*(field.name for field in fields(Account)))


def caps_of(budget: Budget | None) -> dict[str, int]:
    """Return a budget's counted members that are set, in account units."""
    if budget is None:
        return {}
    given = {name: getattr(budget, name) for name in SCALE}
    return {name: round(value * SCALE[name]) for name, value in given.items() if value is not None}


def amounts_of(usage: Usage) -> dict[str, int]:
    """Return what a usage counts against budgets, in account units, without what is zero."""
    amounts = {
        "tokens": usage.tokens,
        "cost_usd": round(usage.cost_usd * SCALE["cost_usd"]),
        "tool_calls": usage.tool_calls,
    }
    return {name: amount for name, amount in amounts.items() if amount}


def natural(name: str, amount: int) -> float:
    """Return an amount in the units a budget is written in."""
    scale = SCALE[name]
    return amount if scale == 1 else amount / scale


def open_account(session: str, budget: Budget, above: Account | None, spawned_at_ms: int) -> Account:
    """Return the account of a session that was just spawned with a budget."""
    caps = caps_of(budget)
    inherited = {} if above is None else above.payers
    wall_s = budget.wall_s
    return Account(
        session=session,
        above=None if above is None else above.session,
        caps=caps,
        payers={**inherited, **dict.fromkeys(caps, session)},
        used=dict.fromkeys(caps, 0),
        wall_at_ms=None if wall_s is None else later(spawned_at_ms, wall_s),
    )


def later(at_ms: int, seconds: float) -> int:
    """Return the time so many seconds after another, in milliseconds."""
    return at_ms + round(seconds * 1000)


def endless(numbers: BaseModel | None) -> str | None:
    """Return the first member of limits or a budget that is no finite number, None where all are."""
    given = {} if numbers is None else dict(numbers)
    return next(
        (name for name, value in given.items() if value is not None and not math.isfinite(value)), None
    )


def payers_of(accounts: Table[str, Account], account: str, name: str) -> Iterator[str]:
    """Yield the accounts an amount drawn on ``account`` counts against, lowest first.

    That is the first one that caps the member; where its session has ended, the next above as well.
    """
    drawn_on = accounts.get(account)
    while drawn_on is not None:
        payer = accounts.get(drawn_on.payers.get(name, ""))
        if payer is None:
            return
        yield payer.session
        if not payer.is_closed or payer.above is None:
            return
        drawn_on = accounts.get(payer.above)


def count(accounts: Table[str, Account], account: str, name: str, amount: int) -> None:
    """Count an amount (negative: given back) against every account that pays for it."""
    for payer in list(payers_of(accounts, account, name)):
        paid = accounts.open(payer)
        if paid is not None:
            paid.used[name] += amount
