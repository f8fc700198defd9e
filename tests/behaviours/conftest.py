"""The one fixture of the behaviours: a way to open trees, for each backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.runtime import BackendName
from tests.behaviours.opening import BACKENDS, Opener


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> BackendName:
    """Name of the backend the test runs on."""
    name: BackendName = request.param
    return name


@pytest.fixture
def open_tree(backend: BackendName, tmp_path: Path) -> Opener:
    """Opens trees on the backend, in an empty workspace."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Opener(backend, workspace, tmp_path / "state")
