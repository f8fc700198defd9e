"""The documents of canvases' frames: what they hold, and the policy that keeps them to themselves.

A frame gets an origin of its own from its policy, even if somebody opens its address alone: its scripts reach
no cookie, storage or page of this server, load nothing, send nothing and lead nowhere. They can only send
messages to the page around them.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ConfigError, ExecutionError, SessionTreeError, describe_error
from sessiontree.contracts.recorded.canvas import MAX_CONTENT_BYTES
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.tree.state.canvas_state import CanvasState
from sessiontree.view.bundle import join_modules
from sessiontree.workspace import WorkspaceReader

_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src {scripts} 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; media-src data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
HEADERS: Final = {
    "X-Frame-Options": "SAMEORIGIN",
    "X-DNS-Prefetch-Control": "off",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), display-capture=(), usb=(), payment=()",
}
_PAGE: Final = """<!doctype html>
<script nonce="{nonce}">"use strict";(() => {{
{script}
{call}
}})();</script>
"""
_SURFACES: Final = """<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Canvas</title>
<body></body>
"""
_EMPTY: Final = '<!doctype html><meta charset="utf-8"><title>Canvas</title><p>{words}</p>'


@dataclass(frozen=True, slots=True)
class CanvasFrame:
    """One document."""

    html: str
    policy: str
    """Its ``Content-Security-Policy``."""


class CanvasPages:
    """Reads the pages of a workspace that canvases show, under the rules of a session's reader.

    Args:
        workspace: The workspace of the tree.
        hidden: Places that nobody is shown.
    """

    def __init__(self, workspace: Path, hidden: tuple[Path, ...]) -> None:
        self._workspace = workspace
        self._hidden = hidden
        self._reader: WorkspaceReader | None = None

    def read(self, path: str) -> str:
        """Return the text of a page; bytes that are no UTF-8 become U+FFFD. Blocks.

        Raises:
            SessionTreeError: it can't be read, is too large, or is outside of what may be shown.
        """
        with self._get_reader().open(path) as stream:
            # One byte more than is shown tells that the file is too long, whatever its size was a moment
            # before.
            data = stream.read(MAX_CONTENT_BYTES + 1)
        if len(data) > MAX_CONTENT_BYTES:
            raise ExecutionError(f"{path!r} has more than {MAX_CONTENT_BYTES:,} bytes")
        return data.decode("utf-8", "replace")

    def stamp(self, path: str) -> tuple[int, int]:
        """Return what changes whenever a page does; zeros for one that can't be read. Blocks."""
        try:
            entry = self._get_reader().stat(path)
        except SessionTreeError:
            return 0, 0
        return entry.mtime_ns, entry.size

    def _get_reader(self) -> WorkspaceReader:
        if self._reader is None:
            self._reader = WorkspaceReader(self._workspace, hidden=self._hidden)
        return self._reader


def make_frame(canvas: CanvasState, pages: CanvasPages) -> CanvasFrame:
    """Return the document that shows a canvas. Blocks for a page of the workspace.

    A page's own scripts run; those of a page of the web do not: it was not made to run here.
    """
    nonce = secrets.token_urlsafe(16)
    if canvas.shows == "a2ui":
        begin = 'addEventListener("DOMContentLoaded", () => showSurfaces());'
        script = _PAGE.format(nonce=nonce, script=join_modules("surface_frame.js"), call=begin)
        return CanvasFrame(script + _SURFACES, _format_policy(f"'nonce-{nonce}'"))
    try:
        html = _load_html(canvas, pages)
    except SessionTreeError as error:
        html = _render_empty(f"This page can't be shown: {describe_error(error)}")
    bridge = _PAGE.format(nonce=nonce, script=join_modules("canvas_bridge.js"), call="openBridge();")
    # a nonce in the policy would switch off the page's own scripts, which have none
    return CanvasFrame(
        bridge + html, _format_policy(f"'nonce-{nonce}'" if canvas.shows == "web" else "'unsafe-inline'")
    )


def _load_html(canvas: CanvasState, pages: CanvasPages) -> str:
    if "html" in canvas.page:
        return canvas.page["html"]
    if "path" in canvas.page:
        return pages.read(canvas.page["path"])
    raise ConfigError("nothing was presented")


def _render_empty(words: str) -> str:
    plain = words.replace("&", "&amp;").replace("<", "&lt;")
    return _EMPTY.format(words=plain)


def _format_policy(scripts: str) -> str:
    return _POLICY.format(scripts=scripts)
