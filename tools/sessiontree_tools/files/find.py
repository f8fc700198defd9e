"""``find``: lists files by the pattern of their paths."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sessiontree.contracts.handles.ports import Reader
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import READER
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import Stop, run_in_call_thread
from sessiontree.contracts.tools.tool import ALL_KINDS, Tool, ToolFlag
from sessiontree.contracts.values.glob import PathGlob
from sessiontree_tools.files.file_walk import (
    GIT_DIRECTORY,
    Walk,
    check_glob,
    escape_path,
    format_listing,
    look_notes,
    make_path_test,
)

MAX_LIMIT = 10_000


class FindParams(BaseModel):
    """Which names, and where."""

    model_config = ConfigDict(extra="forbid")

    pattern: Annotated[str, AfterValidator(check_glob)] = Field(
        min_length=1,
        max_length=500,
        description="Such as `*.md` (at any depth) or `src/**/*.{ts,tsx}`.",
    )
    path: str = Field(default=".", min_length=1)
    limit: int = Field(default=1000, ge=1, le=MAX_LIMIT)


class Find(Tool[FindParams]):
    """Lists files whose paths fit a glob."""

    name = "find"
    description = "List the files whose paths match a glob."
    brief = True
    Params: ClassVar[type[BaseModel]] = FindParams
    label = "Find files"
    section = "fs"
    profiles = frozenset({"coding"})
    flags = frozenset({ToolFlag.WORKSPACE_ONLY})
    tier = PermissionTier.READ_ONLY
    kinds = ALL_KINDS
    capabilities = frozenset({"reader"})
    reads: ClassVar[tuple[str, ...]] = ("path",)

    async def execute(self, params: FindParams, ctx: ToolContext) -> ToolResult:
        """Return the paths as lines; details are ``{path, count, limited, exhausted, unreadable}``.

        Raises:
            ExecutionError: the directory does not exist or cannot be listed.
            PermissionDenied: the path is outside what may be read.
        """
        reader = ctx.require(READER)
        return await run_in_call_thread(
            ctx, lambda stop: _find(reader, params, ctx.config.max_result_chars, stop)
        )


def _find(reader: Reader, params: FindParams, max_chars: int, stop: Stop) -> ToolResult:
    fits = make_path_test(params.pattern)
    walk = Walk(reader, stop, into_git=PathGlob(params.pattern).holds(GIT_DIRECTORY))
    fitting = (found.entry.path for found in walk.files(params.path) if fits(found.below))
    paths = list(islice(fitting, params.limit + 1))
    limited = len(paths) > params.limit
    paths = paths[: params.limit]
    notes = [*look_notes(reader, params.path), *walk.note("narrow path")]
    if not paths:
        notes.append("no file fits the pattern")
    if limited:
        notes.append(
            f"limit of {params.limit} paths reached, there are more; narrow the pattern or raise limit"
        )
    if walk.unreadable:
        notes.append(f"{walk.unreadable} directories could not be read")
    return ToolResult(
        output=format_listing(map(escape_path, paths), notes, max_chars=max_chars),
        display=f"{len(paths)}{'+' if limited else ''} files fit {params.pattern}",
        details={
            "path": params.path,
            "count": len(paths),
            "limited": limited,
            "exhausted": walk.is_cut_short,
            "unreadable": walk.unreadable,
        },
    )
