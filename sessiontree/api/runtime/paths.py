"""State directories: one per workspace, in the platform's state folder, never in the workspace."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from platformdirs import user_config_path, user_state_path

from sessiontree.contracts.errors import ConfigError


def make_absolute(given: object, name: str) -> Path:
    """Return the absolute path that a setting names; ``~`` is expanded.

    Args:
        given: The program's value.
        name: The setting, for the error.

    Raises:
        ConfigError: the value is not a path, or not a possible path on this system.
    """
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(f"{name} must be a path, not {given!r}")
    if given == "":  # often a variable that is not set
        raise ConfigError(f"{name} is empty; give a path, or '.' for the working directory")
    try:
        path = Path(given).expanduser().absolute()
    except (OSError, RuntimeError, TypeError) as error:  # no working directory, no such home, a path of bytes
        spelled = os.fspath(given)
        raise ConfigError(
            f"{name} {spelled!r} can't be a path here: {error}; give an absolute one"
        ) from error
    if "\0" in str(path):
        raise ConfigError(f"{name} {str(path)!r} holds a NUL character; no path does")
    return path


def resolve_workspace_root(workspace: str | Path) -> Path:
    """Return the absolute path of a workspace.

    Raises:
        ConfigError: it is missing, is not a directory, or can't be accessed.
    """
    root = make_absolute(workspace, "workspace")
    try:
        is_directory = root.is_dir()
        exists = is_directory or root.exists()
    except OSError as error:  # a name too long, a directory above that may not be entered
        raise ConfigError(f"workspace {str(root)!r} can't be looked at: {error.strerror}") from error
    if not exists:
        raise ConfigError(f"workspace {str(root)!r} does not exist; give a directory")
    if not is_directory:
        raise ConfigError(f"workspace {str(root)!r} is not a directory")
    return root.resolve()


def resolve_state_dir(given: str | Path | None) -> Path:
    """Return the absolute path of a state directory; None = that of the working directory.

    Raises:
        ConfigError: the value is not a path.
    """
    return make_absolute(
        get_default_state_dir(resolve_workspace_root(".")) if given is None else given, "state_dir"
    )


def check_not_around(place: Path, name: str, workspace: Path) -> None:
    """Refuse a hidden directory that is the workspace or contains it.

    Args:
        place: The directory; its links are resolved.
        name: What the error calls it.
        workspace: Absolute, without links.

    Raises:
        ConfigError: hiding the one would hide the other.
    """
    if f"{workspace}/".startswith(os.path.realpath(place).rstrip("/") + "/"):
        raise ConfigError(
            f"the workspace {str(workspace)!r} is in {name} {str(place)!r}, which is hidden from all "
            "tools; give a place outside, or leave it out"
        )


def get_config_folder() -> Path:
    """Return the folder of the owner's configuration, which may not exist."""
    return user_config_path("sessiontree", appauthor=False)


def list_owner_folders(workspace: Path) -> tuple[Path, ...]:
    """Return the owner's folders beneath a workspace: configuration, and the state of all workspaces.

    A home directory as a workspace holds them. Sessions must neither read nor write there. A folder that is
    reached through a link is left out: what a link leads to can be changed by whoever may change the link.
    """
    # As text: each tree asks, and nearly always neither folder is beneath its workspace.
    root = os.path.realpath(workspace)
    found = []
    for folder in _find_owner_folders(*map(os.environ.get, _FOLDER_VARIABLES)):
        path = os.path.abspath(folder)  # noqa: PTH100 - only the links of the workspace's own path count
        if _is_below(path, str(workspace)):
            path = root.rstrip("/") + path[len(str(workspace).rstrip("/")) :]
        if _is_below(path, root) and os.path.realpath(folder) == path:
            found.append(Path(path))
    return tuple(found)


_FOLDER_VARIABLES: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
"""The variables by which a user moves these folders."""


@lru_cache(maxsize=4)
def _find_owner_folders(*_: str | None) -> tuple[Path, Path]:
    """Return the folders of configuration and state; the arguments are the values of the variables."""
    return get_config_folder(), user_state_path("sessiontree", appauthor=False)


def _is_below(path: str, folder: str) -> bool:
    return path != folder and path.startswith(folder.rstrip("/") + "/")


def make_folders(folders: Iterable[Path]) -> None:
    """Make the owner's folders that are missing: what does not exist can't be hidden from commands.

    Where this process can't make one, sessions can't either.
    """
    for each in folders:
        with suppress(OSError):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)


def get_default_state_dir(workspace: Path) -> Path:
    """Return the state directory of a workspace: the same for every program that uses the same workspace."""
    digest = hashlib.sha256(str(workspace).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return user_state_path("sessiontree", appauthor=False) / f"{workspace.name or 'root'}-{digest}"
