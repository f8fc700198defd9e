"""What Branches may send to people on a channel.

Source: ADR-0004, tool availability ("Channel policies govern what the branch can actually send").
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from sessiontree.contracts.settings import StrictSettings

MINUTE_MS: Final = 60_000
MOST_PER_MINUTE: Final = 600


class MessagePolicy(StrictSettings):
    """Bounds of the messages of Branches: who may send any, how often, and how long one may be.

    Main, whom the person talks to, is not bound by it. By default nothing is bounded. In a policy file the
    members may be written in camel case (``perMinute``).
    """

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)

    agents: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] | None = None
    """Names of the agents whose Branches may send messages; None = all, empty = none."""
    per_minute: int | None = Field(default=None, ge=1, le=MOST_PER_MINUTE)
    """Most messages of one Branch within any 60 seconds; None = no bound."""
    max_chars: int | None = Field(default=None, ge=1)
    """Longest message of a Branch, in characters; None = no bound."""
