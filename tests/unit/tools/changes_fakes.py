"""A parent's way to its children's changes, from a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sessiontree.contracts.errors import ExecutionError, SessionNotFound
from sessiontree.contracts.recorded.child_workspaces import ChangedFile, ChildChanges


def changed(path: str, before: bytes | None, after: bytes | None, *, executable: bool = False) -> ChangedFile:
    """Return a changed file; None = the file does not exist."""
    digests = ["" if data is None else hashlib.sha256(data).hexdigest() for data in (before, after)]
    return ChangedFile(path, digests[0], digests[1], len(after or b""), executable=executable)


@dataclass(slots=True)
class MappedChanges:
    """Answers from what it was given; keeps what was settled.

    Args:
        known: By session.
        contents: By path.
    """

    known: Mapping[str, ChildChanges]
    contents: Mapping[str, bytes] = field(default_factory=dict)
    settled: dict[str, str] = field(default_factory=dict)

    async def list(self) -> tuple[ChildChanges, ...]:
        return tuple(self.known.values())

    async def changes(self, target: str) -> ChildChanges:
        if target not in self.known:
            raise SessionNotFound(target, "it is no child")
        found = self.known[target]
        if self.settled.get(target) == "merged":
            return replace(found, state="merged")
        return found

    async def content(self, target: str, path: str) -> bytes:
        return self.contents[path]

    async def patch(self, target: str) -> str:
        return "diff --git a/x b/x\n"

    async def settle(self, target: str, state: Literal["merged", "discarded"]) -> None:
        if self.settled.setdefault(target, state) != state:
            raise ExecutionError(f"the changes of {target} were {self.settled[target]} before")


def child(*files: ChangedFile) -> ChildChanges:
    """Return the changes of a child that has ended."""
    return ChildChanges("main/b1", "fixer", "kept", "", files, patch_bytes=10)
