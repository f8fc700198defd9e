"""State directories: one per workspace, in the platform's state folder, never in the workspace."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from platformdirs import user_state_path

from sessiontree.contracts.errors import ConfigError


def absolute_path(given: object, name: str) -> Path:
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


def workspace_root(workspace: str | Path) -> Path:
    """Return the absolute path of a workspace.

    Raises:
        ConfigError: it is missing, is not a directory, or can't be accessed.
    """
    root = absolute_path(workspace, "workspace")
    try:
        exists, is_directory = root.exists(), root.is_dir()
    except OSError as error:  # a name too long, a directory above that may not be entered
        raise ConfigError(f"workspace {str(root)!r} can't be looked at: {error.strerror}") from error
    if not exists:
        raise ConfigError(f"workspace {str(root)!r} does not exist; give a directory")
    if not is_directory:
        raise ConfigError(f"workspace {str(root)!r} is not a directory")
    return root.resolve()


def check_not_around(place: Path, name: str, workspace: Path) -> None:
    """Refuse a hidden directory that is the workspace or contains it.

    Raises:
        ConfigError: hiding the one would hide the other.
    """
    if workspace.resolve().is_relative_to(place.resolve()):
        raise ConfigError(
            f"the workspace {str(workspace)!r} is in {name} {str(place)!r}, which is hidden from all "
            "tools; give a place outside, or leave it out"
        )


def default_state_dir(workspace: Path) -> Path:
    """Return the state directory of a workspace: the same for every program that uses the same workspace."""
    digest = hashlib.sha256(str(workspace).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return user_state_path("sessiontree", appauthor=False) / f"{workspace.name or 'root'}-{digest}"
