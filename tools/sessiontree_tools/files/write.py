"""``write``: puts a whole file in place."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.handles.ports import Writer
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import WRITER
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import Stop, end_if, run_in_call_thread
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, AllowEmpty, Tool, ToolFlag
from sessiontree.contracts.values.file_names import name_note
from sessiontree_tools.files.text_file import to_utf8


class WriteParams(BaseModel):
    """What to write, and where."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1)
    content: Annotated[str, AllowEmpty()]


class Write(Tool[WriteParams]):
    """Creates a file or replaces one."""

    name = "write"
    description = "Create or replace a whole file, and its directories. To change a part of a file, use edit."
    brief = True
    Params: ClassVar[type[BaseModel]] = WriteParams
    label = "Write file"
    section = "fs"
    profiles = frozenset({"coding"})
    flags = frozenset({ToolFlag.WORKSPACE_ONLY})
    tier = PermissionTier.WORKSPACE
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"writer"})
    sequential = True
    changes: ClassVar[tuple[str, ...]] = ("path",)

    async def execute(self, params: WriteParams, ctx: ToolContext) -> ToolResult:
        """Write the file; the output is ``{path, bytes, created}``.

        An existing file that looks the same by its name is replaced; then ``note`` says so.

        Raises:
            ValidationError: the content has no UTF-8 form.
            ExecutionError: the system refused; what was there before is unchanged.
            PermissionDenied: the path is outside what may be written, or the session writes nothing.
        """
        writer = ctx.require(WRITER)
        data = to_utf8(params.content, "/content")
        return await run_in_call_thread(ctx, lambda stop: _write(writer, params.path, data, stop))


def _write(writer: Writer, path: str, data: bytes, stop: Stop) -> ToolResult:
    end_if(stop)
    written = writer.write(path, data)
    note = name_note(path, written.path)
    return ToolResult(
        output={
            "path": written.path,
            "bytes": written.bytes,
            "created": written.created,
            **({"note": note} if note else {}),
        },
        display=f"wrote {written.bytes} bytes to {written.path}",
        artifacts=(Artifact("file", "created" if written.created else "replaced", path=written.path),),
    )
