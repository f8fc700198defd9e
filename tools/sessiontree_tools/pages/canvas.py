"""``canvas``: shows a person pages and A2UI surfaces in the console, and looks at what is shown.

What a frame answers is text from outside: its content may come from anywhere, and may lie.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree.contracts.handles.ports import Reader
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.canvas import (
    MAX_CODE_CHARS,
    MAX_CONTENT_BYTES,
    WITH_DOCUMENT,
    CanvasReport,
)
from sessiontree.contracts.recorded.capabilities import CANVAS, READER
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import run_in_call_thread
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, AllowEmpty, Stripped, Tool, ToolFlag
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.untrusted import wrap_untrusted
from sessiontree_tools.files.text_file import decode_text, read_whole
from sessiontree_tools.pages.a2ui_messages import parse_messages
from sessiontree_tools.pages.canvas_picture import NO_BROWSER, draw_document
from sessiontree_tools.web.web_characters import decode_page

TIMEOUT_S = 10.0
MAX_TIMEOUT_S = 60.0
FRAME_CHARS = 1_000
"""Room kept for the marks around an answer, so that no later cut removes them."""
NO_VIEWER_NOTE = (
    "no page shows it now; it is kept, and shown once somebody opens the tree in sessiontree serve"
)
HTML_TYPES = ("text/html", "application/xhtml+xml")


class CanvasParams(BaseModel):
    """What to do with the canvas."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["present", "hide", "navigate", "eval", "snapshot", "a2ui_push", "a2ui_reset"]
    html: Annotated[str, AllowEmpty()] | None = Field(default=None, description="A whole page, to present.")
    path: str | None = Field(
        default=None,
        description="A page in the workspace, to present or navigate to; it is shown as it changes.",
    )
    url: Annotated[str, Stripped()] | None = Field(default=None, description="A web page, to navigate to.")
    code: str | None = Field(
        default=None,
        max_length=MAX_CODE_CHARS,
        description="JavaScript for eval; its last value is returned.",
    )
    jsonl: str | None = Field(default=None, description="A2UI messages for a2ui_push, one a line.")
    jsonl_path: str | None = Field(default=None, description="A file with them.")
    timeout_s: float = Field(default=TIMEOUT_S, gt=0, le=MAX_TIMEOUT_S, description="For eval and snapshot.")


class CanvasTool(Tool[CanvasParams]):
    """Shows pages and A2UI surfaces, and looks at what is shown."""

    name = "canvas"
    description = (
        "Show the person a page (present: html or path; navigate: path or url) or A2UI surfaces (a2ui_push; "
        "a2ui_reset removes all). eval and snapshot look at it; what they return is text from outside. Pages "
        "load nothing from the network."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = CanvasParams
    label = "Canvas"
    section = "ui"
    tier = PermissionTier.SYSTEM
    flags = frozenset({ToolFlag.OPTIONAL})
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"canvas"})
    optional_capabilities = frozenset({"reader", "web", "browser"})
    sequential = True
    param_aliases: ClassVar[Mapping[str, str]] = {"javaScript": "code", "jsonlPath": "jsonl_path"}

    async def execute(self, params: CanvasParams, ctx: ToolContext) -> ToolResult:
        """Do it; each action runs once for its call.

        The output of a change is ``{status, page, surfaces, viewers, note}``: ``shown`` or ``hidden``, what
        is shown, components by surface, and how many pages show it now. ``eval`` and ``snapshot`` give a
        marked text with the frame's answer as JSON. Where the session holds a browser, a snapshot has a
        picture too; else a line says how to get one.

        Raises:
            ValidationError: an argument is missing or not of this action, or the A2UI is not valid.
            ExecutionError: no page shows the canvas, or it does not answer; a file or page can't be read.
            PermissionDenied: a path is outside what may be read, an address is forbidden, or the session
                has no canvas.
        """
        _check_arguments(params)
        canvas = ctx.require(CANVAS)
        if params.action == "snapshot":
            return await _snapshot(params, ctx)
        if params.action == "eval":
            answer = await canvas.ask("eval", params.code or "", key=ctx.call_id, timeout_s=params.timeout_s)
            return _build_answer("eval", answer, ctx)
        content = await _load_content(params, ctx)
        report = await canvas.change(params.action, content, key=ctx.call_id)
        return _report_change(params.action, report)


_TAKEN: Mapping[str, tuple[str, ...]] = {
    "present": ("html", "path"),
    "hide": (),
    "navigate": ("path", "url"),
    "eval": ("code",),
    "snapshot": (),
    "a2ui_push": ("jsonl", "jsonl_path"),
    "a2ui_reset": (),
}
_NEEDED = frozenset({"navigate", "eval", "a2ui_push"})


def _check_arguments(params: CanvasParams) -> None:
    given = [
        name
        for name in ("html", "path", "url", "code", "jsonl", "jsonl_path")
        if getattr(params, name) is not None
    ]
    taken = _TAKEN[params.action]
    for name in given:
        if name not in taken:
            takes = " or ".join(taken) or "nothing more"
            raise ValidationError(f"{params.action} takes {takes}, and no {name}", f"/{name}")
    if len(given) > 1:
        raise ValidationError(f"{params.action} takes one of {' and '.join(taken)}, not both", f"/{given[1]}")
    if not given and params.action in _NEEDED:
        raise ValidationError(f"{params.action} needs {' or '.join(taken)}", f"/{taken[0]}")
    if params.code is not None and not params.code.strip():
        raise ValidationError("eval needs a script", "/code")


async def _load_content(params: CanvasParams, ctx: ToolContext) -> dict[str, JsonValue]:
    if params.html is not None:
        return {"html": params.html}
    if params.path is not None:
        reader, path = ctx.require(READER), params.path
        return {"path": await run_in_call_thread(ctx, lambda _: _page_at(reader, path))}
    if params.url is not None:
        return await _fetch_web_page(params.url, ctx)
    text = params.jsonl
    if params.jsonl_path is not None:
        reader, path = ctx.require(READER), params.jsonl_path
        text = await run_in_call_thread(ctx, lambda _: _read_text(reader, path))
    if text is None:
        return {}
    ops: list[Any] = await run_in_call_thread(ctx, lambda _: parse_messages(text))
    return {"ops": ops}


def _page_at(reader: Reader, path: str) -> str:
    """Return the place of a page, once it is known to be a file that can be shown."""
    entry = reader.stat(path)
    if entry.type != "file":
        raise ExecutionError(f"{path!r} is a {entry.type}; a canvas shows a file")
    if entry.size > MAX_CONTENT_BYTES:
        raise ExecutionError(
            f"{path!r} has {entry.size:,} bytes; a canvas shows at most {MAX_CONTENT_BYTES:,}"
        )
    return entry.path


def _read_text(reader: Reader, path: str) -> str:
    entry = reader.stat(path)
    if entry.size > MAX_CONTENT_BYTES:
        raise ExecutionError(
            f"{path!r} has {entry.size:,} bytes; one call pushes at most {MAX_CONTENT_BYTES:,}"
        )
    return decode_text(read_whole(reader, entry, path))


async def _fetch_web_page(url: str, ctx: ToolContext) -> dict[str, JsonValue]:
    if ctx.web is None:
        raise ExecutionError("the owner of this tree allows no web access: present a page of the workspace")
    page = await ctx.web.get(url, max_bytes=MAX_CONTENT_BYTES // 2, accept="text/html")
    if page.content_type not in HTML_TYPES:
        raise ExecutionError(f"{page.url[:200]} is {page.content_type or 'of no type'}; a canvas shows HTML")
    if page.status >= 400 or page.truncated:
        why = f"status {page.status}" if page.status >= 400 else "it is too long"
        raise ExecutionError(f"{page.url[:200]} can't be shown: {why}")
    return {"url": page.url, "html": decode_page(page).text}


def _report_change(action: str, report: CanvasReport) -> ToolResult:
    output: dict[str, JsonValue] = {
        "status": "shown" if report.is_shown else "hidden",
        "page": report.page,
        "surfaces": dict(report.surfaces),
        "viewers": report.viewers,
    }
    if report.is_shown and not report.viewers:
        output["note"] = NO_VIEWER_NOTE
    display = f"canvas: {action}; {output['status']}, seen in {report.viewers} pages"
    return ToolResult(output=output, display=display, details=output)


async def _snapshot(params: CanvasParams, ctx: ToolContext) -> ToolResult:
    wanted = "" if ctx.browser is None else WITH_DOCUMENT
    answer = await ctx.require(CANVAS).ask("snapshot", wanted, key=ctx.call_id, timeout_s=params.timeout_s)
    seen = dict(answer) if isinstance(answer, dict) else {}
    html = seen.pop("html", None)
    picture, note = None, NO_BROWSER
    if ctx.browser is not None:
        picture, note = await draw_document(ctx.browser, html, seen)
    result = _build_answer("snapshot", seen or answer, ctx)
    display = f"{result.display}, {note if picture is None else f'a picture of {len(picture):,} bytes'}"
    shown = () if picture is None else (ImageContent(b64encode(picture).decode("ascii"), "image/png"),)
    return replace(result, output=f"{result.output}\n{note}", display=display, images=shown)


def _build_answer(kind: str, answer: JsonValue, ctx: ToolContext) -> ToolResult:
    text = dump_readable(answer)
    most = max(0, ctx.config.max_result_chars - FRAME_CHARS)
    shown = text if len(text) <= most else f"{text[:most]}… [{len(text) - most:,} more characters]"
    source = f"canvas of {ctx.session_id}"
    return ToolResult(
        output=wrap_untrusted(shown, kind=f"canvas {kind}", source=source),
        display=f"canvas: {kind}, {len(text)} characters",
        untrusted="marked",
    )
