"""``read``: shows a text file, a page at a time, or an image."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.ports import Reader
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import READER
from sessiontree.contracts.recorded.results import ToolResult, image_result_from_file
from sessiontree.contracts.settings.settings import detect_image_type
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import Stop, run_in_call_thread
from sessiontree.contracts.tools.tool import ALL_KINDS, Tool, ToolFlag
from sessiontree.contracts.values.file_names import name_note
from sessiontree_tools.files.text_file import (
    HEAD_BYTES,
    TextPage,
    cut_first_page,
    find_codec_by_mark,
    is_binary,
    read_up_to,
    skip_lines,
)

MAX_LINES = 2000
MAX_BYTES = 50 * 1024
HINT_CHARS = 160
"""Room kept for the lines that tell what was left out, so that no later cut removes them."""
MIN_BYTES = 40


class ReadParams(BaseModel):
    """Which lines of which file."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1)
    offset: int = Field(default=1, ge=0, description="First line, from 1.")
    limit: int | None = Field(default=None, ge=1)


class Read(Tool[ReadParams]):
    """Shows lines of a text file, or an image."""

    name = "read"
    description = (
        "Read a text file or an image: at most 2000 lines or 50 KB; the answer names the next offset."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = ReadParams
    label = "Read file"
    section = "fs"
    profiles = frozenset({"coding"})
    flags = frozenset({ToolFlag.WORKSPACE_ONLY})
    tier = PermissionTier.READ_ONLY
    kinds = ALL_KINDS
    capabilities = frozenset({"reader"})
    reads: ClassVar[tuple[str, ...]] = ("path",)

    async def execute(self, params: ReadParams, ctx: ToolContext) -> ToolResult:
        """Return the page as text; details are ``{path, lines, first, last, truncated, bytes}``.

        ``lines`` and ``bytes`` count what is shown of the file; ``first`` and ``last`` are line numbers,
        both 0 for an empty file. An image is a picture below ``MEDIA:<path>``; offset and limit don't count.

        Raises:
            ExecutionError: no such file, a binary one, or an offset past its end.
            ImageRefused: an image of more than 20 MiB.
            PermissionDenied: the path is outside what may be read.
        """
        reader = ctx.require(READER)
        max_bytes = max(MIN_BYTES, min(MAX_BYTES, ctx.config.max_result_chars - HINT_CHARS))
        return await run_in_call_thread(ctx, lambda stop: _read(reader, params, max_bytes, stop))


def _read(reader: Reader, params: ReadParams, max_bytes: int, stop: Stop) -> ToolResult:
    first = max(1, params.offset)
    max_lines = min(params.limit or MAX_LINES, MAX_LINES)
    entry = reader.stat(params.path)
    note = name_note(params.path, entry.path)
    # The note is part of the result, and a later cut would take it from the end of the page.
    max_bytes = max(MIN_BYTES, max_bytes - len(note.encode()))
    with reader.open(params.path) as stream:
        head = read_up_to(stream, HEAD_BYTES)
        # Before any line is looked for: a binary file may be one line of gigabytes.
        if is_binary(head):
            if detect_image_type(head) is not None:
                return image_result_from_file(reader, params.path)
            if (encoding := find_codec_by_mark(head)) is not None:
                raise ExecutionError(
                    f"can't read {params.path!r}: it is {encoding.upper()} text, and read shows UTF-8; "
                    "convert it, or search it with grep"
                )
            raise ExecutionError(f"can't read {params.path!r}: it is a binary file of {entry.size} bytes")
        stream.seek(0)
        passed = skip_lines(stream, first - 1, stop)
        block = read_up_to(stream, max_bytes + 1)
    if not block and first > 1:
        raise ExecutionError(
            f"can't read {params.path!r} from line {first}: the file has {passed} line{'s' * (passed != 1)}"
        )
    page = cut_first_page(block, max_lines=max_lines, max_bytes=max_bytes)
    last = first + page.lines - 1
    return ToolResult(
        output=_render_page(page, first, last, note),
        display=f"{entry.path}: lines {first}-{last}" if page.lines else f"{entry.path}: empty",
        details={
            "path": entry.path,
            "lines": page.lines,
            "first": first if page.lines else 0,
            "last": last,
            "truncated": page.more,
            "bytes": len(page.data),
        },
    )


def _render_page(page: TextPage, first: int, last: int, note: str) -> str:
    notes = [f"[{note}]"] if note else []
    if not page.lines:
        return "\n".join(["[the file is empty]", *notes])
    try:
        text = page.data.decode()
    except UnicodeDecodeError:
        text = page.data.decode(errors="replace")
        notes.append("[not UTF-8: bytes that fit no character are shown as \N{REPLACEMENT CHARACTER}]")
    if page.cut:
        notes.append(
            f"[line {first} is cut after {len(page.data)} bytes; use offset={last + 1} for the next line]"
        )
    elif page.more:
        notes.append(f"[… lines {first}-{last} shown, more follow; use offset={last + 1}]")
    if notes and not text.endswith("\n"):
        text += "\n"
    return text + "\n".join(notes)
