"""A tree with its control socket open, and clients that come in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessiontree import SessionTree
from sessiontree.control.client import ControlClient
from tests.unit.control.tree_program import errands


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Where the journal and the control socket are."""
    return tmp_path / "state"


@pytest.fixture
async def tree(tmp_path: Path, state_dir: Path) -> AsyncIterator[SessionTree]:
    """A tree that does errands, open in this process."""
    (tmp_path / "workspace").mkdir()
    async with errands(tmp_path / "workspace", state_dir) as opened:
        yield opened


@pytest.fixture
async def client(tree: SessionTree) -> AsyncIterator[ControlClient]:
    """A client of its runtime."""
    async with await ControlClient.connect(tree.state_dir) as reached:
        yield reached
