"""The level of confinement: its text, what the kernel offers, and what a process can tell of itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sessiontree.contracts.errors import ConfigError
from sessiontree.sandbox import Level, detect_level, jail, read_level_in_force
from tests.unit.sandbox.conftest import CHECKOUT

TELL = "from sessiontree.sandbox import read_level_in_force; print(read_level_in_force())"


def told(*before: str, said: str | None = None) -> str:
    """Return what a process behind some words says of its own level."""
    environment = {**os.environ, jail.LEVEL_VARIABLE: said} if said is not None else None
    command = [*before, sys.executable, "-c", TELL]
    done = subprocess.run(
        command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("level", "text", "is_full"),
    [
        (Level(0, False), "none", False),
        (Level(1, False), "landlock-1", False),
        (Level(2, True), "landlock-2+seccomp", False),
        (Level(3, False), "landlock-3", False),
        (Level(3, True), "landlock-3+seccomp", True),
        (Level(7, True), "landlock-7+seccomp", True),
        (Level(12, True), "landlock-12+seccomp", True),
    ],
)
def test_level_and_its_text(level: Level, text: str, is_full: bool) -> None:
    """A level is read from what it writes; full from ABI 3 on, where truncating is covered, with seccomp."""
    assert str(level) == text
    assert Level.parse(text) == level
    assert level.is_full is is_full


@pytest.mark.parametrize(
    "text", ["", "landlock", "landlock-0", "landlock-+seccomp", "LANDLOCK-7", "none+seccomp"]
)
def test_other_text_is_no_level(text: str) -> None:
    """A text that no level writes is refused with what would be accepted."""
    with pytest.raises(ConfigError, match="landlock-N"):
        Level.parse(text)


def test_this_kernel_offers_the_full_level() -> None:
    """Where this fails, the kernel lacks Landlock or seccomp, and nothing of this room holds."""
    assert detect_level().is_full


@pytest.mark.slow
def test_confined_process_tells_what_was_available() -> None:
    """What the kernel offers is what the launcher puts in force, and the process can tell."""
    command = [sys.executable, "-I", "-S", jail.__file__, "--"]
    assert told(*command) == str(detect_level())


def test_this_process_is_not_confined() -> None:
    """Without the launcher the level is missing."""
    assert read_level_in_force() == Level(0, False)


@pytest.mark.slow
def test_word_alone_confines_nobody() -> None:
    """Planted bug: the variable is set and nothing is in force; the process does not believe it."""
    assert told(said="landlock-7+seccomp") == "none"
    assert told(said="nonsense") == "none"


@pytest.mark.slow
def test_seccomp_is_believed_only_with_a_filter() -> None:
    """Planted bug: files are confined, calls are not, and the variable says both."""
    program = (
        "import os, sys; from sessiontree.sandbox import jail; jail.renounce_privileges(); "
        "jail.restrict_files(jail.query_landlock_abi(), []); os.execv(sys.argv[1], sys.argv[1:])"
    )
    assert told(sys.executable, "-c", program, said="landlock-5+seccomp") == "landlock-5"
