"""The widget of a cell: the page of a tree over the comm of an anywidget. Needs the extra ``notebook``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import anywidget

from sessiontree.notebook.tree_talk import TreeTalk
from sessiontree.notebook.view_thread import VIEWS
from sessiontree.view.bundle import join_modules

MAX_WIDGETS: Final = 32
"""Most widgets of a kernel; the one that was made first is closed for another one."""
_RENDER: Final = """
export default {
  render({ model, el }) {
    const wire = {
      send: (message) => model.send(message),
      onMessage: (hear) => {
        model.on("msg:custom", hear);
        return () => model.off("msg:custom", hear);
      },
    };
    el.dataset.lmSuppressShortcuts = "true"; // keys of the page are not commands of JupyterLab
    const isLight = document.body.dataset.jpThemeLight;
    const theme = isLight === undefined ? "" : isLight === "true" ? "light" : "dark";
    const element = mountTree(el, new WidgetSource(wire), theme);
    element.style.setProperty("--session-tree-height", "440px"); // cells around it stay in sight
    return () => element.remove();
  },
};
"""


class TreeWidget(anywidget.AnyWidget):
    """A tree in a cell.

    Args:
        state_dir: The state directory of the tree.
        tree_id: The tree.
    """

    _esm = join_modules("session_tree.js", "source_widget.js") + _RENDER

    def __init__(self, state_dir: Path, tree_id: str) -> None:
        super().__init__()
        _keep_shell(self.comm)
        talk = TreeTalk(VIEWS, state_dir, tree_id, self.send)
        self.on_msg(lambda _, content, __: talk.hear(content))


def _keep_shell(comm: Any) -> None:
    """Have the page's messages handled on the shell that the front end sent them to.

    ipykernel otherwise moves them to the shell whose request the kernel sent to the comm last for: the main
    shell, which a blocking cell holds until a person has answered.
    """

    def keep_default(data: object, default: str | None) -> str | None:
        return default

    comm._reply_subshell_for = keep_default  # noqa: SLF001 - ipykernel has no other way to say so


_WIDGETS: Final[dict[tuple[Path, str], TreeWidget]] = {}


def get_widget(state_dir: Path, tree_id: str) -> TreeWidget:
    """Return the widget of a tree, the same one in every cell."""
    key = (state_dir, tree_id)
    if key not in _WIDGETS:
        while len(_WIDGETS) >= MAX_WIDGETS:
            # Each widget has a comm in the front end, which nothing else would close as long as the kernel
            # lives.
            _WIDGETS.pop(next(iter(_WIDGETS))).close()
        _WIDGETS[key] = TreeWidget(state_dir, tree_id)
    return _WIDGETS[key]
