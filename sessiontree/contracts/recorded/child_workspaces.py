"""Workspaces of their own for children: the copy, what a child changed there, and its parent's handle."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from sessiontree.contracts.recorded.codec import declare_sparse, register_kind
from sessiontree.contracts.values.quick_dataclass import dataclass

ChangesState: TypeAlias = Literal["working", "kept", "merged", "discarded"]
"""What became of a child's changes. ``working``: the child has not ended; nobody may take them yet."""


@register_kind("workspace_copy")
@dataclass(frozen=True, slots=True)
class WorkspaceCopy:
    """A copy of a workspace, as it was when a child began."""

    name: str
    """Its directory's name, 32 hexadecimal digits; no path, because the state directory may be moved."""
    how: str
    """``git``: what git would list there, without ignored files. ``all``: every file."""
    commit: str
    """The commit that was checked out, in hexadecimal; empty = it is not the top of a git repository."""
    digest: str
    """SHA-256 of the list of its files with their contents, in hexadecimal."""
    files: int
    bytes: int


@register_kind("changed_file")
@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file that differs between a copy's beginning and its end."""

    path: str
    """Relative to the workspace, ``/`` between parts."""
    before: str
    """SHA-256 of its first content in hexadecimal; empty = the file is new."""
    after: str
    """SHA-256 of its last content; empty = it is gone."""
    bytes: int
    """Size of the last content."""
    executable: bool = declare_sparse(False)
    """Whether its owner may run it at the end."""
    was_executable: bool = declare_sparse(False)
    """Whether its owner might run it at the beginning."""
    unusable: str = declare_sparse("")
    """Why it can't be merged, such as that it is a link; empty = it can be."""


@dataclass(frozen=True, slots=True)
class ChildChanges:
    """A child with a workspace of its own, and what it changed there."""

    session_id: str
    label: str | None
    state: ChangesState
    commit: str
    """The commit that its workspace began at; empty = it was no git repository."""
    files: tuple[ChangedFile, ...] = ()
    """By path; empty while the child works."""
    patch_bytes: int = 0
    """Size of its patch in git's format; 0 = it has none."""
    lost: str = ""
    """Why its changes could not be kept; empty = they were."""
    taint: str = ""
    """Source of the untrusted text that the child has read; empty = it has read none."""


class ChildWorkspaces(Protocol):
    """The changes of the session's own children, for their parent.

    A child is named by its id, or a live child by its label. No handle leads into a child's copy: its files
    are answered by content, never by place.

    Raises (every method):
        SessionNotFound: it does not name a child of this session.
        ExecutionError: the child has no workspace of its own, has not ended, or its changes are gone.
    """

    async def list(self) -> tuple[ChildChanges, ...]:
        """Return the children that had a workspace of their own, in the order of their spawns."""
        ...

    async def changes(self, target: str) -> ChildChanges:
        """Return what the child ``target`` changed, once that is kept."""
        ...

    async def content(self, target: str, path: str) -> bytes:
        """Return the last content of ``path``, a file that the child ``target`` changed."""
        ...

    async def patch(self, target: str) -> str:
        """Return the changes of the child ``target`` as a patch in git's format.

        Bytes that are not UTF-8 are escaped.

        Raises:
            ExecutionError: it has none, because git is missing or because it would be too long.
        """
        ...

    async def settle(self, target: str, state: Literal["merged", "discarded"]) -> None:
        """Record that the changes of ``target`` were merged or are of no use; discarded ones are removed.

        Whoever asks again for the same state changes nothing.
        """
        ...
