"""A command's environment: its variables, its file system, and its programs.

Variables are built for each command. Nothing is inherited from the runtime's own processes, so no key,
token or address in their environment reaches a command.

The root is empty and read-only. It contains the system's programs, the interpreter of this environment, the
workspace at its own path, and private places in memory. Shallow places are mounted first, so that deeper
ones are on top of them. A hidden place below a visible one is covered. The directories on the way to it in
the workspace are mounted on themselves, because a mounted directory can't be renamed: its new name would
uncover the hidden place for the next command. The same applies to those on the way to a protected place,
which is mounted read-only.

Source: bwrap(1), mount_namespaces(7).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final

from sessiontree.contracts.errors import (
    ConfinementUnavailable,
    ExecutionError,
    PermissionDenied,
    ValidationError,
)
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.policy.commands.command_line import is_harmless_variable
from sessiontree.protected import Seen
from sessiontree.sandbox.commands.command_bounds import HOME, SHARED_MEMORY, TMP, Bounds

SYSTEM_PATH: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
MAX_VALUE_BYTES: Final = 32_768
MAX_VARIABLES: Final = 100

_LOADERS: Final = """
    PATH HOME IFS ENV SHELL
    BASH_ENV BASHOPTS SHELLOPTS PS4 PROMPT_COMMAND CDPATH GLOBIGNORE FPATH ZDOTDIR
    GCONV_PATH GETCONF_DIR GLIBC_TUNABLES HOSTALIASES LOCALDOMAIN LOCPATH MALLOC_TRACE NLSPATH
    RESOLV_HOST_CONF RES_OPTIONS
    PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONINSPECT PYTHONUSERBASE PYTHONBREAKPOINT PYTHONWARNINGS
    PYTHONEXECUTABLE PYTHONPLATLIBDIR PYTHONPYCACHEPREFIX
    PERL5LIB PERL5OPT PERL5DB PERLLIB RUBYLIB RUBYOPT GEM_HOME GEM_PATH BUNDLE_GEMFILE
    NODE_OPTIONS NODE_PATH LUA_INIT LUA_PATH LUA_CPATH PHPRC PHP_INI_SCAN_DIR TCLLIBPATH R_PROFILE R_ENVIRON
    CLASSPATH JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS DOTNET_STARTUP_HOOKS
    CORECLR_ENABLE_PROFILING CORECLR_PROFILER_PATH
    EDITOR VISUAL PAGER MANPAGER BROWSER LESSOPEN LESSCLOSE
    OPENSSL_CONF OPENSSL_ENGINES OPENSSL_MODULES GTK_MODULES GIO_EXTRA_MODULES QT_PLUGIN_PATH
    RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER MAKEFLAGS
"""
LOADERS: Final = frozenset(_LOADERS.split())
"""Variables that choose which program or library runs, or what a shell or an interpreter runs first."""
LOADER_PREFIXES: Final = ("LD_", "DYLD_", "BASH_FUNC_", "GIT_", "SESSIONTREE_", "RAY_")


def check_variables(env: Mapping[str, str]) -> None:
    """Accept the variables that a call sets for its command.

    Raises:
        ValidationError: one may not be set, is not a variable, or is too long; its pointer names it.
    """
    if len(env) > MAX_VARIABLES:
        raise ValidationError(
            f"{len(env)} variables are too many; at most {MAX_VARIABLES} are accepted", "/env"
        )
    for name, value in env.items():
        pointer = "/env/" + name.replace("~", "~0").replace("/", "~1")
        if not (name.isascii() and name.isidentifier()):
            raise ValidationError(f"{name!r} is not a name of an environment variable", pointer)
        if name in LOADERS or name.startswith(LOADER_PREFIXES):
            raise ValidationError(
                f"{name} may not be set here: it decides which code runs; set it inside the command", pointer
            )
        if "\0" in value or len(value.encode("utf-8", "surrogatepass")) > MAX_VALUE_BYTES:
            raise ValidationError(
                f"the value of {name} holds a NUL or more than {MAX_VALUE_BYTES} bytes", pointer
            )


def check_plain_variables(env: Mapping[str, str]) -> None:
    """Accept the variables of a program that may run because it is known to be harmless.

    Raises:
        PermissionDenied: one could change what the program does; the text names it.
    """
    for name, value in env.items():
        if not is_harmless_variable(name, value):
            raise PermissionDenied(
                PermissionTier.SYSTEM,
                f"can't set {name!r}: this session runs only known harmless programs, and gives them only "
                "LANG and LC_… (C, POSIX or a locale of UTF-8), COLUMNS and NO_COLOR",
            )


def make_fresh_environment(programs: Sequence[str], workdir: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a command.

    Args:
        programs: Directories of programs in search order.
        workdir: Where it starts.
        env: Checked variables of the call.
    """
    return {
        # First, so that no variable of the call replaces one that is set below.
        **env,
        "PATH": ":".join(programs),
        "HOME": HOME,
        "USER": "session",
        "LOGNAME": "session",
        "LANG": env.get("LANG", "C.UTF-8"),
        "TERM": env.get("TERM", "dumb"),
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        "PWD": workdir,
    }


STAND_IN: Final = "/run/sessiontree/python"
"""Replaces an environment that is in the workspace. It contains only the Python of that environment, so that
no other program of the workspace hides one of the system's."""
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
"""The files of /etc that programs need and everyone may read."""
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
    """The file that this path resolves to."""
    prefixes: tuple[str, ...]
    """Directories that it needs, links resolved, without those of the system."""
    programs: str
    """The directory of its scripts."""


def get_running_interpreter() -> Interpreter:
    """Return the interpreter of this process."""
    real = os.path.realpath(sys.executable)
    found = {os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix)}
    found.add(str(Path(real).parent.parent))
    prefixes = tuple(sorted(prefix for prefix in found if prefix != "/" and not _is_beneath(prefix, "/usr")))
    return Interpreter(sys.executable, real, prefixes, str(Path(os.path.realpath(sys.prefix)) / "bin"))


def find_library_places(names: Sequence[str]) -> Iterator[str]:
    """Yield the directory or file of each of these packages that is installed, links resolved."""
    for name in names:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            continue
        place = os.path.realpath(spec.origin)
        yield str(Path(place).parent) if spec.submodule_search_locations else place


def _is_beneath(path: str, top: str) -> bool:
    """Whether an absolute path without links is another one, or below it."""
    return path == top or path.startswith(f"{top.rstrip('/')}/")


def check_workspace(workspace: str) -> None:
    """Accept a workspace that a sandbox can mount.

    Raises:
        ConfinementUnavailable: a sandbox can't mount it.
        ExecutionError: it is gone.
    """
    if not Path(workspace).is_dir():
        raise ExecutionError(f"the workspace {workspace!r} is gone, or not a directory any more; restore it")
    if workspace in _NO_WORKSPACE or any(_is_beneath(workspace, place) for place in _KERNELS_OWN):
        raise ConfinementUnavailable(
            f"the workspace is {workspace!r}", "give the tree a directory that is not the system's own"
        )


def list_program_folders(interpreter: Interpreter, workspace: str) -> tuple[str, ...]:
    """Return the directories that are searched for programs; the system's come before the workspace's."""
    if _is_beneath(interpreter.programs, workspace):
        # A command can write here, so `ls` of an earlier command must not run in place of the system's.
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
    skills: Mapping[str, str] | None = None,
) -> list[str]:
    """Return bubblewrap's options for one command.

    Args:
        workspace: Absolute, without links.
        hidden: Places that must not be seen; absolute, without links. Places that do not exist are ignored.
        interpreter: Readable in addition to the system.
        bounds: Sizes of the private places.
        may_write: Whether the workspace can be written.
        seen: Protected places of the workspace, which are read-only in any case.
        skills: Folders of skills, each with the place where the command sees it.
    """
    bind = "--bind" if may_write else "--ro-bind"
    visible = {prefix: ["--ro-bind", prefix, prefix] for prefix in interpreter.prefixes}
    visible |= {path: ["--ro-bind", path, path] for path in _list_system_places()}
    visible[TMP] = _mount_memory(TMP, bounds.scratch_bytes)
    visible[HOME] = _mount_memory(HOME, bounds.scratch_bytes // 4)
    visible[workspace] = [bind, workspace, workspace]
    seen = seen or Seen(workspace)
    visible |= {
        path: ["--ro-bind", path, path] for path in seen.paths if _find_nearest(path, visible) == workspace
    }
    covers = {place: _cover(place) for place in hidden if _is_seen(place, visible)}
    # A new name for a directory on the way would uncover the hidden place for the next command, so each is a
    # mount of its own.
    pinned = {
        str(way): [bind, str(way), str(way)]
        for place in (
            *covers,
            *interpreter.prefixes,
            *seen.paths,
            *(each for each, _ in seen.links),
            *(each for each in seen.absent if os.path.isdir(os.path.dirname(each))),  # noqa: PTH112, PTH120 - one call
        )
        for way in PurePosixPath(place).parents
        if way != PurePosixPath(workspace) and _find_nearest(str(way), visible) == workspace
    }
    # Covers come last: where a place is both visible and hidden, hidden wins.
    placed = {**pinned, **visible, **covers}
    words = [*NAMESPACES, "--proc", "/proc", "--dev", "/dev"]
    words += _mount_memory(SHARED_MEMORY, bounds.scratch_bytes // 4)
    # Shallow places first: a later mount over a directory would cover the deeper ones made before it.
    for path in sorted(placed, key=lambda path: (path.count("/"), path)):
        words += placed[path]
    words += [word for link in _list_links() for word in link]
    if _is_beneath(interpreter.programs, workspace):
        words += _stand_in(interpreter)
    words += _build_skill_words(skills or {}, hidden)
    return [*words, "--remount-ro", "/"]


def build_system_words() -> list[str]:
    """Return bubblewrap's options that show the system's programs and settings, read-only."""
    words = [word for path in _list_system_places() for word in ("--ro-bind", path, path)]
    return words + [word for link in _list_links() for word in link]


def _build_skill_words(skills: Mapping[str, str], hidden: Sequence[str]) -> list[str]:
    """Return the words that mount skills read-only, without missing ones and those around a hidden place."""
    words: list[str] = []
    for folder, place in skills.items():
        if not any(_is_beneath(folder, each) or _is_beneath(each, folder) for each in hidden):
            # The owner may remove a skill while the tree runs; a missing one must not stop every command.
            words += ["--ro-bind-try", folder, place]
    return words


def _stand_in(interpreter: Interpreter) -> list[str]:
    """Return the words that create the same environment in another place: Python finds it by its settings."""
    prefix = Path(interpreter.programs).parent
    words = ["--symlink", str(prefix / "lib"), f"{STAND_IN}/lib"]
    if (prefix / "pyvenv.cfg").exists():
        words += ["--ro-bind", str(prefix / "pyvenv.cfg"), f"{STAND_IN}/pyvenv.cfg"]
    for name in ("python", "python3"):
        words += ["--symlink", interpreter.real_program, f"{STAND_IN}/bin/{name}"]
    return words


def _mount_memory(path: str, size: int) -> list[str]:
    return ["--perms", "1777", "--size", str(size), "--tmpfs", path]


def _cover(place: str) -> list[str]:
    if Path(place).is_dir():
        return ["--perms", "0555", "--tmpfs", place, "--remount-ro", place]
    return ["--ro-bind", "/dev/null", place]  # no device may be opened there, so it can't be read


def _is_seen(place: str, visible: dict[str, list[str]]) -> bool:
    nearest = _find_nearest(place, visible)
    return nearest not in {"", TMP, HOME} and os.path.lexists(place)


def _find_nearest(path: str, visible: dict[str, list[str]]) -> str:
    """Return the deepest mounted place that contains a path; empty if none does."""
    while path not in visible:
        if path == "/":
            return ""
        path = path.rpartition("/")[0] or "/"
    return path


def _list_system_places() -> Iterator[str]:
    yield "/usr"
    for name in _NAMES_OF_USR:
        path = Path("/", name)
        if path.is_dir() and not path.is_symlink():
            yield str(path)
    for name in _SETTINGS:
        if Path("/etc", name).exists():
            yield f"/etc/{name}"


def _list_links() -> Iterator[tuple[str, str, str]]:
    for name in _NAMES_OF_USR:
        path = Path("/", name)
        if path.is_symlink():
            yield "--symlink", str(path.readlink()), str(path)


def make_program_finder(
    workspace: str, searched: tuple[str, ...] | None = None
) -> Callable[[str], str | None]:
    """Return a function that finds programs for commands of a workspace and trusts only the system's.

    The function takes a program as a command names it, and returns the file that would run, links resolved.
    It returns None if the program does not exist or is not the system's, because in a sandbox only the
    system's programs can't be written. A name is found as the shell finds it: the first directory that has
    it decides. A lookup takes about 20 µs.

    Args:
        workspace: Absolute, without links.
        searched: Directories in search order; None = those of a command's PATH.
    """
    places = list_program_folders(get_running_interpreter(), workspace) if searched is None else searched
    systems = tuple(place for place in SYSTEM_PATH if not Path(place).is_relative_to(workspace))

    def find(name: str) -> str | None:
        path = PurePosixPath(name)
        if "/" in name:
            is_plain = str(path) == name and ".." not in path.parts
            return _resolve_program(name, workspace) if is_plain and str(path.parent) in systems else None
        for place in places:
            if name and os.path.lexists(os.path.join(place, name)):  # noqa: PTH118 - nothing but a name is joined
                return _resolve_program(f"{place}/{name}", workspace) if place in systems else None
        return None

    return find


def _resolve_program(path: str, workspace: str) -> str | None:
    real = Path(os.path.realpath(path))
    is_systems = any(real.is_relative_to(place) for place in ("/usr", *SYSTEM_PATH))
    if not is_systems or real.is_relative_to(workspace):
        return None
    return str(real) if real.is_file() and os.access(real, os.X_OK) else None
