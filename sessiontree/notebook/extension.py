"""``%load_ext sessiontree``: values of the package show themselves; ``%tree`` and ``%%program`` are known."""

from __future__ import annotations

from typing import Any

from sessiontree.api.runtime.runtime import load_late


def load_ipython_extension(shell: Any) -> None:
    """Make a shell ready; IPython calls this for ``%load_ext sessiontree``.

    Args:
        shell: The shell.
    """
    load_late("show_values")(shell)
    shell.register_magic_function(load_late("show_trees"), "line", "tree")
    load_late("add_program_magic")(shell)
