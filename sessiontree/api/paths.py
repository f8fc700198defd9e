"""Where state lies: one directory per workspace, in the platform's state folder, never in the workspace."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from platformdirs import user_state_path

from sessiontree.contracts.errors import ConfigError


def absolute_path(given: object, name: str) -> Path:
    """Return the absolute path that a setting names; ``~`` is a home.

    Args:
        given: What a program gave.
        name: The setting, for the error.

    Raises:
        ConfigError: it is no path, or can be none here.
    """
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(f"{name} must be a path, not {given!r}")
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
        ConfigError: it is missing, no directory, or can't be looked at.
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
    """Refuse a place that no session may see where the workspace is that place, or lies in it.

    Raises:
        ConfigError: hiding the one would hide the other.
    """
    if workspace.resolve().is_relative_to(place.resolve()):
        raise ConfigError(
            f"the workspace {str(workspace)!r} lies in {name} {str(place)!r}, which is hidden from all "
            "tools; give a place outside, or leave it out"
        )


def default_state_dir(workspace: Path) -> Path:
    """Return the state directory of a workspace: the same for every program that names the same place."""
    digest = hashlib.sha256(str(workspace).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return user_state_path("sessiontree", appauthor=False) / f"{workspace.name or 'root'}-{digest}"
