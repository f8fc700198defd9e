"""A home for the command, and a small directory to survey."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.ground import make_ground
from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The command, with a home of its own."""
    home = tmp_path / "home"
    home.mkdir()
    return Program(home)


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    """A directory of three folders with four files each, and one file."""
    return make_ground(tmp_path / "ground", 3, 4)
