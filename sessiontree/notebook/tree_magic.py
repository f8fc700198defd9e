"""``%tree``: the live trees of a notebook."""

from __future__ import annotations

from typing import Final

from sessiontree.api.runtime.runtime import OPEN
from sessiontree.contracts.errors import ConfigError
from sessiontree.notebook.displays import RUNNING, page_address, render_tree

PAGE: Final = "--page"


def show_trees(line: str = "") -> None:
    """Show the trees that are open in this kernel.

    ``%tree`` shows all of them, ``%tree 3f`` those whose ids begin so, and ``%tree --page`` prints addresses
    of their pages instead. Each address lets one browser in, once, as long as the kernel lives.

    Raises:
        ConfigError: no such tree is open.
    """
    words = line.split()
    begins = [word for word in words if word != PAGE]
    found = [
        (runtime.state_dir, tree_id)
        for runtime in OPEN
        for tree_id in runtime.sharing.open_trees()
        if all(tree_id.startswith(begin) for begin in begins)
    ]
    if not found:
        raise ConfigError(f"no tree is open here whose id begins with {begins[0]!r}" if begins else _NONE)
    for state_dir, tree_id in found:
        if PAGE in words:
            RUNNING.publish({"text/plain": f"open {page_address(state_dir, tree_id)}"})
        else:
            RUNNING.publish(render_tree(state_dir, tree_id))


_NONE: Final = "no tree is open here; open one, such as tree = await SessionTree(…).start()"
