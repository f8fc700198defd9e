"""Prices of models of providers: as the program gave them, else from a list that comes with pydantic-ai.

Loading this loads the list, and no provider's library. A price that nobody knows is None, never zero.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from genai_prices import Usage, calc_price

from sessiontree.contracts.settings.model_settings import ModelPrice

_MILLION: Final = 1_000_000


def reply_cost(
    used: Any, model: str, system: str, *, price: ModelPrice | None, is_listed: bool
) -> float | None:
    """Return what a reply costs in USD, or None if nobody knows.

    Args:
        used: The usage of the reply, as pydantic-ai gives it.
        model: The provider's name of the model that replied.
        system: The provider.
        price: The price that the program gave; cached tokens cost as much as others.
        is_listed: Whether the list applies: it has the prices of the providers' own servers.
    """
    if price is not None:
        inputs, outputs = int(used.input_tokens), int(used.output_tokens)
        return (inputs * price.input_per_million + outputs * price.output_per_million) / _MILLION
    cost = _look_up_price(used, model, system) if is_listed else None
    return None if cost is None else float(cost)


def highest_price(model: str, system: str) -> ModelPrice | None:
    """Return the most that tokens of a model may cost by the list, or None if it does not have the model.

    That is the price of a long question all of which is written to the provider's cache, and of its reply.
    """
    plain = _look_up_price(Usage(input_tokens=_MILLION), model, system)
    written = _look_up_price(Usage(input_tokens=_MILLION, cache_write_tokens=_MILLION), model, system)
    whole = _look_up_price(Usage(input_tokens=_MILLION, output_tokens=_MILLION), model, system)
    if plain is None or written is None or whole is None:
        return None
    return ModelPrice(
        input_per_million=float(max(plain, written)),
        output_per_million=float(max(Decimal(0), whole - plain)),
    )


def _look_up_price(used: Any, model: str, system: str) -> Decimal | None:
    """Return the total price in USD by the list, or None.

    The list knows a model by several names, also by those with a date.
    """
    try:
        price: Decimal = calc_price(used, model, provider_id=system).total_price
    except LookupError:
        return None
    return price
