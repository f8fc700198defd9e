"""What a call gets that was allowed more than others: handles made for this call alone."""

from __future__ import annotations

from typing import Protocol

from sessiontree.contracts.handles.jobs import Jobs
from sessiontree.contracts.handles.ports import Reader, Writer


class Protection(Protocol):
    """Protected places and handles of allowed calls, for the code that checks calls."""

    def find_places(self, path: str) -> frozenset[str]:
        """Return the names of the protected places that a path currently refers to; empty = none."""
        ...

    def find_outside(self, path: str) -> frozenset[str]:
        """Return the name of the place outside the workspace to which a path leads now.

        Empty = it is in the workspace, or in no directory that the owner allows.
        """
        ...

    def reader(self, outside: frozenset[str]) -> Reader:
        """Return a reader for one allowed call, which also reads in the directories of these places."""
        ...

    def writer(self, places: frozenset[str] | None, outside: frozenset[str]) -> Writer:
        """Return a writer for one allowed call.

        Args:
            places: The protected places that it may change; None = all of the workspace.
            outside: The places outside the workspace whose directories it may also change.
        """
        ...

    def jobs(self) -> Jobs | None:
        """Return the jobs of one allowed Elevated call, which may leave the confinement; None = none."""
        ...
