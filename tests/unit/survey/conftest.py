"""What the survey's tests share: a tree on disk, and the reader of a session over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sessiontree.workspace import WorkspaceReader


@pytest.fixture
def make_tree(tmp_path: Path) -> Callable[[Mapping[str, str | bytes]], WorkspaceReader]:
    """Return what writes files below an empty directory and returns a reader of it."""

    def made(files: Mapping[str, str | bytes]) -> WorkspaceReader:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return WorkspaceReader(tmp_path, hidden=())

    return made
