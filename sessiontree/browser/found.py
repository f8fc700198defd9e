"""What the browser needs on this machine, and the words that start it confined."""

from __future__ import annotations

import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ConfinementUnavailable
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.sandbox.commands.environment import (
    build_system_words,
    find_library_places,
    get_running_interpreter,
)
from sessiontree.sandbox.commands.kernel_support import find_bubblewrap

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
SEARCHED: Final = "/usr/local/bin:/usr/bin:/bin"
LIBRARY: Final = "playwright"
_NEEDED: Final = (LIBRARY, "greenlet")
_IMPORTED: Final = (*_NEEDED, "pyee", "typing_extensions")
"""The library and what its releases import, not each of them all."""
INSTALL_LIBRARY: Final = "install sessiontree[browser]"
INSTALL_PROGRAM: Final = "install Chromium, such as Debian's package chromium"
_INSIDE: Final = Path(__file__).resolve().with_name("inside")
_PROGRAM_PLACE: Final = "/run/browser/program"
_LIBRARY_PLACE: Final = "/run/browser/library"
_POLICY_PLACES: Final = ("/etc/chromium/policies/managed", "/etc/opt/chrome/policies/managed")
_POLICY: Final = Path(__file__).resolve().with_name("policy.json")
_SETTINGS: Final = ("/etc/fonts", "/etc/chromium.d", "/etc/chromium/master_preferences")
_HOME: Final = "/run/browser/home"
SCRATCH_BYTES: Final = 256 * 2**20
_RUN: Final = (
    f"import sys; sys.path[:0] = [{_PROGRAM_PLACE!r}, {_LIBRARY_PLACE!r}]; "
    "from sessiontree.browser.inside.program import main; main(sys.argv[1:])"
)


@dataclass(frozen=True, slots=True)
class FoundBrowser:
    """What is installed here."""

    program: str | None
    """Chromium's path."""
    missing: str
    """What is missing, and what to install; empty if nothing is."""
    is_ready: bool
    """Whether nothing is missing."""


@cache
def find_browser() -> FoundBrowser:
    """Return what is installed here; looked up once in a process, without loading anything."""
    return look_for_browser(SEARCHED)


def look_for_browser(searched: str) -> FoundBrowser:
    """Return what is installed here, with programs from directories as in PATH."""
    programs = (shutil.which(name, path=searched) for name in PROGRAMS)
    program = next((path for path in programs if path is not None), None)
    found = []
    if not all(find_spec(name) is not None for name in _NEEDED):
        found.append(f"the library {LIBRARY} is missing; {INSTALL_LIBRARY}")
    if program is None:
        found.append(f"the program chromium is missing in {searched}; {INSTALL_PROGRAM}")
    return FoundBrowser(program, "; ".join(found), not found)


def build_confined_command(found: FoundBrowser) -> list[str]:
    """Return the words that run the browser's process, up to its arguments.

    Raises:
        ConfinementUnavailable: something is missing.
    """
    if found.missing:
        raise ConfinementUnavailable(found.missing, "then open the page again")
    interpreter = get_running_interpreter()
    words = [find_bubblewrap(), "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"]
    words += [
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        "--cap-drop",
        "ALL",
        "--hostname",
        "browser",
    ]
    words += ["--proc", "/proc", "--dev", "/dev", *build_system_words()]
    for place in ("/tmp", "/dev/shm", _HOME):  # noqa: S108 - the sandbox's own
        words += ["--perms", "1777", "--size", str(SCRATCH_BYTES), "--tmpfs", place]
    prefix = str(Path(interpreter.real_program).parent.parent)
    if not Path(prefix).is_relative_to("/usr"):
        words += ["--ro-bind", prefix, prefix]
    words += ["--ro-bind", str(_INSIDE), f"{_PROGRAM_PLACE}/sessiontree/browser/inside"]
    for path in find_library_places(_IMPORTED):
        words += ["--ro-bind", path, f"{_LIBRARY_PLACE}/{Path(path).name}"]
    for path in _SETTINGS:
        words += ["--ro-bind-try", path, path]
    for place in _POLICY_PLACES:
        words += ["--ro-bind", str(_POLICY), f"{place}/sessiontree.json"]
    for name, value in (("HOME", _HOME), ("TMPDIR", "/tmp"), ("PATH", SEARCHED), ("LANG", "C.UTF-8")):  # noqa: S108
        words += ["--setenv", name, value]
    return [
        *words,
        "--chdir",
        "/",
        "--remount-ro",
        "/",
        "--",
        interpreter.real_program,
        "-I",
        "-S",
        "-B",
        "-c",
        _RUN,
    ]
