"""Where state lies: one directory per workspace, in the platform's state folder, never in the workspace."""

from __future__ import annotations

import hashlib
from pathlib import Path

from platformdirs import user_state_path

from sessiontree.contracts.errors import ConfigError


def workspace_root(workspace: str | Path) -> Path:
    """Return the absolute path of a workspace.

    Raises:
        ConfigError: it is missing or no directory.
    """
    root = Path(workspace).expanduser().absolute()
    if not root.exists():
        raise ConfigError(f"workspace {str(root)!r} does not exist; give a directory")
    if not root.is_dir():
        raise ConfigError(f"workspace {str(root)!r} is not a directory")
    return root.resolve()


def default_state_dir(workspace: Path) -> Path:
    """Return the state directory of a workspace: the same for every program that names the same place."""
    digest = hashlib.sha256(str(workspace).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return user_state_path("sessiontree", appauthor=False) / f"{workspace.name or 'root'}-{digest}"
