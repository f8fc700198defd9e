"""``preview_screenshot``: a picture of a page of the workspace, as a browser shows it."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.handles.browser import ConsoleLine
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import BROWSER, READER, WRITER
from sessiontree.contracts.recorded.results import Artifact, ToolResult, image_result
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import run_in_call_thread
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Tool, ToolFlag
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree_tools.pages.rendered_page import VIEWPORTS, PageFolder, open_page

MAX_ERRORS: Final = 5
"""Most errors of the page that a result names."""
MAX_ERROR_CHARS: Final = 200


class PreviewScreenshotParams(BaseModel):
    """A page, and how to look at it."""

    model_config = ConfigDict(extra="forbid")

    filename: str = Field(default="index.html", min_length=1, description="The page.")
    viewport: Literal["desktop", "tablet", "mobile"] = "desktop"
    full_page: bool = Field(default=False, description="All of the page, not only what is visible first.")
    save_as: str | None = Field(default=None, min_length=5, description="PNG file of the workspace.")


class PreviewScreenshot(Tool[PreviewScreenshotParams]):
    """Shows a page at the size of a desktop, a tablet or a phone."""

    name = "preview_screenshot"
    description = (
        "Look at a page of the workspace: a picture at 1440x900 (desktop), 768x1024 (tablet) or 375x812 "
        "(mobile). The page loads files of its folder only."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = PreviewScreenshotParams
    label = "Picture of page"
    section = "landing"
    flags = frozenset({ToolFlag.WORKSPACE_ONLY, ToolFlag.OPTIONAL})
    tier = PermissionTier.SYSTEM
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"reader", "browser"})
    optional_capabilities = frozenset({"writer"})
    timeout_s: ClassVar[float | None] = 120.0
    changes: ClassVar[tuple[str, ...]] = ("save_as",)

    async def execute(self, params: PreviewScreenshotParams, ctx: ToolContext) -> ToolResult:
        """Take the picture; details are ``{viewport, width, height, page, saved, missing, errors}``.

        ``missing`` are files that the page asked for in vain, ``errors`` those of its scripts and requests.

        Raises:
            ValidationError: ``save_as`` is no name of a PNG file.
            ExecutionError: the page is missing, does not come to rest, or the browser fails.
            ConfinementUnavailable: this machine can't confine a browser.
            PermissionDenied: a path is outside of what may be read or written.
        """
        reader, browser = ctx.require(READER), ctx.require(BROWSER)
        save_as = params.save_as
        if save_as is not None and not save_as.lower().endswith(".png"):
            raise ValidationError("the picture is a PNG file; let its name end with .png", "/save_as")
        writer = None if save_as is None else ctx.require(WRITER)
        files = await run_in_call_thread(ctx, lambda _: PageFolder(reader, params.filename))
        size = VIEWPORTS[params.viewport]
        async with open_page(browser, files, size) as tab:
            picture = await browser.screenshot(tab_id=tab.tab_id, full_page=params.full_page)
            errors = list_console_errors(await browser.console(tab_id=tab.tab_id))
        text = f"Screenshot taken ({params.viewport} viewport)"
        saved = None
        if writer is not None and save_as is not None:
            saved = (await run_in_call_thread(ctx, lambda _: writer.write(save_as, picture))).path
            text += f", saved as {saved}"
        missing = list(files.missing)[:MAX_ERRORS]
        if missing:
            text += f"\nThese files are missing: {', '.join(missing)}"
        if errors:
            text += "\nThe page reports: " + "; ".join(errors)
        details: dict[str, JsonValue] = {
            "viewport": params.viewport,
            "width": size.width,
            "height": size.height,
            "page": files.page,
            "saved": saved,
            "missing": list[JsonValue](missing),
            "errors": list[JsonValue](errors),
        }
        return image_result(
            text,
            picture,
            mime_type="image/png",
            details=details,
            display=f"{files.page} at {size.width} x {size.height}: {len(picture):,} bytes",
            artifacts=() if saved is None else (Artifact("file", "screenshot", path=saved),),
        )


def list_console_errors(lines: tuple[ConsoleLine, ...]) -> list[str]:
    """Return the first errors of a page's console, shortened, each once."""
    kinds = {"error", "exception"}
    texts = dict.fromkeys(
        " ".join(line.text.split())[:MAX_ERROR_CHARS] for line in lines if line.kind in kinds
    )
    return list(texts)[:MAX_ERRORS]
