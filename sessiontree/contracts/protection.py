"""What a call gets that was allowed more than others: handles made for this call alone."""

from __future__ import annotations

from typing import Protocol

from sessiontree.contracts.jobs import Jobs
from sessiontree.contracts.ports import Writer


class Protection(Protocol):
    """Protected places and handles of allowed calls, for the code that checks calls."""

    def places_at(self, path: str) -> frozenset[str]:
        """Return the names of the protected places that a path currently refers to; empty = none."""
        ...

    def writer(self, places: frozenset[str] | None) -> Writer:
        """Return a writer for one allowed call that may change these protected places; None = all."""
        ...

    def jobs(self) -> Jobs | None:
        """Return the jobs of one allowed Elevated call, which may leave the confinement; None = none."""
        ...
