"""The limit of errors: how many samples may end in an error of the suite's code before a run stops."""

from __future__ import annotations

import re
from typing import Final

from sessiontree import ConfigError
from sessiontree.bench.ledger.leases import Tally
from sessiontree.contracts.values.quick_dataclass import dataclass

SAME_END: Final = 10
"""With no limit given, a run stops when so many samples have ended, and all of them in an error."""
_FORMS: Final = "a number of errors such as 5, a share such as 0.2 or 20%, or 100% to go on whatever happens"


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """When a run stops because of errors of the suite's code.

    Args:
        most: A number from 1: the run stops at so many errors. A share from 0 to 1: it stops when more of the
            ended samples are errors, once ten have ended. None = it stops when ten have ended, all in an
            error.
    """

    most: int | float | None = None

    @classmethod
    def of(cls, given: int | float | str | None) -> ErrorLimit:
        """Return a limit as an option gives it.

        Raises:
            ConfigError: it is not a number above 0.
        """
        found = _parse_limit(given) if isinstance(given, str) else given
        if found is None:
            return cls()
        if isinstance(found, bool) or not isinstance(found, int | float) or not found > 0:
            raise ConfigError(f"fail_on_error is {given!r}; give {_FORMS}")
        if isinstance(found, float) and found > 1:
            raise ConfigError(f"fail_on_error is {given!r}; give {_FORMS}")
        return cls(found)

    def is_reached(self, tally: Tally) -> bool:
        """Return whether a run with these counts stops."""
        errors, ended = tally.undecided, tally.scored + tally.undecided
        if isinstance(self.most, int):
            return errors >= self.most
        if ended < SAME_END:
            return False
        return errors == ended if self.most is None else errors / ended > self.most

    def words(self, tally: Tally) -> str:
        """Return why a run with these counts stops."""
        ended = tally.scored + tally.undecided
        said = f"{tally.undecided:,} of {ended:,} samples ended in an error of the suite's code"
        if self.most is None:
            return said
        bound = f"{self.most:,}" if isinstance(self.most, int) else f"{self.most:.0%}"
        return f"{said}, and fail_on_error is {bound}"


def _parse_limit(text: str) -> int | float:
    if re.fullmatch(r"\d+", text):
        return int(text)
    percent = text.endswith("%")
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        raise ConfigError(f"fail_on_error is {text!r}; give {_FORMS}") from None
    return value / 100 if percent else value
