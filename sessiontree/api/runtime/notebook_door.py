"""The door to the notebook: how values of this room show themselves in a cell.

The notebook is a floor above, so that nothing here may import it. Python asks the value itself how it looks
in a cell. Therefore the four functions that draw are loaded by name, here alone, in a process that shows a
value.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

T = TypeVar("T")

_DISPLAYS: Final = "sessiontree.notebook.displays"
_PROGRESS_BAR: Final = "sessiontree.notebook.progress_bar"


def show_values(shell: Any) -> None:
    """Have the values of the package show themselves in a shell."""
    importlib.import_module(_DISPLAYS).show_values(shell)


def show_waiting(state_dir: Path, tree_id: str) -> bool:
    """Show a tree in the cell that waits for it; return whether that was possible."""
    is_shown: bool = importlib.import_module(_DISPLAYS).show_waiting(state_dir, tree_id)
    return is_shown


def render_tree(state_dir: Path, tree_id: str, session: str = "main") -> Mapping[str, Any]:
    """Return a tree, from one session on, as a cell shows it: by media type."""
    bundle: Mapping[str, Any] = importlib.import_module(_DISPLAYS).render_tree(state_dir, tree_id, session)
    return bundle


def show_bar(ended: AsyncGenerator[T, None], total: int, kind: str) -> AsyncGenerator[T, None]:
    """Return the results of children as they come, and show how many there are."""
    shown: AsyncGenerator[T, None] = importlib.import_module(_PROGRESS_BAR).show_bar(ended, total, kind)
    return shown
