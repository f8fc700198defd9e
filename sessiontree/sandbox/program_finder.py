"""Finds the program a command would run, and trusts none that a command could have put there.

A command's PATH holds directories of this environment and of the system; in a sandbox none of the system's
can be written. A name is found as the shell finds it: the first directory that has it decides, and if that
is not one of the system's, the program is nobody's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from sessiontree.sandbox.environment import SYSTEM_PATH
from sessiontree.sandbox.mounts import programs_of, running_interpreter


def program_finder(workspace: str, searched: tuple[str, ...] | None = None) -> Callable[[str], str | None]:
    """Return what finds programs for commands of a workspace.

    The function takes a program as a command names it, and returns the file that would run, links resolved;
    None where there is none, or it is not the system's. It looks at the disk: some 20 µs.

    Args:
        workspace: Absolute, without links.
        searched: Directories in the order they are searched; None = those of a command's PATH.
    """
    places = programs_of(running_interpreter(), workspace) if searched is None else searched
    systems = tuple(place for place in SYSTEM_PATH if not Path(place).is_relative_to(workspace))

    def find(name: str) -> str | None:
        path = PurePosixPath(name)
        if "/" in name:
            is_plain = str(path) == name and ".." not in path.parts
            return _program(name, workspace) if is_plain and str(path.parent) in systems else None
        for place in places:
            if name and os.path.lexists(os.path.join(place, name)):  # noqa: PTH118 - nothing but a name is joined
                return _program(f"{place}/{name}", workspace) if place in systems else None
        return None

    return find


def _program(path: str, workspace: str) -> str | None:
    real = Path(os.path.realpath(path))
    is_systems = any(real.is_relative_to(place) for place in ("/usr", *SYSTEM_PATH))
    if not is_systems or real.is_relative_to(workspace):
        return None
    return str(real) if real.is_file() and os.access(real, os.X_OK) else None
