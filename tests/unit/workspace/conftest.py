"""A workspace with something worth stealing alongside it, and both ways of resolving a path."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sessiontree.workspace import WorkspaceReader, WorkspaceWriter
from sessiontree.workspace.resolver import Resolver, resolve_by_openat2, resolve_by_walk


@dataclass(frozen=True, slots=True)
class Grounds:
    """A workspace and its neighbours."""

    root: Path
    """Holds ``file``, ``sub/inner`` and the empty ``sub/deep``."""
    outside: Path
    """Holds ``secret``, whose content is ``outside``."""
    sibling: Path
    """Holds the same; its name begins with the root's."""
    resolver: Resolver

    def reader(self) -> WorkspaceReader:
        """Return a reader of the workspace."""
        return WorkspaceReader(self.root, resolver=self.resolver)

    def writer(self) -> WorkspaceWriter:
        """Return a writer to the workspace."""
        return WorkspaceWriter(self.root, resolver=self.resolver)

    def names(self, folder: str = ".") -> list[str]:
        """Return the names in a directory of the workspace, sorted."""
        return sorted(path.name for path in (self.root / folder).iterdir())

    def neighbours(self) -> dict[str, bytes]:
        """Return every file outside the workspace with its content."""
        found = [*self.outside.rglob("*"), *self.sibling.rglob("*")]
        return {str(path): path.read_bytes() if path.is_file() else b"" for path in found}


@pytest.fixture(params=[resolve_by_openat2, resolve_by_walk], ids=["openat2", "walk"])
def grounds(request: pytest.FixtureRequest, tmp_path: Path) -> Grounds:
    """Workspace, neighbours, and one of the two resolvers."""
    root, outside, sibling = tmp_path / "ws", tmp_path / "outside", tmp_path / "ws-evil"
    for folder in (root / "sub" / "deep", outside, sibling):
        folder.mkdir(parents=True)
    (root / "file").write_bytes(b"in the file")
    (root / "sub" / "inner").write_bytes(b"in the inner file")
    for folder in (outside, sibling):
        (folder / "secret").write_bytes(b"outside")
    return Grounds(root, outside, sibling, request.param)


@pytest.fixture
def count_descriptors() -> Callable[[], int]:
    """Count this process's open descriptors, those of forgotten objects closed first."""

    def count() -> int:
        gc.collect()
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    return count
