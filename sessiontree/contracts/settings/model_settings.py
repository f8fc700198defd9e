"""Settings of a model request: how long a reply may be, how the model thinks, what it may call.

An agent, a session and a message can each set them; the most specific value applies.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from sessiontree.contracts.settings.settings import StrictSettings

ThinkingLevel: TypeAlias = Literal["off", "low", "medium", "high"]
"""How much a model thinks before it replies."""
OnLength: TypeAlias = Literal["fail", "continue", "accept"]
"""What happens if a reply's tokens are used up; :attr:`ModelSettings.on_length` says what each means."""


class ModelSettings(StrictSettings):
    """Settings of a model request; None = the provider's default.

    A provider ignores a setting that it does not support. :attr:`on_length` applies to every model, and
    :attr:`deadline_s` to every model that the gateway calls.
    """

    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    """Maximum tokens of a reply, including thinking."""
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """How freely the model chooses its words; 0 = as little as it can."""
    thinking: ThinkingLevel | Annotated[int, Field(ge=1)] | None = None
    """How much the model thinks before it replies: a level, or a number of tokens."""
    tool_choice: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """``auto``, ``none``, ``required``, or the name of the only tool that the model must call."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] | None = None
    """Texts at which the model stops."""
    seed: int | None = None
    """Seed for reproducible replies, as far as the provider honours it."""
    deadline_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Time limit of one reply, in seconds; never more than the tree's ``Limits.model_timeout_s``."""
    on_length: OnLength | None = None
    """What happens if a reply's tokens are used up: ``fail``, the default, fails the run; ``continue`` asks
    the model to continue; ``accept`` accepts the reply."""


class ModelPrice(StrictSettings):
    """What a provider charges for a model's tokens, in USD."""

    input_per_million: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """For a million tokens of requests."""
    output_per_million: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """For a million tokens of replies, including thinking."""


NO_SETTINGS: Final = ModelSettings()
"""The provider's defaults."""


def merge_settings(*settings: ModelSettings | None) -> ModelSettings:
    """Return one value merged from several, most specific last; the last value of each setting applies."""
    given = [each for each in settings if each is not None and each != NO_SETTINGS]
    if len(given) <= 1:
        return given[0] if given else NO_SETTINGS
    found: dict[str, Any] = {}
    for each in given:
        found.update(each.model_dump(exclude_none=True))
    return ModelSettings.model_validate(found)
