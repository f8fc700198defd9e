"""What model calls under way may still use: set aside at their maximum, so that a budget holds at any time.

Reservations are not facts: a call that is lost is made again, and reserved again. What a call used is charged
as a fact; its reservation ends then.
"""

from __future__ import annotations

import math
from typing import Final

from sessiontree.contracts.settings.model_settings import ModelPrice
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.tree.state.budgets import SCALE, find_payers, to_budget_units
from sessiontree.tree.state.state import TreeState

LEAST_OUTPUT: Final = 1_024
"""Tokens of a reply for which a call waits, if others that are under way may leave them."""
_PER_MILLION: Final = SCALE["cost_usd"] // 10**6


@dataclass(frozen=True, slots=True)
class MostUsed:
    """The most that a model call may use."""

    input_tokens: int
    output_tokens: int
    price: ModelPrice | None
    """Highest price of its tokens; None = it does not cost anything that is known before."""
    thinking_tokens: int = 0
    """Part of the output that the model needs before it says anything."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The call may be made now."""

    output_tokens: int | None
    """Maximum tokens of its reply; None = no budget counts them."""


@dataclass(frozen=True, slots=True)
class Postponed:
    """Calls under way may leave enough for this one."""


@dataclass(frozen=True, slots=True)
class Unaffordable:
    """What is left is not enough for this call."""

    limit: str
    """Such as ``budget.tokens``."""
    account: str
    left: float
    """In units of the budget."""


def place_in(session: str, key: str) -> str:
    """Return the place of a further question that a session asks besides that of its turn."""
    return f"{session}\0{key}"


def extract_session(place: str) -> str:
    """Return the session of a place; a session is the place of its turn's question."""
    return place.partition("\0")[0]


class Reservations:
    """The amounts that model calls of one tree have reserved.

    Args:
        state: The tree; its accounts say what is spent.
    """

    def __init__(self, state: TreeState) -> None:
        self._state = state
        self._held: dict[str, dict[tuple[str, str], int]] = {}
        """Amounts in account units by session, and by the account and member that they count against."""

    def ask(self, session: str, most: MostUsed) -> Admitted | Postponed | Unaffordable:
        """Reserve what a session's call may use, as far as budgets count it.

        If not all of it is left, the call gets what is left for a shorter reply, unless calls under way may
        leave more than that.
        """
        # A session has one question of a kind at a time: a repeated one replaces its own reservation.
        self.release(session)
        rows = self._compute_amounts(session, most)
        if not rows:
            return Admitted(None)
        fits = {
            place: _count_times(self._compute_left(place) - before, each)
            for place, (before, each) in rows.items()
        }
        output = min(most.output_tokens, *fits.values())
        wanted = min(most.output_tokens, most.thinking_tokens + LEAST_OUTPUT)
        if output < wanted:
            # Calls under way are reserved at their maximum and mostly use less, so waiting may help.
            if any(self._is_held(place) for place in rows):
                return Postponed()
            if output < 1 or most.thinking_tokens:
                place = min(fits, key=lambda each: fits[each])
                account, member = place
                return Unaffordable(
                    f"budget.{member}", account, to_budget_units(member, max(0, self._compute_left(place)))
                )
        granted = int(output)
        self._held[session] = {place: before + granted * each for place, (before, each) in rows.items()}
        return Admitted(granted)

    def release(self, session: str) -> bool:
        """End a session's reservation; return whether there was one."""
        return self._held.pop(session, None) is not None

    def _compute_amounts(self, session: str, most: MostUsed) -> dict[tuple[str, str], tuple[int, int]]:
        """Return, by account and member, what the input takes and what each token of the reply takes."""
        found = self._state.sessions.get(extract_session(session))
        if found is None:
            return {}
        units = {"tokens": (most.input_tokens, 1)}
        if most.price is not None:
            # Rounded up: what is set aside may be a picodollar too much, and never too little.
            input_price = math.ceil(most.price.input_per_million * _PER_MILLION)
            output_price = math.ceil(most.price.output_per_million * _PER_MILLION)
            units["cost_usd"] = (most.input_tokens * input_price, output_price)
        accounts = self._state.accounts
        return {
            (payer, member): taken
            for member, taken in units.items()
            for payer in find_payers(accounts, found.account, member)
        }

    def _compute_left(self, place: tuple[str, str]) -> int:
        account, member = place
        paying = self._state.accounts[account]
        held = sum(amounts.get(place, 0) for amounts in self._held.values())
        return paying.caps[member] - paying.used[member] - held

    def _is_held(self, place: tuple[str, str]) -> bool:
        return any(place in amounts for amounts in self._held.values())


def _count_times(left: int, each: int) -> float:
    """Return how often an amount is in what is left; -1 if nothing of that is left."""
    if left < 0:
        return -1
    return left // each if each else math.inf
