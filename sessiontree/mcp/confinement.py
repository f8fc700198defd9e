"""A server's command in the sandbox of commands."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from sessiontree.contracts.errors import ConfinementUnavailable
from sessiontree.mcp.settings import ReachedServer
from sessiontree.sandbox.command_bounds import HOME, TMP, Bounds
from sessiontree.sandbox.environment import check_workspace, mount_words, running_interpreter
from sessiontree.sandbox.kernel_support import bubblewrap


def _program_words(program: str, place: str) -> list[str]:
    """Return the words that show the environment of a program that is not the system's, read-only."""
    folder = Path(program).parent
    prefix = folder.parent if folder.name == "bin" else folder
    if prefix.is_relative_to("/usr") or prefix.is_relative_to(place) or prefix == Path("/"):
        return []
    return ["--ro-bind", str(prefix), str(prefix)]


def confined(reached: ReachedServer) -> ReachedServer:
    """Return a server whose command has no network, and changes only its working directory.

    Raises:
        ConfinementUnavailable: this machine can't confine it, or its directory can't be used.
    """
    place = str(Path(reached.cwd or "/").resolve())
    check_workspace(place)
    if not Path(place).is_dir():
        raise ConfinementUnavailable(f"{place!r} is not a directory", "create the server's cwd")
    program = shutil.which(reached.command[0], path=reached.env.get("PATH"))
    if program is None:
        raise ConfinementUnavailable(
            f"the program {reached.command[0]!r} of the MCP server {reached.name} was not found", "install it"
        )
    mounts = mount_words(place, (), running_interpreter(), Bounds())
    # Its variables stay out of the command line, which other processes can read.
    words = [bubblewrap(), *(word for word in mounts[:-2] if word != "--clearenv")]
    words += [*_program_words(program, place), *mounts[-2:]]
    words += ["--chdir", place, "--", program, *reached.command[1:]]
    return replace(reached, command=tuple(words), env={**reached.env, "HOME": HOME, "TMPDIR": TMP})
