"""How far a process is confined: what the kernel offers, and what is in force here."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from sessiontree.contracts.errors import ConfigError
from sessiontree.sandbox.jail import FULL_ABI, LEVEL_VARIABLE, has_seccomp, landlock_abi, level_text

_WRITTEN: Final = re.compile(r"landlock-([1-9][0-9]{0,3})(\+seccomp)?")
_OWN_NAME: Final = "/proc/self/comm"
"""A file every process may open for writing, to no effect, unless its files are confined."""
_STATUS: Final = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class Level:
    """How far a process is confined; its text is ``none``, ``landlock-N`` or ``landlock-N+seccomp``."""

    landlock: int
    """ABI of Landlock; 0 for none, and then nothing is confined."""
    seccomp: bool
    """Whether calls that change a file's metadata are denied; always false without Landlock."""

    @property
    def is_full(self) -> bool:
        """Whether neither content nor metadata of a file outside the writable places can be changed."""
        return self.landlock >= FULL_ABI and self.seccomp

    def __str__(self) -> str:
        """Return the level's text."""
        return level_text(self.landlock, self.seccomp)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the level of a text.

        Raises:
            ConfigError: the text is no level's.
        """
        if text == "none":
            return cls(0, False)
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise ConfigError(f"{text!r} is no level; give 'none', 'landlock-N' or 'landlock-N+seccomp'")
        return cls(int(found[1]), found[2] is not None)


def available_level() -> Level:
    """Return the level a process started here through the launcher would get. Changes nothing."""
    abi = landlock_abi()
    return Level(abi, abi > 0 and has_seccomp())


def level_in_force() -> Level:
    """Return this process's own level: what the launcher wrote down, as far as the kernel bears it out.

    That calls and files are in fact refused, on every thread, is for the self-test to show.
    """
    try:
        said = Level.parse(os.environ.get(LEVEL_VARIABLE, "none"))
    except ConfigError:
        return Level(0, False)
    if not said.landlock or not _are_files_confined():
        return Level(0, False)
    return Level(said.landlock, said.seccomp and _has_filter())


def _are_files_confined() -> bool:
    try:
        os.close(os.open(_OWN_NAME, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EACCES
    return False


def _has_filter() -> bool:
    try:
        lines = dict(line.split(":\t", 1) for line in _STATUS.read_text("ascii", "replace").splitlines())
    except (OSError, ValueError):
        return False
    return lines.get("NoNewPrivs") == "1" and lines.get("Seccomp") == "2"
