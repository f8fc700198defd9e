"""Test files and what helps them are named after what they hold, and recorded times are those of files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import ON_RAY, SECONDS
from tests.system.house.test_modules import GERUND

HELPERS = ("_fakes", "_fixtures", "_oracle", "_strategies", "_program")
"""What a module that holds no tests is: its name ends so."""


def misnamed(files: Iterable[Path], root: Path) -> list[str]:
    """Return the files of tests whose name is a gerund, or that help without saying how."""
    found = []
    for path in files:
        is_helper = not path.name.startswith(("test_", "conftest", "__init__"))
        if (is_helper and not path.stem.endswith(HELPERS)) or GERUND.search(path.stem):
            found.append(path.relative_to(root).as_posix())
    return found


def test_files_of_tests_are_named_after_what_they_hold(all_modules: list[Path], checkout: Path) -> None:
    """No gerund, and a helper is fakes, fixtures, an oracle, strategies or a program."""
    files = [path for path in all_modules if path.is_relative_to(checkout / "tests")]
    assert files
    assert misnamed(files, checkout) == []


def test_seconds_are_those_of_files(checkout: Path) -> None:
    """Each is there, once, with its time."""
    rows = [line.split() for line in SECONDS.read_text("utf-8").splitlines()]
    parts = [part for _, part in rows]
    assert [part for part in parts if part != ON_RAY and not (checkout / part).is_file()] == []
    assert len(set(parts)) == len(parts) > 0
    assert min(float(time) for time, _ in rows) >= 0


@pytest.mark.parametrize(
    "name",
    ["test_closing.py", "test_tree_closing.py", "planted.py", "words.py", "fakes.py", "reading.py"],
)
def test_planted_name_is_found(tmp_path: Path, name: str) -> None:
    """A gerund, alone or as the final message, and a helper that does not say what it is."""
    assert misnamed([tmp_path / name], tmp_path) == [name]


@pytest.mark.parametrize(
    "name",
    ["test_stops.py", "test_bad_settings.py", "test_hashing_embedder.py", "conftest.py", "tree_fakes.py"],
)
def test_good_name_passes(tmp_path: Path, name: str) -> None:
    """Nouns, names of modules, and helpers by their kind."""
    assert misnamed([tmp_path / name], tmp_path) == []
