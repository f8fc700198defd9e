"""What a command sees of the file system: the words that tell bubblewrap.

An empty root that can't be written, and in it: the system's programs, the interpreter of this environment,
the workspace at its own path, and private places in memory. Shallow places come first, so that what lies
deeper lies upon them. A hidden place beneath a visible one is covered; the directories on the way to it in
the workspace are mounted upon themselves, because a mounted directory can't be renamed: its new name would
uncover it for the next command. So are those on the way to a protected place, which is mounted read-only.

Source: bwrap(1), mount_namespaces(7).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from sessiontree.contracts.errors import ConfinementUnavailable, ExecutionError
from sessiontree.protected import Seen
from sessiontree.sandbox.bounds import Bounds
from sessiontree.sandbox.environment import HOME, SYSTEM_PATH

STAND_IN: Final = "/run/sessiontree/python"
"""Stands for the environment where that lies in the workspace: its Python alone, so that no other program of
the workspace takes the place of one of the system's."""
TMP: Final = "/tmp"  # noqa: S108 - the sandbox's own
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the sandbox's own
_NAMES_OF_USR: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SETTINGS: Final = (
    "alternatives",
    "group",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "timezone",
)
"""What programs need of /etc and everybody may read."""
_KERNELS_OWN: Final = ("/proc", "/sys", "/dev")
_NO_WORKSPACE: Final = ("/", "/run")
NAMESPACES: Final = (
    *("--unshare-all", "--unshare-user", "--as-pid-1", "--die-with-parent", "--new-session", "--clearenv"),
    *("--cap-drop", "ALL", "--hostname", "sandbox"),
)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The running Python, as a command may use it."""

    program: str
    """Its own path, such as that in a virtual environment."""
    real_program: str
    """What that path leads to."""
    prefixes: tuple[str, ...]
    """Directories it needs, links resolved; those of the system are left out."""
    programs: str
    """The directory of its scripts."""


def running_interpreter() -> Interpreter:
    """Return this process's own."""
    real = os.path.realpath(sys.executable)
    found = {os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix)}
    found.add(str(Path(real).parent.parent))
    prefixes = tuple(sorted(prefix for prefix in found if prefix != "/" and not _beneath(prefix, "/usr")))
    return Interpreter(sys.executable, real, prefixes, str(Path(os.path.realpath(sys.prefix)) / "bin"))


def _beneath(path: str, top: str) -> bool:
    return PurePosixPath(path).is_relative_to(top)


def check_workspace(workspace: str) -> None:
    """Accept a workspace that a sandbox can hold.

    Raises:
        ConfinementUnavailable: it can't.
        ExecutionError: it is gone.
    """
    if not Path(workspace).is_dir():
        raise ExecutionError(f"the workspace {workspace!r} is gone, or no directory any more; bring it back")
    if workspace in _NO_WORKSPACE or any(_beneath(workspace, place) for place in _KERNELS_OWN):
        raise ConfinementUnavailable(
            f"the workspace is {workspace!r}", "give the tree a directory that is not the system's own"
        )


def programs_of(interpreter: Interpreter, workspace: str) -> tuple[str, ...]:
    """Return where programs are searched; nothing that lies in the workspace comes before the system's."""
    if _beneath(interpreter.programs, workspace):
        return (f"{STAND_IN}/bin", *SYSTEM_PATH, interpreter.programs)
    return (interpreter.programs, *SYSTEM_PATH)


def mount_words(
    workspace: str,
    hidden: Sequence[str],
    interpreter: Interpreter,
    bounds: Bounds,
    *,
    may_write: bool = True,
    seen: Seen | None = None,
) -> list[str]:
    """Return bubblewrap's options for one command.

    Args:
        workspace: Absolute, without links.
        hidden: Places that are not to be seen; absolute, without links. One that does not exist is nothing.
        interpreter: Readable besides the system.
        bounds: Sizes of the private places.
        may_write: Whether the workspace can be written.
        seen: What of it is protected, and read-only all the same.
    """
    bind = "--bind" if may_write else "--ro-bind"
    visible = {prefix: ["--ro-bind", prefix, prefix] for prefix in interpreter.prefixes}
    visible |= {path: ["--ro-bind", path, path] for path in _system()}
    visible[TMP] = _memory(TMP, bounds.scratch_bytes)
    visible[HOME] = _memory(HOME, bounds.scratch_bytes // 4)
    visible[workspace] = [bind, workspace, workspace]
    seen = seen or Seen(workspace)
    visible |= {
        path: ["--ro-bind", path, path] for path in seen.paths if _nearest(path, visible) == workspace
    }
    covers = {place: _cover(place) for place in hidden if _is_seen(place, visible)}
    pinned = {
        str(way): [bind, str(way), str(way)]
        for place in (
            *covers,
            *interpreter.prefixes,
            *seen.paths,
            *(each for each, _ in seen.links),
            *seen.absent,
        )
        for way in PurePosixPath(place).parents
        if way != PurePosixPath(workspace) and _nearest(str(way), visible) == workspace
    }
    placed = {**pinned, **visible, **covers}
    words = [*NAMESPACES, "--proc", "/proc", "--dev", "/dev"]
    words += _memory(SHARED_MEMORY, bounds.scratch_bytes // 4)
    for path in sorted(placed, key=lambda path: (path.count("/"), path)):
        words += placed[path]
    words += [word for link in _links() for word in link]
    if _beneath(interpreter.programs, workspace):
        words += _stand_in(interpreter)
    return [*words, "--remount-ro", "/"]


def _stand_in(interpreter: Interpreter) -> list[str]:
    """Return what makes another place the same environment: Python takes for one where its settings lie."""
    prefix = Path(interpreter.programs).parent
    words = ["--symlink", str(prefix / "lib"), f"{STAND_IN}/lib"]
    if (prefix / "pyvenv.cfg").exists():
        words += ["--ro-bind", str(prefix / "pyvenv.cfg"), f"{STAND_IN}/pyvenv.cfg"]
    for name in ("python", "python3"):
        words += ["--symlink", interpreter.real_program, f"{STAND_IN}/bin/{name}"]
    return words


def _memory(path: str, size: int) -> list[str]:
    return ["--perms", "1777", "--size", str(size), "--tmpfs", path]


def _cover(place: str) -> list[str]:
    if Path(place).is_dir():
        return ["--perms", "0555", "--tmpfs", place, "--remount-ro", place]
    return ["--ro-bind", "/dev/null", place]  # no device may be opened there, so not even that is read


def _is_seen(place: str, visible: dict[str, list[str]]) -> bool:
    nearest = _nearest(place, visible)
    return nearest not in {"", TMP, HOME} and os.path.lexists(place)


def _nearest(path: str, visible: dict[str, list[str]]) -> str:
    """Return the deepest mounted place that holds a path; empty where none does."""
    return max((place for place in visible if _beneath(path, place)), key=len, default="")


def _system() -> Iterator[str]:
    yield "/usr"
    for name in _NAMES_OF_USR:
        path = Path("/", name)
        if path.is_dir() and not path.is_symlink():
            yield str(path)
    for name in _SETTINGS:
        if Path("/etc", name).exists():
            yield f"/etc/{name}"


def _links() -> Iterator[tuple[str, str, str]]:
    for name in _NAMES_OF_USR:
        path = Path("/", name)
        if path.is_symlink():
            yield "--symlink", str(path.readlink()), str(path)
