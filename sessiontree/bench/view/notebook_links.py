"""Links from a notebook to pages of a run, on a server that lives as long as the kernel.

A link is saved with the notebook, so it holds no token: the browser is let in by :func:`open_page`.
"""

from __future__ import annotations

import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from sessiontree import ConfigError, SessionTreeError, make_visible
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.view.run_folder import sample_place
from sessiontree.bench.view.run_server import make_server
from sessiontree.notebook.cell_html import escape_cell_text
from sessiontree.notebook.displays import is_in_kernel
from sessiontree.notebook.tree_look import LOOK_S
from sessiontree.notebook.view_thread import VIEWS

MAX_LINKS: Final = 20
"""Most samples that a result links to; the page has all."""
_NEEDED = ("starlette", "sse_starlette", "uvicorn")


def run_address(run_dir: Path) -> str:
    """Return the address of a run's page for a browser that was let in.

    It is empty outside a kernel, or if the extra ``serve`` is not installed.
    """
    if not is_in_kernel() or any(find_spec(name) is None for name in _NEEDED):
        return ""
    try:
        return f"{VIEWS.submit(lambda: _find_server(run_dir)).result(LOOK_S).origin}/"
    except (SessionTreeError, TimeoutError):
        return ""


def open_page(run_dir: Path) -> None:
    """Open a run's page in the browser of this machine, which is let in.

    Raises:
        ConfigError: the extra ``serve`` is not installed, or the run can't be read.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(f"the page needs {', '.join(missing)}; install 'sessiontree[serve]'")
    webbrowser.open(VIEWS.submit(lambda: _find_server(run_dir)).result(LOOK_S).make_page_address("/"))


async def _find_server(run_dir: Path) -> Any:
    return VIEWS.find_server(run_dir, lambda: make_server([RecordedRun(run_dir)]))


def link_html(address: str, words: str) -> str:
    """Return a link as HTML for a notebook; a page that it opens knows nothing of the notebook."""
    return (
        f"<a href='{escape_cell_text(address)}' target='_blank' rel='noopener "
        f"noreferrer'>{escape_cell_text(words)}</a>"
    )


def sample_links(run: RecordedRun) -> str:
    """Return links to the page of a run and to samples that did not pass, as HTML.

    It is empty for a sample without a page.
    """
    address = run_address(run.run_dir)
    if not address:
        return ""
    found = run.rows(
        "SELECT s.sample_id, s.epoch FROM samples s LEFT JOIN scores x USING (sample_id, epoch) "
        "WHERE s.state IN ('scored', 'undecided', 'failed') AND coalesce(x.passed, 0) = 0 "
        "ORDER BY s.position, s.epoch LIMIT ?",
        MAX_LINKS,
    )
    links = [
        link_html(
            f"{address}#{sample_place(0, shown, epoch)}", shown if epoch == 1 else f"{shown}, epoch {epoch}"
        )
        for shown, epoch in ((make_visible(str(name)), int(epoch)) for name, epoch in found)
    ]
    not_passed = f"; not passed: {', '.join(links)}" if links else ""
    way_in = "; <code>results.open_page()</code> opens it for the first time"
    return f"<p>{link_html(address, 'look at all samples')}{not_passed}{way_in}</p>"
