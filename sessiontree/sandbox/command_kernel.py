"""What this machine has for confining commands: bubblewrap, Landlock and seccomp; a typed error without."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sessiontree.contracts.errors import ConfinementUnavailable
from sessiontree.sandbox.jail import FULL_ABI, Machine, has_seccomp, landlock_abi, level_text, machine
from sessiontree.sandbox.mounts import NAMESPACES

SEARCHED: Final = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
"""Where bubblewrap is looked for: places only the machine's owner writes, never the caller's PATH."""
INSTALL: Final = "install it as root: the package 'bubblewrap' of Debian, Ubuntu, Fedora, Arch and others"
ALLOW: Final = (
    "let users make user namespaces (kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, "
    "kernel.apparmor_restrict_unprivileged_userns=0 or a profile for bwrap); in a container allow them there"
)
TRIAL_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class CommandConfinement:
    """What confines commands here."""

    bubblewrap: str | None
    """Its version, such as ``0.8.0``; None = not there, or it does not work."""
    kernel: str
    """Level of Landlock and seccomp offered, such as ``landlock-7+seccomp``."""
    failure: ConfinementUnavailable | None
    """Why commands can't be confined; None = they can."""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        failure = None if self.failure is None else str(self.failure)
        return {"bubblewrap": self.bubblewrap, "kernel": self.kernel, "failure": failure}


def command_confinement() -> CommandConfinement:
    """Look at all pieces, trying bubblewrap once. Blocks for some 0.05 s."""
    kernel = level_text(landlock_abi(), has_seccomp())
    version, failure = None, None
    try:
        version = version_of(bubblewrap())
        confining_machine()
    except ConfinementUnavailable as error:
        failure = error
    return CommandConfinement(version, kernel, failure)


def bubblewrap(searched: str = SEARCHED) -> str:
    """Return bubblewrap's path, once it has been seen to make its namespaces here.

    Args:
        searched: Directories, as in PATH.

    Raises:
        ConfinementUnavailable: it is not there, or the kernel does not let it; tried again the next time.
    """
    if not sys.platform.startswith("linux"):
        raise ConfinementUnavailable(f"this is {sys.platform}", "run on Linux 6.2 or later")
    path = shutil.which("bwrap", path=searched)
    if path is None:
        raise ConfinementUnavailable(f"there is no bwrap in {searched}", INSTALL)
    _try(path)
    return path


@cache
def _try(path: str) -> None:
    """Make the namespaces once; what was seen to work is not tried again."""
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


def version_of(path: str) -> str:
    """Return what bubblewrap calls its version."""
    done = subprocess.run([path, "--version"], capture_output=True, check=False, timeout=TRIAL_TIMEOUT_S)  # noqa: S603 - fixed words
    return done.stdout.decode(errors="replace").removeprefix("bubblewrap ").strip()


def confining_machine() -> Machine:
    """Return this processor's calls, once the kernel is known to offer what confines a command.

    Raises:
        ConfinementUnavailable: it does not.
    """
    abi, here = landlock_abi(), machine() if has_seccomp() else None
    if abi < FULL_ABI or here is None:
        raise ConfinementUnavailable(
            f"the kernel offers {level_text(abi, here is not None)!r}; required are Landlock, "
            f"ABI {FULL_ABI} or later (Linux 6.2), and seccomp on x86_64 or aarch64",
            "start it with lsm=landlock,… or use a newer one",
        )
    return here
