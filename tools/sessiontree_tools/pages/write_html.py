"""``write_html``: puts a file of a page in place, and says what is wrong with it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree.contracts.handles.ports import Reader, Writer
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import READER, WRITER
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import Stop, end_if, run_in_call_thread
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, AllowEmpty, Tool, ToolFlag
from sessiontree.contracts.values.file_names import name_note
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree_tools.files.text_file import to_utf8
from sessiontree_tools.pages.page_files import FileOutline, is_file, outline_file

WRITTEN: Final = ("html", "htm", "css", "js", "mjs", "json", "webmanifest", "svg", "xml", "txt")
"""Endings of the names of files that it writes."""
MAX_CHARS: Final = 1_000_000
MAX_SHOWN: Final = 20
"""Most problems or references of a kind in a result."""


class WriteHtmlParams(BaseModel):
    """A file of a page."""

    model_config = ConfigDict(extra="forbid")

    filename: str = Field(min_length=1, description="Relative to the workspace.")
    content: Annotated[str, AllowEmpty()]


class WriteHtml(Tool[WriteHtmlParams]):
    """Creates or replaces a file of a page, and checks it."""

    name = "write_html"
    description = (
        "Write a whole HTML, CSS, JavaScript, JSON, SVG or text file of a page. The result names faults of "
        "the markup and references that lead nowhere. Previews load nothing from other sites."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = WriteHtmlParams
    label = "Write page"
    section = "landing"
    flags = frozenset({ToolFlag.WORKSPACE_ONLY, ToolFlag.OPTIONAL})
    tier = PermissionTier.WORKSPACE
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"reader", "writer"})
    sequential = True
    changes: ClassVar[tuple[str, ...]] = ("filename",)

    async def execute(self, params: WriteHtmlParams, ctx: ToolContext) -> ToolResult:
        """Write the file; the output is ``{success, path, size, created}`` and what is to be seen to.

        That is ``problems`` (of the markup, with line numbers), ``missing`` (references to files that are not
        there), ``rooted`` (references that begin with ``/`` and lead nowhere once the page is published) and
        ``external`` (addresses of other sites that are loaded with the page), at most 20 each; ``left_out``
        counts the rest. ``size`` is in bytes.

        Raises:
            ValidationError: it is no kind of file that a page is written in, too long, or has no UTF-8 form.
            ExecutionError: the system refused, or the markup can't be checked in time; then nothing changed.
            PermissionDenied: the path is outside what may be written, or the session writes nothing.
        """
        writer, reader = ctx.require(WRITER), ctx.require(READER)
        stem, _, ending = params.filename.rpartition("/")[2].rpartition(".")
        if not stem or ending.lower() not in WRITTEN:
            raise ValidationError(f"a page is written in files of {', '.join(WRITTEN)}", "/filename")
        if len(params.content) > MAX_CHARS:
            raise ValidationError(f"it has more than {MAX_CHARS:,} characters", "/content")
        data = to_utf8(params.content, "/content")
        return await run_in_call_thread(ctx, lambda stop: _write_page(reader, writer, params, data, stop))


def _write_page(
    reader: Reader, writer: Writer, params: WriteHtmlParams, data: bytes, stop: Stop
) -> ToolResult:
    try:
        outline = outline_file(params.filename, params.content, stop)  # before anything is written
    except ExecutionError as error:
        raise ExecutionError(f"{error.message}. Nothing was written") from error
    end_if(stop)
    written = writer.write(params.filename, data)
    note = name_note(params.filename, written.path)
    remarks = _collect_remarks(reader, written.path, outline)
    count = sum(len(each) for each in remarks.values() if isinstance(each, list))
    return ToolResult(
        output={
            "success": True,
            "path": written.path,
            "size": written.bytes,
            "created": written.created,
            **remarks,
            **({"note": note} if note else {}),
        },
        display=f"wrote {written.bytes} bytes to {written.path}" + (f", {count} to see to" if count else ""),
        artifacts=(Artifact("file", "created" if written.created else "replaced", path=written.path),),
    )


def _collect_remarks(reader: Reader, page: str, outline: FileOutline) -> dict[str, JsonValue]:
    """Return what is to be seen to, by kind; kinds without any are left out."""
    found: dict[str, dict[str, None]] = {"problems": dict.fromkeys(outline.problems)}
    for reference in outline.references:
        kind, path, _ = reference.target_from(page)
        if kind == "rooted":
            found.setdefault("rooted", {})[reference.url] = None
        elif kind == "external" and reference.element not in {"a", "area"}:
            found.setdefault("external", {})[reference.url] = None
        elif kind == "outside" or (kind == "file" and not is_file(reader, path)):
            found.setdefault("missing", {})[reference.url] = None
    shown: dict[str, JsonValue] = {}
    for name, each in found.items():
        if each:
            shown[name] = list[JsonValue](each)[:MAX_SHOWN]
    left_out = sum(max(0, len(each) - MAX_SHOWN) for each in found.values())
    return {**shown, **({"left_out": left_out} if left_out else {})}
