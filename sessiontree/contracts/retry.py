"""Trying again: how often a call that changes nothing is run, and how long after which failure.

Source: ADR-0004, ToolError ("Timeout: retry eligible with backoff"). The pauses double and half of each is
drawn, so that calls that failed together do not come back together ("equal jitter", AWS Architecture Blog,
"Exponential Backoff And Jitter").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sessiontree.contracts.errors import ConfigError

MOST_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class Retry:
    """How a tool's calls are tried again after a time-out, or after an error that says it may help.

    It holds for calls that change nothing, and of a tool that is ``idempotent`` for all. Each attempt has
    the tool's whole time-out.

    Args:
        attempts: Runs of one call at most, the first included; 1 to 10. With 1 nothing is tried again.
        first_delay_s: Longest pause after the first failure.
        max_delay_s: Longest pause of all.

    Raises:
        ConfigError: a number is outside its limits.
    """

    attempts: int = 3
    first_delay_s: float = 0.5
    max_delay_s: float = 10.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 1 <= self.attempts <= MOST_ATTEMPTS:
            raise ConfigError(f"Retry(attempts={self.attempts}): it must be 1 to {MOST_ATTEMPTS}")
        if not 0 <= self.first_delay_s <= self.max_delay_s <= 3_600:
            raise ConfigError(
                f"Retry(first_delay_s={self.first_delay_s}, max_delay_s={self.max_delay_s}): "
                "they must be seconds, the first no longer than the longest, and none above 3600"
            )

    def delay_s(self, failures: int, draw: float) -> float:
        """Return the pause after so many failures, in seconds: half of it stands, half is drawn.

        Args:
            failures: Attempts that failed so far, at least 1.
            draw: From 0 to 1.
        """
        longest: float = min(self.max_delay_s, self.first_delay_s * 2 ** (failures - 1))
        return longest * (1 + draw) / 2


OF_TIMEOUTS: Final = Retry(attempts=2)
"""How time-outs are tried again of a tool that says nothing of it."""
