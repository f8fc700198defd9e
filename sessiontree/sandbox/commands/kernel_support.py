"""What this machine offers for confinement, and how far a process is confined (Landlock, seccomp)."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from sessiontree.contracts.errors import ConfigError, ConfinementUnavailable
from sessiontree.sandbox.commands.environment import NAMESPACES
from sessiontree.sandbox.jail import (
    FULL_ABI,
    LEVEL_VARIABLE,
    Machine,
    detect_machine,
    format_level,
    has_seccomp,
    query_landlock_abi,
)

_WRITTEN: Final = re.compile(r"landlock-([1-9][0-9]{0,3})(\+seccomp)?")
_OWN_NAME: Final = "/proc/self/comm"
"""A file that every process may open for writing, with no effect, unless its files are confined."""
_STATUS: Final = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class Level:
    """How far a process is confined; its text is ``none``, ``landlock-N`` or ``landlock-N+seccomp``."""

    landlock: int
    """ABI of Landlock; 0 = the kernel has no Landlock, so nothing is confined."""
    seccomp: bool
    """Whether calls that change a file's metadata are denied; always false without Landlock."""

    @property
    def is_full(self) -> bool:
        """Whether neither content nor metadata of a file outside the writable places can be changed."""
        return self.landlock >= FULL_ABI and self.seccomp

    def __str__(self) -> str:
        """Return the level's text."""
        return format_level(self.landlock, self.seccomp)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the level of a text.

        Raises:
            ConfigError: the text is not a level.
        """
        if text == "none":
            return cls(0, False)
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise ConfigError(f"{text!r} is not a level; give 'none', 'landlock-N' or 'landlock-N+seccomp'")
        return cls(int(found[1]), found[2] is not None)


def detect_level() -> Level:
    """Return the level of a process that the launcher would start here. Changes nothing."""
    abi = query_landlock_abi()
    return Level(abi, abi > 0 and has_seccomp())


def read_level_in_force() -> Level:
    """Return this process's own level: what the launcher recorded, as far as the kernel confirms it.

    The self-test shows whether calls and files are refused in every thread.
    """
    try:
        said = Level.parse(os.environ.get(LEVEL_VARIABLE, "none"))
    except ConfigError:
        return Level(0, False)
    # The variable is only a claim, which any parent could set; the kernel decides.
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


SEARCHED: Final = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
"""Where bubblewrap is searched: places that only the machine's owner can write, never the caller's PATH."""
INSTALL: Final = "install it as root: the package 'bubblewrap' of Debian, Ubuntu, Fedora, Arch and others"
ALLOW: Final = (
    "let users make user namespaces (kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, "
    "kernel.apparmor_restrict_unprivileged_userns=0 or a profile for bwrap); in a container allow them there"
)
TRIAL_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class CommandConfinement:
    """What confines commands on this machine."""

    bubblewrap: str | None
    """Its version, such as ``0.8.0``; None = it is missing or does not work."""
    kernel: str
    """The level of Landlock and seccomp that the kernel offers, such as ``landlock-7+seccomp``."""
    failure: ConfinementUnavailable | None
    """Why commands can't be confined; None = they can."""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        failure = None if self.failure is None else str(self.failure)
        return {"bubblewrap": self.bubblewrap, "kernel": self.kernel, "failure": failure}


def command_confinement() -> CommandConfinement:
    """Check all parts, and try bubblewrap once. Blocks for about 0.05 s."""
    kernel = format_level(query_landlock_abi(), has_seccomp())
    version, failure = None, None
    try:
        version = read_version(find_bubblewrap())
        require_machine()
    except ConfinementUnavailable as error:
        failure = error
    return CommandConfinement(version, kernel, failure)


def find_bubblewrap(searched: str = SEARCHED) -> str:
    """Return bubblewrap's path, after checking once that it can make its namespaces here.

    Args:
        searched: Directories, as in PATH.

    Raises:
        ConfinementUnavailable: it is missing, or the kernel does not allow it; tried again the next time.
    """
    if not sys.platform.startswith("linux"):
        raise ConfinementUnavailable(f"this is {sys.platform}", "run on Linux 6.2 or later")
    path = shutil.which("bwrap", path=searched)
    if path is None:
        raise ConfinementUnavailable(f"bwrap is missing in {searched}", INSTALL)
    # A failure is not kept: the owner may change the kernel's settings while this process runs.
    _try(path)
    return path


@cache
def _try(path: str) -> None:
    """Make the namespaces once; a path that worked is not tried again."""
    words = [path, *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    words += ["--size", "4096", "--tmpfs", "/tmp", "--", "/bin/sh", "-c", "exit 0"]  # noqa: S108 - its own
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=TRIAL_TIMEOUT_S, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfinementUnavailable(f"bubblewrap does not run: {error}", INSTALL) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise ConfinementUnavailable(f"bubblewrap can't make its namespaces: {said}", ALLOW)


def read_version(path: str) -> str:
    """Return bubblewrap's version as it prints it."""
    done = subprocess.run([path, "--version"], capture_output=True, check=False, timeout=TRIAL_TIMEOUT_S)  # noqa: S603 - fixed words
    return done.stdout.decode(errors="replace").removeprefix("bubblewrap ").strip()


def require_machine() -> Machine:
    """Return this processor's calls, after checking that the kernel offers what confines a command.

    Raises:
        ConfinementUnavailable: it does not.
    """
    abi, here = query_landlock_abi(), detect_machine() if has_seccomp() else None
    if abi < FULL_ABI or here is None:
        raise ConfinementUnavailable(
            f"the kernel offers {format_level(abi, here is not None)!r}; required are Landlock, "
            f"ABI {FULL_ABI} or later (Linux 6.2), and seccomp on x86_64 or aarch64",
            "start it with lsm=landlock,… or use a newer one",
        )
    return here
