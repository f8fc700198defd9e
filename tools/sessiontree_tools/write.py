"""``write``: puts a whole file in place."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.capabilities import WRITER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.flags import ToolFlag
from sessiontree.contracts.params import AllowEmpty
from sessiontree.contracts.ports import Writer
from sessiontree.contracts.results import Artifact, ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool
from sessiontree_tools.charset import to_utf8
from sessiontree_tools.threads import Stop, end_if, in_thread


class WriteParams(BaseModel):
    """What to write, and where."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, description="File to write, relative to the workspace.")
    content: Annotated[str, AllowEmpty()] = Field(
        description="The file's whole new content; may be empty. Written as UTF-8, exactly as given."
    )


class Write(Tool[WriteParams]):
    """Creates a file or replaces one."""

    name = "write"
    description = (
        "Create a file in the workspace or replace it whole; missing directories are made. What stood there "
        "before is lost: use edit to change a part of a file."
    )
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

        Raises:
            ValidationError: the content has no UTF-8 form.
            ExecutionError: the system refused; what stood there before still stands.
            PermissionDenied: the path is outside what may be written, or the session writes nothing.
        """
        writer = ctx.require(WRITER)
        data = to_utf8(params.content, "/content")
        return await in_thread(ctx, lambda stop: _write(writer, params.path, data, stop))


def _write(writer: Writer, path: str, data: bytes, stop: Stop) -> ToolResult:
    end_if(stop)
    written = writer.write(path, data)
    return ToolResult(
        output={"path": written.path, "bytes": written.bytes, "created": written.created},
        display=f"wrote {written.bytes} bytes to {written.path}",
        artifacts=(Artifact("file", "created" if written.created else "replaced", path=written.path),),
    )
