"""``%load_ext sessiontree``: values of the package show themselves; ``%tree`` and ``%%program`` are known."""

from __future__ import annotations

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Make a shell ready; IPython calls this for ``%load_ext sessiontree``.

    Args:
        shell: The shell.
    """
    from sessiontree.notebook.displays import show_values
    from sessiontree.notebook.program_magic import add_program_magic
    from sessiontree.notebook.tree_magic import show_trees

    show_values(shell)
    shell.register_magic_function(show_trees, "line", "tree")
    add_program_magic(shell)
