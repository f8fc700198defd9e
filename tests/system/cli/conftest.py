"""A home for the command, and a small directory to survey."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.cli.command_fixtures import Program
from tests.system.cli.ground_fixtures import make_ground
from tests.system.cli.provider_fixtures import Serve, serving


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


@pytest.fixture
def serve(program: Program, tmp_path: Path) -> Iterator[Serve]:
    """Starts a provider on loopback that gives these replies, and has the command ask it."""
    with serving(program, tmp_path) as start:
        yield start
