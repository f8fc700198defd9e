"""``edit``: replaces one passage of a file."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.capabilities import READER, WRITER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.flags import ToolFlag
from sessiontree.contracts.params import AllowEmpty
from sessiontree.contracts.ports import Entry, Reader, Writer
from sessiontree.contracts.results import Artifact, ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool
from sessiontree_tools.charset import to_utf8
from sessiontree_tools.hunk import unified_diff
from sessiontree_tools.pages import read_up_to
from sessiontree_tools.replacement import replace_once
from sessiontree_tools.threads import Stop, end_if, in_thread

MAX_BYTES = 10 * 1024 * 1024


class EditParams(BaseModel):
    """Which passage of which file becomes what."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, description="File to change, relative to the workspace.")
    old_text: str = Field(
        min_length=1,
        description=(
            "The passage to replace, copied from the file with enough lines around it to be the only one."
        ),
    )
    new_text: Annotated[str, AllowEmpty()] = Field(
        description="What stands there afterwards; empty removes the passage."
    )


class Edit(Tool[EditParams]):
    """Replaces the one passage of a file that fits."""

    name = "edit"
    description = (
        "Replace one passage of a text file. old_text must occur exactly once. Where it is not found so, "
        "curly and straight quotes, dashes, kinds of spaces, spaces at line ends and CRLF against LF are "
        "treated alike. The file keeps its own line ends. Read the file first."
    )
    Params: ClassVar[type[BaseModel]] = EditParams
    label = "Edit file"
    section = "fs"
    profiles = frozenset({"coding"})
    flags = frozenset({ToolFlag.WORKSPACE_ONLY})
    tier = PermissionTier.WORKSPACE
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"reader", "writer"})
    sequential = True
    changes: ClassVar[tuple[str, ...]] = ("path",)

    async def execute(self, params: EditParams, ctx: ToolContext) -> ToolResult:
        """Change the file; the output is ``{path, replaced_at_line, tolerant}``, details add the diff.

        Raises:
            ValidationError: new_text has no UTF-8 form.
            ExecutionError: the passage is not there, not unique or unchanged, the file is no UTF-8 text of
                at most 10 MB, or it was changed meanwhile. The file is then as it was.
            PermissionDenied: the path is outside what may be changed, or the session changes nothing.
        """
        writer, reader = ctx.require(WRITER), ctx.require(READER)
        to_utf8(params.new_text, "/new_text")
        return await in_thread(ctx, lambda stop: _edit(reader, writer, params, stop))


def _edit(reader: Reader, writer: Writer, params: EditParams, stop: Stop) -> ToolResult:
    entry = reader.stat(params.path)
    try:
        change = replace_once(_text_of(reader, entry, params.path), params.old_text, params.new_text)
    except ExecutionError as error:
        raise ExecutionError(f"can't edit {params.path!r}: {error.message}") from error
    data = change.after.encode()
    end_if(stop)
    written = writer.write(params.path, data, expect_mtime_ns=entry.mtime_ns)
    how = " (tolerant match)" if change.tolerant else ""
    return ToolResult(
        output={"path": written.path, "replaced_at_line": change.line, "tolerant": change.tolerant},
        display=f"edited {written.path} at line {change.line}{how}",
        artifacts=(Artifact("file", "edited", path=written.path),),
        details={
            "path": written.path,
            "replaced_at_line": change.line,
            "tolerant": change.tolerant,
            "diff": unified_diff(written.path, change),
        },
    )


def _text_of(reader: Reader, entry: Entry, path: str) -> str:
    with reader.open(path) as stream:
        data = read_up_to(stream, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ExecutionError(f"it has {max(entry.size, len(data))} bytes and edit takes at most {MAX_BYTES}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ExecutionError(f"it is not UTF-8 text (byte {error.start + 1})") from error
