"""Complaints of the second opinion on a session: each begins with the name of the rule that is broken."""

from __future__ import annotations

from collections.abc import Iterable


class Judge:
    """Raises on what must never be; may be asked to watch some rules only, and to look away for a while."""

    def __init__(self, only: Iterable[str] = ()) -> None:
        """Watch the rules named, or all."""
        self.only = frozenset(only)
        self.looks_away = False

    def watches(self, rule: str) -> bool:
        """Whether complaints about a rule would be raised."""
        return not self.only or rule in self.only

    def require(self, holds: bool, rule: str, text: str) -> None:
        """Complain unless it holds."""
        if not holds and not self.looks_away and self.watches(rule):
            raise AssertionError(f"{rule}: {text}")
