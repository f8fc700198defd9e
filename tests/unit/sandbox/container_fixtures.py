"""A stub of a container engine in a directory, and what it was asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sessiontree import SandboxSpec

STUB = Path(__file__).with_name("container_engine_program.py")
IMAGE = "localhost/tiny"


class StubEngine:
    """An engine whose images are directories.

    Args:
        home: Where it is installed.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.program = home / "podman"
        self.program.write_text(f"#!{sys.executable} -IS\n{STUB.read_text()}")
        self.program.chmod(0o755)
        self.image(IMAGE)

    def image(self, name: str) -> Path:
        """Make an image; return the directory of its files."""
        place = self.home / "images" / name
        place.mkdir(parents=True)
        return place

    def spec(self, **settings: object) -> SandboxSpec:
        """Return a spec of a container of this engine."""
        return SandboxSpec.model_validate({"image": IMAGE, "program": str(self.program), **settings})

    @property
    def containers(self) -> list[str]:
        """Names of its containers."""
        return sorted(place.name for place in (self.home / "containers").glob("*"))

    def asked(self, command: str) -> list[list[str]]:
        """Return the words of all its commands of one name."""
        lines = (self.home / "asked").read_text().splitlines()
        return [words for words in map(json.loads, lines) if words[0] == command]


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> StubEngine:
    """A stub engine with one image that is empty."""
    return StubEngine(tmp_path_factory.mktemp("engine"))
