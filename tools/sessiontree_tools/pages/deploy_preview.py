"""``deploy_preview``: publishes a page at an address of this machine, for a person to look at."""

from __future__ import annotations

import posixpath
from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.ports import Reader
from sessiontree.contracts.handles.previews import MAX_PAGE_BYTES, MAX_PAGE_FILES, page_type
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import PREVIEWS, READER
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import Stop, end_if, run_in_call_thread
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Tool, ToolFlag
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree_tools.files.text_file import read_up_to

MAX_LOOKED_AT: Final = 20_000
"""Most names below the folder, those included that are left out."""


class DeployPreviewParams(BaseModel):
    """The folder of a page."""

    model_config = ConfigDict(extra="forbid")

    project_dir: str = Field(default=".", min_length=1, description="The page's folder.")
    entry: str = Field(default="index.html", min_length=1, description="Its first file.")


class DeployPreview(Tool[DeployPreviewParams]):
    """Publishes a copy of a page's files."""

    name = "deploy_preview"
    description = (
        "Publish a copy of a page's folder at an address that only this machine reaches; give the person the "
        "address. It ends with this session. Publish again after changes: the address stays."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = DeployPreviewParams
    label = "Publish preview"
    section = "landing"
    flags = frozenset({ToolFlag.WORKSPACE_ONLY, ToolFlag.OPTIONAL})
    tier = PermissionTier.SYSTEM
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"reader", "previews"})
    idempotent = True

    async def execute(self, params: DeployPreviewParams, ctx: ToolContext) -> ToolResult:
        """Publish the page; the output is ``{preview_url, deployed, files, bytes, replaced, left_out}``.

        ``left_out`` counts what was not published: links, hidden files, and files that no page consists of.

        Raises:
            ExecutionError: the folder or its first file is missing, there is too much, or this machine can't
                serve it.
            PermissionDenied: the folder is outside what may be read, or the session publishes nothing.
        """
        reader, previews = ctx.require(READER), ctx.require(PREVIEWS)
        folder, files, left_out = await run_in_call_thread(
            ctx, lambda stop: copy_page(reader, params.project_dir, stop)
        )
        entry = posixpath.normpath(params.entry)
        if entry not in files:
            raise ExecutionError(f"there is no {params.entry!r} in {folder!r}; give entry, or write it first")
        page = await previews.publish(folder, files, entry=entry)
        size = sum(map(len, files.values()))
        output: dict[str, JsonValue] = {
            "preview_url": page.url,
            "deployed": True,
            "files": len(files),
            "bytes": size,
            "replaced": page.replaced,
            "left_out": left_out,
        }
        return ToolResult(
            output=output,
            display=f"published {len(files)} files at {page.url}",
            artifacts=(Artifact("reference", "preview", uri=page.url),),
        )


def copy_page(reader: Reader, folder: str, stop: Stop) -> tuple[str, dict[str, bytes], int]:
    """Return a folder's real path, its files that a page consists of, and how many names were left out.

    Blocks: call it from a thread. Files are opened under the reader's rules, so a link that takes a file's
    place meanwhile leads to nothing outside the workspace.

    Raises:
        ExecutionError: it is no folder, has too many or too large files, or the work was stopped.
        PermissionDenied: it is outside what may be read.
    """
    found = reader.stat(folder)
    if found.type != "directory":
        raise ExecutionError(f"{folder!r} is not a folder")
    files: dict[str, bytes] = {}
    looked_at = size = 0
    for entry in reader.walk(found.path):
        end_if(stop)
        looked_at += 1
        if looked_at > MAX_LOOKED_AT:
            raise ExecutionError(
                f"{found.path!r} has more than {MAX_LOOKED_AT:,} files; give the page's folder"
            )
        path = entry.path if found.path == "." else entry.path.removeprefix(f"{found.path}/")
        is_hidden = any(part.startswith(".") for part in path.split("/"))
        if entry.type != "file" or is_hidden or page_type(path) is None:
            continue
        if len(files) == MAX_PAGE_FILES:
            raise ExecutionError(f"the page has more than {MAX_PAGE_FILES} files; give the page's own folder")
        with reader.open(entry.path) as stream:
            files[path] = read_up_to(stream, MAX_PAGE_BYTES - size + 1)
        size += len(files[path])
        if size > MAX_PAGE_BYTES:
            raise ExecutionError(f"the page has more than {MAX_PAGE_BYTES:,} bytes")
    return found.path, files, looked_at - len(files)
