"""Changes of code and settings: what differs between two provenances, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SCORING: Final = ("scorer ", "module ", "package ")
"""How the names of facts begin that a new scoring may change: it is what a new scoring is for."""
MISSING: Final = "-"


def describe_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return what differs, in words, sorted by name. Templates count where both have them.

    A command that works on fewer samples has fewer templates.
    """
    found = []
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name, MISSING), after.get(name, MISSING)
        is_partial = name.startswith("template ") and MISSING in (was, now)
        if was != now and not is_partial:
            found.append(_change(name, was, now))
    return found


def is_scoring(change: str) -> bool:
    """Return whether a change is of scorers and the files and packages around them."""
    return change.startswith(SCORING)


def _change(name: str, was: str, now: str) -> str:
    if was == MISSING:
        return f"{name} is new"
    if now == MISSING:
        return f"{name} is gone"
    return f"{name} was {was} and is {now}"
