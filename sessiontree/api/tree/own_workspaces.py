"""A program's way to what the children of a session changed in workspaces of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from sessiontree.contracts.recorded.child_workspaces import ChangesState
from sessiontree.contracts.settings.given_values import TEXT
from sessiontree.contracts.values.messages import ToolReply
from sessiontree.contracts.values.quick_dataclass import dataclass

TOOL = "child_workspace"


@dataclass(frozen=True, slots=True)
class OwnWorkspace:
    """A child that had a workspace of its own."""

    session_id: str
    label: str | None
    state: ChangesState
    """``working`` until it has ended, then ``kept`` until its changes are ``merged`` or ``discarded``."""
    files: int
    """How many files it changed; 0 while it works."""
    lost: str = ""
    """Why its changes could not be kept; empty = they were."""


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """A file that can't be merged."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Merged:
    """The outcome of a merge."""

    session_id: str
    status: Literal["merged", "conflict"]
    """``conflict``: no file was changed, and the child's changes are kept."""
    files: tuple[str, ...] = ()
    """Paths of the merged files, at most 200."""
    conflicts: tuple[MergeConflict, ...] = ()
    """At most 200."""


class OwnWorkspaces:
    """The children of one session with workspaces of their own.

    Each method is a call of the tool ``child_workspace`` in the session, with the checks of every call: the
    session must hold the tool, and its writer changes the files.

    Raises (every method):
        ExecutionError: the child has no workspace of its own, works still, or its changes are gone.
        PermissionDenied: the session does not hold the tool, or may not write.
        SessionClosed: the session has ended.
    """

    def __init__(self, call: Callable[[str, Mapping[str, Any]], Awaitable[ToolReply]]) -> None:
        self._call = call

    async def list(self) -> list[OwnWorkspace]:
        """Return the children that had a workspace of their own, in the order of their spawns."""
        output = await self._answer("list", None)
        return [
            OwnWorkspace(row["session_id"], row.get("label"), row["state"], row["files"], row.get("lost", ""))
            for row in output["children"]
        ]

    async def diff(self, child: str) -> str:
        """Return what a child changed, as a patch in git's format; cut where it is very long.

        Args:
            child: Its id, or the label of one that lives.
        """
        diff: str = (await self._answer("diff", child))["diff"]
        return diff

    async def merge(self, child: str) -> Merged:
        """Merge a child's changes into the session's workspace: all files, or none.

        A file that was changed in both is a conflict, also where neither change is committed. Nothing is
        committed, and no hook or filter of the repository runs.

        Args:
            child: Its id.
        """
        output = await self._answer("merge", child)
        return Merged(
            output["session_id"],
            output["status"],
            tuple(row["path"] for row in output.get("files", ())),
            tuple(MergeConflict(row["path"], row["reason"]) for row in output.get("conflicts", ())),
        )

    async def discard(self, child: str) -> None:
        """Discard a child's changes; they are gone then.

        Args:
            child: Its id.
        """
        await self._answer("discard", child)

    async def _answer(self, action: str, child: str | None) -> Any:
        target = {} if child is None else {"target": TEXT.take(child, "child")}
        return (await self._call(TOOL, {"action": action, **target})).output
