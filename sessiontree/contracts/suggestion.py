"""The nearest name: what somebody probably meant who wrote a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LIKENESS = 0.6
"""How alike two names must be, from 0 to 1, for one to be offered in place of the other."""
MAX_LISTED = 12
"""Most names an error lists."""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like the given one, in any case; None where none is like it."""
    folded = {each.casefold(): each for each in known}
    found = difflib.get_close_matches(name.strip().casefold(), folded, n=1, cutoff=LIKENESS)
    return folded[found[0]] if found else None


def meant(name: object, known: Iterable[str]) -> str:
    """Return what is added to an error that lists the names there are: the nearest one, or nothing."""
    near = nearest_name(name, known) if isinstance(name, str) else None
    return "" if near is None else f"; did you mean {near!r}?"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return what an error says after "there is no …": the nearest name, or the names there are."""
    names = sorted(known)
    near = nearest_name(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    listed = ", ".join(names[:MAX_LISTED]) or "none"
    return f"there are: {listed}" if len(names) <= MAX_LISTED else f"there are: {listed}, …"
